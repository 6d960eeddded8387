"""Loading a table: what delta-rs sees, whole or not at all, also while its log is cleaned up."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.faults import FaultyStore, times, unavailable
from tests.unit.delta_log.tables import append, commit, create_table, same_state

from mainstem.delta_log import Committer, LocalStore, ObjectStore, OpenTopic, TableState, load_table
from mainstem.delta_log.format import (
    LAST_CHECKPOINT,
    Action,
    Metadata,
    Protocol,
    Register,
    Remove,
    checkpoint_path,
    commit_path,
    registers,
)
from mainstem.delta_log.store import ObjectInfo
from mainstem.delta_log.table import commit_loop as commit_loop_module
from mainstem.delta_log.table import read_commit
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import (
    LogDamagedError,
    StoreUnavailableError,
    UnknownTopicError,
    UnsupportedTableError,
)

HOURS_AGO_S = 2 * 3600


def _some_table(store: LocalStore, appends: int = 12) -> TableState:
    """Appends, a merge of two files, a changed setting, a leader and an expired register."""
    state = create_table(store)
    files = [append(store, state, number % 3) for number in range(appends)]
    assert state.metadata is not None
    merged = files[0]
    commits: list[list[Action]] = [
        [Register(registers.EPOCH, 5), Register("mainstem/producer/1/0", 9, updated_ms=1)],
        [Remove(merged.path, merged.partition, merged.size_bytes, 1, data_change=True)],
        [
            Metadata(
                state.metadata.id,
                state.metadata.created_ms,
                {**state.metadata.configuration, "mainstem.retention.ms": "5"},
                name="näme",
            )
        ],
    ]
    for actions in commits:
        one = commit(store, state.version + 1, actions)
        state.apply(state.version + 1, one.actions)
    append(store, state, 3)
    return state


def _age_log(store: LocalStore) -> None:
    """Makes every log file look as if it were older than the log's retention."""
    old = time.time() - HOURS_AGO_S
    for info in store.list_files("_delta_log"):
        os.utime(Path(store.uri, "_delta_log", info.name), (old, old))


def _assert_as_delta_rs(store: LocalStore, state: TableState) -> None:
    table = DeltaTable(store.uri)
    assert state.version == table.version()
    actions = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    theirs = {
        path: (partition, records, size, first, last, int(low.timestamp() * 1000))
        for path, partition, records, size, first, last, low in zip(
            actions["path"],
            actions["partition.partition"],
            actions["num_records"],
            actions["size_bytes"],
            actions["min.offset"],
            actions["max.offset"],
            actions["min.timestamp"],
            strict=True,
        )
    }
    assert theirs == {
        file.path: (
            file.partition,
            file.record_count,
            file.size_bytes,
            file.base_offset,
            file.last_offset,
            file.timestamp_ms_min,
        )
        for file in state
    }
    metadata = table.metadata()
    assert state.metadata is not None
    assert (state.metadata.id, state.metadata.name) == (str(metadata.id), metadata.name)
    assert state.metadata.configuration == metadata.configuration
    assert state.metadata.partition_columns == tuple(metadata.partition_columns)
    for name, register in state.registers.items():
        assert table.transaction_version(name) == register.value
    protocol = table.protocol()
    assert state.protocol is not None
    assert list(state.protocol.writer_features) == sorted(protocol.writer_features or [])


def test_a_table_is_loaded_from_its_commits_as_delta_rs_loads_it(store: LocalStore) -> None:
    state = _some_table(store)
    loaded = load_table(store)
    assert same_state(loaded, state)
    assert loaded.checkpoint_version == -1
    _assert_as_delta_rs(store, loaded)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_table_is_loaded_from_a_checkpoint_and_the_commits_after_it(
    store: LocalStore, after: int
) -> None:
    state = _some_table(store)
    version = write_checkpoint(store)
    assert version == state.version
    for _ in range(after):
        append(store, state, 1)
    loaded = load_table(store)
    assert same_state(loaded, state)
    assert loaded.checkpoint_version == version
    _assert_as_delta_rs(store, loaded)


