"""mainstem beside Kafka: both on this machine, in turns, with the same data.

Starts a gateway and a broker (see broker.py), measures each row in processes of their own, each
warmed up, A B A B, and prints medians, ratios and their spread. `--json` keeps all of it.

Usage: python -m benchmarks.kafka.run [--pairs 5] [--rows produce,consume] [--json FILE]
Needs Java 17, Maven and, in this environment, confluent-kafka: `pip install confluent-kafka`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka.broker import Broker, kafka_version
from benchmarks.kafka.worker import Task

from mainstem.client import AdminClient
from mainstem.testing import GatewayProcess

PARTITIONS: Final = 6
_CHECKOUT: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 600.0

#: A reader by batch takes a batch more than it is asked for, at each end.
_SPARE: Final = 100_000

_TUNED: Final = {"linger.ms": 50, "batch.size": 1_000_000}
_READING: Final = {"fetch.queue.backoff.ms": 10}


@dataclass(frozen=True, slots=True)
class Variant:
    """How one system does a row."""

    name: str
    system: str
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """What is compared.

    Attributes:
        variants: Ours first; of the others the best median counts.
        filled: The topic has its records before.
        lower_is_better: Milliseconds.
    """

    name: str
    worker: str
    variants: tuple[Variant, ...]
    count: int
    warm_up: int
    value_bytes: int = 100
    rate: float = 200.0
    filled: bool = False
    lower_is_better: bool = False


_PRODUCING: Final = (
    Variant("mainstem", "mainstem"),
    Variant("Kafka, default", "kafka"),
    Variant("Kafka, tuned", "kafka", dict(_TUNED)),
)
_CONSUMING: Final = (
    Variant("mainstem", "mainstem"),
    Variant("Kafka, default", "kafka"),
    Variant("Kafka, tuned", "kafka", dict(_READING)),
)

ROWS: Final = (
    Row("produce", "produce", _PRODUCING, 1_000_000, 300_000),
    Row("produce with callbacks", "produce_callbacks", _PRODUCING, 1_000_000, 300_000),
    Row("produce by batch", "produce_batches", _PRODUCING, 2_000_000, 400_000),
    Row("produce 1 KB", "produce", _PRODUCING, 300_000, 100_000, value_bytes=1_000),
    Row("consume", "consume", _CONSUMING, 1_000_000, 200_000, filled=True),
    Row("consume by batch", "consume_batches", _CONSUMING, 1_500_000, 300_000, filled=True),
    Row(
        "latency, 200/s",
        "latency",
        (
            Variant(
                "mainstem, durable mark",
                "mainstem",
                {"linger.ms": 0, "acks": "1", "fetch.visibility": "durable"},
            ),
            Variant("mainstem, table", "mainstem", {"linger.ms": 0}),
            Variant("Kafka, default", "kafka"),
            Variant("Kafka, linger.ms=0", "kafka", {"linger.ms": 0}),
        ),
        2_000,
        400,
        lower_is_better=True,
    ),
)


class Bench:
    """The two servers, and the topics that rows read."""

    def __init__(self, gateway: GatewayProcess, broker: Broker) -> None:
        self._servers = {
            "mainstem": (gateway.address, gateway.pid),
            "kafka": (broker.address, broker.pid),
        }
        self._filled: dict[tuple[str, int, int], str] = {}
        self._number = 0

    def measure(self, row: Row, variant: Variant) -> dict[str, Any]:
        """One turn."""
        address, pid = self._servers[variant.system]
        total = row.count + row.warm_up
        if row.filled:
            topic = self._filled_topic(variant.system, total + _SPARE, row.value_bytes)
        else:
            topic = self._new_topic(variant.system)
        task = Task(
            system=variant.system,
            row=row.worker,
            address=address,
            topic=topic,
            partitions=PARTITIONS,
            server_pid=pid,
            count=row.count,
            warm_up=row.warm_up,
            value_bytes=row.value_bytes,
            rate=row.rate,
            config=variant.config,
        )
        return _worker(task)

    def _filled_topic(self, system: str, count: int, value_bytes: int) -> str:
        key = (system, count, value_bytes)
        if key not in self._filled:
            topic = self._new_topic(system)
            address, pid = self._servers[system]
            fill = (address, topic, PARTITIONS, pid, count, 0, value_bytes)
            _worker(Task(system, "produce_batches", *fill))
            self._filled[key] = topic
        return self._filled[key]

    def _new_topic(self, system: str) -> str:
        self._number += 1
        name = f"bench-{self._number}"
        address, _ = self._servers[system]
        if system == "mainstem":
            with AdminClient({"bootstrap.servers": address}) as admin:
                admin.create_topic(name, PARTITIONS)
            return name
        from confluent_kafka.admin import AdminClient as KafkaAdmin
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        kafka = KafkaAdmin({"bootstrap.servers": address})
        for future in kafka.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result(30)
        return name


def _worker(task: Task) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka.worker", json.dumps(asdict(task))],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=_CHECKOUT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{task.system} {task.row} failed:\n{done.stderr[-3000:]}")
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def compare(bench: Bench, row: Row, pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures a row in turns."""
    turns: dict[str, list[dict[str, Any]]] = {one.name: [] for one in row.variants}
    for number in range(pairs):
        for variant in row.variants:
            turns[variant.name].append(bench.measure(row, variant))
        values = ", ".join(f"{name} {found[-1]['value']:,g}" for name, found in turns.items())
        say(f"{row.name} {number + 1}/{pairs}: {values}")
    medians = {name: statistics.median(t["value"] for t in found) for name, found in turns.items()}
    ours, *others = (one.name for one in row.variants)
    others = [one.name for one in row.variants if one.system == "kafka"]
    choose = min if row.lower_is_better else max
    best = choose(others, key=medians.__getitem__)
    ratios = sorted(
        _ratio(row, mine["value"], theirs["value"])
        for mine, theirs in zip(turns[ours], turns[best], strict=True)
    )
    return {
        "row": row.name,
        "unit": "ms" if row.lower_is_better else "records/s",
        "medians": medians,
        "best other": best,
        "ratio": round(_ratio(row, medians[ours], medians[best]), 2),
        "ratios": [round(one, 2) for one in ratios],
        "turns": turns,
    }


