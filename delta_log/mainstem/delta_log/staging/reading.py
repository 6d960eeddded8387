"""Reads what is staged for one topic, a bounded part of it at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mainstem.delta_log.files import Slice
from mainstem.delta_log.staging.format import (
    TAIL_BYTES,
    FormatError,
    FrameEntry,
    decode_frame,
    decode_index,
    index_length,
)
from mainstem.delta_log.store import NotFound, ObjectStore
from mainstem.errors import LogDamagedError
from mainstem.limits import MIB

#: Of frames in what `StagedTopic.slices` gives at a time; more only where a single frame has more.
#: It becomes a data file. Twice as much would double what a gateway needs for a large transaction,
#: and take as long.
CHUNK_BYTES: Final = 8 * MIB


class StagedTopic:
    """The staged records of one topic, in one or more objects. Calls of `slices` block, and may
    come from several threads.

    Attributes:
        counts: Records by partition, each more than 0.
        size_bytes: Of the frames.

    Args:
        frames: (path of the object, frame), in the order in which the records came.
    """

    def __init__(self, store: ObjectStore, frames: Sequence[tuple[str, FrameEntry]]) -> None:
        self._store = store
        self._frames: dict[int, list[tuple[str, FrameEntry]]] = {}
        counts: dict[int, int] = {}
        for path, entry in frames:
            self._frames.setdefault(entry.partition, []).append((path, entry))
            counts[entry.partition] = counts.get(entry.partition, 0) + entry.record_count
        self.counts: Mapping[int, int] = counts
        self.size_bytes = sum(entry.length for _, entry in frames)

    def slices(self, partition: int) -> Iterator[list[Slice]]:
        """The records of a partition in order, about `CHUNK_BYTES` at a time. From the start, each
        time that it is called.

        Raises:
            LogDamagedError: An object is missing, or has other bytes than were written.
            StoreUnavailableError: The store failed.
        """
        chunk: list[Slice] = []
        size_bytes = 0
        for path, entry in self._frames.get(partition, ()):
            if chunk and size_bytes + entry.length > CHUNK_BYTES:
                ready, chunk, size_bytes = [chunk], [], 0
                yield ready.pop()  # or this frame would keep it until it is asked for the next one
            chunk += self._read(path, entry)
            size_bytes += entry.length
        if chunk:
            yield chunk

    def check(self) -> None:
        """Reads everything, and compares all checksums: what passes can be appended. Blocks.

        Raises: As `slices`.
        """
        for frames in self._frames.values():
            for path, entry in frames:
                self._read(path, entry)

    def _read(self, path: str, entry: FrameEntry) -> list[Slice]:
        try:
            frame = self._store.read_range(path, entry.start, entry.length)
            return decode_frame(frame, entry)
        except NotFound:
            raise missing(self._store, path) from None
        except FormatError as error:
            raise damaged(self._store, path, error) from error


def read_index(store: ObjectStore, path: str) -> list[FrameEntry]:
    """The index of an object. Blocks.

    Raises:
        LogDamagedError: The object is missing, or has other bytes than were written.
        StoreUnavailableError: The store failed.
    """
    try:
        with store.open(path) as file:
            size_bytes = file.size()
            tail_start = max(size_bytes - TAIL_BYTES, 0)
        tail = store.read_range(path, tail_start, TAIL_BYTES)
        length = index_length(tail)
        if length > tail_start:
            raise FormatError(f"it has {size_bytes} bytes")
        return decode_index(store.read_range(path, tail_start - length, length), tail)
    except NotFound:
        raise missing(store, path) from None
    except FormatError as error:
        raise damaged(store, path, error) from error


def missing(store: ObjectStore, path: str) -> LogDamagedError:
    """The error for an object that is not there."""
    return LogDamagedError(
        f"{store.uri}/{path} with staged records of a transaction is not there: restore it from a "
        "copy of the store",
        file=path,
    )


def damaged(store: ObjectStore, path: str, error: FormatError) -> LogDamagedError:
    """The error for an object with other bytes than were written."""
    return LogDamagedError(
        f"{store.uri}/{path} with staged records of a transaction is damaged: {error}; restore it "
        "from a copy of the store",
        file=path,
    )
