"""`ProduceStream` alone, between a scripted caller and a scripted service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from tests.unit.ingest_gateway.harness import run, soon, until

from mainstem.config import load_gateway_config
from mainstem.delta_log import Appended
from mainstem.delta_log.format import Batch
from mainstem.errors import (
    InternalError,
    InvalidRequestError,
    MainstemError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.caller import NOBODY
from mainstem.ingest_gateway.connections import Connection
from mainstem.ingest_gateway.requests import RequestDoor
from mainstem.ingest_gateway.security import Access
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.services.produce import stream as produce_stream_module
from mainstem.ingest_gateway.services.produce.acceptance import Accepted
from mainstem.ingest_gateway.services.produce.stream import AnswerRoom, ProduceStream
from mainstem.limits import REQUEST_PLACED_RECORDS_MAX
from mainstem.protocol.v1 import log_pb2


class Caller:
    """The other end: what it sends, and what has been written to it."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.answers: list[log_pb2.ProduceResponse] = []
        self.trailing: tuple[tuple[str, str], ...] = ()

    def send(self, number: int, topic: str = "t") -> None:
        request = log_pb2.ProduceRequest(correlation_id=number, topic=topic)
        self.sent.put_nowait(request.SerializeToString())

    def end(self) -> None:
        self.sent.put_nowait(grpc.aio.EOF)

    async def read(self) -> Any:
        return await self.sent.get()

    async def write(self, response: bytes) -> None:
        self.answers.append(log_pb2.ProduceResponse.FromString(response))

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
        self.placed_count = 0
        self.commits_at_once = False
        self.looks: asyncio.Event | None = None

    async def accept_led(self, request: log_pb2.ProduceRequest, call: Call) -> Accepted | None:
        if self.looks is not None:
            await self.looks.wait()
        return self._accepted(request) if self.led.is_set() else None

    async def accept(self, request: log_pb2.ProduceRequest, call: Call) -> Accepted:
        await self.led.wait()
        for _ in range(20):  # slower than the reader
            await asyncio.sleep(0)
        return self._accepted(request)

    def refused(self, failure: BaseException) -> MainstemError:
        return failure if isinstance(failure, MainstemError) else InternalError(repr(failure))

    def commit(self, index: int) -> None:
        self.futures[index].set_result(Appended(1, (Batch(0, max(index, 0), 1),)))

    def _accepted(self, request: log_pb2.ProduceRequest) -> Accepted:
        failure = self.refusal(request)
        if failure is not None:
            raise failure
        self.accepted.append(request.correlation_id)
        self.futures.append(asyncio.get_running_loop().create_future())
        if self.commits_at_once:
            self.commit(-1)
        placed = np.zeros(self.placed_count, dtype=np.int32) if self.placed_count else None
        return Accepted(self.futures[-1], ((0, 1),), placed)


