"""The one way in which a topic table changes: a commit file, put if absent, with named outcomes.

A commit is tried once here; `commit_loop` decides what comes after each outcome.

Source: Delta protocol, section "Delta Log Entries": writers must create a version's file atomically
and only if it does not exist.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from mainstem.delta_log.format import (
    Action,
    Batch,
    CommitInfo,
    LogFiles,
    Remove,
    commit_path,
    decode_commit,
    encode_commit,
    last_checkpoint_version,
)
from mainstem.delta_log.store import (
    AlreadyExists,
    NotFound,
    ObjectStore,
    PutOutcomeUnknown,
    at_once,
    is_there,
    read_ahead,
    time_elapsed_s,
)
from mainstem.delta_log.table.snapshot import read_commit
from mainstem.errors import LogDamagedError, StoreUnavailableError

#: How much of a commit file is read to learn whose it is: its id stands in its first line.
HEAD_BYTES: Final = 1024
_COMMIT_ID: Final = re.compile(rb'"commitId":"([0-9a-f]+)"')

#: For so long after this process has found its commit to be the next one, the file of the version
#: before is proof enough that the log has not gone on without it: log files are kept for longer.
#: Then the log is listed again. A busy topic never lists.
_PROVEN_S: Final = 30.0

#: For so long a table that nobody commits to is followed by the name of its next version alone.
#: Then its log is listed once: other software may have cleaned it, left a gap after the version
#: that we know, and written no `_last_checkpoint`.
_UNLISTED_S: Final = 600.0


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


@dataclass(frozen=True, slots=True)
class Run:
    """Versions that other writers have committed, one after the other.

    Attributes:
        end: What comes after them; None: perhaps more.
    """

    conflicts: tuple[Conflict, ...]
    end: NotThere | Overtaken | None


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


def put_new_files(store: ObjectStore, files: Iterable[NewFile]) -> None:
    """Puts those into the store that are not there, one after the other. Blocks.

    Raises:
        StoreUnavailableError: The store failed; again, this goes on where it was.
    """
    for file in files:
        if not file.is_put:
            store.put(file.path, file.data)
            file.is_put = True


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
    long as the file of the version *before* is there, and is the one that we know, no later one was
    removed. Where it is not, or where a clean-up that kept no order may have come since we looked
    last, the names in the log decide. `_last_checkpoint` is a hint to look at them, and decides
    nothing.

    Args:
        elapsed_s: A clock that nobody sets and that goes on while the machine is suspended.
    """

    def __init__(self, store: ObjectStore, elapsed_s: Callable[[], float] = time_elapsed_s) -> None:
        self._store = store
        self._elapsed_s = elapsed_s
        self._proven_at = -1e9
        #: When the log was listed last; whoever opened the table did.
        self._listed_at = elapsed_s()

    def commit(self, version: int, commit: TableCommit, after_id: str = "") -> CommitOutcome:
        """Tries to make `commit` the table's version `version`, which must follow one that exists.

        Safe to repeat with the same commit and version, which is also how an unknown outcome is
        resolved: where the version is taken, it is read back, and our own commit is told by its id.

        Args:
            after_id: The id of the commit that is the version before, as far as the caller knows
                it; empty: it does not.

        Raises:
            StoreUnavailableError: The store failed before the commit could be there. Try again.
            FileGone: One of the commit's `needed_files` is not there.
            LogDamagedError: The version is torn.
        """
        if not self._follows_with_files(version, commit, after_id):
            return Overtaken(version, maybe_ours=False)
        for path in commit.needed_files:
            if not is_there(self._store, path):
                if is_there(self._store, commit_path(version)):
                    # Perhaps by an attempt of ours: that comes first.
                    return self._conflict_or_ours(version, commit, after_id)
                raise FileGone(path)
        put_new_files(self._store, commit.new_files)
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
            LogDamagedError: The file is torn.
        """
        found: Conflict | NotThere
        try:
            found = Conflict(version, tuple(read_commit(self._store, version)))
        except NotFound:
            found = NotThere(version)
        # Afterwards: what was read before the clean-up came is right.
        if isinstance(found, Conflict):
            follows = self._follows(version, after_id)
        else:
            follows = self._is_next(version, after_id)
        return found if follows else Overtaken(version, maybe_ours=False)

    def read_run(self, version: int, after_id: str, count: int) -> Run:
        """As `read`, of up to `count` versions, several at a time where the store is far away.

        Where one of them cannot be read, those before it are as good as ever: it raises only for
        the first.
        """
        found: list[Conflict] = []
        versions = range(version, version + count)
        with contextlib.closing(read_ahead(self._store, map(commit_path, versions))) as contents:
            for at in versions:
                try:
                    data = next(contents)
                    actions = decode_commit(data, f"{self._store.uri}/{commit_path(at)}")
                except NotFound:
                    break
                except (LogDamagedError, StoreUnavailableError):
                    if not found:
                        raise
                    count = len(found)
                    break
                found.append(Conflict(at, tuple(actions)))
        # Afterwards: what was read before the clean-up came is right.
        if found and not self._follows(version, after_id):
            return Run((), Overtaken(version, maybe_ours=False))
        if len(found) == count:
            return Run(tuple(found), None)
        following = version + len(found)
        if self._is_next(following, _commit_id(found[-1].actions) if found else after_id):
            return Run(tuple(found), NotThere(following))
        return Run(tuple(found), Overtaken(following, maybe_ours=False))

    def _ours(self, version: int, commit: TableCommit, after_id: str) -> CommitOutcome:
        """What it means that our commit file is in the place of `version`."""
        try:
            if self._is_next(version, after_id, strictly=True):
                self._proven_at = self._elapsed_s()
                return Committed(version)
            # Below a newer checkpoint, and beside a gap, nobody needs it, whether clean-up was
            # about to take it or we have put it there just now: a writer that slept as well must
            # not find it.
            files = self._list_around(version)
            has_gap = version - 1 not in files.commits or version + 1 not in files.commits
            if has_gap and max(files.checkpoints, default=-1) > version:
                self._store.delete(commit_path(version))
        except StoreUnavailableError:
            return OutcomeUnknown(version, commit.info.commit_id)
        return Overtaken(version, maybe_ours=True)

    def _conflict_or_ours(self, version: int, commit: TableCommit, after_id: str) -> CommitOutcome:
        path, is_ours = commit_path(version), False
        try:
            actions = tuple(read_commit(self._store, version))
            if _commit_id(actions) == commit.info.commit_id:
                # Ours, from an attempt that reported a failure. Visible is not yet durable.
                is_ours = True
                self._store.make_durable(path)
                return self._ours(version, commit, after_id)
            if self._follows(version, after_id):
                return Conflict(version, actions)
        except NotFound:
            pass  # not free for us: a commit in its place would be lost
        except StoreUnavailableError:
            return OutcomeUnknown(version, commit.info.commit_id)
        return Overtaken(version, maybe_ours=is_ours)

    def _follows_with_files(self, version: int, commit: TableCommit, after_id: str) -> bool:
        """As `_follows`. Where the store is far away, the commit's files are put at the same time:
        in vain, where the answer is no, as they are where another commit is first."""
        if not self._store.is_far or commit.needed_files:
            return self._follows(version, after_id)
        puts = [partial(put_new_files, self._store, [file]) for file in commit.new_files]
        return bool(at_once(lambda: self._follows(version, after_id), *puts)[0])

    def _follows(self, version: int, after_id: str) -> bool:
        """Whether the version before is the one that the caller knows, or was the newest of a log
        that has only a checkpoint of it.

        That is all there is to know before a commit is tried, and of a commit of another writer
        that was read.
        """
        if version == 0:
            return True
        commit_id = self._id_of(version - 1)
        if commit_id is None or (commit_id and not after_id):
            return self._is_next_by_names(version, has_before=commit_id is not None)
        return not (after_id and commit_id and after_id != commit_id)

    def _is_next(self, version: int, after_id: str, *, strictly: bool = False) -> bool:
        """Whether nothing but `version` comes after the version that the caller knows: no clean-up
        has passed it.

        Args:
            strictly: The file of the version before is proof for a while only.
        """
        if version == 0:
            return not strictly or self._is_next_by_names(0, has_before=True)
        checkpoint: int | None = None
        if self._store.is_far and self._is_proven(after_id, strictly=strictly):
            # Whichever is read first: a clean-up that matters came before our commit was put, or
            # before `version` was found missing, and so before both.
            commit_id, checkpoint = at_once(
                lambda: self._id_of(version - 1), lambda: last_checkpoint_version(self._store)
            )
        else:
            commit_id = self._id_of(version - 1)
        if commit_id is None:
            return self._is_next_by_names(version, has_before=False)
        if after_id and commit_id and after_id != commit_id:
            return False  # the log is another one: it was restored from a copy
        # Once more, since reading may have taken long.
        if self._is_proven(after_id, strictly=strictly):
            if checkpoint is None:
                checkpoint = last_checkpoint_version(self._store)
            if checkpoint <= version:
                return True
        return self._is_next_by_names(version, has_before=True)

    def _is_proven(self, after_id: str, *, strictly: bool) -> bool:
        """Whether the file of the version before is proof, beside a `_last_checkpoint` that is not
        newer."""
        now = self._elapsed_s()
        if strictly:
            return bool(after_id) and now - self._proven_at <= _PROVEN_S
        return now - self._listed_at <= _UNLISTED_S

    def _is_next_by_names(self, version: int, *, has_before: bool) -> bool:
        files = self._list_around(version)
        self._listed_at = self._elapsed_s()
        if files.newest > version:
            # With a newer checkpoint that came right after our commit, the next version is there
            # and younger. One that a clean-up has left is older, or the one before ours is gone.
            ours, following = files.commits.get(version), files.commits.get(version + 1)
            if not has_before or ours is None or following is None:
                return False
            return following.modified_ms >= ours.modified_ms
        return has_before or not {version - 1, version}.isdisjoint(files.checkpoints)

    def _list_around(self, version: int) -> LogFiles:
        """The log's names, certain to have `version` and the one after it if these are there and
        anything newer is.

        While commits go on, a listing may have a newer file and lack an older one. Each version
        comes after the one before, so a second listing has what was older in the first.
        """
        files = LogFiles.of(self._store)
        if files.newest > version and not {version, version + 1} <= files.commits.keys():
            files = LogFiles.of(self._store)
        return files

    def _id_of(self, version: int) -> str | None:
        """The id of a commit, empty where it has none; None: its file is not there."""
        try:
            head = self._store.read_range(commit_path(version), 0, HEAD_BYTES)
        except NotFound:
            return None
        commit_id = _COMMIT_ID.search(head)
        return commit_id[1].decode() if commit_id else ""


def _commit_id(actions: Iterable[Action]) -> str:
    """The id of a commit; empty where it has none."""
    return next((one.commit_id for one in actions if isinstance(one, CommitInfo)), "")
