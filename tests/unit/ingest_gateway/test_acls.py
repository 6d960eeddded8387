"""Access control lists at a gateway: kept, followed, and what they keep from whom."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.delta_log.faults import FaultyStore, nothing, unavailable
from tests.unit.ingest_gateway.harness import (
    WAIT_S,
    Client,
    Gate,
    anybody,
    refused,
    run,
    running,
    signed_in,
    soon,
    until,
    values,
)
from tests.unit.ingest_gateway.payloads import arrow_request, batch_of, values_request
from tests.unit.ingest_gateway.transacting import Transacting

from mainstem.delta_log import LocalStore
from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol import AUTHORIZER_KEY
from mainstem.protocol.v1 import (
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

DENIED = grpc.StatusCode.PERMISSION_DENIED
TOPIC_REFUSED = "TOPIC_AUTHORIZATION_FAILED"

ACL: dict[str, Any] = {
    "proofs": {"test": anybody},
    "authorizer": "acl",
    "super_users": " User:root;User:CN=ops,O=x ",
}


@asynccontextmanager
async def guarded(
    warehouse: Path, **settings: Any
) -> AsyncIterator[tuple[Gateway, Client, Client]]:
    """A gateway with access control lists, a connection to it, and one of a super user."""
    async with running(warehouse, **ACL, **settings) as (gateway, client):
        yield gateway, client, signed_in(client, "root")


def rule(
    operation: str = "READ", user: str = "alice", name: str = "t", kind: str = "TOPIC", **words: str
) -> security_pb2.AclRule:
    said = {
        "resource_type": kind,
        "name": name,
        "pattern_type": "LITERAL",
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission": "ALLOW",
    }
    return security_pb2.AclRule(**(said | words))


async def allow(root: Client, *rules: security_pb2.AclRule) -> int:
    answer = await root.security.CreateAcls(
        security_pb2.CreateAclsRequest(rules=rules), timeout=WAIT_S
    )
    return int(answer.created_count)


async def forbid(root: Client, **words: str) -> list[security_pb2.AclRule]:
    filters = [security_pb2.AclFilter(**words)]
    request = security_pb2.DeleteAclsRequest(filters=filters)
    answer = await root.security.DeleteAcls(request, timeout=WAIT_S)
    return list(answer.rules)


async def listed(root: Client, **words: str) -> list[security_pb2.AclRule]:
    request = security_pb2.DescribeAclsRequest(filter=security_pb2.AclFilter(**words))
    answer = await root.security.DescribeAcls(request, timeout=WAIT_S)
    return list(answer.rules)


async def checked(client: Client, operation: str = "READ", **words: Any) -> bool:
    said: dict[str, Any] = {"principal": "User:alice", "resource_type": "TOPIC", "name": "t"}
    request = security_pb2.CheckAclRequest(operation=operation, **(said | words))
    answer = await client.security.CheckAcl(request, timeout=WAIT_S)
    return bool(answer.allowed)


async def fetched(client: Client, *topics: str, max_wait_ms: int = 0) -> list[str]:
    """The code of each partition's error, or what its records are."""
    request = log_pb2.FetchRequest(
        partitions=[log_pb2.FetchPartition(topic=one) for one in topics],
        min_bytes=1,
        max_wait_ms=max_wait_ms,
    )
    answer = await client.log.Fetch(request, timeout=WAIT_S)
    return [
        one.error.code if one.HasField("error") else f"{one.topic} {one.high_watermark}"
        for one in answer.partitions
    ]


# -- the rules -------------------------------------------------------------------------------------


