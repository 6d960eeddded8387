"""A disk without a free byte: what frees space works, from what was set aside for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.unit.delta_log.full_disk import fill, free_bytes, is_no_space, small_disk
from tests.unit.jobs.topic_tables import NOW_MS, appends

from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.store import AlreadyExists
from mainstem.delta_log.verify import verify_named
from mainstem.errors import StoreUnavailableError
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.jobs.vacuum import Vacuum

DAY_MS = 86_400_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as place:
        yield place


@pytest.fixture
def store(disk: Path) -> Iterator[LocalStore]:
    """A warehouse as a gateway leaves it: with a reserve."""
    opened = LocalStore(disk / "warehouse")
    opened.fill_reserve()
    yield opened
    opened.close()


def _topic(store: LocalStore, topic: str, files: int = 10, **config: object) -> None:
    """A topic with 100,000 bytes of records in each file."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    table = appends(Topics(store), topic, 1, **settings)
    for _ in range(files):
        table.append(0, [os.urandom(100_000)])


def test_a_full_disk_is_told_with_what_to_do_and_nothing_is_left_behind(
    store: LocalStore, disk: Path
) -> None:
    store.put("log/0", b"x")
    fill(disk)
    for put in (store.put, store.put_if_absent):
        with pytest.raises(StoreUnavailableError, match="is full: delete or trim a topic") as told:
            put("log/1", b"x" * 10_000)
        assert is_no_space(told.value)
        assert f"The file system at {disk} is full" in told.value.message
    assert os.listdir(f"{store.uri}/log") == ["0"]


def test_what_frees_space_is_put_on_a_full_disk_whatever_others_take_of_what_it_leaves(
    store: LocalStore, disk: Path
) -> None:
    store.put("log/0", b"x")
    for number in range(1, 6):
        fill(disk)
        store.put_if_absent(f"log/{number}", b"%d" % number * 1000, frees_space=True)
        with pytest.raises(StoreUnavailableError):
            store.put_if_absent("log/9", b"x" * 10_000)
    with pytest.raises(AlreadyExists):
        store.put_if_absent("log/1", b"again", frees_space=True)
    for number in range(1, 6):
        assert store.read(f"log/{number}") == b"%d" % number * 1000


def test_a_reserve_that_is_used_up_is_told_and_is_filled_when_there_is_space(
    store: LocalStore, disk: Path
) -> None:
    ballast = fill(disk)
    put = 0

    def put_more() -> None:
        nonlocal put
        while True:
            store.put_if_absent(f"log/{put}", b"x" * 60_000, frees_space=True)
            put += 1
            fill(disk)

    with pytest.raises(StoreUnavailableError, match="the reserve is used up"):
        put_more()
    assert put >= 6
    with pytest.raises(StoreUnavailableError, match="set space aside"):
        store.fill_reserve()
    ballast.unlink()
    store.fill_reserve()
    fill(disk)
    store.put_if_absent("log/last", b"x" * 60_000, frees_space=True)


def test_a_large_commit_takes_as_much_of_the_reserve_as_it_needs(
    store: LocalStore, disk: Path
) -> None:
    fill(disk)
    data = os.urandom(200_000)
    store.put_if_absent("log/0", data, frees_space=True)
    assert store.read("log/0") == data


def test_of_many_that_use_the_reserve_at_once_each_gets_a_part_of_its_own(
    store: LocalStore, disk: Path
) -> None:
    fill(disk)
    with ThreadPoolExecutor(6) as pool:
        list(
            pool.map(
                lambda n: store.put_if_absent(f"log/{n}", b"%d" % n * 8000, frees_space=True),
                range(6),
            )
        )
    for number in range(6):
        assert store.read(f"log/{number}") == b"%d" % number * 8000


def test_the_reserve_has_its_space_really_and_is_filled_once(store: LocalStore) -> None:
    reserve = Path(store.uri, ".reserve")
    files = sorted(reserve.iterdir())
    assert sum(file.stat().st_blocks * 512 for file in files) >= 512 * 1024
    (reserve / "left.tmp").write_bytes(b"by a process that was killed")
    before = [file.stat().st_ino for file in files]
    store.fill_reserve()
    assert sorted(reserve.iterdir()) == files
    assert [file.stat().st_ino for file in files] == before


def test_a_topic_is_deleted_on_a_full_disk_and_its_space_is_free(
    store: LocalStore, disk: Path
) -> None:
    _topic(store, "junk")
    _topic(store, "keep")
    fill(disk)
    topics = Topics(store)
    topics.delete("junk")
    assert topics.names() == ["keep"]
    assert free_bytes(disk) > 900_000
    assert verify_named(store, "keep").ok
    _topic(store, "junk", files=9)  # its log is still there


def test_a_topic_is_deleted_though_others_take_at_once_what_it_gives_back(
    store: LocalStore, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _topic(store, "junk", files=1)
    _topic(store, "keep")
    delete = LocalStore.delete

    def delete_and_fill(self: LocalStore, path: str) -> None:
        delete(self, path)
        fill(disk)

    ballast = fill(disk)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete", delete_and_fill)
        Topics(store).delete("junk")
        assert Topics(store).names() == ["keep"]
        Topics(store).delete("junk")  # what an interrupted deletion leaves is finished by the next
    ballast.unlink()
    _topic(store, "junk", files=2)
    assert verify_named(store, "junk").ok
    assert Topics(store).open("junk").state.log_end_offset(0) == 2


def test_retention_and_vacuum_free_a_full_disk(store: LocalStore, disk: Path) -> None:
    _topic(store, "t", retention_ms=1000)
    fill(disk)
    for job, days in ((Retention(), 30), (Vacuum(), 31)):
        now_ms = NOW_MS + days * DAY_MS
        (row,) = run_job(
            store.uri, job, ["t"], pool=lambda: InProcessPool(1), clock_ms=partial(int, now_ms)
        )
        assert row.outcome.kind is OutcomeKind.OK, row.outcome.error
    assert free_bytes(disk) > 900_000
    opened = Topics(store).open("t")
    assert opened.state.log_start_offset(0) == opened.state.log_end_offset(0) == 10


def test_a_warehouse_without_a_reserve_says_that_its_disk_is_full(disk: Path) -> None:
    store = LocalStore(disk / "warehouse")
    _topic(store, "junk")
    fill(disk)
    with pytest.raises(StoreUnavailableError, match="is full"):
        Topics(store).delete("junk")
    store.close()
