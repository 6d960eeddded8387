"""The commit loop: what is tried next after each outcome, told by hand. No store, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.unit.delta_log.faults import unavailable
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import TableState
from mainstem.delta_log.format import (
    Action,
    CommitInfo,
    DataFile,
    Metadata,
    Protocol,
    Register,
    Remove,
    registers,
)
from mainstem.delta_log.table import (
    Committed,
    Conflict,
    Landed,
    LogOvertakenError,
    NotThere,
    OutcomeUnknown,
    Overtaken,
    TableCommit,
)
from mainstem.delta_log.table.commit_loop import (
    BESIDE_LEADER,
    CHANGE,
    CLAIM,
    CREATE,
    LEADER,
    Attempt,
    Read,
    Reload,
    RetryPolicy,
    Step,
    StoreFailed,
    Told,
    Wait,
    commit_loop,
)
from mainstem.errors import (
    FencedError,
    LogDamagedError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UnknownTopicError,
    UnsupportedTableError,
)

POLICIES = [LEADER, CHANGE, BESIDE_LEADER, CLAIM, CREATE]

FAILED = StoreFailed(unavailable())


def state(version: int = 4) -> TableState:
    """A table of two partitions, led with epoch 3."""
    made = TableState("t")
    info = CommitInfo("before", "X", NOW_MS)
    metadata = Metadata("id", NOW_MS, {"mainstem.partitions": "2"})
    made.apply(version, [info, Protocol(), metadata, Register(registers.EPOCH, 3)])
    return made


def commit(*, survives_appends: bool = False) -> TableCommit:
    register = Register("mainstem/lso/0", 1)
    return TableCommit.of(
        "TEST", [register], timestamp_ms=NOW_MS, survives_appends=survives_appends
    )


def run(
    told: Callable[[Step], Told],
    *,
    policy: RetryPolicy = LEADER,
    epoch: int | None = None,
    build: Callable[[TableState], TableCommit | None] | None = None,
    at: TableState | None = None,
    steps: list[Step] | None = None,
) -> tuple[Landed | None, list[Step]]:
    """Runs a loop to its end; returns what came of it and its steps."""
    one = commit()
    loop = commit_loop(
        at or state(),
        build or (lambda _: one),
        topic="t",
        policy=policy,
        epoch=epoch,
        dice=lambda _, most: most,
    )
    steps = [] if steps is None else steps
    answer: Told = None
    while True:
        try:
            step = loop.send(answer)
        except StopIteration as ended:
            return ended.value, steps
        steps.append(step)
        assert len(steps) < 1_000, "the loop does not end"
        answer = None if isinstance(step, Wait) else told(step)


def script(*answers: Told) -> Callable[[Step], Told]:
    """Answers attempts one after the other; nobody else has committed."""
    left = list(answers)

    def told(step: Step) -> Told:
        return NotThere(step.version) if isinstance(step, Read) else left.pop(0)

    return told


def winner(version: int, *actions: Action) -> Conflict:
    return Conflict(version, (CommitInfo(f"other{version}", "Y", NOW_MS), *actions))


def attempts(steps: Sequence[Step]) -> list[tuple[int, str]]:
    """Version and the id of the commit before it, of each attempt."""
    return [(step.version, step.after_id) for step in steps if isinstance(step, Attempt)]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
def test_a_commit_that_lands_at_once_is_the_next_version_after_the_one_that_is_known(
    policy: RetryPolicy,
) -> None:
    at = state(4)
    landed, steps = run(script(Committed(5)), policy=policy, at=at)
    assert landed == Landed(5, 1, at)
    assert attempts(steps) == [(5, "before")]
    assert (at.version, at.log_start_offset(0)) == (5, 1)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
def test_an_unknown_outcome_is_found_out_at_the_same_version_with_the_same_commit(
    policy: RetryPolicy,
) -> None:
    landed, steps = run(
        script(OutcomeUnknown(5, "x"), FAILED, OutcomeUnknown(5, "x"), Committed(5)), policy=policy
    )
    assert landed is not None
    assert landed.attempts == 1
    assert attempts(steps) == [(5, "before")] * 4
    tried = {step.commit.info.commit_id for step in steps if isinstance(step, Attempt)}
    assert len(tried) == 1
    assert sum(isinstance(step, Wait) for step in steps) == 3


@pytest.mark.parametrize("policy", [CHANGE, BESIDE_LEADER, CLAIM, CREATE], ids=lambda one: one.name)
def test_whoever_waits_for_an_answer_is_told_that_nobody_knows(policy: RetryPolicy) -> None:
    with pytest.raises(OutcomeUnknownError, match="whether TEST became version 5"):
        run(lambda _: OutcomeUnknown(5, "x"), policy=policy)


@pytest.mark.parametrize("policy", [CHANGE, BESIDE_LEADER, CLAIM, CREATE], ids=lambda one: one.name)
def test_a_store_that_goes_on_failing_before_anything_is_there_ends_what_waits_for_an_answer(
    policy: RetryPolicy,
) -> None:
    with pytest.raises(StoreUnavailableError, match="injected"):
        run(lambda _: FAILED, policy=policy)


def test_a_leader_does_not_give_up_what_it_accepted_while_the_store_fails() -> None:
    landed, steps = run(script(*[FAILED] * 200, Committed(5)))
    assert landed is not None
    waits = [step.seconds for step in steps if isinstance(step, Wait)]
    assert waits == sorted(waits)
    assert waits[-1] == LEADER.pauses_s[-1]


def test_after_a_loss_the_commit_is_built_again_of_what_the_winner_left() -> None:
    seen: list[int] = []

    def build(now: TableState) -> TableCommit:
        seen.append(now.log_start_offset(1))
        return commit()

    landed, steps = run(
        script(winner(5, Register(registers.lso(1), 7)), Committed(6)), build=build, epoch=3
    )
    assert landed is not None
    assert (landed.version, landed.attempts) == (6, 2)
    assert seen == [0, 7]
    assert attempts(steps) == [(5, "before"), (6, "other5")]


def test_a_build_that_has_nothing_any_more_ends_the_loop_without_a_commit() -> None:
    left = [commit()]
    landed, steps = run(
        script(winner(5)), build=lambda _: left.pop() if left else None, policy=BESIDE_LEADER
    )
    assert landed is None
    assert attempts(steps) == [(5, "before")]


APPEND = (
    DataFile("partition=0/a.parquet", 0, 0, 9, 10, 1, 1, 1, 1),
    Register(registers.leo(0), 10),
    Register(registers.producer(1, 0), 9),
    Register(registers.wal("g"), 3),
)


@pytest.mark.parametrize(
    ("actions", "is_built_again"),
    [
        (APPEND, False),
        ((*APPEND, Remove("partition=0/b.parquet", 0, 1, 1, data_change=False)), True),
        ((Register(registers.EPOCH, 4),), True),
        ((Register(registers.lso(0), 4),), True),
        ((Metadata("id", NOW_MS, {"mainstem.partitions": "3"}),), True),
    ],
)
def test_what_survives_appends_is_not_built_again_for_them_and_is_for_all_else(
    actions: tuple[Action, ...], *, is_built_again: bool
) -> None:
    built: list[TableCommit] = []

    def build(_: TableState) -> TableCommit:
        built.append(commit(survives_appends=True))
        return built[-1]

    landed, _ = run(script(winner(5, *actions), Committed(6)), build=build, policy=BESIDE_LEADER)
    assert landed is not None
    assert len(built) == 1 + is_built_again


def test_beside_a_leader_all_that_it_committed_meanwhile_is_taken_before_the_next_attempt() -> None:
    others = {6: winner(6, *APPEND), 7: winner(7)}
    answers: list[Told] = [winner(5), Committed(8)]

    def told(step: Step) -> Told:
        if isinstance(step, Read):
            return others.get(step.version, NotThere(step.version))
        return answers.pop(0)

    landed, steps = run(told, policy=BESIDE_LEADER)
    assert landed is not None
    assert (landed.version, landed.attempts) == (8, 2)
    assert attempts(steps) == [(5, "before"), (8, "other7")]


def test_a_writer_that_is_never_first_gives_up_after_pauses_that_end() -> None:
    version = [4]

    def told(step: Step) -> Told:
        if isinstance(step, Read):
            return NotThere(step.version)
        version[0] += 1
        return winner(version[0])

    steps: list[Step] = []
    with pytest.raises(StoreUnavailableError, match="50 attempts to commit were lost"):
        run(told, policy=BESIDE_LEADER, steps=steps)
    waits = [step.seconds for step in steps if isinstance(step, Wait)]
    assert len(waits) == 50 - 2, "none after the first loss, nor after the last"
    assert max(waits) == 0.1


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        ((Register(registers.DELETED, 1),), UnknownTopicError),
        ((Register(registers.EPOCH, 4),), FencedError),
        ((Register(registers.leo(0), 5),), LogDamagedError),
        ((Metadata("other", NOW_MS, {"mainstem.partitions": "2"}),), UnknownTopicError),
        ((Metadata("id", NOW_MS, {"mainstem.partitions": "2"}, "other"),), UnsupportedTableError),
    ],
)
def test_a_winner_that_may_not_be_beside_a_leader_ends_its_lead(
    actions: tuple[Action, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        run(script(winner(5, *actions)), epoch=3)


@pytest.mark.parametrize("policy", [LEADER, CHANGE, CLAIM, CREATE], ids=lambda one: one.name)
@pytest.mark.parametrize("maybe_ours", [True, False])
def test_a_writer_that_the_log_has_left_behind_never_says_that_it_has_committed(
    policy: RetryPolicy, *, maybe_ours: bool
) -> None:
    with pytest.raises(LogOvertakenError, match="version 5 of topic 't' is history"):
        run(script(Overtaken(5, maybe_ours), state(40)), policy=policy)
    with pytest.raises(LogOvertakenError, match="version 5 of topic 't' is history"):
        run(script(Overtaken(5, maybe_ours), StoreFailed(unavailable())), policy=policy)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
@pytest.mark.parametrize("maybe_ours", [True, False])
def test_a_writer_that_slept_until_its_topic_was_deleted_says_so(
    policy: RetryPolicy, *, maybe_ours: bool
) -> None:
    deleted = state(40)
    deleted.apply(41, [Register(registers.DELETED, 1)])
    created_again = state(40)
    assert created_again.metadata is not None
    created_again.apply(41, [replace(created_again.metadata, id="another")])
    for now in (deleted, created_again):
        with pytest.raises(UnknownTopicError, match="'t' was deleted"):
            run(script(Overtaken(5, maybe_ours), now), policy=policy)


def test_beside_a_leader_the_table_is_read_again_where_the_log_has_gone_on() -> None:
    newer = state(40)
    answers: list[Told] = [Overtaken(5, maybe_ours=False), newer, Committed(41)]
    landed, steps = run(script(*answers), policy=BESIDE_LEADER)
    assert landed == Landed(41, 2, newer)
    assert any(isinstance(step, Reload) for step in steps)
    assert attempts(steps) == [(5, "before"), (41, "before")]


@pytest.mark.parametrize(
    "answers",
    [
        [Overtaken(5, maybe_ours=True), state(40)],
        [OutcomeUnknown(5, "x"), Overtaken(5, maybe_ours=False), state(40)],
    ],
)
def test_what_may_have_landed_before_the_log_went_on_is_not_committed_a_second_time(
    answers: list[Told],
) -> None:
    with pytest.raises(LogOvertakenError, match="unknown whether the commit is in it"):
        run(script(*answers), policy=BESIDE_LEADER)
