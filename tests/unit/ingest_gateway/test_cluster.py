"""Who is taken for dead, by whose clock, and whose topics may be taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.delta_log.faults import FaultyStore, nothing
from tests.unit.ingest_gateway.harness import run

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore, ObjectStore, TableState
from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.store import MemoryStore
from mainstem.delta_log.system import DIRECTORY, BeatName, last_heartbeat_ms
from mainstem.errors import NotLeaderError, StoreUnavailableError
from mainstem.ingest_gateway.cluster import Cluster
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
    warehouse: Path,
    name: str,
    clock: Clock,
    on_health: Callable[[bool], None] = lambda _: None,
    store: ObjectStore | None = None,
) -> AsyncIterator[Cluster]:
    """A gateway among others, whose heartbeats are the test's own."""
    flags: dict[str, object] = {
        "gateway.heartbeat.interval.ms": INTERVAL_S * 1000,
        "gateway.session.timeout.ms": SESSION_S * 1000,
    }
    own = LocalStore(warehouse)
    cluster = Cluster(
        store or own,
        load_gateway_config(environment={}, flags=flags),
        name,
        f"{name}:1",
        GatewayMetrics(),
        on_health=on_health,
        clock_ms=lambda: int(clock.wall_s * 1000),
        elapsed_s=lambda: clock.elapsed_s,
    )
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
        own.close()


def log_of(leader: Cluster | None) -> TableState:
    """The state of a topic whose log names that leader."""
    state = TableState("t")
    state.registers[registers.LEADER] = Register(
        registers.LEADER, 0 if leader is None else leader.incarnation
    )
    return state


async def beats(cluster: Cluster, clock: Clock, seconds: float) -> None:
    """Time passes, with a heartbeat after each interval."""
    for _ in range(round(seconds / INTERVAL_S)):
        clock.passes(INTERVAL_S)
        await cluster.renew()


async def may_take(cluster: Cluster, leader: Cluster | None) -> bool:
    """Whether a topic may be led that has this leader, as its log says."""
    try:
        await asyncio.to_thread(cluster.check_free, "t", log_of(leader))
    except NotLeaderError as error:
        return not error.facts["leader"].endswith(":1")
    return True


@pytest.mark.parametrize("apart_s", [-365 * DAY_S, -DAY_S, -600, 600, DAY_S])
def test_a_leader_whose_clock_is_wrong_is_not_dead_at_first_sight(
    tmp_path: Path, apart_s: int
) -> None:
    async def test() -> None:
        theirs, ours = Clock(1_800_000_000 + apart_s), Clock()
        async with gateway(tmp_path, "one", theirs) as one:
            one.led("t")
            async with gateway(tmp_path, "two", ours) as two:
                for _ in range(10):
                    assert not await may_take(two, one)
                    assert two.leader("t", log_of(one)) == "one:1"
                    await beats(one, theirs, INTERVAL_S)
                    await beats(two, ours, INTERVAL_S)
                assert one.holds("t")

    run(test())


