"""What records that asked for a report get: callbacks, futures, and the promise of a batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from mainstem.client.callbacks import check_plain, check_returned
from mainstem.client.results import BatchMetadata, PartitionOffsets, RecordMetadata
from mainstem.errors import MainstemError

_log = logging.getLogger("mainstem.client")

#: `on_delivery(error, metadata)`: called by poll(), flush() and close(), never by another thread.
DeliveryCallback = Callable[[MainstemError | None, RecordMetadata], object]

#: What awaits.
_INSTEAD: Final = "AsyncProducer.send()"

#: A callback that poll() will call, with its arguments and the bytes that it holds until then.
Report = tuple[DeliveryCallback, MainstemError | None, RecordMetadata, int]

#: Who waits for one record.
Waiter = DeliveryCallback | Future[RecordMetadata] | asyncio.Future[RecordMetadata]


def check_callback(callback: object) -> None:
    """Refuses what poll() could not call, before its record is queued.

    Raises:
        TypeError: It cannot be called, or is a coroutine function.
    """
    check_plain(callback, "on_delivery", _INSTEAD)


def call(callback: DeliveryCallback, error: MainstemError | None, where: RecordMetadata) -> None:
    """Calls a delivery callback.

    Raises:
        TypeError: It returned a coroutine.
        Exception: What the callback raises.
    """
    returned = callback(error, where)
    if returned is not None:
        check_returned(returned, callback, "on_delivery", _INSTEAD)


@dataclass(slots=True, eq=False)
class Receipts:
    """The records of a piece that asked for a report.

    Attributes:
        waiters: One a record.
        rows: Each one's row in the piece, after the rows were ordered by partition.
        timestamps_ms: Each one's timestamp.
    """

    waiters: list[Waiter]
    rows: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]

    def of_rows(self, rows: npt.NDArray[np.bool_]) -> Receipts | None:
        """Those of some rows of the piece, which become a piece of their own; None: there are none.

        Args:
            rows: For each row of the piece whether it is one of them.
        """
        mine = rows[self.rows]
        if not mine.any():
            return None
        return Receipts(
            [waiter for waiter, is_mine in zip(self.waiters, mine, strict=True) if is_mine],
            (np.cumsum(rows) - 1)[self.rows[mine]],
            self.timestamps_ms[mine],
        )

    def metadata(
        self,
        topic: str,
        ranges: Sequence[tuple[int, int]],
        base_offsets: Sequence[int] | None,
        table_version: int,
    ) -> list[RecordMetadata]:
        """Where each record is.

        Args:
            topic: The topic's name.
            ranges: The piece's (partition, row count), in row order.
            base_offsets: The offset of each range's first record; -1, or None for all, unknown.
            table_version: As answered.
        """
        partitions = np.array([partition for partition, _ in ranges], dtype=np.int64)
        ends = np.cumsum([count for _, count in ranges])
        at = np.searchsorted(ends, self.rows, side="right")
        if base_offsets is None:
            offsets = np.full(len(self.rows), -1)
        else:
            bases = np.array(base_offsets, dtype=np.int64)[at]
            starts = np.concatenate([[0], ends[:-1]])[at]
            offsets = np.where(bases < 0, -1, bases + self.rows - starts)
        fields = zip(
            repeat(topic),
            partitions[at].tolist(),
            offsets.tolist(),
            self.timestamps_ms.tolist(),
            repeat(table_version),
        )
        # Half the time of calling the class for each.
        return list(map(RecordMetadata._make, fields))


@dataclass(slots=True, eq=False)
class BatchPromise:
    """The future of a `produce_batch`, which may travel in several parts."""

    topic: str
    part_count: int
    future: Future[BatchMetadata] = field(default_factory=Future)
    _offsets: dict[int, list[PartitionOffsets]] = field(default_factory=dict)
    _done_count: int = 0
    _table_version: int = -1
    _error: MainstemError | None = None

    def part_done(
        self,
        part_index: int,
        ranges: Sequence[tuple[int, int]],
        base_offsets: Sequence[int],
        table_version: int,
    ) -> None:
        """One part is in the log. The last part completes the future."""
        self._offsets[part_index] = [
            PartitionOffsets(partition, base, count)
            for (partition, count), base in zip(ranges, base_offsets, strict=True)
        ]
        self._table_version = max(self._table_version, table_version)
        self._part_ended()

    def part_failed(self, error: MainstemError) -> None:
        """One part failed, and with it the batch; the other parts may be in the log."""
        self._error = self._error or error
        self._part_ended()

    def _part_ended(self) -> None:
        self._done_count += 1
        if self._done_count < self.part_count:
            return
        if self._error is not None:
            self.future.set_exception(self._error)
            return
        offsets = tuple(part for index in sorted(self._offsets) for part in self._offsets[index])
        self.future.set_result(BatchMetadata(self.topic, self._table_version, offsets))


def tell(
    receipts: Receipts,
    metadata: list[RecordMetadata],
    error: MainstemError | None,
    report_bytes: int,
) -> list[Report]:
    """Completes futures; returns the callbacks, which poll() will call.

    Args:
        report_bytes: What each report holds of buffer.memory until it is served.
    """
    kinds = set(map(type, receipts.waiters))
    if not any(issubclass(kind, (Future, asyncio.Future)) for kind in kinds):
        return list(
            zip(receipts.waiters, repeat(error), metadata, repeat(report_bytes))  # type: ignore[arg-type]
        )
    reports: list[Report] = []
    by_loop: dict[
        asyncio.AbstractEventLoop, list[tuple[asyncio.Future[RecordMetadata], RecordMetadata]]
    ] = {}
    for waiter, where in zip(receipts.waiters, metadata, strict=True):
        if isinstance(waiter, Future):
            if error is None:
                waiter.set_result(where)
            else:
                waiter.set_exception(error)
        elif isinstance(waiter, asyncio.Future):
            by_loop.setdefault(waiter.get_loop(), []).append((waiter, where))
        else:
            reports.append((waiter, error, where, report_bytes))
    for loop, told in by_loop.items():
        try:
            loop.call_soon_threadsafe(_tell_loop, told, error)
        except RuntimeError:
            _log.error("%d records ended after their event loop was closed", len(told))
    return reports


def _tell_loop(
    told: list[tuple[asyncio.Future[RecordMetadata], RecordMetadata]], error: MainstemError | None
) -> None:
    for future, where in told:
        if future.done():
            continue  # cancelled by the caller that waited
        if error is None:
            future.set_result(where)
        else:
            future.set_exception(error)
