"""The audit of a running gateway: what has rows, what they never have, and who waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import generate_latest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.harness import (
    WAIT_S,
    Client,
    Gate,
    refused,
    run,
    running,
    soon,
    until,
)
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import AclsChange, AppendedTable
from mainstem.delta_log.topics import SYSTEM, Topics
from mainstem.errors import (
    AuthenticationError,
    AuthorizationError,
    SessionExpiredError,
    StoreUnavailableError,
)
from mainstem.ingest_gateway.audit import log
from mainstem.ingest_gateway.caller import Identity
from mainstem.ingest_gateway.security import SignIn, refusal
from mainstem.ingest_gateway.server import Gateway
from mainstem.ingest_gateway.services import AdminService
from mainstem.ingest_gateway.services.audited_calls import AUDITED_CALLS, CallKind
from mainstem.ingest_gateway.services.call import Call
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    security_pb2_grpc,
    transactions_pb2,
)
from mainstem.security import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

ON: dict[str, Any] = {"audit_enabled": True}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "WRITE_EVERY_S", 0.05)


def audit(warehouse: Path) -> list[dict[str, Any]]:
    """The rows, the oldest first."""
    store = LocalStore(warehouse)
    try:
        if not AppendedTable.exists(store, "audit"):
            return []
        table = AppendedTable(store, "audit", retention_ms=0)
        return [dict(row.value) for row in table.newest_first()][::-1]
    finally:
        store.close()


async def acls(gateway: Gateway, *bindings: AclBinding) -> None:
    """From now on these decide."""
    await gateway._security.acls.change(AclsChange(bindings))


def everybody(operation: Operation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:*", "*", operation, Permission.ALLOW)


def security(client: Client) -> security_pb2_grpc.SecurityStub:
    return security_pb2_grpc.SecurityStub(client.channel)


def test_every_call_of_the_protocol_says_what_the_audit_has_of_it() -> None:
    calls = {
        method.full_name: method
        for module in (log_pb2, groups_pb2, admin_pb2, transactions_pb2, security_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(AUDITED_CALLS) == set(calls)
    # What changes what others have is an act: a new call whose name says so is not forgotten.
    verbs = ("Create", "Delete", "Alter", "Add", "Trim", "Rebalance")
    acts = {name for name, one in AUDITED_CALLS.items() if one.kind is CallKind.ACT}
    named = {name for name in calls if name.rpartition(".")[2].startswith(verbs)}
    assert named - acts == {"mainstem.v1.Transactions.AddOffsets"}


def test_acts_have_rows_with_who_what_and_how_they_ended_and_looks_have_none(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, **ON) as (_, client):
            await client.create("t", 2, retention_ms="86400000")
            await client.describe("t")
            await client.log.Metadata(log_pb2.MetadataRequest(topics=["t"]), timeout=WAIT_S)
            await client.admin.CreateTopic(
                admin_pb2.CreateTopicRequest(topic="only-checked", validate_only=True)
            )
            await client.admin.AlterTopicConfig(
                admin_pb2.AlterTopicConfigRequest(topic="t", set={"retention.ms": "1000000"})
            )
            async with refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC"):
                await client.delete("nowhere")
            await client.delete("t")

    run(test())
    rows = audit(tmp_path)
    assert [(row["call"], row["resources"], row["error"]) for row in rows] == [
        ("CreateTopic", ["t"], ""),
        ("AlterTopicConfig", ["t"], ""),
        ("DeleteTopic", ["nowhere"], "UNKNOWN_TOPIC"),
        ("DeleteTopic", ["t"], ""),
    ]
    first = rows[0]
    assert json.loads(first["summary"]) == {
        "topic": "t",
        "partition_count": 2,
        "config": {"retention.ms": "86400000"},
    }
    assert {name: first[name] for name in ("kind", "principal", "host", "operation")} == {
        "kind": "act",
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "operation": "CREATE",
    }
    assert first["allowed"]
    assert first["gateway_id"]
    assert first["time_ms"] > 1_700_000_000_000
    assert rows[1]["resource_type"] == "TOPIC"


def test_without_the_setting_there_is_no_table_and_no_thread(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            assert gateway._audit is None

    run(test())
    assert not (tmp_path / SYSTEM / "audit").exists()


def test_offsets_that_are_moved_from_outside_a_group_have_a_row_and_those_of_members_none(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, **ON) as (_, client):
            await client.create("t")
            call = client.channel.unary_unary(
                "/mainstem.v1.Groups/CommitOffsets",
                request_serializer=groups_pb2.CommitOffsetsRequest.SerializeToString,
                response_deserializer=groups_pb2.CommitOffsetsResponse.FromString,
            )
            for epoch in (-1, 3):
                request = groups_pb2.CommitOffsetsRequest(
                    group="g",
                    member_id="" if epoch < 0 else "m",
                    member_epoch=epoch,
                    offsets=[
                        groups_pb2.CommittedOffset(
                            topic="t", partition=0, offset=0, leader_epoch=-1
                        )
                    ],
                )
                try:
                    await call(request, timeout=WAIT_S)
                except grpc.aio.AioRpcError:
                    assert epoch == 3  # it is no member

    run(test())
    assert [row["call"] for row in audit(tmp_path)] == ["CreateTopic", "CommitOffsets"]


@pytest.mark.parametrize("call", ["Produce", "ProduceStream", "DeleteTopic", "CreateAcls"])
def test_what_is_refused_has_a_row_whatever_the_call(tmp_path: Path, call: str) -> None:
    async def test() -> None:
        async with running(tmp_path, authorizer="acl", **ON) as (gateway, client):
            await acls(gateway, everybody(Operation.READ, ResourceType.TOPIC, "other"))
            if call == "ProduceStream":
                stream = client.stream()
                await stream.send(values_request(b"a"))
                assert (await stream.answer()).error.code == "TOPIC_AUTHORIZATION_FAILED"
                await stream.end()
                return
            made: dict[str, Callable[[], Any]] = {
                "Produce": lambda: client.produce(values_request(b"a")),
                "DeleteTopic": lambda: client.delete("t"),
                "CreateAcls": lambda: security(client).CreateAcls(security_pb2.CreateAclsRequest()),
            }
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await made[call]()
            assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED

    run(test())
    (row,) = audit(tmp_path)
    name, kind = ("kafka-cluster", "CLUSTER") if call == "CreateAcls" else ("t", "TOPIC")
    assert (row["kind"], row["call"], row["allowed"]) == ("refusal", call, False)
    assert (row["resources"], row["resource_type"]) == ([name], kind)
    assert row["error"] == f"{kind}_AUTHORIZATION_FAILED"


def test_a_refusal_that_a_service_raises_itself_has_a_row_and_no_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: AdminService, request: Any, call: Call) -> Any:
        if request.topic == "by itself":
            raise refusal(call.principal, Operation.DELETE, ResourceType.TOPIC, request.topic)
        with contextlib.suppress(AuthorizationError):
            call.require(Operation.READ, ResourceType.TOPIC, "one of several")
        raise call.refused(Operation.DELETE, ResourceType.TOPIC, request.topic)

    monkeypatch.setattr(AdminService, "DeleteTopic", refuse)

    async def test() -> None:
        async with running(tmp_path, authorizer="acl", **ON) as (gateway, client):
            await acls(gateway, everybody(Operation.DELETE, ResourceType.TOPIC, "*"))
            for name in ("by itself", "as others do"):
                async with refused(grpc.StatusCode.PERMISSION_DENIED, "TOPIC_AUTHORIZATION_FAILED"):
                    await client.delete(name)

    run(test())
    rows = audit(tmp_path)
    assert [(row["kind"], row["operation"], row["resources"], row["count"]) for row in rows] == [
        ("refusal", "DELETE", ["by itself"], 1),
        ("refusal", "READ", ["one of several"], 1),
        ("refusal", "DELETE", ["as others do"], 1),
    ]


def test_a_flood_of_one_refusal_is_one_row_each_time_that_rows_are_written(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, authorizer="acl", **ON) as (gateway, client):
            await acls(gateway)
            stream = client.stream()
            for _ in range(300):
                await stream.send(values_request(b"a"))
                await stream.answer()
            await stream.end()

    run(test())
    rows = audit(tmp_path)
    # The same are one until they are written, which is often here.
    seconds = (rows[-1]["time_ms"] - rows[0]["time_ms"]) / 1000
    assert len(rows) <= 20 * seconds + 2
    assert sum(row["count"] for row in rows) == 300


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_reads_and_writes_have_rows_where_a_share_is_asked_for(
    tmp_path: Path, ratio: float
) -> None:
    async def test() -> None:
        async with running(tmp_path, audit_sample_ratio=ratio, **ON) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"secret-of-a-record"))
            stream = client.stream()
            await stream.send(values_request(b"secret-of-a-record"))
            await stream.answer()
            await stream.end()
            await client.log.Fetch(
                log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t")]),
                timeout=WAIT_S,
            )

    run(test())
    rows = audit(tmp_path)
    sampled = [(row["call"], row["operation"], row["resources"]) for row in rows[1:]]
    assert rows[0]["kind"] == "act"
    assert sampled == (
        [
            ("Produce", "WRITE", ["t"]),
            ("ProduceStream", "WRITE", ["t"]),
            ("Fetch", "READ", ["t"]),
        ]
        if ratio
        else []
    )
    assert all(row["summary"] == "" for row in rows[1:])


def test_keys_of_passwords_tokens_and_records_are_in_no_row(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, audit_sample_ratio=1, **ON) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"MARK-record"))
            upsertion = security_pb2.ScramCredentialUpsertion(
                user="alice",
                mechanism="SCRAM-SHA-256",
                iterations=4096,
                salt=b"MARK-salt",
                stored_key=b"MARK-stored",
                server_key=b"MARK-server",
            )
            transactions: Any = client.channel.unary_unary(
                "/mainstem.v1.Transactions/CompleteTransaction",
                request_serializer=(transactions_pb2.CompleteTransactionRequest.SerializeToString),
            )
            with pytest.raises(grpc.aio.AioRpcError):
                await security(client).AlterUserScramCredentials(
                    security_pb2.AlterUserScramCredentialsRequest(upsertions=[upsertion]),
                    metadata=(("authorization", "Session MARK-session"),),
                )
            with pytest.raises(grpc.aio.AioRpcError):
                await transactions(
                    transactions_pb2.CompleteTransactionRequest(token="MARK-token"),
                    timeout=WAIT_S,
                )

    run(test())
    rows = audit(tmp_path)
    calls = {row["call"] for row in rows}
    assert calls == {"CreateTopic", "Produce", "AlterUserScramCredentials", "CompleteTransaction"}
    assert "alice" in json.dumps(rows)
    assert "MARK" not in json.dumps(rows)
    # Compressed pages hide text: they are read above. Keys and logs are not.
    for file in (tmp_path / SYSTEM / "audit").rglob("*"):
        assert not file.is_file() or b"MARK" not in file.read_bytes()


def test_two_gateways_that_write_at_the_same_time_have_every_row_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path, gateway_id="a", **ON) as (_, one),
            running(tmp_path, gateway_id="b", **ON) as (_, two),
        ):
            for number in range(10):
                await asyncio.gather(
                    *(client.create(f"{name}{number}") for name, client in (("a", one), ("b", two)))
                )

    run(test())
    rows = audit(tmp_path)
    assert sorted(row["resources"][0] for row in rows) == sorted(
        f"{name}{number}" for name in "ab" for number in range(10)
    )
    assert {row["gateway_id"] for row in rows} == {"a", "b"}


def failing_audit(failing: Callable[[], bool]) -> Callable[[str, str], None]:
    def before(call: str, path: str) -> None:
        if "system/audit" in path and failing():
            raise StoreUnavailableError("the store is away")

    return before


def test_a_store_that_fails_holds_nobody_up_and_its_rows_come_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    away = True
    store = FaultyStore(LocalStore(tmp_path), before=failing_audit(lambda: away))

    async def test() -> None:
        nonlocal away
        async with running(store=store, **ON) as (gateway, client):
            for number in range(5):
                await soon(client.create(f"t{number}"))
            audit_log = gateway._audit
            assert audit_log is not None
            await until(lambda: audit_log._fails)
            assert audit(tmp_path) == []
            away = False
            await until(lambda: not audit_log._fails)

    run(test())
    assert [row["resources"] for row in audit(tmp_path)] == [[f"t{n}"] for n in range(5)]
    assert capfd.readouterr().out.count("the audit cannot be written") == 1


@pytest.mark.slow
def test_a_store_that_hangs_holds_up_neither_calls_nor_the_end_of_the_gateway(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "system/audit")
    store = FaultyStore(LocalStore(tmp_path), before=gate)

    async def test() -> None:
        async with running(store=store, **ON) as (gateway, client):
            await soon(client.create("t"))
            await until(lambda: gate.calls > 0)
            await soon(client.produce(values_request(b"a")))
            began = asyncio.get_running_loop().time()
            assert not await gateway.drain()  # the process does not wait for its thread
            assert asyncio.get_running_loop().time() - began < WAIT_S
            gate.open()

    run(test())
    assert [row["resources"] for row in audit(tmp_path)] in ([], [["t"]])


def test_what_waits_when_the_gateway_ends_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "WRITE_EVERY_S", 1_000)

    async def test() -> None:
        async with running(tmp_path, **ON) as (_, client):
            await client.create("t")

    run(test())
    assert [row["call"] for row in audit(tmp_path)] == ["CreateTopic"]


def test_a_caller_that_gives_up_in_the_middle_has_a_row_all_the_same(tmp_path: Path) -> None:
    gate = Gate("put_if_absent", "topics/t")
    store = FaultyStore(LocalStore(tmp_path), before=gate)

    async def test() -> None:
        async with running(store=store, **ON) as (_, client):
            call = client.admin.CreateTopic(admin_pb2.CreateTopicRequest(topic="t"))
            created = asyncio.ensure_future(call)
            await until(lambda: gate.calls > 0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await created
            gate.open()

    run(test())
    (row,) = audit(tmp_path)
    assert row["call"] == "CreateTopic"
    assert row["error"] in ("", "CancelledError")  # it may have been done by then


def test_an_audit_table_that_is_damaged_or_deleted_does_not_stop_the_gateway(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, **ON) as (_, client):
            await client.create("before")
            await until(lambda: len(audit(tmp_path)) == 1)
            store = LocalStore(tmp_path)
            await asyncio.to_thread(Topics(store, folder=SYSTEM).delete, "audit")
            store.close()
            await client.create("after")
            await until(lambda: [row["resources"] for row in audit(tmp_path)] == [["after"]])

    run(test())


def test_who_cannot_prove_who_they_are_has_a_row_and_who_can_is_named_in_theirs(
    tmp_path: Path,
) -> None:
    async def prove(credentials: str) -> Identity:
        if credentials == "expired":
            raise SessionExpiredError("sign in again")
        if credentials != "MARK-good":
            raise AuthenticationError("no")
        return Identity(Principal("User", "ali:ce,\nü"))

    async def test() -> None:
        async with running(tmp_path, **ON) as (gateway, client):
            gateway._rpc._sign_in = SignIn({"test": prove})

            async def delete(proof: str) -> None:
                metadata = (("authorization", f"Test {proof}"),) if proof else ()
                with pytest.raises(grpc.aio.AioRpcError):
                    await client.admin.DeleteTopic(
                        admin_pb2.DeleteTopicRequest(topic="nowhere"), metadata=metadata
                    )

            for proof in ("MARK-bad", "MARK-bad", "expired", "", "MARK-good"):
                await delete(proof)

    run(test())
    rows = audit(tmp_path)
    failed = [row for row in rows if row["kind"] == "sign-in"]
    assert sum(row["count"] for row in failed) == 3
    assert {row["error"] for row in failed} == {"SASL_AUTHENTICATION_FAILED"}
    (act,) = [row for row in rows if row["kind"] == "act"]
    assert (act["principal"], act["error"]) == ("User:ali:ce,\nü", "UNKNOWN_TOPIC")
    assert "MARK" not in json.dumps(rows)


def test_what_has_no_room_while_the_store_hangs_is_counted_in_a_row(tmp_path: Path) -> None:
    gate = Gate("put", "system/audit")
    store = FaultyStore(LocalStore(tmp_path), before=gate)

    async def test() -> None:
        async with running(store=store, audit_queue_rows=100, **ON) as (gateway, client):
            for number in range(150):
                with pytest.raises(grpc.aio.AioRpcError):
                    await client.delete(f"t{number}")
            await until(lambda: gate.calls > 0)
            gate.open()
            await until(lambda: any(row["kind"] == "left-out" for row in audit(tmp_path)))
            audit_log = gateway._audit
            assert audit_log is not None
            await until(lambda: audit_log._queue.is_empty)
            text = generate_latest(gateway._metrics.registry).decode()
            assert "mainstem_audit_dropped_total 50.0" in text
            assert "mainstem_audit_rows_total 101.0" in text

    run(test())
    rows = audit(tmp_path)
    assert [row["resources"] for row in rows if row["kind"] == "act"] == [
        [f"t{number}"] for number in range(100)
    ]
    (left_out,) = [row for row in rows if row["kind"] == "left-out"]
    assert left_out["count"] == 50
