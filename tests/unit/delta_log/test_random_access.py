"""Files for random access: parts that cannot be read, ends that are missing, and descriptors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.descriptors import descriptors_below
from tests.unit.delta_log.tables import records

from mainstem.delta_log import LocalStore, read_data_file
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import random_access
from mainstem.errors import LogDamagedError, StoreUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")

LARGE = os.urandom(1024 * 1024)


@pytest.fixture
def store(no_leaks: None, tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(tmp_path / "warehouse")
    yield opened
    opened.close()


@pytest.fixture(params=["by Arrow", "by Python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How large files are read: a system need not show descriptors as files."""
    way: str = request.param
    if way == "by Python":
        monkeypatch.setattr(random_access, "_DESCRIPTORS", "/nowhere")
    return way


def _fail_reads(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def pread(fd: int, length: int, start: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pread", pread)


def _large_data_file(store: LocalStore) -> tuple[DataFile, int]:
    """A data file of several buffers, and how many records it has."""
    count = 50_000
    file, data = encode_data_file(
        0,
        0,
        [records(count)],
        timestamp_type=CREATE_TIME,
        compression_type="none",
        now_ms=1,
    )
    store.put(file.path, data)
    return file, count


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("data", [b"", b"0123456789" * 10, LARGE], ids=["empty", "small", "large"])
def test_any_part_of_a_file_is_read(store: LocalStore, data: bytes) -> None:
    store.put("a", data)
    with store.open("a") as file:
        assert file.size() == len(data)
        file.seek(len(data) // 2)
        assert file.read(7) == data[len(data) // 2 :][:7]
        file.seek(0)
        assert file.read() == data
        assert file.read() == b""


@pytest.mark.usefixtures("way")
def test_a_file_stays_readable_when_it_is_deleted_and_its_store_closed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "warehouse")
    store.put("a", LARGE)
    file = store.open("a")
    store.delete("a")
    store.close()
    assert file.read() == LARGE
    file.close()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("data", [b"x" * 100, LARGE], ids=["small", "large"])
def test_a_file_that_nobody_closes_keeps_no_descriptor(store: LocalStore, data: bytes) -> None:
    store.put("a", data)
    before = descriptors_below(store.uri)
    for _ in range(3):
        store.open("a")
    assert descriptors_below(store.uri) == before


@pytest.mark.usefixtures("way")
def test_a_file_whose_end_is_lost_while_it_is_open_ends_there(store: LocalStore) -> None:
    """A mapped file would end the process here."""
    store.put("a", LARGE)
    with store.open("a") as file:
        os.truncate(f"{store.uri}/a", 4096)
        assert file.read() == LARGE[:4096]


@pytest.mark.parametrize("data", [b"x" * 100, LARGE], ids=["small", "large"])
def test_a_read_that_fails_is_told_to_its_reader(
    store: LocalStore, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_access, "_DESCRIPTORS", "/nowhere")
    store.put("a", data)
    with monkeypatch.context() as patch:
        _fail_reads(patch, errno.EIO)
        with store.open("a") as file, pytest.raises(OSError, match="Input/output error") as told:
            file.read()
    assert told.value.errno == errno.EIO
    assert store.read("a") == data


def test_a_read_of_arrow_that_fails_says_the_stores_error_number() -> None:
    """Of a large file, which Arrow reads by itself. Nothing is mapped at address 0."""
    with pa.OSFile("/proc/self/mem") as file, pytest.raises(OSError, match="Input/output") as told:
        file.read(10)
    assert told.value.errno == errno.EIO


@pytest.mark.usefixtures("way")
def test_a_data_file_whose_end_is_lost_while_it_is_read_is_damaged(store: LocalStore) -> None:
    file, count = _large_data_file(store)
    assert next(read_data_file(store, file, 0, count, ["value"])).num_rows > 0
    os.truncate(f"{store.uri}/{file.path}", 4096)
    with pytest.raises(LogDamagedError, match="is damaged"):
        list(read_data_file(store, file, 0, count, ["value"]))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOMEM])
def test_a_data_file_that_the_disk_cannot_read_is_an_error_of_the_store(
    store: LocalStore, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_access, "_DESCRIPTORS", "/nowhere")
    file, count = _large_data_file(store)
    with monkeypatch.context() as patch:
        _fail_reads(patch, number)
        with pytest.raises(StoreUnavailableError, match=os.strerror(number)) as told:
            list(read_data_file(store, file, 0, count, ["value"]))
    assert file.path in told.value.message
    assert sum(b.num_rows for b in read_data_file(store, file, 0, count, ["value"])) == count
