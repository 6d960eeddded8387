"""Damaged requests of every call against a gateway of its own: it stays up, says why, and lets go
of what they took."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from tests.unit.ingest_gateway.payloads import arrow_request, batch_of, records_request

from mainstem.protocol.v1 import admin_pb2, groups_pb2, log_pb2
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FULL = os.environ.get("MAINSTEM_TEST_FAULTS") == "full"

#: Requests of each call.
SHORT_COUNT = 60
FULL_COUNT = 200_000

#: Calls under way at a time.
AT_ONCE = 32

#: What the gateway may have taken for good: caches that fill, and the allocators' free lists.
KEPT_BYTES_MAX = 200 * 1024 * 1024

#: So far from the topic that is there that no damage makes the one of the other.
OTHER = "uuuuuuuu"

LOG, GROUPS, ADMIN = (f"/mainstem.v1.{name}/" for name in ("Log", "Groups", "Admin"))


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
    }


def flipped(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def lengthened(data: bytes, rng: random.Random) -> bytes:
    """A number, perhaps a length, that is large or negative."""
    at = rng.randrange(len(data))
    return data[:at] + rng.choice((b"\xff" * 9 + b"\1", b"\xff\xff\xff\xff\7", b"\x80")) + data[at:]


def nested(data: bytes, rng: random.Random) -> bytes:
    """Itself inside itself, some times."""
    for _ in range(rng.randrange(1, 8)):
        size = len(data)
        if size > 16_000:
            break
        prefix = bytes([rng.randrange(1, 13) << 3 | 2])
        data = prefix + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + data
    return data


def repeated(data: bytes, rng: random.Random) -> bytes:
    """A part of it many times."""
    begin, end = sorted((rng.randrange(len(data)), rng.randrange(len(data) + 1)))
    return data[:end] + data[begin:end] * rng.choice((2, 50, 3_000)) + data[end:]


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flipped,
    flipped,
    cut,
    lengthened,
    nested,
    repeated,
)


def mutated(requests: list[Message], count: int, rng: random.Random) -> Iterator[bytes]:
    serialised = [request.SerializeToString() or b"\x0a\x01t" for request in requests]
    for _ in range(count):
        data = rng.choice(serialised)
        for _ in range(rng.randrange(1, 3)):
            data = rng.choice(MUTATIONS)(data, rng) or b"\0"
        yield data[:200_000]


def outcome(call: Any) -> str:
    try:
        call.result()
    except grpc.RpcError as error:
        failure: Any = error
        if failure.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
            return f"{failure.code()}: {failure.details()}"
        assert failure.code() not in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        ), failure
    return ""


def calls(channel: grpc.Channel, name: str) -> Any:
    """A call of bytes, answered with bytes."""
    return channel.unary_unary(name)


def send_all(address: str, count: int, rng: random.Random) -> list[str]:
    """The answers that nobody can explain."""
    wrong: list[str] = []
    with grpc.insecure_channel(
        address, options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        for name, requests in examples().items():
            call = calls(channel, name)
            under_way: list[tuple[bytes, Any]] = []
            for data in mutated(requests, count, rng):
                under_way.append((data, call.future(data, timeout=60)))
                if len(under_way) >= AT_ONCE:
                    oldest, answer = under_way.pop(0)
                    if found := outcome(answer):
                        wrong.append(f"{name} {oldest[:200].hex()}: {found}")
            for data, answer in under_way:
                if found := outcome(answer):
                    wrong.append(f"{name} {data[:200].hex()}: {found}")
    return wrong


def run(folder: Path, count: int, rng: random.Random) -> None:
    with GatewayProcess(folder, settings={"log.level": "error"}) as gateway:
        with grpc.insecure_channel(gateway.address) as channel:
            create = admin_pb2.CreateTopicRequest(topic="t", partition_count=2)
            calls(channel, ADMIN + "CreateTopic")(create.SerializeToString(), timeout=30)
        send_all(gateway.address, SHORT_COUNT // 4, rng)  # fills caches and pools
        before = gateway.rss_bytes()
        wrong = send_all(gateway.address, count, rng)
        assert wrong == []
        assert gateway.rss_bytes() - before < KEPT_BYTES_MAX
        with grpc.insecure_channel(gateway.address) as channel:
            metadata = calls(channel, LOG + "Metadata")(b"\x0a\x01t", timeout=30)
        assert log_pb2.MetadataResponse.FromString(metadata).topics[0].partition_count == 2


def test_some_damaged_requests_of_every_call_leave_the_gateway_as_it_was(
    tmp_path: Path, rng: random.Random
) -> None:
    run(tmp_path, SHORT_COUNT, rng)


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(20_000)
def test_many_damaged_requests_of_every_call_leave_the_gateway_as_it_was(
    tmp_path: Path, rng: random.Random
) -> None:
    run(tmp_path, FULL_COUNT, rng)
