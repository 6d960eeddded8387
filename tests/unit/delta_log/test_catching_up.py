"""A leader that appends nothing learns what others have committed to its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import times, unavailable
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import Slice, Topics
from mainstem.delta_log.append import appender as appender_module
from mainstem.delta_log.format import Action, Register, registers
from mainstem.delta_log.table import TableCommit, TableState, commit_beside_leader, trim_step
from mainstem.errors import FencedError, StoreUnavailableError


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.mark.parametrize("count", [0, 1, 2, 12])
def test_a_leader_that_has_caught_up_knows_that_its_state_is_new(
    topics: Topics, pool: ThreadPoolExecutor, count: int
) -> None:
    create(topics)
    passed_s = [0.0]

    async def work() -> None:
        leader = await lead(topics.open("t"), pool, monotonic=lambda: passed_s[0])
        passed_s[0] = 100.0
        assert leader.state_age_s >= 100
        for _ in range(count):
            _commit_elsewhere(topics, [Register(registers.lso(0), 0)])
        await leader.catch_up()
        assert leader.state_age_s == 0
        assert leader.state.version == topics.open("t").state.version
        await leader.close(10)

    run(work)


def _commit_elsewhere(topics: Topics, actions: Sequence[Action]) -> None:
    opened = topics.open("t")

    def build(_: TableState) -> TableCommit:
        return TableCommit.of("OTHER", actions, timestamp_ms=NOW_MS)

    assert commit_beside_leader(opened, build) is not None


def test_a_leader_that_catches_up_has_the_log_start_that_another_process_set(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        for number in range(3):
            await leader.submit([Slice(0, batch(number))], 1)
        _commit_elsewhere(topics, trim_step(leader.state, {0: 2}, NOW_MS))
        _commit_elsewhere(topics, [Register(registers.lso(1), 0)])
        assert leader.state.log_start_offset(0) == 0
        await leader.catch_up()
        assert leader.state_age_s < 60
        assert leader.state.log_start_offset(0) == 2
        assert leader.state.file_count == 1
        await leader.submit([Slice(0, batch(3))], 1)
        await leader.close(10)

    run(work)
    assert values(topics, 0) == [(2, b"2"), (3, b"3")]


@pytest.mark.parametrize(
    ("interval", "policy"),
    [("IDLE_CATCH_UP_INTERVAL_S", "delete"), ("COMPACTED_CATCH_UP_INTERVAL_S", "compact,delete")],
)
def test_an_idle_leader_catches_up_by_itself_and_sooner_where_keys_are_compacted(
    topics: Topics,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    interval: str,
    policy: str,
) -> None:
    monkeypatch.setattr(appender_module, interval, 0.01)
    create(topics, **{"cleanup.policy": policy})

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        await leader.submit([Slice(0, batch(0, 5))], 1)
        _commit_elsewhere(topics, [Register(registers.lso(0), 4)])
        while leader.state.log_start_offset(0) != 4:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await leader.submit([Slice(0, batch(1))], 1)
        await leader.close(10)

    run(work)


def test_a_leader_that_catches_up_with_a_higher_epoch_stops(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        failures: list[object] = []
        leader = await lead(topics.open("t"), pool, on_failure=failures.append)
        _commit_elsewhere(topics, [Register(registers.EPOCH, leader.epoch + 1)])
        with pytest.raises(FencedError):
            await leader.catch_up()
        with pytest.raises(FencedError):
            leader.submit([Slice(0, batch(0))], 1)
        assert len(failures) == 1
        await leader.close(10)

    run(work)


@pytest.mark.fault
def test_a_look_that_the_store_fails_leaves_the_leader_as_it_was(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        opened = faulty(topics.open("t"), times(1, "read", unavailable(), "00000002.json"))
        leader = await lead(opened, pool)
        _commit_elsewhere(topics, [Register(registers.lso(0), 0)])
        with pytest.raises(StoreUnavailableError):
            await leader.catch_up()
        assert leader.failure is None
        await leader.catch_up()
        assert leader.state.version == 2
        await leader.close(10)

    run(work)


def test_looks_and_appends_at_once_lose_nothing(topics: Topics, pool: ThreadPoolExecutor) -> None:
    create(topics)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        answers = []
        for number in range(40):
            answers.append(leader.submit([Slice(0, batch(number))], 1))
            if number % 4 == 0:
                _commit_elsewhere(topics, [Register(registers.lso(1), 0)])
                await leader.catch_up()
        await asyncio.gather(*answers)
        await leader.close(10)

    run(work)
    assert values(topics, 0) == [(number, b"%d" % number) for number in range(40)]


def test_a_change_with_nothing_to_do_commits_nothing(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        before = leader.state.version
        assert await leader.change("NOTHING", lambda _: []) == before
        assert leader.state.version == before
        await leader.close(10)

    run(work)


def test_a_leader_of_a_log_that_is_kept_for_seconds_looks_more_often(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    topics.create("t", 1, {"delta.logRetentionDuration": "interval 1 seconds"})

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        _commit_elsewhere(topics, [Register(registers.lso(0), 0)])
        version = leader.state.version
        while leader.state.version == version:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await leader.close(10)

    run(work)
