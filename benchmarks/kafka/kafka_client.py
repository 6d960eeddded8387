"""What rows ask of a client, with confluent-kafka; see `client.py`."""

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
from confluent_kafka import Consumer, Producer, TopicPartition


class Kafka:
    """confluent-kafka."""

    def __init__(self, task: Task) -> None:
        self._task = task
        servers = {"bootstrap.servers": task.address}
        own = {"fetch.queue.backoff.ms", "queued.min.messages", "fetch.wait.max.ms"}
        self._producer: Any = None
        if task.produces:
            config = {k: v for k, v in task.config.items() if k not in own}
            self._producer = Producer({**servers, "enable.idempotence": True, **config})
        self._consumer: Any = None
        if task.reads:
            config = {k: v for k, v in task.config.items() if k in own}
            more = {"group.id": "bench", "enable.auto.commit": False}
            self._consumer = Consumer({**servers, **more, **config})
            self._partitions = [TopicPartition(task.topic, n, 0) for n in range(task.partitions)]

    def begin_reading(self) -> None:
        self._consumer.assign(self._partitions)

    def produce(self, records: Iterator[tuple[bytes, bytes]], *, callbacks: bool) -> None:
        produce, topic, poll = self._producer.produce, self._task.topic, self._producer.poll
        failed: list[Any] = []

        def done(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        options = {"on_delivery": done} if callbacks else {}
        for number, (key, value) in enumerate(records):
            while True:
                try:
                    produce(topic, value, key, **options)
                    break
                except BufferError:
                    poll(0.1)
            if number % 1_000 == 0:
                poll(0)
        if self._producer.flush(DEADLINE_S) or failed:
            raise RuntimeError(f"not everything was delivered: {failed[:1]}")

    def produce_batches(self, batches: list[pa.RecordBatch], count: int) -> None:
        # Its own call for many; keys and values have to be Python objects for it.
        columns = ("key", "value")
        lists = [
            [
                dict(zip(columns, pair, strict=True))
                for pair in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            ]
            for batch in batches
        ]
        for number in range(count // BATCH_ROWS):
            waiting = lists[number % len(lists)]
            while waiting:
                taken = self._producer.produce_batch(self._task.topic, waiting)
                waiting = waiting[taken:]
                self._producer.poll(0.1 if waiting else 0)
        if self._producer.flush(DEADLINE_S):
            raise RuntimeError("not everything was delivered")

    def consume(self, count: int) -> None:
        left = count
        ends_at = time.monotonic() + DEADLINE_S
        while left > 0 and time.monotonic() < ends_at:
            for message in self._consumer.consume(min(left, 10_000), 1.0):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                message.key(), message.value(), message.offset()
                left -= 1
        if left:
            raise RuntimeError(f"{left} records did not come")

    consume_batches = consume

    def poll(self, timeout_s: float) -> bytes | None:
        message = self._consumer.poll(timeout_s)
        return None if message is None or message.error() else bytes(message.value())

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
        if self._producer is not None:
            self._producer.flush(DEADLINE_S)
        if self._consumer is not None:
            self._consumer.close()
