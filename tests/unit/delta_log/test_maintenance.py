"""Checkpoints and log clean-up: a table is as readable after as before, whatever fails."""

from __future__ import annotations

import gc
import os
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.faults import FaultyStore, times, unavailable, unknown
from tests.unit.delta_log.tables import append, commit, create_table, same_state

from mainstem.delta_log import LocalStore, TableState, load_table
from mainstem.delta_log.format import (
    LAST_CHECKPOINT,
    LOG,
    Register,
    checkpoint_path,
    commit_path,
    last_checkpoint_version,
    registers,
)
from mainstem.delta_log.upkeep import LiveTable, freeze_heap, maintenance, write_checkpoint
from mainstem.delta_log.upkeep.live_table import compare_checkpoint
from mainstem.errors import LogDamagedError, StoreUnavailableError


def _age_log(store: LocalStore, seconds: float) -> None:
    old = time.time() - seconds
    for info in store.list_files("_delta_log"):
        os.utime(Path(store.uri, "_delta_log", info.name), (old, old))


def _commits(store: LocalStore) -> list[int]:
    return [
        int(info.name[:20])
        for info in store.list_files("_delta_log")
        if info.name.endswith(".json")
    ]


def _table(store: LocalStore) -> TableState:
    state = create_table(store)
    for number in range(10):
        append(store, state, number % 4)
    for actions in ([Register(registers.EPOCH, 3)], [Register("mainstem/lso/1", 2)]):
        state.apply(state.version + 1, commit(store, state.version + 1, actions).actions)
    return state


def test_the_log_is_kept_for_its_retention_and_then_removed_up_to_the_checkpoint(
    store: LocalStore,
) -> None:
    state = _table(store)
    _age_log(store, 50 * 60)
    write_checkpoint(store)
    assert _commits(store) == list(range(state.version + 1))
    _age_log(store, 70 * 60)
    append(store, state, 0)
    append(store, state, 0)
    version = write_checkpoint(store)
    assert version == state.version
    assert max(_commits(store)) == version
    assert min(_commits(store)) > 0
    assert same_state(load_table(store), state)


def test_registers_survive_checkpoint_and_clean_up_and_so_does_every_record(
    store: LocalStore,
) -> None:
    state = _table(store)
    for _ in range(3):
        _age_log(store, 2 * 3600)
        write_checkpoint(store)
        append(store, state, 3)
    loaded = load_table(store)
    assert same_state(loaded, state)
    assert loaded.registers == state.registers
    assert (loaded.epoch, loaded.log_start_offset(1)) == (3, 2)
    assert [loaded.log_end_offset(p) for p in range(4)] == [9, 9, 6, 15]
    table = DeltaTable(store.uri).to_pyarrow_table()
    assert table.num_rows == 39


def test_a_checkpoint_is_durable_before_the_pointer_is_and_both_before_any_file_goes(
    store: LocalStore,
) -> None:
    """A clean-up must not outlive a loss of power that its checkpoint does not."""
    state = _table(store)
    _age_log(store, 2 * 3600)
    seen: list[tuple[str, str, int]] = []

    def watch(call: str, path: str) -> None:
        if call in ("put", "put_if_absent"):
            seen.append((call, path, len(_commits(store))))

    write_checkpoint(FaultyStore(store, after=watch))
    assert seen == [
        ("put_if_absent", checkpoint_path(state.version), state.version + 1),
        ("put_if_absent", LAST_CHECKPOINT, state.version + 1),
    ]
    assert len(_commits(store)) < state.version + 1


@pytest.mark.fault
@pytest.mark.parametrize("error", [unavailable(), unknown()])
@pytest.mark.parametrize("path", ["checkpoint.parquet", "_last_checkpoint"])
def test_a_checkpoint_that_cannot_be_made_durable_leaves_the_log_as_it_was(
    store: LocalStore, path: str, error: Exception
) -> None:
    state = _table(store)
    _age_log(store, 2 * 3600)
    faulty = FaultyStore(store, times(1, "put_if_absent", error, path))
    with pytest.raises(StoreUnavailableError):
        write_checkpoint(faulty)
    assert _commits(store) == list(range(state.version + 1))
    assert same_state(load_table(store), state)
    write_checkpoint(faulty)
    assert same_state(load_table(store), state)
    assert last_checkpoint_version(store) == state.version


