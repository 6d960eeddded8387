"""A gateway on the test's own event loop, and what the tests do to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore, TableState, load_table, read_data_file
from mainstem.delta_log.store import Warehouse
from mainstem.ingest_gateway.caller import Identity
from mainstem.ingest_gateway.security import AUTHORIZATION, Proof
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    groups_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    security_pb2_grpc,
    transactions_pb2_grpc,
)
from mainstem.security import USER, Principal

T = TypeVar("T")

#: Every wait of a test ends here. Nothing takes nearly as long: the machine may be busy.
WAIT_S = 30.0

Answers = grpc.aio.StreamStreamCall[log_pb2.ProduceRequest, log_pb2.ProduceResponse]


def run(test: Coroutine[Any, Any, T]) -> T:
    """Runs a test's coroutine on a new loop, with a deadline."""

    async def with_deadline() -> T:
        async with asyncio.timeout(2 * WAIT_S):
            return await test

    return asyncio.run(with_deadline())


async def soon(waited_for: Awaitable[T]) -> T:
    """The result, before the deadline."""
    async with asyncio.timeout(WAIT_S):
        return await waited_for


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds, before the deadline."""
    async with asyncio.timeout(WAIT_S):
        # The condition is somebody else's state, which tells nobody that it has changed.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Client:
    """Stubs on one channel, and the calls that most tests make.

    Args:
        address: That the channel leads to, for further ones.
        metadata: That the channel adds to each call, for further ones.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        address: str = "",
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.channel = channel
        self.address = address
        self.metadata = metadata
        self.log = log_pb2_grpc.LogStub(channel)
        self.admin = admin_pb2_grpc.AdminStub(channel)
        self.groups = groups_pb2_grpc.GroupsStub(channel)
        self.transactions = transactions_pb2_grpc.TransactionsStub(channel)
        self.security = security_pb2_grpc.SecurityStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)

    async def create(self, topic: str, partition_count: int = 1, **config: str) -> str:
        request = admin_pb2.CreateTopicRequest(
            topic=topic,
            partition_count=partition_count,
            config={name.replace("_", "."): value for name, value in config.items()},
        )
        answer: admin_pb2.CreateTopicResponse = await self.admin.CreateTopic(
            request, timeout=WAIT_S
        )
        return answer.topic_id

    async def delete(self, topic: str) -> None:
        await self.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic=topic), timeout=WAIT_S)

    async def describe(self, topic: str) -> admin_pb2.DescribeTopicResponse:
        answer: admin_pb2.DescribeTopicResponse = await self.admin.DescribeTopic(
            admin_pb2.DescribeTopicRequest(topic=topic), timeout=WAIT_S
        )
        return answer

    async def produce(self, request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        answer: log_pb2.ProduceResponse = await self.log.Produce(request, timeout=WAIT_S)
        return answer

    async def serving(self, service: str = "") -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        stub: Any = self.health  # its type has no methods
        answer: health_pb2.HealthCheckResponse = await stub.Check(request, timeout=WAIT_S)
        return answer.status

    def stream(self) -> Stream:
        return Stream(self.log.ProduceStream())


class Stream:
    """A ProduceStream call that numbers its requests."""

    def __init__(self, call: Answers) -> None:
        self.call = call
        self._next_id = 1

    async def send(self, request: log_pb2.ProduceRequest) -> int:
        """Sends a request; returns its correlation id."""
        request.correlation_id = self._next_id
        self._next_id += 1
        await soon(self.call.write(request))
        return request.correlation_id

    async def answer(self) -> log_pb2.ProduceResponse:
        """The next answer."""
        found = await soon(self.call.read())
        assert isinstance(found, log_pb2.ProduceResponse), f"the stream ended: {found}"
        return found

    async def end(self) -> list[log_pb2.ProduceResponse]:
        """Sends nothing more; returns the answers that are left."""
        await soon(self.call.done_writing())
        left: list[log_pb2.ProduceResponse] = []
        while isinstance(found := await soon(self.call.read()), log_pb2.ProduceResponse):
            left.append(found)
        assert await soon(self.call.code()) == grpc.StatusCode.OK
        return left


async def anybody(credentials: str) -> Identity:
    """A proof that is good for whoever says who they are: `alice`, or `Gateway:one`."""
    kind, colon, name = credentials.partition(":")
    return Identity(Principal(kind, name) if colon else Principal(USER, credentials))


class SignedIn:
    """A channel whose calls prove themselves by `anybody`, those of health checks aside."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel = channel
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def unary_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:
        call = self._channel.unary_unary(*args, **options)
        return partial(call, metadata=self._metadata)

    def stream_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:
        call = self._channel.stream_stream(*args, **options)
        return partial(call, metadata=self._metadata)


def signed_in(client: Client, user: str) -> Client:
    """The same connection, with calls of a user."""
    metadata = ((AUTHORIZATION, f"test {user}"),)
    channel: Any = SignedIn(client.channel, metadata)
    return Client(channel, client.address, metadata)


@asynccontextmanager
async def running(
    warehouse: Path | None = None,
    store: Warehouse | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Gateway, Client]]:
    """A gateway that runs while the block lasts, with a client.

    Args:
        settings: Of the gateway, with underscores for dots; and `proofs`, more ways to sign in.
    """
    proofs: Mapping[str, Proof] | None = settings.pop("proofs", None)
    flags: dict[str, object] = {"listeners": "127.0.0.1:0"}
    flags |= {name.replace("_", "."): value for name, value in settings.items()}
    if warehouse is not None:
        flags["warehouse"] = str(warehouse)
    gateway = Gateway(load_gateway_config(environment={}, flags=flags), store, proofs)
    address = await gateway.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield gateway, Client(channel, address)
    finally:
        open_gates()
        await soon(gateway.drain())


@asynccontextmanager
async def refused(code: grpc.StatusCode, reason: str) -> AsyncIterator[dict[str, str]]:
    """Expects the block's call to fail so. The dictionary then has its facts and `message`."""
    facts: dict[str, str] = {}
    with pytest.raises(grpc.RpcError) as caught:
        yield facts
    failure: Any = caught.value
    assert failure.code() == code, failure
    status = rpc_status.from_call(failure)
    assert status is not None, failure
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("mainstem", reason), status
    facts.update(info.metadata)
    facts["message"] = status.message
    for detail in status.details[1:]:
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(retry):
            facts["retry_ms"] = str(retry.retry_delay.ToMilliseconds())


_gates: list[Gate] = []


def open_gates() -> None:
    """Opens what a test that failed left closed: threads wait there."""
    for gate in _gates:
        gate.open()
    _gates.clear()


class Gate:
    """A store hook that stops calls until it is opened. `calls` counts those that came to it.

    Args:
        call, path_part: Which calls: of this method, with this in their path.
    """

    def __init__(self, call: str, path_part: str) -> None:
        self._call = call
        self._path_part = path_part
        self._open = threading.Event()
        self.calls = 0
        _gates.append(self)

    def __call__(self, call: str, path: str) -> None:
        if call == self._call and self._path_part in path and not self._open.is_set():
            self.calls += 1
            assert self._open.wait(2 * WAIT_S), "the test never opened the gate"

    def open(self) -> None:
        self._open.set()


def table(warehouse: Path, topic: str) -> TableState:
    """The topic's table as it lies on the disk."""
    store = LocalStore(warehouse / "topics" / topic, create=False)
    try:
        return load_table(store)
    finally:
        store.close()


def values(warehouse: Path, topic: str) -> dict[int, list[bytes | None]]:
    """The values of the topic's records by partition, by offset; asserts that offsets are dense."""
    store = LocalStore(warehouse / "topics" / topic, create=False)
    try:
        state = load_table(store)
        found: dict[int, list[bytes | None]] = {}
        for partition in range(state.partition_count):
            offsets: list[int] = []
            for file in state.files(partition).sorted():
                for batch in read_data_file(store, file, 0, 2**62, ["value"]):
                    offsets += batch.column("offset").to_pylist()
                    found.setdefault(partition, []).extend(batch.column("value").to_pylist())
            assert offsets == list(range(state.log_end_offset(partition)))
        return found
    finally:
        store.close()
