"""Cursors in data files: where they go on, and the files that they hold open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.descriptors import descriptors_below
from tests.unit.delta_log.tables import records

from mainstem.delta_log import LocalStore
from mainstem.delta_log.files import CREATE_TIME, data_file_reader, encode_data_file
from mainstem.delta_log.format import DataFile
from mainstem.errors import LogDamagedError
from mainstem.ingest_gateway.fetching.history import Cursor, History

pytestmark = pytest.mark.usefixtures("no_leaks")

COLUMNS = ("offset", "value")


@pytest.fixture(autouse=True)
def _in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is read whole, a cursor has all in memory."""
    monkeypatch.setattr(data_file_reader, "_WHOLE_BYTES", 64 * 1024)


@pytest.fixture
def store(no_leaks: None, tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(tmp_path / "warehouse")
    yield opened
    opened.close()


def _large_file(store: LocalStore) -> DataFile:
    """A data file that is not read as a whole when it is opened."""
    file, data = encode_data_file(
        0,
        0,
        [records(200_000)],
        timestamp_type=CREATE_TIME,
        compression_type="none",
        now_ms=1,
    )
    assert data.size > 1024 * 1024
    store.put(file.path, data)
    return file


def _open_files(store: LocalStore) -> int:
    return len(descriptors_below(store.uri))


def _step(cursor: Cursor, rows: int) -> None:
    assert cursor.peek() is not None
    cursor.advance(rows)


def _read_on(cursor: Cursor) -> int:
    """Reads up to the end of the file; returns how many records there were."""
    count = 0
    while (batch := cursor.peek()) is not None:
        count += batch.num_rows
        cursor.advance(batch.num_rows)
    return count


def test_a_cursor_that_was_kept_goes_on_where_it_stopped(store: LocalStore) -> None:
    file = _large_file(store)
    history = History()
    cursor = history.open(store, file, COLUMNS, 0)
    _step(cursor, 7)
    history.keep(cursor)
    assert history.open(store, file, COLUMNS, 7) is cursor
    batch = cursor.peek()
    assert batch is not None
    assert batch.column("value")[0].as_py() == b"7"
    cursor.close()


def test_cursors_that_are_kept_no_longer_let_go_of_their_files(store: LocalStore) -> None:
    file = _large_file(store)
    before = _open_files(store)
    history = History(cursors_max=2)
    for offset in (1, 2, 3):
        cursor = history.open(store, file, COLUMNS, 0)
        _step(cursor, offset)
        history.keep(cursor)
    assert _open_files(store) == before + 2
    again = history.open(store, file, COLUMNS, 0)
    _step(again, 3)
    history.keep(again)  # the place of one that is there already
    assert _open_files(store) == before + 2
    history.clear()
    assert _open_files(store) == before


def test_a_cursor_reads_on_when_its_file_is_deleted_and_the_store_closed(tmp_path: Path) -> None:
    """Compaction and vacuum take a file while a reader is in the middle of it."""
    store = LocalStore(tmp_path / "warehouse")
    file = _large_file(store)
    history = History()
    cursor = history.open(store, file, COLUMNS, 0)
    store.delete(file.path)
    store.close()
    assert _read_on(cursor) == 200_000
    cursor.close()


def test_a_file_that_loses_its_end_under_a_cursor_is_damaged(store: LocalStore) -> None:
    file = _large_file(store)
    history = History()
    cursor = history.open(store, file, COLUMNS, 0)
    _step(cursor, 1)
    os.truncate(f"{store.uri}/{file.path}", 4096)
    with pytest.raises(LogDamagedError, match="is damaged"):
        _read_on(cursor)
    cursor.close()


def test_a_small_file_under_a_cursor_is_in_memory_and_not_held_open(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    file = _large_file(store)
    assert file.size_bytes < 4 * 1024 * 1024
    before = _open_files(store)
    cursor = Cursor(store, file, COLUMNS, 0)
    assert _open_files(store) == before
    os.truncate(f"{store.uri}/{file.path}", 4096)
    assert _read_on(cursor) == 200_000
    cursor.close()


def test_a_file_that_is_no_data_file_leaves_nothing_open(store: LocalStore) -> None:
    file = _large_file(store)
    Path(store.uri, file.path).write_bytes(b"x" * 1024 * 1024)
    before = _open_files(store)
    with pytest.raises(LogDamagedError, match="is damaged"):
        History().open(store, file, COLUMNS, 0)
    assert _open_files(store) == before