def test_rules_are_added_once_and_listed_and_removed_by_filters(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, _, root):
            mine = [rule(), rule(name="t", pattern_type="PREFIXED"), rule(name="*", user="bob")]
            assert await allow(root, *mine, mine[0]) == 3
            assert await allow(root, mine[0]) == 0
            assert await listed(root) == mine
            assert await listed(root, name="tx", pattern_type="MATCH") == mine[1:]
            assert await listed(root, name="t", pattern_type="LITERAL") == mine[:1]
            assert await forbid(root, name="tx", pattern_type="MATCH") == mine[1:]
            assert await listed(root) == mine[:1]
            assert await forbid(root) == mine[:1]
            assert await listed(root) == []

    run(test())


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (rule("FLY"), "rule 2: 'FLY' is no operation; there are ALL, READ"),
        (rule(kind="PLANE"), "rule 2: 'PLANE' is no resource type"),
        (rule(pattern_type="MATCH"), "rule 2: 'MATCH' is no pattern type"),
        (rule(principal="alice"), "rule 2: 'alice' is no principal"),
        (rule(host="here"), "rule 2: the host 'here' is no address"),
        (rule("DELETE", kind="TRANSACTIONAL_ID"), "rule 2: DELETE is not done on a TRANSACTIONAL"),
        (rule(name="x" * 250), "rule 2: the name of a resource has 250 characters"),
        (rule("ALTER", kind="CLUSTER", name="mine"), "rule 2: the cluster is called"),
        (rule(permission="MAYBE"), "rule 2: 'MAYBE' is no permission"),
    ],
)
def test_one_rule_that_cannot_be_is_named_and_none_of_the_others_is_added(
    tmp_path: Path, wrong: security_pb2.AclRule, reason: str
) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, _, root):
            async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIG") as facts:
                await allow(root, rule(), wrong, rule(user="bob"))
            assert facts["message"].startswith(reason)
            assert facts["message"].endswith("; nothing was changed")
            assert facts["number"] == "2"
            assert await listed(root) == []
            async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIG"):
                await allow(root)

    run(test())


def test_whether_somebody_may_do_something_is_told_by_the_rules_and_the_super_users(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, _, root):
            group = "Group:readers"
            await allow(root, rule(host="10.0.0.0/8"), rule("WRITE", principal=group))
            assert not await checked(root)
            assert await checked(root, host="10.1.2.3")
            assert await checked(root, "DESCRIBE", host="10.1.2.3")
            assert not await checked(root, "WRITE")
            assert await checked(root, "WRITE", groups=["readers"])
            assert await checked(root, "DELETE", principal="User:root")
            assert await checked(root, "DELETE", principal="User:CN=ops,O=x")
            for words in ({"principal": "User:*"}, {"name": ""}, {"resource_type": "GROUP"}):
                async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIG"):
                    await checked(root, "WRITE", **words)

    run(test())


@pytest.mark.parametrize("entry", ["root", "User:", "Admin:root", "User:*", "User:a,User:b;b"])
def test_a_super_user_that_is_none_is_refused_at_the_start(tmp_path: Path, entry: str) -> None:
    async def test() -> None:
        with pytest.raises(InvalidConfigError, match=r"super\.users"):
            async with running(tmp_path, super_users=f"User:ok;{entry}"):
                pass

    run(test())


def test_rules_can_be_prepared_while_they_are_not_in_force(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            assert not (tmp_path / "system" / "acls").exists()
            await client.create("t")
            call = client.security.CreateAcls(security_pb2.CreateAclsRequest(rules=[rule()]))
            assert (await soon(call)).created_count == 1
            assert (AUTHORIZER_KEY, "none") in list(await call.trailing_metadata())
            assert await checked(client)
            assert not await checked(client, principal="User:ANONYMOUS")
            await client.produce(values_request(b"x"))
        async with guarded(tmp_path) as (_, client, root):
            assert await listed(root) == [rule()]
            assert await fetched(signed_in(client, "alice"), "t") == ["t 1"]
            assert await fetched(signed_in(client, "bob"), "t") == [TOPIC_REFUSED]

    run(test())


def test_what_no_rule_is_about_is_open_where_the_gateway_is_told_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path, allow_everyone_if_no_acl_found=True) as (_, client, root):
            await root.create("t")
            await root.create("u")
            bob = signed_in(client, "bob")
            assert await fetched(bob, "t", "u") == ["t 0", "u 0"]
            await allow(root, rule())
            assert await fetched(bob, "t", "u") == [TOPIC_REFUSED, "u 0"]

    run(test())


