"""A producer in a process of its own: sends numbered records until its stdin ends.

Usage: python producer_process.py SETTINGS      (a JSON object, see `workload.ProducerSpec`)

A record's key is the producer's name, its value its number in the partition. What becomes of each
record goes to a history file. Exit code 0: everything ended, and is in the file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from mainstem.client import BatchMetadata, Producer, RecordMetadata
from mainstem.client.producer import connection
from mainstem.errors import GatewayUnavailableError, MainstemError, QueueFullError
from mainstem.testing import HistoryWriter, Send

#: The records were refused before they got an offset. Whatever else failed is unknown.
REFUSED = {
    "INVALID_RECORD",
    "RECORD_TOO_LARGE",
    "REQUEST_TOO_LARGE",
    "UNKNOWN_TOPIC",
    "UNKNOWN_PARTITION",
}

#: Numbers have leading zeros: records of a usual size.
VALUE_BYTES = 100


def main(settings: dict[str, Any]) -> None:
    faulthandler.enable()  # SIGABRT shows where every thread is
    if not settings["idempotent"]:
        # Its copies show which answers of gateways leave a doubt. On a busy machine one that is
        # frozen is silent for long enough that a producer sends again to the new leader: a copy
        # that nobody has to answer for.
        connection._SILENT_S = 60.0  # type: ignore[misc]
    with HistoryWriter(settings["history"]) as history:
        _Sender(settings, history).run()


class _Sender:
    def __init__(self, settings: dict[str, Any], history: HistoryWriter) -> None:
        self._name: str = settings["name"]
        self._acks: str = settings["acks"]
        self._idempotent: bool = settings["idempotent"]
        self._topics: dict[str, int] = settings["topics"]
        self._batch_rows: int = settings["batch_rows"]
        self._pause_s: float = settings["pause_s"]
        self._history = history
        self._random = random.Random(settings["seed"])
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._room = threading.BoundedSemaphore(settings["batches_under_way"])
        self._producer = Producer(
            {
                "bootstrap.servers": settings["bootstrap"],
                "acks": self._acks,
                "enable.idempotence": self._idempotent,
                "linger.ms": 5,
                "delivery.timeout.ms": settings["delivery_timeout_ms"],
                "request.timeout.ms": settings["request_timeout_ms"],
                "max.request.size": settings["request_bytes_max"],
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 300,
                "client.id": self._name,
            }
        )

    def run(self) -> None:
        send = self._send_batch if self._batch_rows > 1 else self._send_records
        while not _stdin_ended(self._pause_s):
            topic = self._random.choice(sorted(self._topics))
            try:
                send(topic)
            except (QueueFullError, GatewayUnavailableError):
                continue  # nothing was queued
        try:
            # What failed is in the history already.
            self._producer.close()
        except MainstemError as error:
            print(f"{self._name}: {error.code}: {error.message}", file=sys.stderr, flush=True)

    def _send_batch(self, topic: str) -> None:
        if not self._room.acquire(timeout=0.5):
            return
        columns: dict[str, list[Any]] = {"key": [], "value": [], "partition": []}
        ranges: dict[int, tuple[int, int]] = {}
        for partition in range(self._topics[topic]):
            count = self._random.randint(1, self._batch_rows)
            first = self._numbers[topic, partition]
            ranges[partition] = (first, count)
            columns["partition"] += [partition] * count
            columns["value"] += map(_value, range(first, first + count))
            columns["key"] += [self._name.encode()] * count
        batch = pa.record_batch(
            {
                "key": pa.array(columns["key"], pa.binary()),
                "value": pa.array(columns["value"], pa.binary()),
                "partition": pa.array(columns["partition"], pa.int32()),
            }
        )
        try:
            future = self._producer.produce_batch(topic, batch)
        except BaseException:
            self._room.release()
            raise
        for partition, (first, count) in ranges.items():
            self._numbers[topic, partition] = first + count
        future.add_done_callback(self._batch_ended(topic, ranges))

    def _batch_ended(
        self, topic: str, ranges: dict[int, tuple[int, int]]
    ) -> Callable[[Future[BatchMetadata]], None]:
        def ended(future: Future[BatchMetadata]) -> None:
            self._room.release()
            error = future.exception()
            offsets = () if error is not None else future.result().offsets
            next_number = {partition: first for partition, (first, _) in ranges.items()}
            for part in offsets if self._acks != "0" else ():
                number = next_number[part.partition]
                next_number[part.partition] += part.record_count
                self._write(
                    topic, part.partition, number, part.record_count, None, part.base_offset
                )
            for partition, (first, count) in ranges.items():
                left = first + count - next_number[partition]
                if left:
                    self._write(topic, partition, next_number[partition], left, error, -1)

        return ended

    def _send_records(self, topic: str) -> None:
        for _ in range(self._random.randint(1, 10)):
            partition = self._random.randrange(self._topics[topic])
            number = self._numbers[topic, partition]
            self._producer.produce(
                topic,
                _value(number),
                self._name.encode(),
                partition,
                on_delivery=self._record_ended(number),
            )
            self._numbers[topic, partition] += 1
        self._producer.poll(0)

    def _record_ended(self, number: int) -> Callable[[MainstemError | None, RecordMetadata], None]:
        def ended(error: MainstemError | None, record: RecordMetadata) -> None:
            self._write(record.topic, record.partition, number, 1, error, record.offset)

        return ended

    def _write(
        self,
        topic: str,
        partition: int,
        number: int,
        count: int,
        error: BaseException | None,
        offset: int,
    ) -> None:
        refused = isinstance(error, MainstemError) and error.code in REFUSED
        self._history.write(
            Send(
                self._name,
                topic,
                partition,
                number,
                count,
                "ok" if error is None else "fail" if refused else "unknown",
                -1 if error is not None else offset,
                self._acks,
                self._idempotent,
            )
        )


def _value(number: int) -> bytes:
    return b"%0*d" % (VALUE_BYTES, number)


def _stdin_ended(wait_s: float) -> bool:
    """Waits, and tells whether the process that started this one wants it to end, or is gone."""
    ends_at = time.monotonic() + wait_s
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], max(ends_at - time.monotonic(), 0.0))
        if ready and not os.read(sys.stdin.fileno(), 1):
            return True
        if time.monotonic() >= ends_at:
            return False


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
