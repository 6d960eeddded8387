"""The pace of commits: whatever topics do, none waits past its time, none is passed over, and small
commits stay within their budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem.delta_log.append.pace import CommitPace

RATES = st.sampled_from([1, 3, 10, 400])

#: Topics that come: how long after the one before, and how long each would wait. Seconds.
ARRIVALS = st.lists(
    st.tuples(st.floats(0, 0.5), st.sampled_from([0.0, 0.1, 1.0, 2.5])), min_size=1, max_size=80
)


def _run(rate: int, arrivals: list[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """For each topic: when it came, its latest time, and when it had its turn. `take` is called
    whenever `next_at` says that there is somebody."""
    pace = CommitPace[int](rate, 1_000_000, 0.0)
    came: dict[int, tuple[float, float]] = {}
    turns: dict[int, float] = {}

    def give_until(end: float) -> None:
        while (at := pace.next_at()) <= end:
            at = max(at, now)
            taken = pace.take(at)
            assert taken, "a look in vain"
            turns.update((topic, at) for topic in taken)

    now = 0.0
    for number, (after_s, wait_s) in enumerate(arrivals):
        give_until(now + after_s)
        now += after_s
        pace.ask(number, wait_s, now)
        came[number] = (now, now + wait_s)
    give_until(now + 1_000.0)
    assert len(pace) == 0
    return [(*came[number], turns[number]) for number in came]


@given(RATES, ARRIVALS)
def test_no_topic_waits_past_its_time(rate: int, arrivals: list[tuple[float, float]]) -> None:
    for came, latest, turn in _run(rate, arrivals):
        assert came <= turn <= latest + 1e-9


@given(RATES, ARRIVALS)
def test_of_topics_that_wait_as_long_the_first_to_come_is_the_first_to_go(
    rate: int, arrivals: list[tuple[float, float]]
) -> None:
    turns = [turn for *_, turn in _run(rate, [(after_s, 2.5) for after_s, _ in arrivals])]
    assert turns == sorted(turns)


@given(RATES, ARRIVALS)
def test_commits_that_are_not_overdue_stay_within_the_budget(
    rate: int, arrivals: list[tuple[float, float]]
) -> None:
    early = sorted(turn for _, latest, turn in _run(rate, arrivals) if turn < latest)
    burst = max(1.0, rate * 0.25)
    for first, began in enumerate(early):
        for last in range(first, len(early)):
            assert last - first + 1 <= burst + rate * (early[last] - began) + 1e-3


@given(st.integers(1, 100), st.integers(1, 10))
def test_every_topic_of_a_crowd_has_its_turn_in_each_round(topics: int, rounds: int) -> None:
    """Each wants to commit again as soon as it has."""
    pace = CommitPace[int](10, 1_000_000, 0.0)
    for topic in range(topics):
        pace.ask(topic, 60.0, 0.0)
    counts = dict.fromkeys(range(topics), 0)
    now = 0.0
    for _ in range(topics * rounds):
        now = max(now, pace.next_at())
        for topic in pace.take(now):
            counts[topic] += 1
            pace.ask(topic, 60.0, now)
        assert max(counts.values()) - min(counts.values()) <= 1


@given(st.lists(st.sampled_from(["ask", "leave", "take"]), max_size=200))
def test_topics_that_leave_have_no_turn_and_leave_nothing_behind(steps: list[str]) -> None:
    pace = CommitPace[int](4, 1_000_000, 0.0)
    waiting: list[int] = []
    for number, step in enumerate(steps):
        if step == "ask":
            pace.ask(number, 5.0, 0.0)
            waiting.append(number)
        elif step == "leave" and waiting:
            pace.leave(waiting.pop(len(waiting) // 2))
        elif step == "take":
            taken = pace.take(0.0)
            assert taken == waiting[: len(taken)]
            del waiting[: len(taken)]
        assert len(pace) == len(waiting)
        assert len(pace._line) <= 2 * len(waiting) + 17