def test_a_change_is_in_force_at_every_gateway_soon(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            guarded(tmp_path, gateway_id="one") as (_, _, root),
            guarded(tmp_path, gateway_id="two") as (_, other, _),
        ):
            await root.create("t")
            alice = signed_in(other, "alice")
            assert await fetched(alice, "t") == [TOPIC_REFUSED]
            for change, expected in ((allow(root, rule()), "t 0"), (forbid(root), TOPIC_REFUSED)):
                began_at = time.monotonic()
                await change
                while await fetched(alice, "t") != [expected]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert time.monotonic() - began_at < 5

    run(test())


@pytest.mark.slow
def test_while_the_table_cannot_be_read_the_rules_stay_as_they_were(tmp_path: Path) -> None:
    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        failed = 0

        def fails(_: str, path: str) -> None:
            nonlocal failed
            if "system/acls" in path:
                failed += 1
                raise unavailable()

        async with running(store=store, **ACL) as (_, client):
            root, alice = signed_in(client, "root"), signed_in(client, "alice")
            await root.create("t")
            await allow(root, rule())
            store.before = fails
            async with refused(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"):
                await allow(root, rule(user="bob"))
            seen = failed
            await until(lambda: failed > seen + 2)
            assert await fetched(alice, "t") == ["t 0"]
            assert await fetched(signed_in(client, "bob"), "t") == [TOPIC_REFUSED]
            store.before = lambda *_: None
            await allow(root, rule(user="bob"))
            assert await fetched(signed_in(client, "bob"), "t") == ["t 0"]

    run(test())


def test_a_call_that_is_given_up_does_not_let_the_next_into_the_table_before_it_is_done(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store, **ACL) as (_, client):
            root = signed_in(client, "root")
            await allow(root, rule(user="first"))
            gate = Gate("put_if_absent", "system/acls")
            store.before = gate
            with pytest.raises(grpc.aio.AioRpcError):
                await root.security.CreateAcls(
                    security_pb2.CreateAclsRequest(rules=[rule(user="second")]), timeout=0.2
                )
            third = asyncio.ensure_future(allow(root, rule(user="third")))
            await until(lambda: gate.calls == 1)
            assert not third.done()
            gate.open()
            assert await soon(third) == 1
            users = sorted(one.principal for one in await listed(root))
            assert users == ["User:first", "User:second", "User:third"]

    run(test())


def test_what_a_call_that_is_given_up_meets_later_is_no_news_to_the_loop(tmp_path: Path) -> None:
    gate = Gate("put_if_absent", "system/acls")
    reported: list[object] = []

    def fails(call: str, path: str) -> None:
        gate(call, path)
        if call == "put_if_absent" and "system/acls" in path:
            raise RuntimeError("the store has a fault")

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store, **ACL) as (_, client):
            root = signed_in(client, "root")
            await allow(root, rule(user="first"))
            store.before = fails
            second = asyncio.ensure_future(allow(root, rule(user="second")))
            await until(lambda: gate.calls == 1)
            second.cancel()
            await asyncio.wait({second})
            await client.serving()
            gate.open()
            with pytest.raises(grpc.aio.AioRpcError):
                await soon(allow(root, rule(user="third")))  # its turn is after the second's
            store.before = nothing
        gc.collect()

    run(test())
    assert reported == []


# -- what is kept from whom ------------------------------------------------------------------------


