"""Reading an object at any place takes few requests, and gives what is there."""

from __future__ import annotations

import io
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from mainstem.delta_log.store.cloud_file import READ_AHEAD_BYTES, CloudFile

DATA = os.urandom(2 * READ_AHEAD_BYTES + 12_345)


class _Object:
    """An object that counts its requests."""

    def __init__(self, data: bytes = DATA, tail_bytes: int = 1000) -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []
        self.file = CloudFile(len(data), data[len(data) - tail_bytes :], self._range)

    def _range(self, start: int, length: int) -> bytes:
        self.requests.append((start, length))
        return self.data[start : start + length]


def test_reads_at_random_places_give_what_a_file_gives(rng: random.Random) -> None:
    there, plain = _Object(), io.BytesIO(DATA)
    for _ in range(300):
        where = rng.choice([rng.randrange(len(DATA)), len(DATA) - rng.randrange(3000)])
        length = rng.choice([0, 1, 700, 5000, READ_AHEAD_BYTES + 7, -1])
        assert there.file.seek(where) == plain.seek(where)
        assert there.file.read(length) == plain.read(length)
        assert there.file.tell() == plain.tell()
    assert there.file.seek(-10, os.SEEK_END) == len(DATA) - 10
    assert there.file.seek(4, os.SEEK_CUR) == len(DATA) - 6
    assert there.file.read(100) == DATA[-6:]
    assert there.file.read(100) == b""


def test_the_tail_needs_no_request_and_what_follows_a_read_neither() -> None:
    there = _Object()
    there.file.seek(-1000, os.SEEK_END)
    assert there.file.read() == DATA[-1000:]
    assert there.requests == []
    there.file.seek(0)
    read = b"".join(iter(lambda: there.file.read(10_000), b""))
    assert read == DATA
    assert len(there.requests) == 3


def test_an_object_that_has_become_shorter_is_read_as_far_as_it_goes() -> None:
    there = _Object()
    there.data = DATA[:5000]
    there.file.seek(4000)
    assert there.file.read(3000) == DATA[4000:5000]


def test_a_request_that_fails_is_told_to_arrow_with_its_number() -> None:
    def fail(start: int, length: int) -> bytes:
        raise FileNotFoundError(2, "gone")

    with pa.PythonFile(CloudFile(100, b"end", fail), mode="r") as file:
        assert file.size() == 100
        with pytest.raises(FileNotFoundError):
            file.read(10)


# -- reading ahead -------------------------------------------------------------------------------


class _Ahead:
    """Reads ahead in threads."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.pool = ThreadPoolExecutor(8)
        self.room = room

    def ahead(self, length: int, read: Callable[[], bytes]) -> Future[bytes] | None:
        if self.room < length:
            return None
        self.room -= length
        return self.pool.submit(read)

    def taken(self, length: int) -> None:
        self.room += length


@pytest.fixture
def ahead() -> Iterator[_Ahead]:
    made = _Ahead()
    yield made
    made.pool.shutdown()
    assert made.room == 1 << 30


LONG = os.urandom(1024) * 8 * (READ_AHEAD_BYTES // 1024) + b"end"


def test_a_file_that_is_read_on_has_several_requests_under_way_none_of_them_twice(
    ahead: _Ahead,
) -> None:
    under_way: list[int] = []
    lock = threading.Lock()
    requests: list[tuple[int, int]] = []
    most = 0

    def read_range(start: int, length: int) -> bytes:
        nonlocal most
        with lock:
            requests.append((start, length))
            under_way.append(start)
            most = max(most, len(under_way))
        time.sleep(0.02)
        with lock:
            under_way.remove(start)
        return LONG[start : start + length]

    file = CloudFile(len(LONG), LONG[-10:], read_range, ahead)
    assert b"".join(iter(lambda: file.read(300_000), b"")) == LONG
    file.close()
    assert most > 1
    assert len(requests) == len({start for start, _ in requests})
    assert sum(length for _, length in requests) < len(LONG) + 300_000


def test_reads_at_random_places_are_right_with_requests_under_way(
    ahead: _Ahead, rng: random.Random
) -> None:
    broken = {"at": -1}

    def read_range(start: int, length: int) -> bytes:
        if rng.random() < 0.1 and threading.current_thread() is not threading.main_thread():
            raise OSError(5, "a request ahead failed")
        broken["at"] = start
        return LONG[start : start + length]

    file, plain = CloudFile(len(LONG), LONG[-1000:], read_range, ahead), io.BytesIO(LONG)
    for _ in range(400):
        if rng.random() < 0.1:
            where = rng.randrange(len(LONG))
            assert file.seek(where) == plain.seek(where)
        length = rng.choice([1, 700, 200_000, READ_AHEAD_BYTES + 7, READ_AHEAD_BYTES * 2])
        assert file.read(length) == plain.read(length)
    file.close()
    file.close()


def test_a_file_read_once_or_without_room_asks_for_nothing_ahead(ahead: _Ahead) -> None:
    there = _Object(LONG)
    for one in (ahead, _Ahead(room=0)):
        there.requests.clear()
        file = CloudFile(len(LONG), LONG[-10:], there._range, one)
        file.read(1000)
        file.seek(3 * READ_AHEAD_BYTES)
        file.read(1000)
        assert len(there.requests) == 2
        file.close()
        if one is not ahead:
            one.pool.shutdown()
