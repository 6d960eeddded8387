"""The active files of a table: by path, and by partition and offset. Pure.

Most files are packed (see `packed_files`), and become a `DataFile` when they are asked for. The
newest ones are kept as objects as well as what does not fit into a row: appends and roll-ups, which
are in a hurry, look at nothing else.
"""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from mainstem.delta_log.format import (
    HYPHEN_AT,
    KEY_DTYPE,
    NAME_AT,
    ROW_DTYPE,
    AddedFiles,
    DataFile,
    PackedFiles,
    PackedPath,
    pack,
)

#: Files that are kept as objects: what the producers of a gateway write in some seconds to minutes.
#: A full garbage collection looks at each, which takes 0.1 us.
_RECENT_MAX = 2048

#: Packed at a time, in 0.2 ms.
_PACKED_AT_A_TIME = 32

_base_offset = attrgetter("base_offset")


class PartitionFiles:
    """The active files of one partition, by base offset.

    Attributes:
        size_bytes, record_count: Of all of them together.
        packed_until: The highest base offset of a packed file, as paths have it; empty: none is.
    """

    __slots__ = ("loose", "packed", "packed_until", "record_count", "size_bytes")

    def __init__(self, partition: int) -> None:
        self.size_bytes = 0
        self.record_count = 0
        self.packed_until = ""
        self.packed = PackedFiles(partition)
        #: What is not packed, by base offset.
        self.loose: list[DataFile] = []

    def __len__(self) -> int:
        return self.packed.count + len(self.loose)

    def __iter__(self) -> Iterator[DataFile]:
        """By base offset, made one by one: for a caller that does not want all of them."""
        if not self.loose:
            return iter(self.packed)
        return heapq.merge(self.packed, self.loose.copy(), key=_base_offset)

    def sorted(self) -> list[DataFile]:
        """All files by base offset. A microsecond for each."""
        files = list(self.packed)
        if self.loose:
            files += self.loose
            files.sort(key=_base_offset)
        return files

    def last(self) -> DataFile | None:
        """The file with the highest base offset."""
        ends = [*self.packed.last(), *self.loose[-1:]]
        return max(reversed(ends), key=_base_offset, default=None)

    def between(
        self,
        start_offset: int,
        end_offset: int,
        *,
        files_max: int = sys.maxsize,
        timestamp_ms_min: int | None = None,
    ) -> list[DataFile]:
        """The files with a record in [start_offset, end_offset), by base offset.

        Args:
            files_max: Only so many, the first ones.
            timestamp_ms_min: Only those with a record of this time or later, in ms since 1970.
        """
        if start_offset >= end_offset or files_max <= 0:
            return []
        found = self.loose[
            max(bisect_right(self.loose, start_offset, key=_base_offset) - 1, 0) : bisect_left(
                self.loose, end_offset, key=_base_offset
            )
        ]
        if timestamp_ms_min is not None:
            found = [file for file in found if file.timestamp_ms_max >= timestamp_ms_min]
        # The newest files are not packed, so most of what is asked for ends here.
        begun = found and found[0].base_offset <= start_offset
        if self.packed.count and not (begun and self.packed.last_offset < found[0].base_offset):
            # One more, as the first one may end before the start.
            wanted = min(files_max + 1, sys.maxsize)
            packed = self.packed.between(start_offset, end_offset, wanted, timestamp_ms_min)
            if packed and found:
                found = packed + found
                found.sort(key=_base_offset)
                # Each had the last one that begins at or before the start.
                if len(found) > 1 and found[1].base_offset <= start_offset:
                    del found[0]
            else:
                found = packed or found
        # Files do not overlap, so only the first can end before the start.
        if found and found[0].last_offset < start_offset:
            del found[0]
        return found if len(found) <= files_max else found[:files_max]

    def copy(self) -> PartitionFiles:
        other = PartitionFiles.__new__(PartitionFiles)
        other.size_bytes = self.size_bytes
        other.record_count = self.record_count
        other.packed_until = self.packed_until
        other.packed = self.packed.copy()
        other.loose = self.loose.copy()
        return other

    def load(self, rows: npt.NDArray[np.void]) -> None:
        self.packed.load(rows)
        self.packed_until = f"{self.packed.last_offset:020d}"
        self.size_bytes += int(rows["size_bytes"].sum())
        self.record_count += int(rows["record_count"].sum())

    def add(self, file: DataFile) -> None:
        if not self.loose or file.base_offset >= self.loose[-1].base_offset:
            self.loose.append(file)
        else:
            insort(self.loose, file, key=_base_offset)
        self.size_bytes += file.size_bytes
        self.record_count += file.record_count

    def remove(self, file: DataFile) -> None:
        self._take_out(file)
        self.size_bytes -= file.size_bytes
        self.record_count -= file.record_count

    def remove_packed(self, path: PackedPath) -> bool:
        removed = self.packed.remove(path)
        if removed is None:
            return False
        self.size_bytes -= removed[0]
        self.record_count -= removed[1]
        return True

    def pack(self, file: DataFile, row: bytes) -> None:
        self._take_out(file)
        self.packed.add(file.base_offset, row)
        self.packed_until = f"{self.packed.last_offset:020d}"

    def _take_out(self, file: DataFile) -> None:
        index = bisect_right(self.loose, file.base_offset, key=_base_offset) - 1
        while self.loose[index] is not file:
            index -= 1
        del self.loose[index]


