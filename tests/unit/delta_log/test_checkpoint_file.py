"""What a checkpoint says: what delta-rs would write, to every reader, bit by bit, or damage."""

from __future__ import annotations

import json
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.tables import append, commit, create_table, same_state

from mainstem.delta_log import LocalStore, TableState, load_table
from mainstem.delta_log.format import (
    LOG,
    Action,
    DataFile,
    Metadata,
    Register,
    Remove,
    checkpoint_path,
    commit_path,
    registers,
)
from mainstem.delta_log.format.checkpoint_file import check_whole, read_checkpoint
from mainstem.delta_log.store import NotFound
from mainstem.delta_log.store.clocks import STEADY_CLOCK, SteadyClock
from mainstem.delta_log.upkeep import LiveTable, create_checkpoint
from mainstem.delta_log.upkeep.checkpoint_build import build_checkpoint
from mainstem.errors import LogDamagedError


def _rows(data: bytes) -> dict[str, dict[str, Any]]:
    """The actions of a checkpoint, by kind and key; without the fields that are null."""
    found: dict[str, dict[str, Any]] = {}
    for row in pq.read_table(pa.BufferReader(data)).to_pylist():
        ((kind, body),) = [(kind, body) for kind, body in row.items() if body is not None]
        key = body.get("path") or body.get("appId") or ""
        same_kind = found.setdefault(kind, {})
        assert key not in same_kind
        same_kind[key] = {
            name: sorted(value) if isinstance(value, list) else value
            for name, value in body.items()
            if value is not None and value != []
        }
    return found


def _commit(store: LocalStore, state: TableState, actions: list[Action]) -> None:
    state.apply(state.version + 1, commit(store, state.version + 1, actions).actions)


def _remove(file: DataFile, age_s: float = 0.0) -> Remove:
    removed_ms = int((time.time() - age_s) * 1000)
    return Remove(file.path, file.partition, file.size_bytes, removed_ms, data_change=False)


def _random_step(store: LocalStore, state: TableState, rng: random.Random) -> None:
    """Appends, removals, swaps, registers and settings, as a topic has them."""
    files = list(state)
    match rng.randrange(7):
        case 0 if files:
            _commit(store, state, [_remove(rng.choice(files), rng.choice((0.0, 1e6)))])
        case 1 if len(files) > 2:
            old = rng.sample(files, 2)
            merged = replace(old[0], path=f"partition=0/merged{state.version}.parquet")
            _commit(store, state, [*map(_remove, old), merged])
        case 2:
            updated_ms = rng.choice((1, int(time.time() * 1000)))
            name = registers.producer(rng.randrange(4), 0)
            _commit(store, state, [Register(name, state.version, updated_ms)])
        case 3 if len(files) > 1:  # a file that comes back, as after a restore
            _commit(store, state, [_remove(files[0])])
            _commit(store, state, [files[0]])
        case 4:
            assert state.metadata is not None
            configuration = {
                **state.metadata.configuration,
                "mainstem.retention.ms": str(rng.randrange(10**9)),
                "delta.setTransactionRetentionDuration": "interval 1 days",
                "delta.deletedFileRetentionDuration": "interval 2 hours",
            }
            metadata = state.metadata
            changed = Metadata(metadata.id, metadata.created_ms, configuration, name="näme")
            _commit(store, state, [changed])
        case _:
            append(store, state, rng.randrange(4))


@pytest.mark.parametrize("number", range(6))
def test_it_says_what_delta_rs_would_write_after_any_history(
    store: LocalStore, tmp_path: Path, seed: int, number: int
) -> None:
    rng = random.Random(seed + number)
    state = create_table(store)
    for _ in range(4):
        for _ in range(rng.randrange(1, 12)):
            _random_step(store, state, rng)
        copy = tmp_path / "copy"
        shutil.copytree(store.uri, copy)
        DeltaTable(copy).create_checkpoint()
        theirs = _rows((copy / checkpoint_path(state.version)).read_bytes())
        ours = _rows(build_checkpoint(store, state.version, STEADY_CLOCK))
        assert ours == theirs
        if rng.random() < 0.5:  # both go on from ours, and ours from theirs
            create_checkpoint(store, LiveTable.of(state))
        else:
            (copy / checkpoint_path(state.version)).rename(
                Path(store.uri, checkpoint_path(state.version))
            )
        shutil.rmtree(copy)
        loaded = load_table(store)
        assert loaded.active_files() == state.active_files()
        assert loaded.registers.items() <= state.registers.items()  # others have expired


