"""The files of one partition in rows of bytes: less than a hundred bytes a file, and no object.

The rows are in leaves of bounded size, by base offset, so that an insertion moves a few kilobytes
however many files there are. A copy shares the leaves: who changes one first takes a leaf of its
own.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem.delta_log.format.actions import DataFile

#: A row in a leaf. All that `DataFile` has but the partition; of the path only what tells files of
#: the same base offset apart.
ROW_DTYPE: Final = np.dtype(
    [
        ("base_offset", "<i8"),
        ("last_offset", "<i8"),
        ("record_count", "<i8"),
        ("size_bytes", "<i8"),
        ("timestamp_ms_min", "<i8"),
        ("timestamp_ms_max", "<i8"),
        ("modified_ms", "<i8"),
        ("tail_crc32c", "<u4"),
        ("flags", "u1"),
        ("name", "V16"),
    ]
)
#: What a path says, and a size: enough to tell whether two lists have the same files.
KEY_DTYPE: Final = np.dtype(
    [("partition", "<i8"), ("base_offset", "<i8"), ("name", "V16"), ("size_bytes", "<i8")]
)
DATA_CHANGE: Final = 1
HAS_TAIL_CRC32C: Final = 2

_ROW: Final = struct.Struct("<qqqqqqqIB16s")
_ROW_NAME_AT: Final = _ROW.size - 16
assert ROW_DTYPE.itemsize == _ROW.size

#: Rows of a leaf. Half a leaf is moved by an insertion, and a whole one copied by the first change
#: after a copy: 44 KB, some microseconds.
_LEAF_ROWS: Final = 512

#: Files of all tables that are kept as objects once they were asked for, 3 MB of them.
_MADE_MAX: Final = 4096

#: In the usual path of a data file, from its end: where the 20 digits of the base offset begin,
#: right behind the directory, and the hyphen behind them.
NAME_AT: Final = -len(f"{0:020d}-{0:032x}.parquet")
HYPHEN_AT: Final = NAME_AT + 20

_PATH: Final = re.compile(
    r"partition=(0|[1-9][0-9]{0,9})/([0-9]{20})-([0-9a-f]{32})\.parquet", re.ASCII
)


class PackedPath(NamedTuple):
    """What the usual path of a data file says."""

    partition: int
    base_offset: int
    name: bytes

    @classmethod
    def parse(cls, path: str) -> PackedPath | None:
        """None: the path is another one, and cannot be made of these again."""
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        partition, base_offset, name = match.groups()
        return cls(int(partition), int(base_offset), bytes.fromhex(name))


def pack(file: DataFile) -> bytes | None:
    """The row of a file; None: it does not fit into one, by its path or its numbers."""
    path = PackedPath.parse(file.path)
    if path is None or (path.partition, path.base_offset) != (file.partition, file.base_offset):
        return None
    crc32c = file.tail_crc32c
    flags = DATA_CHANGE * file.data_change | HAS_TAIL_CRC32C * (crc32c is not None)
    try:
        return _ROW.pack(
            file.base_offset,
            file.last_offset,
            file.record_count,
            file.size_bytes,
            file.timestamp_ms_min,
            file.timestamp_ms_max,
            file.modified_ms,
            crc32c or 0,
            flags,
            path.name,
        )
    except struct.error:
        return None


_Fields = tuple[int, int, int, int, int, int, int, int, int, bytes]


def _file(directory: str, partition: int, fields: _Fields) -> DataFile:
    base_offset, last_offset, records, size, least, most, modified, crc32c, flags, name = fields
    return DataFile(
        f"{directory}{base_offset:020d}-{name.hex()}.parquet",
        partition,
        base_offset,
        last_offset,
        records,
        size,
        least,
        most,
        modified,
        flags & DATA_CHANGE != 0,
        crc32c if flags & HAS_TAIL_CRC32C else None,
    )


@lru_cache(maxsize=_MADE_MAX)
def _made(directory: str, partition: int, row: bytes) -> DataFile:
    """The file of a row. Plans for fetches ask for the same ones again and again."""
    return _file(directory, partition, _ROW.unpack(row))


class _Leaf:
    """Some rows, by base offset, and their base offsets once more, to be searched."""

    __slots__ = ("bases", "owner", "rows")

    def __init__(self, owner: object, bases: array[int], rows: bytearray) -> None:
        self.owner = owner
        self.bases = bases
        self.rows = rows

    def split(self, owner: object, at: int) -> _Leaf:
        """Takes the rows from `at` on away, into another leaf."""
        other = _Leaf(owner, self.bases[at:], self.rows[at * _ROW.size :])
        del self.bases[at:]
        # A new one: what is cut off a bytearray stays allocated.
        self.rows = self.rows[: at * _ROW.size]
        return other


class PackedFiles:
    """Files of one partition, by base offset. The caller sees to it that no path is in it twice.

    Attributes:
        directory: The beginning of their paths, with its slash.
        last_offset: No file has a base offset after it; -1: there was none.
    """

    __slots__ = ("_firsts", "_leaves", "_owner", "_partition", "count", "directory", "last_offset")

    def __init__(self, partition: int) -> None:
        self.count = 0
        self._partition = partition
        self.directory = f"partition={partition}/"
        self.last_offset = -1
        self._owner = object()
        self._leaves: list[_Leaf] = []
        #: The base offset of each leaf's first row.
        self._firsts: list[int] = []

    def copy(self) -> PackedFiles:
        """As it is now. Costs nothing that grows with a leaf."""
        other = PackedFiles(self._partition)
        other._leaves = self._leaves.copy()
        other._firsts = self._firsts.copy()
        other.count = self.count
        other.last_offset = self.last_offset
        self._owner = object()
        return other

    def load(self, rows: npt.NDArray[np.void]) -> None:
        """Takes rows of `ROW_DTYPE`, by base offset. Only what is empty can."""
        assert not self._leaves
        self.count = len(rows)
        for start in range(0, len(rows), _LEAF_ROWS):
            part = rows[start : start + _LEAF_ROWS]
            bases = array("q")
            bases.frombytes(part["base_offset"].tobytes())
            self._leaves.append(_Leaf(self._owner, bases, bytearray(part.tobytes())))
            self._firsts.append(bases[0])
        self.last_offset = self._leaves[-1].bases[-1] if self._leaves else -1

    def add(self, base_offset: int, row: bytes) -> None:
        """Takes a row of `pack`, behind those of the same base offset."""
        self.count += 1
        self.last_offset = max(self.last_offset, base_offset)
        if not self._leaves:
            self._insert_leaf(0, _Leaf(self._owner, array("q", [base_offset]), bytearray(row)))
            return
        index = max(bisect_right(self._firsts, base_offset) - 1, 0)
        leaf = self._own(index)
        at = bisect_right(leaf.bases, base_offset)
        if len(leaf.bases) >= _LEAF_ROWS:
            # Leaves that are appended to stay full.
            last = at == len(leaf.bases) and index == len(self._leaves) - 1
            if last:
                new = _Leaf(self._owner, array("q", [base_offset]), bytearray(row))
                self._insert_leaf(index + 1, new)
                return
            half = len(leaf.bases) // 2
            self._insert_leaf(index + 1, leaf.split(self._owner, half))
            if at > half:
                index, at = index + 1, at - half
                leaf = self._leaves[index]
        leaf.bases.insert(at, base_offset)
        leaf.rows[at * _ROW.size : at * _ROW.size] = row
        self._firsts[index] = leaf.bases[0]

    def find(self, path: PackedPath) -> DataFile | None:
        """The file of a path of this partition."""
        found = self._locate(path)
        if found is None:
            return None
        index, at = found
        return self._file(_ROW.unpack_from(self._leaves[index].rows, at * _ROW.size))

    def size_bytes(self, path: PackedPath) -> int | None:
        """The size of the file of a path of this partition."""
        found = self._locate(path)
        if found is None:
            return None
        index, at = found
        size: int = _ROW.unpack_from(self._leaves[index].rows, at * _ROW.size)[3]
        return size

    def has(self, path: PackedPath) -> bool:
        """Whether there is a file of a path of this partition."""
        return self._locate(path) is not None

    def remove(self, path: PackedPath) -> tuple[int, int] | None:
        """Removes a file; returns its size in bytes and its count of records. None: it is not
        here."""
        found = self._locate(path)
        if found is None:
            return None
        index, at = found
        leaf = self._own(index)
        fields = _ROW.unpack_from(leaf.rows, at * _ROW.size)
        del leaf.bases[at]
        del leaf.rows[at * _ROW.size : (at + 1) * _ROW.size]
        self.count -= 1
        if leaf.bases:
            self._firsts[index] = leaf.bases[0]
            if len(leaf.bases) < _LEAF_ROWS // 8 and index + 1 < len(self._leaves):
                self._join(index)
        else:
            self._delete_leaf(index)
        return fields[3], fields[2]

    def between(
        self, start_offset: int, end_offset: int, files_max: int, timestamp_ms_min: int | None
    ) -> list[DataFile]:
        """The last file that begins at or before `start_offset`, and those behind it that begin
        before `end_offset`; the first `files_max` of them with a record of that time or later."""
        found: list[DataFile] = []
        index = max(bisect_right(self._firsts, start_offset) - 1, 0)
        for number, leaf in enumerate(self._leaves[index:]):
            first = 0 if number else max(bisect_right(leaf.bases, start_offset) - 1, 0)
            last = bisect_left(leaf.bases, end_offset, first)
            missing = files_max - len(found)
            if timestamp_ms_min is None:
                rows = bytes(leaf.rows[first * _ROW.size : min(last, first + missing) * _ROW.size])
                found += [
                    _made(self.directory, self._partition, rows[at : at + _ROW.size])
                    for at in range(0, len(rows), _ROW.size)
                ]
            else:
                rows = bytes(leaf.rows[first * _ROW.size : last * _ROW.size])
                late = (one for one in _ROW.iter_unpack(rows) if one[5] >= timestamp_ms_min)
                found += map(self._file, islice(late, missing))
            if last < len(leaf.bases) or len(found) >= files_max:
                break
        return found

    def last(self) -> list[DataFile]:
        """The last file, or none."""
        rows = self._leaves[-1].rows[-_ROW.size :] if self._leaves else b""
        return [self._file(fields) for fields in _ROW.iter_unpack(rows)]

    def rows(self) -> bytes:
        """All rows as they are now, of `ROW_DTYPE`."""
        return b"".join(bytes(leaf.rows) for leaf in self._leaves)

    def __iter__(self) -> Iterator[DataFile]:
        """By base offset, as they are now."""
        for leaf in self.copy()._leaves:
            # Of a copy: a bytearray that is looked at cannot be changed.
            yield from map(self._file, _ROW.iter_unpack(bytes(leaf.rows)))

    def _file(self, fields: _Fields) -> DataFile:
        return _file(self.directory, self._partition, fields)

    def _locate(self, path: PackedPath) -> tuple[int, int] | None:
        """The leaf of a file, and its row there."""
        base_offset, name = path.base_offset, path.name
        # Rows of one base offset, as damaged tables have them, can begin in the leaf before.
        first = max(bisect_left(self._firsts, base_offset) - 1, 0)
        for index in range(first, len(self._leaves)):
            leaf = self._leaves[index]
            bases = leaf.bases
            at = bisect_left(bases, base_offset)
            while at < len(bases) and bases[at] == base_offset:
                start = at * _ROW.size
                if leaf.rows[start + _ROW_NAME_AT : start + _ROW.size] == name:
                    return index, at
                at += 1
            if at < len(bases):
                return None
        return None

    def _own(self, index: int) -> _Leaf:
        """The leaf, which no copy shares from now on."""
        leaf = self._leaves[index]
        if leaf.owner is not self._owner:
            leaf = _Leaf(self._owner, leaf.bases[:], leaf.rows[:])
            self._leaves[index] = leaf
        return leaf

    def _join(self, index: int) -> None:
        """Puts a small leaf and the next one together, if that is small enough."""
        leaf, other = self._leaves[index], self._leaves[index + 1]
        if len(leaf.bases) + len(other.bases) <= _LEAF_ROWS // 2:
            leaf.bases += other.bases
            leaf.rows += other.rows
            self._delete_leaf(index + 1)

    def _insert_leaf(self, index: int, leaf: _Leaf) -> None:
        self._leaves.insert(index, leaf)
        self._firsts.insert(index, leaf.bases[0])

    def _delete_leaf(self, index: int) -> None:
        del self._leaves[index]
        del self._firsts[index]
