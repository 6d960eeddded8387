"""Idempotent producers through the appender on a real store: a batch counts once."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import times, unavailable, unknown
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import Appended, LocalStore, Slice, Topics
from mainstem.delta_log.append import ProducerIds, ProducerMemory, ProducerStates
from mainstem.delta_log.format import Batch, ProducerBatch, Register, registers
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.table import read_commit
from mainstem.delta_log.upkeep import LiveTable, write_checkpoint
from mainstem.errors import (
    BackPressureError,
    FencedError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from mainstem.limits import KIB, PRODUCER_NUMBER_MAX

DAY_MS = 86_400_000


def _by(sequence: int, *, producer_id: int = 5, epoch: int = 0) -> ProducerBatch:
    return ProducerBatch(producer_id, epoch, sequence)


def _slice(partition: int, number: int, count: int, sequence: int, **by: int) -> Slice:
    return Slice(partition, batch(number, count), _by(sequence, **by))


def test_a_batch_that_comes_again_while_it_is_pending_waits_for_the_same_commit(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    go_on = threading.Event()

    def held(call: str, path: str) -> None:
        if call == "put_if_absent":
            assert go_on.wait(10)

    async def work() -> None:
        go_on.set()
        appender = await lead(faulty(topics.open("t"), held), pool)
        go_on.clear()
        one = _slice(0, 1, 3, 0)
        first, again = appender.submit([one], 1), appender.submit([one], 1)
        await asyncio.sleep(0.05)
        assert not first.done()
        assert not again.done()
        again.cancel()  # a caller that gives up takes nothing from those who sent it first
        third = appender.submit([one], 1)
        go_on.set()
        assert await third == await first
        assert (await first).batches[0].base_offset == 0
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"1"] * 3


def test_a_batch_that_fell_out_of_the_window_while_pending_is_not_told_to_be_in_the_table(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """The window of five counts what was committed."""
    create(topics)
    go_on = threading.Event()

    def held(call: str, path: str) -> None:
        if call == "put_if_absent":
            assert go_on.wait(10)

    async def work() -> None:
        go_on.set()
        appender = await lead(faulty(topics.open("t"), held), pool)
        go_on.clear()
        slices = [_slice(0, number, 1, number) for number in range(12)]
        first = [appender.submit([one], 1) for one in slices]
        again = [appender.submit([one], 1) for one in slices]
        # Several of them cut differently, as one batch.
        whole = appender.submit([_slice(0, 0, 12, 0)], 1)
        await asyncio.sleep(0.05)
        assert not any(future.done() for future in [*first, *again, whole])
        go_on.set()
        results = await asyncio.gather(*first)
        assert await asyncio.gather(*again) == results
        assert (await whole).batches[0].base_offset == -1
        assert all(future.done() for future in first)
        await appender.close(10)

    run(work)
    assert len(values(topics, 0)) == 12


@pytest.mark.parametrize("restart", ["same appender", "led again", "from a checkpoint"])
def test_a_committed_batch_that_comes_again_gets_its_original_offsets_and_version(
    topics: Topics, pool: ThreadPoolExecutor, restart: str
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        slices = [[_slice(0, n, 2, 2 * n), _slice(3, n, 1, n)] for n in range(4)]
        first = [await appender.submit(both, 1) for both in slices]
        await appender.submit([Slice(0, batch(9))], 1)
        if restart != "same appender":
            await appender.close(10)
            if restart == "from a checkpoint":
                opened = topics.open("t")
                write_checkpoint(opened.store)
            appender = await lead(topics.open("t"), pool)
        for both, result in zip(slices, first, strict=True):
            assert await appender.submit(both, 1) == result
            one = await appender.submit(both[:1], 1)
            assert one == Appended(result.table_version, result.batches[:1])
        assert appender.log_end_offset(0) == 9
        result = await appender.submit([_slice(0, 4, 1, 8)], 1)
        assert result.batches[0].base_offset == 9
        await appender.close(10)

    run(work)
    expected = [b"0", b"0", b"1", b"1", b"2", b"2", b"3", b"3", b"9", b"4"]
    assert values(topics, 0) == list(enumerate(expected))


def test_a_request_that_is_new_in_one_partition_and_repeated_in_another_lands_where_it_is_new(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """An error of one partition never makes another partition's batch land twice."""
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        first = await appender.submit([_slice(0, 1, 2, 0)], 1)
        both = await appender.submit([_slice(0, 1, 2, 0), _slice(1, 1, 1, 0)], 1)
        assert [(one.partition, one.base_offset) for one in both.batches] == [(0, 0), (1, 0)]
        assert both.table_version > first.table_version
        await appender.close(10)

    run(work)
    assert (len(values(topics, 0)), len(values(topics, 1))) == (2, 1)


