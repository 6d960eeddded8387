"""The segments of a write-ahead log: files of frames, of which the newest is written to.

**What a failure leaves.** A write that failed may have left a part of its frame; after a sync that
failed nobody knows what the disk has of it. Either way the segment is cut to the frames that were
synced before, durably, before anything else is written: only the newest segment of a log may have
something behind its last frame, which is what a start takes for torn. Nothing more is added to it
then, and the log goes on in a new segment.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final, Protocol

from mainstem.delta_log.wal.format import decode_segment
from mainstem.delta_log.wal.place import Segment, SegmentList

_SEGMENT: Final = re.compile(r"[0-9]{20}\.wal")

#: In a name: those of entries are smaller by far, and a longer one would not sort.
_NUMBER_MAX: Final = 2**63


class WalFile(Protocol):
    """A segment that is being written."""

    def append(self, data: bytes) -> None:
        """Writes at the end. Not yet durable. A part of it may be there when this fails."""
        ...

    def sync(self) -> None:
        """Makes what was appended durable. After a failure nobody knows what the disk has."""
        ...

    def cut(self, size_bytes: int) -> None:
        """Cuts the file to its first `size_bytes`, durably. May be tried again."""
        ...

    def close(self) -> None: ...


class SegmentDirectory(Protocol):
    """The directory of a log. Every call blocks; failures are OSError."""

    @property
    def uri(self) -> str: ...

    @property
    def is_own(self) -> bool: ...

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def create(self, name: str) -> WalFile:
        """A new file, whose name is durable when this returns. After a failure the name is not used
        again."""
        ...

    def cut(self, name: str, size_bytes: int) -> None:
        """Cuts a file to its first `size_bytes`, durably."""
        ...

    def delete(self, name: str) -> None:
        """Removes a file. It may be there again after a loss of power."""
        ...

    def check_owned(self) -> None:
        """Raises WalLost if the directory is not this log's any more, OSError if nobody knows."""
        ...


class Segments(SegmentList):
    """The segments in a directory; see `WalSegments`.

    Args:
        files: Where it is not our own, its owner may be alive: nothing is changed, and its torn end
            is left to it.
        segment_bytes: A segment that has reached this many bytes is followed by a new one.
    """

    def __init__(self, files: SegmentDirectory, segment_bytes: int) -> None:
        super().__init__()
        self._files = files
        self._sealed = not files.is_own
        self._segment_bytes = segment_bytes
        #: In names: each is higher than all before.
        self._newest = 0
        #: Of the last segment, while this log writes to it.
        self._file: WalFile | None = None
        #: Something that failed may have left bytes behind the last segment's frames.
        self._is_torn = False

    def scan(self) -> Iterator[tuple[int, bytes]]:
        """The entries that are there, with their numbers, segment by segment. A torn end is cut.

        Raises:
            LogDamagedError: A segment is damaged; the message names file and position.
            OSError: A segment cannot be read, or its torn end not be cut.
        """
        names = [name for name in self._files.names() if is_segment(name)]
        for name in names:
            segment = Segment(name)
            try:
                data = self._files.read(name)
            except FileNotFoundError:
                if self._sealed:
                    continue  # its owner has deleted it: all its entries were in tables
                raise
            for frame in decode_segment(data, self.path(name), is_last=name == names[-1]):
                segment.unfolded |= {number for number, _ in frame.entries}
                segment.size_bytes = frame.end
                yield from frame.entries
            self._newest = int(name[:20])
            if self._sealed:
                self._segments.append(segment)
                continue
            if segment.size_bytes < len(data):
                # Before a deletion, too: if that is undone by a loss of power, the file may be
                # there beside a newer one, and only the last may have a torn frame.
                self._files.cut(name, segment.size_bytes)
            if segment.size_bytes:
                self._segments.append(segment)
            else:
                self._files.delete(name)

    def write(self, frame: bytes, number: int) -> Segment:
        """Adds a frame, durably.

        Args:
            number: A new segment is named by it, if all names so far are lower.

        Returns:
            The segment that has it.

        Raises:
            WalLost: The directory is not ours any more. What was written may be lost.
            OSError: The log does not have the frame, and can be tried again.
        """
        if self._is_torn:
            self._files.check_owned()  # nothing is cut or added in vain, or where others write
            self._mend()
        if self._file is not None and (
            self._segments[-1].size_bytes + len(frame) > self._segment_bytes
        ):
            self._close_file()
        if self._file is None:
            self._newest = max(self._newest + 1, number)
            name = f"{self._newest:020d}.wal"
            self._file = self._files.create(name)
            self._segments.append(Segment(name))
        self._is_torn = True
        self._file.append(frame)
        self._file.sync()
        self._files.check_owned()
        self._is_torn = False
        segment = self._segments[-1]
        segment.size_bytes += len(frame)
        return segment

    def drop_folded(self) -> None:
        """Deletes the segments whose entries are all in tables, but for the one in use.

        Also from the middle: a topic that cannot be committed to must not keep all that came later.
        """
        if self._sealed:
            return
        in_use = self._segments[-1] if self._file is not None else None
        kept: list[Segment] = []
        for segment in self._segments:
            if segment is in_use or segment.unfolded:
                kept.append(segment)
                continue
            try:
                self._files.delete(segment.name)
            except OSError:
                kept.append(segment)  # the next time may have more luck
        self._segments = kept

    def read(self, places: list[tuple[str, int]]) -> Iterator[tuple[int, bytes]]:
        """The entries of segments as `holding` named them. May run beside everything else.

        Raises:
            LogDamagedError, OSError: A segment cannot be read any more.
        """
        for name, size_bytes in places:
            data = self._files.read(name)[:size_bytes]
            for frame in decode_segment(data, self.path(name), is_last=False):
                yield from frame.entries

    def path(self, name: str) -> str:
        """Where a file is, for messages."""
        return f"{self._files.uri}/{name}"

    def close(self) -> None:
        """Ends writing, and deletes what no table waits for."""
        if self._file is not None:
            self._close_file()
        self.drop_folded()

    def _mend(self) -> None:
        assert self._file is not None
        self._file.cut(self._segments[-1].size_bytes)
        self._is_torn = False
        self._close_file()

    def _close_file(self) -> None:
        assert self._file is not None
        file, self._file = self._file, None
        with contextlib.suppress(OSError):  # it is closed whatever that says, and all is synced
            file.close()


def is_segment(name: str) -> bool:
    """Whether a file of that name is ours, and not one that somebody else keeps beside them."""
    return _SEGMENT.fullmatch(name) is not None and int(name[:20]) < _NUMBER_MAX
