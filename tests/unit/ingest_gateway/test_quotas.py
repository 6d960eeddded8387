"""Quotas of running gateways: set, followed, kept, and what those feel who use more."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.harness import WAIT_S, Client, refused, run, running, soon, until
from tests.unit.ingest_gateway.payloads import values_request
from tests.unit.ingest_gateway.transacting import Transacting

from mainstem.client import (
    AdminClient,
    ClientQuota,
    ClientQuotaAlteration,
    Consumer,
    Producer,
    TopicPartition,
)
from mainstem.delta_log import LocalStore
from mainstem.delta_log.topics import SYSTEM
from mainstem.delta_log.verify import verify_system_table
from mainstem.errors import InvalidConfigError, StoreUnavailableError
from mainstem.ingest_gateway.caller import Identity
from mainstem.ingest_gateway.quotas import rows as rows_module
from mainstem.ingest_gateway.security import SignIn
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    groups_pb2_grpc,
    log_pb2,
    security_pb2,
    security_pb2_grpc,
)
from mainstem.security import Principal

pytestmark = pytest.mark.usefixtures("nothing_left")

ANYBODY = "User:ANONYMOUS"


def alteration(
    principal: str = "", client_id: str = "", *, remove: tuple[str, ...] = (), **values: float
) -> security_pb2.ClientQuotaAlteration:
    return security_pb2.ClientQuotaAlteration(
        entity=security_pb2.QuotaEntity(principal=principal, client_id=client_id),
        set=[security_pb2.QuotaValue(name=name, value=value) for name, value in values.items()],
        remove=remove,
    )


async def alter(client: Client, *alterations: security_pb2.ClientQuotaAlteration) -> None:
    await security_pb2_grpc.SecurityStub(client.channel).AlterClientQuotas(
        security_pb2.AlterClientQuotasRequest(alterations=alterations), timeout=WAIT_S
    )


async def described(client: Client) -> dict[tuple[str, str], dict[str, float]]:
    answer = await security_pb2_grpc.SecurityStub(client.channel).DescribeClientQuotas(
        security_pb2.DescribeClientQuotasRequest(), timeout=WAIT_S
    )
    return {
        (one.entity.principal, one.entity.client_id): {v.name: v.value for v in one.values}
        for one in answer.quotas
    }


def signed_in(gateway: Gateway) -> None:
    """From now on `authorization: Test NAME` is who a caller is."""

    async def prove(credentials: str) -> Identity:
        return Identity(Principal("User", credentials))

    gateway._rpc._sign_in = SignIn({"test": prove})


def test_quotas_are_set_changed_taken_back_and_kept(tmp_path: Path) -> None:
    odd = 'ü:,\n"' + "x" * 300

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            assert await described(client) == {}
            await alter(
                client,
                alteration("User:a", producer_byte_rate=10.5, connections=3),
                alteration("<default>", odd, request_rate=2),
            )
            await alter(
                client,
                alteration("User:a", remove=("connections", "request_rate"), consumer_byte_rate=7),
            )
        async with running(tmp_path) as (gateway, client):
            expected = {
                ("User:a", ""): {"producer_byte_rate": 10.5, "consumer_byte_rate": 7},
                ("<default>", odd): {"request_rate": 2},
            }
            await until(lambda: len(gateway._quotas.rows) == 2)
            assert await described(client) == expected
            await alter(client, alteration("<default>", odd, remove=("request_rate",)))
            assert list(await described(client)) == [("User:a", "")]

    run(test())
    store = LocalStore(tmp_path)
    report = verify_system_table(store, "quotas")
    store.close()
    assert report.ok, report.findings


@pytest.mark.parametrize(
    "wrong",
    [
        [alteration("User:a", nonsense=1)],
        [alteration("User:a", topics=1)],
        [alteration("User:a", request_rate=float("nan"))],
        [alteration("User:a", request_rate=float("inf"))],
        [alteration("User:a", request_rate=0)],
        [alteration("User:a", request_rate=-1)],
        [alteration("alice", request_rate=1)],
        [alteration(request_rate=1)],
        [alteration("User:a", request_rate=1), alteration("User:a", connections=1)],
        [alteration("User:a", remove=("request_rate",), request_rate=1)],
        [alteration("User:a", remove=("nonsense",))],
    ],
)
def test_of_a_request_with_something_wrong_nothing_is_done(
    tmp_path: Path, wrong: list[security_pb2.ClientQuotaAlteration]
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIG"):
                await alter(client, alteration("User:fine", request_rate=1), *wrong)
            assert await described(client) == {}

    run(test())
    assert not (tmp_path / SYSTEM / "quotas").exists()


def test_a_quota_is_in_force_at_the_other_gateways_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "LOOK_FOR_IT_EVERY_S", 0.05)

    async def test() -> None:
        async with (
            running(tmp_path, gateway_id="a") as (one, first),
            running(tmp_path, gateway_id="b") as (two, second),
        ):
            await alter(first, alteration("User:a", request_rate=1))
            assert one._quotas.rows
            await until(lambda: bool(two._quotas.rows))
            # Both change the one table; neither loses what the other did.
            await asyncio.gather(
                *(alter(first, alteration(f"User:x{n}", request_rate=1)) for n in range(3)),
                *(alter(second, alteration(f"User:y{n}", request_rate=1)) for n in range(3)),
            )
            await until(lambda: len(one._quotas.rows) == len(two._quotas.rows) == 7)

    run(test())


def test_more_entities_than_may_be_have_no_quotas_and_those_that_have_can_be_altered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "QUOTAS_MAX", 3)

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await alter(client, *(alteration(f"User:{n}", request_rate=1) for n in range(3)))
            async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIG"):
                await alter(client, alteration("User:3", request_rate=1))
            await alter(client, alteration("User:2", request_rate=2))
            await alter(
                client,
                alteration("User:2", remove=("request_rate",)),
                alteration("User:3", request_rate=1),
            )
            assert {user for user, _ in await described(client)} == {"User:0", "User:1", "User:3"}

    run(test())


def test_a_store_that_fails_leaves_the_quotas_in_force_that_there_were(tmp_path: Path) -> None:
    away = False

    def before(call: str, path: str) -> None:
        if away and "system/quotas" in path:
            raise StoreUnavailableError("the store is away")

    store = FaultyStore(LocalStore(tmp_path), before=before)

    async def test() -> None:
        nonlocal away
        async with running(store=store) as (_, client):
            await alter(client, alteration("User:a", request_rate=1))
            away = True
            async with refused(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"):
                await alter(client, alteration("User:a", request_rate=2))
            assert await described(client) == {("User:a", ""): {"request_rate": 1}}
            away = False
            await alter(client, alteration("User:a", request_rate=3))
            assert await described(client) == {("User:a", ""): {"request_rate": 3}}

    run(test())


def test_who_uses_far_more_is_told_when_to_come_back_and_the_others_notice_nothing(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            await alter(client, alteration("User:greedy", producer_byte_rate=100))
            signed_in(gateway)

            def produce(name: str) -> Any:
                return client.log.Produce(
                    values_request(b"x" * 1_000),
                    timeout=WAIT_S,
                    metadata=(("authorization", f"Test {name}"),),
                )

            await produce("greedy")
            async with refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"
            ) as facts:
                await produce("greedy")
            assert 1_000 < int(facts["retry_ms"]) <= 10_000
            assert (facts["quota"], facts["entity"]) == ("producer_byte_rate", "User:greedy")
            for _ in range(5):
                await produce("modest")

    run(test())


def test_the_bytes_of_a_fetch_are_paid_for_before_the_next_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"x" * 10_000))
            await alter(client, alteration(ANYBODY, consumer_byte_rate=1_000))
            fetch = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t")])
            answer = await client.log.Fetch(fetch, timeout=WAIT_S)
            assert answer.partitions[0].next_offset == 1
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"):
                await client.log.Fetch(fetch, timeout=WAIT_S)
            # That is a rate of fetches alone.
            await client.produce(values_request(b"x"))
            await alter(client, alteration(ANYBODY, remove=("consumer_byte_rate",)))
            await client.log.Fetch(fetch, timeout=WAIT_S)

    run(test())


def test_one_connection_more_than_may_be_busy_is_refused_while_the_others_are(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            await alter(client, alteration(ANYBODY, connections=1))
            stream = client.stream()
            await stream.send(values_request(b"a"))
            await stream.answer()
            async with grpc.aio.insecure_channel(
                gateway.address, options=[("grpc.use_local_subchannel_pool", 1)]
            ) as channel:
                other = Client(channel)
                async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"):
                    await other.describe("t")
                await client.describe("t")
                await stream.end()
                await other.describe("t")

    run(test())


def test_a_transaction_more_than_may_be_open_waits_for_one_to_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await alter(client, alteration(ANYBODY, open_transactions=1))
            one, two = [await Transacting(client, name).init() for name in ("one", "two")]
            await one.begin()
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"):
                await two.begin()
            await one.end(commit=False)
            await two.begin()
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"):
                await one.begin()

    run(test())


def test_a_group_more_than_may_be_is_joined_when_one_has_no_members_left(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await alter(client, alteration(ANYBODY, groups=1))
            groups = groups_pb2_grpc.GroupsStub(client.channel)

            async def join(group: str, member: str) -> groups_pb2.HeartbeatResponse:
                beat = groups_pb2.HeartbeatRequest(group=group, member_id=member, topics=["t"])
                answer: groups_pb2.HeartbeatResponse = await groups.Heartbeat(beat, timeout=WAIT_S)
                return answer

            first = await join("one", "a")
            await join("one", "b")  # another member is no other group
            async with refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"
            ) as facts:
                await join("two", "a")
            assert facts["quota"] == "groups"
            # Who is in goes on.
            beat = groups_pb2.HeartbeatRequest(
                group="one", member_id="a", member_epoch=first.member_epoch, topics=["t"]
            )
            await groups.Heartbeat(beat, timeout=WAIT_S)
            for member in ("a", "b"):
                await groups.Leave(
                    groups_pb2.LeaveRequest(group="one", member_id=member), timeout=WAIT_S
                )
            await join("two", "a")
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"):
                await join("one", "c")

    run(test())


def test_partitions_are_made_and_deleted_at_the_rate_that_there_is(tmp_path: Path) -> None:
    slow = (grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED")

    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable=True) as (gateway, client):
            await client.create("old", 3)
            await alter(client, alteration(ANYBODY, controller_mutation_rate=0.01))

            async def again() -> None:
                """What is owed is forgotten."""
                gateway._quotas._buckets.clear()

            # Something may be made at once, whatever its size; then its rate makes up for it.
            await client.create("new", 20)
            async with refused(*slow) as facts:
                await client.create("more", 1)
            assert facts["quota"] == "controller_mutation_rate"
            assert int(facts["retry_ms"]) > 1_500_000
            async with refused(*slow):
                await client.admin.DeleteTopic(
                    admin_pb2.DeleteTopicRequest(topic="old"), timeout=WAIT_S
                )
            add = admin_pb2.AddPartitionsRequest(topic="old", partition_count=5)
            async with refused(*slow):
                await client.admin.AddPartitions(add, timeout=WAIT_S)
            # A producer's record makes its topic: that counts as well, and refuses the record.
            async with refused(*slow):
                await client.produce(values_request(b"x", topic="by-itself"))
            # What makes nothing is free.
            check = admin_pb2.CreateTopicRequest(topic="x", partition_count=9, validate_only=True)
            await client.admin.CreateTopic(check, timeout=WAIT_S)
            await again()
            await client.admin.AddPartitions(add, timeout=WAIT_S)
            async with refused(*slow) as facts:
                await client.admin.AddPartitions(add, timeout=WAIT_S)
            assert 100_000 < int(facts["retry_ms"]) <= 200_000, "two were added, one was free"
            await again()
            await client.admin.DeleteTopic(
                admin_pb2.DeleteTopicRequest(topic="old"), timeout=WAIT_S
            )
            async with refused(*slow):
                await client.create("more", 1)
            await again()
            await client.produce(values_request(b"x", topic="by-itself"))
            async with refused(*slow):
                await client.create("more", 1)

    run(test())


def test_a_quota_that_shuts_its_maker_out_can_be_taken_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await alter(client, alteration("<default>", request_rate=0.001))
            await client.describe("t")
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLING_QUOTA_EXCEEDED"):
                await client.describe("t")
            await alter(client, alteration("<default>", remove=("request_rate",)))
            await client.describe("t")

    run(test())


def test_a_gateway_that_drains_does_not_wait_for_a_stream_that_waits_for_its_quota(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            await alter(client, alteration(ANYBODY, producer_byte_rate=10))
            stream = client.stream()
            for _ in range(3):
                await stream.send(values_request(b"x" * 1_000))
            await stream.answer()
            began = time.monotonic()
            assert await soon(gateway.drain())
            assert time.monotonic() - began < 5.0

    run(test())


RATE = 100_000


@pytest.mark.slow
def test_a_producer_over_its_rate_is_slowed_down_to_it_and_loses_and_reorders_nothing(
    tmp_path: Path,
) -> None:
    values = [random.Random(n).randbytes(1_000) for n in range(400)]

    def produce(address: str) -> float:
        config = {
            "bootstrap.servers": address,
            "client.id": "loader",
            "batch.size": 10_000,
            "linger.ms": 5,
            "max.request.size": 20_000,
        }
        began = time.monotonic()
        with Producer(config) as producer:
            for value in values:
                producer.produce("t", value, partition=0)
            assert producer.flush(WAIT_S) == 0
        return time.monotonic() - began

    def consume(address: str) -> list[bytes | None]:
        found: list[bytes | None] = []
        config = {"bootstrap.servers": address, "client.id": "reader"}
        with Consumer(config) as consumer:
            consumer.assign([TopicPartition("t", 0, 0)])
            ends_at = time.monotonic() + WAIT_S
            while len(found) < len(values) and time.monotonic() < ends_at:
                message = consumer.poll(1.0)
                if message is not None:
                    found.append(message.value)
        return found

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            await alter(
                client,
                alteration(client_id="loader", producer_byte_rate=RATE),
                alteration(client_id="reader", consumer_byte_rate=RATE),
            )
            took_s = await asyncio.to_thread(produce, gateway.address)
            # The first second is free, and what the last batch costs is paid by nobody.
            assert took_s > len(values) * 1_000 / RATE - 1.5
            assert await asyncio.to_thread(consume, gateway.address) == values

    run(test())


@pytest.mark.slow
def test_clients_that_administer_wait_for_their_quota_instead_of_failing(tmp_path: Path) -> None:
    def administer(address: str) -> None:
        with AdminClient({"bootstrap.servers": address}) as admin:
            for number in range(3):
                admin.create_topic(f"t{number}")
            assert len(admin.list_topics()) == 3
            assert admin.list_consumer_groups() == ()
            admin.alter_client_quotas([ClientQuotaAlteration("User:x", set={"connections": 1})])
            assert ClientQuota("User:x", "", {"connections": 1}) in admin.describe_client_quotas()
            with pytest.raises(InvalidConfigError):
                admin.alter_client_quotas([ClientQuotaAlteration("User:x", set={"nope": 1})])

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await alter(client, alteration(ANYBODY, request_rate=0.8))
            await asyncio.to_thread(administer, gateway.address)

    run(test())
