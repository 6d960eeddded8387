"""What runs once a record, in Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from time import time_ns
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.records import bytes_column

#: Records of one piece: large enough that NumPy and Arrow cost nothing a record, small enough that
#: the thread that fills it is away for a few milliseconds only.
PIECE_ROWS_MAX: Final = 8_192

#: What `OpenRecords.append` did. APPENDED: done. LOOK: done, and somebody should look whether the
#: records are to go. FULL: nothing.
APPENDED: Final = 0
LOOK: Final = 1
FULL: Final = 2

T = TypeVar("T")

# With a class of named tuples: its `_make`, without a Python frame for each.
_new_tuple: Any = tuple.__new__


class OpenRecords:
    """Records that wait to become a piece: parallel lists behind one lock.

    Attributes:
        lock: Guards the others.
        limit: `append` refuses when `used` would exceed this.
        used: Bytes of the records, overhead included.
        flush_at_ns: Since 1970-01-01 UTC: from then on `append` says LOOK. 0: the first does.
        values, keys: One a record.
        timestamps_ms, explicit, waiters, headers: By the index of the record, of those that have
            one: their own timestamp; their partition; who is to be told; their headers.
    """

    __slots__ = (
        "_times_ns",
        "explicit",
        "flush_at_ns",
        "headers",
        "keys",
        "limit",
        "lock",
        "timestamps_ms",
        "used",
        "values",
        "waiters",
    )

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limit = 0
        self.clear()

    def clear(self) -> None:
        """Forgets the records; the caller holds the lock, if others know of this."""
        self.used = 0
        self.flush_at_ns = 0
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self._times_ns: list[int] = []
        self.timestamps_ms: dict[int, int] = {}
        self.explicit: dict[int, int] = {}
        self.waiters: dict[int, Any] = {}
        self.headers: dict[int, list[tuple[str, bytes | None]]] = {}

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        size: int,
        partition: int = -1,
        waiter: Any = None,
        timestamp_ms: int | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> int:
        """Adds a record of `size` bytes, overhead included. Returns APPENDED, LOOK or FULL."""
        with self.lock:
            used = self.used + size
            if used > self.limit:
                return FULL
            values = self.values
            index = len(values)
            now_ns = time_ns()
            try:
                values.append(value)
                self.keys.append(key)
                self._times_ns.append(now_ns)
                if partition >= 0:
                    self.explicit[index] = partition
                if waiter is not None:
                    self.waiters[index] = waiter
                if timestamp_ms:
                    self.timestamps_ms[index] = timestamp_ms
                if headers:
                    self.headers[index] = headers
            except BaseException:  # an interrupt: Python raises it after any call
                self._drop_from(index)
                raise
            self.used = used
            if now_ns >= self.flush_at_ns or index >= PIECE_ROWS_MAX - 1:
                return LOOK
            return APPENDED

    def _drop_from(self, index: int) -> None:
        for column in (self.values, self.keys, self._times_ns):
            del column[index:]
        for some in (self.explicit, self.waiters, self.timestamps_ms, self.headers):
            some.pop(index, None)

    def appended_ns(self) -> int:
        """When the last record was appended, since 1970-01-01 UTC; there is one."""
        return self._times_ns[-1]

    def times_ms(self) -> npt.NDArray[np.int64]:
        """When each record was appended, in milliseconds since 1970-01-01 UTC."""
        return np.array(self._times_ns, dtype=np.int64) // 1_000_000


def binary_column(
    values: list[bytes | None], order: npt.NDArray[np.int64] | None = None
) -> pa.Array:
    """A binary column of Python bytes.

    Args:
        order: The index of each row's value; None: as they are.

    Raises:
        InvalidRecordError: Together they are more than 2 GiB.
    """
    if order is not None:
        values = list(map(values.__getitem__, order.tolist()))
    return bytes_column(values)


class RecordColumns(Generic[T]):
    """Records of columns, some at a time: what the columns cost is paid once.

    Args:
        kind: ConsumerRecord: a tuple of topic, partition, offset, timestamp, timestamp type, key,
            value and headers, in this order.
        offsets, timestamps: One a record.
        keys, values: Binary columns, as long.
    """

    __slots__ = ("_keys", "_kind", "_offsets", "_partition", "_timestamps", "_topic", "_values")

    def __init__(
        self,
        kind: type[T],
        topic: str,
        partition: int,
        offsets: npt.NDArray[np.int64],
        timestamps: npt.NDArray[np.int64],
        keys: pa.Array,
        values: pa.Array,
    ) -> None:
        if not len(offsets) == len(timestamps) == len(keys) == len(values):
            raise ValueError("the columns have different lengths")
        self._kind = kind
        self._topic = topic
        self._partition = partition
        self._offsets = offsets
        self._timestamps = timestamps
        self._keys = keys
        self._values = values

    def take(
        self,
        start: int,
        count: int,
        timestamp_types: list[int] | None = None,
        headers: list[tuple[tuple[str, bytes | None], ...]] | None = None,
    ) -> list[T]:
        """The records from row `start` on, `count` at most.

        Args:
            timestamp_types: Of these records; None: 0 for all.
            headers: Of these records; None: none has any.
        """
        if start < 0 or count < 0:
            raise ValueError("rows are counted from 0")
        stop = start + count
        offsets = self._offsets[start:stop].tolist()
        for given in (timestamp_types, headers):
            if given is not None and len(given) != len(offsets):
                raise ValueError("a list has not one of each record")
        fields = zip(
            repeat(self._topic),
            repeat(self._partition),
            offsets,
            self._timestamps[start:stop].tolist(),
            repeat(0) if timestamp_types is None else timestamp_types,
            self._keys.slice(start, count).to_pylist(),
            self._values.slice(start, count).to_pylist(),
            repeat(()) if headers is None else headers,
            strict=False,
        )
        return list(map(partial(_new_tuple, self._kind), fields))


def record_places(
    kind: type[T],
    topic: str,
    partitions: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    timestamps: npt.NDArray[np.int64],
    table_version: int,
) -> Iterator[T]:
    """Where records are; each is made when it is asked for.

    Args:
        kind: RecordMetadata: a tuple of what follows, in this order.
        partitions, offsets, timestamps: One a record.
    """
    return map(
        partial(_new_tuple, kind),
        zip(
            repeat(topic),
            partitions.tolist(),
            offsets.tolist(),
            timestamps.tolist(),
            repeat(table_version),
            strict=False,
        ),
    )


def faster_produce(produce: Callable[..., None]) -> Callable[..., None]:
    """`Producer.produce`, with the same outcome in less time where that is possible."""
    return produce
