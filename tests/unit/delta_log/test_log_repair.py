"""A damaged newest checkpoint, or a pointer to none, is mended from the commit files or is told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import polars
import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.faults import FaultyStore, unavailable
from tests.unit.delta_log.tables import append, create_table, same_state

from mainstem.delta_log import LocalStore, TableState, load_table
from mainstem.delta_log.format import (
    LAST_CHECKPOINT,
    LOG,
    LogFiles,
    checkpoint_path,
    commit_path,
    last_checkpoint_version,
)
from mainstem.delta_log.upkeep import (
    LiveTable,
    clean_log,
    create_checkpoint,
    pointer_fault,
    repair_log,
)
from mainstem.delta_log.upkeep.log_repair import damaged_checkpoints
from mainstem.delta_log.verify import verify_topic
from mainstem.errors import LogDamagedError, StoreUnavailableError


def _table(store: LocalStore) -> TableState:
    """Versions 0 to 9 with a checkpoint of 3 and one of 7, which is the newest."""
    state = create_table(store)
    while state.version < 9:
        append(store, state, state.version % 4)
        if state.version in (3, 7):
            create_checkpoint(store, LiveTable.of(state))
    return state


def _write(path: str, data: bytes) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / path).write_bytes(data)

    return write


def _remove(path: str) -> Callable[[Path], None]:
    return lambda root: (root / path).unlink()


def _cut(path: str) -> Callable[[Path], None]:
    def cut(root: Path) -> None:
        data = (root / path).read_bytes()
        (root / path).write_bytes(data[: len(data) // 2])

    return cut


def _flip(path: str) -> Callable[[Path], None]:
    def flip(root: Path) -> None:
        data = bytearray((root / path).read_bytes())
        data[len(data) // 3] ^= 1
        (root / path).write_bytes(data)

    return flip


NEWEST = checkpoint_path(7)

#: What happens to a log, and whether `cluster verify` says so: the rest is as Delta allows it.
DAMAGES: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "the newest checkpoint is cut": (_cut(NEWEST), "CHECKPOINT_DAMAGED"),
    "the newest checkpoint is empty": (_write(NEWEST, b""), "CHECKPOINT_DAMAGED"),
    "the newest checkpoint has a flipped bit": (_flip(NEWEST), "CHECKPOINT_DAMAGED"),
    "the newest checkpoint is gone": (_remove(NEWEST), "POINTER_WRONG"),
    "the pointer is empty": (_write(LAST_CHECKPOINT, b""), "POINTER_WRONG"),
    "the pointer is cut": (_cut(LAST_CHECKPOINT), "POINTER_WRONG"),
    "the pointer is ahead of the log": (
        _write(LAST_CHECKPOINT, b'{"version":99,"size":5}'),
        "POINTER_WRONG",
    ),
    "the pointer names a version without checkpoint": (
        _write(LAST_CHECKPOINT, b'{"version":5,"size":5}'),
        "POINTER_WRONG",
    ),
    "the pointer is gone": (_remove(LAST_CHECKPOINT), None),
    "the pointer is old": (_write(LAST_CHECKPOINT, b'{"version":3,"size":5}'), None),
}


@pytest.mark.fault
@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("what", DAMAGES)
def test_what_readers_stumble_over_is_told_and_mended(
    store: LocalStore, what: str, cleaned: bool
) -> None:
    state = _table(store)
    if cleaned:  # what is before the older checkpoint is gone
        old = time.time() - 7200
        for version in range(4):
            os.utime(Path(store.uri, commit_path(version)), (old, old))
        clean_log(store, 3_600_000)
        assert min(LogFiles.of(store).commits) == 3
    damage, code = DAMAGES[what]
    damage(Path(store.uri))
    found = [finding.code for finding in verify_topic(store, "t").findings if finding.code in CODES]
    assert found == ([] if code is None else [code])
    assert repair_log(store)
    assert repair_log(store) == []
    assert not [one for one in verify_topic(store, "t").findings if one.code in CODES]
    newest = 3 if what == "the newest checkpoint is gone" else 7
    assert last_checkpoint_version(store) == newest
    assert same_state(load_table(store), state)
    assert load_table(store).checkpoint_version == newest
    assert DeltaTable(store.uri).version() == state.version
    assert polars.read_delta(store.uri).height == 27
    create_checkpoint(store, LiveTable.of(state))
    assert load_table(store).checkpoint_version == state.version


CODES = ("CHECKPOINT_DAMAGED", "POINTER_WRONG")


@pytest.mark.fault
@pytest.mark.parametrize("what", ["cut", "empty", "gone"])
def test_where_the_commit_files_are_gone_the_checkpoint_is_named_and_nothing_shorter_is_served(
    store: LocalStore, what: str
) -> None:
    _table(store)
    for version in range(7):
        Path(store.uri, commit_path(version)).unlink()
    Path(store.uri, checkpoint_path(3)).unlink()
    DAMAGES[f"the newest checkpoint is {what}"][0](Path(store.uri))
    before = {path.name for path in Path(store.uri, LOG).iterdir()}
    for attempt in (load_table, repair_log):
        with pytest.raises(LogDamagedError, match=checkpoint_path(7)) as caught:
            attempt(store)
        assert caught.value.facts["file"].endswith(checkpoint_path(7))
    assert {path.name for path in Path(store.uri, LOG).iterdir()} == before


def test_a_log_that_is_right_is_left_alone(store: LocalStore) -> None:
    _table(store)
    watched = FaultyStore(store)
    assert repair_log(watched) == []
    assert not {call for call, _ in watched.calls} & {"put", "put_if_absent", "delete"}
    assert pointer_fault(store) is None
    assert damaged_checkpoints(store, LogFiles.of(store)) == []


@pytest.mark.fault
def test_a_checkpoint_that_the_store_cannot_read_is_not_damaged(store: LocalStore) -> None:
    _table(store)

    def away(call: str, path: str) -> None:
        if call == "read" and path == checkpoint_path(7):
            raise unavailable()

    with pytest.raises(StoreUnavailableError):
        repair_log(FaultyStore(store, away))
    assert repair_log(store) == []


@pytest.mark.fault
def test_a_checkpoint_that_another_mends_at_the_same_time_is_whole_afterwards(
    store: LocalStore,
) -> None:
    """Never deleted: the other may have removed the commit files before it."""
    state = _table(store)
    DAMAGES["the newest checkpoint is cut"][0](Path(store.uri))
    others: list[bool] = []

    def other(call: str, path: str) -> None:
        if call == "put" and path == checkpoint_path(7) and not others:
            others.append(True)
            repair_log(store)
            for version in range(7):
                Path(store.uri, commit_path(version)).unlink()

    assert repair_log(FaultyStore(store, other))
    assert same_state(load_table(store), state)
