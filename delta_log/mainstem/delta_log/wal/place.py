"""What a write-ahead log asks of the place where it lies: a directory of a disk, or an object
storage service.

`files` and `segments` are the directory, `objects` is the service. What is the same for both is in
`log` (numbers, groups, failures), `others` (the logs of other gateways) and `orphans`; whose a
segment's entries still are is kept here, by `SegmentList`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mainstem.errors import StoreUnavailableError


class WalInUse(StoreUnavailableError):
    """Another process has the write-ahead log."""


class WalLost(Exception):
    """The log was taken by another process, or it was moved or removed."""


class WalSealed(WalLost):
    """Another gateway has sealed the log, to take over topics whose requests it has. What was
    acknowledged before is in it for good; its owner may go on with it (`own_again`)."""


@dataclass(slots=True, eq=False)
class Segment:
    """A file or an object of the log.

    Attributes:
        size_bytes: Of its frames, all of which are durable.
        unfolded: The numbers of its entries that no table has yet.
    """

    name: str
    size_bytes: int = 0
    unfolded: set[int] = field(default_factory=set)


class SegmentList:
    """Which segments of a log are still needed. No I/O."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def fold(self, numbers: set[int]) -> None:
        """Notes that no entry of these numbers is needed any more."""
        for segment in self._segments:
            segment.unfolded -= numbers

    def holds(self, number: int) -> bool:
        """Whether a segment has an entry of this number that no table has."""
        return any(number in segment.unfolded for segment in self._segments)

    def holding(self, numbers: set[int]) -> list[tuple[str, int]]:
        """The segments with entries of these numbers that no table has: names, and how far they are
        durable."""
        return [
            (segment.name, segment.size_bytes)
            for segment in self._segments
            if not numbers.isdisjoint(segment.unfolded)
        ]

    @property
    def names(self) -> list[str]:
        return [segment.name for segment in self._segments]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)


class WalSegments(Protocol):
    """All segments of one log, oldest first. `scan` first. Calls block, and come one at a time,
    except those of `SegmentList`, `drop_folded` and `read`, which may come beside a `write`."""

    @property
    def names(self) -> list[str]: ...

    @property
    def size_bytes(self) -> int: ...

    def scan(self) -> Iterator[tuple[int, bytes]]:
        """The entries that are there, with their numbers, segment by segment.

        Raises:
            LogDamagedError: A segment is damaged; the message names file and position.
            OSError, StoreUnavailableError: A segment cannot be read.
        """
        ...

    def write(self, frame: bytes, number: int) -> Segment:
        """Adds a frame, durably.

        Args:
            number: Higher than that of every entry so far.

        Returns:
            The segment that has it.

        Raises:
            WalLost: The log is not ours any more. What was written may be lost.
            OSError, StoreUnavailableError: The frame does not count as written; the log can be
                tried again.
        """
        ...

    def fold(self, numbers: set[int]) -> None: ...

    def holds(self, number: int) -> bool: ...

    def holding(self, numbers: set[int]) -> list[tuple[str, int]]: ...

    def drop_folded(self) -> None:
        """Has the segments deleted whose entries are all in tables, as far as the log allows.
        Returns soon, and raises nothing."""
        ...

    def read(self, places: list[tuple[str, int]]) -> Iterator[tuple[int, bytes]]:
        """The entries of segments as `holding` named them. May run beside everything else.

        Raises:
            LogDamagedError, OSError, StoreUnavailableError: A segment cannot be read any more.
        """
        ...

    def close(self) -> None:
        """Ends writing, and deletes what no table waits for."""
        ...


class WalFiles(Protocol):
    """One write-ahead log. Every call blocks; failures are OSError or StoreUnavailableError."""

    @property
    def uri(self) -> str:
        """Where it is, for messages."""
        ...

    @property
    def is_own(self) -> bool:
        """False: it is another gateway's, sealed, and nothing is appended."""
        ...

    def names(self) -> list[str]:
        """The names of its files, sorted; other people's among them."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError where there is none."""
        ...

    def write_whole(self, name: str, data: bytes) -> None:
        """Gives the name to a file that has all its content, or leaves all as it was. Durable when
        this returns; may be tried again."""
        ...

    def own_again(self) -> None:
        """Makes a log that was sealed this one's again. What was not acknowledged before the seal
        counts as not written. Raises WalLost where it cannot be."""
        ...

    def segments(self, segment_bytes: int) -> WalSegments:
        """Its segments. To be called once.

        Args:
            segment_bytes: A file that has reached this many bytes is followed by a new one.
        """
        ...

    def close(self) -> None:
        """Lets another process have the log."""
        ...


class SealedLog(WalFiles, Protocol):
    """The log of another gateway, which is sealed when this is made: nobody can acknowledge
    anything in it any more, so what is read afterwards is all that there is. The owner may be
    alive, and go on behind the seal: `is_sealed`."""

    @property
    def is_sealed(self) -> bool:
        """Whether nobody has written anything that counts since. Blocks."""
        ...

    def delete_segments(self, names: Sequence[str]) -> bool:
        """Deletes segments, unless the owner may still use them; returns whether it did. The caller
        knows that all that they have is in tables, or kept as orphans."""
        ...


class WalPlace(Protocol):
    """Where several gateways have their logs, by gateway.id. Every call blocks."""

    def seal(self, gateway_id: str, sealer_id: str) -> SealedLog | None:
        """Seals the log of a gateway; None: it has none here.

        Raises:
            OSError, StoreUnavailableError: It cannot be sealed; acknowledged records may be there.
        """
        ...

    def with_segments(self, but: set[str]) -> list[str]:
        """The ids of the gateways that have segments, but for some. Nothing is sealed.

        Raises:
            OSError, StoreUnavailableError: The place cannot be read.
        """
        ...
