"""How fast does compaction merge data files: bytes of records, and small files, a second?

Makes a topic with as many data files as asked for, each of JSON records of some 350 bytes, as
appends would have made them, and compacts it on a Spark session that is up already. Prints the wall
clock of the run: planning, reading, writing, committing.

Usage: python benchmarks/compaction.py [--files 3000] [--records 3000] [--partitions 12]
           [--master local[2]] [--in-process] [--directory DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from pathlib import Path

from mainstem.delta_log import Committed, Committer, LocalStore, Topics
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.format import Action, Batch, Register, registers
from mainstem.delta_log.table import TableCommit
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.runner import run_job
from mainstem.jobs.session import spark_session
from mainstem.jobs.task_pool import InProcessPool, SparkPool, TaskPool
from mainstem.records import records_to_wire_batch

#: Files a table commit: what a gateway commits over a second or so.
FILES_A_COMMIT = 200

#: Different contents of files: reading the same one over and over would flatter.
CONTENTS = 16

CITIES = ("ATL", "BOS", "DEN", "DFW", "EWR", "IAH", "JFK", "LAX", "LGA", "MIA", "ORD", "SEA", "SFO")


def value(rng: random.Random, row: int) -> bytes:
    """A JSON object of some 350 bytes, as the demo's flights are."""
    body = {
        "row": row,
        "year": 2013,
        "month": rng.randint(1, 12),
        "day": rng.randint(1, 28),
        "dep_time": rng.randint(500, 2359),
        "sched_dep_time": rng.randint(500, 2359),
        "dep_delay": rng.randint(-20, 300),
        "arr_time": rng.randint(1, 2359),
        "sched_arr_time": rng.randint(1, 2359),
        "arr_delay": rng.randint(-60, 300),
        "carrier": rng.choice(CITIES)[:2],
        "flight": rng.randint(1, 8500),
        "tailnum": f"N{rng.randint(10_000, 99_999)}",
        "origin": rng.choice(CITIES),
        "dest": rng.choice(CITIES),
        "air_time": rng.randint(20, 690),
        "distance": rng.randint(17, 4983),
        "time_hour": f"2013-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} 05:00:00",
    }
    return json.dumps(body).encode()


def make_topic(topics: Topics, files: int, records: int, partitions: int) -> int:
    """The topic `t`; returns the bytes of its records."""
    topics.create("t", partitions)
    opened = topics.open("t")
    rng = random.Random(7)
    batches = []
    for _ in range(min(CONTENTS, files)):
        values = [value(rng, row) for row in range(records)]
        keys = [value[20:36] for value in values]
        batches.append(records_to_wire_batch(keys, values, None, [10**12] * records))
    ends = [0] * partitions
    size = 0
    for version, start in enumerate(range(0, files, FILES_A_COMMIT), start=1):
        actions: list[Action] = []
        named: list[Batch] = []
        for number in range(start, min(start + FILES_A_COMMIT, files)):
            partition, batch = number % partitions, batches[number % CONTENTS % len(batches)]
            file, data = encode_data_file(
                partition,
                ends[partition],
                [batch],
                timestamp_type=CREATE_TIME,
                compression_type="zstd",
                now_ms=10**12,
            )
            opened.store.put(file.path, data)
            actions.append(file)
            named.append(Batch(partition, ends[partition], records))
            ends[partition] += records
            size += batch.nbytes
        actions += [Register(registers.leo(n), end) for n, end in enumerate(ends) if end]
        commit = TableCommit.of("APPEND", actions, timestamp_ms=10**12, batches=named)
        assert Committer(opened.store).commit(version, commit) == Committed(version)
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=3_000, help="data files to merge")
    parser.add_argument("--records", type=int, default=3_000, help="records in each")
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    parser.add_argument("--in-process", action="store_true", help="two threads, without Spark")
    parser.add_argument("--directory", type=Path, help="where to make the warehouse")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="compaction-") as root:
        store = LocalStore(root)
        topics = Topics(store)
        size = make_topic(topics, arguments.files, arguments.records, arguments.partitions)

        def pool() -> TaskPool:
            if arguments.in_process:
                return InProcessPool(2)
            return SparkPool(lambda: spark_session(master=arguments.master))

        if not arguments.in_process:
            # Not counted: the session, and Python workers that import pyarrow.
            context = spark_session(master=arguments.master).sparkContext
            context.parallelize(range(8), 8).map(lambda _: __import__("pyarrow").__name__).collect()
        started, cpu_started = time.perf_counter(), time.process_time()
        (run,) = run_job(root, Compaction(), ["t"], pool=pool)
        seconds = time.perf_counter() - started
        cpu_seconds = time.process_time() - cpu_started
        store.close()
    outcome = run.outcome
    assert outcome.kind == "ok", outcome
    assert outcome.before.files == arguments.files
    figures = {
        "seconds": round(seconds, 2),
        "driver_cpu_seconds": round(cpu_seconds, 2),
        "record_mb_per_second": round(size / seconds / 1e6, 1),
        "files_per_second": round(arguments.files / seconds, 1),
        "record_mb": round(size / 1e6, 1),
        "files_before": outcome.before.files,
        "files_after": outcome.after.files,
        "stored_mb_before": round(outcome.before.bytes / 1e6, 1),
        "stored_mb_after": round(outcome.after.bytes / 1e6, 1),
        "resident_mb_max": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "cpu_count": os.cpu_count(),
    }
    for name, figure in figures.items():
        print(f"{name:<22}{figure:>10}")
    print(json.dumps(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