def test_a_gateway_that_is_gone_loses_its_topics_after_one_session_and_is_forgotten_after_three(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        clock, theirs = Clock(), Clock()
        async with gateway(tmp_path, "one", theirs) as one:
            one.led("t")
            clock.passes(DAY_S)
            async with gateway(tmp_path, "two", clock) as two:
                await beats(two, clock, 180)
                clock.passes(19)
                assert not await may_take(two, one)
                clock.passes(2)
                assert await may_take(two, one)
                assert [beat.gateway_id for beat in two.gateways()] == ["two"]
                assert two.leader("t", log_of(one)) == "two:1"
                await beats(two, clock, 3 * SESSION_S)
                assert len(list((tmp_path / DIRECTORY).iterdir())) == 1
                # Who starts now needs not wait for it.
                async with gateway(tmp_path, "three", Clock()) as three:
                    assert await may_take(three, one)
                # It comes back, and does not trust what it believes to lead.
                theirs.passes(SESSION_S)
                await one.renew()
                assert not one.holds("t")
                await two.renew()
                assert [beat.gateway_id for beat in two.gateways()] == ["two", "one"]

    run(test())


def test_a_gateway_that_finds_its_object_deleted_does_not_trust_what_it_leads(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with gateway(tmp_path, "one", Clock()) as one:
            one.led("t")
            assert one.may_acknowledge("t")
            for file in (tmp_path / DIRECTORY).iterdir():
                file.unlink()
            await one.look()
            assert not one.holds("t")
            assert not one.may_acknowledge("t")
            one.committed("t")
            assert one.may_acknowledge("t")

    run(test())


def test_a_gateway_has_a_session_from_when_its_last_heartbeat_was_seen_and_not_from_ours(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        clock, theirs = Clock(), Clock()
        async with (
            gateway(tmp_path, "one", theirs) as one,
            gateway(tmp_path, "two", clock) as two,
        ):
            clock.passes(30)
            theirs.passes(30)
            await one.renew()  # its last
            await two.look()
            await beats(two, clock, 180)
            clock.passes(19)
            assert not await may_take(two, one)
            clock.passes(2)
            assert await may_take(two, one)

    run(test())


def test_what_a_gateway_led_that_ended_is_free_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway(tmp_path, "two", Clock()) as two:
            async with gateway(tmp_path, "one", Clock(1)) as one:
                await two.renew()
                assert not await may_take(two, one)
            await two.renew()
            assert await may_take(two, one)
            assert await may_take(two, None)

    run(test())


def test_a_leader_that_has_started_since_the_last_look_is_looked_for_before_it_counts_as_gone(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with gateway(tmp_path, "two", Clock()) as two:
            async with gateway(tmp_path, "one", Clock()) as one:
                assert not await may_take(two, one)
            await two.renew()
            assert await may_take(two, one)

    run(test())


def test_a_restarted_gateway_does_not_wait_for_its_predecessor_and_nobody_else_does(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with (
            gateway(tmp_path, "two", Clock()) as two,
            gateway(tmp_path, "one", Clock()) as killed,
        ):
            await two.renew()
            assert not await may_take(two, killed)
            async with gateway(tmp_path, "one", Clock()) as again:
                assert await may_take(again, killed)
                await two.renew()
                assert await may_take(two, killed)
                assert {beat.incarnation for beat in two.gateways()} == {
                    two.incarnation,
                    again.incarnation,
                }

    run(test())


@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
def test_a_clock_that_is_set_while_gateways_run_takes_no_topic_away(
    tmp_path: Path, step_s: int
) -> None:
    async def test() -> None:
        clock, healthy = Clock(), [True]
        async with (
            gateway(tmp_path, "one", clock, healthy.append) as one,
            gateway(tmp_path, "two", clock) as two,
        ):
            one.led("t")
            await two.renew()
            clock.wall_s += step_s
            for _ in range(5):
                assert not await may_take(two, one)
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
            await two.renew()
            clock.passes(INTERVAL_S)
            await two.renew()  # the other one is late by an interval
            clock.passes(DAY_S)
            for _ in range(2):
                assert not await may_take(two, one)
                await two.renew()
            await one.renew()
            await two.renew()
            assert two.leader("t", log_of(one)) == "one:1"

    run(test())


def test_acks_1_is_not_answered_by_a_gateway_that_nobody_has_heard_of_for_a_session(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        clock = Clock()
        async with gateway(tmp_path, "one", clock) as one:
            one.led("t")
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
            one.led("t")
            clock.passes(SESSION_S)
            await one.renew()
            assert not one.holds("t")
            assert not one.may_acknowledge("t")
            one.led("u")
            assert one.may_acknowledge("u")
            one.committed("t")
            assert one.may_acknowledge("t")

    run(test())


def test_nothing_is_led_by_a_gateway_whose_heartbeats_do_not_reach_the_store(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        store = FaultyStore(MemoryStore())
        clock = Clock()
        async with gateway(tmp_path, "one", clock, store=store) as one:
            await one.check_heard("t")
            clock.passes(SESSION_S)

            def fails(call: str, path: str) -> None:
                if call == "put" and path.startswith(DIRECTORY):
                    raise StoreUnavailableError("the store is away")

            store.before = fails
            with pytest.raises(StoreUnavailableError, match="away"):
                await one.check_heard("t")
            store.before = nothing
            await one.check_heard("t")

    run(test())


def test_a_gateway_that_drains_still_leads_and_nothing_is_placed_on_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            gateway(tmp_path, "one", Clock()) as one,
            gateway(tmp_path, "two", Clock()) as two,
        ):
            await two.renew()
            await one.renew()
            topics = [f"t{number}" for number in range(50)]
            targets = {one.leader(topic, log_of(None)) for topic in topics}
            assert targets == {two.leader(topic, log_of(None)) for topic in topics}
            assert targets == {"one:1", "two:1"}
            await one.begin_draining()
            await two.renew()
            assert {two.leader(topic, log_of(None)) for topic in topics} == {"two:1"}
            assert {one.leader(topic, log_of(None)) for topic in topics} == {"two:1"}
            assert not await may_take(two, one)
            assert one.leader("t", log_of(one)) == two.leader("t", log_of(one)) == "one:1"
            assert [beat.draining for beat in two.gateways()] == [False, True]
            assert len(list((tmp_path / DIRECTORY).iterdir())) == 2

    run(test())


def test_who_is_there_is_counted_once_for_all_topics_of_a_listing_and_again_when_it_may_differ(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        ours, theirs = Clock(), Clock()
        async with gateway(tmp_path, "one", theirs) as one, gateway(tmp_path, "two", ours) as two:
            await two.look()
            places = two.places()
            assert set(places.others) == {one.key}
            assert places.placement.keys == {one.key, two.key}
            assert all(two.places() is places for _ in range(100))
            two.draining = True
            assert two.places().placement.keys == {one.key}
            two.draining = False
            await beats(two, ours, 3 * INTERVAL_S)
            ours.passes(SESSION_S - 3 * INTERVAL_S + 1)
            assert not two.places().others, "it was not heard of for a session"
            assert two.places().placement.keys == {two.key}

    run(test())


def test_objects_that_are_none_of_ours_or_make_no_sense_are_left_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway(tmp_path, "one", Clock()) as one:
            folder = tmp_path / DIRECTORY
            (folder / "README").write_text("hello")
            (folder / BeatName(5, 7).path().rsplit("/", 1)[1]).write_bytes(b"{torn")
            await one.renew()
            assert [beat.gateway_id for beat in one.gateways()] == ["one"]
            store = LocalStore(tmp_path)
            assert last_heartbeat_ms(store) == 1_800_000_000_000
            store.close()

    run(test())


def test_a_heartbeat_is_one_write_however_many_topics_are_led(tmp_path: Path) -> None:
    async def test() -> None:
        store = FaultyStore(MemoryStore())
        async with gateway(tmp_path, "one", Clock(), store=store) as one:
            for number in range(10_000):
                one.led(f"t{number}")
            store.calls.clear()
            await one.renew()
            assert [call for call, _ in store.calls] == ["put", "list_files"]
            (beat,) = one.gateways()
            assert beat.topics_led == 10_000
            assert len(beat.encode()) < 300

    run(test())


def test_metrics_say_which_gateways_there_are_and_how_many_topics_are_led_here(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        clock = Clock()
        async with gateway(tmp_path, "one", clock) as one:
            assert _counts(one) == (1, 0, 0)
            async with gateway(tmp_path, "two", clock) as two:
                one.led("t")
                one.led("u")
                await beats(one, clock, INTERVAL_S)
                assert _counts(one) == (2, 0, 2)
                assert _counts(two) == (2, 0, 0)
                await two.begin_draining()
                await beats(one, clock, INTERVAL_S)
                assert (_counts(one), _counts(two)) == ((1, 1, 2), (1, 1, 0))
            await beats(one, clock, INTERVAL_S)
            assert _counts(one) == (1, 0, 2)

    run(test())


def _counts(cluster: Cluster) -> tuple[int, int, int]:
    """Live and draining gateways, and topics led."""
    value = cluster._metrics.registry.get_sample_value
    live, draining = (
        value("mainstem_gateways", {"state": state}) for state in ("live", "draining")
    )
    led = value("mainstem_topics_led")
    assert live is not None
    assert draining is not None
    assert led is not None
    return int(live), int(draining), int(led)
