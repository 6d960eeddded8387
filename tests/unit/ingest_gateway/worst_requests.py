"""The largest request of each call that the limits let in, and the next larger one.

A gateway that they are sent to has the topics of `TOPICS`, and the groups of `SET_UP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from mainstem.limits import (
    ACLS_MAX,
    FETCH_PARTITIONS_MAX,
    GROUP_PARTITIONS_MAX,
    GROUP_TEXT_BYTES_MAX,
    METADATA_TOPICS_MAX,
    OFFSETS_PER_COMMIT_MAX,
    PARTITION_COUNT_MAX,
    REQUEST_HEADERS_MAX,
    REQUEST_PLACED_RECORDS_MAX,
    REQUEST_RANGES_MAX,
    REQUEST_RECORDS_MAX,
    SECURITY_CHANGES_MAX,
    SUBSCRIBED_TOPICS_MAX,
    TOPIC_SETTINGS_MAX,
    TRANSACTION_OBJECTS_MAX,
    TRANSACTION_TOKENS_MAX,
    TRANSACTIONAL_ID_BYTES_MAX,
)
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)

LOG: Final = "/mainstem.v1.Log/"
GROUPS: Final = "/mainstem.v1.Groups/"
ADMIN: Final = "/mainstem.v1.Admin/"
TRANSACTIONS: Final = "/mainstem.v1.Transactions/"
SECURITY: Final = "/mainstem.v1.Security/"

INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
FAILED: Final = grpc.StatusCode.FAILED_PRECONDITION

#: As many topics of the most partitions as one member may own partitions of.
WIDE: Final = tuple(f"wide-{n}" for n in range(GROUP_PARTITIONS_MAX // PARTITION_COUNT_MAX))

#: The topics, with their partition counts.
TOPICS: Final = {
    "t": 1,
    "few": 1,
    "gone": PARTITION_COUNT_MAX,
    **dict.fromkeys(WIDE, PARTITION_COUNT_MAX),
}


class Worst(NamedTuple):
    """A request.

    Attributes:
        call: gRPC's name of it.
        make: Makes it, large as it is.
        refused: The status of one that is too large, or that finds nothing.
    """

    name: str
    call: str
    make: Callable[[], Message | bytes]
    refused: grpc.StatusCode | None = None

    @property
    def data(self) -> bytes:
        """It, serialised."""
        made = self.make()
        return made if isinstance(made, bytes) else made.SerializeToString()


def both(name: str, call: str, at_most: int, make: Any) -> Iterator[Worst]:
    """The request of as many as may be, and that of one more."""
    yield Worst(f"{name}, {at_most}", call, partial(make, at_most))
    yield Worst(f"{name}, one too many", call, partial(make, at_most + 1), INVALID)


def worst_requests() -> Iterator[Worst]:
    yield from _produce()
    yield from _read()
    yield from _other()
    yield from _groups()
    yield from _admin()
    yield from _transactions()
    yield from _security()
    fields = partial(bytes.__mul__, b"\xf8\x07\x01", 1_000_000)
    yield Worst("a million fields", GROUPS + "DescribeGroup", fields, INVALID)


def _produce() -> Iterator[Worst]:
    call = LOG + "Produce"
    yield from both(
        "produce plain records",
        call,
        REQUEST_PLACED_RECORDS_MAX,
        lambda count: _plain(
            [log_pb2.Record(key=b"%d" % n, value=b"v" * 100) for n in range(count)]
        ),
    )
    yield from both(
        "produce headers",
        call,
        REQUEST_HEADERS_MAX,
        lambda count: _plain(
            [log_pb2.Record(headers=[log_pb2.Header(key="h", value=b"v")] * count)]
        ),
    )
    empty = partial(_plain, [log_pb2.Record()] * 1_000_000)
    yield Worst("produce a million empty records", call, empty, INVALID)
    for codec in (None, "zstd"):
        name = f"produce an Arrow batch of empty records, codec {codec}"
        yield Worst(name, call, partial(arrow, REQUEST_RECORDS_MAX, codec))
    ranges = partial(arrow, REQUEST_RANGES_MAX, None, ranges=REQUEST_RANGES_MAX)
    yield Worst("produce to as many partitions", call, ranges)
    placed = partial(arrow, REQUEST_PLACED_RECORDS_MAX, None, ranges=0)
    yield Worst("produce records to be placed", call, placed)


def _read() -> Iterator[Worst]:
    yield from both(
        "fetch of partitions that waits",
        LOG + "Fetch",
        FETCH_PARTITIONS_MAX,
        lambda count: log_pb2.FetchRequest(
            partitions=[
                log_pb2.FetchPartition(topic=WIDE[1], partition=n % PARTITION_COUNT_MAX)
                for n in range(count)
            ],
            max_wait_ms=200,
            min_bytes=1,
        ),
    )
    yield from both(
        "fetch of topics that do not exist",
        LOG + "Fetch",
        FETCH_PARTITIONS_MAX,
        lambda count: log_pb2.FetchRequest(
            partitions=[log_pb2.FetchPartition(topic=f"no-{n}") for n in range(count)]
        ),
    )
    yield from both(
        "list offsets by time",
        LOG + "ListOffsets",
        FETCH_PARTITIONS_MAX,
        lambda count: log_pb2.ListOffsetsRequest(
            queries=[
                log_pb2.OffsetQuery(
                    topic=WIDE[0], partition=n % PARTITION_COUNT_MAX, timestamp_ms=1
                )
                for n in range(count)
            ]
        ),
    )
    yield from both(
        "metadata of topics that do not exist",
        LOG + "Metadata",
        METADATA_TOPICS_MAX,
        lambda count: log_pb2.MetadataRequest(topics=[f"{n:x}" for n in range(count)]),
    )


def _other() -> Iterator[Worst]:
    yield Worst("metadata of all topics", LOG + "Metadata", bytes)
    yield Worst("a producer id", LOG + "InitProducer", bytes)


def _groups() -> Iterator[Worst]:
    yield from both(
        "heartbeat that owns partitions",
        GROUPS + "Heartbeat",
        GROUP_PARTITIONS_MAX,
        lambda count: heartbeat("g", owned=count, topics=WIDE[:1]),
    )
    yield from both(
        "heartbeat that subscribes to topics that do not exist",
        GROUPS + "Heartbeat",
        SUBSCRIBED_TOPICS_MAX,
        lambda count: heartbeat("h", topics=[f"{n:x}" for n in range(count)]),
    )
    yield from both(
        "commit of offsets",
        GROUPS + "CommitOffsets",
        OFFSETS_PER_COMMIT_MAX,
        partial(commit, "c"),
    )
    yield from both(
        "fetch of offsets",
        GROUPS + "FetchOffsets",
        GROUP_PARTITIONS_MAX,
        lambda count: groups_pb2.FetchOffsetsRequest(
            group="o",
            partitions=[groups_pb2.TopicPartitions(topic=WIDE[0], partitions=range(count))],
        ),
    )
    yield Worst(
        "fetch of all offsets",
        GROUPS + "FetchOffsets",
        lambda: groups_pb2.FetchOffsetsRequest(group="o"),
    )
    for call, group in (("DescribeGroup", "o"), ("DeleteGroup", "gone")):
        yield Worst(call, GROUPS + call, partial(groups_pb2.DescribeGroupRequest, group=group))
    yield Worst("ListGroups", GROUPS + "ListGroups", bytes)
    yield Worst(
        "leave a group",
        GROUPS + "Leave",
        lambda: groups_pb2.LeaveRequest(group="g", member_id="m" * GROUP_TEXT_BYTES_MAX),
        grpc.StatusCode.FAILED_PRECONDITION,
    )


def _admin() -> Iterator[Worst]:
    yield Worst(
        "describe a topic",
        ADMIN + "DescribeTopic",
        lambda: admin_pb2.DescribeTopicRequest(topic=WIDE[0]),
    )
    yield from both(
        "trim partitions",
        ADMIN + "TrimPrefix",
        PARTITION_COUNT_MAX,
        lambda count: admin_pb2.TrimPrefixRequest(
            topic=WIDE[0], partitions=[admin_pb2.PartitionTrim(partition=n) for n in range(count)]
        ),
    )
    yield from both(
        "alter settings",
        ADMIN + "AlterTopicConfig",
        TOPIC_SETTINGS_MAX,
        lambda count: admin_pb2.AlterTopicConfigRequest(topic="t", reset=["retention.ms"] * count),
    )
    yield Worst(
        "create a topic",
        ADMIN + "CreateTopic",
        lambda: admin_pb2.CreateTopicRequest(topic="new", partition_count=PARTITION_COUNT_MAX),
    )
    yield Worst(
        "delete a topic",
        ADMIN + "DeleteTopic",
        lambda: admin_pb2.DeleteTopicRequest(topic="gone"),
    )
    yield Worst(
        "add partitions",
        ADMIN + "AddPartitions",
        lambda: admin_pb2.AddPartitionsRequest(topic="few", partition_count=PARTITION_COUNT_MAX),
    )
    for call in ("ListTopics", "DescribeCluster", "ListConnections", "Rebalance"):
        yield Worst(call, ADMIN + call, bytes)


def _transactions() -> Iterator[Worst]:
    """Of a producer that nobody knows. `test_worst_requests.py` has those of one that is known."""
    long_id = "x" * TRANSACTIONAL_ID_BYTES_MAX
    nobody = transactions_pb2.TransactionId(
        transactional_id=long_id, producer_id=7, producer_epoch=1, number=1
    )
    unknown, not_found = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND
    requests: list[tuple[str, Message, grpc.StatusCode | None]] = [
        ("InitTransactions", transactions_pb2.InitTransactionsRequest(transactional_id="a"), None),
        ("ListTransactions", transactions_pb2.ListTransactionsRequest(), None),
        ("BeginTransaction", transactions_pb2.BeginTransactionRequest(transaction=nobody), unknown),
        ("EndTransaction", transactions_pb2.EndTransactionRequest(transaction=nobody), unknown),
        (
            "PrepareTransaction",
            transactions_pb2.PrepareTransactionRequest(transaction=nobody),
            unknown,
        ),
        (
            "CompleteTransaction",
            transactions_pb2.CompleteTransactionRequest(transactional_id=long_id),
            unknown,
        ),
        (
            "DescribeTransaction",
            transactions_pb2.DescribeTransactionRequest(transactional_id=long_id),
            unknown,
        ),
        (
            "SettleTransaction",
            transactions_pb2.SettleTransactionRequest(
                transactional_id=long_id, ordinal=2, topic="no-topic", topic_id="x"
            ),
            not_found,
        ),
        (
            "AddOffsets",
            transactions_pb2.AddOffsetsRequest(
                transaction=nobody, offsets=commit("t", OFFSETS_PER_COMMIT_MAX)
            ),
            unknown,
        ),
        (
            "CompleteTransactions",
            transactions_pb2.CompleteTransactionsRequest(
                transactional_id="z",
                tokens=[f"{n:036d}" for n in range(TRANSACTION_TOKENS_MAX)],
                commit=True,
            ),
            unknown,
        ),
        (
            "AppendTransaction",
            transactions_pb2.AppendTransactionRequest(
                transactional_id=long_id,
                ordinal=2,
                topic=WIDE[0],
                topic_id="x",
                staged=[f"{n:064d}" for n in range(TRANSACTION_OBJECTS_MAX)],
            ),
            not_found,
        ),
    ]
    for call, request, refused in requests:
        yield Worst(call, TRANSACTIONS + call, request.SerializeToString, refused)


def _security() -> Iterator[Worst]:
    """In this order: at the end there are as many rules as there may be, and then none."""
    for user in range(ACLS_MAX // SECURITY_CHANGES_MAX):
        rules = partial(_rules, SECURITY_CHANGES_MAX, user)
        yield Worst(f"create rules, {user}", SECURITY + "CreateAcls", rules)
    more = partial(_rules, 1, -1)
    yield Worst("create one rule more", SECURITY + "CreateAcls", more, FAILED)
    too_many = partial(_rules, SECURITY_CHANGES_MAX + 1, 0)
    yield Worst("create too many rules", SECURITY + "CreateAcls", too_many, INVALID)
    yield Worst("describe rules", SECURITY + "DescribeAcls", security_pb2.DescribeAclsRequest)
    yield Worst(
        "check a rule",
        SECURITY + "CheckAcl",
        lambda: security_pb2.CheckAclRequest(
            principal="User:0",
            groups=[f"{n:0249d}" for n in range(SECURITY_CHANGES_MAX)],
            host="192.0.2.1",
            operation="READ",
            resource_type="TOPIC",
            name="x" * 249,
        ),
    )
    yield Worst(
        "delete rules one by one",
        SECURITY + "DeleteAcls",
        lambda: security_pb2.DeleteAclsRequest(
            filters=[
                security_pb2.AclFilter(name=f"{n:0249d}", pattern_type="MATCH")
                for n in range(SECURITY_CHANGES_MAX)
            ]
        ),
    )
    yield Worst(
        "set quotas",
        SECURITY + "AlterClientQuotas",
        lambda: security_pb2.AlterClientQuotasRequest(
            alterations=[
                security_pb2.ClientQuotaAlteration(
                    entity=security_pb2.QuotaEntity(principal=f"User:{n:0240d}"),
                    set=[security_pb2.QuotaValue(name="producer_byte_rate", value=1e9)],
                )
                for n in range(SECURITY_CHANGES_MAX)
            ]
        ),
    )
    describe = security_pb2.DescribeClientQuotasRequest
    yield Worst("describe quotas", SECURITY + "DescribeClientQuotas", describe)
    # Nobody signs in with a password at this gateway; `test_sign_in.py` has one where they do.
    yield Worst(
        "alter users",
        SECURITY + "AlterUserScramCredentials",
        lambda: security_pb2.AlterUserScramCredentialsRequest(
            deletions=[
                security_pb2.ScramCredentialDeletion(user=f"{n:0249d}")
                for n in range(SECURITY_CHANGES_MAX)
            ]
        ),
        INVALID,
    )
    yield Worst(
        "describe users",
        SECURITY + "DescribeUserScramCredentials",
        lambda: security_pb2.DescribeUserScramCredentialsRequest(
            users=[f"{n:0249d}" for n in range(SECURITY_CHANGES_MAX)]
        ),
        INVALID,
    )


def _rules(count: int, user: int) -> security_pb2.CreateAclsRequest:
    return security_pb2.CreateAclsRequest(
        rules=[
            security_pb2.AclRule(
                resource_type="TOPIC",
                name=f"{n:0249d}",
                pattern_type="PREFIXED",
                principal=f"User:{user}",
                host="2001:db8::/32",
                operation="READ",
                permission="ALLOW",
            )
            for n in range(count)
        ]
    )


def commit(group: str, count: int) -> groups_pb2.CommitOffsetsRequest:
    """A commit of so many offsets."""
    return groups_pb2.CommitOffsetsRequest(
        group=group,
        member_epoch=-1,
        offsets=[
            groups_pb2.CommittedOffset(topic=WIDE[0], partition=n, offset=0, metadata="m" * 20)
            for n in range(count)
        ],
    )


#: What is sent first: a group to look at, and one to delete.
SET_UP: Final = tuple(
    Worst(f"offsets of {group}", GROUPS + "CommitOffsets", partial(commit, group, 1_000))
    for group in ("o", "gone")
)


def heartbeat(
    group: str,
    member: str = "",
    epoch: int = 0,
    *,
    topics: Any = (),
    owned: int = 0,
    assigned: Any = (),
) -> groups_pb2.HeartbeatRequest:
    """A heartbeat that owns partitions 0 to `owned` of a topic, or what it was assigned."""
    partitions = [groups_pb2.TopicPartitions(topic=WIDE[0], topic_id="x", partitions=range(owned))]
    return groups_pb2.HeartbeatRequest(
        group=group,
        member_id=member,
        member_epoch=epoch,
        topics=topics,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        owned=partitions if owned else assigned,
    )


def _plain(records: list[log_pb2.Record]) -> Message:
    return log_pb2.ProduceRequest(topic="t", records=log_pb2.Records(records=records))


def arrow(
    rows: int, codec: str | None = None, ranges: int = 1, topic: str = WIDE[0]
) -> log_pb2.ProduceRequest:
    """A request of empty values."""
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b""] * rows, pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(batch)
    return log_pb2.ProduceRequest(
        topic=topic,
        arrow=log_pb2.ArrowRecords(
            ipc_stream=sink.getvalue().to_pybytes(),
            ranges=[
                log_pb2.PartitionRange(
                    partition=n, first_row=n * rows // ranges, row_count=rows // ranges
                )
                for n in range(ranges)
            ],
        ),
    )
