"""Does an append cost the same after 10,000 table commits as after 100?

Appends one record at a time with `commit.interval.ms=0`, each acknowledged when its Delta commit is
durable, with a checkpoint and log clean-up every 1,000 commits as a gateway does them. Prints the
latency of the ~200 appends around each mark: all of them, those with no checkpoint beside them
(`quiet`), and the CPU time of the process for the latter, which tells a cost of ours from a machine
that is busy with something else.

Usage: python benchmarks/append_cost.py [--directory DIR] [--commits 100,1000,10000] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mainstem.delta_log import Appender, ByteBudget, LocalStore, OpenTopic, Slice, Topics
from mainstem.delta_log.upkeep import LiveTable, freeze_heap, write_checkpoint
from mainstem.limits import CHECKPOINT_INTERVAL_COMMITS
from mainstem.records import records_to_wire_batch

WINDOW = 200
PARTITIONS = 6
WARM_UP_APPENDS = 3_000
FIRST_MARK = 100


@dataclass
class Measured:
    """Of each append: latency, CPU time of the process, and whether a checkpoint was running."""

    latency_ms: np.ndarray
    cpu_ms: np.ndarray
    beside_checkpoint: np.ndarray


async def append_all(topics: Topics, topic: str, count: int) -> Measured:
    """Appends `count` records, each after the one before it was acknowledged."""
    topics.create(topic, PARTITIONS, {"commit.interval.ms": 0})
    record = records_to_wire_batch([b"k" * 16], [os.urandom(100)], None, [time.time_ns() // 10**6])
    measured = Measured(np.zeros(count), np.zeros(count), np.zeros(count, dtype=bool))
    running: set[asyncio.Future[int]] = set()
    loop = asyncio.get_running_loop()

    def maintain(opened: OpenTopic, live: LiveTable) -> int:
        version = write_checkpoint(opened.store, live)
        freeze_heap()
        return version

    with ThreadPoolExecutor(4) as pool, ThreadPoolExecutor(1) as checkpoints:

        def committed(opened: OpenTopic) -> None:
            # One more at the first mark, where a topic has had none: each mark then has a
            # checkpoint beside it, and only what grows with the log can tell them apart.
            version = opened.state.version
            due = version == FIRST_MARK or version % CHECKPOINT_INTERVAL_COMMITS == 0
            if due and all(one.done() for one in running):
                running.add(
                    loop.run_in_executor(checkpoints, maintain, opened, LiveTable.of(opened.state))
                )

        led = topics.open(topic)
        appender = await Appender.lead(
            led,
            pool,
            queue_bytes=2**26,
            budget=ByteBudget(2**26),
            on_commit=committed,
        )
        for number in range(count):
            started, cpu_started = time.perf_counter_ns(), time.process_time_ns()
            await appender.submit([Slice(number % PARTITIONS, record)], record.nbytes)
            measured.latency_ms[number] = (time.perf_counter_ns() - started) / 1e6
            measured.cpu_ms[number] = (time.process_time_ns() - cpu_started) / 1e6
            measured.beside_checkpoint[number] = any(not one.done() for one in running)
        await asyncio.gather(*running)
        if not running:  # the warm-up: the first checkpoint of a process imports delta-rs
            await loop.run_in_executor(checkpoints, maintain, led, LiveTable.of(led.state))
        await appender.close(60)
    return measured


def seconds_to_open(topics: Topics, topic: str) -> float:
    started = time.perf_counter()
    topics.open(topic)
    return time.perf_counter() - started


def report(measured: Measured, marks: list[int]) -> list[dict[str, float]]:
    rows = []
    for mark in marks:
        window = slice(max(mark - WINDOW // 2, 0), mark + WINDOW // 2)
        quiet = ~measured.beside_checkpoint[window]
        quiet |= not quiet.any()
        row = {"commit": float(mark)}
        for name, values in (
            ("", measured.latency_ms[window]),
            ("quiet_", measured.latency_ms[window][quiet]),
            ("cpu_", measured.cpu_ms[window][quiet]),
        ):
            p50, p99 = np.percentile(values, [50, 99])
            row |= {f"{name}p50_ms": round(p50, 3), f"{name}p99_ms": round(p99, 3)}
        rows.append(row)
    return rows


class CollectorWatch:
    """The pauses of the garbage collector's full collections, in milliseconds."""

    def __init__(self) -> None:
        self.pauses_ms: list[float] = []
        self._started = 0
        gc.callbacks.append(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                self._started = time.perf_counter_ns()
            else:
                self.pauses_ms.append((time.perf_counter_ns() - self._started) / 1e6)


@contextlib.contextmanager
def warehouse(directory: Path | None) -> Iterator[Topics]:
    with tempfile.TemporaryDirectory(dir=directory, prefix="append-cost-") as root:
        store = LocalStore(root)
        yield Topics(store)
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to make the warehouse")
    parser.add_argument("--commits", default="100,1000,10000", help="marks to measure at")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    marks = sorted(int(mark) for mark in arguments.commits.split(","))
    with warehouse(arguments.directory) as topics:
        # The first appends of a process pay for imports and for memory that was never touched.
        asyncio.run(append_all(topics, "warm-up", WARM_UP_APPENDS))
        collector = CollectorWatch()
        measured = asyncio.run(append_all(topics, "measured", marks[-1] + WINDOW // 2))
        open_s = seconds_to_open(topics, "measured")
    rows = report(measured, marks)
    names = [name for name in rows[0] if name != "commit"]
    print(f"{'commit':>8}" + "".join(f"{name:>14}" for name in names))
    for row in rows:
        print(f"{row['commit']:>8.0f}" + "".join(f"{row[name]:>14.3f}" for name in names))
    spread = {
        name: round(max(row[name] for row in rows) / min(row[name] for row in rows), 2)
        for name in names
    }
    print(f"{'spread':>8}" + "".join(f"{spread[name]:>14.2f}" for name in names))
    beside = measured.latency_ms[measured.beside_checkpoint]
    print(
        f"all appends: mean {measured.latency_ms.mean():.3f} ms, "
        f"max {measured.latency_ms.max():.1f} ms; "
        f"beside a checkpoint ({len(beside)}): p50 {np.median(beside):.3f} ms"
    )
    pauses_ms = collector.pauses_ms or [0.0]
    print(f"full garbage collections: {len(pauses_ms)}, the longest {max(pauses_ms):.1f} ms")
    print(f"opening the topic: {open_s:.3f} s")
    figures = {
        "marks": rows,
        "largest_to_smallest": spread,
        "max_ms": round(float(measured.latency_ms.max()), 3),
        "beside_checkpoint_p50_ms": round(float(np.median(beside)), 3),
        "full_collection_max_ms": round(max(pauses_ms), 3),
        "open_s": round(open_s, 3),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
    }
    print(json.dumps(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
