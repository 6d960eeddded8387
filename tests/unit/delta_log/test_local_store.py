"""`LocalStore`: put if absent, durability, bound directories, and a disk that fails."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import AlreadyExists, NotFound, PutOutcomeUnknown
from mainstem.errors import StoreUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def store(no_leaks: None, tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(tmp_path / "warehouse")
    yield opened
    opened.close()


def _try_to_put(root: str, worker: int, start: Callable[[], object], round_count: int) -> list[int]:
    """Tries to win each round; returns the rounds that were won."""
    store = LocalStore(root)
    won = []
    start()
    for number in range(round_count):
        try:
            store.put_if_absent(f"log/{number}", f"{worker}".encode() * 10_000)
            won.append(number)
        except AlreadyExists:
            pass
    store.close()
    return won


_PROCESS = """
import sys
from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import AlreadyExists
root, worker, round_count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = LocalStore(root)
print("ready", flush=True)
sys.stdin.readline()
for number in range(round_count):
    try:
        store.put_if_absent(f"log/{number}", worker.encode() * 10_000)
        print(number)
    except AlreadyExists:
        pass
"""


def test_of_many_threads_that_put_the_same_name_exactly_one_wins(store: LocalStore) -> None:
    rounds, workers = 20, 8
    barrier = threading.Barrier(workers)
    with ThreadPoolExecutor(workers) as pool:
        won = list(
            pool.map(
                lambda worker: _try_to_put(store.uri, worker, barrier.wait, rounds), range(workers)
            )
        )
    assert sorted(number for rounds_won in won for number in rounds_won) == list(range(rounds))
    for worker, rounds_won in enumerate(won):
        for number in rounds_won:
            assert store.read(f"log/{number}") == f"{worker}".encode() * 10_000


def test_of_many_processes_that_put_the_same_name_exactly_one_wins(store: LocalStore) -> None:
    rounds, workers = 50, 3
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, store.uri, str(worker), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for worker in range(workers)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [
        [int(number) for number in process.communicate(timeout=60)[0].split()]
        for process in processes
    ]
    assert sorted(number for numbers in won for number in numbers) == list(range(rounds))
    for worker, numbers in enumerate(won):
        for number in numbers:
            assert store.read(f"log/{number}") == f"{worker}".encode() * 10_000


def test_a_reader_never_sees_a_part_of_a_file_that_is_put(store: LocalStore) -> None:
    data = os.urandom(4 * 1024 * 1024)
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            infos = store.list_files("log")
            seen.extend(len(store.read(f"log/{info.name}")) for info in infos)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20):
        store.put_if_absent(f"log/{number:03d}", data)
    done.set()
    reader.join()
    assert seen
    assert set(seen) == {len(data)}


def test_a_second_put_of_the_same_name_changes_nothing(store: LocalStore) -> None:
    store.put_if_absent("log/0", b"first")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("log/0", b"second")
    assert store.read("log/0") == b"first"


def test_nothing_is_left_beside_the_file_after_a_put_that_won_or_lost(store: LocalStore) -> None:
    store.put_if_absent("log/0", b"first")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("log/0", b"second")
    assert os.listdir(f"{store.uri}/log") == ["0"]


def test_the_left_overs_of_a_crash_are_not_listed(store: LocalStore, tmp_path: Path) -> None:
    store.put_if_absent("log/0", b"x")
    Path(store.uri, "log", f".{uuid.uuid4().hex}.tmp").write_bytes(b"half")
    assert [info.name for info in store.list_files("log")] == ["0"]


def test_a_listing_is_sorted_and_begins_after_the_given_name(store: LocalStore) -> None:
    for name in ("b", "a", "d", "c"):
        store.put(f"log/{name}", name.encode())
    store.put("log/below/x", b"")
    assert [info.name for info in store.list_files("log", "b")] == ["c", "d"]
    assert [info.size_bytes for info in store.list_files("log")] == [1, 1, 1, 1]
    assert store.list_directories("log") == ["below"]
    assert store.list_files("nothing") == []
    assert store.list_directories("nothing") == []


class _Spy:
    """Records what reaches the disk, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        fsync, link = os.fsync, os.link

        def spied_fsync(fd: int) -> None:
            self.events.append(f"fsync {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")
            fsync(fd)

        def spied_link(source: str, target: str, **options: object) -> None:
            self.events.append(f"link {os.path.basename(target)}")
            link(source, target, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "fsync", spied_fsync)
        monkeypatch.setattr(os, "link", spied_link)


