"""Idempotent producers through the appender on a real store: a batch counts once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import times, unavailable, unknown
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import Appended, Appender, LocalStore, Slice, Topics
from mainstem.delta_log.table import (
    ProducerBatch,
    Register,
    read_commit,
    registers,
    write_checkpoint,
)
from mainstem.errors import (
    FencedError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


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
        again.cancel()  # whoever gives up takes nothing from those who sent it first
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
                opened.store.close()
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
        bound = store.bind("topics/t")
        actions = read_commit(bound, result.table_version)
        bound.close()
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
        answer = await appender.submit([_slice(0, 1, 3, 0, epoch=4)], 1)
        assert answer.batches[0].base_offset == -1  # it is there; nobody knows where
        await appender.submit([_slice(0, 2, 1, 3, epoch=4)], 1)
        await appender.close(10)

    run(work)
    assert len(values(topics, 0)) == 4


def test_a_producer_that_was_silent_for_too_long_begins_anew_and_never_doubles(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    now = [NOW_MS]

    async def work() -> None:
        appender = await lead(
            topics.open("t"), pool, clock_ms=lambda: now[0], producer_expiration_ms=1_000
        )
        await appender.submit([_slice(0, 1, 3, 0)], 1)
        now[0] += 999
        await appender.submit([_slice(0, 1, 1, 3)], 1)
        now[0] += 1_000
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
        now[0] += 1_000
        appender = await lead(
            topics.open("t"), pool, clock_ms=lambda: now[0], producer_expiration_ms=1_000
        )
        assert registers.producer(5, 0) not in appender.state.registers
        with pytest.raises(UnknownProducerIdError):
            appender.submit([_slice(0, 4, 1, 3)], 1)
        await appender.close(10)

    run(work)
    assert len(values(topics, 0)) == 8


def test_checkpoints_forget_producers_after_the_tables_retention_and_keep_the_ends(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    import time

    create(topics)
    day = 86_400_000
    real_ms = time.time_ns() // 1_000_000

    async def work() -> None:
        for producer_id, now_ms in ((1, real_ms - day - 60_000), (2, real_ms - day + 60_000)):
            appender = await lead(topics.open("t"), pool, clock_ms=lambda ms=now_ms: ms)
            await appender.submit([_slice(0, 1, 3, 0, producer_id=producer_id, epoch=1)], 1)
            await appender.close(10)

    run(work)
    opened = topics.open("t")
    version = write_checkpoint(opened.store)
    opened.store.close()
    for commit_file in Path(topics.uri("t"), "_delta_log").glob("*.json"):
        if int(commit_file.stem) < version:
            commit_file.unlink()
    state = topics.open("t")
    state.store.close()
    names = set(state.state.registers)
    assert registers.producer(1, 0) not in names
    assert registers.producer_epoch(1, 0) not in names
    assert registers.producer(2, 0) in names
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


def test_many_producers_are_looked_through_for_those_to_forget_now_and_then(
    topics: Topics, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.delta_log.append.appender._EXPIRE_INTERVAL_COMMITS", 1)
    create(topics)
    now = [NOW_MS]

    async def work() -> None:
        appender: Appender = await lead(
            topics.open("t"), pool, clock_ms=lambda: now[0], producer_expiration_ms=1_000
        )
        for producer_id in range(1, 5):
            await appender.submit([_slice(0, 1, 1, 0, producer_id=producer_id)], 1)
            now[0] += 400
        names = {name for name in appender.state.registers if "/producer/" in name}
        assert names == {registers.producer(producer_id, 0) for producer_id in (2, 3, 4)}
        await appender.close(10)

    run(work)
