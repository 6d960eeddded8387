"""The one way in which a topic table changes: a commit file, put if absent, with three outcomes.

Source: Delta protocol, section "Delta Log Entries": writers must create a version's file atomically
and only if it does not exist.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mainstem.delta_log.store import AlreadyExists, NotFound, PutOutcomeUnknown, Store, StoreGone
from mainstem.delta_log.table.actions import Action, Batch, CommitInfo, Remove, encode_commit
from mainstem.delta_log.table.snapshot import (
    commit_path,
    commits_written_ms,
    last_checkpoint_version,
    read_commit,
)
from mainstem.errors import LogDamagedError, OutcomeUnknownError, StoreUnavailableError

#: An administrator waits for an answer: some seconds of a failing store, then that nobody knows.
_UNKNOWN_ATTEMPTS_MAX = 10


@dataclass(frozen=True, slots=True)
class Committed:
    """Our actions are version `version`, durable and visible."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another commit is version `version`; nothing of ours is there. `actions` are the winner's."""

    version: int
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The store failed at a point where our commit may be version `version`.

    Commit again at the same version to find out; never at another one.
    """

    version: int
    commit_id: str


Outcome = Committed | Conflict | OutcomeUnknown


def wall_clock_ms() -> int:
    """Milliseconds since 1970-01-01 UTC: for record and commit timestamps, never for deadlines."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit that is ready to be tried at any version: actions, with their commit info."""

    info: CommitInfo
    actions: tuple[Action, ...]

    @classmethod
    def of(
        cls,
        operation: str,
        actions: Iterable[Action],
        *,
        timestamp_ms: int,
        batches: Sequence[Batch] = (),
    ) -> TableCommit:
        """A commit of `actions`, which get a commit info with a new id in front."""
        rest = tuple(actions)
        info = CommitInfo(
            uuid.uuid4().hex,
            operation,
            timestamp_ms,
            tuple(batches),
            action_count=1 + len(rest),
            has_removes=any(isinstance(action, Remove) for action in rest),
        )
        return cls(info, (info, *rest))


class Committer:
    """Commits to the table at the root of `store`. Calls block; one caller at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def commit(self, version: int, commit: TableCommit) -> Outcome:
        """Tries to make `commit` the table's version `version`, which must follow one that exists.

        Safe to repeat with the same commit and version, which is also how an unknown outcome is
        resolved: where the version is taken, it is read back, and our own commit is told by its id.

        Raises:
            StoreUnavailableError: The store failed before the commit could be there. Try again.
            StoreGone: The table was removed.
            LogDamagedError: Another commit has the version, and its file is torn, or is so old that
                log clean-up has removed it.
        """
        try:
            self._store.put_if_absent(commit_path(version), encode_commit(commit.actions))
        except AlreadyExists:
            return self._conflict_or_ours(version, commit)
        except PutOutcomeUnknown:
            return OutcomeUnknown(version, commit.info.commit_id)
        return self._ours(version, commit)

    def _ours(self, version: int, commit: TableCommit) -> Committed | OutcomeUnknown:
        """Committed, unless the version was free only because log clean-up had removed its file.

        A writer that was suspended for longer than the log is kept finds free versions in the past.
        No reader would ever see what it puts there. Clean-up removes only what is before the
        checkpoint that `_last_checkpoint` names, and in any order, and may have been killed: that a
        file is there says nothing, but when it was written does.
        """
        try:
            checkpoint = last_checkpoint_version(self._store)
            # With a newer checkpoint that came right after our commit, the version after ours is
            # there, and younger.
            if checkpoint <= version or self._is_followed(version):
                return Committed(version)
            self._store.delete(commit_path(version))
        except StoreGone:
            raise
        except StoreUnavailableError:
            return OutcomeUnknown(version, commit.info.commit_id)
        raise self._overtaken(version)

    def _is_followed(self, version: int) -> bool:
        """Whether the next version's file is there and was written after this one's."""
        written_ms = commits_written_ms(self._store)
        ours_ms = written_ms.get(version)
        return ours_ms is not None and written_ms.get(version + 1, -1) >= ours_ms

    def _overtaken(self, version: int) -> LogDamagedError:
        return LogDamagedError(
            f"version {version} of {self._store.uri} is history, and its file has been removed: "
            "this writer has fallen behind the log's clean-up; open the table again",
            file=commit_path(version),
        )

    def _conflict_or_ours(self, version: int, commit: TableCommit) -> Outcome:
        path = commit_path(version)
        try:
            actions = tuple(read_commit(self._store, version))
            theirs = next((action for action in actions if isinstance(action, CommitInfo)), None)
            if theirs is not None and theirs.commit_id == commit.info.commit_id:
                # Ours, from an attempt that reported a failure. Visible is not yet durable.
                self._store.make_durable(path)
                return self._ours(version, commit)
        except NotFound as error:
            self._store.check_bound()
            # Not free for us: a commit in its place would be lost.
            raise self._overtaken(version) from error
        except StoreGone:
            raise
        except StoreUnavailableError:
            return OutcomeUnknown(version, commit.info.commit_id)
        return Conflict(version, actions)


def commit_at(
    committer: Committer,
    version: int,
    commit: TableCommit,
    sleep: Callable[[float], None] = time.sleep,
) -> Committed | Conflict:
    """Commits at `version`, again and again while nobody can tell the outcome. Blocks for seconds.

    Raises:
        StoreUnavailableError: The store failed before the commit could be there.
        OutcomeUnknownError: It went on failing such that nobody knows whether the commit is there.
    """
    for unknown in range(_UNKNOWN_ATTEMPTS_MAX + 1):
        if unknown:
            sleep(min(0.01 * 2**unknown, 0.5))
        try:
            outcome = committer.commit(version, commit)
        except StoreGone:
            raise
        except StoreUnavailableError:
            if not unknown:
                raise
            continue  # an earlier attempt may have landed
        if not isinstance(outcome, OutcomeUnknown):
            return outcome
    raise OutcomeUnknownError(
        f"the store could not say whether {commit.info.operation} became version {version} of "
        "the table; look before you try again",
        table_version=version,
    )


def commit_until_decided(
    committer: Committer,
    version: int,
    commit: TableCommit,
    on_conflict: Callable[[Conflict], None],
    attempts_max: int = 100,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Commits at `version` or the first free one after it. For administration: it blocks.

    Args:
        on_conflict: Takes the winner's actions; raises to give up.
        attempts_max: Versions to try before giving up; each loss means that another writer got on.

    Returns:
        The version that the commit became.

    Raises:
        StoreUnavailableError: The store failed, or others were always first. Nothing was done.
        OutcomeUnknownError: The store failed such that nobody knows whether the commit is there.
    """
    for _ in range(attempts_max):
        outcome = commit_at(committer, version, commit, sleep)
        if isinstance(outcome, Committed):
            return outcome.version
        on_conflict(outcome)
        version += 1
    raise StoreUnavailableError(
        f"{attempts_max} attempts to commit were lost to other writers; nothing was done, try again"
    )
