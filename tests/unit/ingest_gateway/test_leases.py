"""Leases: who is taken for dead, and by whose clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.harness import run

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore
from mainstem.errors import NotLeaderError
from mainstem.ingest_gateway.leases import Leases
from mainstem.ingest_gateway.metrics import GatewayMetrics

pytestmark = pytest.mark.usefixtures("nothing_left")

INTERVAL_S, SESSION_S = 60, 200
DAY_S = 86_400


class Clock:
    """The clocks of one machine: the time of day, which may be set, and what passes."""

    def __init__(self, wall_s: float = 1_800_000_000) -> None:
        self.wall_s = wall_s
        self.elapsed_s = 0.0

    def passes(self, seconds: float) -> None:
        self.wall_s += seconds
        self.elapsed_s += seconds


@asynccontextmanager
async def gateway(
    warehouse: Path, name: str, clock: Clock, on_health: Callable[[bool], None] = lambda _: None
) -> AsyncIterator[Leases]:
    """The leases of a gateway whose heartbeats are the test's own."""
    flags: dict[str, object] = {
        "gateway.heartbeat.interval.ms": INTERVAL_S * 1000,
        "gateway.session.timeout.ms": SESSION_S * 1000,
    }
    store = LocalStore(warehouse)
    leases = Leases(
        store,
        load_gateway_config(environment={}, flags=flags),
        name,
        f"{name}:1",
        GatewayMetrics(),
        on_health=on_health,
        clock_ms=lambda: int(clock.wall_s * 1000),
        elapsed_s=lambda: clock.elapsed_s,
    )
    try:
        await leases.start()
        yield leases
    finally:
        await leases.stop()
        store.close()


async def beats(leases: Leases, clock: Clock, seconds: float) -> None:
    """Time passes, with a heartbeat after each interval."""
    for _ in range(round(seconds / INTERVAL_S)):
        clock.passes(INTERVAL_S)
        await leases.renew()


@pytest.mark.parametrize("apart_s", [-365 * DAY_S, -DAY_S, -600, 600, DAY_S])
def test_a_holder_whose_clock_is_wrong_is_not_dead_at_first_sight(
    tmp_path: Path, apart_s: int
) -> None:
    async def test() -> None:
        theirs, ours = Clock(1_800_000_000 + apart_s), Clock()
        async with gateway(tmp_path, "one", theirs) as one:
            await one.acquire("t")
            async with gateway(tmp_path, "two", ours) as two:
                for _ in range(10):
                    with pytest.raises(NotLeaderError, match="gateway one leads"):
                        await two.acquire("t")
                    assert two.holder("t") == "one:1"
                    await beats(one, theirs, INTERVAL_S)
                    await beats(two, ours, INTERVAL_S)
                assert one.holds("t")

    run(test())


def test_a_gateway_that_is_gone_loses_its_topics_after_one_session_and_is_then_forgotten(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        clock = Clock()
        async with gateway(tmp_path, "one", Clock()) as one:
            await one.acquire("t")
            clock.passes(DAY_S)
            async with gateway(tmp_path, "two", clock) as two:
                await beats(two, clock, 180)
                clock.passes(19)
                with pytest.raises(NotLeaderError):
                    await two.acquire("t")
                clock.passes(2)
                await two.acquire("t")
                assert [row.gateway_id for row in two.gateways()] == ["two"]
                # Who starts now needs not wait for it, should 'two' go.
                async with gateway(tmp_path, "three", Clock()) as three:
                    assert three.holder("t") == "two:1"
                    two.release("t")
                    await two.renew()
                    await three.renew()
                    await three.acquire("t")
                # And it is told what it has lost when it comes back.
                await two.acquire("t")
                await one.renew()
                assert not one.holds("t")
                assert one.holder("t") == "two:1"
                await two.renew()
                assert {row.gateway_id for row in two.gateways()} == {"one", "two"}

    run(test())


def test_a_gateway_has_a_session_from_when_its_last_heartbeat_was_seen_and_not_from_ours(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        clock, theirs = Clock(), Clock()
        async with gateway(tmp_path, "one", theirs) as one:
            await one.acquire("t")
            async with gateway(tmp_path, "two", clock) as two:
                clock.passes(30)
                theirs.passes(30)
                await one.renew()  # its last
                await two.look()
                await beats(two, clock, 180)
                clock.passes(19)
                with pytest.raises(NotLeaderError):
                    await two.acquire("t")
                clock.passes(2)
                await two.acquire("t")

    run(test())


def test_a_lease_that_was_given_back_is_free_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway(tmp_path, "two", Clock()) as two:
            async with gateway(tmp_path, "one", Clock(1)) as one:
                await one.acquire("t")
                await two.renew()
                with pytest.raises(NotLeaderError):
                    await two.acquire("t")
            await two.renew()
            await two.acquire("t")

    run(test())


@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
def test_a_clock_that_is_set_while_gateways_run_takes_no_lease_away(
    tmp_path: Path, step_s: int
) -> None:
    async def test() -> None:
        clock, healthy = Clock(), [True]
        async with (
            gateway(tmp_path, "one", clock, healthy.append) as one,
            gateway(tmp_path, "two", clock) as two,
        ):
            await one.acquire("t")
            await two.renew()
            clock.wall_s += step_s
            for _ in range(5):
                with pytest.raises(NotLeaderError):
                    await two.acquire("t")
                clock.passes(INTERVAL_S)
                await one.renew()
                await two.renew()
            assert one.holds("t")
            assert healthy == [True]

    run(test())


def test_after_a_suspended_machine_wakes_nobody_on_it_is_taken_for_dead(tmp_path: Path) -> None:
    async def test() -> None:
        clock = Clock()
        async with gateway(tmp_path, "one", clock) as one, gateway(tmp_path, "two", clock) as two:
            await one.acquire("t")
            await two.renew()
            clock.passes(INTERVAL_S)
            await two.renew()  # the other one is late by an interval
            clock.passes(DAY_S)
            for _ in range(2):
                with pytest.raises(NotLeaderError):
                    await two.acquire("t")
                await two.renew()
            await one.renew()
            assert one.holds("t")
            await two.renew()
            assert two.holder("t") == "one:1"

    run(test())


def test_acks_1_is_not_answered_by_a_gateway_that_may_have_lost_its_lease(tmp_path: Path) -> None:
    async def test() -> None:
        clock = Clock()
        async with gateway(tmp_path, "one", clock) as one:
            await one.acquire("t")
            assert one.may_acknowledge("t")
            assert not one.may_acknowledge("another")
            await beats(one, clock, 2 * SESSION_S)
            clock.passes(SESSION_S - 1)
            assert one.may_acknowledge("t")
            await one.renew()
            assert one.may_acknowledge("t")
            clock.passes(SESSION_S)
            assert not one.may_acknowledge("t")

    run(test())


def test_a_gateway_that_was_stopped_answers_acks_1_again_when_it_has_committed(
    tmp_path: Path,
) -> None:
    """Another one may have had the topic, appended, and gone away, in the meantime."""

    async def test() -> None:
        clock = Clock()
        async with gateway(tmp_path, "one", clock) as one:
            await one.acquire("t")
            clock.passes(SESSION_S)
            await one.renew()
            assert one.holds("t")
            assert not one.may_acknowledge("t")
            await one.acquire("u")
            assert one.may_acknowledge("u")
            one.committed("t")
            assert one.may_acknowledge("t")

    run(test())