@pytest.mark.fault
def test_a_clean_up_that_fails_leaves_a_table_that_can_be_read(store: LocalStore) -> None:
    state = _table(store)
    _age_log(store, 2 * 3600)
    faulty = FaultyStore(store, times(1, "delete", unavailable(), "03.json"))
    with pytest.raises(StoreUnavailableError):
        write_checkpoint(faulty)
    assert _commits(store) == list(range(3, state.version + 1))
    loaded = load_table(store)
    assert same_state(loaded, state)
    assert loaded.checkpoint_version == state.version


@pytest.mark.fault
def test_a_clean_up_that_was_killed_in_the_middle_leaves_a_table_that_can_be_read(
    store: LocalStore,
) -> None:
    state = _table(store)
    write_checkpoint(store)
    for version in (0, 1, 5, 7):  # in no order
        Path(store.uri, commit_path(version)).unlink()
        assert same_state(load_table(store), state)
    append(store, state, 0)
    assert same_state(load_table(store), state)


def test_a_frozen_heap_is_not_collected_again_and_is_freed_all_the_same(store: LocalStore) -> None:
    state = _table(store)
    try:
        freeze_heap()
        assert gc.get_freeze_count() > 10
        assert not any(found is state for found in gc.get_objects())
        held = _Held()
        seen = weakref.ref(held)
        freeze_heap()
        del held
        assert seen() is None
    finally:
        gc.unfreeze()


def test_a_cycle_that_was_frozen_is_freed_by_a_call_some_time_later_and_not_by_every_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "_thawed_at", float("-inf"))
    now_s = [1_000.0]

    def clock() -> float:
        return now_s[0]

    try:
        freeze_heap(clock)
        cycle = _Held()
        cycle.held = cycle
        seen = weakref.ref(cycle)
        freeze_heap(clock)
        del cycle
        now_s[0] += maintenance.THAW_INTERVAL_S - 1
        freeze_heap(clock)
        assert seen() is not None
        now_s[0] += 1
        freeze_heap(clock)
        assert seen() is None
        assert gc.get_freeze_count() > 10
    finally:
        gc.unfreeze()


class _Held:
    """Something that a weak reference can watch."""

    held: _Held | None = None


def _wrong(live: LiveTable, what: str) -> LiveTable:
    files, held = live.files.copy(), dict(live.registers)
    file = next(files.files())
    if what == "a file too many":
        files.remove(file.path)
    elif what == "a file too few":
        files.add(replace(file, path="partition=0/more"))
    elif what == "another size":
        files.add(replace(file, size_bytes=file.size_bytes + 1))
    elif what == "another register":
        held["mainstem/leo/0"] = Register("mainstem/leo/0", 1)
    elif what == "a register too few":
        held["mainstem/leo/9"] = Register("mainstem/leo/9", 1)
    elif what == "a register too many":
        del held["mainstem/lso/1"]
    else:
        return replace(live, metadata=replace(live.metadata, id="another"))
    return replace(live, files=files, registers=held)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(
    "what",
    [
        "a file too many",
        "a file too few",
        "another size",
        "another register",
        "a register too few",
        "a register too many",
        "another table",
    ],
)
def test_a_checkpoint_that_says_something_else_is_not_written_and_no_log_file_goes(
    store: LocalStore, what: str, second: bool
) -> None:
    state = _table(store)
    if second:
        write_checkpoint(store)
        append(store, state, 0)
    before = store.read(LAST_CHECKPOINT) if second else None
    _age_log(store, 2 * 3600)
    commits = _commits(store)
    with pytest.raises(LogDamagedError, match=r"checkpoint\.parquet has"):
        write_checkpoint(store, _wrong(LiveTable.of(state), what))
    assert _commits(store) == commits
    assert not Path(store.uri, checkpoint_path(state.version)).exists()
    if before is None:
        assert not Path(store.uri, LAST_CHECKPOINT).exists()
    else:
        assert store.read(LAST_CHECKPOINT) == before
    assert same_state(load_table(store), state)
    assert write_checkpoint(store) == state.version


