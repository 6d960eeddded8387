"""Commits maintenance to topics ten times a second, as jobs do, until its stdin ends.

Usage: python maintenance_process.py WAREHOUSE SEED TOPIC...

Half of the commits change a setting, half swap two files that follow each other for one with the
same records. Prints, as JSON, how many of each there were, and how often another writer was first.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import uuid
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log import Committed, Committer, Conflict, ObjectStore, Topics
from mainstem.delta_log.format import Action, DataFile, Remove
from mainstem.delta_log.store import open_warehouse, wall_clock_ms
from mainstem.delta_log.table import TableCommit, TableState
from mainstem.delta_log.topics import altered_config

#: Files with more records are left alone, so that a swap stays small.
MERGED_RECORDS_MAX = 5_000

_INTERVAL_S = 0.1
_ATTEMPTS_MAX = 20


def main(warehouse: str, seed: str, topics: list[str]) -> None:
    dice = random.Random(seed)
    done: Counter[str] = Counter()
    store = open_warehouse(warehouse)
    opened = [Topics(store).open(topic) for topic in topics]
    try:
        while not select.select([sys.stdin], [], [], _INTERVAL_S)[0] or os.read(0, 1):
            index = dice.randrange(len(opened))
            one = opened[index]
            state = one.refresh()
            if dice.random() < 0.5:
                _change_setting(one.store, state, dice, done)
            else:
                _merge_files(one.store, state, dice, done)
    finally:
        store.close()
    print(json.dumps(done))


def _change_setting(
    store: ObjectStore, state: TableState, dice: random.Random, done: Counter[str]
) -> None:
    for _ in range(_ATTEMPTS_MAX):
        metadata = altered_config(state, {"retention.ms": dice.randint(1, 10**9)}, [])
        if _commit(store, state, "ALTER CONFIG", [metadata], done):
            done["settings"] += 1
            return


def _merge_files(
    store: ObjectStore, state: TableState, dice: random.Random, done: Counter[str]
) -> None:
    files = state.files(dice.randrange(state.partition_count)).sorted()
    if len(files) < 2:
        return
    first = dice.randrange(len(files) - 1)
    old = files[first : first + 2]
    if sum(file.record_count for file in old) > MERGED_RECORDS_MAX:
        return
    new = _merged(store, old)
    removes = [
        Remove(one.path, one.partition, one.size_bytes, wall_clock_ms(), False) for one in old
    ]
    for _ in range(_ATTEMPTS_MAX):
        if not all(state.is_active(one.path) for one in old):
            return  # another job was first
        if _commit(store, state, "COMPACT", [*removes, new], done):
            done["merges"] += 1
            return


def _commit(
    store: ObjectStore, state: TableState, operation: str, actions: list[Action], done: Counter[str]
) -> bool:
    """One attempt. False: another writer was first, and `state` has its commit."""
    commit = TableCommit.of(operation, actions, timestamp_ms=wall_clock_ms())
    outcome = Committer(store).commit(state.version + 1, commit)
    if isinstance(outcome, Committed):
        state.apply(outcome.version, commit.actions)
        return True
    assert isinstance(outcome, Conflict), "a local disk knows what it did"
    done["conflicts"] += 1
    state.apply(outcome.version, outcome.actions)
    return False


def _merged(store: ObjectStore, old: list[DataFile]) -> DataFile:
    tables = []
    for file in old:
        with store.open(file.path) as source:
            tables.append(pq.read_table(source, partitioning=None))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(tables), sink, store_schema=False)
    data = sink.getvalue()
    base, partition = old[0].base_offset, old[0].partition
    path = f"partition={partition}/{base:020d}-{uuid.uuid4().hex}.parquet"
    store.put(path, data)
    return DataFile(
        path,
        partition,
        base,
        old[-1].last_offset,
        sum(file.record_count for file in old),
        data.size,
        min(file.timestamp_ms_min for file in old),
        max(file.timestamp_ms_max for file in old),
        wall_clock_ms(),
        data_change=False,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
    # Threads of native libraries that still run would abort the process while it ends, at times.
    sys.stdout.flush()
    os._exit(0)
