"""How long does a job take over many topics that have nothing for it to do?

Makes topics with a thousand commits each, brings them into shape with every job, and times each job
once more, as the command `mainstem job run`, with the start of its process.

Usage: python benchmarks/idle_topics.py [--topics 200] [--commits 1000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from mainstem.delta_log import LocalStore, OpenTopic, Topics
from mainstem.delta_log.files import encode_data_file
from mainstem.delta_log.format import Batch, Register, registers
from mainstem.delta_log.store import wall_clock_ms
from mainstem.delta_log.table import Committed, Committer, TableCommit
from mainstem.records import normalise_wire_batch

JOBS = ("compaction", "keyed-compaction", "retention", "vacuum", "vacuum-orphans", "log-cleanup")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--commits", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        topics = Topics(LocalStore(Path(folder)))
        for number in range(options.topics):
            topics.create(f"topic-{number}", 1, {})
            fill(topics.open(f"topic-{number}"), options.commits)
        run(folder, "compaction", "-o", "compaction.min.age.ms=0")
        for job in JOBS[1:]:
            run(folder, job)
        seconds = {job: run(folder, job) for job in JOBS}
    print(json.dumps({"topics": options.topics, "commits": options.commits, "seconds": seconds}))


def fill(opened: OpenTopic, commit_count: int) -> None:
    """Appends one record a commit to partition 0."""
    committer = Committer(opened.store)
    batch = pa.record_batch({"value": pa.array([b"x" * 100], pa.binary())})
    start = opened.state.log_end_offset(0)
    for offset in range(start, start + commit_count):
        now_ms = wall_clock_ms()
        file, data = encode_data_file(
            0,
            offset,
            [normalise_wire_batch(batch, now_ms)],
            timestamp_type=0,
            compression_type="zstd",
            now_ms=now_ms,
        )
        opened.store.put(file.path, data)
        commit = TableCommit.of(
            "APPEND",
            [file, Register(registers.leo(0), offset + 1)],
            timestamp_ms=now_ms,
            batches=[Batch(0, offset, 1)],
        )
        outcome = committer.commit(opened.state.version + 1, commit)
        assert isinstance(outcome, Committed)
        opened.state.apply(outcome.version, commit.actions)


def run(warehouse: str, job: str, *options: str) -> float:
    started = time.perf_counter()
    command = ["job", "run", job, "--warehouse", warehouse, *options]
    subprocess.run(
        [sys.executable, "-m", "mainstem.cli", *command], check=True, stdout=subprocess.DEVNULL
    )
    return round(time.perf_counter() - started, 2)


if __name__ == "__main__":
    main()
