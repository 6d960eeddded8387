"""Damaged requests of every call against a gateway of its own: it stays up, answers others in time,
says why, and lets go of what they took.

`make test` sends some of each, `make test-fault` (MAINSTEM_TEST_FAULTS=full) 200,000 of each;
MAINSTEM_TEST_REQUESTS says another number, MAINSTEM_TEST_CALLS=Groups/,Log/Fetch only some calls.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest
import uvloop
from google.protobuf.message import Message
from tests.fault.damaged_requests import (
    ADMIN,
    GROUPS,
    LOG,
    SECURITY,
    damaged,
    examples,
    serialised,
)
from tests.fault.watched_gateway import WatchedGateway, watched_gateway
from tests.length import FULL
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.protocol.v1 import admin_pb2, groups_pb2, log_pb2, security_pb2, transactions_pb2

pytestmark = [pytest.mark.fault, pytest.mark.slow]

COUNT = int(os.environ.get("MAINSTEM_TEST_REQUESTS", "200000" if FULL else "60"))

#: Parts of the names of the calls that are sent to.
CALLS = tuple(os.environ.get("MAINSTEM_TEST_CALLS", "/").split(","))

#: Calls under way at a time, and the connections that they share.
AT_ONCE = 64
CHANNELS = 4

#: A stream has so many messages at most.
MESSAGES_MAX = 40

#: A fetch may ask to wait; its caller gives up earlier.
PATIENCE_S = {LOG + "Fetch": 1.0}
DEADLINE_S = 60.0

#: What the gateway may have taken for good: caches that fill, and the allocators' free lists.
KEPT_BYTES_MAX = 64 * 1024 * 1024

#: More than that is taken for memory that a call needs while it is at work.
WORKING_BYTES = 32 * 1024 * 1024

#: Few threads: each keeps some 3 MiB of native memory for its next work, and that looks like a leak
#: until all of them have done some.
SETTINGS = {
    "log.level": "error",
    "group.consumer.session.timeout.ms": 1_000,
    "append.threads": 2,
    "fetch.threads": 1,
    # Each takes some memory until it expires, and most damaged requests have one of their own.
    "transactional.id.max.count": 5_000,
}

STALL_MS_MAX = 200.0

STREAM = LOG + "ProduceStream"
STREAMS = (STREAM, SECURITY + "Authenticate")

#: What gRPC here says of a call that the gateway ended while we wrote.
OWN_FAILURE = "Internal error from Core"

M = TypeVar("M", bound=Message)


class Fuzz:
    """Sends damaged requests of one call, and notes the answers that nobody can explain."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.wrong: list[str] = []
        self._name = name
        self._rng = rng
        self._patience_s = PATIENCE_S.get(name, DEADLINE_S)
        calls = examples()
        self._requests = serialised(calls[LOG + "Produce" if name == STREAM else name])

    async def send(self, channels: list[grpc.aio.Channel], count: int) -> None:
        """Sends so many requests."""
        one = self._stream if self._name in STREAMS else self._unary
        left = count

        async def work(channel: grpc.aio.Channel) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                more = await one(channel, left)
                left -= more

        await asyncio.gather(*(work(channels[n % len(channels)]) for n in range(AT_ONCE)))

    async def _unary(self, channel: grpc.aio.Channel, left: int) -> int:
        data = damaged(self._requests, self._rng)
        try:
            await unary(channel, self._name)(data, timeout=self._patience_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self._name in PATIENCE_S:
                return 0
            self._judge(error.code(), error.details(), data)
        return 0

    async def _stream(self, channel: grpc.aio.Channel, left: int) -> int:
        """A stream of right and damaged messages that ends in one of the ways in which streams end.

        Returns:
            How many messages it had beside the first.
        """
        rng = self._rng
        messages = [
            damaged(self._requests, rng) if rng.random() < 0.3 else rng.choice(self._requests)
            for _ in range(1 + rng.randrange(min(MESSAGES_MAX, left + 1)))
        ]
        end = rng.choice(("read", "closed at once", "cancelled", "unread", "too late"))
        timeout_s = rng.random() * 0.1 if end == "too late" else DEADLINE_S
        call: Any = channel.stream_stream(self._name)(timeout=timeout_s)
        # What a call raises that has ended meanwhile says less than its status.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for message in messages:
                await call.write(message)
                if end == "read" and rng.random() < 0.2:
                    await call.read()
            if end in ("read", "closed at once"):
                await call.done_writing()
                while await call.read() is not grpc.aio.EOF:
                    pass
            elif end == "cancelled":
                await call.read()
        if end in ("cancelled", "unread"):
            call.cancel()
        code, details = await call.code(), await call.details()
        is_too_late = end == "too late" and code is grpc.StatusCode.DEADLINE_EXCEEDED
        if not is_too_late and details != OWN_FAILURE:
            self._judge(code, details, b"".join(messages))
        return len(messages) - 1

    def _judge(self, code: grpc.StatusCode, details: str | None, data: bytes) -> None:
        if code in (
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN,
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        ):
            self.wrong.append(f"{self._name} {data[:200].hex()}: {code} {details}")


def unary(channel: grpc.aio.Channel, name: str) -> Any:
    """A call of bytes, answered with bytes."""
    return channel.unary_unary(name)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[list[grpc.aio.Channel]]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(CHANNELS)]
    try:
        yield channels
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


