"""Every call of the protocol, by everybody who may make it and everybody who may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tests.unit.ingest_gateway.harness import (
    WAIT_S,
    Client,
    anybody,
    run,
    running,
    signed_in,
    soon,
)
from tests.unit.ingest_gateway.payloads import arrow_request, batch_of, values_request
from tests.unit.ingest_gateway.stream_call import StreamCall
from tests.unit.ingest_gateway.transacting import Transacting

from mainstem.ingest_gateway.services.requirements import REQUIREMENTS
from mainstem.ingest_gateway.transactions import TransactionRef
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)
from mainstem.security import ANONYMOUS

METHODS: dict[str, MethodDescriptor] = {
    method.full_name: method
    for module in (log_pb2, groups_pb2, admin_pb2, transactions_pb2, security_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}

#: Reasons by which a call, or a part of its answer, says that the caller may not.
REFUSALS = {
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}

Need = tuple[str, str, str]

TOKEN = TransactionRef("nowhere", 1, 1, 1).token


@dataclass(frozen=True)
class Case:
    """A call and what it needs.

    Attributes:
        request: Given a name that is nobody else's.
        needs: Operation, type of resource, and name or prefix ending in `-`; all of them.
        refused: Whether an answer says that the caller may not, or leaves out what it might see.
    """

    call: str
    request: Callable[[str], Any]
    needs: tuple[Need, ...]
    refused: Callable[[Any], bool] = lambda _: False

    @property
    def method(self) -> MethodDescriptor:
        return METHODS[f"mainstem.v1.{self.call}"]


def error_of(one: Any) -> bool:
    return one.error.code in REFUSALS


def transaction(name: str = "nowhere") -> transactions_pb2.TransactionId:
    return transactions_pb2.TransactionId(
        transactional_id=name, producer_id=1, producer_epoch=1, number=1
    )


def transactional() -> log_pb2.ProduceRequest:
    return arrow_request(
        batch_of(key=[None], value=[b"x"]),
        ranges=[(0, 0, 1)],
        producer_id=1,
        producer_epoch=1,
        transactional_id="nowhere",
        transaction_number=1,
    )


def offsets(topic: str = "t") -> groups_pb2.CommitOffsetsRequest:
    return groups_pb2.CommitOffsetsRequest(
        group="g",
        member_epoch=-1,
        offsets=[groups_pb2.CommittedOffset(topic=topic, offset=1, leader_epoch=2**60)],
    )


def cases() -> Iterator[Case]:
    t, g, c = "TOPIC", "GROUP", "CLUSTER"
    x, cluster = "TRANSACTIONAL_ID", "kafka-cluster"
    alter: Need = ("ALTER", c, cluster)
    describe: Need = ("DESCRIBE", c, cluster)
    action: Need = ("CLUSTER_ACTION", c, cluster)
    yield Case("Log.Produce", lambda _: values_request(b"x"), (("WRITE", t, "t"),))
    yield Case(
        "Log.Produce", lambda _: transactional(), (("WRITE", t, "t"), ("WRITE", x, "nowhere"))
    )
    new = lambda user: values_request(b"x", topic=f"new-{user}")  # noqa: E731
    yield Case("Log.Produce", new, (("WRITE", t, "new-"), ("CREATE", t, "new-")))
    yield Case("Log.Produce", new, (("WRITE", t, "new-"), ("CREATE", c, cluster)))
    yield Case("Log.ProduceStream", lambda _: values_request(b"x"), (("WRITE", t, "t"),), error_of)
    yield Case(
        "Log.ProduceStream",
        lambda _: transactional(),
        (("WRITE", t, "t"), ("WRITE", x, "nowhere")),
        error_of,
    )
    yield Case("Log.InitProducer", lambda _: log_pb2.InitProducerRequest(), (("WRITE", t, "any"),))
    yield Case(
        "Log.InitProducer",
        lambda _: log_pb2.InitProducerRequest(),
        (("IDEMPOTENT_WRITE", c, cluster),),
    )
    yield Case(
        "Log.Fetch",
        lambda _: log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t")]),
        (("READ", t, "t"),),
        lambda answer: error_of(answer.partitions[0]),
    )
    yield Case(
        "Log.ListOffsets",
        lambda _: log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic="t", latest=True)]),
        (("DESCRIBE", t, "t"),),
        lambda answer: error_of(answer.answers[0]),
    )
    yield Case(
        "Log.Metadata",
        lambda _: log_pb2.MetadataRequest(topics=["t"]),
        (("DESCRIBE", t, "t"),),
        lambda answer: error_of(answer.topics[0]),
    )
    yield Case(
        "Log.Metadata",
        lambda _: log_pb2.MetadataRequest(),
        (("DESCRIBE", t, "t"),),
        lambda answer: "t" not in [one.topic for one in answer.topics],
    )
    made: Callable[[str], Any] = lambda user: log_pb2.MetadataRequest(  # noqa: E731
        topics=[f"new-{user}"], allow_auto_topic_creation=True
    )
    for create in (("CREATE", t, "new-"), ("CREATE", c, cluster)):
        yield Case("Log.ProduceStream", new, (("WRITE", t, "new-"), create), error_of)
        yield Case(
            "Log.Metadata",
            made,
            (("DESCRIBE", t, "new-"), create),
            lambda answer: error_of(answer.topics[0]),
        )
    yield Case(
        "Admin.CreateTopic",
        lambda user: admin_pb2.CreateTopicRequest(topic=f"made-{user}"),
        (("CREATE", t, "made-"),),
    )
    yield Case(
        "Admin.CreateTopic",
        lambda user: admin_pb2.CreateTopicRequest(topic="t"),
        (("CREATE", c, cluster),),
    )
    yield Case(
        "Admin.DeleteTopic",
        lambda _: admin_pb2.DeleteTopicRequest(topic="nowhere"),
        (("DELETE", t, "nowhere"),),
    )
    yield Case(
        "Admin.ListTopics",
        lambda _: admin_pb2.ListTopicsRequest(),
        (("DESCRIBE", t, "t"),),
        lambda answer: "t" not in [one.topic for one in answer.topics],
    )
    yield Case(
        "Admin.DescribeTopic",
        lambda _: admin_pb2.DescribeTopicRequest(topic="t"),
        (("DESCRIBE", t, "t"),),
    )
    yield Case(
        "Admin.DescribeTopic",
        lambda _: admin_pb2.DescribeTopicRequest(topic="t"),
        (("DESCRIBE", t, "t"), ("DESCRIBE_CONFIGS", t, "t")),
        lambda answer: not answer.config,
    )
    yield Case(
        "Admin.AlterTopicConfig",
        lambda _: admin_pb2.AlterTopicConfigRequest(topic="nowhere"),
        (("ALTER_CONFIGS", t, "nowhere"),),
    )
    yield Case(
        "Admin.AddPartitions",
        lambda _: admin_pb2.AddPartitionsRequest(topic="nowhere", partition_count=9),
        (("ALTER", t, "nowhere"),),
    )
    yield Case(
        "Admin.TrimPrefix",
        lambda _: admin_pb2.TrimPrefixRequest(topic="nowhere"),
        (("DELETE", t, "nowhere"),),
    )
    yield Case("Admin.DescribeCluster", lambda _: admin_pb2.DescribeClusterRequest(), (describe,))
    yield Case(
        "Admin.Rebalance", lambda _: admin_pb2.RebalanceRequest(validate_only=True), (alter,)
    )
    yield Case("Admin.ListConnections", lambda _: admin_pb2.ListConnectionsRequest(), (describe,))
    yield Case(
        "Groups.Heartbeat",
        lambda user: groups_pb2.HeartbeatRequest(group=f"h-{user}", topics=["t"]),
        (("READ", g, "h-"), ("DESCRIBE", t, "t")),
    )
    yield Case(
        "Groups.Heartbeat",
        lambda user: groups_pb2.HeartbeatRequest(group=f"h-{user}", topic_pattern="^t$"),
        (("READ", g, "h-"), ("READ", t, "t")),
        lambda answer: not answer.assignment,
    )
    yield Case(
        "Groups.Leave",
        lambda _: groups_pb2.LeaveRequest(group="g", member_id="nobody"),
        (("READ", g, "g"),),
    )
    yield Case("Groups.CommitOffsets", lambda _: offsets(), (("READ", g, "g"), ("READ", t, "t")))
    fetched = groups_pb2.TopicPartitions(topic="t", partitions=[0])
    yield Case(
        "Groups.FetchOffsets",
        lambda _: groups_pb2.FetchOffsetsRequest(group="g", partitions=[fetched]),
        (("DESCRIBE", g, "g"), ("DESCRIBE", t, "t")),
        lambda answer: error_of(answer.offsets[0]),
    )
    yield Case(
        "Groups.FetchOffsets",
        lambda _: groups_pb2.FetchOffsetsRequest(group="g"),
        (("DESCRIBE", g, "g"), ("DESCRIBE", t, "t")),
        lambda answer: not answer.offsets,
    )
    yield Case(
        "Groups.ListGroups",
        lambda _: groups_pb2.ListGroupsRequest(),
        (("DESCRIBE", g, "g"),),
        lambda answer: "g" not in [one.group for one in answer.groups],
    )
    yield Case(
        "Groups.DescribeGroup",
        lambda _: groups_pb2.DescribeGroupRequest(group="g"),
        (("DESCRIBE", g, "g"), ("DESCRIBE", t, "t")),
        lambda answer: not answer.offsets,
    )
    yield Case(
        "Groups.DeleteGroup",
        lambda _: groups_pb2.DeleteGroupRequest(group="nowhere"),
        (("DELETE", g, "nowhere"),),
    )
    yield Case(
        "Transactions.InitTransactions",
        lambda user: transactions_pb2.InitTransactionsRequest(transactional_id=f"x-{user}"),
        (("WRITE", x, "x-"),),
    )
    yield Case(
        "Transactions.BeginTransaction",
        lambda _: transactions_pb2.BeginTransactionRequest(transaction=transaction()),
        (("WRITE", x, "nowhere"),),
    )
    yield Case(
        "Transactions.AddOffsets",
        lambda _: transactions_pb2.AddOffsetsRequest(transaction=transaction(), offsets=offsets()),
        (("WRITE", x, "nowhere"), ("READ", g, "g"), ("READ", t, "t")),
    )
    yield Case(
        "Transactions.EndTransaction",
        lambda _: transactions_pb2.EndTransactionRequest(transaction=transaction()),
        (("WRITE", x, "nowhere"),),
    )
    yield Case(
        "Transactions.PrepareTransaction",
        lambda _: transactions_pb2.PrepareTransactionRequest(transaction=transaction()),
        (("WRITE", x, "nowhere"),),
    )
    yield Case(
        "Transactions.CompleteTransaction",
        lambda _: transactions_pb2.CompleteTransactionRequest(transactional_id="nowhere"),
        (("WRITE", x, "nowhere"),),
    )
    yield Case(
        "Transactions.CompleteTransaction",
        lambda _: transactions_pb2.CompleteTransactionRequest(token=TOKEN),
        (("WRITE", x, "nowhere"),),
    )
    yield Case(
        "Transactions.CompleteTransactions",
        lambda _: transactions_pb2.CompleteTransactionsRequest(
            transactional_id="epochs", tokens=[TOKEN]
        ),
        (("WRITE", x, "epochs"), ("WRITE", x, "nowhere")),
    )
    yield Case(
        "Transactions.ListTransactions",
        lambda _: transactions_pb2.ListTransactionsRequest(states=["EMPTY"]),
        (("DESCRIBE", x, "seen"),),
        lambda answer: (
            "seen" not in [one.transaction.transactional_id for one in answer.transactions]
        ),
    )
    yield Case(
        "Transactions.DescribeTransaction",
        lambda _: transactions_pb2.DescribeTransactionRequest(transactional_id="seen"),
        (("DESCRIBE", x, "seen"),),
    )
    yield Case(
        "Transactions.DescribeTransaction",
        lambda _: transactions_pb2.DescribeTransactionRequest(transactional_id="open"),
        (("DESCRIBE", x, "open"), ("DESCRIBE", t, "t")),
        lambda answer: not answer.topics,
    )
    yield Case(
        "Transactions.AppendTransaction",
        lambda _: transactions_pb2.AppendTransactionRequest(
            transactional_id="nowhere", ordinal=2, topic="nowhere"
        ),
        (action,),
    )
    yield Case(
        "Transactions.SettleTransaction",
        lambda _: transactions_pb2.SettleTransactionRequest(
            transactional_id="nowhere", ordinal=2, topic="nowhere"
        ),
        (action,),
    )
    yield Case("Security.Authenticate", lambda _: security_pb2.AuthenticateRequest(), ())
    yield Case(
        "Security.AlterUserScramCredentials",
        lambda _: security_pb2.AlterUserScramCredentialsRequest(),
        (alter,),
    )
    yield Case(
        "Security.DescribeUserScramCredentials",
        lambda _: security_pb2.DescribeUserScramCredentialsRequest(),
        (describe,),
    )
    yield Case(
        "Security.CreateAcls",
        lambda _: security_pb2.CreateAclsRequest(rules=[rule("nobody", ("READ", t, "t"))]),
        (alter,),
    )
    yield Case("Security.DescribeAcls", lambda _: security_pb2.DescribeAclsRequest(), (describe,))
    yield Case(
        "Security.DeleteAcls",
        lambda _: security_pb2.DeleteAclsRequest(
            filters=[security_pb2.AclFilter(principal="User:nobody")]
        ),
        (alter,),
    )
    yield Case(
        "Security.CheckAcl",
        lambda _: security_pb2.CheckAclRequest(
            principal="User:u", operation="READ", resource_type=t, name="t"
        ),
        (describe,),
    )
    yield Case(
        "Security.AlterClientQuotas",
        lambda _: security_pb2.AlterClientQuotasRequest(),
        (("ALTER_CONFIGS", c, cluster),),
    )
    yield Case(
        "Security.DescribeClientQuotas",
        lambda _: security_pb2.DescribeClientQuotasRequest(),
        (("DESCRIBE_CONFIGS", c, cluster),),
    )


CASES = list(cases())


def rule(user: str, need: Need) -> security_pb2.AclRule:
    operation, resource_type, name = need
    return security_pb2.AclRule(
        resource_type=resource_type,
        name=name,
        pattern_type="PREFIXED" if name.endswith("-") else "LITERAL",
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


async def called(client: Client, case: Case, unique: str) -> str:
    """What the call came to: `ok`, or the reason for which it, or what it asks for, is refused."""
    method, request = case.method, case.request(unique)
    path = f"/{method.containing_service.full_name}/{method.name}"
    options: dict[str, Any] = {
        "request_serializer": GetMessageClass(method.input_type).SerializeToString,
        "response_deserializer": GetMessageClass(method.output_type).FromString,
    }
    try:
        if method.client_streaming:
            async with StreamCall(
                client.address, path, metadata=client.metadata, **options
            ) as stream:
                await stream.write(request)
                answer = await soon(stream.read())
                if answer is grpc.aio.EOF:
                    return "ok"
        else:
            answer = await client.channel.unary_unary(path, **options)(request, timeout=WAIT_S)
    except grpc.RpcError as failure:
        ended: Any = failure
        return reason_of(rpc_status.from_call(ended))
    return "left out" if case.refused(answer) else "ok"


def reason_of(status: Any) -> str:
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info), status
    return str(info.reason)


def passes(case: Case, outcome: str) -> bool:
    """Whether the caller was let in, whatever became of what it asked for."""
    if case.call == "Security.Authenticate":
        return outcome not in REFUSALS  # it is open, and says what it thinks of the credentials
    return outcome not in REFUSALS | {"left out", "SASL_AUTHENTICATION_FAILED", "UNAUTHENTICATED"}


async def prepare(root: Client) -> None:
    """Something of everything that a caller might see."""
    await root.create("t")
    await root.produce(values_request(b"x"))
    await root.groups.CommitOffsets(offsets(), timeout=WAIT_S)
    await Transacting(root, "seen").init()
    opened = await Transacting(root, "open").init()
    await opened.begin()
    await opened.send("t", b"x")


async def add_rules(root: Client, rules: list[security_pb2.AclRule]) -> None:
    await root.security.CreateAcls(security_pb2.CreateAclsRequest(rules=rules), timeout=WAIT_S)


def test_the_matrix_has_every_call_of_the_protocol() -> None:
    assert {case.method.full_name for case in CASES} == METHODS.keys() == REQUIREMENTS.keys()


@pytest.mark.slow
def test_each_call_is_for_exactly_those_who_have_every_rule_that_it_needs(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(
            tmp_path,
            proofs={"test": anybody},
            authorizer="acl",
            super_users="User:root",
            auto_create_topics_enable=True,
        ) as (_, client):
            root = signed_in(client, "root")
            await prepare(root)
            rules: list[security_pb2.AclRule] = []
            for number, case in enumerate(CASES):
                rules += [rule(f"all-{number}", need) for need in case.needs]
                for without in range(len(case.needs)):
                    left = case.needs[:without] + case.needs[without + 1 :]
                    rules += [rule(f"without-{number}-{without}", need) for need in left]
            await add_rules(root, rules)
            wrong: list[tuple[str, str, str]] = []

            async def expect(case: Case, user: str, may: bool) -> None:
                caller = signed_in(client, user) if user else client
                unique = user.replace(":", "-") + f"-{CASES.index(case)}"
                outcome = await called(caller, case, unique)
                if passes(case, outcome) is not may:
                    wrong.append((case.call, user, outcome))

            for number, case in enumerate(CASES):
                await expect(case, f"all-{number}", True)
                for without in range(len(case.needs)):
                    await expect(case, f"without-{number}-{without}", False)
                await expect(case, "root", True)
                await expect(case, "Gateway:one", True)
                needs_none = not case.needs
                await expect(case, "nothing", needs_none)
                await expect(case, "", needs_none)
            assert not wrong

    run(test())


@pytest.mark.slow
def test_who_is_not_asked_is_one_user_whom_rules_can_name(tmp_path: Path) -> None:
    async def test() -> None:
        # The rules are written while they are not in force, as before an authorizer is set.
        async with running(tmp_path) as (_, client):
            await prepare(client)
            needs = {need for case in CASES for need in case.needs}
            await add_rules(client, [rule(ANONYMOUS.name, need) for need in sorted(needs)])
        async with running(tmp_path, authorizer="acl") as (_, client):
            for number, case in enumerate(CASES):
                if case.call != "Transactions.DescribeTransaction":  # its transaction is over
                    assert passes(case, await called(client, case, f"anonymous-{number}")), (
                        case.call
                    )
        gone = security_pb2.DeleteAclsRequest(
            filters=[security_pb2.AclFilter(principal=str(ANONYMOUS))]
        )
        async with running(tmp_path) as (_, client):
            await client.security.DeleteAcls(gone, timeout=WAIT_S)
        async with running(tmp_path, authorizer="acl") as (_, client):
            for case in CASES:
                assert passes(case, await called(client, case, "anonymous")) is not bool(
                    case.needs
                ), case.call

    run(test())
