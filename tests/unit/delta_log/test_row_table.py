"""A table of rows that the first writer to commit changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.delta_log.faults import FaultyStore, times, unavailable, unknown

from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import ObjectStore, time_elapsed_ms
from mainstem.delta_log.system import RowTable
from mainstem.errors import InvalidConfigError, LogDamagedError

Row = dict[str, Any]


def table(store: ObjectStore, elapsed_ms: Callable[[], int] = time_elapsed_ms) -> RowTable[Row]:
    return RowTable(
        store, "marks", operation="MARK", encode=dict, decode=dict, elapsed_ms=elapsed_ms
    )


def data_files(store: LocalStore) -> list[Path]:
    return list(Path(store.uri, "system", "marks").glob("partition=0/*.parquet"))


def test_the_newest_row_of_each_key_is_read_by_another_table(store: LocalStore) -> None:
    ours, theirs = table(store), table(store)
    ours.update(lambda _: {"a": {"n": 1}, "b": {"n": 2}})
    ours.update(lambda _: {"a": {"n": 3}})
    assert theirs.read() == {"a": {"n": 3}, "b": {"n": 2}}
    theirs.update(lambda _: {"b": None})
    assert ours.read() == {"a": {"n": 3}}
    assert len(list(ours.opened.state)) == 1, "each live row is one live file"


def test_rows_that_change_together_are_one_commit(store: LocalStore) -> None:
    ours = table(store)
    version = ours.opened.state.version
    ours.update(lambda _: {"a": {"n": 1}, "b": {"n": 2}})
    assert ours.opened.state.version == version + 1


def test_a_change_that_gives_nothing_commits_nothing(store: LocalStore) -> None:
    ours = table(store)
    version = ours.opened.state.version
    ours.update(lambda _: {})
    ours.update(lambda _: {"a": None})
    ours.read()
    assert ours.opened.state.version == version


def test_a_change_that_refuses_writes_nothing(store: LocalStore) -> None:
    ours = table(store)
    ours.update(lambda _: {"a": {"n": 1}})

    def refuse(rows: dict[str, Row]) -> dict[str, Row | None]:
        raise InvalidConfigError(f"there is {rows['a']['n']} already")

    with pytest.raises(InvalidConfigError, match="1 already"):
        ours.update(refuse)
    assert ours.read() == {"a": {"n": 1}}


def test_writers_that_count_together_lose_no_step_and_leave_no_orphan(store: LocalStore) -> None:
    def count() -> None:
        ours = table(store)
        for _ in range(10):
            ours.update(lambda rows: {"n": {"n": rows.get("n", {"n": 0})["n"] + 1}})

    writers = [threading.Thread(target=count) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    reader = table(store)
    assert reader.read() == {"n": {"n": 30}}
    assert len(data_files(store)) == 30, "a file each, for readers of versions before"


def test_replaced_files_stay_for_ten_minutes_however_many_commits_follow(store: LocalStore) -> None:
    now_ms = 1_000

    def change(number: int) -> None:
        ours.update(lambda _: {"a": {"n": number}})

    ours = table(store, lambda: now_ms)
    for number in range(40):
        change(number)
    assert len(data_files(store)) == 40
    now_ms += 599_000
    change(40)
    assert len(data_files(store)) == 41
    now_ms += 1_000
    change(41)
    assert len(data_files(store)) == 3, "the live one, and two that were replaced just now"
    assert ours.read() == {"a": {"n": 41}}


def test_a_replaced_file_that_cannot_be_deleted_fails_no_change(store: LocalStore) -> None:
    now_ms = 1_000
    faulty = FaultyStore(store, times(1, "delete", unavailable(), ".parquet"))
    ours = table(faulty, lambda: now_ms)
    for number in range(3):
        ours.update(lambda _, n=number: {"a": {"n": n}})  # type: ignore[misc]
        now_ms += 600_000
    assert ours.read() == {"a": {"n": 2}}


def test_a_reader_that_slept_until_its_files_were_deleted_reads_the_newest(
    store: LocalStore,
) -> None:
    ours = table(store)
    ours.update(lambda _: {"a": {"n": 1}})
    (first,) = data_files(store)

    def replace_it(call: str, path: str) -> None:
        if call == "open" and Path(path).name == first.name and first.exists():
            ours.update(lambda _: {"a": {"n": 2}})
            first.unlink()

    theirs = table(FaultyStore(store, replace_it))
    assert theirs.read() == {"a": {"n": 2}}


def test_a_live_file_that_is_lost_is_damage_and_named(store: LocalStore) -> None:
    ours = table(store)
    ours.update(lambda _: {"a": {"n": 1}})
    (path,) = data_files(store)
    path.unlink()
    theirs = table(store)
    with pytest.raises(LogDamagedError, match=path.name):
        theirs.read()


def test_a_commit_that_landed_and_reported_a_failure_is_one_row(store: LocalStore) -> None:
    faulty = FaultyStore(store, after=times(1, "put_if_absent", unknown()))
    ours = table(faulty)
    ours.update(lambda rows: {"a": {"n": rows.get("a", {"n": 0})["n"] + 1}})
    assert ours.read() == {"a": {"n": 1}}
    assert len(list(ours.opened.state)) == 1