def test_a_request_with_a_gap_in_one_partition_is_refused_whole(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([_slice(0, 1, 2, 0)], 1)
        for bad in (_slice(0, 3, 1, 3), _slice(0, 3, 3, 1)):
            with pytest.raises(OutOfOrderSequenceError) as caught:
                appender.submit([_slice(1, 3, 1, 0), bad], 1)
            assert caught.value.facts["expected_sequence"] == "2"
        with pytest.raises(UnknownProducerIdError):
            appender.submit([_slice(1, 3, 1, 0), _slice(2, 3, 1, 4)], 1)
        assert appender.queued_bytes == 0
        assert [appender.log_end_offset(p) for p in range(3)] == [2, 0, 0]
        # As if nothing had been asked.
        await appender.submit([_slice(1, 3, 1, 0), _slice(0, 2, 1, 2)], 1)
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"1", b"1", b"2"]
    assert [value for _, value in values(topics, 1)] == [b"3"]


def test_one_request_that_has_a_batch_twice_is_refused(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        with pytest.raises(OutOfOrderSequenceError, match="in one request"):
            appender.submit([_slice(0, 1, 2, 0), _slice(0, 1, 2, 0)], 1)
        await appender.submit([_slice(0, 1, 2, 0), _slice(0, 2, 1, 2)], 1)
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"1", b"1", b"2"]


