"""Reading an object at any place takes few requests, and gives what is there."""

from __future__ import annotations

import io
import os
import random

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
