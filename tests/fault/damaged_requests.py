"""Requests of every call, right ones and damaged ones. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message
from tests.unit.ingest_gateway.payloads import arrow_request, batch_of, records_request

from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)

#: So far from the topic that is there that damage seldom makes the one of the other.
OTHER = "uuuuuuuu"

LOG, GROUPS, ADMIN, TRANSACTIONS, SECURITY = (
    f"/mainstem.v1.{name}/" for name in ("Log", "Groups", "Admin", "Transactions", "Security")
)


def examples() -> dict[str, list[Message]]:
    """Requests of each call that are right."""
    partition = groups_pb2.TopicPartitions(topic="t", topic_id="x" * 36, partitions=[0, 1, 300])
    batch = batch_of(key=[b"k", None, b""], value=[b"v" * 50, b"", None])
    return {
        LOG + "Produce": [
            arrow_request(batch, ranges=[(0, 0, 2), (1, 2, 1)]),
            arrow_request(batch, compression="zstd"),
            arrow_request(batch, compression="lz4", acks=log_pb2.ACKS_LEADER),
            records_request(
                log_pb2.Record(key=b"k", value=b"v", headers=[log_pb2.Header(key="h", value=b"x")]),
                log_pb2.Record(timestamp_ms=5, partition=1),
            ),
        ],
        LOG + "Fetch": [
            log_pb2.FetchRequest(
                partitions=[log_pb2.FetchPartition(topic="t", partition=n) for n in range(3)],
                columns=["key", "value"],
            ),
            log_pb2.FetchRequest(
                partitions=[log_pb2.FetchPartition(topic="t", offset=1, max_bytes=10)],
                format=log_pb2.FETCH_FORMAT_RECORDS,
            ),
        ],
        LOG + "ListOffsets": [
            log_pb2.ListOffsetsRequest(
                queries=[
                    log_pb2.OffsetQuery(topic="t", partition=1, timestamp_ms=7),
                    log_pb2.OffsetQuery(topic="t", latest=True),
                ]
            )
        ],
        LOG + "InitProducer": [log_pb2.InitProducerRequest()],
        LOG + "Metadata": [
            log_pb2.MetadataRequest(topics=["t", "none"]),
            log_pb2.MetadataRequest(),
        ],
        GROUPS + "Heartbeat": [
            groups_pb2.HeartbeatRequest(
                group="g",
                topics=["t"],
                topic_pattern="^t",
                session_timeout_ms=1_000,
                rebalance_timeout_ms=1_000,
                owned=[partition],
            )
        ],
        GROUPS + "Leave": [groups_pb2.LeaveRequest(group="g", member_id="m", member_epoch=1)],
        GROUPS + "CommitOffsets": [
            groups_pb2.CommitOffsetsRequest(
                group="g",
                member_epoch=-1,
                offsets=[groups_pb2.CommittedOffset(topic="t", offset=1, metadata="m")],
            )
        ],
        GROUPS + "FetchOffsets": [
            groups_pb2.FetchOffsetsRequest(group="g", partitions=[partition]),
            groups_pb2.FetchOffsetsRequest(group="g"),
        ],
        GROUPS + "ListGroups": [groups_pb2.ListGroupsRequest()],
        GROUPS + "DescribeGroup": [groups_pb2.DescribeGroupRequest(group="g")],
        GROUPS + "DeleteGroup": [groups_pb2.DeleteGroupRequest(group="g")],
        ADMIN + "CreateTopic": [
            admin_pb2.CreateTopicRequest(
                topic=OTHER, partition_count=1, config={"retention.ms": "1"}, validate_only=True
            )
        ],
        ADMIN + "DeleteTopic": [admin_pb2.DeleteTopicRequest(topic=OTHER)],
        ADMIN + "ListTopics": [admin_pb2.ListTopicsRequest()],
        ADMIN + "DescribeTopic": [admin_pb2.DescribeTopicRequest(topic="t")],
        ADMIN + "AlterTopicConfig": [
            admin_pb2.AlterTopicConfigRequest(
                topic="t", set={"retention.ms": "100000"}, reset=["segment.ms"], validate_only=True
            )
        ],
        ADMIN + "AddPartitions": [admin_pb2.AddPartitionsRequest(topic=OTHER, partition_count=3)],
        ADMIN + "TrimPrefix": [
            admin_pb2.TrimPrefixRequest(
                topic="t", partitions=[admin_pb2.PartitionTrim()], validate_only=True
            )
        ],
        ADMIN + "DescribeCluster": [admin_pb2.DescribeClusterRequest()],
        ADMIN + "ListConnections": [admin_pb2.ListConnectionsRequest()],
        ADMIN + "Rebalance": [admin_pb2.RebalanceRequest(validate_only=True)],
        **_of_transactions(),
        **_of_security(),
    }


def _of_transactions() -> dict[str, list[Message]]:
    transaction = transactions_pb2.TransactionId(
        transactional_id="i", producer_id=1, producer_epoch=0, number=1
    )
    offsets = groups_pb2.CommitOffsetsRequest(
        group="g",
        member_epoch=-1,
        offsets=[groups_pb2.CommittedOffset(topic="t", offset=1)],
    )
    place: dict[str, Any] = {"transactional_id": "i", "ordinal": 2, "topic": OTHER}
    found: dict[str, list[Message]] = {
        "InitTransactions": [transactions_pb2.InitTransactionsRequest(transactional_id="i")],
        "BeginTransaction": [transactions_pb2.BeginTransactionRequest(transaction=transaction)],
        "AddOffsets": [
            transactions_pb2.AddOffsetsRequest(transaction=transaction, offsets=offsets)
        ],
        "EndTransaction": [
            transactions_pb2.EndTransactionRequest(
                transaction=transaction, commit=True, record_count=2
            )
        ],
        "PrepareTransaction": [
            transactions_pb2.PrepareTransactionRequest(transaction=transaction, record_count=2)
        ],
        "CompleteTransaction": [
            transactions_pb2.CompleteTransactionRequest(token="WyJpIiwgMSwgMCwgMV0="),
            transactions_pb2.CompleteTransactionRequest(transactional_id="i"),
        ],
        "CompleteTransactions": [
            transactions_pb2.CompleteTransactionsRequest(
                transactional_id="e", tokens=["WyJpIiwgMSwgMCwgMV0="], commit=True
            )
        ],
        "ListTransactions": [transactions_pb2.ListTransactionsRequest(states=["OPEN"])],
        "DescribeTransaction": [transactions_pb2.DescribeTransactionRequest(transactional_id="i")],
        "AppendTransaction": [transactions_pb2.AppendTransactionRequest(staged=["1-abc"], **place)],
        "SettleTransaction": [transactions_pb2.SettleTransactionRequest(**place)],
    }
    return {TRANSACTIONS + name: requests for name, requests in found.items()}


def _of_security() -> dict[str, list[Message]]:
    return {
        SECURITY + "Authenticate": [
            security_pb2.AuthenticateRequest(
                mechanism="SCRAM-SHA-256", auth_bytes=b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"
            ),
            security_pb2.AuthenticateRequest(auth_bytes=b"c=biws,r=fyko,p=" + b"v" * 44),
        ],
        SECURITY + "AlterUserScramCredentials": [
            security_pb2.AlterUserScramCredentialsRequest(
                upsertions=[
                    security_pb2.ScramCredentialUpsertion(
                        user="alice",
                        mechanism="SCRAM-SHA-256",
                        iterations=4096,
                        salt=b"s" * 16,
                        stored_key=b"k" * 32,
                        server_key=b"k" * 32,
                    )
                ],
                deletions=[security_pb2.ScramCredentialDeletion(user="bob")],
            )
        ],
        SECURITY + "DescribeUserScramCredentials": [
            security_pb2.DescribeUserScramCredentialsRequest(users=["alice"])
        ],
        SECURITY + "CreateAcls": [security_pb2.CreateAclsRequest(rules=[_rule()])],
        SECURITY + "DescribeAcls": [
            security_pb2.DescribeAclsRequest(filter=security_pb2.AclFilter(name="t"))
        ],
        SECURITY + "DeleteAcls": [
            security_pb2.DeleteAclsRequest(
                filters=[security_pb2.AclFilter(name="t", pattern_type="MATCH")]
            )
        ],
        SECURITY + "CheckAcl": [
            security_pb2.CheckAclRequest(
                principal="User:alice",
                groups=["readers"],
                host="192.0.2.1",
                operation="READ",
                resource_type="TOPIC",
                name="t",
            )
        ],
        SECURITY + "AlterClientQuotas": [
            security_pb2.AlterClientQuotasRequest(
                alterations=[
                    security_pb2.ClientQuotaAlteration(
                        entity=security_pb2.QuotaEntity(principal="User:alice", client_id="c"),
                        set=[security_pb2.QuotaValue(name="request_rate", value=1e9)],
                        remove=["producer_byte_rate"],
                    )
                ]
            )
        ],
        SECURITY + "DescribeClientQuotas": [security_pb2.DescribeClientQuotasRequest()],
    }


def _rule() -> security_pb2.AclRule:
    return security_pb2.AclRule(
        resource_type="TOPIC",
        name="t",
        pattern_type="LITERAL",
        principal="User:alice",
        host="192.0.2.0/24",
        operation="READ",
        permission="ALLOW",
    )


def serialised(requests: list[Message]) -> list[bytes]:
    """The requests as bytes, with something in each that can be damaged."""
    return [request.SerializeToString() or b"\x0a\x01t" for request in requests]


def damaged(requests: list[bytes], rng: random.Random) -> bytes:
    """One of the requests, with one damage or two."""
    data = rng.choice(requests)
    for _ in range(rng.randrange(1, 3)):
        data = rng.choice(_DAMAGES)(data, rng) or b"\0"
    return data[:_BYTES_MAX]


_BYTES_MAX = 200_000

#: One in so many repetitions is a large one, which costs as much as a hundred others.
_LARGE_ONE_IN = 50


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _with_a_number(data: bytes, rng: random.Random) -> bytes:
    """A number, perhaps a length, becomes large or negative, or goes on."""
    at = rng.randrange(len(data))
    return data[:at] + rng.choice((b"\xff" * 9 + b"\1", b"\xff\xff\xff\xff\7", b"\x80")) + data[at:]


def _nested(data: bytes, rng: random.Random) -> bytes:
    """Itself inside itself, some times."""
    for _ in range(rng.randrange(1, 8)):
        size = len(data)
        if size > 16_000:
            break
        prefix = bytes([rng.randrange(1, 13) << 3 | 2])
        data = prefix + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + data
    return data


def _repeated(data: bytes, rng: random.Random) -> bytes:
    """A part of it many times."""
    begin, end = sorted((rng.randrange(len(data)), rng.randrange(len(data) + 1)))
    times = 3_000 if rng.randrange(_LARGE_ONE_IN) == 0 else rng.choice((2, 50))
    return data[:end] + data[begin:end] * times + data[end:]


def _continued(data: bytes, rng: random.Random) -> bytes:
    """It goes on as a request of another call."""
    other = rng.choice(_ALL)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other)) :]


_DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flipped,
    _flipped,
    _cut,
    _with_a_number,
    _nested,
    _repeated,
    _continued,
)

_ALL = [data for requests in examples().values() for data in serialised(requests)]