def _cleaned_table(store: LocalStore) -> TableState:
    """A table of which there is only a checkpoint, and one commit after it."""
    state = create_table(store)
    files = [append(store, state, number % 4) for number in range(8)]
    _commit(
        store, state, [_remove(files[-1]), Register("mainstem/producer/1/0", 9, 1_800_000_000_000)]
    )
    create_checkpoint(store, LiveTable.of(state))
    version = state.version
    append(store, state, 2)
    for one in range(version + 1):
        Path(store.uri, commit_path(one)).unlink()
    return state


@pytest.mark.parametrize("pointer", [True, False])
def test_every_reader_reads_the_table_from_the_checkpoint_alone(
    store: LocalStore, pointer: bool
) -> None:
    state = _cleaned_table(store)
    if not pointer:
        Path(store.uri, LOG, "_last_checkpoint").unlink()
    table = DeltaTable(store.uri)
    assert table.version() == state.version
    assert table.transaction_version("mainstem/producer/1/0") == 9
    assert table.transaction_version("mainstem/leo/2") == state.log_end_offset(2)
    assert sorted(table.protocol().writer_features or ()) == [
        "appendOnly",
        "invariants",
        "mainstemLog",
    ]
    expected = sorted(
        (file.partition, offset)
        for file in state
        for offset in range(file.base_offset, file.last_offset + 1)
    )
    assert len(expected) == 24
    frames = [
        table.to_pyarrow_table().to_pandas(),
        polars.read_delta(store.uri).to_pandas(),
        _duckdb_rows(store.uri),
    ]
    for frame in frames:
        if frame is not None:
            found = zip(frame["partition"].tolist(), frame["offset"].tolist(), strict=True)
            assert sorted(found) == expected


