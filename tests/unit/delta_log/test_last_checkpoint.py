"""`_last_checkpoint` names the newest checkpoint, also after a kill and beside a late sleeper."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.faults import FaultyStore, unavailable
from tests.unit.delta_log.tables import append, create_table, same_state

from mainstem.delta_log import LocalStore, TableState, load_table
from mainstem.delta_log.format import LAST_CHECKPOINT, LOG, checkpoint_path, last_checkpoint_version
from mainstem.delta_log.format.last_checkpoint import NO_POINTER, TORN_POINTER, point_to_newest
from mainstem.delta_log.upkeep import LiveTable, create_checkpoint, write_checkpoint
from mainstem.errors import StoreUnavailableError


def _table(store: LocalStore, appends: int = 5) -> TableState:
    state = create_table(store)
    for number in range(appends):
        append(store, state, number % 4)
    return state


def _age_log(store: LocalStore) -> None:
    old = time.time() - 2 * 3600
    for info in store.list_files(LOG):
        os.utime(Path(store.uri, LOG, info.name), (old, old))


@pytest.mark.fault
@pytest.mark.slow
def test_a_checkpoint_may_be_killed_at_every_step_and_the_table_can_be_opened_by_all(
    store: LocalStore, tmp_path: Path
) -> None:
    state = _table(store)
    write_checkpoint(store)
    append(store, state, 0)
    _age_log(store)
    pointers: list[int] = []
    ended = False
    for steps in range(100):
        left = [steps]

        def kill(call: str, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise unavailable()

        copy = LocalStore(shutil.copytree(store.uri, tmp_path / f"copy{steps}"))
        try:
            write_checkpoint(FaultyStore(copy, kill), LiveTable.of(state))
            ended = True
        except StoreUnavailableError:
            ended = False
        assert same_state(load_table(copy), state)
        assert DeltaTable(copy.uri).version() == state.version
        pointers.append(last_checkpoint_version(copy))
        assert Path(copy.uri, checkpoint_path(pointers[-1])).exists()
        copy.close()
        if ended:
            break
    assert ended
    assert pointers == sorted(pointers)
    assert set(pointers) == {5, 6}


def _at(call: str, part: str, do: Callable[[], object]) -> Callable[[str, str], None]:
    """Does something at the first call of that name on such a path."""
    done: list[bool] = []

    def hook(name: str, path: str) -> None:
        if name == call and part in path and not done:
            done.append(True)
            do()

    return hook


@pytest.mark.fault
@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("read", "checkpoint.parquet"),
        ("put_if_absent", "checkpoint.parquet"),
        ("read", "_last_checkpoint"),
        ("put_if_absent", "_last_checkpoint"),
        ("put", "_last_checkpoint"),
    ],
)
def test_a_process_that_slept_before_it_wrote_its_checkpoint_moves_no_pointer_back(
    store: LocalStore, call: str, part: str
) -> None:
    state = _table(store)
    write_checkpoint(store)  # so that there is a pointer to replace
    append(store, state, 0)
    live = LiveTable.of(state)
    newer = load_table(store)

    def others_go_on() -> None:
        for _ in range(3):
            append(store, newer, 1)
        _age_log(store)
        write_checkpoint(store)

    sleeper = FaultyStore(store, _at(call, part, others_go_on))
    write_checkpoint(sleeper, live)
    assert last_checkpoint_version(store) == newer.version == live.version + 3
    assert same_state(load_table(store), newer)
    assert DeltaTable(store.uri).version() == newer.version


@pytest.mark.fault
def test_a_process_that_woke_up_and_was_killed_leaves_an_old_pointer_that_the_next_one_corrects(
    store: LocalStore,
) -> None:
    state = _table(store)
    live = LiveTable.of(state)
    newer = load_table(store)

    def others_go_on() -> None:
        append(store, newer, 1)
        create_checkpoint(store, LiveTable.of(newer))
        Path(store.uri, LAST_CHECKPOINT).unlink()

    def killed(call: str, path: str) -> None:
        if call == "put_if_absent" and path == LAST_CHECKPOINT:
            raise unavailable()

    sleeper = FaultyStore(store, _at("put_if_absent", "_last_checkpoint", others_go_on), killed)
    with pytest.raises(StoreUnavailableError):
        create_checkpoint(sleeper, live)
    assert last_checkpoint_version(store) == live.version
    assert DeltaTable(store.uri).version() == newer.version
    assert point_to_newest(store)
    assert last_checkpoint_version(store) == newer.version
    assert not point_to_newest(store)


@pytest.mark.fault
def test_a_process_that_slept_until_its_log_was_cleaned_writes_no_checkpoint(
    store: LocalStore,
) -> None:
    state = _table(store)
    live = LiveTable.of(state)
    append(store, state, 0)
    _age_log(store)
    assert write_checkpoint(store) == state.version
    assert write_checkpoint(store, live) == state.version
    assert not Path(store.uri, checkpoint_path(live.version)).exists()
    assert last_checkpoint_version(store) == state.version


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, NO_POINTER),
        (b"", TORN_POINTER),
        (b'{"version":', TORN_POINTER),
        (b"[]", TORN_POINTER),
        (b"7", TORN_POINTER),
        (b"\xff\xfe", TORN_POINTER),
        (b'{"size":3}', TORN_POINTER),
        (b'{"version":"3"}', TORN_POINTER),
        (b'{"version":-3}', TORN_POINTER),
        (b'{"version":true}', TORN_POINTER),
        (b'{"version":3,"size":1}', 3),
        (b'{"version":99,"size":1}', 99),
    ],
)
def test_a_pointer_of_any_content_is_made_to_name_the_newest_checkpoint(
    store: LocalStore, content: bytes | None, says: int
) -> None:
    state = _table(store)
    create_checkpoint(store, LiveTable.of(state))
    path = Path(store.uri, LAST_CHECKPOINT)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert last_checkpoint_version(store) == says
    assert point_to_newest(store)
    assert json.loads(path.read_bytes()) == {"version": 5, "size": 11}
    assert not point_to_newest(store)


def test_a_pointer_goes_where_no_checkpoint_can_be_read(store: LocalStore) -> None:
    state = _table(store)
    assert not point_to_newest(store)
    create_checkpoint(store, LiveTable.of(state))
    Path(store.uri, checkpoint_path(5)).write_bytes(b"PAR1")
    assert point_to_newest(store)
    assert not Path(store.uri, LAST_CHECKPOINT).exists()


def test_a_pointer_names_an_older_checkpoint_where_the_newest_is_damaged(
    store: LocalStore,
) -> None:
    state = _table(store)
    create_checkpoint(store, LiveTable.of(state))
    append(store, state, 0)
    create_checkpoint(store, LiveTable.of(state))
    Path(store.uri, checkpoint_path(6)).write_bytes(b"")
    assert point_to_newest(store)
    assert last_checkpoint_version(store) == 5
