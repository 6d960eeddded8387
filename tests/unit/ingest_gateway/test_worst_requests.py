"""No request that the limits let in holds the gateway's event loop up.

What is measured is the processor time of the loop's thread between two of its steps: what other
processes do on the machine does not change it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import grpc
import pytest
import uvloop
from google.protobuf.message import Message
from tests.unit.ingest_gateway.harness import WAIT_S
from tests.unit.ingest_gateway.worst_requests import (
    GROUPS,
    LOG,
    SET_UP,
    TOPICS,
    TRANSACTIONS,
    WIDE,
    Worst,
    arrow,
    commit,
    heartbeat,
    worst_requests,
)

from mainstem.config import load_gateway_config
from mainstem.delta_log import Topics
from mainstem.delta_log.store import open_warehouse
from mainstem.ingest_gateway import Gateway
from mainstem.limits import GROUP_PARTITIONS_MAX, OFFSETS_PER_COMMIT_MAX, REQUEST_RANGES_MAX
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)

# One gateway with a hundred thousand partitions is enough.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("worst requests")]

#: The gateway's aim is a quarter of it.
STALL_S_MAX: Final = 0.2

#: Tries, of which one must be within it. What a request costs, it costs each time; what the garbage
#: collector or a cold cache adds on a busy machine, it does not.
_TRIES: Final = 3

#: What a machine of the kind that the aim was set on takes for `_slowness`'s loop.
_REFERENCE_S: Final = 0.009

_PROBE_S: Final = 0.002


def _slowness() -> float:
    """How many times slower than the reference this machine is now, at least 1: a slow or busy one
    must not make a test fail."""
    taken = []
    for _ in range(3):
        began_s = time.thread_time()
        sum(number for number in range(200_000))
        taken.append(time.thread_time() - began_s)
    return max(1.0, max(taken) / _REFERENCE_S)


class Measured:
    """A gateway on a loop in a thread of its own, with a probe of how long each step takes."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._busiest_s = 0.0
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve(ready)))
        self._thread.start()
        self._channel = grpc.insecure_channel(
            ready.result(WAIT_S), options=[("grpc.max_receive_message_length", -1)]
        )

    def busiest_s(self) -> float:
        """The longest step since it was asked last, in seconds of processor time."""
        assert self._loop is not None
        gc.collect()  # or a step of the loop would have to: see the fixture
        time.sleep(5 * _PROBE_S)  # the step that is under way counts, too
        found, self._busiest_s = self._busiest_s, 0.0
        return found

    def send(self, call: str, data: bytes) -> bytes:
        method: Any = self._channel.unary_unary(call, request_serializer=None)
        answer: bytes = method(data, timeout=WAIT_S)
        return answer

    def close(self) -> None:
        self._channel.close()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)

    async def _serve(self, ready: Future[str]) -> None:
        self._loop = asyncio.get_running_loop()
        flags = {"warehouse": self._warehouse, "listeners": "127.0.0.1:0", "log.level": "error"}
        gateway = Gateway(load_gateway_config(environment={}, flags=flags))
        try:
            address = await gateway.start()
            probing = asyncio.create_task(self._probe())
            ready.set_result(address)
            await self._stop.wait()
            probing.cancel()
        except BaseException as failure:
            ready.set_exception(failure)
            raise
        finally:
            await gateway.drain()

    async def _probe(self) -> None:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(_PROBE_S)
            self._busiest_s = max(self._busiest_s, time.thread_time() - began_s)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    store = open_warehouse(warehouse, create=True)
    for topic, partition_count in TOPICS.items():
        Topics(store).create(topic, partition_count)
    store.close()
    measured = Measured(warehouse)
    for request in SET_UP:
        measured.send(request.call, request.data)
    # As in a gateway's process, whose garbage collector does not look through what hundreds of
    # tests have left in this one: 200 ms each time.
    gc.collect()
    gc.freeze()
    yield measured
    gc.unfreeze()
    measured.close()


@dataclass
class Step:
    """The longest step of the loop while a request was answered, in seconds of processor time."""

    name: str
    busiest_s: float
    allowed_s: float


class Steps:
    """Sends requests, and keeps what the loop's longest step was for each."""

    def __init__(self, gateway: Measured) -> None:
        self._gateway = gateway
        self.taken: list[Step] = []

    def send(self, name: str, call: str, data: bytes, refused: Any = None) -> bytes:
        before = _slowness()
        self._gateway.busiest_s()
        answer = b""
        if refused is not None:
            with pytest.raises(grpc.RpcError) as caught:
                self._gateway.send(call, data)
            failure: Any = caught.value
            assert failure.code() == refused
        else:
            answer = self._gateway.send(call, data)
        busiest_s = self._gateway.busiest_s()
        self.taken.append(Step(name, busiest_s, STALL_S_MAX * max(before, _slowness())))
        return answer


