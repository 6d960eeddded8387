"""What do many short-lived idempotent producers cost one topic?

Each of `--producers` sends a few batches, one producer after the other, with a checkpoint and log
clean-up every 1,000 commits as a gateway does them. Prints append times before any producer, with
all of them, and after they were forgotten; the size of the checkpoint and the time to write it; and
the time to open the topic and to take its lead.

Usage: python benchmarks/producers.py [--directory DIR] [--producers 20000] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mainstem.delta_log import (
    Appender,
    ByteBudget,
    LocalStore,
    OpenTopic,
    Slice,
    Topics,
)
from mainstem.delta_log.format import ProducerBatch, checkpoint_path, registers
from mainstem.delta_log.table import load_table
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.limits import CHECKPOINT_INTERVAL_COMMITS
from mainstem.records import records_to_wire_batch

PARTITIONS = 6
BATCHES_PER_PRODUCER = 2
#: Producers that send at the same time: a commit has a batch of each.
AT_A_TIME = 20
SAMPLES = 300
DAY_MS = 86_400_000
RECORD = records_to_wire_batch([b"k" * 16], [b"v" * 100], None, [time.time_ns() // 10**6])


class Bench:
    def __init__(self, root: str) -> None:
        self.store = LocalStore(root)
        self.topics = Topics(self.store)
        self.topics.create("t", PARTITIONS, {"commit.interval.ms": 0})
        self.pool = ThreadPoolExecutor(4)
        self.expiration_ms = DAY_MS
        self.figures: dict[str, Any] = {}

    async def lead(self) -> Appender:
        started = time.perf_counter()
        opened = self.topics.open("t")
        self.opened_s = time.perf_counter() - started
        started = time.perf_counter()
        appender = await Appender.lead(
            opened,
            self.pool,
            queue_bytes=2**26,
            budget=ByteBudget(2**26),
            producer_expiration_ms=self.expiration_ms,
        )
        self.led_s = time.perf_counter() - started
        return appender

    async def appends(self, appender: Appender) -> dict[str, float]:
        """The time of appends by one producer that has nothing to do with the others."""
        times = []
        for _ in range(SAMPLES):
            started = time.perf_counter_ns()
            await appender.submit([Slice(0, RECORD)], RECORD.nbytes)
            times.append((time.perf_counter_ns() - started) / 1e6)
        p50, p99 = np.percentile(times, [50, 99])
        return {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}

    def checkpoint(self, opened: OpenTopic) -> dict[str, float]:
        started = time.perf_counter()
        version = write_checkpoint(opened.store)
        took = time.perf_counter() - started
        size = (Path(self.topics.uri("t")) / checkpoint_path(version)).stat().st_size
        return {"s": round(took, 3), "bytes": size}

    async def look(self, name: str, appender: Appender) -> Appender:
        figures: dict[str, Any] = {"append": await self.appends(appender)}
        opened = appender._opened
        figures["checkpoint"] = await asyncio.to_thread(self.checkpoint, opened)
        figures["producer_registers"] = sum(
            registers.is_producer(name) for name in load_table(opened.store).registers
        )
        await appender.close(60)
        appender = await self.lead()
        figures |= {"open_s": round(self.opened_s, 3), "lead_s": round(self.led_s, 3)}
        self.figures[name] = figures
        return appender

    async def run(self, producers: int) -> None:
        appender = await self.look("without_producers", await self.lead())
        loop = asyncio.get_running_loop()
        for first in range(1, producers + 1, AT_A_TIME):
            for number in range(BATCHES_PER_PRODUCER):
                waits = [
                    appender.submit(
                        [Slice(one % PARTITIONS, RECORD, ProducerBatch(one, 0, number))], 100
                    )
                    for one in range(first, min(first + AT_A_TIME, producers + 1))
                ]
                await asyncio.gather(*waits)
            if appender.state.version % CHECKPOINT_INTERVAL_COMMITS < 2:
                await loop.run_in_executor(self.pool, self.checkpoint, appender._opened)
        appender = await self.look("with_all", appender)
        await appender.close(60)
        self.expiration_ms = 1_000
        appender = await self.lead()
        await asyncio.sleep(1.1)
        await self.appends(appender)  # which say who is forgotten
        appender = await self.look("forgotten", appender)
        await appender.close(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to make the warehouse")
    parser.add_argument("--producers", type=int, default=20_000)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="producers-") as root:
        bench = Bench(root)
        asyncio.run(bench.run(arguments.producers))
        bench.pool.shutdown()
        bench.store.close()
    figures = {"producers": arguments.producers, **bench.figures}
    figures["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(figures, indent=1))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
