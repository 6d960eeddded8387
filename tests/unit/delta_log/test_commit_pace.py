"""Whose turn it is to commit, at moments of a clock that the tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.delta_log.appending import batch, create, lead, run

from mainstem.delta_log import Appended, Appender, Slice, Topics
from mainstem.delta_log.append import CommitTurns
from mainstem.delta_log.append import turns as turns_module
from mainstem.delta_log.append.pace import LARGE_COMMIT_BYTES, CommitPace, wait_s_max


def _spent(rate: int) -> CommitPace[str]:
    """Nothing is left of the budget, at time 0."""
    pace = CommitPace[str](rate, 10_000, 0.0)
    pace.ask("first", 60.0, 0.0)
    while pace.take(0.0):
        pace.ask("first", 60.0, 0.0)
    pace.leave("first")
    return pace


def test_while_there_is_budget_topics_commit_at_once() -> None:
    pace = CommitPace[str](400, 10_000, 0.0)
    for number in range(100):
        pace.ask(f"t{number}", 2.5, 0.0)
        assert pace.take(0.0) == [f"t{number}"]


def test_without_budget_they_wait_until_there_is_some() -> None:
    pace = _spent(4)
    pace.ask("a", 60.0, 0.0)
    pace.ask("b", 60.0, 0.0)
    assert pace.take(0.0) == []
    assert pace.next_at() == pytest.approx(0.25)
    assert pace.take(0.25) == ["a"]
    assert pace.take(0.3) == []
    assert pace.take(0.5) == ["b"]


def test_the_one_with_less_patience_is_first() -> None:
    pace = _spent(4)
    pace.ask("patient", 2.5, 0.0)
    pace.ask("hasty", 0.25, 0.1)
    assert pace.take(0.26) == ["hasty"]


def test_one_whose_patience_is_over_goes_without_budget_which_the_others_miss_then() -> None:
    pace = _spent(1)
    pace.ask("overdue", 0.5, 0.0)
    pace.ask("patient", 60.0, 0.0)
    assert pace.take(0.5) == ["overdue"]
    assert pace.take(1.0) == []
    assert pace.take(2.0) == ["patient"]


def test_however_much_was_overdue_there_is_budget_again_soon() -> None:
    pace = _spent(4)
    for number in range(1_000):
        pace.ask(f"t{number}", 0.0, 0.0)
    assert len(pace.take(0.0)) == 1_000
    pace.ask("next", 60.0, 0.0)
    assert pace.take(0.6) == ["next"]


def test_while_as_many_are_under_way_as_may_be_the_next_waits_for_the_end_of_one() -> None:
    pace = CommitPace[str](400, 2, 0.0)
    for topic in ("a", "b", "c", "d"):
        pace.ask(topic, 2.5, 0.0)
    assert pace.take(0.0) == ["a", "b"]
    assert pace.next_at() == 2.5
    assert pace.take(1.0) == []
    pace.ended()
    assert pace.take(1.0) == ["c"]
    assert pace.take(2.5) == ["d"]


def test_a_commit_without_its_turn_is_under_way_too() -> None:
    pace = CommitPace[str](400, 1, 0.0)
    pace.start(0.0)
    pace.ask("a", 2.5, 0.0)
    assert pace.take(0.0) == []
    pace.ended()
    assert pace.take(0.0) == ["a"]


def test_commits_that_wait_for_no_turn_use_the_budget() -> None:
    pace = CommitPace[str](4, 10_000, 0.0)
    pace.start(0.0)
    pace.ask("a", 60.0, 0.0)
    assert pace.take(0.0) == []


@pytest.mark.parametrize(
    ("interval_ms", "wait_s"), [(0, 0.0), (10, 0.25), (100, 2.5), (1_000, 2.5)]
)
def test_a_topic_waits_for_25_of_its_intervals_and_never_past_the_gateways_maximum(
    interval_ms: int, wait_s: float
) -> None:
    assert wait_s_max(interval_ms, 2_500) == wait_s


def test_a_turn_comes_with_its_budget_and_is_told() -> None:
    async def work() -> None:
        turns = CommitTurns(10, 1_000, 2_500)
        told: list[str] = []
        done = asyncio.Event()

        def b_has_come() -> None:
            told.append("b")
            done.set()

        first = [turns.ask(100, lambda: None) for _ in range(2)]
        a = turns.ask(100, lambda: told.append("a"))
        b = turns.ask(100, b_has_come)
        assert [turn.has_come for turn in first] == [True, True]
        assert (a.has_come, b.has_come, turns.waiting_count) == (False, False, 2)
        async with asyncio.timeout(30):
            await done.wait()
        assert told == ["a", "b"]
        assert turns.waiting_count == 0

    asyncio.run(work())


def test_a_hasty_topic_does_not_wait_for_the_timer_of_a_patient_one() -> None:
    async def work() -> None:
        turns = CommitTurns(1, 1_000, 60_000)
        turns.ask(10_000, lambda: None)
        turns.ask(10_000, lambda: None)
        before = turns._timer_at
        done = asyncio.Event()
        turns.ask(1, done.set)
        assert turns._timer_at < before
        async with asyncio.timeout(30):
            await done.wait()

    asyncio.run(work())


def test_the_end_of_a_commit_gives_the_next_its_turn() -> None:
    async def work() -> None:
        turns = CommitTurns(400, 1, 60_000)
        first = turns.ask(10_000, lambda: None)
        first.begin()
        second = turns.ask(10_000, lambda: None)
        assert not second.has_come
        first.end()
        assert second.has_come

    asyncio.run(work())


def test_a_commit_that_hangs_gives_its_place_to_a_topic_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns_module, "SLOW_S", 0.02)

    async def work() -> None:
        turns = CommitTurns(400, 1, 60_000)
        hung = turns.ask(10_000, lambda: None)
        hung.begin()
        done = asyncio.Event()
        second = turns.ask(10_000, done.set)
        assert not second.has_come
        async with asyncio.timeout(30):
            await done.wait()
        third = turns.ask(10_000, lambda: None)
        hung.end()
        assert not third.has_come, "the place is the second one's now"
        second.end()
        assert third.has_come

    asyncio.run(work())


def test_a_topic_that_leaves_is_told_of_no_turn() -> None:
    async def work() -> None:
        turns = CommitTurns(10, 1_000, 100)
        for _ in range(2):
            turns.ask(100, lambda: None)
        gone = turns.ask(100, lambda: pytest.fail("it had left"))
        gone.end()
        done = asyncio.Event()
        turns.ask(100, done.set)
        async with asyncio.timeout(30):
            await done.wait()
        assert not gone.has_come

    asyncio.run(work())


def _unawaited(told: list[str], rate: int = 400) -> CommitTurns:
    """Commits that nobody waits for have one turn a second, and that one was had."""
    turns = CommitTurns(
        rate,
        1_000,
        2_500,
        unawaited_rate=1,
        unawaited_interval_max_ms=60_000,
        monotonic=asyncio.get_running_loop().time,
    )
    assert turns.ask(100, lambda: told.append("first"), is_awaited=False).has_come
    return turns


def test_commits_that_nobody_waits_for_have_a_budget_of_their_own() -> None:
    async def work() -> None:
        told: list[str] = []
        turns = _unawaited(told)
        quiet = turns.ask(100, lambda: told.append("quiet"), is_awaited=False)
        awaited = [turns.ask(100, lambda: None) for _ in range(50)]
        assert all(turn.has_come for turn in awaited)
        assert not quiet.has_come
        async with asyncio.timeout(30):
            while "quiet" not in told:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert turns.waiting_count == 0

    asyncio.run(work())


@pytest.mark.parametrize("rate", [0, 400])
def test_a_commit_that_somebody_begins_to_wait_for_goes_with_the_others(rate: int) -> None:
    async def work() -> None:
        told: list[str] = []
        turns = _unawaited(told, rate)
        one, other = (turns.ask(100, lambda: told.append("it"), is_awaited=False) for _ in "ab")
        one.hurry()
        assert (one.has_come, other.has_come, told) == (True, False, ["first", "it"])
        one.hurry()
        one.begin()
        one.end()
        turns.hurry_all()
        assert other.has_come
        assert told == ["first", "it", "it"]
        other.begin()
        other.end()
        assert turns.waiting_count == 0

    asyncio.run(work())


def test_a_topic_that_wants_early_commits_has_them_though_nobody_waits() -> None:
    async def work() -> None:
        turns = _unawaited([])
        assert turns.ask(0, lambda: None, is_awaited=False).has_come

    asyncio.run(work())


def test_without_a_rate_every_turn_has_come() -> None:
    async def work() -> None:
        turns = CommitTurns(0, 1_000, 2_500)
        assert all(turns.ask(100, lambda: None).has_come for _ in range(1_000))

    asyncio.run(work())


def _nobodys_turn() -> CommitTurns:
    """All commits that may be under way are, for as long as the test takes."""
    turns = CommitTurns(400, 1, 60_000, monotonic=lambda: 0.0)  # else it would count as hung
    turns.ask(60_000, lambda: None)
    return turns


async def _in_line(
    topics: Topics, pool: ThreadPoolExecutor
) -> tuple[CommitTurns, Appender, Awaitable[Appended]]:
    """A topic with a record that waits for its turn; the record's answer."""
    turns = _nobodys_turn()
    appender = await lead(topics.open("t"), pool, turns=turns)
    answer = appender.submit([Slice(0, batch(1))], 10)
    while not turns.waiting_count:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return turns, appender, answer


def test_a_topic_that_is_closed_while_it_waits_commits_without_its_turn(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics, commit_interval_ms=60_000)

    async def work() -> None:
        turns, appender, answer = await _in_line(topics, pool)
        await appender.close(30)
        assert (await answer).table_version > 0
        assert turns.waiting_count == 0

    run(work)


def test_a_topic_with_much_to_write_does_not_wait_for_its_turn(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics, commit_interval_ms=60_000)

    async def work() -> None:
        _, appender, small = await _in_line(topics, pool)
        large = appender.submit([Slice(0, batch(2))], LARGE_COMMIT_BYTES)
        async with asyncio.timeout(30):
            assert (await small).table_version == (await large).table_version
        await appender.close(30)

    run(work)