def test_a_table_is_loaded_when_its_old_commits_have_been_cleaned_up(store: LocalStore) -> None:
    state = _some_table(store)
    _age_log(store)
    version = write_checkpoint(store)
    assert not Path(store.uri, commit_path(0)).exists()
    assert same_state(load_table(store), state)
    append(store, state, 2)
    loaded = load_table(store)
    assert same_state(loaded, state)
    assert loaded.checkpoint_version == version
    _assert_as_delta_rs(store, loaded)


def test_the_newest_of_several_checkpoints_is_used(store: LocalStore) -> None:
    state = _some_table(store)
    write_checkpoint(store)
    append(store, state, 0)
    second = write_checkpoint(store)
    append(store, state, 0)
    loaded = load_table(store)
    assert loaded.checkpoint_version == second
    assert same_state(loaded, state)


def test_what_is_no_table_is_an_unknown_topic(store: LocalStore) -> None:
    with pytest.raises(UnknownTopicError):
        load_table(store)
    store.put("_delta_log/_last_checkpoint", b"{}")
    with pytest.raises(UnknownTopicError):
        load_table(store)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: b"\0" * len(data),
    "text": lambda _: b"nonsense",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_while_all_commits_are_there(
    store: LocalStore, damage: str
) -> None:
    state = _some_table(store)
    version = write_checkpoint(store)
    append(store, state, 0)
    path = Path(store.uri, checkpoint_path(version))
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    loaded = load_table(store)
    assert same_state(loaded, state)
    assert loaded.checkpoint_version == -1


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(store: LocalStore) -> None:
    state = _some_table(store)
    _age_log(store)
    first = write_checkpoint(store)
    append(store, state, 0)
    second = write_checkpoint(store)
    Path(store.uri, checkpoint_path(second)).write_bytes(b"damaged")
    loaded = load_table(store)
    assert same_state(loaded, state)
    assert loaded.checkpoint_version == first


def test_a_damaged_checkpoint_that_nothing_replaces_is_an_error_that_names_it(
    store: LocalStore,
) -> None:
    state = _some_table(store)
    _age_log(store)
    version = write_checkpoint(store)
    append(store, state, 0)
    Path(store.uri, checkpoint_path(version)).write_bytes(b"damaged")
    with pytest.raises(LogDamagedError, match=r"checkpoint\.parquet is damaged") as caught:
        load_table(store)
    assert caught.value.facts["file"].endswith(checkpoint_path(version))


def test_a_missing_checkpoint_that_nothing_replaces_is_an_error(store: LocalStore) -> None:
    state = _some_table(store)
    _age_log(store)
    version = write_checkpoint(store)
    append(store, state, 0)
    Path(store.uri, checkpoint_path(version)).unlink()
    with pytest.raises(LogDamagedError, match=r"00000000\.json is missing"):
        load_table(store)


@pytest.mark.parametrize("missing", [0, 1, 7])
def test_a_missing_commit_in_the_middle_is_an_error_that_names_it(
    store: LocalStore, missing: int
) -> None:
    _some_table(store)
    Path(store.uri, commit_path(missing)).unlink()
    with pytest.raises(LogDamagedError, match=commit_path(missing)) as caught:
        load_table(store)
    assert caught.value.code == "LOG_DAMAGED"
    assert caught.value.facts["file"].endswith(commit_path(missing))


def test_a_torn_commit_is_an_error_that_names_it(store: LocalStore) -> None:
    _some_table(store)
    path = Path(store.uri, commit_path(3))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LogDamagedError, match=commit_path(3)):
        load_table(store)


def test_a_table_with_a_feature_that_we_do_not_know_is_refused_by_its_name(
    store: LocalStore,
) -> None:
    state = create_table(store)
    protocol = Protocol(writer_features=("appendOnly", "invariants", "mainstemLog", "futureLog"))
    commit(store, 1, [protocol])
    with pytest.raises(UnsupportedTableError, match="futureLog"):
        load_table(store)
    with pytest.raises(UnsupportedTableError, match="futureLog"):
        refresh_table(store, state)