class FileIndex(Mapping[str, DataFile]):
    """All active files of a table, by path."""

    __slots__ = ("_by_directory", "_kept", "_partitions", "_recent")

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionFiles] = {}
        #: The same by the beginning of usual paths.
        self._by_directory: dict[str, PartitionFiles] = {}
        #: What was added last, the oldest first, by path.
        self._recent: dict[str, DataFile] = {}
        #: What does not fit into a row, by path.
        self._kept: dict[str, DataFile] = {}

    def __len__(self) -> int:
        return sum(map(len, list(self._partitions.values())))

    def __contains__(self, path: object) -> bool:
        if path in self._recent or path in self._kept:
            return True
        if not isinstance(path, str) or (files := self._packed_of(path)) is None:
            return False
        parsed = PackedPath.parse(path)
        return parsed is not None and files.packed.has(parsed)

    def __getitem__(self, path: str) -> DataFile:
        file = self._recent.get(path) or self._kept.get(path)
        if file is None and (files := self._packed_of(path)) is not None:
            parsed = PackedPath.parse(path)
            file = None if parsed is None else files.packed.find(parsed)
        if file is None:
            raise KeyError(path)
        return file

    def __iter__(self) -> Iterator[str]:
        return (file.path for file in self.files())

    def size_bytes(self, path: str) -> int | None:
        """The size of the file of a path; None: there is none. Makes no object of it."""
        file = self._recent.get(path) or self._kept.get(path)
        if file is not None:
            return file.size_bytes
        files, parsed = self._packed_of(path), PackedPath.parse(path)
        return None if files is None or parsed is None else files.packed.size_bytes(parsed)

    def keys_and_sizes(self) -> npt.NDArray[np.void] | None:
        """A row of `KEY_DTYPE` for each file; None: one has a path that does not fit into it."""
        parts = [np.empty(0, KEY_DTYPE)]
        for number, files in list(self._partitions.items()):
            loose = [pack(file) for file in files.loose]
            data = files.packed.rows() + b"".join(row for row in loose if row is not None)
            rows = np.frombuffer(data, ROW_DTYPE)
            if None in loose:
                return None
            part = np.empty(len(rows), KEY_DTYPE)
            part["partition"] = number
            for name in ("base_offset", "name", "size_bytes"):
                part[name] = rows[name]
            parts.append(part)
        return np.concatenate(parts)

    def files(self) -> Iterator[DataFile]:
        """Every file; those of a partition together."""
        for files in list(self._partitions.values()):
            yield from files.packed
            yield from files.loose.copy()

    def copy(self) -> FileIndex:
        """As it is now. Costs a microsecond a partition, and little more."""
        other = FileIndex()
        for number, files in self._partitions.items():
            other._take(number, files.copy())
        other._recent = self._recent.copy()
        other._kept = self._kept.copy()
        return other

    def partition(self, number: int) -> PartitionFiles:
        """The files of a partition; changes with the index."""
        return self._partitions.get(number) or PartitionFiles(number)

    def partitions(self) -> list[PartitionFiles]:
        """Of all partitions that ever had a file."""
        return list(self._partitions.values())

    def load(self, added: AddedFiles) -> None:
        """Takes the files of a checkpoint, before anything else."""
        assert not self._partitions
        if len(added.rows):
            self._load_rows(added.partitions, added.rows)
        for file in added.others:
            self.add(file)

    def add(self, file: DataFile) -> None:
        """Takes a file; it replaces one of the same path."""
        self.remove(file.path)
        self._recent[file.path] = file
        files = self._partitions.get(file.partition)
        if files is None:
            files = self._take(file.partition, PartitionFiles(file.partition))
        files.add(file)
        if len(self._recent) > _RECENT_MAX:
            self._pack_oldest()

    def remove(self, path: str) -> None:
        """Removes the file of a path, if there is one."""
        file = self._recent.pop(path, None) or self._kept.pop(path, None)
        if file is not None:
            self._partitions[file.partition].remove(file)
        elif (files := self._packed_of(path)) is not None:
            parsed = PackedPath.parse(path)
            if parsed is not None:
                files.remove_packed(parsed)

    def _load_rows(self, partitions: npt.NDArray[np.int64], rows: npt.NDArray[np.void]) -> None:
        order = np.lexsort((rows["base_offset"], partitions))
        rows, partitions = _without_doubles(rows[order], partitions[order])
        ends = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
        for start, part in zip([0, *ends.tolist()], np.split(rows, ends), strict=True):
            number = int(partitions[start])
            self._take(number, PartitionFiles(number)).load(part)

    def _take(self, number: int, files: PartitionFiles) -> PartitionFiles:
        self._partitions[number] = files
        self._by_directory[files.packed.directory] = files
        return files

    def _packed_of(self, path: str) -> PartitionFiles | None:
        """The partition that may have the file of a path packed. Looks at little of it: a path that
        is not the usual one gets any answer."""
        files = self._by_directory.get(path[:NAME_AT])
        # The path of a new file is beyond what is packed.
        if files is None or path[NAME_AT:HYPHEN_AT] > files.packed_until:
            return None
        return files

    def _pack_oldest(self) -> None:
        for file in list(islice(self._recent.values(), _PACKED_AT_A_TIME)):
            del self._recent[file.path]
            row = pack(file)
            if row is None:
                self._kept[file.path] = file
            else:
                self._partitions[file.partition].pack(file, row)


def _without_doubles(
    rows: npt.NDArray[np.void], partitions: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
    """Without rows of which a later one has the same path; in the order of partition and offset."""
    bases = rows["base_offset"]
    if not ((bases[1:] == bases[:-1]) & (partitions[1:] == partitions[:-1])).any():
        return rows, partitions
    # Only in a damaged table: not worth more than this.
    last = {
        (partition, base, name.tobytes()): index
        for index, (partition, base, name) in enumerate(
            zip(partitions.tolist(), bases.tolist(), rows["name"], strict=True)
        )
    }
    kept = np.array(sorted(last.values()))
    return rows[kept], partitions[kept]
