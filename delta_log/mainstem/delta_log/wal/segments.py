"""The segments of a write-ahead log: files of frames, of which the newest is written to.

**What a failure leaves.** A write that failed may have left a part of its frame; after a sync that
failed nobody knows what the disk has of it. Either way the segment is cut to the frames that were
synced before, durably, before anything else is written: only the newest segment of a log may have
something behind its last frame, which is what a start takes for torn. Nothing more is added to it
then, and the log goes on in a new segment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from mainstem.delta_log.wal.files import WalFile, WalFiles, is_segment
from mainstem.delta_log.wal.format import decode_segment


@dataclass(slots=True, eq=False)
class Segment:
    """A file of the log.

    Attributes:
        size_bytes: Of its frames, all of which are durable.
        unfolded: The numbers of its entries that no table has yet.
    """

    name: str
    size_bytes: int = 0
    unfolded: set[int] = field(default_factory=set)


class Segments:
    """All segments of one log. `scan` first. Calls block, and come one at a time.

    Args:
        segment_bytes: A segment that has reached this many bytes is followed by a new one.
        sealed: They are another gateway's, which may be alive: nothing is changed, and its torn
            end is left to it.
    """

    def __init__(self, files: WalFiles, segment_bytes: int, *, sealed: bool = False) -> None:
        self._files = files
        self._sealed = sealed
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
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

    def fold(self, numbers: set[int]) -> None:
        """Notes that no entry of these numbers is needed any more."""
        for segment in self._segments:
            segment.unfolded -= numbers

    def holds(self, number: int) -> bool:
        """Whether a segment has an entry of this number that no table has."""
        return any(number in segment.unfolded for segment in self._segments)

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

    def holding(self, numbers: set[int]) -> list[tuple[str, int]]:
        """The segments with entries of these numbers that no table has: names, and how far they are
        durable."""
        return [
            (segment.name, segment.size_bytes)
            for segment in self._segments
            if not numbers.isdisjoint(segment.unfolded)
        ]

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

    @property
    def names(self) -> list[str]:
        return [segment.name for segment in self._segments]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

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