def test_an_answer_is_the_same_whether_what_may_not_be_seen_is_there_or_not(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with guarded(tmp_path, auto_create_topics_enable=True) as (_, client, root):
            await root.create("real")
            bob = signed_in(client, "bob")
            told: list[list[str]] = []
            for topic in ("real", "none"):
                said: list[str] = []
                asked = log_pb2.MetadataRequest(topics=[topic], allow_auto_topic_creation=True)
                metadata = await bob.log.Metadata(asked, timeout=WAIT_S)
                said.append(str(metadata.topics[0]))
                fetch = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic=topic)])
                said.append(str((await bob.log.Fetch(fetch, timeout=WAIT_S)).partitions[0]))
                for call in (
                    bob.create(topic),
                    bob.delete(topic),
                    bob.describe(topic),
                    bob.produce(values_request(b"x", topic=topic)),
                ):
                    async with refused(DENIED, TOPIC_REFUSED) as facts:
                        await call
                    said.append(str(facts))
                told.append([one.replace(topic, "TOPIC") for one in said])
            assert told[0] == told[1]
            assert not (tmp_path / "topics" / "none").exists()

    run(test())


def test_a_fetch_serves_what_may_be_read_in_the_order_of_its_partitions(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, client, root):
            for topic in ("a", "b", "c"):
                await root.create(topic)
            await allow(root, rule(name="a"), rule(name="c"))
            alice = signed_in(client, "alice")
            assert await fetched(alice, "b", "a", "none", "c", "b") == [
                TOPIC_REFUSED,
                "a 0",
                TOPIC_REFUSED,
                "c 0",
                TOPIC_REFUSED,
            ]
            queries = [log_pb2.OffsetQuery(topic=one, latest=True) for one in ("b", "a", "none")]
            answer = await alice.log.ListOffsets(
                log_pb2.ListOffsetsRequest(queries=queries), timeout=WAIT_S
            )
            assert [one.error.code for one in answer.answers] == [TOPIC_REFUSED, "", TOPIC_REFUSED]

    run(test())


def test_a_fetch_that_waits_gets_nothing_that_comes_after_its_rule_is_gone(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (gateway, client, root):
            await root.create("t")
            await allow(root, rule())
            waiting = asyncio.ensure_future(
                fetched(signed_in(client, "alice"), "t", max_wait_ms=20_000)
            )
            await until(lambda: gateway.fetches_waiting == 1)
            await forbid(root)
            await root.produce(values_request(b"secret"))
            assert await soon(waiting) == [TOPIC_REFUSED]

    run(test())


def test_in_a_stream_a_refused_topic_holds_up_no_other_and_what_follows_is_in_order(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, client, root):
            await root.create("t")
            await root.create("u")
            await allow(root, rule("WRITE"))
            alice = signed_in(client, "alice")
            stream = alice.stream()
            for number in range(3):
                await stream.send(values_request(b"%d" % number))
                await stream.send(values_request(b"no", topic="u"))
            answers = {one.correlation_id: one.error.code for one in await stream.end()}
            assert answers == {
                1: "",
                2: TOPIC_REFUSED,
                3: "",
                4: TOPIC_REFUSED,
                5: "",
                6: TOPIC_REFUSED,
            }
            # A rule that goes while a topic is sent to, and comes back.
            producer = await init(alice)
            stream = alice.stream()
            await stream.send(numbered(producer, 0, b"a"))
            assert not (await stream.answer()).error.code
            await forbid(root, operation="WRITE")
            await stream.send(numbered(producer, 1, b"b"))
            assert (await stream.answer()).error.code == TOPIC_REFUSED
            await allow(root, rule("WRITE"))
            await stream.send(numbered(producer, 2, b"c"))  # the batch before it is missing
            assert (await stream.answer()).error.code == "OUT_OF_ORDER_SEQUENCE"
            await stream.send(numbered(producer, 1, b"b"))
            await stream.send(numbered(producer, 2, b"c"))
            assert [one.error.code for one in await stream.end()] == ["", ""]
            assert values(tmp_path, "t")[0] == [b"0", b"1", b"2", b"a", b"b", b"c"]

    run(test())


async def init(client: Client) -> int:
    answer = await client.log.InitProducer(log_pb2.InitProducerRequest(), timeout=WAIT_S)
    return int(answer.producer_id)


def numbered(producer_id: int, sequence: int, value: bytes) -> log_pb2.ProduceRequest:
    request = arrow_request(
        batch_of(key=[None], value=[value]), ranges=[(0, 0, 1)], producer_id=producer_id
    )
    request.arrow.ranges[0].base_sequence = sequence
    return request


def test_a_producer_id_is_of_no_use_to_another_principal_before_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, client, root):
            await root.create("t")
            await allow(root, rule("WRITE"), rule("WRITE", "bob"))
            alice, bob = signed_in(client, "alice"), signed_in(client, "bob")
            producer = await init(alice)
            for sequence in (0, 1):
                async with refused(grpc.StatusCode.FAILED_PRECONDITION, "UNKNOWN_PRODUCER_ID"):
                    await bob.produce(numbered(producer, sequence, b"bob"))
                await alice.produce(numbered(producer, sequence, b"alice"))
            invented = producer ^ 1
            async with refused(grpc.StatusCode.FAILED_PRECONDITION, "UNKNOWN_PRODUCER_ID"):
                await alice.produce(numbered(invented, 0, b"alice"))
        async with guarded(tmp_path) as (_, client, root):
            async with refused(grpc.StatusCode.FAILED_PRECONDITION, "UNKNOWN_PRODUCER_ID"):
                await signed_in(client, "bob").produce(numbered(producer, 2, b"bob"))
            alice = signed_in(client, "alice")
            await alice.produce(numbered(producer, 2, b"alice"))
            again = await alice.produce(numbered(producer, 2, b"alice"))
            assert again.results[0].base_offset == 2, "the same batch, once"
            assert values(tmp_path, "t")[0] == [b"alice"] * 3

    run(test())


