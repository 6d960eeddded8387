"""How long those wait who use more than their quotas, by a clock of the test's own."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.ingest_gateway.harness import run

from mainstem.errors import QuotaExceededError
from mainstem.ingest_gateway.quotas import Bucket, Charge, Quotas
from mainstem.ingest_gateway.quotas import quotas as module
from mainstem.ingest_gateway.quotas.bucket import DEBT_S_MAX
from mainstem.security import ANONYMOUS, DEFAULT, GATEWAY, Principal, QuotaEntity, QuotaName

PRODUCE, FETCH = QuotaName.PRODUCER_BYTE_RATE, QuotaName.CONSUMER_BYTE_RATE
REQUESTS, CONNECTIONS = QuotaName.REQUEST_RATE, QuotaName.CONNECTIONS

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")


class Clock:
    """Time passes when somebody sleeps, or the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, wait_s: float) -> None:
        self.slept.append(wait_s)
        self.now_s += wait_s
        await asyncio.sleep(0)


def quotas(clock: Clock, rows: dict[QuotaEntity, dict[QuotaName, float]], **more: Any) -> Quotas:
    found = Quotas(
        CollectorRegistry(), **{"waiting_max": 10, "now_s": clock, "sleep": clock.sleep, **more}
    )
    found.replace(rows)
    return found


def test_a_bucket_lets_a_seconds_worth_through_and_then_keeps_to_its_rate() -> None:
    bucket = Bucket(100.0, 0.0)
    used, now_s = 0, 0.0
    while now_s < 60.0:
        wait_s = bucket.wait_s(now_s)
        if wait_s:
            now_s += wait_s
            continue
        bucket.use(7, now_s)
        used += 7
    assert 60 * 100 <= used <= 61 * 100 + 2 * 7


def test_one_huge_request_shuts_nobody_out_for_longer_than_a_client_waits() -> None:
    bucket = Bucket(100.0, 0.0)
    bucket.use(1e12, 0.0)
    assert bucket.wait_s(0.0) == DEBT_S_MAX
    assert bucket.wait_s(DEBT_S_MAX + 0.001) == 0.0


def test_a_clock_that_goes_back_or_jumps_gives_no_more_than_a_seconds_worth() -> None:
    bucket = Bucket(100.0, 1_000.0)
    bucket.use(150, 1_000.0)
    assert bucket.wait_s(0.0) == 0.5
    assert bucket.wait_s(1_000.0) == 0.5
    assert bucket.wait_s(1e9) == 0.0
    bucket.use(150, 1e9)
    assert bucket.wait_s(1e9) == 0.5


def test_a_new_rate_holds_at_once_and_a_debt_takes_as_long_as_before() -> None:
    bucket = Bucket(100.0, 0.0)
    bucket.use(300, 0.0)
    bucket.set_rate(10.0, 0.0)
    assert bucket.wait_s(0.0) == 2.0


def test_a_call_over_the_rate_waits_and_one_that_had_to_wait_for_long_is_refused() -> None:
    clock = Clock()
    found = quotas(clock, {QuotaEntity("User:alice"): {PRODUCE: 1_000.0}})

    async def test() -> None:
        throttle = found.throttle(ALICE, "")
        assert throttle is not None
        await throttle.admit(Charge.PRODUCE, 1_500)
        assert clock.slept == []
        await throttle.admit(Charge.PRODUCE, 2_000)
        assert clock.slept == [0.5]
        with pytest.raises(QuotaExceededError) as caught:
            await throttle.admit(Charge.PRODUCE, 1)
        assert caught.value.retry_delay_ms == 2_000
        clock.now_s += 2.0
        await throttle.admit(Charge.PRODUCE, 1)
        assert clock.slept == [0.5]

    run(test())


def test_what_is_refused_is_not_counted() -> None:
    clock = Clock()
    found = quotas(clock, {QuotaEntity(DEFAULT): {REQUESTS: 1.0}})

    async def test() -> None:
        throttle = found.throttle(ALICE, "")
        assert throttle is not None
        for _ in range(4):
            throttle.use(Charge.REQUEST, 0)
        for _ in range(1_000):
            with pytest.raises(QuotaExceededError):
                await throttle.admit(Charge.REQUEST, 0)
        before = clock.now_s
        await found.pause(ALICE, "", Charge.REQUEST)
        assert clock.now_s - before < 5.0

    run(test())


def test_the_answer_of_a_fetch_delays_the_next_fetch_and_no_produce() -> None:
    clock = Clock()
    found = quotas(clock, {QuotaEntity("User:alice"): {FETCH: 1_000.0, PRODUCE: 1_000.0}})

    async def test() -> None:
        throttle = found.throttle(ALICE, "")
        assert throttle is not None
        await throttle.admit(Charge.FETCH, 50)
        throttle.answered(Charge.FETCH, 1_250)
        await throttle.admit(Charge.PRODUCE, 50)
        assert clock.slept == []
        await throttle.admit(Charge.FETCH, 50)
        assert clock.slept == [0.25]

    run(test())