def _duckdb_rows(uri: str) -> Any:
    """None where DuckDB's extension for Delta is not installed; it comes over the network."""
    try:
        duckdb.load_extension("delta")
    except duckdb.Error:
        return None
    relation = duckdb.sql(f"SELECT * FROM delta_scan('{uri}')")
    assert relation is not None
    return relation.df()


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_told(store: LocalStore) -> None:
    state = _cleaned_table(store)
    path = Path(store.uri, checkpoint_path(state.version - 1))
    whole = path.read_bytes()
    check_whole(whole, "whole")
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(LogDamagedError, match="the checkpoint x is damaged"):
            check_whole(bytes(damaged), "x")
    damaged = bytearray(whole)
    damaged[len(whole) // 3] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(LogDamagedError, match="its checksum is"):
        load_table(store)


@pytest.mark.parametrize("end", [0, 1, 4, 100, -1, -9])
def test_a_checkpoint_that_ends_early_is_damaged(store: LocalStore, end: int) -> None:
    state = _cleaned_table(store)
    whole = store.read(checkpoint_path(state.version - 1))
    with pytest.raises(LogDamagedError, match="damaged"):
        check_whole(whole[:end], "x")


def test_a_checkpoint_of_delta_rs_has_no_checksum_and_is_read(store: LocalStore) -> None:
    state = create_table(store)
    append(store, state, 0)
    DeltaTable(store.uri).create_checkpoint()
    data = store.read(checkpoint_path(state.version))
    check_whole(data, "x")
    with pytest.raises(LogDamagedError, match="damaged"):
        check_whole(data[:-1], "x")
    assert load_table(store).checkpoint_version == state.version


def test_a_parquet_file_that_is_no_checkpoint_is_damage(store: LocalStore) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(LogDamagedError, match="damaged"):
        check_whole(sink.getvalue().to_pybytes(), "x")


def test_paths_that_another_writer_has_escaped_are_the_same_files(store: LocalStore) -> None:
    state = create_table(store)
    file = append(store, state, 0)
    append(store, state, 1)
    DeltaTable(store.uri).create_checkpoint()
    path = Path(store.uri, checkpoint_path(state.version))
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        if row["add"] is not None:
            row["add"]["path"] = row["add"]["path"].replace("=", "%3D")
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    _commit(store, state, [_remove(file)])
    rows_of = _rows(build_checkpoint(store, state.version, STEADY_CLOCK))
    assert list(rows_of["add"]) == [one.path for one in state]
    assert list(rows_of["remove"]) == [file.path]


def test_what_a_clock_that_was_set_takes_for_expired_stays(store: LocalStore) -> None:
    wall_ms = int(time.time() * 1000)
    elapsed_ms = 0
    clock = SteadyClock(lambda: wall_ms, lambda: elapsed_ms)
    state = create_table(store)
    file = append(store, state, 0)
    assert state.metadata is not None
    kept = {
        **state.metadata.configuration,
        "delta.setTransactionRetentionDuration": "interval 1 days",
        "delta.deletedFileRetentionDuration": "interval 2 hours",
    }
    changed = Metadata(state.metadata.id, state.metadata.created_ms, kept)
    _commit(store, state, [changed, _remove(file), Register("mainstem/producer/1/0", 5, wall_ms)])
    wall_ms += 7 * 86_400_000
    rows = _rows(build_checkpoint(store, state.version, clock))
    assert (len(rows["remove"]), "mainstem/producer/1/0" in rows["txn"]) == (1, True)
    elapsed_ms += 7 * 86_400_000
    rows = _rows(build_checkpoint(store, state.version, clock))
    assert ("remove" in rows, "mainstem/producer/1/0" in rows["txn"]) == (False, False)


@pytest.mark.parametrize("missing", [0, 3])
def test_without_a_commit_file_there_is_no_checkpoint(store: LocalStore, missing: int) -> None:
    state = create_table(store)
    for _ in range(5):
        append(store, state, 0)
    Path(store.uri, commit_path(missing)).unlink()
    with pytest.raises(NotFound, match=commit_path(missing)):
        build_checkpoint(store, state.version, STEADY_CLOCK)
    with pytest.raises(LogDamagedError, match=r"no checkpoint was written"):
        create_checkpoint(store, LiveTable.of(state))
    assert not Path(store.uri, checkpoint_path(state.version)).exists()


def test_an_older_checkpoint_that_is_damaged_is_passed_over_while_all_commits_are_there(
    store: LocalStore,
) -> None:
    state = create_table(store)
    append(store, state, 0)
    create_checkpoint(store, LiveTable.of(state))
    path = Path(store.uri, checkpoint_path(state.version))
    path.write_bytes(path.read_bytes()[:-3])
    append(store, state, 1)
    create_checkpoint(store, LiveTable.of(state))
    assert load_table(store).checkpoint_version == state.version
    assert same_state(load_table(store), state)
    append(store, state, 1)
    Path(store.uri, checkpoint_path(state.version - 1)).unlink()
    Path(store.uri, commit_path(0)).unlink()
    with pytest.raises(LogDamagedError, match=checkpoint_path(1)):
        build_checkpoint(store, state.version, STEADY_CLOCK)


@pytest.mark.slow
def test_many_rows_are_written_and_read_in_parts(store: LocalStore) -> None:
    state = create_table(store)
    wide = [
        DataFile(f"partition=0/{number:020d}-x.parquet", 0, number, number, 1, 1, 0, 0, 0)
        for number in range(70_000)
    ]
    _commit(store, state, [*wide])
    create_checkpoint(store, LiveTable.of(state))
    with read_checkpoint(store.read(checkpoint_path(1)), "x") as parquet:
        assert parquet.metadata.num_row_groups == 2
        assert parquet.metadata.num_rows == 70_002
    _commit(store, state, [_remove(one) for one in wide[:69_000]])
    create_checkpoint(store, LiveTable.of(state))
    assert json.loads(store.read(f"{LOG}/_last_checkpoint")) == {"version": 2, "size": 70_002}
    assert load_table(store).file_count == 1_000
