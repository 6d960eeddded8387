"""`ProduceStream` alone, between a scripted caller and a scripted service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.unit.ingest_gateway.harness import run, soon, until

from mainstem.delta_log import Appended
from mainstem.delta_log.format import Batch
from mainstem.errors import InternalError, MainstemError, UnknownTopicError
from mainstem.ingest_gateway.services.produce_stream import Accepted, ProduceStream
from mainstem.protocol.v1 import log_pb2


class Caller:
    """The other end: what it sends, and what has been written to it."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.answers: list[log_pb2.ProduceResponse] = []
        self.trailing: tuple[tuple[str, str], ...] = ()

    def send(self, number: int, topic: str = "t") -> None:
        self.sent.put_nowait(log_pb2.ProduceRequest(correlation_id=number, topic=topic))

    def end(self) -> None:
        self.sent.put_nowait(grpc.aio.EOF)

    async def read(self) -> Any:
        return await self.sent.get()

    async def write(self, response: log_pb2.ProduceResponse) -> None:
        self.answers.append(response)

    def set_trailing_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        self.trailing = metadata

    def answered(self) -> list[int]:
        return [answer.correlation_id for answer in self.answers]


class Service:
    """Accepts in the order in which it is asked; topics are led once `led` is set."""

    def __init__(self) -> None:
        self.led = asyncio.Event()
        self.accepted: list[int] = []
        self.futures: list[asyncio.Future[Appended]] = []
        self.refusal: Callable[[log_pb2.ProduceRequest], Exception | None] = lambda _: None

    def accept_led(self, request: log_pb2.ProduceRequest) -> Accepted | None:
        return self._accepted(request) if self.led.is_set() else None

    async def accept(self, request: log_pb2.ProduceRequest) -> Accepted:
        await self.led.wait()
        for _ in range(20):  # slower than the reader
            await asyncio.sleep(0)
        return self._accepted(request)

    def refused(self, failure: BaseException) -> MainstemError:
        return failure if isinstance(failure, MainstemError) else InternalError(repr(failure))

    def commit(self, index: int) -> None:
        self.futures[index].set_result(Appended(1, (Batch(0, index, 1),)))

    def _accepted(self, request: log_pb2.ProduceRequest) -> Accepted:
        failure = self.refusal(request)
        if failure is not None:
            raise failure
        self.accepted.append(request.correlation_id)
        self.futures.append(asyncio.get_running_loop().create_future())
        return Accepted(self.futures[-1], ((0, 1),), None)


def stream(
    caller: Caller,
    service: Service,
    draining: asyncio.Event | None = None,
    requests_max: int = 100,
) -> Any:
    context: Any = caller
    return ProduceStream(
        context,
        service,
        requests_max=requests_max,
        waiting_bytes_max=1_000_000,
        draining=draining or asyncio.Event(),
    )


def test_a_request_does_not_overtake_those_that_wait_for_the_topic_to_be_led() -> None:
    async def test() -> None:
        caller, service = Caller(), Service()
        serving = asyncio.ensure_future(stream(caller, service).serve())
        for number in (1, 2):
            caller.send(number)
        await until(caller.sent.empty)
        service.led.set()
        # Led, and the lane has not seen it yet: these must queue behind 1 and 2.
        for number in (3, 4):
            caller.send(number)
        await until(lambda: len(service.accepted) == 4)
        assert service.accepted == [1, 2, 3, 4]
        caller.end()
        for index in range(4):
            service.commit(index)
        await soon(serving)
        assert caller.answered() == [1, 2, 3, 4]

    run(test())


def test_futures_that_end_out_of_order_are_answered_in_order() -> None:
    async def test() -> None:
        caller, service = Caller(), Service()
        service.led.set()
        serving = asyncio.ensure_future(stream(caller, service).serve())
        for number in (1, 2, 3):
            caller.send(number)
        caller.end()
        await until(lambda: len(service.futures) == 3)
        for index in (2, 0, 1):
            service.commit(index)
        await soon(serving)
        assert caller.answered() == [1, 2, 3]
        assert caller.trailing == ()

    run(test())


@pytest.mark.parametrize("failure", [ValueError("a fault of ours"), UnknownTopicError("gone")])
def test_every_request_is_answered_whatever_becomes_of_its_future(failure: Exception) -> None:
    async def test() -> None:
        caller, service = Caller(), Service()
        service.led.set()
        serving = asyncio.ensure_future(stream(caller, service).serve())
        for number in (1, 2, 3):
            caller.send(number)
        caller.end()
        await until(lambda: len(service.futures) == 3)
        service.futures[0].cancel()
        service.futures[1].set_exception(failure)
        service.commit(2)
        await soon(serving)
        codes = [answer.error.code for answer in caller.answers]
        assert codes == ["OUTCOME_UNKNOWN", service.refused(failure).code, ""]

    run(test())


def test_a_drain_ends_the_stream_when_all_is_answered_and_says_so() -> None:
    async def test() -> None:
        caller, service, draining = Caller(), Service(), asyncio.Event()
        service.led.set()
        serving = asyncio.ensure_future(stream(caller, service, draining).serve())
        caller.send(1)
        await until(lambda: len(service.futures) == 1)
        draining.set()
        for _ in range(10):
            await asyncio.sleep(0)
        caller.send(2)
        assert not serving.done(), "1 is not answered yet"
        service.commit(0)
        await soon(serving)
        assert caller.answered() == [1]
        assert caller.sent.qsize() == 1, "nothing more was read"
        assert caller.trailing == (("mainstem-end", "SHUTTING_DOWN"),)

    run(test())


def test_a_caller_that_is_gone_leaves_no_task_behind() -> None:
    async def test() -> None:
        caller, service = Caller(), Service()
        before = asyncio.all_tasks()
        serving = asyncio.ensure_future(stream(caller, service).serve())
        caller.send(1, "waits for its lead")
        await until(caller.sent.empty)
        await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert asyncio.all_tasks() == before

    run(test())


@pytest.mark.parametrize("requests_max", [1, 100])
def test_the_stream_keeps_nothing_of_a_request_while_it_waits_for_the_next(
    requests_max: int,
) -> None:
    class Tracked:
        """Stands for a request and says when nobody has it any more."""

        topic = "t"
        correlation_id = 1
        resume = False
        resends_rest = False
        acks = log_pb2.ACKS_ALL

        def __del__(self) -> None:
            freed.append(True)

    freed: list[bool] = []

    async def test() -> None:
        caller, service = Caller(), Service()
        service.led.set()
        serving = asyncio.ensure_future(stream(caller, service, requests_max=requests_max).serve())
        caller.sent.put_nowait(Tracked())
        await until(lambda: bool(freed))
        caller.end()
        service.commit(0)
        await soon(serving)

    run(test())