def test_a_transactional_id_is_its_first_principals_until_it_is_forgotten(tmp_path: Path) -> None:
    refusal = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

    async def test() -> None:
        async with guarded(tmp_path) as (_, client, root):
            await root.create("t")
            for user in ("alice", "bob"):
                await allow(
                    root,
                    rule("WRITE", user),
                    rule("WRITE", user, name="*", kind="TRANSACTIONAL_ID"),
                )
            alice, bob = signed_in(client, "alice"), signed_in(client, "bob")
            mine = await Transacting(alice).init()
            await mine.begin()
            await mine.send("t", b"one")
            async with refused(DENIED, refusal) as facts:
                await Transacting(bob).init()
            assert "another principal has begun with it" in facts["message"]
            theirs = Transacting(bob)
            theirs.producer_id, theirs.producer_epoch = mine.producer_id, mine.producer_epoch
            theirs.number = mine.number
            for call in (theirs.send("t", b"two"), theirs.end(), theirs.begin()):
                async with refused(DENIED, refusal):
                    await call
            prepare = transactions_pb2.PrepareTransactionRequest(transaction=mine.ref)
            async with refused(DENIED, refusal):
                await bob.transactions.PrepareTransaction(prepare, timeout=WAIT_S)
            assert await mine.end() == {("t", 0): (0, 1)}
        async with guarded(tmp_path) as (_, client, root):
            async with refused(DENIED, refusal):
                await Transacting(signed_in(client, "bob")).init()
            await Transacting(root).init()  # a super user may, and the id stays whose it was
            await Transacting(signed_in(client, "alice")).init()
            await Transacting(signed_in(client, "bob"), "other").init()
        assert values(tmp_path, "t")[0] == [b"one"]

    run(test())


