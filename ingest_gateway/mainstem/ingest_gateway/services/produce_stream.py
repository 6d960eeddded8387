"""One ProduceStream call: its requests in, their answers out.

Per topic of the stream there is a lane. Answers leave a lane in the order of its requests. A lane
whose topic is not led yet waits for that in a task of its own, so that it holds up no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import grpc.aio
import numpy as np
import numpy.typing as npt

from mainstem.delta_log import Appended
from mainstem.errors import (
    BackPressureError,
    HeldError,
    MainstemError,
    OutcomeUnknownError,
    RequestTooLargeError,
    ShuttingDownError,
)
from mainstem.ingest_gateway.services.produce_answer import (
    answer,
    refusal,
    refused_records,
    unacknowledged,
)
from mainstem.protocol.v1 import log_pb2

Context = grpc.aio.ServicerContext[Any, Any]
Placed = npt.NDArray[np.int32] | None

#: In the trailing metadata of a stream that the gateway ended, with the reason.
END_KEY = "mainstem-end"

#: Advice to a producer whose topic is still being opened: about the time that it takes.
_OPENING_RETRY_MS = 100


@dataclass(frozen=True, slots=True)
class Accepted:
    """A batch with its offsets.

    Attributes:
        future: Tells when the batch is durable.
        partitions: Of its slices, with their numbers of records.
        placed: The partition of each record where the gateway chose it.
    """

    future: asyncio.Future[Appended]
    partitions: tuple[tuple[int, int], ...]
    placed: Placed


class Acceptor(Protocol):
    """What a stream asks of the service."""

    def accept_led(self, request: log_pb2.ProduceRequest) -> Accepted | None:
        """Queues a request at once; None when its topic is not led. Raises as `accept`."""
        ...

    def accept(self, request: log_pb2.ProduceRequest) -> Awaitable[Accepted]:
        """Checks and queues a request, leading its topic. When it raises, nothing was taken."""
        ...

    def refused(self, failure: BaseException) -> MainstemError:
        """The failure as an error for the caller; counts it."""
        ...


@dataclass(slots=True)
class _Open:
    """A request that is not answered yet: only what the answer needs, for it may be large."""

    correlation_id: int
    resends_rest: bool = False
    response: log_pb2.ProduceResponse | None = None


@dataclass(slots=True)
class _Lane:
    """One topic of a stream.

    Attributes:
        open: What is not answered yet, in the order of the requests.
        waiting: What is not accepted yet, with the request or the reason to refuse it.
        held: A batch was refused and may come again: what follows must not overtake it.
    """

    topic: str
    open: deque[_Open] = field(default_factory=deque)
    waiting: deque[tuple[_Open, log_pb2.ProduceRequest | MainstemError]] = field(
        default_factory=deque
    )
    held: bool = False
    task: asyncio.Task[None] | None = None


class ProduceStream:
    """Serves one call.

    Args:
        requests_max: Requests that may be read and not yet answered; more are not read until then.
        waiting_bytes_max: Bytes of requests that may wait for their topics to be led.
        draining: Set when the gateway shuts down: then nothing more is read, and the call ends as
            soon as everything is answered.
    """

    def __init__(
        self,
        context: Context,
        acceptor: Acceptor,
        *,
        requests_max: int,
        waiting_bytes_max: int,
        draining: asyncio.Event,
    ) -> None:
        self._context = context
        self._acceptor = acceptor
        self._requests_max = requests_max
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self._draining = draining
        self._lanes: dict[str, _Lane] = {}
        self._answers: asyncio.Queue[log_pb2.ProduceResponse | None] = asyncio.Queue()
        self._unwritten_count = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._unanswered_count = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._gone = False

    async def serve(self) -> bool:
        """Reads and answers until the caller is done, or the gateway shuts down.

        Returns:
            Whether it was the caller who ended it.
        """
        reader = asyncio.create_task(self._read())
        try:
            while (response := await self._answers.get()) is not None:
                await self._context.write(response)
                self._unwritten_count -= 1
                if self._unwritten_count < self._requests_max:
                    self._may_read.set()
            ended_by_caller = await reader
        finally:
            self._gone = True
            reader.cancel()
            tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(reader, *tasks, return_exceptions=True)
        if not ended_by_caller:
            # Not an error status: with one, a client's gRPC may throw away answers that have come
            # and that its program has not read yet.
            self._context.set_trailing_metadata(((END_KEY, ShuttingDownError.code),))
        return ended_by_caller

    async def _read(self) -> bool:
        """Takes requests; when all are answered, returns whether the caller has no more of them."""
        taking = asyncio.create_task(self._take_all())
        drained = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait({taking, drained}, return_when=asyncio.FIRST_COMPLETED)
            # A read that is given up must not take what will not be looked at.
            ended_by_caller = not taking.cancel()
            if ended_by_caller:
                taking.result()
            await self._all_answered.wait()
            return ended_by_caller
        finally:
            drained.cancel()
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            self._answers.put_nowait(None)

    async def _take_all(self) -> None:
        """Takes requests until the caller has no more of them."""
        while True:
            await self._may_read.wait()
            request = await self._context.read()
            if request is grpc.aio.EOF:
                return
            self._take(request)
            # They have the request, and the next read may be a while off.
            request = None

    def _take(self, request: log_pb2.ProduceRequest) -> None:
        lane = self._lanes.get(request.topic)
        if lane is None:
            lane = self._lanes[request.topic] = _Lane(request.topic)
        entry = _Open(request.correlation_id, request.resends_rest)
        lane.open.append(entry)
        self._unanswered_count += 1
        self._all_answered.clear()
        self._unwritten_count += 1
        if self._unwritten_count >= self._requests_max:
            self._may_read.clear()
        if lane.task is None and self._accept_led(lane, entry, request):
            return
        size_bytes = request.ByteSize()
        if self._waiting_bytes and self._waiting_bytes + size_bytes > self._waiting_bytes_max:
            error = BackPressureError(
                f"topic {lane.topic!r} is still being opened, and {self._waiting_bytes} bytes of "
                f"this stream wait for such topics, of at most {self._waiting_bytes_max}; "
                f"send the batch again in {_OPENING_RETRY_MS} ms",
                retry_delay_ms=_OPENING_RETRY_MS,
                topic=lane.topic,
                queued_bytes=self._waiting_bytes,
                limit_bytes=self._waiting_bytes_max,
            )
            lane.waiting.append((entry, error))
        else:
            self._waiting_bytes += size_bytes
            lane.waiting.append((entry, request))
        if lane.task is None:
            lane.task = asyncio.create_task(self._work(lane))

    def _accept_led(self, lane: _Lane, entry: _Open, request: log_pb2.ProduceRequest) -> bool:
        """Whether the request is done with: accepted or refused. False: its topic is not led."""
        try:
            self._check_order(lane, request)
            accepted = self._acceptor.accept_led(request)
        except Exception as failure:
            self._refuse(lane, entry, failure)
            return True
        if accepted is None:
            return False
        self._follow(lane, entry, request, accepted)
        return True

    async def _work(self, lane: _Lane) -> None:
        """Accepts what waits in the lane, in order, until nothing does."""
        while lane.waiting:
            entry, request = lane.waiting.popleft()
            try:
                if isinstance(request, MainstemError):
                    raise request
                self._waiting_bytes -= request.ByteSize()
                self._check_order(lane, request)
                accepted = await self._acceptor.accept(request)
            except Exception as failure:
                self._refuse(lane, entry, failure)
            else:
                self._follow(lane, entry, request, accepted)
        lane.task = None
        self._drop_if_idle(lane)

    def _check_order(self, lane: _Lane, request: log_pb2.ProduceRequest) -> None:
        if request.resume:
            lane.held = False
        elif lane.held:
            raise HeldError(
                f"an earlier batch of topic {request.topic!r} on this stream was refused; "
                "send that one first, with `resume`",
                topic=request.topic,
            )

    def _follow(
        self, lane: _Lane, entry: _Open, request: log_pb2.ProduceRequest, accepted: Accepted
    ) -> None:
        if request.acks == log_pb2.ACKS_NONE:
            self._answer(
                lane,
                entry,
                unacknowledged(entry.correlation_id, accepted.partitions, accepted.placed),
            )
        else:
            accepted.future.add_done_callback(partial(self._done, lane, entry, accepted.placed))

    def _done(
        self, lane: _Lane, entry: _Open, placed: Placed, future: asyncio.Future[Appended]
    ) -> None:
        # Whatever happens here, the request gets its answer: the stream waits for all of them.
        try:
            if future.cancelled():
                raise OutcomeUnknownError(
                    f"the gateway stopped before topic {lane.topic!r} had committed this batch; "
                    "send it again",
                    topic=lane.topic,
                )
            response = answer(entry.correlation_id, placed, future.result())
        except Exception as failure:
            self._refuse(lane, entry, failure)
        else:
            self._answer(lane, entry, response)

    def _refuse(self, lane: _Lane, entry: _Open, failure: Exception) -> None:
        error = self._acceptor.refused(failure)
        in_part = isinstance(error, RequestTooLargeError) or refused_records(error)
        if error.retriable or (entry.resends_rest and in_part):
            lane.held = True
        self._answer(lane, entry, refusal(entry.correlation_id, error))

    def _answer(self, lane: _Lane, entry: _Open, response: log_pb2.ProduceResponse) -> None:
        """Sends the answer as soon as all earlier requests of the lane have theirs."""
        if self._gone:
            return
        entry.response = response
        while lane.open and (first := lane.open[0].response) is not None:
            lane.open.popleft()
            self._answers.put_nowait(first)
            self._unanswered_count -= 1
        self._drop_if_idle(lane)
        if self._unanswered_count == 0:
            self._all_answered.set()

    def _drop_if_idle(self, lane: _Lane) -> None:
        """A stream may name any number of topics, one after the other: it keeps none of them."""
        if not lane.open and not lane.held and lane.task is None:
            self._lanes.pop(lane.topic, None)
