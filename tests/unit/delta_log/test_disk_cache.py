"""A cache on a local disk: gives what was put, within its bytes, and its disk harms nobody."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mainstem.delta_log.store import disk_cache, read_at
from mainstem.delta_log.store.disk_cache import Breaker, DiskCache, DiskCacheInUse
from mainstem.limits import KIB, MIB

Make = Callable[..., DiskCache]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[DiskCache] = []

    def make_one(bytes_max: int = MIB, clock: Callable[[], float] = time.monotonic) -> DiskCache:
        made.append(DiskCache(tmp_path / "cache", bytes_max, clock))
        return made[-1]

    yield make_one
    for cache in made:
        cache.close()


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("??/*"))


def on_disk(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in files(tmp_path))


def kept(cache: DiskCache, name: str, data: bytes) -> None:
    cache.put(name, data)
    cache.flush()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_put_is_given_and_nothing_else(make: Make, tmp_path: Path) -> None:
    cache = make()
    assert cache.get("a") is None
    for name, data in {"a": b"1", "b": b"", "odd \n/../\udcff": os.urandom(5000)}.items():
        kept(cache, name, data)
        assert cache.get(name) == data
    assert cache.get("c") is None
    counts = cache.counts
    assert (counts.hits, counts.misses, counts.failures) == (3, 2, {})
    assert counts.used_bytes == 4 * 4096
    assert all(path.stat().st_mode & 0o077 == 0 for path in files(tmp_path)), "records are private"


def test_it_outlives_the_process_and_is_cut_to_its_size(make: Make, tmp_path: Path) -> None:
    cache = make()
    for number in range(10):
        kept(cache, f"{number}", bytes([number]) * 8 * KIB)
        os.utime(files_of(cache, f"{number}"), (number, number))
    cache.close()
    (tmp_path / "cache" / "00").mkdir(exist_ok=True)
    torn = tmp_path / "cache" / "00" / f"{'0' * 32}.tmp"
    torn.write_bytes(b"torn")
    foreign = tmp_path / "cache" / "00" / "notes.txt"
    foreign.write_bytes(b"somebody else's")
    again = make(5 * 12 * KIB)
    assert again.counts.used_bytes == 5 * 12 * KIB
    given = [again.get(f"{number}") for number in range(10)]
    assert given == [None] * 5 + [bytes([number]) * 8 * KIB for number in range(5, 10)]
    assert not torn.exists()
    assert foreign.exists()


def files_of(cache: DiskCache, name: str) -> str:
    return cache._path(disk_cache._key(name))


def test_what_was_not_used_for_longest_goes_and_the_bound_holds(
    make: Make, tmp_path: Path, rng: random.Random
) -> None:
    bytes_max = 20 * 4096
    cache = make(bytes_max)
    kept(cache, "always", b"x")
    for number in range(200):
        kept(cache, f"{number}", os.urandom(rng.randrange(12_000)))
        assert on_disk(tmp_path) <= cache.counts.used_bytes <= bytes_max
        assert cache.get("always") == b"x"
    assert cache.get("0") is None
    kept(cache, "larger than all", bytes(bytes_max))
    assert cache.get("larger than all") is None
    assert cache.get("always") == b"x", "nothing made room for what does not fit"


def test_small_pieces_are_bounded_by_their_number(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "_PIECES_MAX_MIN", 10)
    cache = make()
    for number in range(30):
        kept(cache, f"{number}", b"x")
    assert len(files(tmp_path)) == 10
    assert [cache.get(f"{number}") for number in (19, 20, 29)] == [None, b"x", b"x"]


@pytest.mark.parametrize("where", ["magic", "checksum", "data", "end", "empty", "longer"])
def test_a_piece_that_has_changed_is_not_given_and_goes(
    make: Make, tmp_path: Path, where: str
) -> None:
    cache = make()
    kept(cache, "a", b"0123456789")
    path = Path(files_of(cache, "a"))
    content = bytearray(path.read_bytes())
    match where:
        case "end":
            del content[-1:]
        case "empty":
            content.clear()
        case "longer":
            content += b"x"
        case _:
            content[{"magic": 0, "checksum": 10, "data": 25}[where]] ^= 1
    path.write_bytes(content)
    assert cache.get("a") is None
    assert cache.counts.failures == {"DAMAGED": 1}
    cache.flush()
    assert not path.exists()
    assert cache.counts.used_bytes == 0
    kept(cache, "a", b"0123456789")
    assert cache.get("a") == b"0123456789"


def test_a_piece_under_another_name_is_not_given(make: Make, tmp_path: Path) -> None:
    cache = make()
    kept(cache, "a", b"of a")
    kept(cache, "b", b"of b")
    os.replace(files_of(cache, "a"), files_of(cache, "b"))
    assert cache.get("b") is None
    assert cache.get("a") is None


def test_a_directory_that_somebody_clears_is_filled_again(make: Make, tmp_path: Path) -> None:
    cache = make()
    kept(cache, "a", b"1")
    for path in files(tmp_path):
        path.unlink()
        path.parent.rmdir()
    assert cache.get("a") is None
    cache.flush()
    assert cache.counts.used_bytes == 0
    assert cache.counts.failures == {}
    kept(cache, "a", b"1")
    assert cache.get("a") == b"1"


def test_two_that_share_a_directory_are_told(make: Make, tmp_path: Path) -> None:
    cache = make()
    with pytest.raises(DiskCacheInUse, match=rf"process {os.getpid()}; give each gateway"):
        make()
    kept(cache, "a", b"1")
    assert cache.get("a") == b"1"
    cache.close()
    assert make().get("a") == b"1"


_CALLS = ("open", "rename", "unlink", "scandir", "makedirs", "pwrite", "truncate")


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_whatever_fails_costs_the_cache_alone_and_for_a_while(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    clock = Clock()
    real = getattr(os, call)
    broken = threading.Event()

    def fail(path: Any, *args: Any, **kwargs: Any) -> Any:
        if broken.is_set() and (not isinstance(path, str) or str(tmp_path) in path):
            raise OSError(code, os.strerror(code))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, call, fail)
    bytes_max = 4 * 4096
    for fails_at_start in (True, False):
        if fails_at_start:
            broken.set()
        cache = make(bytes_max, clock)
        broken.set()
        for number in range(8):
            kept(cache, f"{number}", b"x")
            assert cache.get(f"{number}") in (None, b"x")
        failures = cache.counts.failures
        assert set(failures) <= {errno.errorcode[code]}
        assert sum(failures.values()) <= 2, "it is left alone for a while"
        broken.clear()
        clock.now += 1000
        kept(cache, "later", b"y")
        kept(cache, "later", b"y")
        assert cache.get("later") == b"y"
        assert on_disk(tmp_path) <= bytes_max
        assert not [path for path in files(tmp_path) if path.suffix]
        cache.close()


def test_a_failed_lock_costs_the_cache(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    cache = make()
    kept(cache, "a", b"1")
    assert cache.get("a") is None
    assert set(cache.counts.failures) == {"ENOLCK"}


def test_a_write_that_ends_in_the_middle_leaves_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def onto_full(path: Any, *args: Any, **kwargs: Any) -> int:
        name = "/dev/full" if str(path).endswith(".tmp") else path
        return real(name, *args, **kwargs)

    cache = make()
    monkeypatch.setattr(os, "open", onto_full)
    kept(cache, "a", b"1")
    assert cache.get("a") is None
    assert cache.counts.failures == {"ENOSPC": 1}
    assert cache.counts.used_bytes == 0


def test_a_disk_that_hangs_holds_no_reader_for_long(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "_ANSWER_S", 0.1)
    clock = Clock()
    cache = make(clock=clock)
    kept(cache, "a", b"1")
    hangs = threading.Event()

    def hang(fd: int, start: int, length: int) -> bytes:
        hangs.wait(20)
        return read_at(fd, start, length)

    monkeypatch.setattr(disk_cache, "read_at", hang)
    began = time.monotonic()
    with ThreadPoolExecutor(20) as readers:
        assert not any(readers.map(lambda _: cache.get("a"), range(100)))
    assert time.monotonic() - began < 10
    assert set(cache.counts.failures) == {"SLOW"}
    before = cache.counts.failures["SLOW"]
    assert cache.get("a") is None
    assert cache.counts.failures["SLOW"] == before, "it is not asked again at once"
    hangs.set()
    clock.now += 1000
    deadline = time.monotonic() + 10
    while cache.get("a") != b"1":
        assert time.monotonic() < deadline
        clock.now += 1000


def test_writes_that_wait_for_a_slow_disk_are_bounded_and_wait_for_nobody(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make(64 * MIB)
    hangs = threading.Event()
    real = cache._write_piece

    def slow(key: bytes, data: bytes) -> None:
        hangs.wait(20)
        real(key, data)

    monkeypatch.setattr(cache, "_write_piece", slow)
    for number in range(100):
        cache.put(f"{number}", bytes(MIB))
    assert cache._writing_bytes == 32 * MIB
    hangs.set()
    cache.flush()
    assert cache._writing_bytes == 0
    assert sum(cache.get(f"{number}") is not None for number in range(100)) == 32


def test_a_closed_cache_has_nothing_and_takes_nothing(make: Make, tmp_path: Path) -> None:
    cache = make()
    kept(cache, "a", b"1")
    cache.close()
    cache.close()
    assert cache.get("a") is None
    cache.put("b", b"2")
    assert len(files(tmp_path)) == 1


def test_many_threads_get_what_was_put(make: Make, tmp_path: Path) -> None:
    cache = make(40 * 4096)

    def work(seed: int) -> int:
        dice, hits = random.Random(seed), 0
        for _ in range(300):
            number = dice.randrange(60)
            found = cache.get(f"{number}")
            if found is None:
                cache.put(f"{number}", bytes([number]) * 3000)
            else:
                hits += 1
                assert found == bytes([number]) * 3000
        return hits

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) > 0
    cache.flush()
    assert on_disk(tmp_path) <= cache.counts.used_bytes <= 40 * 4096
    assert cache.counts.used_bytes == 4096 * len(files(tmp_path))
    assert cache.counts.failures == {}


def test_what_failed_is_tried_by_one_at_a_time_after_growing_pauses() -> None:
    breaker = Breaker()
    now, pauses = 0.0, []
    assert breaker.may_begin(now)
    assert breaker.may_begin(now), "nothing has failed"
    for _ in range(12):
        breaker.failed(now)
        assert not breaker.may_begin(now)
        began = now
        while not breaker.may_begin(now):
            now += 0.5
        pauses.append(now - began)
        assert not breaker.may_begin(now), "another one tries already"
    assert pauses == [min(2.0**number, 300) for number in range(12)]
    breaker.given_up()
    assert breaker.may_begin(now)
    breaker.succeeded()
    assert breaker.is_fine
    assert breaker.may_begin(now)
    assert breaker.may_begin(now)
