"""Does an append cost the same after 10,000 table commits as after 100?

Appends one record at a time with `commit.interval.ms=0`, each acknowledged when its Delta commit is durable, with
a checkpoint and log clean-up every 1,000 commits as a gateway does them. Prints the latency of the ~200 appends
around each mark, and how long the topic takes to open at the end.

Usage: python benchmarks/append_cost.py [--directory DIR] [--commits 100,1000,10000] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mainstem.delta_log import Appender, ByteBudget, LocalStore, OpenTopic, Slice, Topics
from mainstem.delta_log.maintenance import write_checkpoint
from mainstem.limits import CHECKPOINT_INTERVAL_COMMITS
from mainstem.records import records_to_wire_batch

WINDOW = 200
PARTITIONS = 6
WARM_UP_APPENDS = 200


async def append_all(topics: Topics, topic: str, count: int) -> np.ndarray:
    """The latency of each append in milliseconds."""
    topics.create(topic, PARTITIONS, {"commit.interval.ms": 0})
    record = records_to_wire_batch([b"k" * 16], [os.urandom(100)], None, [time.time_ns() // 10**6])
    latencies_ms = np.zeros(count)
    running: set[asyncio.Future[int]] = set()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool, ThreadPoolExecutor(1) as checkpoints:

        def committed(opened: OpenTopic) -> None:
            if opened.state.version % CHECKPOINT_INTERVAL_COMMITS == 0:
                running.add(loop.run_in_executor(checkpoints, write_checkpoint, opened.store))

        appender = await Appender.lead(
            topics.open(topic),
            pool,
            queue_bytes=2**26,
            budget=ByteBudget(2**26),
            on_commit=committed,
        )
        for number in range(count):
            started = time.perf_counter()
            await appender.submit([Slice(number % PARTITIONS, record)], record.nbytes)
            latencies_ms[number] = (time.perf_counter() - started) * 1000
        await asyncio.gather(*running)
        await appender.close(60)
    return latencies_ms


def seconds_to_open(topics: Topics, topic: str) -> float:
    started = time.perf_counter()
    topics.open(topic).store.close()
    return time.perf_counter() - started


def report(latencies_ms: np.ndarray, marks: list[int]) -> list[dict[str, float]]:
    rows = []
    for mark in marks:
        window = latencies_ms[max(mark - WINDOW // 2, 0) : mark + WINDOW // 2]
        p50, p99 = np.percentile(window, [50, 99])
        rows.append({"commit": mark, "p50_ms": round(p50, 3), "p99_ms": round(p99, 3)})
    return rows


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
        latencies_ms = asyncio.run(append_all(topics, "measured", marks[-1] + WINDOW // 2))
        open_s = seconds_to_open(topics, "measured")
    rows = report(latencies_ms, marks)
    print(f"{'commit':>8} {'p50 ms':>8} {'p99 ms':>8}")
    for row in rows:
        print(f"{row['commit']:>8} {row['p50_ms']:>8.3f} {row['p99_ms']:>8.3f}")
    spread = {
        name: max(row[name] for row in rows) / min(row[name] for row in rows)
        for name in ("p50_ms", "p99_ms")
    }
    print(f"largest to smallest: p50 {spread['p50_ms']:.2f}, p99 {spread['p99_ms']:.2f}")
    print(f"all appends: mean {latencies_ms.mean():.3f} ms, max {latencies_ms.max():.1f} ms")
    print(f"opening the topic: {open_s:.3f} s")
    figures = {
        "marks": rows,
        "p50_largest_to_smallest": round(spread["p50_ms"], 3),
        "p99_largest_to_smallest": round(spread["p99_ms"], 3),
        "max_ms": round(float(latencies_ms.max()), 3),
        "open_s": round(open_s, 3),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
    }
    print(json.dumps(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