def never_held_up(gateway: Measured, scenario: Callable[[Steps, int], None]) -> None:
    """Asserts that in one of several runs no step held the loop up; a run is given its number."""
    held_up: list[str] = []
    for number in range(_TRIES):
        steps = Steps(gateway)
        scenario(steps, number)
        slow = [step for step in steps.taken if step.busiest_s >= step.allowed_s]
        if not slow:
            return
        held_up += [f"{step.name}: {step.busiest_s * 1000:.0f} ms" for step in slow]
    raise AssertionError(f"steps of the loop took {held_up}")


@pytest.mark.parametrize("worst", list(worst_requests()), ids=lambda worst: worst.name)
def test_the_largest_request_does_not_hold_the_event_loop_up(
    gateway: Measured, worst: Worst
) -> None:
    def once(steps: Steps, number: int) -> None:
        try:
            steps.send(worst.name, worst.call, worst.data, worst.refused)
        except grpc.RpcError:
            if number == 0:
                raise  # later, what it made may be there already: it was answered all the same

    never_held_up(gateway, once)


def test_every_call_has_a_largest_request() -> None:
    calls = {
        f"/{service.full_name}/{method.name}"
        for messages in (log_pb2, groups_pb2, admin_pb2, transactions_pb2, security_pb2)
        for service in messages.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if not method.client_streaming  # it takes the requests of the unary call
    }
    assert {worst.call for worst in worst_requests()} == calls


def test_a_group_of_the_most_partitions_does_not_hold_the_event_loop_up(gateway: Measured) -> None:
    def once(steps: Steps, number: int) -> None:
        group = f"all-{number}"

        def beat(member: str, epoch: int = 0, assigned: Any = ()) -> groups_pb2.HeartbeatResponse:
            request = heartbeat(group, member, epoch, topics=WIDE, assigned=assigned)
            data = steps.send(member, GROUPS + "Heartbeat", request.SerializeToString())
            return groups_pb2.HeartbeatResponse.FromString(data)

        def count(answer: groups_pb2.HeartbeatResponse) -> int:
            return sum(len(one.partitions) for one in answer.assignment)

        one = beat("one")
        while count(one) < GROUP_PARTITIONS_MAX:
            time.sleep(0.1)  # the target is being computed
            one = beat("one", one.member_epoch, one.assignment)
        two = beat("two")
        while count(one) == GROUP_PARTITIONS_MAX:
            time.sleep(0.3)
            one = beat("one", one.member_epoch, one.assignment)
        one = beat("one", one.member_epoch, one.assignment)
        two = beat("two", two.member_epoch)
        assert count(one) == GROUP_PARTITIONS_MAX // 2
        assert count(two)
        describe = groups_pb2.DescribeGroupRequest(group=group)
        steps.send("describe", GROUPS + "DescribeGroup", describe.SerializeToString())

    never_held_up(gateway, once)


def test_a_transaction_of_the_most_partitions_does_not_hold_the_event_loop_up(
    gateway: Measured,
) -> None:
    """Each step of one that sends to as many partitions as a topic may have, with as many offsets
    as a group may commit at a time, to the answer that names every place."""

    def once(steps: Steps, number: int) -> None:
        name = f"wide-{number}"

        def step(what: str, call: str, request: Message) -> bytes:
            return steps.send(what, call, request.SerializeToString())

        initialised = transactions_pb2.InitTransactionsResponse.FromString(
            step(
                "init",
                TRANSACTIONS + "InitTransactions",
                transactions_pb2.InitTransactionsRequest(transactional_id=name),
            )
        )
        which = transactions_pb2.TransactionId(
            transactional_id=name,
            producer_id=initialised.producer_id,
            producer_epoch=initialised.producer_epoch,
            number=1,
        )
        step(
            "begin",
            TRANSACTIONS + "BeginTransaction",
            transactions_pb2.BeginTransactionRequest(transaction=which),
        )
        for topic in WIDE[:3]:
            records = arrow(REQUEST_RANGES_MAX, ranges=REQUEST_RANGES_MAX, topic=topic)
            records.transactional_id = name
            records.transaction_number = 1
            records.producer_id = which.producer_id
            records.producer_epoch = which.producer_epoch
            step(f"produce to {topic}", LOG + "Produce", records)
        offsets = commit("of the wide", OFFSETS_PER_COMMIT_MAX)
        step(
            "offsets",
            TRANSACTIONS + "AddOffsets",
            transactions_pb2.AddOffsetsRequest(transaction=which, offsets=offsets),
        )
        step("list", TRANSACTIONS + "ListTransactions", transactions_pb2.ListTransactionsRequest())
        step(
            "describe",
            TRANSACTIONS + "DescribeTransaction",
            transactions_pb2.DescribeTransactionRequest(transactional_id=name),
        )
        ended = transactions_pb2.EndTransactionResponse.FromString(
            step(
                "commit",
                TRANSACTIONS + "EndTransaction",
                transactions_pb2.EndTransactionRequest(transaction=which, commit=True),
            )
        )
        assert len(ended.results) == 3 * REQUEST_RANGES_MAX

    never_held_up(gateway, once)
