"""Objects are read before somebody asks, within bounds, and each one is the one of its name."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from mainstem.delta_log.store import NotFound, cloud_reader
from mainstem.delta_log.store.cloud_reader import CloudReader, ObjectEnd
from mainstem.errors import StoreUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")


class _Service:
    """Objects whose ends take a while."""

    def __init__(self) -> None:
        self.ends: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self.under_way = self.under_way_max = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self._lock = threading.Lock()

    def read_end(self, path: str) -> ObjectEnd:
        with self._lock:
            self.requests[path] += 1
            self.under_way += 1
            self.under_way_max = max(self.under_way, self.under_way_max)
        try:
            time.sleep(0.01)
            assert self.go_on.wait(10)
            if path not in self.ends:
                raise NotFound(path)
            return len(self.ends[path]), self.ends[path]
        finally:
            with self._lock:
                self.under_way -= 1


@pytest.fixture
def service() -> _Service:
    return _Service()


@pytest.fixture
def reader(no_leaks: None, service: _Service) -> Iterator[CloudReader]:
    made = CloudReader(service.read_end)
    yield made
    service.go_on.set()
    made.close()


def test_what_will_be_opened_is_asked_for_at_once_and_only_once(
    reader: CloudReader, service: _Service
) -> None:
    paths = [f"t/{number}.parquet" for number in range(20)]
    service.ends = {path: path.encode() for path in paths}
    service.go_on.clear()
    reader.will_open(paths)
    reader.will_open(paths)
    while service.under_way < 20:
        time.sleep(0.005)
    service.go_on.set()
    for _ in range(2):
        assert [reader.open(path)[1] for path in paths] == [path.encode() for path in paths]
    assert set(service.requests.values()) == {1}
    assert service.under_way_max == 20


def test_an_object_that_is_gone_is_told_to_the_one_who_opens_it(
    reader: CloudReader, service: _Service
) -> None:
    reader.will_open(["gone.parquet"])
    with pytest.raises(NotFound):
        reader.open("gone.parquet")
    service.ends["gone.parquet"] = b"it was late"
    assert reader.open("gone.parquet") == (11, b"it was late")


def test_what_was_deleted_or_written_again_is_not_given(
    reader: CloudReader, service: _Service
) -> None:
    service.ends["a.parquet"] = b"old"
    assert reader.open("a.parquet")[1] == b"old"
    service.ends["a.parquet"] = b"new"
    reader.forget("a.parquet")
    assert reader.open("a.parquet")[1] == b"new"
    # A hint that read the old one and was forgotten before it was done.
    service.ends["b.parquet"] = b"old"
    service.go_on.clear()
    reader.will_open(["b.parquet"])
    while not service.under_way:
        time.sleep(0.005)
    reader.forget("b.parquet")
    service.ends["b.parquet"] = b"new"
    service.go_on.set()
    assert reader.open("b.parquet")[1] == b"new"


def test_files_of_a_log_whose_names_come_again_are_not_kept(
    reader: CloudReader, service: _Service
) -> None:
    for path in ("t/_delta_log/00.checkpoint.parquet", "t/_delta_log/_last_checkpoint", "x.json"):
        service.ends[path] = b"1"
        reader.will_open([path])
        assert reader.open(path)[1] == b"1"
        service.ends[path] = b"2"
        assert reader.open(path)[1] == b"2"


def test_what_is_kept_and_what_is_under_way_is_bounded(
    reader: CloudReader, service: _Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_reader, "_ENDS_BYTES_MAX", 1000)
    monkeypatch.setattr(cloud_reader, "_WAITING_MAX", 10)
    monkeypatch.setattr(cloud_reader, "_AHEAD_BYTES_MAX", 500)
    paths = [f"{number}.parquet" for number in range(30)]
    service.ends = dict.fromkeys(paths, b"x" * 100)
    service.go_on.clear()
    reader.will_open(paths)
    service.go_on.set()
    for path in paths:
        reader.open(path)
    assert len(reader._ends) == 10
    assert reader._ends_bytes == 1000
    first = reader.ahead(400, lambda: b"a")
    assert first is not None
    assert reader.ahead(200, lambda: b"b") is None
    reader.taken(400)
    assert reader.ahead(200, lambda: b"b") is not None
    reader.taken(200)


def test_a_closed_reader_begins_nothing(service: _Service) -> None:
    service.ends = {f"{n}.parquet": b"x" for n in range(100)}
    made = CloudReader(service.read_end)
    made.will_open(service.ends)
    made.close()
    made.close()
    while service.under_way:
        time.sleep(0.005)
    count = service.requests.total()
    made.will_open(["another.parquet"])
    assert made.ahead(10, lambda: b"x") is None
    assert service.requests.total() == count


def test_one_that_waits_for_a_hint_when_the_store_is_closed_is_told_by_the_store() -> None:
    closed = threading.Event()

    def read_end(path: str) -> ObjectEnd:
        if closed.is_set():
            raise StoreUnavailableError("the store is closed")
        time.sleep(0.05)
        return 1, b"x"

    made = CloudReader(read_end)
    made.will_open(f"{n}.parquet" for n in range(100))
    closed.set()
    made.close()
    with pytest.raises(StoreUnavailableError, match="is closed"):
        made.open("99.parquet")