def stream(
    caller: Caller,
    service: Any,
    draining: asyncio.Event | None = None,
    requests_max: int = 100,
    room: AnswerRoom | None = None,
    door: Any = None,
) -> Any:
    context: Any = caller
    return ProduceStream(
        Call(context, Connection("ipv4:127.0.0.1:1", "", 0.0), NOBODY, Access()),
        service,
        door or RequestDoor(load_gateway_config(environment={}, flags={})),
        room or AnswerRoom(),
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
        takes_notices = False
        acks = log_pb2.ACKS_ALL

        def __del__(self) -> None:
            freed.append(True)

    class Door:
        """Parses whatever comes as one of these."""

        produce = None

        async def decode(self, kind: object, data: bytes) -> Any:
            return Tracked()

    freed: list[bool] = []

    async def test() -> None:
        caller, service = Caller(), Service()
        service.led.set()
        served = stream(caller, service, requests_max=requests_max, door=Door())
        serving = asyncio.ensure_future(served.serve())
        caller.send(1)
        await until(lambda: bool(freed))
        caller.end()
        service.commit(0)
        await soon(serving)

    run(test())


async def _until_read(caller: Caller) -> int:
    """How many requests are not read once no more are."""
    left = -1
    while left != caller.sent.qsize():
        left = caller.sent.qsize()
        for _ in range(50):
            await asyncio.sleep(0)
    return left


def test_a_stream_whose_answers_are_large_or_unread_is_not_read_until_they_are_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reader(Caller):
        def __init__(self) -> None:
            super().__init__()
            self.reads = asyncio.Event()

        async def write(self, response: bytes) -> None:
            await self.reads.wait()
            await super().write(response)

    monkeypatch.setattr(produce_stream_module, "STREAM_ANSWERS_BYTES_MAX", 100_000)

    async def test() -> None:
        caller, service, room = Reader(), Service(), AnswerRoom()
        service.led.set()
        service.placed_count = 3_000
        serving = asyncio.ensure_future(stream(caller, service, room=room).serve())
        for number in range(20):
            caller.send(number)
        caller.end()
        assert await _until_read(caller) == 21 - 3, "answers of 48 kB are to come of each"
        for index in range(3):
            service.commit(index)
        unread = await _until_read(caller)
        assert 0 < unread < 18, "they are smaller than they might have been, and nobody reads them"
        assert room.used_bytes < 150_000
        service.commits_at_once = True
        for index in range(3, len(service.futures)):
            service.commit(index)
        caller.reads.set()
        await soon(serving)
        assert caller.answered() == list(range(20))
        assert room.used_bytes == 0

    run(test())


def test_where_all_streams_have_too_much_unread_each_goes_on_with_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce_stream_module, "STREAMS_ANSWERS_BYTES_MAX", 50_000)
    monkeypatch.setattr(produce_stream_module, "STREAM_ANSWERS_BYTES_MIN", 1_000)

    async def test() -> None:
        room = AnswerRoom()
        room.used_bytes = 60_000
        caller, service = Caller(), Service()
        service.led.set()
        serving = asyncio.ensure_future(stream(caller, service, room=room).serve())
        for number in range(20):
            caller.send(number)
        caller.end()
        assert await _until_read(caller) == 21 - 8
        service.commits_at_once = True
        for index in range(8):
            service.commit(index)
        await soon(serving)
        assert caller.answered() == list(range(20))
        assert room.used_bytes == 60_000

    run(test())


def test_a_request_with_too_much_in_it_is_answered_with_an_error_and_the_stream_goes_on() -> None:
    async def test() -> None:
        caller, service = Caller(), Service()
        service.led.set()
        serving = asyncio.ensure_future(stream(caller, service).serve())
        records = log_pb2.Records(records=[log_pb2.Record()] * (REQUEST_PLACED_RECORDS_MAX + 1))
        request = log_pb2.ProduceRequest(correlation_id=1, topic="t", records=records)
        caller.sent.put_nowait(request.SerializeToString())
        caller.send(2)
        caller.end()
        await until(lambda: len(service.futures) == 1)
        service.commit(0)
        await soon(serving)
        assert caller.answered() == [1, 2]
        assert caller.answers[0].error.code == "REQUEST_TOO_LARGE"
        assert caller.answers[0].error.facts["field"] == "Records.records"
        assert not caller.answers[1].HasField("error")

    run(test())


def test_a_request_that_is_none_ends_the_stream() -> None:
    async def test() -> None:
        caller, service = Caller(), Service()
        serving = asyncio.ensure_future(stream(caller, service).serve())
        caller.sent.put_nowait(b"\xff\xff")
        with pytest.raises(InvalidRequestError, match="not a ProduceRequest message"):
            await soon(serving)

    run(test())


def test_a_drain_while_records_are_looked_at_in_a_thread_takes_none_of_them() -> None:
    async def test() -> None:
        caller, service, draining = Caller(), Service(), asyncio.Event()
        service.led.set()
        service.looks = asyncio.Event()
        serving = asyncio.ensure_future(stream(caller, service, draining).serve())
        caller.send(1)
        assert await _until_read(caller) == 0
        draining.set()
        await soon(serving)
        assert [answer.error.code for answer in caller.answers] == ["SHUTTING_DOWN"]
        assert service.accepted == []

    run(test())


def test_a_lane_goes_on_when_what_it_waits_for_is_cancelled_by_somebody_else() -> None:
    async def test() -> None:
        caller, service = Caller(), Service()
        shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        accept = service.accept

        async def waits(request: log_pb2.ProduceRequest, call: Call) -> Accepted:
            if request.correlation_id == 1:
                await shared
            return await accept(request, call)

        service.accept = waits  # type: ignore[method-assign]
        serving = asyncio.ensure_future(stream(caller, service).serve())
        for number in (1, 2):
            caller.send(number)
        await until(caller.sent.empty)
        shared.cancel()
        service.led.set()
        caller.end()
        await until(lambda: len(caller.answers) == 2)
        assert await soon(serving)
        assert caller.answered() == [1, 2]
        assert caller.answers[0].error.code == "OUTCOME_UNKNOWN"
        assert caller.answers[1].error.code == "HELD", "it must not overtake the first"

    run(test())
