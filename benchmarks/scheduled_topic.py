"""How many files has a topic under a trickle with the scheduler on, and how fast is SQL then?

A gateway and `mainstem job scheduler` as processes of their own, both with their defaults; a
producer that sends a record to each of 12 partitions 20 times a second, so that each of the ten
commits a second has a file for each. In the end the same SQL runs over the topic as it is and over
a copy that was compacted as far as it goes, in turns in one Spark session; and the table is proved.

Usage: python benchmarks/scheduled_topic.py [--seconds 600] [--partitions 12] [--rounds 7]
       [--rollup-files 32] [--no-scheduler] [--jobs FILE] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from mainstem.client import AdminClient, Producer, RecordMetadata
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.verify import verify_named
from mainstem.errors import MainstemError
from mainstem.jobs import spark_session
from mainstem.testing import GatewayProcess

TOPIC = "trickle"
SENDS_PER_S = 20
LOOK_S = 5.0
JOB_TIMEOUT_S = 300.0

#: Answered from the log's statistics; and one that reads every file.
QUERIES = {
    "count(*)": "SELECT count(*) FROM delta.`{table}`",
    "count(value)": "SELECT count(value) FROM delta.`{table}`",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rollup-files", type=int, default=32, help="0: no roll-up")
    parser.add_argument("--no-scheduler", action="store_true", help="to compare appends with")
    parser.add_argument("--jobs", help="times of the jobs, as conf/jobs.toml")
    parser.add_argument("--json", help="where to write the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options)
    print(json.dumps(figures))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    warehouse, compacted = folder / "warehouse", folder / "compacted"
    with GatewayProcess(warehouse) as gateway:
        config = {"bootstrap.servers": gateway.address}
        with AdminClient(config) as admin:
            settings = {"rollup.files": options.rollup_files}
            admin.create_topic(TOPIC, options.partitions, settings)
        jobs = [] if options.jobs is None else ["--jobs", options.jobs]
        scheduler = None
        if not options.no_scheduler:
            scheduler = start("job", "scheduler", "--warehouse", str(warehouse), *jobs)
        try:
            files, acks_s = trickle(warehouse, config, options)
        finally:
            if scheduler is not None:
                scheduler.terminate()
                scheduler.wait(JOB_TIMEOUT_S)
    report = verify_named(LocalStore(warehouse), TOPIC)
    assert report.ok, report.findings
    assert report.record_count == len(acks_s)
    shutil.copytree(warehouse, compacted)
    # Twice: the first may leave what one task made too small.
    for _ in range(2):
        compact = ["job", "run", "compaction", "--warehouse", str(compacted)]
        code = start(*compact, "-o", "compaction.min.age.ms=0").wait(JOB_TIMEOUT_S)
        assert code == 0
    return {
        "seconds": options.seconds,
        "partitions": options.partitions,
        "rollup.files": options.rollup_files,
        "scheduler": not options.no_scheduler,
        "records": len(acks_s),
        "table_version": report.table_version,
        "ack_ms": {str(q): round(float(np.percentile(acks_s, q)) * 1000, 1) for q in (50, 90, 99)},
        "live_files_max": max(files),
        "live_files_at_the_end": file_count(warehouse),
        "live_files_compacted": file_count(compacted),
        "sql_s": time_queries(warehouse, compacted, options.rounds),
        "live_files_over_time": files,
    }


def trickle(
    warehouse: Path, config: dict[str, Any], options: argparse.Namespace
) -> tuple[list[int], list[float]]:
    """Sends for as long as asked.

    Returns:
        The number of live files over time, and the seconds to each acknowledgement.
    """
    files: list[int] = []
    acks_s: list[float] = []

    def send(partition: int) -> None:
        text = "".join(random.choices("abcdefgh ", k=290))
        value = json.dumps({"id": random.getrandbits(40), "at": time.time(), "text": text})
        sent_at = time.perf_counter()

        def done(error: MainstemError | None, _: RecordMetadata) -> None:
            assert error is None, error
            acks_s.append(time.perf_counter() - sent_at)

        producer.produce(TOPIC, value.encode(), partition=partition, on_delivery=done)

    with Producer({**config, "linger.ms": 0}) as producer:
        started = looked = time.monotonic()
        turn = 0
        while (now := time.monotonic()) < started + options.seconds:
            if now < started + turn / SENDS_PER_S:
                producer.poll(min(started + turn / SENDS_PER_S - now, 0.05))
                continue
            turn += 1
            for partition in range(options.partitions):
                send(partition)
            if now - looked >= LOOK_S:
                looked = now
                files.append(file_count(warehouse))
                print(f"{now - started:.0f} s: {files[-1]} live files", file=sys.stderr)
        producer.flush()
    assert len(acks_s) == turn * options.partitions
    return files, acks_s


def file_count(warehouse: Path) -> int:
    """The data files that the topic's table has now."""
    store = LocalStore(warehouse)
    try:
        return Topics(store).open(TOPIC).state.file_count
    finally:
        store.close()


def time_queries(
    warehouse: Path, compacted: Path, rounds: int
) -> dict[str, dict[str, float | list[float]]]:
    """Each query over both tables in turns: medians without the first round, and their ratio."""
    spark = spark_session()
    found: dict[str, dict[str, float | list[float]]] = {}
    for name, query in QUERIES.items():
        times: dict[str, list[float]] = {"as_it_is": [], "compacted": []}
        for _ in range(rounds + 1):
            for which, root in (("as_it_is", warehouse), ("compacted", compacted)):
                started = time.perf_counter()
                spark.sql(query.format(table=root / "topics" / TOPIC)).collect()
                times[which].append(round(time.perf_counter() - started, 3))
        medians = {which: statistics.median(all_[1:]) for which, all_ in times.items()}
        ratio = round(medians["as_it_is"] / medians["compacted"], 2)
        found[name] = {**medians, "ratio": ratio, "first": [all_[0] for all_ in times.values()]}
    spark.stop()
    return found


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mainstem.cli", *arguments], stdout=subprocess.DEVNULL
    )


if __name__ == "__main__":
    main()