class Tidying:
    """Deletes what is there, and makes topic t with a few records."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def all(self) -> None:
        await self._quotas_and_rules()
        topics = await self._ask(
            ADMIN + "ListTopics", admin_pb2.ListTopicsRequest(), admin_pb2.ListTopicsResponse
        )
        await self._each(self._delete_topic, [topic.topic for topic in topics.topics])
        create = admin_pb2.CreateTopicRequest(
            topic="t", partition_count=2, config={"commit.interval.ms": "5"}
        )
        await self._ask(ADMIN + "CreateTopic", create, admin_pb2.CreateTopicResponse)
        records = values_request(b"a", b"b", b"c")
        await self._ask(LOG + "Produce", records, log_pb2.ProduceResponse)
        groups = await self._ask(
            GROUPS + "ListGroups", groups_pb2.ListGroupsRequest(), groups_pb2.ListGroupsResponse
        )
        await self._each(self._delete_group, [group.group for group in groups.groups])

    async def _quotas_and_rules(self) -> None:
        """First of all: a quota that damage has made may be one for everybody."""
        described = await self._ask(
            SECURITY + "DescribeClientQuotas",
            security_pb2.DescribeClientQuotasRequest(),
            security_pb2.DescribeClientQuotasResponse,
        )
        gone = [
            security_pb2.ClientQuotaAlteration(
                entity=one.entity, remove=[value.name for value in one.values]
            )
            for one in described.quotas
        ]
        for start in range(0, len(gone), 500):
            await self._ask(
                SECURITY + "AlterClientQuotas",
                security_pb2.AlterClientQuotasRequest(alterations=gone[start : start + 500]),
                security_pb2.AlterClientQuotasResponse,
            )
        await self._ask(
            SECURITY + "DeleteAcls",
            security_pb2.DeleteAclsRequest(filters=[security_pb2.AclFilter()]),
            security_pb2.DeleteAclsResponse,
        )

    async def _delete_topic(self, topic: str) -> None:
        request = admin_pb2.DeleteTopicRequest(topic=topic)
        await self._ask(ADMIN + "DeleteTopic", request, admin_pb2.DeleteTopicResponse)

    async def _delete_group(self, group: str) -> None:
        described = await self._ask(
            GROUPS + "DescribeGroup",
            groups_pb2.DescribeGroupRequest(group=group),
            groups_pb2.DescribeGroupResponse,
        )
        for member in described.members:
            leave = groups_pb2.LeaveRequest(group=group, member_id=member.member_id)
            await self._ask(GROUPS + "Leave", leave, groups_pb2.LeaveResponse)
        request = groups_pb2.DeleteGroupRequest(group=group)
        await self._ask(GROUPS + "DeleteGroup", request, groups_pb2.DeleteGroupResponse)

    async def _each(self, delete: Callable[[str], Awaitable[None]], names: list[str]) -> None:
        left = iter(names)

        async def work() -> None:
            for name in left:
                await delete(name)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    async def _ask(self, name: str, request: Message, answer: type[M]) -> M:
        try:
            data = await unary(self._channel, name)(request.SerializeToString(), timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            # It went by itself meanwhile.
            if error.code() not in (
                grpc.StatusCode.NOT_FOUND,
                grpc.StatusCode.FAILED_PRECONDITION,
            ):
                raise
            return answer()
        return answer.FromString(data)


async def fuzz(
    gateway: WatchedGateway, count: int, rng: random.Random, report: Callable[[object], None]
) -> list[str]:
    """Sends `count` requests of each call; returns what is wrong with the answers or with the
    gateway."""
    wrong: list[str] = []
    async with connected(gateway.address) as channels:
        await Tidying(channels[0]).all()
        names = [name for name in (*examples(), STREAM) if any(part in name for part in CALLS)]
        assert names
        for name in names:  # fills caches and pools
            await Fuzz(name, rng).send(channels, min(count // 4, 2_000))
        kept = 0
        for name in names:
            before, began = gateway.rss_bytes(), time.monotonic()
            gateway.take_stall_ms()
            one = Fuzz(name, rng)
            await one.send(channels, count)
            stall_ms = gateway.take_stall_ms()
            await Tidying(channels[0]).all()
            after = gateway.rss_bytes()
            if after - before > WORKING_BYTES:
                # What was needed at a time, as for the many topics that a stream makes, stays with
                # the allocators, and serves the next. What is lost is lost each time.
                await one.send(channels, count)
                await Tidying(channels[0]).all()
                kept += gateway.rss_bytes() - after
            else:
                kept += after - before
            report(
                f"{name}: {count} requests in {time.monotonic() - began:.0f} s, memory "
                f"{before >> 20} -> {after >> 20} MiB, longest stall {stall_ms:.0f} ms, "
                f"{len(one.wrong)} wrong"
            )
            wrong += one.wrong
            if stall_ms > STALL_MS_MAX:
                wrong.append(f"{name} held the event loop for {stall_ms:.0f} ms")
        if kept > KEPT_BYTES_MAX:
            wrong.append(f"all calls together kept {kept >> 20} MiB")
        metadata = await unary(channels[0], LOG + "Metadata")(b"\x0a\x01t", timeout=DEADLINE_S)
    assert log_pb2.MetadataResponse.FromString(metadata).topics[0].partition_count
    return wrong


def test_there_are_requests_of_every_call() -> None:
    calls = {
        f"/{service.full_name}/{method.name}"
        for module in (log_pb2, groups_pb2, admin_pb2, transactions_pb2, security_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert calls == {*examples(), STREAM}


@pytest.mark.timeout(20_000 if FULL else 120)
def test_damaged_requests_of_every_call_leave_the_gateway_as_it_was(
    tmp_path: Path, rng: random.Random, report: Callable[[object], None]
) -> None:
    with watched_gateway(tmp_path, SETTINGS) as gateway:
        wrong = uvloop.run(fuzz(gateway, COUNT, rng, report))
        assert wrong == []
