"""A store is tried out before a log is trusted to it: each broken promise is found and told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.faulty_http import Faults, faulty_proxy
from tests.s3_server import S3Server

from mainstem.delta_log.store import (
    AlreadyExists,
    CloudStore,
    MemoryStore,
    NotFound,
    ObjectInfo,
    PutOutcomeUnknown,
    StoreCheck,
)
from mainstem.errors import StoreUnavailableError


class Replaces(MemoryStore):
    """Forgets the condition."""

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        self.put(path, data)


class ChecksThenPuts(MemoryStore):
    """Looks first, and puts then: as a service whose gateway adds the condition by itself."""

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        try:
            self.read(path)
        except NotFound:
            time.sleep(0.01)
            self.put(path, data)
        else:
            raise AlreadyExists(path)


class TellsTheWrongWinner(MemoryStore):
    """The last of several writers wins, and the first is told so."""

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        try:
            super().put_if_absent(path, data)
        except AlreadyExists:
            if "race" in path:
                self.put(path, data)
            raise


class DoesItTwice(MemoryStore):
    """Takes the same put again: a service that compares what is put."""

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        try:
            super().put_if_absent(path, data)
        except AlreadyExists:
            if self.read(path) != data:
                raise


class Refuses(MemoryStore):
    """Does not know the condition."""

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        raise StoreUnavailableError("NotImplemented, a header is not implemented")


class NeverSays(MemoryStore):
    """Answers no conditional put."""

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        raise PutOutcomeUnknown("ConditionalRequestConflict")


class RemembersWhatIsMissing(MemoryStore):
    """A cache of answers in front: a name that was not there stays so."""

    def __init__(self) -> None:
        super().__init__()
        self._missing: set[str] = set()

    def read(self, path: str) -> bytes:
        if path in self._missing:
            raise NotFound(path)
        try:
            return super().read(path)
        except NotFound:
            self._missing.add(path)
            raise


class GivesWhole(MemoryStore):
    """Knows no ranges."""

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.read(path)


class OpensAnother(MemoryStore):
    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path)[::-1])


class ListsLate(MemoryStore):
    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        return super().list_files(directory, start_after)[:-1]


class ListsFromTheStart(MemoryStore):
    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        return super().list_files(directory)


class HasNoDirectories(MemoryStore):
    def list_directories(self, directory: str) -> list[str]:
        return []


class KeepsWhatIsDeleted(MemoryStore):
    def delete(self, path: str) -> None:
        pass


class MayNotDelete(MemoryStore):
    def delete(self, path: str) -> None:
        raise StoreUnavailableError(f"the store could not delete {path}: AccessDenied")


class MayNotPut(MemoryStore):
    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        raise StoreUnavailableError(f"the store could not write {path}: AccessDenied")


def _broken(store: MemoryStore) -> dict[str, str]:
    """What the check says of each promise that is not kept."""
    check = StoreCheck(store, writers=8)
    found = {p.name: p.error.message for p in check.run() if p.error is not None}
    check.clean_up()
    return found


LIES: list[tuple[type[MemoryStore], set[str], str]] = [
    (Replaces, {"condition", "race", "lost answer"}, "replaced an existing file"),
    (ChecksThenPuts, {"race"}, "writers that put one name at the same time were told"),
    (TellsTheWrongWinner, {"race"}, "another's data is there"),
    (DoesItTwice, {"lost answer"}, "was done a second time"),
    (Refuses, {"condition", "race", "lost answer", "reads"}, "it takes puts, but not a put on"),
    (NeverSays, {"condition", "lost answer", "reads"}, "use a service with conditional puts"),
    (RemembersWhatIsMissing, {"reads"}, "turn off the cache"),
    (GivesWhole, {"ranges"}, "use a service with range requests"),
    (OpensAnother, {"ranges"}, "an open file gave other bytes"),
    (ListsLate, {"list"}, "a listing after '' has"),
    (ListsFromTheStart, {"list"}, "a listing after '001' has"),
    (HasNoDirectories, {"list"}, "a listing of directories lacks one"),
    (KeepsWhatIsDeleted, {"delete"}, "a file is read that was deleted"),
    (MayNotDelete, {"delete"}, "AccessDenied"),
    (MayNotPut, {"put"}, "AccessDenied"),
]


@pytest.mark.parametrize(
    ("kind", "promises", "words"), LIES, ids=[kind.__name__ for kind, *_ in LIES]
)
def test_a_store_that_lies_is_found_out_and_the_sentence_says_about_what(
    kind: type[MemoryStore], promises: set[str], words: str
) -> None:
    found = _broken(kind())
    assert set(found) == promises
    assert any(words in message for message in found.values()), found


@pytest.mark.usefixtures("no_leaks")
def test_an_honest_store_passes_and_nothing_is_left() -> None:
    store = MemoryStore()
    assert _broken(store) == {}
    assert not store.list_files("")
    (directory,) = store.list_directories("")
    assert not store.list_files(directory)


def test_what_cannot_be_deleted_is_named() -> None:
    check = StoreCheck(MayNotDelete())
    list(check.run())
    left = check.clean_up()
    assert left
    assert all(path.startswith(check.directory) for path in left)


@pytest.mark.usefixtures("no_leaks")
def test_writers_that_wait_for_an_interrupted_race_put_nothing_after_the_clean_up() -> None:
    """Ctrl-C while the threads of a race start."""
    late: list[str] = []
    done = threading.Event()

    class Interrupted(MemoryStore):
        def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
            if done.is_set():
                late.append(path)
            if path.endswith("race-1"):
                raise KeyboardInterrupt
            super().put_if_absent(path, data)

    store = Interrupted()
    check = StoreCheck(store, writers=8)
    with pytest.raises(KeyboardInterrupt):
        list(check.run())
    done.set()
    check.clean_up()
    assert not late
    assert not store.list_files(check.directory)


# -- an object storage service behind something that lies ----------------------------------------


@pytest.fixture
def lying(s3_server: S3Server) -> Iterator[tuple[CloudStore, Faults]]:
    """A bucket behind a proxy."""
    faults = Faults()
    with faulty_proxy(s3_server.url, faults) as url:
        options = {name.lower(): value for name, value in s3_server.options.items()}
        options["aws_endpoint_url"] = url
        store = CloudStore(f"s3://{s3_server.make_bucket()}/lake", options)
        yield store, faults
        store.close()


def test_a_gateway_refuses_a_service_that_does_not_see_the_condition(
    lying: tuple[CloudStore, Faults],
) -> None:
    store, faults = lying
    store.self_check()
    faults.dropped_headers = {"if-none-match"}
    with pytest.raises(
        StoreUnavailableError, match="cannot hold a log: a put on condition"
    ) as told:
        store.self_check()
    assert "replaced an existing file; use a service with conditional puts" in str(told.value)
    assert not store.list_files("")


def test_a_gateway_does_not_refuse_a_service_for_answers_that_are_lost(
    lying: tuple[CloudStore, Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, faults = lying
    lost = ["answer lost", "500 after", "answer lost"]

    def next_fault(method: str) -> str:
        return lost.pop() if method == "PUT" and lost else ""

    monkeypatch.setattr(faults, "next", next_fault)
    store.self_check()
    assert not lost
    assert not store.list_files("")
    lost += ["answer lost"] * 100
    with pytest.raises(StoreUnavailableError, match="may have been done"):
        store.self_check()


@pytest.mark.parametrize("status", [400, 501])
def test_a_gateway_refuses_a_service_that_does_not_know_the_condition(
    lying: tuple[CloudStore, Faults], status: int
) -> None:
    store, faults = lying
    faults.refusals = {"if-none-match": status}
    with pytest.raises(StoreUnavailableError, match="it takes puts, but not a put on condition"):
        store.self_check()
    assert not store.list_files("")


def test_a_service_that_refuses_every_put_is_not_told_to_lack_the_condition(
    lying: tuple[CloudStore, Faults],
) -> None:
    store, faults = lying
    faults.refusals = {"PUT": 403}
    with pytest.raises(StoreUnavailableError, match="could not write") as told:
        store.self_check()
    assert "condition" not in str(told.value)


def test_a_footer_is_asked_for_once_and_files_that_were_announced_at_the_same_time(
    lying: tuple[CloudStore, Faults],
) -> None:
    store, faults = lying
    paths = [f"t/part-{number}.parquet" for number in range(12)]
    for path in paths:
        store.put(path, path.encode())
    faults.latency_s = {"GET": 0.1}
    faults.requests.clear()
    faults.most_at_once = 0
    store.will_open(paths)
    for _ in range(2):
        for path in paths:
            with store.open(path) as file:
                assert file.read() == path.encode()
    assert faults.requests["GET"] == len(paths)
    assert faults.most_at_once > 2, "one after the other, of which one may still be ending"
