"""From what is known of each partition to the bytes of an answer. Runs in a thread; blocks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import pyarrow as pa

from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import NotFound, time_elapsed_s
from mainstem.errors import LogDamagedError, MainstemError
from mainstem.ingest_gateway.fetching.columns import batch_bytes, fitting, schema_of
from mainstem.ingest_gateway.fetching.history import Cursor, History
from mainstem.ingest_gateway.fetching.message import FetchMessage, plain_records
from mainstem.ingest_gateway.fetching.tail_cache import CachedRun
from mainstem.ingest_gateway.reader_threads import Reading
from mainstem.ingest_gateway.topics import GatewayTopic
from mainstem.limits import FETCHED_PARTITION_OVERHEAD_BYTES
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import log_pb2

#: Files of a partition that the store is told of before they are opened: each is a request where it
#: is far away, and as many records as one commit has.
_OPENED_AHEAD: Final = 16


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Where the records of one partition are.

    Attributes:
        offset: The first that is wanted.
        durable_mark: What can be read ends here, if it was asked for; else 0, and it ends at the
            high watermark.
        end_offset: What is planned ends here: at the end of what can be read, or before.
        files: That have records in [offset, tail_offset), by base offset.
        tail_offset: `runs` have all records in [tail_offset, end_offset).
        bytes_max: Of this partition.
        reader: Has the topic's store.
        known_at: What was committed before is known, by `time_elapsed_s`; None: the topic is led
            here.
        error: Why there is nothing.
    """

    topic: str
    partition: int
    topic_id: str = ""
    log_start_offset: int = 0
    high_watermark: int = 0
    durable_mark: int = 0
    leader_epoch: int = 0
    offset: int = 0
    end_offset: int = 0
    bytes_max: int = 0
    files: tuple[DataFile, ...] = ()
    tail_offset: int = 0
    runs: tuple[CachedRun, ...] = ()
    reader: GatewayTopic | None = None
    known_at: float | None = None
    error: MainstemError | None = None

    def failed(self, error: MainstemError) -> FetchPlan:
        """The same with nothing to read, because of `error`."""
        return replace(self, files=(), runs=(), error=error)

    @property
    def readable_end(self) -> int:
        """One past the last record that this reader may have now."""
        return max(self.high_watermark, self.durable_mark)

    @property
    def lag_ms(self) -> int | None:
        """For how long the topic's table has not been looked at; None: it is led here."""
        if self.known_at is None:
            return None
        return max(0, math.ceil((time_elapsed_s() - self.known_at) * 1000))

    @property
    def available_bytes(self) -> int:
        """About how many bytes an answer could have."""
        size = 0
        for file in self.files:
            offsets = file.last_offset + 1 - file.base_offset
            wanted = file.last_offset + 1 - max(file.base_offset, self.offset)
            # Rounded up: of a file with few records and many holes a part may be less than a byte.
            size += -(-file.size_bytes * wanted // offsets)
        for run in self.runs:
            wanted = run.end_offset - max(run.base_offset, self.offset, self.tail_offset)
            size += run.record_bytes * max(wanted, 0) // (run.end_offset - run.base_offset)
        return size


@dataclass(slots=True)
class Served:
    """What an answer gives of one topic."""

    record_count: int = 0
    record_bytes: int = 0


@dataclass(slots=True)
class FetchAnswer:
    """An answer, serialised, and what it has.

    Attributes:
        missing: A data file was gone: some plan is out of date. The answer is not to be given.
    """

    data: bytes = b""
    served: dict[str, Served] = field(default_factory=dict)
    missing: bool = False


def build_answer(
    plans: Sequence[FetchPlan],
    history: History,
    columns: tuple[str, ...],
    bytes_max: int,
    *,
    arrow: bool,
    last_attempt: bool = False,
    reading: Reading | None = None,
) -> FetchAnswer:
    """Reads what was planned, in its order, until the answer has `bytes_max` bytes.

    The first record of the answer comes whatever its size is.

    Args:
        arrow: As Arrow IPC streams, else as plain messages.
        last_attempt: A data file that is gone is damage; else the plan may be out of date.
        reading: Is told the topic that is read.
    """
    answer = FetchAnswer()
    for plan in plans:
        _announce(plan, 0)
    message = FetchMessage(schema_of(columns))
    left = bytes_max
    first = True
    for plan in plans:
        taken = _Taken(plan.offset)
        if reading is not None:
            reading.topic = plan.topic
        if plan.error is None and left > 0:
            try:
                _take(plan, taken, history, columns, min(left, plan.bytes_max), left, first=first)
            except NotFound as error:
                if not last_attempt:
                    answer.missing = True
                    return answer
                plan = plan.failed(_lost(plan, error))
                taken = _Taken(plan.offset)
            except MainstemError as error:
                if not taken.batches:
                    plan = plan.failed(error)
        head = log_pb2.FetchedPartition(
            topic=plan.topic,
            partition=plan.partition,
            topic_id=plan.topic_id,
            log_start_offset=plan.log_start_offset,
            high_watermark=plan.high_watermark,
            leader_epoch=plan.leader_epoch,
            durable_mark=plan.durable_mark,
            next_offset=taken.next_offset,
            follower_lag_ms=plan.lag_ms,
        )
        batches: Sequence[pa.RecordBatch] = ()
        if plan.error is not None:
            head.error.CopyFrom(error_to_message(plan.error))
        elif taken.batches:
            first = False
            served = answer.served.setdefault(plan.topic, Served())
            served.record_count += sum(batch.num_rows for batch in taken.batches)
            served.record_bytes += taken.size_bytes
            left -= taken.size_bytes + FETCHED_PARTITION_OVERHEAD_BYTES
            if arrow:
                batches = taken.batches
            else:
                head.records.extend(chain.from_iterable(map(plain_records, taken.batches)))
        message.add(head, batches)
    answer.data = message.serialised()
    return answer


def _lost(plan: FetchPlan, error: NotFound) -> MainstemError:
    return LogDamagedError(
        f"a data file of partition {plan.partition} of topic {plan.topic!r}, from offset "
        f"{plan.offset} on, is missing: {error}",
        topic=plan.topic,
        partition=plan.partition,
    )


class _Taken:
    """The records that an answer gives of one partition."""

    __slots__ = ("batches", "next_offset", "size_bytes")

    def __init__(self, offset: int) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size_bytes = 0
        self.next_offset = offset

    def add(self, batch: pa.RecordBatch, bytes_max: int, alone_bytes_max: int | None) -> int:
        """Takes what fits from the batch's front; returns how many records.

        Args:
            bytes_max: For all records together.
            alone_bytes_max: For one that is larger than that and would be the only one; None: any.
        """
        rows: int = batch.num_rows
        size = batch_bytes(batch)
        if self.size_bytes + size > bytes_max:
            rows = fitting(batch, bytes_max - self.size_bytes)
            if rows == 0 and not self.batches:
                alone = batch_bytes(batch.slice(0, 1))
                rows = int(alone_bytes_max is None or alone <= alone_bytes_max)
            if rows == 0:
                return 0
            batch = batch.slice(0, rows)
            size = batch_bytes(batch)
        self.batches.append(batch)
        self.size_bytes += size
        self.next_offset = int(batch.column("offset")[rows - 1].as_py()) + 1
        return rows


def _take(
    plan: FetchPlan,
    taken: _Taken,
    history: History,
    columns: tuple[str, ...],
    bytes_max: int,
    answer_bytes_left: int,
    *,
    first: bool,
) -> None:
    """Takes records of a partition, up to `bytes_max` bytes.

    A record that is larger comes alone if the answer has room for it, or has no other (`first`).
    """
    alone_bytes_max = None if first else answer_bytes_left
    for number, file in enumerate(plan.files):
        assert plan.reader is not None
        _announce(plan, number + 1)
        start = max(taken.next_offset, file.base_offset)
        with contextlib.ExitStack() as closing:
            cursor = history.open(plan.reader.store, file, columns, start)
            closing.callback(cursor.close)
            if _take_from(cursor, plan.tail_offset, taken, bytes_max, alone_bytes_max):
                closing.pop_all()
                history.keep(cursor)
                return
        taken.next_offset = max(taken.next_offset, min(file.last_offset + 1, plan.tail_offset))
    # The files need not have a record right before the tail, which may begin inside a run.
    taken.next_offset = max(taken.next_offset, plan.tail_offset)
    for run in plan.runs:
        batch = run.batch()
        begin = max(taken.next_offset - run.base_offset, 0)
        batch = batch.slice(begin).select(list(columns))
        if taken.add(batch, bytes_max, alone_bytes_max) < batch.num_rows:
            return
    taken.next_offset = max(taken.next_offset, plan.end_offset)


def _announce(plan: FetchPlan, number: int) -> None:
    """Tells the store which files are opened next, from one on."""
    if plan.reader is not None and number < len(plan.files):
        coming = plan.files[number : number + _OPENED_AHEAD]
        plan.reader.store.will_open([file.path for file in coming])


def _take_from(
    cursor: Cursor, end_offset: int, taken: _Taken, bytes_max: int, alone_bytes_max: int | None
) -> bool:
    """Takes records from a file; whether there was more than may be taken."""
    while (batch := cursor.peek()) is not None:
        last = int(batch.column("offset")[batch.num_rows - 1].as_py())
        if last >= end_offset:
            # The tail goes on there.
            offsets = batch.column("offset").to_numpy()
            batch = batch.slice(0, int(offsets.searchsorted(end_offset)))
            if batch.num_rows == 0:
                return False
        rows = taken.add(batch, bytes_max, alone_bytes_max)
        if rows:
            cursor.advance(rows)
        if rows < batch.num_rows:
            return True
        if last >= end_offset:
            return False
    return False
