"""Large transactions: staged records get into a topic in one commit, a few chunks at a time."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.delta_log.appending import PARTITIONS, batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import FaultyStore, Hook, nothing, times, unavailable
from tests.unit.delta_log.tables import NOW_MS
from tests.unit.delta_log.test_transactions import check, mark

from mainstem.delta_log import CommittedRecords, LocalStore, Slice, Topics
from mainstem.delta_log.append import CommitTurns
from mainstem.delta_log.append.turns import STAGED_CHUNKS_MAX
from mainstem.delta_log.staging import StagedTopic, StagingArea, reading
from mainstem.delta_log.staging import format as staging_format
from mainstem.delta_log.topics import altered_config
from mainstem.errors import FencedError, LogDamagedError, UnknownPartitionError
from mainstem.limits import KIB, MIB
from mainstem.records import records_to_wire_batch


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames and chunks of a few records."""
    monkeypatch.setattr(staging_format, "FRAME_BYTES_MAX", 200)
    monkeypatch.setattr(reading, "CHUNK_BYTES", 2_000)


def stage(store: LocalStore, first: int, count: int) -> tuple[StagedTopic, FaultyStore]:
    """Records with the values `first` and following in partitions 0 and 4, in two objects; and the
    store that they are read from."""
    area = StagingArea(store)
    half = count // 2
    names = []
    for start in (first, first + half):
        slices = [Slice(4 * (number % 2), batch(number)) for number in range(start, start + half)]
        names.append(area.write({"other": [Slice(1, batch(1))], "t": slices}).name)
    read_from = FaultyStore(store)
    return StagingArea(read_from).read(names, "t"), read_from


def in_order(found: Sequence[tuple[int, bytes]]) -> list[int]:
    return [int(value) for _, value in found]


@pytest.mark.usefixtures("small_parts")
def test_staged_records_are_one_commit_of_several_files_between_what_came_before_and_after(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    told: list[CommittedRecords] = []
    staged, _ = stage(store, 100, 80)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool, on_records=told.append)
        await leader.submit([Slice(0, batch(1))], 1)
        before = leader.submit([Slice(0, batch(2))], 1)
        appending = leader.append_transaction(mark(1), staged)
        again = leader.append_transaction(mark(1), staged)
        behind = leader.submit([Slice(0, batch(3)), Slice(5, batch(3))], 1)
        appended = await appending
        assert await again == appended
        assert [(b.partition, b.base_offset, b.record_count) for b in appended.batches] == [
            (0, 2, 40),
            (4, 0, 40),
        ]
        assert (await before).table_version < appended.table_version
        assert (await behind).table_version > appended.table_version
        assert leader.queued_bytes == 0
        assert await leader.settle_transaction(mark(1))
        assert (await leader.append_transaction(mark(1), staged)).batches == ()
        await leader.close(10)

    run(work)
    assert [dict(one.partitions).keys() for one in told] == [{0}, {0}, set(), {0, 5}]
    assert topics.open("t").state.files(4).record_count == 40
    assert len(topics.open("t").state.files(4).sorted()) > 3
    assert in_order(values(topics, 0)) == [1, 2, *range(100, 180, 2), 3]
    assert in_order(values(topics, 4)) == list(range(101, 180, 2))
    check(topics)


