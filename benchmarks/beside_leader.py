"""Does a job get its commit in beside a leader that hardly pauses, and what does the leader notice?

    python benchmarks/beside_leader.py [--files 10000 50000] [--intervals 0 10] [--seconds 12]

A process appends to a topic, one commit after the other at the interval (ms). Beside it a merge of
so many files is committed, as compaction commits it. Only the log is written: no data files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mainstem.delta_log.format import DataFile, Register, registers
from mainstem.delta_log.store import LocalStore, wall_clock_ms
from mainstem.delta_log.table import (
    Committer,
    OpenTopic,
    TableCommit,
    TableState,
    commit_beside_leader,
    replace_files,
)
from mainstem.delta_log.topics import Topics
from mainstem.errors import MainstemError

WARM_UP_S = 3.0


def data_file(number: int) -> DataFile:
    now_ms = wall_clock_ms()
    path = f"partition=0/{number:020d}-{number:032x}.parquet"
    return DataFile(path, 0, number, number, 1, 1_000, now_ms, now_ms, now_ms)


def lead(warehouse: Path, interval_s: float, seconds: float) -> None:
    """Appends, and prints the times of its commits."""
    opened = Topics(LocalStore(warehouse)).open("t")
    offset = opened.state.log_end_offset(0)

    def build(state: TableState) -> TableCommit:
        return TableCommit.of(
            "APPEND",
            [data_file(offset), Register(registers.leo(0), offset + 1)],
            timestamp_ms=wall_clock_ms(),
        )

    times: list[float] = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        began = time.monotonic()
        commit_beside_leader(opened, build)
        offset += 1
        times.append(time.time())
        time.sleep(max(interval_s - (time.monotonic() - began), 0.0))
    print(json.dumps(times))


def measure(files: int, interval_ms: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        topics = Topics(LocalStore(directory))
        topics.create("t", 1)
        opened = topics.open("t")
        merged = [data_file(number) for number in range(files)]
        first = TableCommit.of(
            "APPEND",
            [*merged, Register(registers.leo(0), files)],
            timestamp_ms=wall_clock_ms(),
        )
        Committer(opened.store).commit(1, first)
        leader = subprocess.Popen(
            [sys.executable, __file__, "--lead", directory, str(interval_ms / 1000), str(seconds)],
            stdout=subprocess.PIPE,
        )
        time.sleep(WARM_UP_S)
        opened = topics.open("t")
        began = time.time()
        print(f"{files} files, interval {interval_ms} ms: {merge(opened, merged)}", end="")
        ended = time.time()
        out, _ = leader.communicate(timeout=4 * seconds)
        times = json.loads(out)
        while_s = ended - began
        before = sum(began - 1.0 <= at < began for at in times)
        meanwhile = sum(began <= at < ended for at in times) / while_s
        print(f", {while_s:.2f} s; the leader made {before} commits/s before, {meanwhile:.0f} then")


def merge(opened: OpenTopic, files: list[DataFile]) -> str:
    def build(state: TableState) -> TableCommit:
        actions = replace_files(state, files, now_ms=wall_clock_ms(), data_change=False)
        return TableCommit.of(
            "COMPACT", actions, timestamp_ms=wall_clock_ms(), survives_appends=True
        )

    try:
        landed = commit_beside_leader(opened, build)
    except MainstemError as error:
        return f"lost ({error.code})"
    assert landed is not None
    return f"landed with attempt {landed.attempts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--intervals", type=int, nargs="+", default=[0, 10])
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--lead", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.lead is not None:
        lead(Path(given.lead[0]), float(given.lead[1]), float(given.lead[2]))
        return
    for files in given.files:
        for interval_ms in given.intervals:
            measure(files, interval_ms, given.seconds)


if __name__ == "__main__":
    main()