def refresh_table(store: ObjectStore, state: TableState) -> TableState:
    """The newest state of a table of which `state` is known."""
    return OpenTopic("t", store, state).refresh()


def test_refreshing_brings_a_state_forward(store: LocalStore) -> None:
    state = _some_table(store)
    mine = load_table(store)
    for _ in range(3):
        append(store, state, 0)
    assert refresh_table(store, mine) is mine
    assert same_state(mine, state)
    assert refresh_table(store, mine) is mine
    assert same_state(mine, state)


def test_refreshing_follows_the_log_across_a_clean_up(store: LocalStore) -> None:
    state = _some_table(store)
    mine = load_table(store)
    for _ in range(3):
        append(store, state, 0)
    _age_log(store)
    write_checkpoint(store)
    assert not Path(store.uri, commit_path(mine.version + 1)).exists()
    append(store, state, 0)
    assert same_state(refresh_table(store, mine), state)


def test_refreshing_follows_the_log_when_the_clean_up_comes_in_the_middle(
    store: LocalStore,
) -> None:
    state = _some_table(store)
    mine = load_table(store)
    for _ in range(4):
        append(store, state, 0)
    next_path = commit_path(mine.version + 2)

    def clean_up(call: str, path: str) -> None:
        if (call, path) == ("read", next_path) and Path(store.uri, next_path).exists():
            _age_log(store)
            write_checkpoint(store)

    assert same_state(refresh_table(FaultyStore(store, clean_up), mine), state)


def test_refreshing_ends_beside_a_writer_that_commits_at_every_read(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_loop_module, "_CATCH_UP_MAX", 200)
    mine, theirs = _some_table(store), load_table(store)
    newest = theirs.version

    lock = threading.Lock()

    def commit_more(call: str, path: str) -> None:
        if call not in ("read", "read_range"):
            return
        with lock:
            commit(store, theirs.version + 1, [])
            theirs.apply(theirs.version + 1, read_commit(store, theirs.version + 1))

    assert refresh_table(FaultyStore(store, commit_more), mine).version > newest


def test_refreshing_from_far_away_reads_several_versions_at_a_time(store: LocalStore) -> None:
    mine, theirs = _some_table(store), load_table(store)
    for _ in range(100):
        commit(store, theirs.version + 1, [])
        theirs.apply(theirs.version + 1, read_commit(store, theirs.version + 1))
    reading, most = 0, 0
    lock = threading.Lock()

    def before(call: str, path: str) -> None:
        nonlocal reading, most
        if call == "read" and path.endswith(".json"):
            with lock:
                reading += 1
                most = max(most, reading)
            time.sleep(0.01)

    def after(call: str, path: str) -> None:
        nonlocal reading
        if call == "read" and path.endswith(".json"):
            with lock:
                reading -= 1

    assert refresh_table(FaultyStore(store, before, after), mine) is mine
    assert same_state(mine, theirs)
    assert most > 8


def test_refreshing_takes_what_lies_before_a_damaged_commit(store: LocalStore) -> None:
    mine, theirs = _some_table(store), load_table(store)
    for _ in range(20):
        commit(store, theirs.version + 1, [])
        theirs.apply(theirs.version + 1, read_commit(store, theirs.version + 1))
    Path(store.uri, commit_path(theirs.version - 3)).write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(LogDamagedError):
            refresh_table(store, mine)
        assert mine.version == theirs.version - 4


