"""The one way in which a topic table changes: a commit file, put if absent, with named outcomes.

A commit is tried once here; `commit_loop` decides what comes after each outcome.

Source: Delta protocol, section "Delta Log Entries": writers must create a version's file atomically
and only if it does not exist.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from mainstem.delta_log.store import (
    AlreadyExists,
    NotFound,
    PutOutcomeUnknown,
    Store,
    StoreGone,
)
from mainstem.delta_log.table.actions import Action, Batch, CommitInfo, Remove, encode_commit
from mainstem.delta_log.table.last_checkpoint import last_checkpoint_version
from mainstem.delta_log.table.log_files import commit_path
from mainstem.delta_log.table.snapshot import checkpoint_versions, commits_written_ms, read_commit
from mainstem.errors import LogDamagedError, StoreUnavailableError

#: How much of a commit file is read to learn whose it is: its id stands in its first line.
_HEAD_BYTES: Final = 1024
_COMMIT_ID: Final = re.compile(rb'"commitId":"([0-9a-f]+)"')
_TIMESTAMP: Final = re.compile(rb'"timestamp":(\d+)')

#: A version before ours that is older than this may have been passed by a log clean-up since it was
#: read: the log is listed before our commit counts. A busy topic never lists.
_RECENT_MS: Final = 30_000


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


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The log has gone on without us: what we know of it is history, and so is `version`.

    A writer that slept for longer than the log is kept finds versions free that others had. What it
    puts there no reader would ever see. Read the table again.

    Attributes:
        maybe_ours: Our commit may be part of what the log has become since: we may have slept after
            it landed, and not before.
    """

    version: int
    maybe_ours: bool


@dataclass(frozen=True, slots=True)
class NotThere:
    """Nobody has committed version `version` yet."""

    version: int


CommitOutcome = Committed | Conflict | OutcomeUnknown | Overtaken