@pytest.mark.parametrize("what", ["as it is", "doubled", "one twice and one not at all", "odd"])
def test_every_file_is_compared_by_its_path_and_none_counts_twice(
    store: LocalStore, what: str
) -> None:
    """Whatever the order of rows; a path of another form is compared as well as ours."""
    state = _table(store)
    if what == "odd":
        file = replace(append(store, state, 0), path="partition=0/an odd one")
        state.apply(state.version + 1, commit(store, state.version + 1, [file]).actions)
    write_checkpoint(store)
    path = checkpoint_path(state.version)
    rows = pq.read_table(pa.BufferReader(store.read(path)))
    rows = rows.replace_schema_metadata(None)  # which has the checksum
    is_file = pc.is_valid(rows.column("add"))
    files, rest = rows.filter(is_file), rows.filter(pc.invert(is_file))
    files = files.slice(1).take(list(reversed(range(len(files) - 1)))), files.slice(0, 1)
    if what == "doubled":
        files = (*files, files[1])
    elif what == "one twice and one not at all":
        files = (files[0], files[0].slice(0, 1))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables([*files, rest]), sink)
    data = sink.getvalue().to_pybytes()
    if what in ("as it is", "odd"):
        compare_checkpoint(data, path, LiveTable.of(state))
    else:
        with pytest.raises(LogDamagedError, match=r"has \d+ files where"):
            compare_checkpoint(data, path, LiveTable.of(state))


def test_a_checkpoint_is_of_the_version_that_was_asked_for_though_commits_went_on(
    store: LocalStore,
) -> None:
    state = _table(store)
    live = LiveTable.of(state)
    append(store, state, 0)
    assert write_checkpoint(store, live) == live.version == state.version - 1
    assert same_state(load_table(store), state)


@pytest.mark.parametrize(("age_ms", "missing_is_wrong"), [(2 * 86_400_000, False), (0, True)])
def test_only_a_register_that_has_expired_may_be_missing(
    store: LocalStore, age_ms: int, missing_is_wrong: bool
) -> None:
    state = _table(store)
    now_ms = time.time_ns() // 1_000_000
    live = LiveTable.of(state)
    configuration = {
        **live.metadata.configuration,
        "delta.setTransactionRetentionDuration": "interval 1 days",
    }
    metadata = replace(live.metadata, configuration=configuration)
    state.apply(state.version + 1, commit(store, state.version + 1, [metadata]).actions)
    live = LiveTable.of(state)
    held = {**live.registers, "mainstem/producer/1/0": Register("x", 1, now_ms - age_ms)}
    if missing_is_wrong:
        with pytest.raises(LogDamagedError, match="mainstem/producer/1/0"):
            write_checkpoint(store, replace(live, registers=held))
    else:
        write_checkpoint(store, replace(live, registers=held))


def test_a_checkpoint_of_another_process_is_not_taken_back_once_the_log_was_cleaned_behind_it(
    store: LocalStore,
) -> None:
    """Two processes write the same version, in other bytes; the second one cleans the log before
    the first one has read back what it put."""
    state = create_table(store)
    for _ in range(5):
        append(store, state, 0)
    old = time.time() - 7200
    for info in store.list_files(LOG):
        os.utime(Path(store.uri, LOG, info.name), (old, old))
    path = checkpoint_path(state.version)

    def another(call: str, put: str) -> None:
        if (call, put) == ("put_if_absent", path):
            data = store.read(path)
            store.delete(path)
            table = pq.read_table(pa.BufferReader(data))
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="none")
            assert sink.getvalue().to_pybytes() != data
            store.put(path, sink.getvalue().to_pybytes())
            write_checkpoint(store)

    assert write_checkpoint(FaultyStore(store, after=another)) == state.version
    assert same_state(load_table(store), state)
    assert DeltaTable(store.uri).version() == state.version