@pytest.mark.fault
@pytest.mark.usefixtures("small_parts")
def test_a_store_that_fails_at_any_call_delays_a_large_transaction_and_doubles_nothing(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    lock = threading.Lock()
    position = -1
    met = True

    def fails_once(calls: list[int]) -> Hook:
        def hook(call: str, path: str) -> None:
            nonlocal met
            with lock:
                calls[0] += 1
                meets = calls[0] == position + 1
            if meets:
                met = True
                raise unavailable()

        return hook

    async def work() -> None:
        nonlocal position, met
        while met:
            position, met, calls = position + 3, False, [0]
            hook = fails_once(calls)
            staged, read_from = stage(store, 0, 40)
            opened = faulty(topics.open("t"))
            leader = await lead(opened, pool)
            assert isinstance(opened.store, FaultyStore)
            opened.store.before = read_from.before = hook
            appended = await leader.append_transaction(mark(position + 1), staged)
            assert {b.record_count for b in appended.batches} == {20}
            await leader.close(10)
        assert position > 12

    run(work)
    times_there = position // 3 + 1
    assert in_order(values(topics, 0)) == list(range(0, 40, 2)) * times_there
    assert in_order(values(topics, 4)) == list(range(1, 40, 2)) * times_there
    check(topics)


class OtherCounts:
    """Staged records that have another number than they say."""

    size_bytes = 1

    def __init__(self, said: int, found: int) -> None:
        self.counts = {0: said}
        self._found = found

    def slices(self, partition: int) -> Iterator[list[Slice]]:
        for number in range(self._found):
            yield [Slice(partition, batch(number))]


def a_missing_object(store: LocalStore) -> StagedTopic:
    staged, _ = stage(store, 0, 40)
    StagingArea(store).delete([one.name for one in StagingArea(store).list()])
    return staged


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    "make",
    [a_missing_object, lambda _: OtherCounts(3, 2), lambda _: OtherCounts(3, 4)],
    ids=["missing", "too few", "too many"],
)
def test_staged_records_that_are_damaged_end_the_lead_and_leave_nothing_in_the_log(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor, make: Callable[[LocalStore], Any]
) -> None:
    create(topics)
    staged = make(store)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        await leader.submit([Slice(0, batch(1))], 1)
        with pytest.raises(LogDamagedError):
            await leader.append_transaction(mark(1), staged)
        await leader.close(10)
        leader = await lead(topics.open("t"), pool)
        assert not await leader.settle_transaction(mark(1))
        assert (await leader.submit([Slice(0, batch(2))], 1)).batches[0].base_offset == 1
        with pytest.raises(UnknownPartitionError):
            leader.append_transaction(mark(2), _InPartition9())
        await leader.close(10)

    run(work)
    assert in_order(values(topics, 0)) == [1, 2]
    check(topics)


class _InPartition9(OtherCounts):
    def __init__(self) -> None:
        super().__init__(1, 1)
        self.counts = {9: 1}