def test_records_carry_their_numbers_and_the_registers_come_with_the_same_commit(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        result = await appender.submit(
            [
                _slice(0, 1, 2, 0),
                Slice(0, batch(2, 1)),
                _slice(0, 3, 2, 0, producer_id=2**53),
                _slice(1, 1, 1, 0, epoch=2),
            ],
            1,
        )
        await appender.close(10)
        bound = StoreFolder(store, "topics/t")
        actions = read_commit(bound, result.table_version)
        found = {one.name: one for one in actions if isinstance(one, Register)}
        assert found[registers.producer(5, 0)] == Register(registers.producer(5, 0), 1, NOW_MS)
        assert found[registers.producer(2**53, 0)].value == 1
        assert found[registers.producer(5, 1)].value == 0
        assert found[registers.producer_epoch(5, 1)].value == 2
        assert registers.producer_epoch(5, 0) not in found
        assert found[registers.leo(0)].updated_ms is None

    run(work)
    rows: Any = DeltaTable(topics.uri("t")).to_pyarrow_table().filter(_partition_is(0))
    rows = rows.sort_by("offset")
    assert rows.column("producer_id").to_pylist() == [5, 5, None, 2**53, 2**53]
    assert rows.column("sequence").to_pylist() == [0, 1, None, 0, 1]


def _partition_is(number: int) -> Any:
    import pyarrow.compute as pc

    return pc.field("partition") == number


@pytest.mark.parametrize("restart", [False, True])
def test_a_new_epoch_begins_at_zero_and_ends_the_older_one_also_after_a_restart(
    topics: Topics, pool: ThreadPoolExecutor, restart: bool
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([_slice(0, 1, 3, 0)], 1)
        first = await appender.submit([_slice(0, 2, 3, 0, epoch=1)], 1)
        assert first.batches[0].base_offset == 3
        await appender.submit([_slice(0, 2, 1, 3, epoch=1)], 1)
        if restart:
            await appender.close(10)
            appender = await lead(topics.open("t"), pool)
        with pytest.raises(ProducerFencedError):
            appender.submit([_slice(0, 3, 1, 3)], 1)
        assert await appender.submit([_slice(0, 2, 3, 0, epoch=1)], 1) == first
        with pytest.raises(OutOfOrderSequenceError):
            appender.submit([_slice(0, 9, 1, 4, epoch=2)], 1)
        await appender.submit([_slice(0, 3, 1, 4, epoch=1)], 1)
        await appender.close(10)

    run(work)
    assert len(values(topics, 0)) == 8


def test_a_producer_in_a_later_epoch_goes_on_after_a_restart_that_remembers_no_batch_of_it(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([_slice(0, 1, 3, 0, epoch=4)], 1)
        await appender.close(10)
        later = NOW_MS + 3_600_000
        appender = await lead(topics.open("t"), pool, clock_ms=lambda: later)
        await appender.submit([_slice(1, 1, 3, 0, producer_id=6)], 1)
        await appender.close(10)
        appender = await lead(topics.open("t"), pool, clock_ms=lambda: later)
        answer = await appender.submit([_slice(0, 1, 3, 0, epoch=4)], 1)
        assert answer.batches[0].base_offset == -1  # it is there; nobody knows where
        await appender.submit([_slice(0, 2, 1, 3, epoch=4)], 1)
        await appender.close(10)

    run(work)
    assert len(values(topics, 0)) == 4


def test_a_producer_that_was_silent_for_too_long_begins_again_and_never_doubles(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    now_s = [0.0]

    async def work() -> None:
        appender = await lead(
            topics.open("t"), pool, monotonic=lambda: now_s[0], producer_expiration_ms=1_000
        )
        await appender.submit([_slice(0, 1, 3, 0)], 1)
        now_s[0] = 0.999
        await appender.submit([_slice(0, 1, 1, 3)], 1)
        now_s[0] = 2
        with pytest.raises(UnknownProducerIdError) as caught:
            appender.submit([_slice(0, 2, 1, 4)], 1)
        assert caught.value.facts["producer_id"] == "5"
        first = await appender.submit([_slice(0, 2, 1, 0, producer_id=6)], 1)
        # Even under the old id: what it sent before is not mistaken for what it sends now.
        second = await appender.submit([_slice(0, 3, 3, 0)], 1)
        assert await appender.submit([_slice(0, 3, 3, 0)], 1) == second
        assert first.batches[0].base_offset == 4
        assert second.batches[0].base_offset == 5
        await appender.close(10)
        # Nobody can say for how long it was silent when the leader changes: it has its time again.
        now_s[0] = 2.9
        appender = await lead(
            topics.open("t"), pool, monotonic=lambda: now_s[0], producer_expiration_ms=1_000
        )
        now_s[0] = 3.8
        assert await appender.submit([_slice(0, 3, 3, 0)], 1) == second
        now_s[0] = 3.9
        with pytest.raises(UnknownProducerIdError):
            appender.submit([_slice(0, 4, 1, 3)], 1)
        await appender.close(10)

    run(work)
    assert len(values(topics, 0)) == 8


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS, 365 * DAY_MS])
def test_a_clock_that_is_set_by_days_makes_no_leader_forget_a_producer(
    topics: Topics, pool: ThreadPoolExecutor, step_ms: int
) -> None:
    create(topics)
    now_ms = [NOW_MS]

    async def work() -> None:
        appender = await lead(topics.open("t"), pool, clock_ms=lambda: now_ms[0])
        await appender.submit([_slice(0, 1, 3, 0)], 1)
        now_ms[0] += step_ms
        last = await appender.submit([_slice(0, 1, 1, 3), _slice(1, 1, 1, 0, producer_id=6)], 1)
        assert last.batches[0].base_offset == 3
        await appender.close(10)
        opened = topics.open("t")
        write_checkpoint(opened.store)
        # The next leader's clock is right again.
        appender = await lead(topics.open("t"), pool)
        assert await appender.submit([_slice(0, 1, 1, 3)], 1) == Appended(
            last.table_version, last.batches[:1]
        )
        await appender.submit([_slice(0, 1, 1, 4), _slice(1, 1, 1, 1, producer_id=6)], 1)
        await appender.close(10)

    run(work)
    assert (len(values(topics, 0)), len(values(topics, 1))) == (5, 2)


def test_producers_that_are_forgotten_leave_the_table_and_who_follows_it_and_others_never_do(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    now_s = [0.0]
    follower = topics.open("t")

    async def work() -> None:
        # The time of day of the leader lies two days back: old registers, not forgotten ones.
        appender = await lead(
            topics.open("t"),
            pool,
            clock_ms=lambda: time.time_ns() // 10**6 - 2 * DAY_MS,
            monotonic=lambda: now_s[0],
            producer_expiration_ms=1_000,
        )
        await appender.submit([_slice(0, 1, 3, 0, producer_id=1, epoch=1)], 1)
        now_s[0] = 0.5
        await appender.submit([_slice(0, 1, 1, 0, producer_id=2, epoch=1)], 1)
        assert registers.producer_epoch(1, 0) in follower.refresh().registers
        now_s[0] = 1.2
        for number in range(2):  # one forgets, and the next one says so
            await appender.submit([Slice(0, batch(number))], 1)
        await appender.close(10)

    run(work)
    gone = {registers.producer(1, 0), registers.producer_epoch(1, 0)}
    kept = {registers.producer(2, 0), registers.producer_epoch(2, 0)}
    names = set(follower.refresh().registers)
    assert not gone & names
    assert kept <= names
    version = write_checkpoint(follower.store)
    _clean_log(topics, version + 1)
    table = DeltaTable(topics.uri("t"))
    assert [table.transaction_version(name) for name in sorted(gone)] == [None, None]
    assert [table.transaction_version(name) for name in sorted(kept)] == [0, 1]
    state = topics.open("t")
    assert not gone & set(state.state.registers)
    assert kept <= set(state.state.registers)
    assert state.state.log_end_offset(0) == 6


@pytest.mark.fault
@pytest.mark.parametrize(
    "hooks",
    [
        {"after": times(3, "put_if_absent", unknown(), "003.json")},
        {"after": times(3, "put_if_absent", unavailable(), "003.json")},
        {"before": times(3, "put_if_absent", unknown(), "003.json")},
        {"before": times(3, "put_if_absent", unavailable(), "003.json")},
        {"before": times(2, "put", unavailable()), "after": times(2, "put", unavailable())},
    ],
    ids=["landed, unknown", "landed, failed", "not landed, unknown", "not landed, failed", "data"],
)
def test_whatever_the_store_says_of_a_commit_the_retry_gets_the_one_copys_offsets(
    topics: Topics, pool: ThreadPoolExecutor, hooks: dict[str, Any]
) -> None:
    create(topics)

    async def work() -> None:
        await (await lead(topics.open("t"), pool)).close(10)
        appender = await lead(faulty(topics.open("t"), **hooks), pool)  # version 2
        one = _slice(0, 1, 2, 0)
        first = appender.submit([one], 1)
        with pytest.raises(TimeoutError):  # the producer's deadline passes
            await asyncio.wait_for(asyncio.shield(first), 0.001)
        again = await appender.submit([one], 1)
        assert again == await first
        assert again.batches[0].base_offset == 0
        await appender.close(10)
        appender = await lead(topics.open("t"), pool)
        assert await appender.submit([one], 1) == again
        await appender.close(10)

    run(work)
    assert values(topics, 0) == [(0, b"1"), (1, b"1")]


@pytest.mark.fault
def test_work_after_the_commit_point_that_fails_changes_nothing_for_the_producer(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    def broken(_: object) -> None:
        raise RuntimeError("maintenance fails")

    async def work() -> None:
        appender = await lead(topics.open("t"), pool, on_commit=broken)
        first = await appender.submit([_slice(0, 1, 1, 0)], 1)
        assert await appender.submit([_slice(0, 1, 1, 0)], 1) == first
        await appender.submit([_slice(0, 2, 1, 1)], 1)
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"1", b"2"]


@pytest.mark.fault
def test_a_batch_that_a_fenced_leader_could_not_commit_lands_once_at_the_new_one(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        old = await lead(topics.open("t"), pool)
        landed = await old.submit([_slice(0, 1, 1, 0)], 1)
        new = await lead(topics.open("t"), pool)
        late = old.submit([_slice(0, 2, 1, 1)], 1)
        again = old.submit([_slice(0, 2, 1, 1)], 1)
        for future in (late, again):
            with pytest.raises(FencedError):
                await future
        assert await new.submit([_slice(0, 1, 1, 0)], 1) == landed
        assert (await new.submit([_slice(0, 2, 1, 1)], 1)).batches[0].base_offset == 1
        await old.close(10)
        await new.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"1", b"2"]


def _clean_log(topics: Topics, version: int) -> None:
    """Removes the commit files before a version."""
    for commit_file in Path(topics.uri("t"), "_delta_log").glob("*.json"):
        if int(commit_file.stem) < version:
            commit_file.unlink()


def test_a_checkpoint_of_the_leader_itself_has_the_producers_that_its_state_has_not(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        opened = topics.open("t")
        appender = await lead(opened, pool)
        for sequence in range(3):
            await appender.submit([_slice(0, sequence, 1, sequence)], 1)
        assert registers.producer(5, 0) not in appender.state.registers
        version = write_checkpoint(opened.store, LiveTable.of(appender.state))
        _clean_log(topics, version)
        await appender.close(10)
        appender = await lead(topics.open("t"), pool)
        await appender.submit([_slice(0, 2, 1, 2)], 1)
        await appender.submit([_slice(0, 3, 1, 3)], 1)
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"0", b"1", b"2", b"3"]


def test_producers_without_end_take_no_more_than_their_memory_and_the_longest_silent_goes(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    memory = ProducerMemory(32 * KIB)
    go_on = threading.Event()
    go_on.set()

    def held(call: str, path: str) -> None:
        if call == "put_if_absent":
            assert go_on.wait(10)

    async def work() -> None:
        appender = await lead(faulty(topics.open("t"), held), pool, producer_memory=memory)
        for producer_id in range(1, 201):
            await appender.submit([_slice(0, 1, 1, 0, producer_id=producer_id)], 1)
            if producer_id % 20 == 0:  # one that is heard of now and then
                await appender.submit([_slice(1, 1, 1, producer_id // 20 - 1)], 1)
            assert memory.used_bytes <= memory.limit_bytes
        with pytest.raises(UnknownProducerIdError, match=r"producer\.state\.max\.bytes"):
            appender.submit([_slice(0, 1, 1, 1, producer_id=1)], 1)
        await appender.submit([_slice(0, 1, 1, 1, producer_id=200)], 1)
        # With its request under way, the one that is silent for longest stays.
        go_on.clear()
        slow = appender.submit([_slice(1, 1, 1, 10)], 1)
        others = [
            appender.submit([_slice(2, 1, 1, 0, producer_id=1_000 + n)], 1) for n in range(63)
        ]
        with pytest.raises(BackPressureError, match="producers with batches under way"):
            appender.submit([_slice(2, 1, 1, 0, producer_id=2_000)], 1)
        assert memory.used_bytes <= memory.limit_bytes
        again = appender.submit([_slice(1, 1, 1, 10)], 1)
        go_on.set()
        assert await again == await slow
        await asyncio.gather(*others)
        await appender.submit([_slice(1, 1, 1, 11)], 1)
        await appender.close(10)
        assert memory.used_bytes == memory.busy_bytes == 0
        # The next leader remembers no more than that either.
        appender = await lead(topics.open("t"), pool, producer_memory=memory)
        assert 0 < memory.used_bytes <= memory.limit_bytes
        await appender.submit([_slice(1, 1, 1, 12)], 1)
        await appender.close(10)

    run(work)
    assert len(values(topics, 1)) == 13


def test_the_silent_producers_of_one_topic_make_room_for_those_of_another(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    topics.create("other", 1, {"commit.interval.ms": 0})
    create(topics)
    memory = ProducerMemory(12 * KIB)
    now_s = [0.0]

    async def work() -> None:
        options: dict[str, Any] = {"producer_memory": memory, "monotonic": lambda: now_s[0]}
        silent = await lead(topics.open("other"), pool, **options)
        busy = await lead(topics.open("t"), pool, **options)
        for producer_id in range(1, 41):
            now_s[0] += 1
            await silent.submit([_slice(0, 1, 1, 0, producer_id=producer_id)], 1)
        for producer_id in range(1, 41):
            now_s[0] += 1
            await busy.submit([_slice(0, 1, 1, 0, producer_id=producer_id)], 1)
        with pytest.raises(UnknownProducerIdError):
            silent.submit([_slice(0, 1, 1, 1, producer_id=1)], 1)
        await silent.submit([_slice(0, 1, 1, 1, producer_id=40)], 1)
        await busy.submit([_slice(0, 1, 1, 1, producer_id=1)], 1)
        await silent.close(10)
        await busy.close(10)

    run(work)


def test_what_is_counted_for_a_producer_is_what_it_takes() -> None:
    """For a partition with its five batches: a tenth of what the batches themselves would take."""
    count = 3_000
    memory = ProducerMemory(2**40)
    states: ProducerStates[object] = ProducerStates(DAY_MS, memory)
    states.begin(0)
    tracemalloc.start()
    for number in range(count):
        for sent in range(7):
            by = ProducerBatch(2**61 + number * 7919, 0, sent * 10)
            one = Batch(number % 100, 10**9 + sent * 1_000, 10, by)
            states.accept(one, object(), number)
            states.committed([one], sent)
    taken_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert memory.used_bytes / count < 260
    assert 0.7 < memory.used_bytes / taken_bytes < 1.3


def test_no_step_of_forgetting_takes_all_who_are_silent() -> None:
    states: ProducerStates[object] = ProducerStates(1_000)
    for producer_id in range(10_000):
        states.restore(producer_id, 0, 0, 5, 0)
    states.begin(0)
    left = len(states)
    steps = 0
    while left:
        states.expire(1_000)
        assert 0 < left - len(states) <= 256
        left = len(states)
        steps += 1
    assert steps == 40


def test_a_producer_id_that_no_gateway_gave_out_is_refused_and_one_that_is_known_goes_on(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    ids = ProducerIds(b"secret of the warehouse")

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)  # before ids were looked at
        await appender.submit([_slice(0, 1, 1, 0, producer_id=2**60)], 1)
        await appender.close(10)
        appender = await lead(topics.open("t"), pool, producer_ids=ids)
        given = ids.of(7)
        await appender.submit([_slice(0, 2, 1, 0, producer_id=given)], 1)
        await appender.submit([_slice(0, 3, 1, 1, producer_id=2**60)], 1)
        for invented in (2**60 + 1, given + 1, given + (1 << 23), 5):
            with pytest.raises(UnknownProducerIdError, match="InitProducer") as caught:
                appender.submit([_slice(0, 4, 1, 0, producer_id=invented)], 1)
            assert caught.value.facts["producer_id"] == str(invented)
        with pytest.raises(UnknownProducerIdError):  # nor in another partition, with an old id
            appender.submit([_slice(1, 4, 1, 0, producer_id=2**60)], 1)
        assert appender.queued_bytes == 0
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"1", b"2", b"3"]


def test_ids_of_one_warehouse_are_positive_and_distinct_and_none_of_another() -> None:
    ids, others = ProducerIds(b"one" * 10), ProducerIds(b"two" * 10)
    numbers = [*range(1, 2_000), PRODUCER_NUMBER_MAX]
    given = [ids.of(number) for number in numbers]
    assert len(set(given)) == len(numbers)
    assert all(0 < one < 2**63 for one in given)
    assert all(ids.has_given(one) for one in given)
    assert not any(others.has_given(one) for one in given)
    assert not any(ids.has_given(one) for one in (0, -1, 2**63, 2**70, ids.of(1) ^ 1))


def test_an_id_is_of_the_principal_that_it_was_made_for_and_of_nobody_else() -> None:
    ids = ProducerIds(b"one" * 10)
    owners = ["", "User:alice", "User:bob", "User:alic", "User:ünïcödé\n:", "Group:alice"]
    for number in (1, 2, PRODUCER_NUMBER_MAX):
        for owner in owners:
            given = ids.of(number, owner)
            assert 0 < given < 2**63
            assert [one for one in owners if ids.has_given(given, one)] == [owner]