def test_an_id_that_was_begun_with_while_nobody_was_asked_is_everybodys(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await Transacting(client).init()
        async with guarded(tmp_path) as (_, client, root):
            await allow(root, rule("WRITE", name="*", kind="TRANSACTIONAL_ID"))
            await allow(root, rule("WRITE", "bob", name="*", kind="TRANSACTIONAL_ID"))
            await Transacting(signed_in(client, "alice")).init()
            async with refused(DENIED, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                await Transacting(signed_in(client, "bob")).init()

    run(test())


def test_a_pattern_gives_a_member_what_it_may_read_and_follows_the_rules(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, client, root):
            for topic in ("t1", "t2", "x"):
                await root.create(topic)
            await allow(root, rule(name="g", kind="GROUP"), rule(name="t1"))
            alice = signed_in(client, "alice")
            member: dict[str, Any] = {"member_id": "m", "member_epoch": 0}

            async def beat() -> set[str]:
                request = groups_pb2.HeartbeatRequest(group="g", topic_pattern="^t", **member)
                answer = await alice.groups.Heartbeat(request, timeout=WAIT_S)
                member["member_epoch"] = answer.member_epoch
                member["owned"] = answer.assignment
                return {one.topic for one in answer.assignment}

            async def until_it_has(topics: set[str]) -> None:
                while await beat() != topics:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

            await soon(until_it_has({"t1"}))
            await allow(root, rule(name="t2"))
            await soon(until_it_has({"t1", "t2"}))
            await forbid(root, name="t1")
            await soon(until_it_has({"t2"}))
            await forbid(root, name="g")
            async with refused(DENIED, "GROUP_AUTHORIZATION_FAILED"):
                await beat()

    run(test())


def test_a_member_that_names_a_topic_that_it_may_not_see_is_told_which(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, client, root):
            await root.create("t")
            await allow(root, rule(name="g", kind="GROUP"), rule(name="t"))
            request = groups_pb2.HeartbeatRequest(group="g", topics=["t", "hidden"])
            async with refused(DENIED, TOPIC_REFUSED) as facts:
                await signed_in(client, "alice").groups.Heartbeat(request, timeout=WAIT_S)
            assert facts["name"] == "hidden"

    run(test())


def test_the_id_of_a_topic_with_the_name_of_another_opens_no_door(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, client, root):
            await root.create("t")
            hidden_id = await root.create("hidden")
            committed = groups_pb2.CommittedOffset(topic="hidden", offset=7, leader_epoch=2**60)
            await root.groups.CommitOffsets(
                groups_pb2.CommitOffsetsRequest(group="g", member_epoch=-1, offsets=[committed]),
                timeout=WAIT_S,
            )
            await allow(root, rule(name="g", kind="GROUP"), rule(name="t"))
            alice = signed_in(client, "alice")
            asked = groups_pb2.TopicPartitions(topic="t", topic_id=hidden_id, partitions=[0])
            answer = await alice.groups.FetchOffsets(
                groups_pb2.FetchOffsetsRequest(group="g", partitions=[asked]), timeout=WAIT_S
            )
            assert [one.offset for one in answer.offsets] == [-1]
            forgets = groups_pb2.CommittedOffset(topic="t", topic_id=hidden_id, offset=-1)
            async with refused(DENIED, TOPIC_REFUSED):
                await alice.groups.CommitOffsets(
                    groups_pb2.CommitOffsetsRequest(group="g", member_epoch=-1, offsets=[forgets]),
                    timeout=WAIT_S,
                )
            described = await root.groups.DescribeGroup(
                groups_pb2.DescribeGroupRequest(group="g"), timeout=WAIT_S
            )
            assert [one.offset for one in described.offsets] == [7]

    run(test())


@pytest.mark.parametrize("name", ["", "ünïcödé", "a:b,c", "line\nbreak", "x" * 249, "x" * 100_000])
def test_a_name_that_no_topic_has_is_refused_like_any_other(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as (_, client, _):
            alice = signed_in(client, "alice")
            assert await fetched(alice, name) == [TOPIC_REFUSED]
            asked = log_pb2.MetadataRequest(topics=[name])
            (found,) = (await alice.log.Metadata(asked, timeout=WAIT_S)).topics
            assert found.error.code == TOPIC_REFUSED
            assert len(found.error.message) < 700
            async with refused(DENIED, TOPIC_REFUSED):
                await alice.produce(values_request(b"x", topic=name))
            async with refused(DENIED, "GROUP_AUTHORIZATION_FAILED"):
                await alice.groups.DescribeGroup(
                    groups_pb2.DescribeGroupRequest(group=name), timeout=WAIT_S
                )

    run(test())
