"""What a leader keeps of the small files that it has just written, and which become one. Pure.

A file's bytes are kept, as they are in the store: they are an exact copy of the records, several
times smaller than these in memory, and tied to no request's memory.

A roll-up takes consecutive files of one partition and of one level: what appends made, or what
roll-ups made of them. It leaves to compaction what is older than compaction leaves to it, so the
two never want the same file for long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mainstem.delta_log.format import DataFile
from mainstem.limits import KIB

#: How often a record is written again at most: by 32 files at a time, 1,000 files are one.
LEVELS: Final = 2

#: What a kept file costs beside its bytes: the objects that describe it.
_OVERHEAD_BYTES: Final = KIB


@dataclass(frozen=True, slots=True, eq=False)
class KeptFile:
    """A file that is in the table, with its bytes.

    Attributes:
        level: 0: an append made it; else how often its records were rolled up.
        kept_ms: Since when, by a clock that nobody sets: one that jumps would make all too old.
    """

    file: DataFile
    content: bytes
    level: int
    kept_ms: int

    @property
    def memory_bytes(self) -> int:
        return len(self.content) + _OVERHEAD_BYTES


class _Place:
    """The kept files of one partition and level, by offset."""

    __slots__ = ("files", "gap_count")

    def __init__(self) -> None:
        self.files: deque[KeptFile] = deque()
        #: Where files do not follow each other.
        self.gap_count = 0

    def append(self, kept: KeptFile) -> None:
        self.files.append(kept)
        if len(self.files) > 1:
            self.gap_count += _is_gap(self.files[-2].file, kept.file)

    def pop(self) -> KeptFile:
        """Takes the first file away."""
        first = self.files.popleft()
        if self.files:
            self.gap_count -= _is_gap(first.file, self.files[0].file)
        return first

    def choose(self, files_max: int, age_ms_max: int, now_ms: int) -> tuple[int, int]:
        """As the function of that name. After each commit it is asked for each partition, so it
        says at once where nothing has happened yet."""
        files = self.files
        if not files or (
            len(files) < files_max
            and not self.gap_count
            and now_ms - files[0].kept_ms <= age_ms_max // 2
        ):
            return 0, 0
        return choose(list(files), files_max, age_ms_max, now_ms)


class RollUpMemory:
    """What all topics of a gateway keep for roll-ups. On one event loop.

    A file that is kept too long for the room that there is stays as it is: the oldest go first.

    Args:
        limit_bytes: 0: nothing is ever kept, and so nothing rolled up.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        #: Held while files are merged, and for a pause after it.
        self.turn = asyncio.Semaphore(1)
        #: What may go, the oldest first, and the topic that keeps it.
        self._age: dict[KeptFile, KeptFiles] = {}

    def keep(self, kept: KeptFile, by: KeptFiles) -> None:
        """Counts a file, and makes room where it is one too many."""
        self._age[kept] = by
        self.used_bytes += kept.memory_bytes
        while self.used_bytes > self.limit_bytes and self._age:
            oldest, keeper = next(iter(self._age.items()))
            keeper.drop_first(oldest)

    def hold(self, kept: KeptFile) -> None:
        """From now on the file only goes when it is freed."""
        self._age.pop(kept, None)

    def free(self, kept: KeptFile) -> None:
        """Counts a file no more."""
        self._age.pop(kept, None)
        self.used_bytes -= kept.memory_bytes


class KeptFiles:
    """What one topic keeps. On one event loop."""

    def __init__(self, memory: RollUpMemory) -> None:
        self._memory = memory
        #: By partition and level, each by offset.
        self._places: dict[tuple[int, int], _Place] = {}
        #: Where something came since `next_run` found nothing.
        self._changed: dict[tuple[int, int], None] = {}
        self._held: set[KeptFile] = set()

    @property
    def has_changed(self) -> bool:
        """Whether `next_run` has anything to look at."""
        return bool(self._changed)

    def add(self, kept: KeptFile) -> None:
        """Keeps a file that has just become part of the table, the newest of its level."""
        if kept.level >= LEVELS:
            return
        where = (kept.file.partition, kept.level)
        self._places.setdefault(where, _Place()).append(kept)
        self._changed[where] = None
        self._memory.keep(kept, self)

    def next_run(
        self, is_active: Callable[[str], bool], files_max: int, age_ms_max: int, now_ms: int
    ) -> list[KeptFile]:
        """Files that are to become one; they are held until `free`. Empty: there are none now.

        Args:
            is_active: Whether the table still has a file of that path.
            files_max, age_ms_max, now_ms: As for `choose`.
        """
        while self._changed:
            where = next(iter(self._changed))
            place = self._places[where]
            skipped, count = place.choose(files_max, age_ms_max, now_ms)
            for _ in range(skipped):
                self._memory.free(place.pop())
            run = [place.pop() for _ in range(count)]
            if not run:
                del self._changed[where]
            elif all(is_active(kept.file.path) for kept in run):
                for kept in run:
                    self._memory.hold(kept)
                self._held.update(run)
                return run
            else:  # a compaction was there already
                for kept in run:
                    self._memory.free(kept)
        return []

    def free(self, run: Sequence[KeptFile]) -> None:
        """Lets go of files that were held, unless `clear` has."""
        for kept in self._held.intersection(run):
            self._held.remove(kept)
            self._memory.free(kept)

    def drop_first(self, kept: KeptFile) -> None:
        """Lets go of the oldest file of its place, which is `kept`."""
        first = self._places[kept.file.partition, kept.level].pop()
        assert first is kept, "the oldest of all is not the oldest of its place"
        self._memory.free(kept)

    def clear(self) -> None:
        """Lets go of everything."""
        for place in self._places.values():
            for kept in place.files:
                self._memory.free(kept)
        for kept in self._held:
            self._memory.free(kept)
        self._places.clear()
        self._held.clear()
        self._changed.clear()


def choose(
    files: Sequence[KeptFile], files_max: int, age_ms_max: int, now_ms: int
) -> tuple[int, int]:
    """Which of a partition's kept files become one.

    Some `files_max` that follow each other do; fewer where no more can come, because a file that is
    not kept is next, or where waiting for more has taken half of the time that there is.

    Args:
        files: By offset.
        files_max: At least 2.
        age_ms_max: Files that are kept for longer are left alone.

    Returns:
        How many files at the front are to be left alone for ever, and how many after them become
        one now, at least two or none.
    """
    start = 0
    while start < len(files):
        age_ms = now_ms - files[start].kept_ms
        if age_ms > age_ms_max:
            start += 1
            continue
        end = start + 1
        while (
            end < len(files)
            and end - start < files_max
            and not _is_gap(files[end - 1].file, files[end].file)
        ):
            end += 1
        count = end - start
        is_last = end == len(files)
        if count == files_max or (count > 1 and (not is_last or age_ms > age_ms_max // 2)):
            return start, count
        if is_last:
            return start, 0
        start = end
    return start, 0


def _is_gap(first: DataFile, then: DataFile) -> bool:
    return then.base_offset != first.last_offset + 1
