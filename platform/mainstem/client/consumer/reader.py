"""The application's side of the buffer: chunks become records and batches, positions move on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from mainstem.client.consumer.partitions import Chunk, Partition, Partitions
from mainstem.client.consumer.records import DECODE_ROWS, BatchRecords, ConsumerRecord
from mainstem.client.positions import TopicPartition

#: How long the application's thread sleeps without looking up.
_LOOK_EVERY_S = 0.5


class Reader:
    """Hands out what was fetched. One thread at a time.

    Attributes:
        records, at: Decoded records, and how many of them were handed out.
        undone: Where each partition stood before the latest call that handed out something.
        last: The record of that call, if it was a single one.
    """

    __slots__ = ("_chunk", "_decoder", "_partitions", "_row", "at", "last", "records", "undone")

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._chunk: Chunk | None = None
        self._decoder: BatchRecords | None = None
        self._row = 0
        self.records: list[ConsumerRecord] = []
        self.at = 0
        self.undone: dict[Partition, int] = {}
        self.last: ConsumerRecord | None = None

    def settle(self) -> None:
        """Brings the position of the partition that is being read up to date; holds no lock."""
        chunk = self._chunk
        if chunk is None or chunk.generation != chunk.owner.generation:
            return
        if self.at < len(self.records):
            if self.at:
                chunk.owner.position = self.records[self.at].offset
        elif chunk.batch is None or self._row >= chunk.batch.num_rows:
            chunk.owner.position = chunk.next_offset
        elif self.records:
            chunk.owner.position = self.records[-1].offset + 1

    def load(self) -> bool:
        """Makes `records` hold what comes next; False: nothing is there now."""
        while True:
            if self.at < len(self.records):
                return True
            chunk = self._chunk
            if chunk is None or chunk.batch is None or self._row >= chunk.batch.num_rows:
                if not self._next_chunk():
                    return False
                continue
            self.settle()
            if self._decoder is None:
                owner = chunk.owner
                self._decoder = BatchRecords(owner.topic, owner.partition, chunk.batch)
            records = self._decoder.take(self._row, DECODE_ROWS)
            row = self._row + len(records)
            # Together: an interrupt comes after a call, and there is none in between.
            self.records = records
            self._row = row
            self.at = 0

    def _next_chunk(self) -> bool:
        self.settle()
        self._drop_decoded()
        with self._partitions.lock:
            if self._chunk is not None:
                self._partitions.release(self._chunk)
            self._chunk = self._partitions.pop()
        self.settle()
        return self._chunk is not None

    def _drop_decoded(self) -> None:
        """Nothing is decoded of the chunk that comes."""
        self._decoder = None
        self._row = 0
        self.records = []
        self.at = 0

    def take(self, count: int, into: list[ConsumerRecord]) -> None:
        """Moves up to `count` records that are there to `into`."""
        while count > 0 and self.load():
            chunk = self._chunk
            assert chunk is not None
            self.undone.setdefault(chunk.owner, self.records[self.at].offset)
            if self.at == 0 and count >= len(self.records):
                piece = self.records
            else:
                piece = self.records[self.at : self.at + count]
            into += piece
            self.at += len(piece)
            count -= len(piece)

    def take_batches(self, count: int) -> dict[TopicPartition, pa.RecordBatch]:
        """Up to `count` rows that are there, a batch for each partition."""
        pieces: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._take_rows(count, pieces)
        return {
            tp: found[0] if len(found) == 1 else pa.concat_batches(found)
            for tp, found in pieces.items()
        }

    def _take_rows(self, count: int, into: dict[TopicPartition, list[pa.RecordBatch]]) -> None:
        """Moves up to `count` rows that are there to `into`, without a copy."""
        while count > 0:
            chunk = self._chunk
            decoded = len(self.records) - self.at
            if chunk is None or chunk.batch is None:
                if not self._next_chunk():
                    return
                continue
            row = self._row - decoded
            if row >= chunk.batch.num_rows:
                if not self._next_chunk():
                    return
                continue
            piece = chunk.batch.slice(row, count)
            self.undone.setdefault(chunk.owner, piece.column("offset")[0].as_py())
            self.records = []
            self.at = 0
            self._row = row + piece.num_rows
            if self._row < chunk.batch.num_rows:
                chunk.owner.position = chunk.batch.column("offset")[self._row].as_py()
            else:
                chunk.owner.position = chunk.next_offset
            into.setdefault(chunk.owner.tp, []).append(piece)
            count -= piece.num_rows

    def has_rows(self) -> bool:
        """Rows are there, decoded or not."""
        while True:
            chunk = self._chunk
            if chunk is not None and chunk.batch is not None and self._row < chunk.batch.num_rows:
                return True
            if self.at < len(self.records):
                return True
            if not self._next_chunk():
                return False

    def begin(self) -> None:
        """A call that hands out records begins: what was handed out before is done."""
        self.settle()
        if self.undone:
            self.undone = {}
        self.last = None

    def drop_void(self) -> None:
        """Drops what is decoded when something voided it."""
        chunk = self._chunk
        with self._partitions.lock:
            if chunk is not None and not self._partitions.is_current(chunk):
                self._partitions.release(chunk)
                self._chunk = None
                self._drop_decoded()

    def forget(self) -> None:
        """Nothing was fetched; the lock is held."""
        self._chunk = None
        self._drop_decoded()

    def wait(self, deadline: float | None, closed: Callable[[], bool]) -> bool:
        """Waits for a chunk or for attention; False: the time is over. Wakes now and then."""
        with self._partitions.lock:
            if self._partitions.chunks or self._partitions.attention or closed():
                return True
            wait_s = _LOOK_EVERY_S
            if deadline is not None:
                wait_s = min(wait_s, deadline - time.monotonic())
                if wait_s <= 0:
                    return False
            self._partitions.arrived.wait(wait_s)
        return True


def deadline_of(timeout: float | None) -> float | None:
    """Monotonic seconds at which a call with this timeout ends; None: it waits for ever."""
    return None if timeout is None or timeout < 0 else time.monotonic() + timeout
