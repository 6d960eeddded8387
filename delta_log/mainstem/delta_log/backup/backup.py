"""Copies a topic into a directory, while others write to it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mainstem.config import format_value
from mainstem.delta_log.backup.manifest import (
    MANIFEST,
    BackupFile,
    Manifest,
    PartitionCopy,
    tombstone_registers,
)
from mainstem.delta_log.files import DataFileMissing, check_data_file
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import (
    AlreadyExists,
    NotFound,
    ObjectStore,
    PutOutcomeUnknown,
    StoreFull,
    Warehouse,
    wall_clock_ms,
)
from mainstem.delta_log.table import OpenTopic, TableState
from mainstem.delta_log.topics import Topics
from mainstem.errors import InvalidRequestError, LogDamagedError, StoreUnavailableError

#: Says that a directory without a manifest is a backup that goes on, or was interrupted.
UNFINISHED: Final = "unfinished.json"

#: Looks at the table's newest version: files leave the store an hour and more after the table.
_ROUNDS_MAX: Final = 10

_DIRECTORY: Final = "partition="


def back_up(
    topics: Topics,
    topic: str,
    target: Warehouse,
    *,
    on_copied: Callable[[int, int], None] = lambda done_bytes, all_bytes: None,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> Manifest:
    """Copies the newest version of a topic's table to the root of `target`. Blocks.

    The data files are copied as they are, and each copy is read back and compared with the log's
    checksums. The manifest is written last: without one there is no backup. After an interruption
    the same call goes on with what is there.

    Args:
        target: An empty directory, or an unfinished backup of the same topic.
        on_copied: Told the bytes that are copied, and those of all files.

    Raises:
        UnknownTopicError: There is no such topic, or it was deleted meanwhile.
        InvalidRequestError: `target` has something else, or a backup already.
        LogDamagedError: A file of the topic is damaged or lost; `cluster verify` says more.
        StoreUnavailableError: The warehouse or `target` failed, or `target` is too small.
    """
    try:
        return _back_up(topics.open(topic), target, on_copied, clock_ms)
    except StoreFull as error:
        # Only the target is written to. What a full warehouse needs is of no help here.
        raise StoreUnavailableError(
            f"{target.uri} is full; make space there and run the same command again, which goes on "
            "with what has been copied",
            path=target.uri,
        ) from error


def _back_up(
    opened: OpenTopic,
    target: Warehouse,
    on_copied: Callable[[int, int], None],
    clock_ms: Callable[[], int],
) -> Manifest:
    _claim(target, opened)
    copy = _Copy(opened, target, on_copied)
    manifest = copy.run(clock_ms())
    try:
        target.put_if_absent(MANIFEST, manifest.encoded())
    except AlreadyExists:
        raise _has_one(target) from None
    except PutOutcomeUnknown as error:
        raise StoreUnavailableError(
            f"{target.uri} cannot say whether the backup is whole: {error}; see whether "
            f"{MANIFEST} is there"
        ) from error
    _tidy(target, manifest)
    return manifest


def _claim(target: ObjectStore, opened: OpenTopic) -> None:
    """Makes sure that nothing else is in the directory, and marks it."""
    files = [info.name for info in target.list_files("")]
    if MANIFEST in files:
        raise _has_one(target)
    mark = {"topic": opened.topic, "topic_id": opened.state.topic_id}
    if UNFINISHED in files:
        try:
            found = json.loads(target.read(UNFINISHED))
        except (NotFound, ValueError):
            found = mark  # another run has just finished, or it was torn as it was written
        if found != mark:
            raise InvalidRequestError(
                f"{target.uri} has an unfinished backup of topic {found.get('topic')!r}, or of "
                f"another one of that name; remove it, or give another directory"
            )
    elif files or target.list_directories(""):
        raise InvalidRequestError(
            f"{target.uri} is not empty; a backup needs a directory of its own"
        )
    target.put(UNFINISHED, json.dumps(mark).encode() + b"\n")


@dataclass(slots=True)
class _Copy:
    opened: OpenTopic
    target: Warehouse
    on_copied: Callable[[int, int], None]
    #: By path.
    done: dict[str, BackupFile] = field(default_factory=dict)

    def run(self, now_ms: int) -> Manifest:
        """Copies the newest version."""
        for _ in range(_ROUNDS_MAX - 1):
            # Vacuum may have taken what the table let go of: the newest version does without.
            with contextlib.suppress(DataFileMissing):
                return self._run(now_ms)
            self.opened.refresh()
        return self._run(now_ms)

    def _run(self, now_ms: int) -> Manifest:
        state = self.opened.state
        files = list(state)
        all_bytes = sum(file.size_bytes for file in files)
        done_bytes = sum(file.size_bytes for file in files if file.path in self.done)
        self._check_space(all_bytes - done_bytes)
        for file in files:
            if file.path not in self.done:
                self.done[file.path] = self._copy(file)
                done_bytes += file.size_bytes
            self.on_copied(done_bytes, all_bytes)
        return Manifest(
            self.opened.topic,
            state.topic_id,
            now_ms,
            state.version,
            state.format,
            {name: format_value(value) for name, value in state.config.overrides.items()},
            tuple(self._partition(state, number) for number in range(state.partition_count)),
        )

    def _copy(self, file: DataFile) -> BackupFile:
        try:
            with self.opened.store.open(file.path) as source:
                data = source.read_buffer()
        except NotFound as error:
            raise DataFileMissing(
                f"the data file {self.opened.store.uri}/{file.path} is missing", file=file.path
            ) from error
        except OSError as error:
            raise StoreUnavailableError(
                f"the store could not read {self.opened.store.uri}/{file.path}: {error}"
            ) from error
        sha256 = hashlib.sha256(data).hexdigest()
        if not self._is_there(file, sha256):
            self.target.put(file.path, data)
            check_data_file(self.target, file)
        return BackupFile.of(file, sha256)

    def _is_there(self, file: DataFile, sha256: str) -> bool:
        """Whether a run that was interrupted has copied the file."""
        try:
            found = self.target.read(file.path)
            check_data_file(self.target, file)
        except (NotFound, LogDamagedError):
            return False
        return hashlib.sha256(found).hexdigest() == sha256

    def _partition(self, state: TableState, number: int) -> PartitionCopy:
        return PartitionCopy(
            state.log_start_offset(number),
            state.log_end_offset(number),
            state.cleaned_offset(number),
            tombstone_registers(state, number),
            tuple(self.done[file.path] for file in state.files(number).sorted()),
        )

    def _check_space(self, needed_bytes: int) -> None:
        free_bytes = self.target.free_bytes()
        if free_bytes is not None and free_bytes < needed_bytes:
            raise StoreUnavailableError(
                f"{self.target.uri} has {free_bytes} bytes free; the backup needs {needed_bytes}"
            )


def _tidy(target: ObjectStore, manifest: Manifest) -> None:
    """Removes what the manifest does not name: files of earlier rounds and interrupted runs."""
    named = {file.path for _, file in manifest.files()}
    for directory in target.list_directories(""):
        for info in target.list_files(directory) if directory.startswith(_DIRECTORY) else ():
            path = posixpath.join(directory, info.name)
            if path not in named:
                target.delete(path)
    target.delete(UNFINISHED)


def _has_one(target: ObjectStore) -> InvalidRequestError:
    return InvalidRequestError(f"{target.uri} has a backup already; give another directory")