class FileGone(Exception):
    """A data file that the commit makes part of the table is not in the store any more. Nothing was
    committed.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not in the store any more; nothing was committed")
        self.path = path


def wall_clock_ms() -> int:
    """Milliseconds since 1970-01-01 UTC: for record and commit timestamps, never for deadlines."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class NewFile:
    """A data file that a commit adds and that is put into the store right before it.

    Attributes:
        is_put: It is in the store, and durable: later attempts leave it alone, since it may be part
            of the table by then.
    """

    path: str
    data: bytes | pa.Buffer
    is_put: bool = False


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit that is ready to be tried at any version: actions, with their commit info.

    Attributes:
        new_files: Put into the store before the first attempt.
        needed_files: Paths of files that were put long ago, and that must still be there: vacuum
            takes a file that no commit has brought into the table for one that was left behind.
        survives_appends: What it says stays right whatever a leader appends meanwhile.
        frees_space: It leads to files being deleted, so it may use the store's reserve.
    """

    info: CommitInfo
    actions: tuple[Action, ...]
    new_files: tuple[NewFile, ...] = ()
    needed_files: tuple[str, ...] = ()
    survives_appends: bool = False
    frees_space: bool = False
    _encoded: list[bytes] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        operation: str,
        actions: Iterable[Action],
        *,
        timestamp_ms: int,
        batches: Sequence[Batch] = (),
        new_files: Sequence[NewFile] = (),
        needed_files: Sequence[str] = (),
        survives_appends: bool = False,
        frees_space: bool = False,
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
        return cls(
            info,
            (info, *rest),
            tuple(new_files),
            tuple(needed_files),
            survives_appends,
            frees_space,
        )

    def encoded(self) -> bytes:
        """The commit file, the same bytes at every attempt."""
        if not self._encoded:
            self._encoded.append(encode_commit(self.actions))
        return self._encoded[0]


class Committer:
    """Commits to the table at the root of `store`, and reads what others have committed. Calls
    block; one caller at a time.

    **A commit counts as ours only if nothing else can explain it.** That a version's name was free
    says little: log clean-up may have removed its file. Clean-up goes by ascending version, so as
    long as the file of the version *before* is there, no later one was removed. Where it is not, or
    is old enough for a clean-up that did not keep the order, the names in the log decide.
    `_last_checkpoint` is a hint to look at them, and decides nothing.

    Args:
        clock_ms: Wall clock.
    """

    def __init__(self, store: Store, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._store = store
        self._clock_ms = clock_ms

    def commit(self, version: int, commit: TableCommit, after_id: str = "") -> CommitOutcome:
        """Tries to make `commit` the table's version `version`, which must follow one that exists.

        Safe to repeat with the same commit and version, which is also how an unknown outcome is
        resolved: where the version is taken, it is read back, and our own commit is told by its id.

        Args:
            after_id: The id of the commit that is the version before, as far as the caller knows
                it; empty: it does not.

        Raises:
            StoreUnavailableError: The store failed before the commit could be there. Try again.
            StoreGone: The table was removed.
            FileGone: One of the commit's `needed_files` is not there.
            LogDamagedError: The version, or the one before, is torn or lost.
        """
        for path in commit.needed_files:
            self._check_needed(path)
        for file in commit.new_files:
            if not file.is_put:
                self._store.put(file.path, file.data)
                file.is_put = True
        try:
            self._store.put_if_absent(
                commit_path(version), commit.encoded(), frees_space=commit.frees_space
            )
        except AlreadyExists:
            return self._conflict_or_ours(version, commit, after_id)
        except PutOutcomeUnknown:
            return OutcomeUnknown(version, commit.info.commit_id)
        return self._ours(version, commit, after_id)

    def read(self, version: int, after_id: str = "") -> Conflict | NotThere | Overtaken:
        """What another writer has committed as `version`.

        Args:
            after_id: As for `commit`.

        Raises:
            StoreUnavailableError: The store failed.
            StoreGone: The table was removed.
            LogDamagedError: The file is torn.
        """
        found: Conflict | NotThere
        try:
            found = Conflict(version, tuple(read_commit(self._store, version)))
        except NotFound:
            found = NotThere(version)
        # Afterwards: what was read before the clean-up came is right.
        return found if self._is_next(version, after_id) else Overtaken(version, maybe_ours=False)

    def _ours(self, version: int, commit: TableCommit, after_id: str) -> CommitOutcome:
        """What it means that our commit file is in the place of `version`."""
        try:
            if self._is_next(version, after_id, strictly=True):
                return Committed(version)
            # Below a newer checkpoint nobody needs it, whether clean-up was about to take it or we
            # have put it there just now: a writer that slept as well must not find it.
            if max(checkpoint_versions(self._store), default=-1) > version:
                self._store.delete(commit_path(version))
        except StoreGone:
            raise
        except StoreUnavailableError:
            return OutcomeUnknown(version, commit.info.commit_id)
        return Overtaken(version, maybe_ours=True)

    def _conflict_or_ours(self, version: int, commit: TableCommit, after_id: str) -> CommitOutcome:
        path = commit_path(version)
        try:
            actions = tuple(read_commit(self._store, version))
            theirs = next((action for action in actions if isinstance(action, CommitInfo)), None)
            if theirs is not None and theirs.commit_id == commit.info.commit_id:
                # Ours, from an attempt that reported a failure. Visible is not yet durable.
                self._store.make_durable(path)
                return self._ours(version, commit, after_id)
            if self._is_next(version, after_id):
                return Conflict(version, actions)
        except NotFound:
            self._store.check_bound()
            # Not free for us: a commit in its place would be lost.
        except StoreGone:
            raise
        except StoreUnavailableError:
            return OutcomeUnknown(version, commit.info.commit_id)
        return Overtaken(version, maybe_ours=False)

    def _check_needed(self, path: str) -> None:
        try:
            self._store.read_range(path, 0, 1)
        except NotFound as error:
            self._store.check_bound()
            raise FileGone(path) from error

    def _is_next(self, version: int, after_id: str, *, strictly: bool = False) -> bool:
        """Whether `version` follows what the caller knows: no clean-up has passed it.

        Args:
            strictly: List the log also where only the age of the version before speaks for it.
        """
        if version == 0:
            return True
        head = self._head(version - 1)
        if head is not None:
            commit_id, written_ms = head
            if after_id and commit_id and after_id != commit_id:
                return False  # the log is another one: it was restored from a copy
            is_recent = abs(self._clock_ms() - written_ms) <= _RECENT_MS
            if (is_recent or not strictly) and last_checkpoint_version(self._store) <= version:
                return True
        return self._is_next_by_names(version, has_before=head is not None)

    def _is_next_by_names(self, version: int, *, has_before: bool) -> bool:
        written_ms = commits_written_ms(self._store)
        checkpoints = checkpoint_versions(self._store)
        newest = max([*written_ms, *checkpoints], default=-1)
        if newest < 0:
            self._store.check_bound()
        if newest > version:
            # With a newer checkpoint that came right after our commit, the next version is there
            # and younger. One that a clean-up has left is older, or the one before ours is gone.
            following = written_ms.get(version + 1, -1)
            return has_before and following >= written_ms.get(version, 2**62)
        if has_before or not checkpoints.isdisjoint((version - 1, version)):
            return True
        raise LogDamagedError(
            f"the log of {self._store.uri} has neither version {version - 1} nor a checkpoint of "
            "it; nothing more is written. Restore the file from a copy of the store",
            file=commit_path(version - 1),
        )

    def _head(self, version: int) -> tuple[str, int] | None:
        """The id of a commit and when it was made (ms since 1970); None: its file is not there."""
        try:
            head = self._store.read_range(commit_path(version), 0, _HEAD_BYTES)
        except NotFound:
            return None
        commit_id, timestamp = _COMMIT_ID.search(head), _TIMESTAMP.search(head)
        return (
            commit_id[1].decode() if commit_id else "",
            int(timestamp[1]) if timestamp else 0,
        )
