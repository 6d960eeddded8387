"""Reading many files in their order, also from a store that is far away."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.delta_log.appending import batch, create, lead, run
from tests.unit.delta_log.faults import FaultyStore

from mainstem.delta_log import Appended, LocalStore, OpenTopic, Slice, Topics, load_table
from mainstem.delta_log.format import ProducerBatch
from mainstem.delta_log.store import NotFound, read_ahead

pytestmark = pytest.mark.usefixtures("no_leaks")


class Far:
    """Makes each read take its time; counts how many are under way at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._under_way = 0
        self.most = 0
        self.calls = 0

    def before(self, call: str, path: str) -> None:
        if call == "read":
            with self._lock:
                self.calls += 1
                self._under_way += 1
                self.most = max(self.most, self._under_way)
            time.sleep(self._seconds)
            with self._lock:
                self._under_way -= 1


def _filled(store: LocalStore, count: int) -> list[str]:
    paths = [f"d/{number:04d}" for number in range(count)]
    for path in paths:
        store.put(path, path.encode())
    return paths


@pytest.mark.parametrize("seconds", [0.0, 0.005])
@pytest.mark.parametrize("count", [0, 1, 8, 9, 200])
def test_files_come_in_their_order_however_far_the_store_is(
    store: LocalStore, seconds: float, count: int
) -> None:
    paths = _filled(store, count)
    far = Far(seconds)
    found = list(read_ahead(FaultyStore(store, before=far.before), paths))
    assert found == [path.encode() for path in paths]
    assert far.calls == count
    assert far.most <= 64
    if seconds:  # on a busy machine a near store seems far
        assert (far.most > 8) == (count > 100)


@pytest.mark.parametrize("missing", [3, 50])
def test_a_file_that_is_missing_is_told_in_its_turn(store: LocalStore, missing: int) -> None:
    paths = _filled(store, 100)
    store.delete(paths[missing])
    files = read_ahead(FaultyStore(store, before=Far(0.005).before), paths)
    for path in paths[:missing]:
        assert next(files) == path.encode()
    with pytest.raises(NotFound):
        next(files)


def test_who_wants_no_more_leaves_no_reads_behind(store: LocalStore) -> None:
    paths = _filled(store, 500)
    far = Far(0.005)
    with contextlib.closing(read_ahead(FaultyStore(store, before=far.before), paths)) as files:
        for _ in range(20):
            next(files)
    assert far.calls < 200


def test_a_topic_on_a_far_store_is_opened_and_led_many_times_faster_than_its_files_are_read(
    topics: Topics,
) -> None:
    create(topics)
    far = Far(0.01)
    first: list[Appended] = []

    async def fill() -> None:
        appender = await lead(topics.open("t"), pool)
        for number in range(150):
            slices = [Slice(0, batch(number), ProducerBatch(5, 0, number))]
            first.append(await appender.submit(slices, 1))
        await appender.close(10)

    async def work() -> None:
        opened = topics.open("t")
        store = FaultyStore(opened.store, before=far.before)
        began_at = time.monotonic()
        state = load_table(store)
        appender = await lead(OpenTopic("t", store, state), pool)
        assert far.calls > 300
        assert time.monotonic() - began_at < far.calls * 0.01 / 2
        for number in range(145, 150):
            again = await appender.submit([Slice(0, batch(0), ProducerBatch(5, 0, number))], 1)
            assert again == first[number]
        await appender.close(10)

    with ThreadPoolExecutor(4) as pool:
        run(fill)
        run(work)