@pytest.mark.fault
def test_refreshing_from_a_store_that_fails_now_and_then_gets_further_each_time(
    store: LocalStore,
) -> None:
    mine, theirs = _some_table(store), load_table(store)
    for _ in range(20):
        commit(store, theirs.version + 1, [])
        theirs.apply(theirs.version + 1, read_commit(store, theirs.version + 1))
    path = commit_path(theirs.version - 3)
    faulty = FaultyStore(store, times(2, "read", unavailable(), path))
    with pytest.raises(StoreUnavailableError):
        refresh_table(faulty, mine)
    assert mine.version == theirs.version - 4
    assert same_state(refresh_table(faulty, mine), theirs)


def test_a_follower_finds_the_way_over_a_gap_that_other_software_has_left(
    store: LocalStore,
) -> None:
    mine, theirs = _some_table(store), load_table(store)
    commit(store, theirs.version + 1, [])
    append(store, load_table(store), 0)
    write_checkpoint(store)
    Path(store.uri, commit_path(theirs.version + 1)).unlink()
    Path(store.uri, LAST_CHECKPOINT).unlink()
    elapsed_s = 0.0
    follower = OpenTopic("t", store, mine)
    follower._committer = Committer(store, lambda: elapsed_s)
    assert follower.refresh().version == theirs.version
    elapsed_s = 601.0
    assert same_state(follower.refresh(), load_table(store))


def test_refreshing_an_idle_table_whose_log_was_cleaned_up_does_not_load_it_again(
    store: LocalStore,
) -> None:
    state = _some_table(store)
    _age_log(store)
    write_checkpoint(store)
    watched = FaultyStore(store)
    assert refresh_table(watched, state) is state
    assert ("list_files", "_delta_log") not in watched.calls


def test_refreshing_a_table_that_is_gone_is_an_unknown_topic(store: LocalStore) -> None:
    """Somebody has removed its directory."""
    state = _some_table(store)
    shutil.rmtree(f"{store.uri}/_delta_log")
    with pytest.raises(UnknownTopicError):
        refresh_table(store, state)


@pytest.mark.parametrize("at", ["list_files", "read"])
def test_a_clean_up_while_a_table_is_loaded_does_not_disturb(store: LocalStore, at: str) -> None:
    """The files that were listed are not there any more when they are to be read."""
    state = _some_table(store)
    done: list[str] = []

    def clean_up(call: str, path: str) -> None:
        if call == at and not done:
            done.append(path)
            _age_log(store)
            write_checkpoint(store)

    after = FaultyStore(store, after=clean_up)
    assert same_state(load_table(after), state)
    assert done


def test_a_log_that_is_cleaned_up_again_and_again_ends_in_an_error(store: LocalStore) -> None:
    state = _some_table(store)

    def hostile(call: str, path: str) -> None:
        if call == "list_files":
            append(store, state, 0)
            Path(store.uri, commit_path(0)).unlink(missing_ok=True)

    with pytest.raises(LogDamagedError, match="is missing"):
        load_table(FaultyStore(store, hostile))


@dataclass
class _PartialListing(FaultyStore):
    """Lists as a local file system may while files are added: a newer one, but not an older."""

    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        found = super().list_files(directory, start_after)
        return [info for info in found if not info.name.startswith(f"{5:020d}")]


def test_a_commit_that_a_listing_lacks_while_it_has_a_newer_one_is_read_all_the_same(
    store: LocalStore,
) -> None:
    state = _some_table(store)
    assert same_state(load_table(_PartialListing(store)), state)


def test_tables_are_loaded_whole_while_commits_go_on_as_fast_as_they_can(
    store: LocalStore,
) -> None:
    state = create_table(store)
    for _ in range(200):  # a listing takes several reads of the directory
        commit_register(store, state)
    stop = threading.Event()

    def write() -> None:
        for _ in range(3_000):  # or a fast disk makes a log that takes for ever to load
            if stop.is_set():
                return
            commit_register(store, state)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            before = state.version
            assert load_table(store).version >= before
    finally:
        stop.set()
        writer.join()


def commit_register(store: LocalStore, state: TableState) -> None:
    one = commit(store, state.version + 1, [Register("r", state.version)])
    state.apply(state.version + 1, one.actions)
