"""Commits to a table that a gateway may be appending to at the same time: one retry loop for all.

Whoever changes settings, compacts, or removes records does not lead the topic. Its commit says what
it says whatever the leader appends meanwhile, so losing a version only means the next one; but what
it is based on (settings, active files) must be looked at again after each loss.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mainstem.delta_log.store import StoreGone
from mainstem.delta_log.table.actions import Action, DataFile, Remove
from mainstem.delta_log.table.committer import Committed, Committer, TableCommit, commit_at
from mainstem.delta_log.table.snapshot import refresh_table
from mainstem.delta_log.table.state import TableState
from mainstem.errors import LogDamagedError, StoreUnavailableError, UnknownTopicError

if TYPE_CHECKING:
    from mainstem.delta_log.table.topics import OpenTopic

#: A leader under load commits some ten times a second, and leaves most of that time free.
ATTEMPTS_MAX: Final = 50

#: Pauses before the third attempt and all later ones grow from one to the other. None before the
#: second: who lost to a leader once has the rest of its commit interval for himself.
_PAUSE_S_FIRST: Final = 0.005
_PAUSE_S_MAX: Final = 0.1


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit is in the table.

    Attributes:
        version: The table's version that it became.
        attempts: 1 and one more for each version that another writer took first.
        state: The table with it. It is `opened.state`, unless log clean-up had overtaken that.
    """

    version: int
    attempts: int
    state: TableState


class FileSuperseded(Exception):
    """A file that was to be removed is in the table no more: somebody else removed it first.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is in the table no more")
        self.path = path


def commit_beside_leader(
    opened: OpenTopic,
    build: Callable[[TableState], TableCommit | None],
    *,
    attempts_max: int = ATTEMPTS_MAX,
    sleep: Callable[[float], None] = time.sleep,
) -> Landed | None:
    """Commits what `build` makes of the table's newest state. Blocks.

    `opened.state` is brought up to date, so it must not be one that an appender uses.

    Args:
        build: Called again after each loss, with the winners' actions in the state. None: there is
            nothing to do, or nothing any more. What it raises ends the attempts.
        attempts_max: Attempts before giving up; each loss means that another writer got on.

    Returns:
        None: `build` had nothing to commit.

    Raises:
        UnknownTopicError: The topic was deleted.
        StoreUnavailableError: The store failed, or others were always first. Nothing was done.
        OutcomeUnknownError: The store failed such that nobody knows whether the commit is there.
    """
    state = opened.state
    committer = Committer(opened.store)
    for attempt in range(1, attempts_max + 1):
        state = _newest(opened, state)
        commit = build(state)
        if commit is None:
            return None
        try:
            outcome = commit_at(committer, state.version + 1, commit, sleep)
        except StoreGone as error:
            raise _deleted(opened.topic) from error
        if isinstance(outcome, Committed):
            state.apply(outcome.version, commit.actions)
            return Landed(outcome.version, attempt, state)
        state.apply(outcome.version, outcome.actions)
        if attempt > 1:
            sleep(random.uniform(0.0, min(_PAUSE_S_FIRST * 2.0**attempt, _PAUSE_S_MAX)))
    raise StoreUnavailableError(
        f"topic {opened.topic!r} could not be changed: {attempts_max} attempts to commit were lost "
        "to other writers; nothing was done, try again",
        topic=opened.topic,
    )


def replace_files(
    state: TableState,
    removes: Iterable[DataFile],
    adds: Sequence[DataFile] = (),
    *,
    now_ms: int,
    data_change: bool,
) -> list[Action]:
    """The actions that swap active files for others, or just remove them.

    Args:
        now_ms: When the files were removed; their retention counts from then.
        data_change: False only where every record is kept as it was: streams over the table then
            pass over the commit.

    Raises:
        FileSuperseded: One of `removes` is not active in `state`.
    """
    actions: list[Action] = []
    for file in removes:
        if not state.is_active(file.path):
            raise FileSuperseded(file.path)
        actions.append(
            Remove(file.path, file.partition, file.size_bytes, now_ms, data_change=data_change)
        )
    actions += [replace(file, data_change=data_change) for file in adds]
    return actions


def _newest(opened: OpenTopic, state: TableState) -> TableState:
    try:
        state = refresh_table(opened.store, state)
    except (StoreGone, UnknownTopicError) as error:
        raise _deleted(opened.topic) from error
    except LogDamagedError as error:
        try:
            opened.store.check_bound()
        except StoreGone:  # no wonder: its files are being removed
            raise _deleted(opened.topic) from error
        raise
    if state.deleted:
        raise _deleted(opened.topic)
    return state


def _deleted(topic: str) -> UnknownTopicError:
    return UnknownTopicError(f"topic {topic!r} was deleted", topic=topic)
