"""What does a group on many partitions cost the table of committed offsets?

    python benchmarks/offsets_table.py [--live 100000] [--each 1 100 20000] [--seconds 10]

Fills the table with `--live` offsets, then commits some of them again and again, so many a commit,
and tells how many rows the table wrote for each row that was committed, how long a commit took, and
how many files there are. Then a process of its own opens the table: its time, the longest time for
which its event loop stood still, and its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mainstem.consumers.offset_rows import Row, StoredOffset, offset_row
from mainstem.consumers.offsets_table import NAME, OffsetsTable
from mainstem.delta_log.append import ByteBudget
from mainstem.delta_log.store import LocalStore
from mainstem.delta_log.table import TableState, load_table

TOPIC_IDS = [f"3f2504e0-4f89-11d3-9a0c-0305e82c33{n:02}" for n in range(100)]
PARTITIONS = 10_000
FILL_ROWS = 10_000
GROUP = "orders-service"


def row(number: int, offset: int) -> Row:
    topic = number // PARTITIONS
    return offset_row(
        GROUP,
        StoredOffset(
            f"orders.eu.production.{topic}",
            TOPIC_IDS[topic],
            number % PARTITIONS,
            offset,
            3,
            "",
            time.time_ns() // 1_000_000,
        ),
    )


def state_of(warehouse: Path) -> TableState:
    store = LocalStore(warehouse / "system" / NAME, create=False)
    try:
        return load_table(store)
    finally:
        store.close()


def rss_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def longest_stall(stop: asyncio.Event) -> float:
    longest = 0.0
    while not stop.is_set():
        began = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - began - 0.005)
    return longest


async def churn(warehouse: Path, live: int, each: int, seconds: float) -> None:
    store, pool = LocalStore(warehouse), ThreadPoolExecutor(4)
    table = await OffsetsTable.lead(store, pool, budget=ByteBudget(2**24))
    began = time.monotonic()
    for start in range(0, live, FILL_ROWS):
        await table.write([row(n, 0) for n in range(start, min(start + FILL_ROWS, live))])
    if not each:
        print(f"filled with {live} rows in {time.monotonic() - began:.1f} s")
    else:
        before = state_of(warehouse)
        committed, offset, took = 0, 1, []
        stop = asyncio.Event()
        stall = asyncio.create_task(longest_stall(stop))
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            numbers = random.sample(range(live), min(each, live))
            rows = await asyncio.to_thread(lambda: [row(n, offset) for n in numbers])  # noqa: B023
            at = time.monotonic()
            try:
                await table.write(rows)
            except Exception as error:
                print(f"  refused: {error!r:.100}")
                await asyncio.sleep(0.1)
                continue
            took.append(time.monotonic() - at)
            committed += each
            offset += 1
        await asyncio.sleep(3.0)
        stop.set()
        after = state_of(warehouse)
        written = after.log_end_offset(0) - before.log_end_offset(0)
        took.sort()
        print(
            f"{each} rows a commit: {len(took)} commits, p50 {statistics.median(took) * 1000:.1f} "
            f"ms, p99 {took[len(took) * 99 // 100] * 1000:.1f} ms; {committed} rows committed, "
            f"{written} written ({written / committed:.2f} each); files {before.file_count} -> "
            f"{after.file_count}; rows in the table {after.files(0).record_count}; longest stall "
            f"{await stall * 1000:.0f} ms",
            flush=True,
        )
    await table.close(10.0)
    pool.shutdown()
    store.close()


async def open_once(warehouse: Path) -> None:
    store, pool = LocalStore(warehouse), ThreadPoolExecutor(4)
    before = rss_mib()
    stop = asyncio.Event()
    stall = asyncio.create_task(longest_stall(stop))
    began = time.monotonic()
    table = await OffsetsTable.lead(store, pool, budget=ByteBudget(2**24))
    took = time.monotonic() - began
    await asyncio.sleep(0.05)
    stop.set()
    count = len(table.offsets(GROUP))
    print(
        f"opened {count} offsets in {took:.2f} s; longest stall {await stall * 1000:.0f} ms; "
        f"memory {before:.0f} -> {rss_mib():.0f} MiB"
    )
    await table.close(10.0)
    pool.shutdown()
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", type=int, default=100_000)
    parser.add_argument("--each", type=int, nargs="*", default=[1, 100, 20_000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.open is not None:
        asyncio.run(open_once(given.open))
        return
    for each in [0, *given.each]:
        with tempfile.TemporaryDirectory() as directory:
            warehouse = Path(directory)
            asyncio.run(churn(warehouse, given.live, each, given.seconds))
            subprocess.run([sys.executable, __file__, "--open", str(warehouse)], check=True)


if __name__ == "__main__":
    main()
