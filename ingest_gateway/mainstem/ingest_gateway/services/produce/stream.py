"""One ProduceStream call: its requests in, their answers out.

Per topic of the stream there is a lane. Answers leave a lane in the order of its requests. A lane
whose topic is not led yet waits for that in a task of its own, so that it holds up no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial

import grpc.aio

from mainstem.delta_log import Appended
from mainstem.errors import (
    AuthorizationError,
    BackPressureError,
    HeldError,
    MainstemError,
    OutcomeUnknownError,
    RequestTooLargeError,
    SessionExpiredError,
    ShuttingDownError,
)
from mainstem.ingest_gateway.caller import session_end
from mainstem.ingest_gateway.quotas import Charge
from mainstem.ingest_gateway.requests import RequestDoor
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.services.produce.acceptance import Acceptance, Accepted, Placed
from mainstem.ingest_gateway.services.produce.answers import answer, notice, refusal, unacknowledged
from mainstem.ingest_gateway.services.requirements import produce_needs
from mainstem.limits import (
    STREAM_ANSWERS_BYTES_MAX,
    STREAM_ANSWERS_BYTES_MIN,
    STREAMS_ANSWERS_BYTES_MAX,
)
from mainstem.protocol import refused_records
from mainstem.protocol.v1 import log_pb2

#: In the trailing metadata of a stream that the gateway ended, with the reason.
END_KEY = "mainstem-end"

#: What an answer takes in memory beside its bytes, and what each partition and position of it adds.
_ANSWER_BYTES = 100
_RESULT_BYTES = 32
_POSITION_BYTES = 16

#: Topics of one stream of which something is unanswered or held.
_TOPICS_MAX = 10_000

#: While the store does not take what was accepted, its sender is told why so often.
_NOTICE_EVERY_S = 2.0
_NOTICES_MAX = 100

#: Advice to a producer whose topic is still being opened: about the time that it takes.
_OPENING_RETRY_MS = 100


@dataclass(slots=True)
class _Open:
    """A request that is not answered yet: only what the answer needs, for it may be large.

    Attributes:
        answer_bytes: What its answer takes, or will take at most.
    """

    correlation_id: int
    resends_rest: bool = False
    takes_notices: bool = False
    response: bytes | None = None
    answer_bytes: int = _ANSWER_BYTES


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


class AnswerRoom:
    """Bytes of answers that the clients of all streams have not read yet or that are to come."""

    def __init__(self) -> None:
        self.used_bytes = 0

    def has_room(self, own_bytes: int) -> bool:
        """Whether a stream that has so many bytes of them may read another request."""
        if self.used_bytes < STREAMS_ANSWERS_BYTES_MAX:
            return own_bytes < STREAM_ANSWERS_BYTES_MAX
        return own_bytes < STREAM_ANSWERS_BYTES_MIN


class ProduceStream:
    """Serves one call.

    Args:
        call: Which.
        acceptance: Takes the requests.
        door: Parses the requests.
        room: What all streams share.
        requests_max: Requests that may be read and not yet answered; more are not read until then.
        waiting_bytes_max: Bytes of requests that may wait for their topics to be led.
        draining: Set when the gateway shuts down: then nothing more is read, and the call ends as
            soon as everything is answered. So it does when the caller's session is over.
    """

    def __init__(
        self,
        call: Call,
        acceptance: Acceptance,
        door: RequestDoor,
        room: AnswerRoom,
        *,
        requests_max: int,
        waiting_bytes_max: int,
        draining: asyncio.Event,
    ) -> None:
        self._call = call
        self._context = call.context
        self._connection = call.connection
        self._acceptance = acceptance
        self._door = door
        self._room = room
        self._requests_max = requests_max
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self._draining = draining
        self._lanes: dict[str, _Lane] = {}
        self._answers: asyncio.Queue[_Open | None] = asyncio.Queue()
        self._unwritten_count = 0
        self._unwritten_bytes = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._unanswered_count = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._gone = False
        #: Why the gateway ends the stream, which its caller would have gone on with.
        self._end: type[MainstemError] = ShuttingDownError
        self._notices: asyncio.TimerHandle | None = None

    async def serve(self) -> bool:
        """Reads and answers until the caller is done, the gateway shuts down, or the session of the
        caller is over.

        Returns:
            Whether it was the caller who ended it.
        """
        reader = asyncio.create_task(self._read())
        try:
            while (answered := await self._answers.get()) is not None:
                await self._context.write(answered.response)
                self._unwritten_count -= 1
                self._count_bytes(-answered.answer_bytes)
            ended_by_caller = await reader
        finally:
            self._gone = True
            if self._notices is not None:
                self._notices.cancel()
            reader.cancel()
            tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(reader, *tasks, return_exceptions=True)
            self._count_bytes(-self._unwritten_bytes)
        if not ended_by_caller:
            # Not an error status: with one, a client's gRPC may throw away answers that have come
            # and that its program has not read yet.
            self._context.set_trailing_metadata(((END_KEY, self._end.code),))
        return ended_by_caller

    async def _read(self) -> bool:
        """Takes requests; when all are answered, returns whether the caller has no more of them."""
        taking = asyncio.create_task(self._take_all())
        drained = asyncio.create_task(self._draining.wait())
        expired = asyncio.create_task(session_end(self._call.identity))
        try:
            await asyncio.wait({taking, drained, expired}, return_when=asyncio.FIRST_COMPLETED)
            # A read that is given up must not take what will not be looked at.
            ended_by_caller = not taking.cancel()
            if ended_by_caller:
                ended_by_caller = taking.result()
            if not ended_by_caller and not drained.done():
                self._end = SessionExpiredError
            await self._all_answered.wait()
            return ended_by_caller
        finally:
            drained.cancel()
            expired.cancel()
            taking.cancel()
            await asyncio.gather(taking, expired, return_exceptions=True)
            self._answers.put_nowait(None)

    async def _take_all(self) -> bool:
        """Takes requests until the caller has no more of them, or may not send any more: whether
        it is the first."""
        while True:
            await self._call.until_within_quota(Charge.PRODUCE)
            await self._may_read.wait()
            data = await self._context.read()
            if data is grpc.aio.EOF:
                return True
            if self._call.identity.is_over:
                return False  # what was read is not answered: the caller sends it again
            self._connection.received(len(data))
            self._call.used(Charge.PRODUCE, len(data))
            parsed = await self._parsed(data)
            data = None  # what was parsed has copies; until the next read it may be a while
            await self._take(*parsed)
            del parsed

    async def _parsed(self, data: bytes) -> tuple[log_pb2.ProduceRequest, MainstemError | None]:
        """The request, and why it is refused already if so; then it has no records.

        Raises:
            InvalidRequestError: It cannot be read.
        """
        try:
            return await self._door.decode(self._door.produce, data), None
        except RequestTooLargeError as error:
            return self._door.without_records(data), error

    async def _take(
        self, request: log_pb2.ProduceRequest, error: MainstemError | None = None
    ) -> None:
        """Accepts or refuses a request, or lets it wait for its topic.

        Args:
            error: Why it is refused already.
        """
        lane = self._lanes.get(request.topic)
        if lane is None:
            if len(self._lanes) >= _TOPICS_MAX:
                raise BackPressureError(
                    f"batches of {_TOPICS_MAX} topics of this stream are unanswered or held; "
                    "send to fewer topics at a time",
                    limit_topics=_TOPICS_MAX,
                )
            lane = self._lanes[request.topic] = _Lane(request.topic)
        if error is None:
            try:
                self._call.require_all(produce_needs, request)
            except AuthorizationError as refused:
                error = refused
            else:
                self._call.served(request)
        entry = _Open(request.correlation_id, request.resends_rest, request.takes_notices)
        lane.open.append(entry)
        if self._notices is None:
            self._notices = asyncio.get_running_loop().call_later(
                _NOTICE_EVERY_S, self._tell_of_trouble
            )
        self._unanswered_count += 1
        self._all_answered.clear()
        self._unwritten_count += 1
        self._count_bytes(entry.answer_bytes)
        if lane.task is None and await self._accept_led(lane, entry, request, error):
            return
        size_bytes = request.ByteSize()
        if error is not None:
            lane.waiting.append((entry, error))
        elif self._waiting_bytes and self._waiting_bytes + size_bytes > self._waiting_bytes_max:
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

    def _tell_of_trouble(self) -> None:
        """Says, of topics that wait for a store that fails, why; again and again until it ends."""
        self._notices = None
        if self._unanswered_count == 0:
            return
        self._notices = asyncio.get_running_loop().call_later(
            _NOTICE_EVERY_S, self._tell_of_trouble
        )
        if not self._answers.empty():
            return  # the client does not read what it has
        for lane in self._lanes.values():
            entry = next(iter(lane.open), None)
            if entry is None or not entry.takes_notices:
                continue
            trouble = self._acceptance.trouble(lane.topic)
            if trouble is None:
                continue
            said = notice(entry.correlation_id, trouble).SerializeToString()
            self._unwritten_count += 1
            self._count_bytes(len(said))
            self._answers.put_nowait(_Open(0, response=said, answer_bytes=len(said)))
            if self._answers.qsize() == _NOTICES_MAX:
                return

    def _count_bytes(self, more: int) -> None:
        """Counts bytes of answers, and lets no more requests in while there are too many."""
        self._unwritten_bytes += more
        self._room.used_bytes += more
        if self._unwritten_count < self._requests_max and self._room.has_room(
            self._unwritten_bytes
        ):
            self._may_read.set()
        else:
            self._may_read.clear()

    async def _accept_led(
        self,
        lane: _Lane,
        entry: _Open,
        request: log_pb2.ProduceRequest,
        error: MainstemError | None,
    ) -> bool:
        """Whether the request is done with: accepted or refused. False: its topic is not led."""
        try:
            self._check_order(lane, request)
            if error is not None:
                raise error
            accepted = await self._acceptance.accept_led(request, self._call)
        except asyncio.CancelledError:
            # The stream ends while the records are looked at: none of them is taken.
            failure = self._end("the stream ends meanwhile; send the batch again")
            self._refuse(lane, entry, failure)
            raise
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
                # Again: the rules may have changed while it waited.
                self._call.require_all(produce_needs, request)
                accepted = await self._acceptance.accept(request, self._call)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                if task.cancelling():
                    raise  # the stream ends
                # It came out of something that others wait for, too. This lane goes on.
                given_up = OutcomeUnknownError(
                    f"what a batch for topic {lane.topic!r} waited for was given up; send it again",
                    topic=lane.topic,
                )
                self._refuse(lane, entry, given_up)
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
        placed_count = 0 if accepted.placed is None else len(accepted.placed)
        self._count_answer(
            entry,
            _ANSWER_BYTES
            + _RESULT_BYTES * len(accepted.partitions)
            + _POSITION_BYTES * placed_count,
        )
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
        error = self._acceptance.refused(failure)
        in_part = isinstance(error, RequestTooLargeError) or refused_records(error)
        if error.retriable or (entry.resends_rest and in_part):
            lane.held = True
        self._answer(lane, entry, refusal(entry.correlation_id, error))

    def _answer(self, lane: _Lane, entry: _Open, response: log_pb2.ProduceResponse) -> None:
        """Sends the answer as soon as all earlier requests of the lane have theirs."""
        if self._gone:
            return
        entry.response = response.SerializeToString()
        self._connection.sent(len(entry.response))
        self._count_answer(entry, _ANSWER_BYTES + len(entry.response))
        while lane.open and lane.open[0].response is not None:
            self._answers.put_nowait(lane.open.popleft())
            self._unanswered_count -= 1
        self._drop_if_idle(lane)
        if self._unanswered_count == 0:
            self._all_answered.set()

    def _count_answer(self, entry: _Open, size_bytes: int) -> None:
        """What the answer takes is known better now."""
        if not self._gone:
            self._count_bytes(size_bytes - entry.answer_bytes)
            entry.answer_bytes = size_bytes

    def _drop_if_idle(self, lane: _Lane) -> None:
        """A stream may name any number of topics, one after the other: it keeps none of them."""
        if not lane.open and not lane.held and lane.task is None:
            self._lanes.pop(lane.topic, None)
