"""How long does keyed compaction take, and in how much memory?

Makes a topic of records of some 350 bytes whose keys are drawn at random, as appends would have
made it, and compacts it on a Spark session that is up already. Prints the wall clock of the run,
and the most memory that a worker had.

Usage: python benchmarks/keyed_compaction.py [--records 5000000] [--keys 500000] [--partitions 2]
           [--master local[2]] [--in-process] [--directory DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.delta_log import Committed, Committer, LocalStore, Topics
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.format import Action, Batch, Register, registers
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import TableCommit
from mainstem.jobs.key_cleaning import CleaningResult, CleaningTask
from mainstem.jobs.keyed_compaction import KeyedCompaction
from mainstem.jobs.runner import run_job
from mainstem.jobs.session import spark_session
from mainstem.jobs.task_pool import InProcessPool, SparkPool, TaskPool
from mainstem.records import WIRE_SCHEMA

RECORDS_A_FILE = 10_000
FILES_A_COMMIT = 100
VALUE_BYTES = 350
TIME_MS = 10**12


class Measured(KeyedCompaction):
    """Notes how much memory each process that ran a task has had at most."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self._notes = notes

    def run_task(self, store: ObjectStore, task: CleaningTask) -> CleaningResult:
        result = super().run_task(store, task)
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (self._notes / str(os.getpid())).write_text(str(peak_kib))
        return result


def make_topic(root: str, records: int, keys: int, partitions: int) -> None:
    """The topic `t`, in a process of its own: what it takes is not the job's."""
    store = LocalStore(root)
    topics = Topics(store)
    topics.create("t", partitions, {"cleanup.policy": "compact"})
    opened = topics.open("t")
    rng = np.random.default_rng(7)
    # Compresses about as JSON does.
    letters = rng.choice(np.frombuffer(b'{"abcdef:0123,"}', np.uint8), 1_000 * VALUE_BYTES)
    values = [bytes(letters[n : n + VALUE_BYTES]) for n in range(0, len(letters), VALUE_BYTES)]
    column = pa.array(values * (RECORDS_A_FILE // len(values)), pa.binary())
    times = pa.array([TIME_MS] * RECORDS_A_FILE).cast(WIRE_SCHEMA.field("timestamp").type)
    headers = pa.nulls(RECORDS_A_FILE, WIRE_SCHEMA.field("headers").type)
    files = records // RECORDS_A_FILE
    ends = [0] * partitions
    for version, start in enumerate(range(0, files, FILES_A_COMMIT), start=1):
        actions: list[Action] = []
        named: list[Batch] = []
        for number in range(start, min(start + FILES_A_COMMIT, files)):
            partition = number % partitions
            # A key has one partition.
            drawn = rng.integers(0, keys // partitions, RECORDS_A_FILE) * partitions + partition
            key = pa.array([b"customer-%08d" % one for one in drawn.tolist()], pa.binary())
            batch = pa.RecordBatch.from_arrays([key, column, headers, times], schema=WIRE_SCHEMA)
            file, data = encode_data_file(
                partition,
                ends[partition],
                [batch],
                timestamp_type=CREATE_TIME,
                compression_type="zstd",
                now_ms=TIME_MS,
            )
            opened.store.put(file.path, data)
            actions.append(file)
            named.append(Batch(partition, ends[partition], RECORDS_A_FILE))
            ends[partition] += RECORDS_A_FILE
        actions += [Register(registers.leo(n), end) for n, end in enumerate(ends) if end]
        commit = TableCommit.of("APPEND", actions, timestamp_ms=TIME_MS, batches=named)
        assert Committer(opened.store).commit(version, commit) == Committed(version)
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=500_000, help="different ones, about")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    parser.add_argument("--in-process", action="store_true", help="two threads, without Spark")
    parser.add_argument("--directory", type=Path, help="where to make the warehouse")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="keyed-compaction-") as base:
        root, notes = Path(base, "warehouse"), Path(base, "notes")
        notes.mkdir()
        maker: Any = multiprocessing.get_context("spawn").Process(
            target=make_topic,
            args=(str(root), arguments.records, arguments.keys, arguments.partitions),
        )
        maker.start()
        maker.join()
        assert maker.exitcode == 0

        def pool() -> TaskPool:
            if arguments.in_process:
                return InProcessPool(2)
            return SparkPool(lambda: spark_session(master=arguments.master))

        if not arguments.in_process:
            # Not counted: the session, and Python workers that import pyarrow.
            context = spark_session(master=arguments.master).sparkContext
            context.parallelize(range(8), 8).map(lambda _: __import__("pyarrow").__name__).collect()
        started = time.perf_counter()
        (run,) = run_job(str(root), Measured(notes), ["t"], pool=pool)
        seconds = time.perf_counter() - started
        peaks = [int(note.read_text()) for note in notes.iterdir()]
    outcome = run.outcome
    assert outcome.kind == "ok", outcome
    figures = {
        "seconds": round(seconds, 2),
        "records_per_second": round(outcome.before.records / seconds),
        "records_before": outcome.before.records,
        "records_after": outcome.after.records,
        "files_before": outcome.before.files,
        "files_after": outcome.after.files,
        "stored_mb_before": round(outcome.before.bytes / 1e6, 1),
        "stored_mb_after": round(outcome.after.bytes / 1e6, 1),
        "worker_resident_mb_max": round(max(peaks) / 1024, 1),
        "workers_resident_mb_sum": round(sum(peaks) / 1024, 1),
        "cpu_count": os.cpu_count(),
    }
    for name, figure in figures.items():
        print(f"{name:<24}{figure:>10}")
    print(json.dumps(figures))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
