"""Rows that one client's process measures: worker.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.kafka.client import Task
from benchmarks.kafka.compaction import compact
from benchmarks.kafka.row import (
    KAFKA,
    MAINSTEM,
    NATS,
    NATS_UNSYNCED,
    Outcome,
    Row,
    Variant,
)
from benchmarks.kafka.systems import PARTITIONS, Systems

if TYPE_CHECKING:
    from benchmarks.kafka.spark_worker import SparkTask

_CHECKOUT: Final = Path(__file__).resolve().parents[2]
_WORKER: Final = "benchmarks.kafka.worker"
_TIMEOUT_S: Final = 1_800.0

#: A reader by batch takes a batch more than it is asked for, at each end.
_SPARE: Final = 100_000

#: A number of records that `--scale` counts for is a multiple of it: batches have as many rows.
_STEP: Final = 10_000

_TUNED: Final = {"linger.ms": 50, "batch.size": 1_000_000}
_READING: Final = {"fetch.queue.backoff.ms": 10}

#: NATS syncs message by message where it syncs at all, so it gets fewer records.
_NATS: Final = (
    Variant("NATS, synced", NATS, share=0.02),
    Variant("NATS, default", NATS_UNSYNCED, share=0.1),
)

_PRODUCING: Final = (
    Variant("mainstem", MAINSTEM),
    Variant("Kafka, default", KAFKA),
    Variant("Kafka, tuned", KAFKA, dict(_TUNED)),
)
_CONSUMING: Final = (
    Variant("mainstem", MAINSTEM),
    Variant("Kafka, default", KAFKA),
    Variant("Kafka, tuned", KAFKA, dict(_READING)),
)
#: Whether a message was synced does not matter to those who read it.
_CONSUMING_NATS: Final = Variant("NATS", NATS_UNSYNCED, share=0.2)

_DURABLE_MARK: Final = Variant(
    "mainstem, durable mark",
    MAINSTEM,
    {"linger.ms": 0, "acks": "1", "fetch.visibility": "durable"},
)
_COMMITTED: Final = Variant("mainstem, table", MAINSTEM, {"linger.ms": 0})
_KAFKA_LATENCY: Final = (
    Variant("Kafka, default", KAFKA),
    Variant("Kafka, linger.ms=0", KAFKA, {"linger.ms": 0}),
)


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker does in each turn of a row.

    Attributes:
        row: The worker's name for it.
        count: Records that are measured.
        warm_up: Records before.
        filled: The topic has its records before; one topic for all turns.
        spare: Of a filled topic, records beside those that are asked for.
        scales: `--scale` counts for the numbers of records.
        fresh: Each turn has a server of its own.
    """

    row: str
    count: int
    warm_up: int
    value_bytes: int = 100
    rate: float = 200.0
    filled: bool = False
    spare: int = 0
    scales: bool = True
    fresh: bool = False

    def __call__(self, systems: Systems, variant: Variant, scale: float) -> Outcome:
        """One turn."""
        if self.fresh:
            with systems.fresh() as own:
                return self._turn(own, variant, scale)
        return self._turn(systems, variant, scale)

    def _turn(self, systems: Systems, variant: Variant, scale: float) -> Outcome:
        if self.scales:
            factor = scale * variant.share
            count, warm_up = _scaled(self.count, factor), _scaled(self.warm_up, factor)
        else:
            count = round(self.count * variant.share)
            warm_up = round(self.warm_up * variant.share)
        if self.filled:
            whole = count + warm_up + self.spare
            topic = filled_topic(systems, variant.system, whole, self.value_bytes)
        else:
            topic = systems.new_topic(variant.system, config=variant.topic)
        task = _task(systems, variant.system, self.row, topic, count, warm_up)
        task.value_bytes, task.rate = self.value_bytes, self.rate
        task.config = dict(variant.config)
        return run_worker(task, systems.environment)


def _scaled(count: int, factor: float) -> int:
    """A multiple of `_STEP`, at least one unless there are to be none."""
    return max(round(count * factor / _STEP), 1) * _STEP if count else 0


def _task(systems: Systems, system: str, row: str, topic: str, count: int, warm_up: int) -> Task:
    return Task(
        system=system,
        row=row,
        address=systems.address(system),
        topic=topic,
        partitions=PARTITIONS,
        server_pid=systems.server_pid(system),
        count=count,
        warm_up=warm_up,
    )


