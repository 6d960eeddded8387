"""What rows ask of a client, with ours; see `client.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from benchmarks.kafka.client import (
    BATCH_ROWS,
    DEADLINE_S,
    Task,
    in_transactions,
    produce_and_wait,
)

from mainstem.client import Consumer, Producer, TopicPartition


class Mainstem:
    """Our client."""

    def __init__(self, task: Task) -> None:
        self._task = task
        servers = {"bootstrap.servers": task.address}
        own = {"fetch.visibility", "max.poll.records"}
        self._producer: Any = None
        if task.produces:
            config = {k: v for k, v in task.config.items() if k not in own}
            self._producer = Producer({**servers, **config})
            self._producer.partitions_for(task.topic)
        self._consumer: Any = None
        if task.reads:
            config = {k: v for k, v in task.config.items() if k in own}
            self._consumer = Consumer({**servers, **config})
            self._partitions = [TopicPartition(task.topic, n, 0) for n in range(task.partitions)]

    def begin_reading(self) -> None:
        self._consumer.assign(self._partitions)

    def produce(self, records: Iterator[tuple[bytes, bytes]], *, callbacks: bool) -> None:
        produce, topic, poll = self._producer.produce, self._task.topic, self._producer.poll
        failed: list[Any] = []
        if callbacks:

            def done(error: object, _: object) -> None:
                if error is not None:
                    failed.append(error)

            for number, (key, value) in enumerate(records):
                produce(topic, value, key, on_delivery=done)
                if number % 1_000 == 0:
                    poll(0)
        else:
            for key, value in records:
                produce(topic, value, key)
        if self._producer.flush(DEADLINE_S) or failed:
            raise RuntimeError(f"not everything was delivered: {failed[:1]}")

    def produce_batches(self, batches: list[pa.RecordBatch], count: int) -> None:
        futures = []
        for number in range(count // BATCH_ROWS):
            batch = batches[number % len(batches)]
            futures.append(self._producer.produce_batch(self._task.topic, batch))
        self._producer.flush(DEADLINE_S)
        for future in futures:
            future.result(0)

    def consume(self, count: int) -> None:
        left = count
        ends_at = time.monotonic() + DEADLINE_S
        while left > 0 and time.monotonic() < ends_at:
            for record in self._consumer.consume(min(left, 10_000), 1.0):
                _ = record.key, record.value, record.offset
                left -= 1
        if left:
            raise RuntimeError(f"{left} records did not come")

    def consume_batches(self, count: int) -> None:
        left = count
        ends_at = time.monotonic() + DEADLINE_S
        while left > 0 and time.monotonic() < ends_at:
            found = self._consumer.poll_batch(timeout=1.0)
            left -= sum(batch.num_rows for batch in found.values())
        if left > 0:
            raise RuntimeError(f"{left} records did not come")

    def poll(self, timeout_s: float) -> bytes | None:
        record = self._consumer.poll(timeout_s)
        return None if record is None else bytes(record.value)

    def produce_one(self, value: bytes, topic: str = "") -> None:
        self._producer.produce(topic or self._task.topic, value)
        self._producer.poll(0)

    def begin_transactions(self) -> None:
        self._producer.init_transactions()

    def produce_transactions(self, records: Iterator[tuple[bytes, bytes]], size: int) -> None:
        in_transactions(self._producer, self._task.topic, records, size)

    def produce_and_wait(self, key: bytes, value: bytes) -> None:
        produce_and_wait(self._producer, self._task.topic, key, value)

    def close(self) -> None:
        for one in (self._producer, self._consumer):
            if one is not None:
                one.close()
