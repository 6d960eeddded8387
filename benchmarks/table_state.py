"""What does the state of a table with very many files cost: memory, and time to open and to use?

Makes a table with a checkpoint of `--files` files over `--partitions` partitions and `--after`
commits behind it (the log only: no data file exists), opens it, and then does with the state what
a gateway does: applies appends and roll-ups, plans fetches, takes a copy for a checkpoint.

Usage: python benchmarks/table_state.py [--directory DIR] [--files 1000000] [--partitions 100]
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log import LocalStore, TableState, Topics
from mainstem.delta_log.format import (
    Action,
    Batch,
    DataFile,
    Register,
    Remove,
    checkpoint_path,
    commit_path,
    encode_commit,
    registers,
)
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.table import TableCommit, load_table
from mainstem.delta_log.upkeep import LiveTable

RECORDS_PER_FILE = 100
START_MS = 1_700_000_000_000
ROWS_AT_A_TIME = 64 * 1024
REMOVED_AT_A_TIME = 16

STRINGS = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", STRINGS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", STRINGS),
    ]
)
TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("createdTime", pa.int64()),
        ("configuration", STRINGS),
    ]
)
SCHEMA = pa.schema([("add", ADD), ("metaData", METADATA), ("protocol", PROTOCOL), ("txn", TXN)])


def data_file(partition: int, base_offset: int) -> DataFile:
    now_ms = START_MS + base_offset
    return DataFile(
        path=f"partition={partition}/{base_offset:020d}-{uuid.uuid4().hex}.parquet",
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + RECORDS_PER_FILE - 1,
        record_count=RECORDS_PER_FILE,
        size_bytes=10_000,
        timestamp_ms_min=now_ms - 100,
        timestamp_ms_max=now_ms,
        modified_ms=now_ms,
        tail_crc32c=base_offset & 0xFFFFFFFF,
    )


def write_checkpoint(directory: Path, state: TableState, files: int, partitions: int) -> None:
    """A checkpoint of version 0 that has `files` files more, in no order of offsets."""
    assert state.metadata is not None
    assert state.protocol is not None
    rows: list[dict[str, object]] = [state.metadata.to_json(), state.protocol.to_json()]
    rows += [
        Register(registers.leo(partition), files // partitions * RECORDS_PER_FILE).to_json()
        for partition in range(partitions)
    ]
    with pq.ParquetWriter(directory / checkpoint_path(0), SCHEMA, compression="snappy") as writer:
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
        per_partition = files // partitions
        for start in range(0, files, ROWS_AT_A_TIME):
            adds = [
                data_file(
                    number % partitions,
                    (per_partition - 1 - number // partitions) * RECORDS_PER_FILE,
                ).to_json()
                for number in range(start, min(start + ROWS_AT_A_TIME, files))
            ]
            writer.write_table(pa.Table.from_pylist(adds, SCHEMA))


def make_table(root: str, files: int, partitions: int, after: int) -> None:
    store = LocalStore(root)
    topics = Topics(store)
    topics.create("warm", 1)
    warm = topics.open("warm")
    write_checkpoint(Path(topics.uri("warm")), warm.state, 1, 1)
    topics.create("t", partitions)
    directory = Path(topics.uri("t"))
    opened = topics.open("t")
    write_checkpoint(directory, opened.state, files, partitions)
    state = load_table(opened.store)
    for number in range(after):
        commit = append(state, number, partitions)
        state.apply(number + 1, commit.actions)
        (directory / commit_path(number + 1)).write_bytes(encode_commit(commit.actions))
    store.close()


def append(state: TableState, number: int, partitions: int) -> TableCommit:
    """The commit after `state`: a file and a register, as an appender writes them."""
    partition = number % partitions
    base_offset = state.log_end_offset(partition)
    return TableCommit.of(
        "APPEND",
        [
            data_file(partition, base_offset),
            Register(registers.leo(partition), base_offset + RECORDS_PER_FILE),
        ],
        timestamp_ms=START_MS,
        batches=[Batch(partition, base_offset, RECORDS_PER_FILE)],
    )


def roll_up(state: TableState, partition: int) -> list[Action]:
    """An append that also swaps the newest files of its partition for one."""
    end = state.log_end_offset(partition)
    old = state.files(partition).between(end - REMOVED_AT_A_TIME * RECORDS_PER_FILE, end)
    actions: list[Action] = [*append(state, partition, partition + 1).actions]
    actions += [Remove(file.path, partition, file.size_bytes, 0, False) for file in old]
    return [*actions, data_file(partition, old[0].base_offset)]


def microseconds(call: Callable[[int], object], count: int) -> float:
    """The median of `count` calls."""
    took = []
    for number in range(count):
        started = time.perf_counter()
        call(number)
        took.append(time.perf_counter() - started)
    return round(statistics.median(took) * 1e6, 2)


def cost_of_use(state: TableState, partitions: int) -> dict[str, float]:
    """Microseconds of what a gateway does with a state."""
    ends = [state.log_end_offset(partition) for partition in range(partitions)]
    per_partition = state.file_count // partitions
    paths = [file.path for file in state.files(0).sorted()][-32:]
    figures = {
        "between_16_files_us": microseconds(
            lambda number: state.files(number % partitions).between(
                ends[number % partitions] // 2 + 50, ends[number % partitions] // 2 + 1600
            ),
            2000,
        ),
        "between_1_file_us": microseconds(
            lambda number: state.files(number % partitions).between(
                ends[number % partitions] - 10, ends[number % partitions]
            ),
            2000,
        ),
        "is_active_32_paths_us": microseconds(
            lambda _: all(state.is_active(path) for path in paths), 2000
        ),
    }
    commits: list[list[Action]] = []

    def apply(number: int) -> None:
        state.apply(state.version + 1, commits[number])

    appends = []
    for number in range(500):
        commits = [list(append(state, number * 7 % partitions, partitions).actions)]
        appends.append(microseconds(lambda _: apply(0), 1))
    figures["apply_append_us"] = round(statistics.median(appends), 2)
    swaps = []
    rounds = min(500, partitions * (per_partition // (REMOVED_AT_A_TIME + 2)))
    for number in range(rounds):
        commits = [roll_up(state, number * 7 % partitions)]
        swaps.append(microseconds(lambda _: apply(0), 1))
    figures["apply_append_with_16_removed_us"] = round(statistics.median(swaps), 2)
    figures["live_table_us"] = microseconds(lambda _: LiveTable.of(state), 20)
    return figures


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to make the warehouse")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--after", type=int, default=1_000, help="commits after the checkpoint")
    arguments = parser.parse_args()
    partitions = arguments.partitions
    figures: dict[str, object] = {"files": arguments.files, "partitions": partitions}
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="table-state-") as root:
        # In another process, so that its memory is not counted, nor used again.
        making = multiprocessing.get_context("spawn").Process(
            target=make_table, args=(root, arguments.files, partitions, arguments.after)
        )
        making.start()
        making.join()
        store = LocalStore(root)
        table = StoreFolder(store, "topics/t")
        warm = StoreFolder(store, "topics/warm")
        load_table(warm).files(0).sorted()  # what the first one imports
        gc.collect()
        pa.default_memory_pool().release_unused()
        without_us = microseconds(lambda _: gc.collect(), 5)
        before = resident_bytes()
        started = time.perf_counter()
        state = load_table(table)
        figures["open_s"] = round(time.perf_counter() - started, 2)
        gc.collect()
        pa.default_memory_pool().release_unused()
        resident = resident_bytes() - before
        assert state.file_count == arguments.files + arguments.after
        # Of what the files add to it: the program itself takes some milliseconds.
        with_us = microseconds(lambda _: gc.collect(), 5)
        figures["full_collection_added_ms"] = round((with_us - without_us) / 1000, 2)
        figures |= cost_of_use(state, partitions)
        del state
        gc.collect()
        tracemalloc.start()
        state = load_table(table)
        for partition in range(partitions):
            state.files(partition).between(0, 1)
        gc.collect()
        traced, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        figures["bytes_a_file_traced"] = round(traced / state.file_count, 1)
        figures["bytes_a_file_resident"] = round(resident / state.file_count, 1)
        figures["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**10
        store.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
