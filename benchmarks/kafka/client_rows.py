"""Rows that one client's process measures: worker.py."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.kafka.row import KAFKA, MAINSTEM, Outcome, Row, Variant
from benchmarks.kafka.systems import PARTITIONS, Systems
from benchmarks.kafka.worker import Task

if TYPE_CHECKING:
    from benchmarks.kafka.spark_worker import SparkTask

_CHECKOUT: Final = Path(__file__).resolve().parents[2]
_WORKER: Final = "benchmarks.kafka.worker"
_TIMEOUT_S: Final = 600.0

#: A reader by batch takes a batch more than it is asked for, at each end.
_SPARE: Final = 100_000

_TUNED: Final = {"linger.ms": 50, "batch.size": 1_000_000}
_READING: Final = {"fetch.queue.backoff.ms": 10}

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


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker does in each turn of a row.

    Attributes:
        row: The worker's name for it.
        count: Records that are measured.
        warm_up: Records before.
        filled: The topic has its records before; one topic for all turns.
        scales: `--scale` counts for the numbers of records.
    """

    row: str
    count: int
    warm_up: int
    value_bytes: int = 100
    rate: float = 200.0
    filled: bool = False
    scales: bool = True

    def __call__(self, systems: Systems, variant: Variant, scale: float) -> Outcome:
        """One turn."""
        factor = scale if self.scales else 1.0
        count, warm_up = _scaled(self.count, factor), _scaled(self.warm_up, factor)
        if self.filled:
            whole = count + warm_up + _SPARE
            topic = filled_topic(systems, variant.system, whole, self.value_bytes)
        else:
            topic = systems.new_topic(variant.system, config=variant.topic)
        task = _task(systems, variant.system, self.row, topic, count, warm_up)
        task.value_bytes, task.rate = self.value_bytes, self.rate
        task.config = dict(variant.config)
        return run_worker(task)


def _scaled(count: int, factor: float) -> int:
    """A whole number of pools of records, unless it is to be as it is."""
    return count if factor == 1.0 else max(round(count * factor / 100_000), 1) * 100_000


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


def filled_topic(systems: Systems, system: str, count: int, value_bytes: int = 100) -> str:
    """A topic with so many records, a whole number of 10,000; the same for all who ask for it."""
    key = f"{system} {count} {value_bytes}"
    if key not in systems.filled:
        topic = systems.new_topic(system)
        task = _task(systems, system, "produce_batches", topic, count, 0)
        task.value_bytes = value_bytes
        run_worker(task)
        systems.filled[key] = topic
    return systems.filled[key]


def run_worker(task: Task | SparkTask, module: str = _WORKER) -> Outcome:
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
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{task.system} {task.row} failed:\n{done.stderr[-3000:]}")
    return Outcome(**json.loads(done.stdout))


ROWS: Final = (
    Row("produce", "records/s", _PRODUCING, Work("produce", 1_000_000, 300_000), 1.6),
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
        "consume",
        "records/s",
        _CONSUMING,
        Work("consume", 1_000_000, 200_000, filled=True),
        1.5,
    ),
    Row(
        "consume by batch",
        "records/s",
        _CONSUMING,
        Work("consume_batches", 1_500_000, 300_000, filled=True),
        4.0,
    ),
    Row(
        "latency, 200/s",
        "ms",
        (
            Variant(
                "mainstem, durable mark",
                MAINSTEM,
                {"linger.ms": 0, "acks": "1", "fetch.visibility": "durable"},
            ),
            Variant("mainstem, table", MAINSTEM, {"linger.ms": 0}),
            Variant("Kafka, default", KAFKA),
            Variant("Kafka, linger.ms=0", KAFKA, {"linger.ms": 0}),
        ),
        Work("latency", 2_000, 400, scales=False),
        lower_is_better=True,
    ),
)
