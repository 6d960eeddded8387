"""The one commit loop: what is tried next after each outcome of a commit. Pure: no I/O, no clock.

Every commit goes through it: a leader, a job beside the leader, a claim of the
lead, a creation. A loop is a generator: it yields what is to be done (`Attempt`, `Read`, `Reload`,
`Wait`) and is sent what came of it. `blocking_driver` and `async_driver` run loops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from mainstem.delta_log.format import Action, CommitInfo, DataFile, Register, registers, same_table
from mainstem.delta_log.table.committer import (
    Committed,
    Conflict,
    NotThere,
    OutcomeUnknown,
    Overtaken,
    Run,
    TableCommit,
)
from mainstem.delta_log.table.state import TableState
from mainstem.errors import (
    FencedError,
    LogDamagedError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UnknownTopicError,
    UnsupportedTableError,
)

T = TypeVar("T")

#: Versions that are read at a time by who is behind.
_READ_MAX: Final = 64

#: Whoever is still behind after so many reads the table again: up to a version that is known when
#: that begins, however fast others commit.
_CATCH_UP_MAX: Final = 4096

#: Makes the commit of the table's newest state; None: there is nothing to commit any more.
Build = Callable[[TableState], TableCommit | None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """Try `commit` at `version`. Sent back: what `Committer.commit` says, or `StoreFailed`."""

    version: int
    after_id: str
    commit: TableCommit


@dataclass(frozen=True, slots=True)
class Read:
    """Look what other writers have as `version`, and as those after it. Sent back: what
    `Committer.read` says, or `Committer.read_run` for more than one."""

    version: int
    after_id: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Reload:
    """Read the table again from its newest checkpoint. Sent back: its state, or `StoreFailed`."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before the next step. Sent back: None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store failed before the commit could be there, or before the table was read."""

    error: StoreUnavailableError