def test_no_more_calls_wait_than_may() -> None:
    clock = Clock()
    gate = asyncio.Event()

    async def until_open(_: float) -> None:
        await gate.wait()

    found = quotas(
        clock, {QuotaEntity(DEFAULT): {REQUESTS: 100.0}}, waiting_max=3, sleep=until_open
    )

    async def test() -> None:
        throttle = found.throttle(ALICE, "")
        assert throttle is not None
        for _ in range(101):
            await throttle.admit(Charge.REQUEST, 0)
        calls = [asyncio.create_task(throttle.admit(Charge.REQUEST, 0)) for _ in range(10)]
        await asyncio.sleep(0)
        refused = [one for one in calls if one.done() and one.exception()]
        assert len(refused) == 7
        # One that is cancelled makes room.
        waiting = [one for one in calls if not one.done()]
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        again = asyncio.create_task(throttle.admit(Charge.REQUEST, 0))
        await asyncio.sleep(0)
        assert not again.done()
        gate.set()
        await asyncio.gather(again, *waiting[1:])

    run(test())


def test_a_stream_waits_as_long_as_it_has_to_and_no_longer_once_the_quota_is_gone() -> None:
    clock = Clock()
    rows = {QuotaEntity("User:alice"): {PRODUCE: 1_000.0}}
    found = quotas(clock, rows)

    async def test() -> None:
        throttle = found.throttle(ALICE, "")
        assert throttle is not None
        throttle.use(Charge.PRODUCE, 4_000)
        await found.pause(ALICE, "", Charge.PRODUCE)
        assert sum(clock.slept) == pytest.approx(3.0)
        throttle.use(Charge.PRODUCE, 9_000)
        waiting = asyncio.create_task(found.pause(ALICE, "", Charge.PRODUCE))
        await asyncio.sleep(0)
        found.replace({})
        before = clock.now_s
        await waiting
        assert clock.now_s - before <= 0.25

    run(test())


def test_users_do_not_slow_each_other_down_and_clients_of_one_share() -> None:
    clock = Clock()
    found = quotas(clock, {QuotaEntity(DEFAULT): {PRODUCE: 1_000.0}})

    async def test() -> None:
        one, two, bob = (
            found.throttle(ALICE, "one"),
            found.throttle(ALICE, "two"),
            found.throttle(BOB, "one"),
        )
        assert one is not None
        assert two is not None
        assert bob is not None
        await one.admit(Charge.PRODUCE, 1_500)
        await bob.admit(Charge.PRODUCE, 1_500)
        assert clock.slept == []
        await two.admit(Charge.PRODUCE, 1)
        assert clock.slept == [0.5]

    run(test())


def test_a_connection_more_than_may_be_busy_is_refused_until_one_is_idle() -> None:
    found = quotas(Clock(), {QuotaEntity(DEFAULT): {CONNECTIONS: 2.0}})
    throttle = found.throttle(ALICE, "")
    assert throttle is not None
    with throttle.connected("a"), throttle.connected("a"), throttle.connected("b"):
        with pytest.raises(QuotaExceededError), throttle.connected("c"):
            raise AssertionError
        with throttle.connected("b"):  # another call of the same
            pass
    with throttle.connected("c"), throttle.connected("d"):
        pass
    assert found.open_calls == {}


def test_transactions_that_are_over_make_room_and_one_that_begins_is_counted() -> None:
    found = quotas(Clock(), {QuotaEntity(DEFAULT): {QuotaName.OPEN_TRANSACTIONS: 2.0}})
    throttle = found.throttle(ALICE, "")
    assert throttle is not None
    is_open: set[str] = set()

    def beginning(name: str) -> AbstractContextManager[None]:
        return throttle.taking(QuotaName.OPEN_TRANSACTIONS, name, is_open.__contains__)

    def begin(name: str) -> None:
        with beginning(name):
            is_open.add(name)

    begin("a")
    begin("a")
    with (
        beginning("b"),
        pytest.raises(QuotaExceededError),
    ):
        begin("c")
    begin("c")  # nothing came of b
    with pytest.raises(QuotaExceededError):
        begin("b")
    is_open.discard("a")
    begin("b")
    assert is_open == {"b", "c"}


def test_nobody_without_a_quota_is_looked_at_and_no_gateway_is_held_back() -> None:
    found = quotas(Clock(), {})
    assert found.throttle(ALICE, "") is None
    found.replace({QuotaEntity("User:alice"): {REQUESTS: 1.0}})
    assert found.throttle(ANONYMOUS, "") is None
    found.replace({QuotaEntity(DEFAULT): {REQUESTS: 1.0}})
    assert found.throttle(ANONYMOUS, "") is not None
    assert found.throttle(Principal(GATEWAY, "gateway"), "") is None


def test_a_flood_of_names_takes_no_more_memory_than_some_thousand_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_REMEMBERED_MAX", 100)
    found = quotas(Clock(), {QuotaEntity("", DEFAULT): {REQUESTS: 1.0}})
    for number in range(1_000):
        throttle = found.throttle(ALICE, f"c{number}")
        assert throttle is not None
        throttle.use(Charge.REQUEST, 0)
    assert len(found._throttles) == len(found._buckets) == 100


def test_metrics_name_the_quota_and_forget_one_that_is_taken_back() -> None:
    registry = CollectorRegistry()
    clock = Clock()
    found = Quotas(registry, waiting_max=1, now_s=clock, sleep=clock.sleep)
    entity = QuotaEntity(DEFAULT, "c")
    found.replace({entity: {REQUESTS: 1.0}})

    def count() -> float | None:
        labels = {"principal": "<default> client c", "kind": "request_rate"}
        return registry.get_sample_value("mainstem_quota_throttled_total", labels)

    async def test() -> None:
        for principal in (ALICE, BOB):
            throttle = found.throttle(principal, "c")
            assert throttle is not None
            for _ in range(3):
                await throttle.admit(Charge.REQUEST, 0)

    run(test())
    assert count() == 2.0
    found.replace({})
    assert count() is None
