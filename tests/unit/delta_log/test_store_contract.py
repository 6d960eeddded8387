"""What every store promises. A new kind of store is added to `STORES`, and passes all of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.length import FULL
from tests.s3_server import S3Server

from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import (
    AlreadyExists,
    CloudStore,
    MemoryStore,
    NotFound,
    StoreFolder,
    Warehouse,
)
from mainstem.errors import StoreUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")

#: Makes an empty store; what it needs for that it asks the request for.
STORES: dict[str, Callable[[pytest.FixtureRequest], Warehouse]] = {
    "local": lambda request: LocalStore(request.getfixturevalue("tmp_path") / "warehouse"),
    "memory": lambda _: MemoryStore(),
    "s3": lambda request: empty_s3_store(request.getfixturevalue("s3_server")),
}
if FULL:
    STORES["versitygw"] = lambda request: empty_s3_store(request.getfixturevalue("versitygw"))

WRITERS = 16


def empty_s3_store(server: S3Server) -> Warehouse:
    options = {name.lower(): value for name, value in server.options.items()}
    return CloudStore(f"s3://{server.make_bucket()}/a%20b/warehouse", options)


LARGE = os.urandom(9 * 1024 * 1024)


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.fault] if name == "versitygw" else [])
        for name in STORES
    ]
)
def store(request: pytest.FixtureRequest, no_leaks: None) -> Iterator[Warehouse]:
    opened = STORES[request.param](request)
    yield opened
    opened.close()


# -- put if absent -------------------------------------------------------------------------------


def _race(store: Warehouse, path: str, start: threading.Barrier) -> list[int]:
    """Which of many writers put `path`: those who were told that they did."""

    def put(writer: int) -> bool:
        start.wait()
        try:
            store.put_if_absent(path, b"%d" % writer * 1000)
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as pool:
        won = list(pool.map(put, range(WRITERS)))
    return [writer for writer in range(WRITERS) if won[writer]]


def test_of_many_writers_of_one_name_exactly_one_wins_and_its_data_is_there(
    store: Warehouse,
) -> None:
    start = threading.Barrier(WRITERS)
    for number in range(30):
        path = f"_delta_log/{number:020d}.json"
        winners = _race(store, path, start)
        assert len(winners) == 1
        assert store.read(path) == b"%d" % winners[0] * 1000


def test_a_loser_can_read_what_won_at_once(store: Warehouse) -> None:
    start = threading.Barrier(WRITERS)

    def put_and_read(writer: int) -> bytes:
        start.wait()
        with suppress(AlreadyExists):
            store.put_if_absent("a", b"%d" % writer)
        return store.read("a")

    with ThreadPoolExecutor(WRITERS) as pool:
        assert len(set(pool.map(put_and_read, range(WRITERS)))) == 1


def test_a_name_that_is_taken_keeps_its_data(store: Warehouse) -> None:
    store.put_if_absent("log/0", b"first")
    for _ in range(2):
        with pytest.raises(AlreadyExists):
            store.put_if_absent("log/0", b"second")
    assert store.read("log/0") == b"first"


def test_a_name_that_was_deleted_is_free(store: Warehouse) -> None:
    store.put_if_absent("log/0", b"first")
    store.delete("log/0")
    store.put_if_absent("log/0", b"second")
    assert store.read("log/0") == b"second"


def test_a_name_that_was_put_is_not_absent(store: Warehouse) -> None:
    store.put("a", b"x")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a", b"y")


def test_no_reader_sees_a_part_of_a_file(store: Warehouse) -> None:
    seen: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for info in store.list_files("log"):
                seen.add(info.size_bytes)
                seen.add(len(store.read(f"log/{info.name}")))

    reader = threading.Thread(target=read)
    reader.start()
    data = LARGE[: 1024 * 1024]
    number = 0
    while number < 20 or not seen:
        store.put_if_absent(f"log/{number:03d}", data)
        number += 1
    done.set()
    reader.join()
    assert seen == {len(data)}


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff" * 500, LARGE], ids=len)
def test_what_was_put_is_read_at_once_whole_by_range_and_at_any_place(
    store: Warehouse, data: bytes
) -> None:
    store.put("a/b/c", data)
    store.put_if_absent("a/b/d", data)
    middle = len(data) // 2
    for path in ("a/b/c", "a/b/d"):
        assert store.read(path) == data
        assert store.read_range(path, middle, 100) == data[middle : middle + 100]
        with store.open(path) as file:
            assert file.size() == len(data)
            file.seek(middle)
            assert file.read(100) == data[middle : middle + 100]


def test_a_range_is_cut_where_the_file_ends(store: Warehouse) -> None:
    store.put("a", b"0123456789")
    assert store.read_range("a", 8, 4) == b"89"
    assert store.read_range("a", 10, 4) == b""
    assert store.read_range("a", 99, 4) == b""
    assert store.read_range("a", 4, 0) == b""


def test_a_buffer_of_arrow_is_put_as_it_is_and_read_as_parquet(store: Warehouse) -> None:
    table = pa.table({"n": list(range(100_000))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.put("partition=0/f.parquet", sink.getvalue())
    with store.open("partition=0/f.parquet") as source, pq.ParquetFile(source) as parquet:
        assert parquet.read() == table


def test_a_file_that_was_put_again_has_the_new_data(store: Warehouse) -> None:
    store.put("a", b"old and long")
    store.put("a", b"new")
    assert store.read("a") == b"new"


def test_an_open_file_that_is_deleted_is_read_to_its_end_or_the_reader_is_told(
    store: Warehouse,
) -> None:
    store.put("a", LARGE)
    with store.open("a") as file:
        store.delete("a")
        try:
            assert file.read() == LARGE
        except FileNotFoundError:
            assert isinstance(store, CloudStore)


def test_a_small_file_that_is_open_is_read_to_its_end_though_it_is_deleted(
    store: Warehouse,
) -> None:
    store.put("a", LARGE[:100_000])
    with store.open("a") as file:
        store.delete("a")
        assert file.read() == LARGE[:100_000]


def test_what_is_not_there_is_not_found(store: Warehouse) -> None:
    store.put("a", b"x")
    for path in ("b", "no/such/directory", "a/b"):
        for call in (store.read, store.open, store.make_durable):
            with pytest.raises(NotFound):
                call(path)
        with pytest.raises(NotFound):
            store.read_range(path, 0, 1)


def test_what_was_put_can_be_made_durable_again(store: Warehouse) -> None:
    store.put_if_absent("log/0", b"x")
    store.make_durable("log/0")
    assert store.read("log/0") == b"x"


# -- deleting ------------------------------------------------------------------------------------


def test_deleting_what_is_not_there_does_nothing(store: Warehouse) -> None:
    store.put("log/0", b"x")
    for path in ("log/1", "no/such/directory", "x"):
        store.delete(path)
    assert store.read("log/0") == b"x"


def test_many_files_are_deleted_together_and_those_that_are_not_there_are_no_error(
    store: Warehouse,
) -> None:
    names = [f"wal/a/{number:020d}.wal" for number in range(30)]
    for name in names[5:]:
        store.put_if_absent(name, b"x")
    store.delete_all(names[:-1])
    store.delete_all([])
    store.delete_all(["none/a", "none/b"])
    assert [info.name for info in store.list_files("wal/a")] == [f"{29:020d}.wal"]


def test_a_deleted_file_is_neither_read_nor_listed(store: Warehouse) -> None:
    for number in range(3):
        store.put(f"log/{number}", b"x")
    store.delete("log/1")
    with pytest.raises(NotFound):
        store.read("log/1")
    assert [info.name for info in store.list_files("log")] == ["0", "2"]


# -- listing -------------------------------------------------------------------------------------


def test_a_listing_is_sorted_has_sizes_and_begins_after_the_given_name(store: Warehouse) -> None:
    for name in ("b", "a", "d", "c"):
        store.put(f"log/{name}", name.encode() * 3)
    store.put("log/below/x", b"")
    store.put("log2/x", b"")
    assert [info.name for info in store.list_files("log")] == ["a", "b", "c", "d"]
    assert [info.name for info in store.list_files("log", "b")] == ["c", "d"]
    assert [info.name for info in store.list_files("log", "bb")] == ["c", "d"]
    assert store.list_files("log", "d") == []
    assert {info.size_bytes for info in store.list_files("log")} == {3}
    assert store.list_directories("log") == ["below"]
    assert store.list_directories("") == ["log", "log2"]


def test_a_listing_of_thousands_of_files_has_each_of_them_once(store: Warehouse) -> None:
    names = [f"{number:020d}.json" for number in range(1_100)]  # a page has 1,000 in S3
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(f"log/{name}", b"x"), reversed(names)))
    assert [info.name for info in store.list_files("log")] == names
    assert [info.name for info in store.list_files("log", names[1_000])] == names[1_001:]


def test_a_listing_says_when_a_file_was_written(store: Warehouse) -> None:
    store.put("log/0", b"x")
    store.put("log/1", b"x")
    first, second = store.list_files("log")
    assert 0 < first.modified_ms <= second.modified_ms


def test_what_is_not_there_has_an_empty_listing(store: Warehouse) -> None:
    store.put("file", b"x")
    for directory in ("nothing", "nothing/below", "file"):
        assert store.list_files(directory) == []
        assert store.list_directories(directory) == []


@pytest.mark.parametrize(
    "name",
    ["partition=0", "a.b_c-D", "_delta_log", "t" * 249, "..", ".hidden", "a b%20#?&+=ü"],
)
def test_names_are_kept_as_they_are(store: Warehouse, name: str) -> None:
    if name == "..":
        name = "..x"
    store.put(f"{name}/{name}", b"x")
    store.put_if_absent(f"{name}/{name[:240]}2", b"y")
    assert store.read(f"{name}/{name}") == b"x"
    assert store.list_directories("") == [name]
    assert [info.name for info in store.list_files(name)] == sorted([name, f"{name[:240]}2"])


# -- a store inside a store, and its end ----------------------------------------------------------


def test_a_folder_has_the_files_below_its_directory(store: Warehouse) -> None:
    store.put("topics/t/a", b"0123")
    folder = StoreFolder(store, "topics/t")
    assert folder.uri == f"{store.uri.rstrip('/')}/topics/t"
    assert folder.read("a") == b"0123"
    assert folder.read_range("a", 1, 2) == b"12"
    with folder.open("a") as file:
        assert file.read() == b"0123"
    folder.put("b/c", b"y")
    folder.put_if_absent("b/d", b"y")
    with pytest.raises(AlreadyExists):
        folder.put_if_absent("b/c", b"z")
    folder.make_durable("b/c")
    assert store.read("topics/t/b/c") == b"y"
    assert [info.name for info in folder.list_files("b", "c")] == ["d"]
    assert [info.name for info in folder.list_files("")] == ["a"]
    assert folder.list_directories("") == ["b"]
    assert folder.sweep("b", 2**62) == 0
    folder.delete("b/c")
    with pytest.raises(NotFound):
        store.read("topics/t/b/c")


def test_a_folder_of_which_nothing_is_there_is_empty_and_is_made_by_the_first_put(
    store: Warehouse,
) -> None:
    folder = StoreFolder(store, "topics/t")
    assert folder.list_files("") == []
    assert folder.list_directories("") == []
    with pytest.raises(NotFound):
        folder.read("_delta_log/0")
    folder.delete("_delta_log/0")
    folder.put_if_absent("_delta_log/0", b"x")
    assert store.list_directories("topics") == ["t"]


def test_a_closed_store_does_nothing_more(store: Warehouse) -> None:
    store.put("a", b"x")
    store.close()
    store.close()
    for call in (store.read, store.open, store.list_files, store.delete):
        with pytest.raises(StoreUnavailableError, match="is closed"):
            call("a")


def test_a_store_that_keeps_its_promises_passes_its_own_check(store: Warehouse) -> None:
    store.self_check()
    assert store.list_files("") == []


def test_files_that_were_announced_are_read_as_others_are(store: Warehouse) -> None:
    paths = [f"t/{number}.parquet" for number in range(10)]
    for path in paths:
        store.put(path, path.encode())
    store.will_open([*paths, "t/none.parquet"])
    for path in paths:
        with store.open(path) as file:
            assert file.read() == path.encode()
    with pytest.raises(NotFound):
        store.open("t/none.parquet")
    store.delete(paths[0])
    with pytest.raises(NotFound):
        store.open(paths[0])
    store.put(paths[1], b"another")
    with store.open(paths[1]) as file:
        assert file.read() == b"another"
