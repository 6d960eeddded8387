"""Parts of objects, some of them from a disk: the object's own bytes, by few requests."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.delta_log.store import DiskCache
from mainstem.delta_log.store.cached_parts import CachedParts
from mainstem.delta_log.store.cloud_file import BLOCK_BYTES, READ_AHEAD_BYTES, CloudFile
from mainstem.delta_log.store.cloud_reader import ObjectEnd
from mainstem.limits import MIB

PATH = "topics/t/partition=0/00000000000000000000-a.parquet"
TAIL_BYTES = 1000


class Bucket:
    """Objects of one store, and what was asked of it."""

    def __init__(self, cache: DiskCache | None, data: bytes, uri: str = "s3://b") -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []
        self.ends = 0
        self.parts = CachedParts(cache, uri)

    def end(self, path: str = PATH) -> ObjectEnd:
        def read() -> ObjectEnd:
            self.ends += 1
            return len(self.data), self.data[-TAIL_BYTES:]

        return self.parts.end(path, read)

    def range(self, start: int, length: int, path: str = PATH) -> bytes:
        def read(at: int, count: int) -> bytes:
            self.requests.append((at, count))
            return self.data[at : at + count]

        return self.parts.range(path, start, length, read, len(self.data) - TAIL_BYTES)

    def open(self) -> CloudFile:
        size, tail = self.end()
        return CloudFile(size, tail, self.range)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[DiskCache]:
    made = DiskCache(tmp_path / "cache", 64 * MIB)
    yield made
    made.close()


def test_any_range_is_what_the_object_has_there(cache: DiskCache, rng: random.Random) -> None:
    data = os.urandom(3 * BLOCK_BYTES + 12_345)
    bucket = Bucket(cache, data)
    end = len(data) - TAIL_BYTES
    for _ in range(60):
        start = rng.randrange(end)
        length = min(rng.choice([1, 5000, BLOCK_BYTES, 2 * BLOCK_BYTES + 7]), end - start)
        assert bucket.range(start, length) == data[start : start + length]
        if rng.random() < 0.3:
            cache.flush()
    cache.flush()
    before = len(bucket.requests)
    assert bucket.range(0, end) == data[:end]
    assert len(bucket.requests) == before, "all of it is on the disk"
    assert all(at % BLOCK_BYTES == 0 for at, _ in bucket.requests)
    assert all(at + count <= end for at, count in bucket.requests)


def test_blocks_that_are_missing_beside_each_other_are_one_request(cache: DiskCache) -> None:
    data = os.urandom(8 * BLOCK_BYTES)
    bucket = Bucket(cache, data)
    bucket.range(3 * BLOCK_BYTES + 5, 10)
    cache.flush()
    bucket.requests.clear()
    assert bucket.range(10, 6 * BLOCK_BYTES) == data[10 : 6 * BLOCK_BYTES + 10]
    assert bucket.requests == [(0, 3 * BLOCK_BYTES), (4 * BLOCK_BYTES, 3 * BLOCK_BYTES)]


def test_a_file_that_is_read_from_front_to_back_is_asked_for_once(cache: DiskCache) -> None:
    data = os.urandom(2 * READ_AHEAD_BYTES + 54_321)
    bucket = Bucket(cache, data)
    with bucket.open() as file:
        file.seek(123)
        assert file.read(10_000) == data[123:10_123]
        assert b"".join(iter(lambda: file.read(10_000), b"")) == data[10_123:]
    asked = sum(count for _, count in bucket.requests)
    assert asked == len(data) - TAIL_BYTES, "no byte twice"
    cache.flush()
    bucket.requests.clear()
    with bucket.open() as file:
        assert file.read() == data
    assert (bucket.requests, bucket.ends) == ([], 1)


def test_another_store_has_other_objects_of_the_same_names(cache: DiskCache) -> None:
    one, other = Bucket(cache, b"1" * 5000), Bucket(cache, b"2" * 5000, "s3://another")
    for bucket in (one, other):
        assert bucket.end() == (5000, bucket.data[-TAIL_BYTES:])
        assert bucket.range(0, 10) == bucket.data[:10]
        cache.flush()
        assert bucket.range(0, 10) == bucket.data[:10]


@pytest.mark.parametrize(
    "path", ["topics/t/_delta_log/00.checkpoint.parquet", "topics/t/_delta_log/_last_checkpoint"]
)
def test_what_may_change_under_its_name_is_not_kept(cache: DiskCache, path: str) -> None:
    bucket = Bucket(cache, b"1" * 5000)
    bucket.end(path)
    bucket.range(0, 10, path)
    cache.flush()
    bucket.data = b"2" * 6000
    assert bucket.end(path) == (6000, b"2" * TAIL_BYTES)
    assert bucket.range(0, 10, path) == b"2" * 10
    assert bucket.requests == [(0, 10)] * 2, "no more than what was asked for"


def test_an_object_that_is_shorter_than_it_said_is_given_as_it_is_and_not_kept(
    cache: DiskCache,
) -> None:
    data = os.urandom(3 * BLOCK_BYTES)
    bucket = Bucket(cache, data)
    end = len(data) - TAIL_BYTES

    def short(at: int, count: int) -> bytes:
        return data[at : min(at + count, BLOCK_BYTES + 10)]

    assert bucket.parts.range(PATH, 5, end - 5, short, end) == data[5 : BLOCK_BYTES + 10]
    cache.flush()
    assert bucket.range(0, end) == data[:end]


def test_an_error_of_the_store_is_the_readers(cache: DiskCache) -> None:
    def fail(at: int, count: int) -> bytes:
        raise OSError(5, "the store failed")

    with pytest.raises(OSError, match="the store failed"):
        CachedParts(cache, "s3://b").range(PATH, 0, 10, fail, 100)


def test_without_a_cache_nothing_else_is_asked_for() -> None:
    bucket = Bucket(None, os.urandom(5000))
    assert bucket.range(17, 30) == bucket.data[17:47]
    assert bucket.requests == [(17, 30)]
    assert bucket.end() == (5000, bucket.data[-TAIL_BYTES:])