def test_a_put_syncs_the_file_before_the_link_and_the_directory_after_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/0", b"x")
    spy = _Spy(monkeypatch)
    store.put_if_absent("log/1", b"x")
    assert len(spy.events) == 3
    assert spy.events[0].endswith(".tmp")
    assert spy.events[1:] == ["link 1", "fsync log"]


def test_a_data_file_is_synced_before_its_directory(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("partition=0/a", b"x")
    spy = _Spy(monkeypatch)
    store.put("partition=0/b", b"x")
    assert spy.events == ["fsync b", "fsync partition=0"]


def test_the_first_file_in_a_directory_makes_the_names_of_all_directories_above_durable(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that a process made that crashed before it could sync them."""
    Path(store.uri, "topics/t").mkdir(parents=True)
    spy = _Spy(monkeypatch)
    store.put("topics/t/f", b"x")
    assert spy.events == ["fsync f", "fsync t", "fsync topics", "fsync warehouse"]


def test_a_directory_that_is_made_again_is_made_durable_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a/f", b"x")
    shutil.rmtree(f"{store.uri}/a")
    spy = _Spy(monkeypatch)
    store.put("a/f", b"x")
    assert "fsync warehouse" in spy.events


def test_make_durable_syncs_the_file_and_its_directory(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("log/0", b"x")
    spy = _Spy(monkeypatch)
    store.make_durable("log/0")
    assert spy.events == ["fsync 0", "fsync log"]
    with pytest.raises(NotFound):
        store.make_durable("log/1")


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("log/0", b"x")
    write = os.write

    def full(fd: int, data: memoryview) -> int:
        if len(data) > 10:
            return write(fd, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StoreUnavailableError, match="No space left on device; nothing was"):
            store.put_if_absent("log/1", b"x" * 100)
        with pytest.raises(StoreUnavailableError, match="No space left on device"):
            store.put("log/2", b"x" * 100)
    assert os.listdir(f"{store.uri}/log") == ["0"]
    store.put_if_absent("log/1", b"x" * 100)


def test_too_many_open_files_is_an_error_that_says_how_many_there_may_be(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("log/0", b"x")

    def none_left(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", none_left)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        said = f"may have {soft} files and connections open: raise that with `ulimit -n`"
        with pytest.raises(StoreUnavailableError, match=said) as caught:
            store.put("log/1", b"x")
    assert caught.value.facts["errno"] == "EMFILE"


def test_short_writes_are_continued(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    data = os.urandom(1000)
    monkeypatch.setattr(os, "write", lambda fd, view: write(fd, view[:7]))
    store.put_if_absent("log/1", data)
    assert store.read("log/1") == data


def test_a_file_that_cannot_be_synced_is_not_linked(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(StoreUnavailableError):
            store.put_if_absent("log/1", b"x")
    with pytest.raises(NotFound):
        store.read("log/1")


def test_an_error_of_the_link_leaves_the_outcome_unknown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*paths: str, **options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", broken)
    with pytest.raises(PutOutcomeUnknown, match="Input/output error"):
        store.put_if_absent("log/1", b"x")
    assert os.listdir(f"{store.uri}/log") == []


def test_an_error_of_the_sync_of_the_directory_leaves_the_outcome_unknown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("log/0", b"x")
    fsync = os.fsync

    def broken(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(PutOutcomeUnknown, match="may be lost with the next loss of power"):
            store.put_if_absent("log/1", b"x")
    assert store.read("log/1") == b"x"


def test_a_listing_that_the_disk_fails_is_a_store_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("log/0", b"x")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(StoreUnavailableError, match="list"):
        store.list_files("log")


def test_a_missing_file_is_not_found_by_read_and_open(store: LocalStore) -> None:
    for call in (store.read, store.open):
        with pytest.raises(NotFound):
            call("log/0")
    store.put("a", b"")
    with pytest.raises(NotFound):
        store.read("a/b")
    store.delete("log/0")


def test_open_reads_whole_and_empty_files(store: LocalStore) -> None:
    store.put("full", b"0123456789")
    store.put("empty", b"")
    with store.open("full") as file:
        file.seek(4)
        assert file.read(3) == b"456"
        assert file.size() == 10
    with store.open("empty") as file:
        assert file.read() == b""


def test_a_range_is_cut_where_the_file_ends(store: LocalStore) -> None:
    store.put("a", b"0123456789")
    assert store.read_range("a", 0, 4) == b"0123"
    assert store.read_range("a", 8, 4) == b"89"
    assert store.read_range("a", 0, 10) == b"0123456789"
    assert store.read_range("a", 10, 1) == b""
    assert store.read_range("a", 99, 1) == b""
    assert store.read_range("a", 3, 0) == b""


def test_a_range_that_the_disk_gives_in_pieces_is_put_together(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = os.pread
    store.put("a", b"0123456789")
    monkeypatch.setattr(os, "pread", lambda fd, length, start: pread(fd, min(length, 3), start))
    assert store.read_range("a", 1, 8) == b"12345678"


def test_a_range_that_the_disk_cannot_read_is_a_store_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int, length: int, start: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store.put("a", b"0123456789")
    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        store.read_range("a", 0, 4)


def test_a_range_of_a_missing_file_is_not_found(store: LocalStore) -> None:
    with pytest.raises(NotFound):
        store.read_range("log/0", 0, 4)


def test_a_write_into_a_directory_that_was_moved_away_is_not_reported_as_done(
    store: LocalStore,
) -> None:
    """An operator moves the warehouse, or mounts another over it, while it is in use."""
    store.put_if_absent("_delta_log/0", b"x")
    aside = f"{store.uri}-aside"
    os.rename(store.uri, aside)
    for another in (False, True):
        if another:
            os.mkdir(store.uri)
        with pytest.raises(PutOutcomeUnknown, match="was moved"):
            store.put_if_absent(f"_delta_log/1{another}", b"late")
        with pytest.raises(StoreUnavailableError, match="was moved"):
            store.put("_delta_log/2", b"late")
        with pytest.raises(StoreUnavailableError, match="was moved"):
            store.make_durable("_delta_log/0")
    assert os.listdir(store.uri) == []
    os.rmdir(store.uri)
    os.rename(aside, store.uri)
    store.make_durable("_delta_log/1False")
    store.put("_delta_log/2", b"in time")


def test_a_store_that_is_closed_in_the_middle_of_a_call_finishes_it_in_its_own_directory(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a closed descriptor is given out again at once, to another directory."""
    mine = LocalStore(f"{store.uri}/mine")
    mine.put("_delta_log/0", b"x")
    fsync = os.fsync
    others: list[LocalStore] = []
    mine_closed: list[bool] = []

    def close_meanwhile(fd: int) -> None:
        if not mine_closed:
            mine_closed.append(True)
            mine.close()
            others.extend(LocalStore(f"{store.uri}/other") for _ in range(3))
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", close_meanwhile)
        mine.put_if_absent("_delta_log/1", b"x")
    assert [info.name for info in store.list_files("mine/_delta_log")] == ["0", "1"]
    assert store.list_files("other/_delta_log") == []
    for other in others:
        other.close()


def test_self_check_passes_here_and_leaves_nothing(store: LocalStore) -> None:
    store.self_check()
    assert os.listdir(store.uri) == []


def test_self_check_refuses_a_link_that_replaces(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replacing(
        source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, **_: object
    ) -> None:
        os.rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "link", replacing)
    with pytest.raises(StoreUnavailableError, match=r"link\(\) replaced an existing file"):
        store.self_check()
    assert os.listdir(store.uri) == []


def test_self_check_refuses_a_file_system_without_hard_links(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unsupported)
    with pytest.raises(StoreUnavailableError, match="use a file system with hard links and fsync"):
        store.self_check()
    assert os.listdir(store.uri) == []


def test_self_check_refuses_a_file_system_that_cannot_sync_directories(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def broken(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreUnavailableError, match="cannot hold a log"):
        store.self_check()


def test_a_root_that_is_a_file_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotFound):
        LocalStore(tmp_path / "file", create=False)
    with pytest.raises(NotFound):
        LocalStore(tmp_path / "missing", create=False)
