"""An appender whose surroundings break in ways that nobody counts on: what it has accepted is
answered, what it says it has stopped is stopped, and nothing is counted twice."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import FaultyStore, nothing, times
from tests.unit.delta_log.tables import NOW_MS, same_state

from mainstem.delta_log import (
    Appender,
    ByteBudget,
    OpenTopic,
    RollUpMemory,
    Slice,
    Topics,
    load_table,
)
from mainstem.delta_log.files import roller
from mainstem.delta_log.format import ProducerBatch, Register, registers
from mainstem.delta_log.table import TableCommit, TableState, commit_beside_leader
from mainstem.delta_log.verify import verify_named
from mainstem.delta_log.wal import LocalWalFiles, Wal, segments
from mainstem.errors import InternalError, UnsupportedTableError
from mainstem.limits import KIB
from mainstem.records import records_to_wire_batch

pytestmark = pytest.mark.fault


class Panic(BaseException):
    """As a panic in Rust comes through to Python: no Exception."""


def _change_schema_elsewhere(topics: Topics) -> None:
    def build(state: TableState) -> TableCommit:
        assert state.metadata is not None
        schema = state.metadata.schema_string.replace('"value"', '"content"')
        assert schema != state.metadata.schema_string
        changed = replace(state.metadata, schema_string=schema)
        return TableCommit.of("OTHER", [changed], timestamp_ms=NOW_MS)

    assert commit_beside_leader(topics.open("t"), build) is not None


async def _catch_up(leader: Appender) -> None:
    await leader.catch_up()


async def _change(leader: Appender) -> None:
    await leader.change_metadata("CHANGE", lambda state: state.metadata)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("meets", [_catch_up, _change])
def test_a_leader_that_meets_another_schema_stops_whatever_it_meets_it_with(
    topics: Topics, pool: ThreadPoolExecutor, meets: Any
) -> None:
    create(topics)

    async def work() -> None:
        failures: list[object] = []
        leader = await lead(topics.open("t"), pool, on_failure=failures.append)
        await leader.submit([Slice(0, batch(0))], 1)
        _change_schema_elsewhere(topics)
        with pytest.raises(UnsupportedTableError, match="stopped writing"):
            await meets(leader)
        with pytest.raises(UnsupportedTableError):
            await leader.submit([Slice(0, batch(1))], 1)
        assert len(failures) == 1
        await leader.close(10)

    run(work)
    assert topics.open("t").state.log_end_offset(0) == 1


@pytest.mark.parametrize("call", ["put", "put_if_absent"])
def test_what_is_no_exception_fails_who_waits_and_whoever_comes_next(
    topics: Topics, pool: ThreadPoolExecutor, call: str
) -> None:
    create(topics)
    budget = ByteBudget(1_000)

    async def work() -> None:
        failures: list[object] = []
        opened = faulty(topics.open("t"))
        leader = await lead(opened, pool, budget=budget, on_failure=failures.append)
        opened.store.before = times(1, call, Panic("a bug"))  # type: ignore[attr-defined]
        answers = [leader.submit([Slice(0, batch(number))], 100) for number in range(3)]
        for answer in answers:
            with pytest.raises(InternalError, match="a bug"):
                await asyncio.wait_for(answer, 10)
        with pytest.raises(InternalError):
            leader.submit([Slice(0, batch(3))], 100)
        assert len(failures) == 1
        assert budget.used_bytes == 0
        await leader.close(10)

    run(work)


@pytest.mark.parametrize("listener", ["on_records", "on_commit"])
@pytest.mark.parametrize("error", [ValueError("a bug"), Panic("a bug")])
def test_a_listener_that_breaks_takes_nothing_from_who_waits(
    topics: Topics, pool: ThreadPoolExecutor, listener: str, error: BaseException
) -> None:
    create(topics)
    budget = ByteBudget(1_000)

    def breaks(_: object) -> None:
        raise error

    async def work() -> None:
        leader = await lead(topics.open("t"), pool, budget=budget, **{listener: breaks})
        for number in range(3):
            answer = leader.submit([Slice(0, batch(number))], 100)
            await asyncio.wait_for(answer, 10)
        assert budget.used_bytes == 0
        await leader.close(10)

    run(work)
    assert values(topics, 0) == [(number, b"%d" % number) for number in range(3)]


def test_a_fault_after_a_commit_frees_its_bytes_once(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    budget = ByteBudget(1_000)
    landed: list[object] = []

    def clock() -> float:
        if landed:
            raise ValueError("a clock that breaks")
        return 0.0

    async def work() -> None:
        leader = await lead(
            topics.open("t"), pool, budget=budget, monotonic=clock, on_records=landed.append
        )
        answer = leader.submit([Slice(0, batch(0))], 100)
        await asyncio.wait({answer}, timeout=10)
        assert answer.done()
        await leader.stopped()
        assert budget.used_bytes == leader.queued_bytes == 0
        answer.exception()

    run(work)
    assert values(topics, 0) == [(0, b"0")]


def test_a_write_ahead_log_that_meets_what_is_no_exception_lets_its_topics_go_on(
    tmp_path: Path, topics: Topics, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(topics)

    async def work() -> None:
        files = LocalWalFiles(tmp_path / "wal")
        wal = Wal(files, "g")
        opened = topics.open("t")
        leader = await lead(opened, pool, wal=wal)
        with monkeypatch.context() as patch:
            patch.setattr(segments.Segments, "write", _panics)
            answer = leader.submit([Slice(0, batch(0))], 1, write_ahead=True)
            await asyncio.wait_for(answer, 10)
        assert wal.failures == {"Panic": 1}
        # Who takes the topic over waits for what is being written.
        await asyncio.wait_for(wal.unfolded("t", opened.state.topic_id, 0), 10)
        await leader.close(10)
        await wal.close()
        files.close()

    run(work)
    assert values(topics, 0) == [(0, b"0")]


def _panics(*_: object) -> None:
    raise Panic("a bug")


def test_roll_ups_that_meet_what_is_no_exception_are_made_no_more_and_appends_go_on(
    topics: Topics, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(topics, rollup_files=2)
    merged: list[object] = []

    def merge(*_: object, **__: object) -> None:
        merged.append(None)
        raise Panic("a bug")

    monkeypatch.setattr(roller, "merge_data_files", merge)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool, roll_up_memory=RollUpMemory(2**20))
        for number in range(12):
            await leader.submit([Slice(0, batch(number))], 1)
        await leader.close(10)

    run(work)
    assert len(merged) == 1
    assert values(topics, 0) == [(number, b"%d" % number) for number in range(12)]


def test_a_caller_that_gives_a_change_up_at_any_call_of_the_store_leaves_the_leader_whole(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """The call goes on in its thread, and lands or not, while the leader commits what comes."""
    create(topics)
    position = 0

    async def given_up(opened: OpenTopic, number: int) -> bool:
        """Gives the change up at the call of that number; returns whether there was one."""
        loop = asyncio.get_running_loop()
        reached, calls = asyncio.Event(), [0]
        going_on = threading.Event()

        def before(call: str, path: str) -> None:
            if threading.current_thread() is threading.main_thread() or going_on.is_set():
                return
            calls[0] += 1
            if calls[0] == number + 1:
                loop.call_soon_threadsafe(reached.set)
                assert going_on.wait(10)

        leader = await lead(opened, pool)
        await leader.submit([Slice(0, batch(0))], 1)
        store = opened.store
        assert isinstance(store, FaultyStore)
        store.before = before
        change = asyncio.create_task(
            leader.change("CHANGE", lambda _: [Register(registers.lso(1), 0)])
        )
        stopped = asyncio.create_task(reached.wait())
        await asyncio.wait({change, stopped}, return_when=asyncio.FIRST_COMPLETED)
        met = reached.is_set()
        change.cancel()
        stopped.cancel()
        await asyncio.wait({change, stopped})
        calls[0] = 2**30  # the leader's own calls are not held up
        answers = [leader.submit([Slice(0, batch(number))], 1) for number in (1, 2)]
        await asyncio.wait(answers, timeout=0.05)
        going_on.set()
        await asyncio.gather(*answers)
        await leader.catch_up()
        assert same_state(leader.state, load_table(store))
        await leader.close(10)
        return met

    async def work() -> None:
        nonlocal position
        while True:
            opened = faulty(topics.open("t"))
            end = opened.state.log_end_offset(0)
            met = await given_up(opened, position)
            assert topics.open("t").state.log_end_offset(0) == end + 3
            if not met:
                break
            position += 1

    run(work)
    assert position >= 3
    assert [value for _, value in values(topics, 0)] == [b"0", b"1", b"2"] * (position + 1)
    assert verify_named(topics.store, "t").ok


@pytest.mark.parametrize("size_bytes", [1, 40 * KIB], ids=["in one call", "in several threads"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [ValueError("a bug"), Panic("a bug"), MemoryError()], ids=repr)
def test_a_fault_at_any_call_of_the_store_tells_who_waits_and_the_next_leader_goes_on(
    topics: Topics, pool: ThreadPoolExecutor, when: str, error: BaseException, size_bytes: int
) -> None:
    create(topics)
    lock = threading.Lock()

    async def fails_at(number: int) -> bool:
        """Fails at the call of that number; returns whether there was one."""
        calls = [0]

        def fault(call: str, path: str) -> None:
            with lock:
                calls[0] += 1
                meets = calls[0] == number + 1
            if meets:
                raise error

        opened = faulty(topics.open("t"))
        budget = ByteBudget(1_000_000)
        leader = await lead(opened, pool, budget=budget)
        store = opened.store
        assert isinstance(store, FaultyStore)
        setattr(store, when, fault)
        record = records_to_wire_batch([None], [b"x" * size_bytes], None, [NOW_MS])
        batch_of_two = [
            Slice(0, record, ProducerBatch(1, 0, number)),
            Slice(1, record, ProducerBatch(1, 0, number)),
        ]
        answer = leader.submit(batch_of_two, 2 * size_bytes)
        await asyncio.wait({answer}, timeout=10)
        assert answer.done(), "nobody told who waits"
        setattr(store, when, nothing)
        await leader.close(10)
        assert budget.used_bytes == 0
        met = answer.exception() is not None
        if met:  # an idempotent producer sends it again, to the next leader
            leader = await lead(topics.open("t"), pool, budget=budget)
            await leader.submit(batch_of_two, 2 * size_bytes)
            await leader.close(10)
        return met

    async def work() -> None:
        number = 0
        while await fails_at(number):
            number += 1
        assert number >= 4
        for partition in (0, 1):
            assert len(values(topics, partition)) == number + 1

    run(work)
    assert verify_named(topics.store, "t").ok
