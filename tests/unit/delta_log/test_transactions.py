"""Transactions in one topic: their records are in the log once or not at all, and who asks is told
the truth, whatever the store answers and whoever leads."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import FaultyStore, nothing, times, unavailable, unknown
from tests.unit.delta_log.tables import NOW_MS
from tests.unit.delta_log.test_acks import Crash, Gateways, Switch, gateways

from mainstem.delta_log import Appender, ByteBudget, Slice, Topics
from mainstem.delta_log.append import TransactionMark
from mainstem.delta_log.format import ProducerBatch, Register, registers
from mainstem.delta_log.table import OpenTopic, TableCommit, commit_beside_leader, load_table
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.delta_log.verify import verify_named
from mainstem.delta_log.wal import Wal
from mainstem.errors import (
    MainstemError,
    ShuttingDownError,
    TransactionAbortedError,
    UnknownPartitionError,
)

__all__ = ["gateways"]

DAY_S = 86_400.0


def mark(number: int, transactional_id: str = "bank") -> TransactionMark:
    return TransactionMark(transactional_id, 2 * number)


def counts(topics: Topics, *partitions: int) -> Counter[bytes]:
    return Counter(value for partition in partitions for _, value in values(topics, partition))


def check(topics: Topics) -> None:
    """Nothing of the topic is wrong, and its offsets are dense."""
    report = verify_named(topics.store, "t")
    assert report.ok, report.findings
    for partition in range(6):
        found = values(topics, partition)
        assert [offset for offset, _ in found] == list(range(len(found)))


def test_a_transaction_is_one_commit_with_its_register_and_comes_once(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        before = leader.submit([Slice(0, batch(0))], 1)
        slices = [Slice(0, batch(1, 2)), Slice(3, batch(1)), Slice(0, batch(2))]
        first = leader.append_transaction(mark(1), slices)
        pending = leader.append_transaction(mark(1), slices)
        behind = leader.submit([Slice(0, batch(3))], 1)
        assert (await before).batches
        appended = await first
        assert appended == await pending
        assert [(b.partition, b.base_offset, b.record_count) for b in appended.batches] == [
            (0, 1, 3),
            (3, 0, 1),
        ]
        assert (await behind).batches[0].base_offset == 4
        again = await leader.append_transaction(mark(1), slices)
        assert (again.table_version, again.batches) == (-1, ())
        assert await leader.settle_transaction(mark(1))
        await leader.close(10)
        leader = await lead(topics.open("t"), pool)
        assert (await leader.append_transaction(mark(1), slices)).batches == ()
        assert await leader.settle_transaction(mark(1))
        later = await leader.append_transaction(mark(2), [Slice(3, batch(5))])
        assert later.batches[0].base_offset == 1
        with pytest.raises(TransactionAbortedError):
            leader.append_transaction(mark(1), slices)
        await leader.close(10)

    run(work)
    assert topics.open("t").state.register_value(registers.transaction("bank")) == 4
    assert counts(topics, 0, 3) == {b"0": 1, b"1": 3, b"2": 1, b"3": 1, b"5": 1}
    check(topics)


def test_a_transaction_that_was_fenced_never_gets_in_and_the_next_one_does(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        settling = asyncio.ensure_future(leader.settle_transaction(mark(3)))
        await asyncio.sleep(0)
        for number in (1, 3):  # from the first moment on, and those before it
            with pytest.raises(TransactionAbortedError):
                leader.append_transaction(mark(number), [Slice(0, batch(number))])
        assert not await settling
        version = leader.state.version
        assert not await leader.settle_transaction(mark(3))
        assert not await leader.settle_transaction(mark(2))
        assert leader.state.version == version, "a fence that is there is not written again"
        other = leader.append_transaction(mark(3, "other"), [Slice(0, batch(30))])
        await leader.append_transaction(mark(4), [Slice(0, batch(4))])
        await other
        await leader.close(10)
        leader = await lead(topics.open("t"), pool)
        assert not await leader.settle_transaction(mark(3))
        assert await leader.settle_transaction(mark(4))
        with pytest.raises(TransactionAbortedError):
            leader.append_transaction(mark(3), [Slice(0, batch(3))])
        await leader.close(10)

    run(work)
    assert counts(topics, 0) == {b"30": 1, b"4": 1}
    check(topics)


def test_to_settle_a_transaction_that_waits_for_its_commit_waits_for_that(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    held = threading.Event()
    held.set()

    def hold(call: str, path: str) -> None:
        if call == "put_if_absent":
            assert held.wait(10)

    async def work() -> None:
        leader = await lead(faulty(topics.open("t"), hold), pool)
        held.clear()
        appending = leader.append_transaction(mark(1), [Slice(0, batch(1))])
        settling = asyncio.ensure_future(leader.settle_transaction(mark(1)))
        earlier = asyncio.ensure_future(leader.settle_transaction(mark(0 + 1, "other")))
        await asyncio.sleep(0.02)
        assert not settling.done()
        again = leader.append_transaction(mark(1), [Slice(0, batch(1))])
        appending.cancel()  # whose caller gives up takes it from nobody
        held.set()
        assert await settling
        assert not await earlier
        assert (await again).batches[0].base_offset == 0
        assert (await leader.append_transaction(mark(1), [Slice(0, batch(1))])).batches == ()
        await leader.close(10)

    run(work)
    assert counts(topics, 0) == {b"1": 1}
    check(topics)


def test_a_transaction_gets_into_a_full_queue_and_waits_for_no_interval(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics, commit_interval_ms=20_000)

    async def work() -> None:
        budget = ByteBudget(1_000)
        leader = await lead(topics.open("t"), pool, budget=budget, queue_bytes=1_000)
        await leader.submit([Slice(0, batch(0))], 1)  # the next one waits for the interval
        waits = leader.submit([Slice(0, batch(1))], 1_000)
        async with asyncio.timeout(5):
            await leader.append_transaction(mark(1), [Slice(0, batch(2, 1_000))])
        assert waits.done()
        assert budget.used_bytes == 0
        await leader.close(10)

    run(work)
    assert counts(topics, 0) == {b"0": 1, b"1": 1, b"2": 1_000}


def test_what_cannot_be_appended_is_refused_whole(topics: Topics, pool: ThreadPoolExecutor) -> None:
    create(topics)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        with pytest.raises(UnknownPartitionError, match="partition 6, only 0 to 5"):
            leader.append_transaction(mark(1), [Slice(0, batch(1)), Slice(6, batch(1))])
        numbered = Slice(0, batch(1), ProducerBatch(77, 0, 5))
        await leader.append_transaction(mark(1), [numbered])  # the numbers are the transaction's
        await leader.close(10)
        with pytest.raises(MainstemError):
            leader.append_transaction(mark(2), [Slice(0, batch(2))])
        with pytest.raises(MainstemError):
            await leader.settle_transaction(mark(2))
        leader = await lead(topics.open("t"), pool)
        closing = asyncio.ensure_future(leader.close(10))
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDownError):
            leader.append_transaction(mark(2), [Slice(0, batch(2))])
        await closing

    run(work)
    assert counts(topics, 0) == {b"1": 1}
    assert not any(map(registers.is_producer, topics.open("t").state.registers))
    check(topics)


def test_a_topic_of_append_time_marks_the_records_of_a_transaction(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics, **{"message.timestamp.type": "LogAppendTime"})

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        told: list[Any] = []
        leader._on_records = told.append
        await leader.append_transaction(mark(1), [Slice(0, batch(1))])
        (slice_,) = told[0].partitions[0][1]
        assert slice_.log_append_time
        await leader.close(10)

    run(work)


@pytest.mark.fault
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fault", [unavailable, unknown, lambda: ValueError("a bug")])
def test_a_fault_at_any_call_of_the_store_leaves_a_transaction_there_once_or_not_and_settled(
    topics: Topics, pool: ThreadPoolExecutor, when: str, fault: Callable[[], Exception]
) -> None:
    """The coordinator goes on as it would: it settles, or appends again, at whoever leads then."""
    create(topics)
    lock = threading.Lock()
    wanted: Counter[bytes] = Counter()

    async def fails_at(number: int, *, appends_again: bool) -> bool:
        calls = [0]

        def hook(call: str, path: str) -> None:
            with lock:
                calls[0] += 1
                meets = calls[0] == position + 1
            if meets and (call == "put_if_absent" or not isinstance(fault(), type(unknown()))):
                raise fault()

        one, slices = mark(number), [Slice(0, batch(number, 2)), Slice(1, batch(number))]
        opened = faulty(topics.open("t"))
        leader = await lead(opened, pool)
        assert isinstance(opened.store, FaultyStore)
        setattr(opened.store, when, hook)
        try:
            appended = await leader.append_transaction(one, slices)
            assert {b.record_count for b in appended.batches} == {1, 2}
            is_there = True
        except MainstemError:
            setattr(opened.store, when, nothing)
            await leader.close(10)
            leader = await lead(topics.open("t"), pool)
            if appends_again:
                await leader.append_transaction(one, slices)
                is_there = await leader.settle_transaction(one)
                assert is_there
            else:
                is_there = await leader.settle_transaction(one)
                if not is_there:
                    with pytest.raises(TransactionAbortedError):
                        leader.append_transaction(one, slices)
        if is_there:
            wanted[b"%d" % number] = 3
        met = calls[0] > position
        await leader.close(10)
        return met

    position = 0

    async def work() -> None:
        nonlocal position
        met, number = True, 0
        while met:
            for appends_again in (True, False):
                number += 1
                met = await fails_at(number, appends_again=appends_again)
            position += 1
        assert position >= 2

    run(work)
    assert counts(topics, 0, 1) == wanted
    check(topics)


@pytest.mark.fault
@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
def test_a_transaction_or_a_fence_whose_answer_was_lost_is_in_the_log_once(
    topics: Topics, pool: ThreadPoolExecutor, landed: bool
) -> None:
    create(topics)
    fault = times(2, "put_if_absent", unknown(), "00000002.json")
    other = times(2, "put_if_absent", unknown(), "00000003.json")

    def hook(call: str, path: str) -> None:
        fault(call, path)
        other(call, path)

    async def work() -> None:
        hooks = {"after" if landed else "before": hook}
        leader = await lead(faulty(topics.open("t"), **hooks), pool)
        appended = await leader.append_transaction(mark(1), [Slice(0, batch(1))])
        assert appended.table_version == 2
        assert not await leader.settle_transaction(mark(2))
        assert leader.state.version == 3
        await leader.close(10)

    run(work)
    assert counts(topics, 0) == {b"1": 1}
    check(topics)


def test_a_job_that_commits_beside_takes_nothing_from_a_transaction_or_a_fence(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    beside = topics.open("t")
    busy = threading.Event()

    def job(call: str, path: str) -> None:
        """Takes the version that the leader is about to commit."""
        if call == "put_if_absent" and not busy.is_set():
            busy.set()
            commit_beside_leader(beside, lambda _: TableCommit.of("JOB", [], timestamp_ms=NOW_MS))

    async def work() -> None:
        busy.set()
        leader = await lead(faulty(topics.open("t"), job), pool)
        busy.clear()
        first = await leader.append_transaction(mark(1), [Slice(0, batch(1))])
        busy.clear()
        assert not await leader.settle_transaction(mark(2))
        assert leader.state.version == first.table_version + 2
        await leader.close(10)

    run(work)
    assert topics.open("t").state.register_value(registers.transaction("bank")) == 5
    assert counts(topics, 0) == {b"1": 1}
    check(topics)


@pytest.mark.fault
@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
def test_the_next_leader_knows_what_became_of_the_transaction_of_one_that_was_deposed(
    topics: Topics, pool: ThreadPoolExecutor, landed: bool
) -> None:
    create(topics)
    held, reached = threading.Event(), threading.Event()
    held.set()

    def hold(call: str, path: str) -> None:
        if call == "put_if_absent" and not held.is_set():
            reached.set()
            assert held.wait(10)

    async def work() -> None:
        hooks = {"after" if landed else "before": hold}
        old = await lead(faulty(topics.open("t"), **hooks), pool)
        held.clear()
        appending = old.append_transaction(mark(1), [Slice(0, batch(1))])
        settling = asyncio.ensure_future(old.settle_transaction(mark(1)))
        await asyncio.get_running_loop().run_in_executor(None, reached.wait, 10)
        new = await lead(topics.open("t"), pool)
        assert await new.settle_transaction(mark(1)) == landed
        held.set()
        if landed:
            assert (await appending).batches[0].base_offset == 0
            assert await settling
        else:
            with pytest.raises(MainstemError):
                await appending
            with pytest.raises(MainstemError):
                await settling
            with pytest.raises(TransactionAbortedError):
                new.append_transaction(mark(1), [Slice(0, batch(1))])
        after = await new.append_transaction(mark(2), [Slice(0, batch(2))])
        assert after.batches[0].base_offset == int(landed)
        await asyncio.gather(old.close(10), new.close(10))

    run(work)
    assert counts(topics, 0) == {b"2": 1} | ({b"1": 1} if landed else {})
    check(topics)


def test_whatever_races_a_transaction_is_there_once_or_fenced_and_offsets_are_dense(
    topics: Topics, pool: ThreadPoolExecutor, rng: random.Random
) -> None:
    create(topics)
    there: dict[int, bool] = {}
    plain: list[asyncio.Future[Any]] = []

    async def one(leader: Appender, number: int) -> None:
        slices = [Slice(number % 3, batch(number, 2)), Slice(5, batch(number))]
        tries: list[asyncio.Future[Any]] = []
        settles = []
        for _ in range(3):
            if rng.random() < 0.5:
                settles.append(asyncio.ensure_future(leader.settle_transaction(mark(number))))
            else:
                try:
                    tries.append(leader.append_transaction(mark(number), slices))
                except TransactionAbortedError:
                    assert settles
            plain.append(leader.submit([Slice(number % 3, batch(10_000 + number))], 1))
            await asyncio.sleep(rng.choice([0, 0, 0.001, 0.004]))
        await asyncio.gather(*tries)
        told = set(await asyncio.gather(*settles)) | ({True} if tries else set())
        assert len(told) == 1
        there[number] = told.pop()

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        for number in range(1, 60):
            await one(leader, number)
        await asyncio.gather(*plain)
        await leader.close(10)

    run(work)
    assert len(set(there.values())) == 2
    found = counts(topics, 0, 1, 2, 5)
    for number, is_there in there.items():
        assert found[b"%d" % number] == (3 if is_there else 0), number
        assert found[b"%d" % (10_000 + number)] == 3
    check(topics)


def test_nothing_enters_the_write_ahead_log_behind_a_transaction_before_its_commit(
    gateways: Gateways, topics: Topics
) -> None:
    """Or its offsets would be a hole where the log is replayed after a crash."""
    away = Switch("put_if_absent", unavailable())
    durable: list[Any] = []

    async def first(appender: Appender, wal: Wal) -> None:
        away.on = True
        before = appender.submit([Slice(0, batch(1))], 1, write_ahead=True)
        await asyncio.wait_for(before, 10)
        appending = appender.append_transaction(mark(1), [Slice(0, batch(2, 3))])
        behind = appender.submit([Slice(0, batch(3))], 1, write_ahead=True)
        elsewhere = appender.submit([Slice(1, batch(4))], 1, write_ahead=True)
        await asyncio.wait({appending, behind, elsewhere}, timeout=0.05)
        assert not any(one.done() for one in (appending, behind, elsewhere))
        assert gateways.logged() == [b"1"]
        assert [one.partitions[0][0] for one in durable] == [0]

    gateways.run(first, before=away, on_durable=durable.append, other_logs=_no_others)
    away.on = False

    async def second(appender: Appender, wal: Wal) -> None:
        appended = await appender.append_transaction(mark(1), [Slice(0, batch(2, 3))])
        assert appended.batches[0].base_offset == 1
        away.on = True
        last = await appender.submit([Slice(0, batch(5))], 1, write_ahead=True)
        assert (last.table_version, last.batches[0].base_offset) == (-1, 4)
        assert b"5" in gateways.logged(), "the log takes records again"

    gateways.run(second, before=away)

    async def third(appender: Appender, wal: Wal) -> None:
        while appender.queued_bytes:  # noqa: ASYNC110 - the appender has no event for it
            await asyncio.sleep(0.001)

    gateways.run(third, clean=True)
    assert [value for _, value in values(topics, 0)] == [b"1", b"2", b"2", b"2", b"5"]
    assert values(topics, 1) == []
    check(topics)


@pytest.mark.fault
@pytest.mark.parametrize("settles", [False, True], ids=["appends again", "settles"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gateway_that_dies_at_any_call_leaves_what_it_promised_and_a_transaction_once_or_not(
    gateways: Gateways, topics: Topics, when: str, settles: bool
) -> None:
    """With acks=1 before the transaction and behind it."""
    wanted: Counter[bytes] = Counter()
    met = True
    position = -1

    def dies(calls: list[int]) -> Callable[[str, str], None]:
        def hook(call: str, path: str) -> None:
            nonlocal met
            calls[0] += 1
            if calls[0] > position:
                met = True
                raise Crash

        return hook

    async def first(appender: Appender, wal: Wal) -> None:
        calls[0] = 0
        number = 10 * position
        answers = {
            b"%d" % number: appender.submit([Slice(0, batch(number))], 1, write_ahead=True),
            b"%d" % (number + 1): appender.append_transaction(
                mark(position + 1), [Slice(0, batch(number + 1)), Slice(1, batch(number + 1))]
            ),
            b"%d" % (number + 2): appender.submit(
                [Slice(0, batch(number + 2))], 1, write_ahead=True
            ),
        }
        await asyncio.wait(answers.values(), timeout=0.05)
        for value, answer in answers.items():
            if answer.done() and answer.exception() is None:
                promised.add(value)

    async def again(appender: Appender, wal: Wal) -> None:
        number = 10 * position + 1
        slices = [Slice(0, batch(number)), Slice(1, batch(number))]
        if settles:
            is_there = await appender.settle_transaction(mark(position + 1))
        else:
            await appender.append_transaction(mark(position + 1), slices)
            is_there = True
        assert is_there or b"%d" % number not in promised
        wanted[b"%d" % number] = 2 if is_there else 0

    while met:
        position, met = position + 1, False
        promised: set[bytes] = set()
        calls = [-1_000_000]
        hook = dies(calls)
        gateways.run(
            first,
            before=hook if when == "before" else nothing,
            after=hook if when == "after" else nothing,
        )
        gateways.run(again, clean=True)
        found = counts(topics, 0, 1)
        for value in promised - {b"%d" % (10 * position + 1)}:
            assert found[value] == 1, value
    assert position >= 3
    found = counts(topics, 0, 1)
    assert max(found.values()) <= 2
    for value, count in wanted.items():
        assert found[value] == count, value
    check(topics)


async def _no_others(_: object) -> list[Wal]:
    return []


def test_a_transactional_id_without_transactions_for_a_week_leaves_the_table(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    now_s = 0.0

    async def work() -> None:
        nonlocal now_s
        leader = await lead(topics.open("t"), pool, monotonic=lambda: now_s)
        await leader.append_transaction(mark(1, "old"), [Slice(0, batch(1))])
        assert not await leader.settle_transaction(mark(1, "fenced"))
        now_s = 6 * DAY_S
        await leader.append_transaction(mark(1, "young"), [Slice(0, batch(2))])
        await leader.append_transaction(mark(9, "old"), [Slice(0, batch(3))])
        now_s = 8 * DAY_S
        await leader.submit([Slice(0, batch(4))], 1)
        assert kept(leader.state.registers) == {"young": 2, "old": 18}
        await leader.close(10)
        # A leader gives all of them their whole time again.
        leader = await lead(topics.open("t"), pool, monotonic=lambda: now_s)
        now_s = 14 * DAY_S
        await leader.submit([Slice(0, batch(5))], 1)
        assert kept(leader.state.registers) == {"young": 2, "old": 18}
        now_s = 16 * DAY_S
        assert (await leader.append_transaction(mark(9, "old"), [Slice(0, batch(3))])).batches == ()
        await leader.submit([Slice(0, batch(6))], 1)
        assert kept(leader.state.registers) == {}
        await leader.append_transaction(mark(1, "old"), [Slice(0, batch(7))])
        await leader.close(10)

    def kept(found: dict[str, Register]) -> dict[str, int]:
        return {
            registers.parse_transaction(name): register.value
            for name, register in found.items()
            if registers.is_transaction(name)
        }

    run(work)
    opened = topics.open("t")
    check(topics)
    write_checkpoint(opened.store)
    assert kept(load_table(opened.store).registers) == {"old": 2}
    check(topics)


def test_a_topic_that_is_made_again_has_none_of_the_transactions_of_the_one_before(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def append(opened: OpenTopic) -> int:
        leader = await lead(opened, pool)
        appended = await leader.append_transaction(mark(1), [Slice(0, batch(1))])
        await leader.close(10)
        return len(appended.batches)

    async def work() -> None:
        assert await append(topics.open("t")) == 1
        topics.delete("t")
        create(topics)
        assert await append(topics.open("t")) == 1

    run(work)
    check(topics)