def _ratio(row: Row, ours: float, theirs: float) -> float:
    return theirs / ours if row.lower_is_better else ours / theirs


def _table(results: list[dict[str, Any]]) -> str:
    lines = [f"{'row':24} {'mainstem':>12} {'Kafka':>12} {'ratio':>6}  spread       best of Kafka"]
    for one in results:
        ours = next(iter(one["medians"].values()))
        theirs = one["medians"][one["best other"]]
        spread = f"{one['ratios'][0]:.2f}-{one['ratios'][-1]:.2f}"
        lines.append(
            f"{one['row']:24} {ours:12,.6g} {theirs:12,.6g} {one['ratio']:6.2f}  {spread:12} "
            f"{one['best other']}"
        )
    return "\n".join(lines)


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", default="", help="parts of names, with commas between")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of records")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = [part for part in options.rows.split(",") if part]
    rows = [row for row in ROWS if not wanted or any(part in row.name for part in wanted)]
    results: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mainstem-bench-"))
        gateway = stack.enter_context(GatewayProcess(Path(folder, "warehouse")))
        broker = stack.enter_context(Broker(Path(folder)))
        bench = Bench(gateway, broker)
        for row in rows:
            scaled = (
                row
                if row.lower_is_better
                else replace(
                    row,
                    count=_round(row.count * options.scale),
                    warm_up=_round(row.warm_up * options.scale),
                )
            )
            results.append(compare(bench, scaled, options.pairs, _say))
    print(_table(results))
    if options.json:
        facts = {
            "mainstem": version("mainstem"),
            "kafka": kafka_version(),
            "confluent-kafka": version("confluent-kafka"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        options.json.write_text(json.dumps({"facts": facts, "rows": results}, indent=1) + "\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _round(count: float) -> int:
    """A whole number of pools of records."""
    return max(round(count / 100_000), 1) * 100_000


if __name__ == "__main__":
    main()
