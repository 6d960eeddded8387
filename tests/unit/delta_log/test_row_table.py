"""A table of rows that whoever commits first changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.delta_log.faults import FaultyStore, times, unknown

from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import Store
from mainstem.delta_log.system import RowTable
from mainstem.errors import InvalidConfigError

Row = dict[str, Any]


def table(store: Store) -> RowTable[Row]:
    return RowTable(store, "marks", operation="MARK", encode=dict, decode=dict)


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
    ours.close()
    theirs.close()


def test_rows_that_change_together_are_one_commit(store: LocalStore) -> None:
    ours = table(store)
    version = ours.opened.state.version
    ours.update(lambda _: {"a": {"n": 1}, "b": {"n": 2}})
    assert ours.opened.state.version == version + 1
    ours.close()


def test_a_change_that_gives_nothing_commits_nothing(store: LocalStore) -> None:
    ours = table(store)
    version = ours.opened.state.version
    ours.update(lambda _: {})
    ours.update(lambda _: {"a": None})
    ours.read()
    assert ours.opened.state.version == version
    ours.close()


def test_a_change_that_refuses_writes_nothing(store: LocalStore) -> None:
    ours = table(store)
    ours.update(lambda _: {"a": {"n": 1}})

    def refuse(rows: dict[str, Row]) -> dict[str, Row | None]:
        raise InvalidConfigError(f"there is {rows['a']['n']} already")

    with pytest.raises(InvalidConfigError, match="1 already"):
        ours.update(refuse)
    assert ours.read() == {"a": {"n": 1}}
    ours.close()


def test_writers_that_count_together_lose_no_step_and_leave_no_orphan(store: LocalStore) -> None:
    def count() -> None:
        ours = table(store)
        for _ in range(10):
            ours.update(lambda rows: {"n": {"n": rows.get("n", {"n": 0})["n"] + 1}})
        ours.close()

    table(store).close()
    writers = [threading.Thread(target=count) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    reader = table(store)
    assert reader.read() == {"n": {"n": 30}}
    # Each writer keeps its last replaced files for readers: less than all that were ever written.
    assert len(data_files(store)) == 30
    reader.close()


def test_replaced_files_go_some_commits_later(store: LocalStore) -> None:
    ours = table(store)
    for number in range(40):
        ours.update(lambda _, n=number: {"a": {"n": n}})  # type: ignore[misc]
    assert len(data_files(store)) == 31
    ours.close()


def test_a_commit_that_landed_and_reported_a_failure_is_one_row(store: LocalStore) -> None:
    table(store).close()
    faulty = FaultyStore(store, after=times(1, "put_if_absent", unknown()))
    ours = table(faulty)
    ours.update(lambda rows: {"a": {"n": rows.get("a", {"n": 0})["n"] + 1}})
    assert ours.read() == {"a": {"n": 1}}
    assert len(list(ours.opened.state)) == 1
    ours.close()
