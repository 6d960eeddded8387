"""A system table that several append to: every row once, whatever the store does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.faults import FaultyStore

from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import PutOutcomeUnknown
from mainstem.delta_log.system import AppendedRow, AppendedTable, Appending
from mainstem.errors import MainstemError, StoreUnavailableError

DAY_MS = 86_400_000


def rows(*names: str, time_ms: int = 1_700_000_000_000) -> Appending:
    return Appending([AppendedRow(name, {"n": name}, time_ms) for name in names])


def found(store: LocalStore) -> list[str]:
    table = AppendedTable(store, "audit", retention_ms=DAY_MS)
    return [row.key for row in table.newest_first()]


def test_rows_come_back_newest_first_with_their_times_and_other_readers_see_them(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    assert not AppendedTable.exists(store, "audit")
    table = AppendedTable(store, "audit", retention_ms=DAY_MS)
    table.append(rows("a", "b", time_ms=1_234_567_890_123))
    table.append(rows("c,\n'ü"))
    assert AppendedTable.exists(store, "audit")
    assert found(store) == ["c,\n'ü", "b", "a"]
    oldest = list(table.newest_first())[-1]
    assert (oldest.value, oldest.time_ms) == ({"n": "a"}, 1_234_567_890_123)
    assert DeltaTable(tmp_path / "system/audit").to_pyarrow_table().num_rows == 3
    store.close()


def test_two_that_append_at_the_same_time_lose_nothing_and_write_nothing_twice(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)

    def append(writer: int) -> None:
        table = AppendedTable(store, "audit", retention_ms=DAY_MS)
        for number in range(15):
            table.append(rows(f"{writer}-{number}"))

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found(store)) == sorted(f"{w}-{n}" for w in range(2) for n in range(15))
    store.close()


def landed_but_unknown(call: str, path: str) -> None:
    raise PutOutcomeUnknown("the answer was lost")


def failed_before(call: str, path: str) -> None:
    raise StoreUnavailableError("the store is away")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("call", "failing"),
    [
        ("put", failed_before),
        ("put_if_absent", failed_before),
        ("put_if_absent", landed_but_unknown),
    ],
)
def test_rows_that_are_appended_again_after_an_error_are_there_once(
    tmp_path: Path, when: str, call: str, failing: Callable[[str, str], None]
) -> None:
    inner = LocalStore(tmp_path)
    store = FaultyStore(inner)
    table = AppendedTable(store, "audit", retention_ms=DAY_MS, sleep=lambda _: None)
    table.append(rows("first"))

    def fail(made: str, path: str) -> None:
        if made == call and "system/audit" in path:
            failing(made, path)

    appending = rows("second", "third")
    setattr(store, when, fail)
    for _ in range(2):
        try:
            table.append(appending)
        except MainstemError:
            continue
        break
    setattr(store, when, lambda call, path: None)
    table.append(appending)
    assert found(inner) == ["third", "second", "first"]
    inner.close()


def test_files_without_a_young_row_go_and_the_setting_follows(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    table = AppendedTable(store, "audit", retention_ms=30 * DAY_MS)
    table.append(rows("old", time_ms=1_000_000_000_000))
    table.append(rows("young", time_ms=32_000_000_000_000))
    table.clean_up()
    assert found(store) == ["young"]
    again = AppendedTable(store, "audit", retention_ms=60 * DAY_MS)
    again.clean_up()
    again.clean_up()
    assert again.opened.state.config.retention_ms == 60 * DAY_MS
    again.append(rows("after"))
    assert found(store) == ["after", "young"]
    store.close()