def test_a_store_that_is_away_holds_a_large_transaction_up_and_closing_gives_it_up(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    staged, read_from = stage(store, 0, 40)
    read_from.before = times(1_000_000, "read_range", unavailable())

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        appending = leader.append_transaction(mark(1), staged)
        await asyncio.wait({appending}, timeout=0.1)
        assert not appending.done()
        assert leader.trouble is not None
        await leader.close(0.1)
        assert appending.exception() is not None

    run(work)
    assert values(topics, 0) == []
    check(topics)


def test_the_topic_can_be_changed_and_settled_while_a_large_transaction_is_written(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    staged, read_from = stage(store, 0, 40)
    reached, going_on = threading.Event(), threading.Event()

    def hold(call: str, path: str) -> None:
        reached.set()
        assert going_on.wait(30)

    read_from.before = hold

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        appending = leader.append_transaction(mark(1), staged)
        await asyncio.get_running_loop().run_in_executor(None, reached.wait, 10)
        behind = leader.submit([Slice(0, batch(99))], 1)
        async with asyncio.timeout(5):
            assert not await leader.settle_transaction(mark(1, "other"))
            await leader.change_metadata(
                "CHANGE", lambda state: altered_config(state, {"compression.type": "none"}, [])
            )
            await leader.catch_up()
        assert not appending.done()
        going_on.set()
        assert (await appending).table_version < (await behind).table_version
        assert leader.state.config.compression_type == "none"
        await leader.close(10)

    run(work)
    assert in_order(values(topics, 0)) == [*range(0, 40, 2), 99]
    check(topics)


@pytest.mark.fault
@pytest.mark.usefixtures("small_parts")
def test_a_lead_that_ends_while_a_large_transaction_is_written_tells_who_waits(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    staged, read_from = stage(store, 0, 40)
    reached, going_on = threading.Event(), threading.Event()

    def hold(call: str, path: str) -> None:
        reached.set()
        assert going_on.wait(30)

    read_from.before = hold

    async def work() -> None:
        old = await lead(topics.open("t"), pool)
        appending = old.append_transaction(mark(1), staged)
        settling = asyncio.ensure_future(old.settle_transaction(mark(1)))
        await asyncio.get_running_loop().run_in_executor(None, reached.wait, 10)
        new = await lead(topics.open("t"), pool)
        with pytest.raises(FencedError):
            await old.catch_up()
        going_on.set()
        async with asyncio.timeout(10):
            with pytest.raises(FencedError):
                await appending
            with pytest.raises(FencedError):
                await settling
        assert old.queued_bytes == 0
        assert len(store.list_files("topics/t/partition=0")) <= 2, "it goes on for nobody"
        read_from.before = nothing
        assert (await new.append_transaction(mark(1), staged)).batches[0].base_offset == 0
        await asyncio.gather(old.close(10), new.close(10))

    run(work)
    assert in_order(values(topics, 0)) == list(range(0, 40, 2))
    check(topics)


class Bytes(bytearray):
    """What a record's value lies in, which a weak reference can tell of."""


class Watched:
    """Staged records of many partitions, which know how many of their chunks are in memory.

    Args:
        held: Gets the number each time that a chunk is read.
    """

    def __init__(self, alive: list[weakref.ref[Bytes]], held: list[int]) -> None:
        self.counts = dict.fromkeys(range(PARTITIONS), 4)
        self.size_bytes = 4 * PARTITIONS
        self._alive = alive
        self._held = held

    def slices(self, partition: int) -> Iterator[list[Slice]]:
        for _ in range(4):
            ready = [self._chunk(partition)]
            yield ready.pop()

    def _chunk(self, partition: int) -> list[Slice]:
        data = Bytes(b"value")
        self._alive.append(weakref.ref(data))
        self._held.append(sum(one() is not None for one in self._alive))
        ends = pa.array([0, 5], pa.int32()).buffers()[1]
        value = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])
        one = batch(1)
        index = one.schema.get_field_index("value")
        return [Slice(partition, one.set_column(index, one.schema.field(index), value))]


def test_large_transactions_of_several_topics_together_hold_no_more_chunks_than_one(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    alive: list[weakref.ref[Bytes]] = []
    held: list[int] = []
    names = ("t", "u", "v")
    for name in names:
        topics.create(name, PARTITIONS)

    async def work() -> None:
        turns = CommitTurns(0, 1, 0)
        leaders = [await lead(topics.open(name), pool, turns=turns) for name in names]
        await asyncio.gather(
            *(one.append_transaction(mark(1), Watched(alive, held)) for one in leaders)
        )
        await asyncio.gather(*(one.close(10) for one in leaders))

    run(work)
    assert len(held) == 4 * PARTITIONS * len(names)
    assert 1 <= max(held) <= STAGED_CHUNKS_MAX
    for name in names:
        assert topics.open(name).state.files(5).record_count == 4


def test_a_transaction_of_64_mib_takes_the_memory_of_a_few_chunks(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python and Arrow have allocated at once, while it is read, encoded and written."""
    monkeypatch.setattr(staging_format, "FRAME_BYTES_MAX", 256 * KIB)
    monkeypatch.setattr(reading, "CHUNK_BYTES", MIB)
    create(topics, compression_type="none")
    area = StagingArea(store)
    count = 4 * KIB
    records = records_to_wire_batch([None] * count, [bytes(KIB)] * count, None, [NOW_MS] * count)
    slices = [Slice(partition, records) for partition in range(4)]
    names = [area.write({"t": slices}).name for _ in range(4)]
    staged = area.read(names, "t")
    assert staged.size_bytes >= 64 * MIB
    arrow_bytes: list[int] = []

    def look(call: str, path: str) -> None:
        if call == "put":
            arrow_bytes.append(pa.total_allocated_bytes())

    async def work() -> None:
        leader = await lead(faulty(topics.open("t"), look, look), pool)
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            await leader.append_transaction(mark(1), staged)
            _, python_peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(arrow_bytes) >= 2 * 64, "a data file for each chunk"
        assert max(arrow_bytes) - before + python_peak < 16 * MIB
        await leader.close(10)

    run(work)
    assert topics.open("t").state.files(3).record_count == 4 * count
