"""How long does a topic with many commits and files take to open?

Makes the log of a topic with `--commits` appends of one small file each (the log only: opening
reads no data file) and a checkpoint of it, then opens it: from the checkpoint, with commits after
it, and after a log clean-up.

Usage: python benchmarks/open_topic.py [--directory DIR] [--commits 50000] [--after 1000]
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
import uuid
from pathlib import Path

from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.format import (
    Batch,
    DataFile,
    Register,
    commit_path,
    encode_commit,
    registers,
)
from mainstem.delta_log.table import TableCommit
from mainstem.delta_log.upkeep import write_checkpoint

PARTITIONS = 6
RECORDS_PER_FILE = 100
START_MS = 1_700_000_000_000


def write_commits(directory: Path, first: int, count: int) -> None:
    """Commit files as the appender writes them, without a sync each."""
    for version in range(first, first + count):
        partition = version % PARTITIONS
        base_offset = (version - 1) // PARTITIONS * RECORDS_PER_FILE
        now_ms = START_MS + version * 100
        file = DataFile(
            path=f"partition={partition}/{base_offset:020d}-{uuid.uuid4().hex}.parquet",
            partition=partition,
            base_offset=base_offset,
            last_offset=base_offset + RECORDS_PER_FILE - 1,
            record_count=RECORDS_PER_FILE,
            size_bytes=10_000,
            timestamp_ms_min=now_ms - 100,
            timestamp_ms_max=now_ms,
            modified_ms=now_ms,
        )
        end = Register(registers.leo(partition), base_offset + RECORDS_PER_FILE)
        batch = Batch(partition, base_offset, RECORDS_PER_FILE)
        commit = TableCommit.of("APPEND", [file, end], timestamp_ms=now_ms, batches=[batch])
        (directory / commit_path(version)).write_bytes(encode_commit(commit.actions))


def seconds_to_open(topics: Topics, files: int) -> float:
    started = time.perf_counter()
    opened = topics.open("t")
    opened.state.files(0).sorted()
    took = time.perf_counter() - started
    assert opened.state.file_count == files
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to make the warehouse")
    parser.add_argument("--commits", type=int, default=50_000)
    parser.add_argument("--after", type=int, default=1_000, help="commits after the checkpoint")
    arguments = parser.parse_args()
    commits, after = arguments.commits, arguments.after
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="open-topic-") as root:
        store = LocalStore(root)
        topics = Topics(store)
        topics.create("t", PARTITIONS)
        directory = Path(topics.uri("t"))
        write_commits(directory, 1, commits)
        opened = topics.open("t")
        started = time.perf_counter()
        write_checkpoint(opened.store)
        checkpoint_s = time.perf_counter() - started
        figures = {
            "files": commits,
            "checkpoint_s": round(checkpoint_s, 3),
            "open_s": [round(seconds_to_open(topics, commits), 3) for _ in range(3)],
        }
        write_commits(directory, commits + 1, after)
        figures["commits_after_checkpoint"] = after
        figures["open_with_commits_after_s"] = [
            round(seconds_to_open(topics, commits + after), 3) for _ in range(3)
        ]
        for version in range(commits - 1):  # as after a log clean-up
            (directory / commit_path(version)).unlink()
        figures["open_after_clean_up_s"] = [
            round(seconds_to_open(topics, commits + after), 3) for _ in range(3)
        ]
        store.close()
    figures["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