def filled_topic(
    systems: Systems, system: str, count: int, value_bytes: int = 100, *, compacted: bool = False
) -> str:
    """A topic with so many records, a whole number of 10,000; the same for all who ask for it."""
    key = f"{system} {count} {value_bytes} {compacted}"
    if key not in systems.filled:
        topic = systems.new_topic(system)
        row = "produce_batches" if system in (MAINSTEM, KAFKA) else "produce"
        task = _task(systems, system, row, topic, count, 0)
        task.value_bytes = value_bytes
        run_worker(task, systems.environment)
        if compacted:
            compact(systems.gateway.warehouse, topic)
        systems.filled[key] = topic
    return systems.filled[key]


def run_worker(
    task: Task | SparkTask,
    environment: Mapping[str, str] | None = None,
    *,
    module: str = _WORKER,
) -> Outcome:
    """Runs a worker, which is a module's `main`, to its end.

    Raises:
        RuntimeError: It failed; the message has the end of what it printed.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(asdict(task))],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=_CHECKOUT,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{task.system} {task.row} failed:\n{done.stderr[-3000:]}")
    return Outcome(**json.loads(done.stdout))


ROWS: Final = (
    Row(
        "produce",
        "records/s",
        (*_PRODUCING, *_NATS),
        Work("produce", 1_000_000, 300_000),
        1.6,
    ),
    Row(
        "produce with callbacks",
        "records/s",
        _PRODUCING,
        Work("produce_callbacks", 1_000_000, 300_000),
        1.6,
    ),
    Row(
        "produce by batch",
        "records/s",
        _PRODUCING,
        Work("produce_batches", 2_000_000, 400_000),
        4.0,
    ),
    Row(
        "produce 1 KB",
        "records/s",
        _PRODUCING,
        Work("produce", 300_000, 100_000, value_bytes=1_000),
        1.8,
    ),
    Row(
        "produce flights as JSON",
        "records/s",
        (
            *_PRODUCING,
            Variant("Kafka, tuned, lz4", KAFKA, {**_TUNED, "compression.type": "lz4"}),
        ),
        Work("produce_flights", 1_000_000, 300_000),
        1.6,
    ),
    Row(
        "one at a time",
        "ms",
        (
            Variant("mainstem, acks=1", MAINSTEM, {"acks": "1"}),
            Variant("Kafka, default", KAFKA),
            Variant("NATS, default", NATS_UNSYNCED),
        ),
        Work("one_at_a_time", 2_000, 400, scales=False),
        lower_is_better=True,
    ),
    Row(
        "one at a time, synced",
        "ms",
        (
            Variant("mainstem, acks=1", MAINSTEM, {"acks": "1"}),
            Variant("mainstem, acks=all at once", MAINSTEM, topic={"commit.interval.ms": "0"}),
            Variant("mainstem, acks=all", MAINSTEM, share=0.05),
            Variant("Kafka, flush.messages=1", KAFKA, topic={"flush.messages": "1"}),
            Variant("NATS, synced", NATS),
        ),
        Work("one_at_a_time", 2_000, 400, scales=False),
        lower_is_better=True,
    ),
    Row(
        "consume history",
        "records/s",
        (*_CONSUMING, _CONSUMING_NATS),
        Work("consume", 1_000_000, 200_000, filled=True, spare=_SPARE),
        1.5,
    ),
    Row(
        "consume history by batch",
        "records/s",
        _CONSUMING,
        Work("consume_batches", 1_500_000, 300_000, filled=True, spare=_SPARE),
        4.0,
    ),
    # What the gateway has in memory of new records (fetch.cache.bytes) holds all of these.
    Row(
        "consume the tail",
        "records/s",
        _CONSUMING,
        Work("consume", 300_000, 100_000, filled=True),
    ),
    Row(
        "consume the tail by batch",
        "records/s",
        _CONSUMING,
        Work("consume_batches", 200_000, 100_000, filled=True, spare=_SPARE),
    ),
    Row(
        "latency, 200/s",
        "ms",
        (
            _DURABLE_MARK,
            _COMMITTED,
            *_KAFKA_LATENCY,
            Variant("NATS, synced", NATS),
            Variant("NATS, default", NATS_UNSYNCED),
        ),
        Work("latency", 2_000, 400, scales=False),
        lower_is_better=True,
    ),
    Row(
        "latency, 5,000/s",
        "ms",
        (_DURABLE_MARK, _COMMITTED, *_KAFKA_LATENCY),
        Work("latency", 30_000, 10_000, rate=5_000.0, scales=False),
        lower_is_better=True,
    ),
    Row(
        "memory over 10 M records",
        "MB/million",
        (
            Variant("mainstem", MAINSTEM),
            Variant("Kafka, tuned", KAFKA, {**_TUNED, **_READING}),
        ),
        Work("memory", 10_000_000, 0, fresh=True),
        lower_is_better=True,
    ),
)