Step = Attempt | Read | Reload | Wait
Told = (
    Committed
    | Conflict
    | NotThere
    | OutcomeUnknown
    | Overtaken
    | Run
    | StoreFailed
    | TableState
    | None
)
Loop = Generator[Step, Told, T]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a loop goes on.

    Attributes:
        name: For messages.
        failures_max: Failures of the store, one after the other, that are tried again while it is
            certain that nothing is there. None: without end.
        unknowns_max: Attempts after one of which nobody knows the outcome. None: without end.
        losses_max: Versions that other writers may take. None: without end.
        pauses_s: Before each repetition; the last one is for all that follow.
        loss_pause_s: The first and the longest pause after a lost version, from the second one on:
            who lost to a leader once has the rest of its commit interval. None: no pauses.
        reloads: The table is read again where log clean-up has overtaken the state.
    """

    name: str
    failures_max: int | None
    unknowns_max: int | None
    losses_max: int | None
    pauses_s: tuple[float, ...]
    loss_pause_s: tuple[float, float] | None = None
    reloads: bool = False

    def pause_s(self, repetition: int) -> float:
        """How long to wait before a repetition, the first of which is 0."""
        return self.pauses_s[min(repetition, len(self.pauses_s) - 1)]


#: What was accepted has its offsets and is not given up: as long as the store fails, its leader
#: tries again. Short pauses at first, then as long as operators wait.
LEADER: Final = RetryPolicy(
    "leader", None, None, None, pauses_s=(0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
)

#: An administrator waits for the answer: some seconds, then that it failed or that nobody knows. A
#: leader's next commit at the same version meets its own change as another's, which it takes.
CHANGE: Final = RetryPolicy("change", 6, 10, None, pauses_s=(0.05, 0.1, 0.2, 0.5))

#: Beside a leader that commits some ten times a second and leaves most of that time free.
BESIDE_LEADER: Final = RetryPolicy(
    "beside a leader",
    0,
    10,
    50,
    pauses_s=(0.02, 0.04, 0.08, 0.16, 0.32, 0.5),
    loss_pause_s=(0.02, 0.1),
    reloads=True,
)

#: A leader epoch. Each loss means that another writer got on.
CLAIM: Final = RetryPolicy("claim", 0, 8, 20, pauses_s=(0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0))

#: Version 0 of a table. Where another has it, `build` says what that means.
CREATE: Final = RetryPolicy("create", 0, 10, 5, pauses_s=(0.02, 0.04, 0.08, 0.16, 0.32, 0.5))


class OthersFirstError(StoreUnavailableError):
    """Other writers were first, at as many versions in a row as the policy allows. Nothing was
    done."""


class LogOvertakenError(OutcomeUnknownError):
    """Others have led the topic, and its log was cleaned, while this writer slept. Open the topic
    again; send what was not answered again with the same sequence."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit is in the table.

    Attributes:
        version: The table's version that it became.
        attempts: 1 and one more for each version that another writer took first.
        state: The table with it. It is the state that the loop began with, unless log clean-up had
            overtaken that.
    """

    version: int
    attempts: int
    state: TableState


def commit_loop(
    state: TableState,
    build: Build,
    *,
    topic: str,
    policy: RetryPolicy,
    epoch: int | None = None,
    dice: Callable[[float, float], float] = random.uniform,
) -> Loop[Landed | None]:
    """Commits what `build` makes of the table's newest state at the next free version.

    Args:
        state: The newest state that is known; takes what others and we commit.
        build: Called again after each loss, with the winners' actions in the state, unless the
            commit `survives_appends` and the winners only appended. What it raises ends the loop.
        epoch: The leader epoch of a caller that leads the topic: what may not be beside a leader
            ends its lead. None: the caller does not lead it.
        dice: A number between two, for the pauses after losses.

    Returns:
        None: `build` had nothing to commit.

    Raises:
        UnknownTopicError: The topic was deleted.
        FencedError: Another gateway leads the topic, with a higher epoch than `epoch`.
        LogOvertakenError: The log has gone on while the caller slept.
        UnsupportedTableError, LogDamagedError: The log has what may not be there.
        StoreUnavailableError: The store failed, or others were always first. Nothing was done.
        OutcomeUnknownError: The store failed such that nobody knows whether the commit is there.
    """
    attempts = 0
    commit = build(state)
    while commit is not None:
        attempts += 1
        outcome = yield from _decided(state, commit, topic, policy)
        if isinstance(outcome, Committed):
            state.apply(outcome.version, commit.actions)
            return Landed(outcome.version, attempts, state)
        if isinstance(outcome, Overtaken):
            state = yield from _reloaded(state, outcome, topic, policy)
            only_appends = False
        else:
            take_in_winner(state, topic, outcome, epoch)
            only_appends = is_append(outcome.actions)
        if policy.losses_max is not None and attempts >= policy.losses_max:
            raise OthersFirstError(
                f"topic {topic!r} could not be changed: {attempts} attempts to commit were lost "
                "to other writers; nothing was done, try again",
                topic=topic,
            )
        if policy.loss_pause_s is not None and attempts > 1:
            first_s, most_s = policy.loss_pause_s
            yield Wait(dice(0.0, min(first_s * 2.0 ** (attempts - 2), most_s)))
        if policy.reloads:
            state, appended = yield from _newest(state, topic, policy, epoch)
            only_appends = only_appends and appended
        if not (commit.survives_appends and only_appends):
            commit = build(state)
    return None


def catch_up_loop(
    state: TableState, *, topic: str, policy: RetryPolicy, epoch: int | None = None
) -> Loop[TableState]:
    """Takes what others have committed into the state; returns the newest one.

    Raises: As `commit_loop`.
    """
    state, _ = yield from _newest(state, topic, policy, epoch)
    return state


def beside_leader_loop(
    state: TableState, build: Build, *, topic: str, policy: RetryPolicy
) -> Loop[Landed | None]:
    """As `commit_loop`, after a look at what others have committed since the table was opened."""
    state, _ = yield from _newest(state, topic, policy, None)
    if state.deleted:
        raise topic_deleted_error(topic)
    return (yield from commit_loop(state, build, topic=topic, policy=policy))


def take_in_winner(state: TableState, topic: str, winner: Conflict, epoch: int | None) -> None:
    """Takes another writer's commit into the state.

    Args:
        epoch: See `commit_loop`.

    Raises:
        UnknownTopicError: The topic was deleted, unless it was when the loop began, or created
            again.
        FencedError: Another gateway leads it, with a higher epoch than `epoch`.
        UnsupportedTableError, LogDamagedError: The commit is none that may be beside a leader's.
    """
    before, was_deleted = state.metadata, state.deleted
    ends = {} if epoch is None else _ends(state)
    state.apply(winner.version, winner.actions)
    is_ended = state.deleted and not was_deleted
    if is_ended or (before is not None and state.topic_id != before.id):
        raise topic_deleted_error(topic)
    if epoch is None:
        return
    if state.epoch > epoch:
        raise FencedError(
            f"another gateway leads topic {topic!r} with epoch {state.epoch}; ours was {epoch}",
            topic=topic,
            epoch=state.epoch,
        )
    assert before is not None
    assert state.metadata is not None
    if not same_table(before, state.metadata):
        raise UnsupportedTableError(
            f"version {winner.version} of topic {topic!r} changed its schema or "
            "partitioning; the gateway has stopped writing to it",
            topic=topic,
            table_version=winner.version,
        )
    for partition, end in ends.items():
        if state.log_end_offset(partition) != end:
            raise LogDamagedError(
                f"version {winner.version} of topic {topic!r} moved the end of partition "
                f"{partition} from {end} to {state.log_end_offset(partition)} without a new "
                "leader epoch; the gateway has stopped writing to it",
                topic=topic,
                table_version=winner.version,
            )


def is_append(actions: tuple[Action, ...]) -> bool:
    """Whether a commit only adds records: nothing that was there before has changed by it."""
    return all(
        isinstance(action, CommitInfo)
        or (isinstance(action, DataFile) and action.data_change)
        or (isinstance(action, Register) and registers.belongs_to_appends(action.name))
        for action in actions
    )


def topic_deleted_error(topic: str) -> UnknownTopicError:
    """The error for a topic that went away while it was in use."""
    return UnknownTopicError(f"topic {topic!r} was deleted", topic=topic)


def _decided(
    state: TableState, commit: TableCommit, topic: str, policy: RetryPolicy
) -> Loop[Committed | Conflict | Overtaken]:
    """Attempts at one version until its outcome is known: never at another one before that."""
    failures = unknowns = 0
    while True:
        outcome = yield Attempt(state.version + 1, state.commit_id, commit)
        match outcome:
            case Committed() | Conflict():
                return outcome
            case Overtaken():
                return replace(outcome, maybe_ours=outcome.maybe_ours or unknowns > 0)
            case OutcomeUnknown():
                unknowns += 1
            case StoreFailed():
                if unknowns:
                    unknowns += 1  # an earlier attempt may have landed
                else:
                    failures += 1
                    if policy.failures_max is not None and failures > policy.failures_max:
                        raise outcome.error
            case _:
                raise AssertionError(f"{outcome} does not answer an attempt")
        if policy.unknowns_max is not None and unknowns > policy.unknowns_max:
            raise OutcomeUnknownError(
                f"the store could not say whether {commit.info.operation} became version "
                f"{state.version + 1} of topic {topic!r}; look before you try again",
                topic=topic,
                table_version=state.version + 1,
            )
        yield Wait(policy.pause_s(failures + unknowns - 1))


def _reloaded(
    before: TableState, outcome: Overtaken, topic: str, policy: RetryPolicy
) -> Loop[TableState]:
    """The table as it is now, where the policy goes on with it.

    Raises:
        UnknownTopicError: The topic was deleted meanwhile, and its log cleaned.
        LogOvertakenError: It was not, and the policy does not go on.
    """
    goes_on = policy.reloads and not outcome.maybe_ours
    state = yield Reload()
    if isinstance(state, StoreFailed):
        raise state.error if goes_on else _overtaken(topic, outcome)
    assert isinstance(state, TableState)
    is_ended = state.deleted and not before.deleted
    if is_ended or (before.metadata is not None and state.topic_id != before.topic_id):
        raise topic_deleted_error(topic)
    if not goes_on:
        raise _overtaken(topic, outcome)
    return state


def _newest(
    state: TableState, topic: str, policy: RetryPolicy, epoch: int | None
) -> Loop[tuple[TableState, bool]]:
    """The newest state, and whether all that came meanwhile were appends.

    It has what was the newest version when this began, and ends beside a leader that commits faster
    than the store answers.
    """
    only_appends = True
    count, first = 1, state.version
    while True:
        if policy.reloads and state.version - first >= _CATCH_UP_MAX:
            behind = Overtaken(state.version + 1, maybe_ours=False)
            return (yield from _reloaded(state, behind, topic, policy)), False
        found = yield Read(state.version + 1, state.commit_id, count)
        if isinstance(found, Conflict):
            found = Run((found,), None)
        if isinstance(found, Run):
            for one in found.conflicts:
                take_in_winner(state, topic, one, epoch)
                only_appends = only_appends and is_append(one.actions)
            count = min(count * 8, _READ_MAX)
            found = found.end
        match found:
            case None:
                continue
            case NotThere():
                return state, only_appends
            case Overtaken():
                state = yield from _reloaded(state, found, topic, policy)
                only_appends = False
            case _:
                raise AssertionError(f"{found} does not answer a reading")


def _ends(state: TableState) -> dict[int, int]:
    return {
        partition: state.log_end_offset(partition) for partition in range(state.partition_count)
    }


def _overtaken(topic: str, outcome: Overtaken) -> LogOvertakenError:
    said = "it is unknown whether the commit is in it" if outcome.maybe_ours else "nothing was done"
    return LogOvertakenError(
        f"version {outcome.version} of topic {topic!r} is history: this writer slept while others "
        f"wrote to the log and cleaned it; {said}. Open the topic again",
        topic=topic,
        table_version=outcome.version,
    )
