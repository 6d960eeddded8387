"""Fetch and ListOffsets: what readers are answered, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mainstem.config import GatewayConfig
from mainstem.errors import (
    BackPressureError,
    InvalidRecordError,
    MainstemError,
    SessionExpiredError,
    ShuttingDownError,
)
from mainstem.ingest_gateway.fetching import (
    PLANS_AT_ONCE,
    Arrivals,
    FetchAnswer,
    FetchPlan,
    FetchPlanner,
    FetchRoom,
    Followers,
    History,
    OffsetLookup,
    answer_query,
    build_answer,
    check_count,
    columns_asked,
    look_up,
    not_open,
)
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.reader_threads import ReaderThreads
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.topics import GatewayTopics
from mainstem.limits import FETCH_WAIT_MS_MAX, KIB
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import log_pb2
from mainstem.security import Operation, ResourceType

#: An answer of no more bytes, all from memory, is made on the loop: a thread would take longer.
_INLINE_BYTES_MAX: Final = 16 * KIB
_INLINE_PARTITIONS_MAX: Final = 8

#: A data file that was gone when it was read is looked for again in a newer state of its table. A
#: clean-up would have to overtake the same fetch again each time.
_ATTEMPTS_MAX: Final = 4

#: Topics that are followed from one step of the loop: each gets a task.
_FOLLOWED_AT_ONCE: Final = 200

_RETRY_DELAY_MS: Final = 100

#: A fetch of more partitions than are planned at once, whose topics changed meanwhile, is planned
#: again after this.
_REPLAN_S: Final = 0.05


class FetchService:
    """The calls of `mainstem.v1.Log` that readers make.

    Args:
        draining: Set when the gateway shuts down; then call `wake_all`.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        arrivals: Arrivals,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        threads: ReaderThreads,
        draining: asyncio.Event,
    ) -> None:
        self._topics = topics
        self._metrics = metrics
        self._draining = draining
        self._bytes_max = min(config.number("fetch.max.bytes"), config.number("fetch.queue.bytes"))
        self._requests_max = config.number("fetch.max.requests")
        self._connection_max = config.number("fetch.connection.max.requests")
        self._threads = threads
        self._history = History()
        self._waiters = arrivals.waiters
        self._planner = FetchPlanner(topics, arrivals, threads)
        self._followers = Followers(topics, arrivals.waiters, metrics, draining)
        self._room = FetchRoom(config.number("fetch.queue.bytes"))
        self._requests = 0
        #: Fetches under way, by connection.
        self._polls: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        """Fetches that wait for records."""
        return len(self._waiters)

    def wake_all(self) -> None:
        """Answers the fetches that wait, with what there is."""
        self._waiters.wake_all()

    async def close(self) -> None:
        await self._followers.close()
        self._history.clear()

    async def Fetch(self, request: log_pb2.FetchRequest, call: Call) -> bytes:
        with self._one_of_connection(call.peer), self._counted():
            answer = await self._fetch(request, call)
        for topic, served in answer.served.items():
            self._metrics.given(topic, served.record_count, served.record_bytes)
        size = len(answer.data)  # counted by `_built`

        def sent(_: object) -> None:
            self._room.sent(size)

        callback: Any = sent  # the stubs take it for an object with attributes
        call.add_done_callback(callback)
        if call.identity.is_over:  # since it came: it may have waited for long
            raise SessionExpiredError("the session is over; sign in again")
        return answer.data

    async def ListOffsets(
        self, request: log_pb2.ListOffsetsRequest, call: Call
    ) -> log_pb2.ListOffsetsResponse:
        with self._counted():
            return await self._list_offsets(request, call)

    @contextlib.contextmanager
    def _one_of_connection(self, connection: str) -> Iterator[None]:
        """Counts a fetch of a connection, unless it has too many under way."""
        count = self._polls.get(connection, 0)
        if count >= self._connection_max:
            raise BackPressureError(
                f"{count} fetches of this connection wait for their answers already, the limit of "
                "fetch.connection.max.requests; ask for more partitions in one fetch, or try again "
                "later",
                retry_delay_ms=_RETRY_DELAY_MS,
                limit_requests=self._connection_max,
            )
        self._polls[connection] = count + 1
        try:
            yield
        finally:
            self._polls[connection] -= 1
            if not self._polls[connection]:
                del self._polls[connection]

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts a request, unless too many are under way."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def _refusal(self) -> MainstemError | None:
        if self._draining.is_set():
            return ShuttingDownError(
                "the gateway is shutting down; fetch from another, or from this one after its "
                "restart",
                retry_delay_ms=500,
            )
        if self._requests >= self._requests_max:
            return BackPressureError(
                f"{self._requests} fetches wait for their answers already, the limit of "
                "fetch.max.requests; try again later",
                retry_delay_ms=_RETRY_DELAY_MS,
                limit_requests=self._requests_max,
            )
        return None

    # -- fetch -----------------------------------------------------------------------------------

    async def _fetch(self, request: log_pb2.FetchRequest, call: Call) -> FetchAnswer:
        check_count("partitions", len(request.partitions))
        columns = columns_asked(request.columns)
        if request.format not in log_pb2.FetchFormat.values():
            raise InvalidRecordError(f"there is no fetch format {request.format}")
        if request.visibility not in log_pb2.Visibility.values():
            raise InvalidRecordError(f"there is no visibility {request.visibility}")
        arrow = request.format != log_pb2.FETCH_FORMAT_RECORDS
        bytes_max = self._bytes_max
        if request.max_bytes > 0:
            bytes_max = min(bytes_max, request.max_bytes)
        bytes_min = min(request.min_bytes, bytes_max)
        wait_s = min(max(request.max_wait_ms, 0), FETCH_WAIT_MS_MAX) / 1000
        clock = asyncio.get_running_loop().time
        ends_at = clock() + wait_s
        attempt = 1
        while True:
            # Again after each wait: what may be read can have changed meanwhile.
            refused = call.refusals(
                Operation.READ, ResourceType.TOPIC, (one.topic for one in request.partitions)
            )
            plans, versions = await self._planner.plans(request, bytes_max, refused)
            missing = bytes_min - sum(plan.available_bytes for plan in plans)
            left_s = ends_at - clock()
            if (
                missing > 0
                and left_s > 0
                and not self._draining.is_set()
                and not any(_answers_at_once(plan) for plan in plans)
            ):
                if self._planner.still(plans, versions):
                    durable = request.visibility == log_pb2.VISIBILITY_DURABLE
                    await self._wait(plans, missing, left_s, durable=durable)
                else:
                    await asyncio.sleep(min(left_s, _REPLAN_S))
                continue
            answer = await self._built(
                plans, columns, bytes_max, arrow=arrow, last_attempt=attempt == _ATTEMPTS_MAX
            )
            if not answer.missing:
                return answer
            attempt += 1
            await self._planner.look_again({plan.topic for plan in plans if plan.files})

    async def _wait(
        self, plans: Sequence[FetchPlan], bytes_missing: int, timeout_s: float, *, durable: bool
    ) -> None:
        # No step of the loop lies between the plans and this: no commit is overlooked.
        partitions = [(plan.topic, plan.partition) for plan in plans]
        with self._waiters.waiting(partitions, bytes_missing, timeout_s, durable=durable) as waiter:
            for number, topic in enumerate({plan.topic for plan in plans}, start=1):
                self._followers.follow(topic)
                if number % _FOLLOWED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await waiter.woken

    async def _built(
        self,
        plans: Sequence[FetchPlan],
        columns: tuple[str, ...],
        bytes_max: int,
        *,
        arrow: bool,
        last_attempt: bool,
    ) -> FetchAnswer:
        build = partial(
            build_answer,
            plans,
            self._history,
            columns,
            bytes_max,
            arrow=arrow,
            last_attempt=last_attempt,
        )
        # What files unpack to is known when they are read.
        size_max = bytes_max
        if not any(plan.files for plan in plans):
            size_max = min(size_max, sum(plan.available_bytes for plan in plans))
        with await self._room.reserve(size_max) as reserved:
            if len(plans) <= _INLINE_PARTITIONS_MAX and size_max <= _INLINE_BYTES_MAX:
                answer = build()
            else:
                answer = await self._threads.run(
                    lambda reading: build(reading=reading),
                    # A store that hangs gives nothing: it is not to keep the room of others.
                    on_slow=reserved.close,
                )
        if not answer.missing:
            self._room.made(len(answer.data))
        return answer

    # -- offsets by time -------------------------------------------------------------------------

    async def _list_offsets(
        self, request: log_pb2.ListOffsetsRequest, call: Call
    ) -> log_pb2.ListOffsetsResponse:
        check_count("queries", len(request.queries))
        refused = call.refusals(
            Operation.DESCRIBE, ResourceType.TOPIC, (one.topic for one in request.queries)
        )
        attempt = 1
        while True:
            response, outdated = await self._answers(
                request, refused, last_attempt=attempt == _ATTEMPTS_MAX
            )
            if not outdated:
                return response
            attempt += 1
            await self._planner.look_again(set(outdated))

    async def _answers(
        self,
        request: log_pb2.ListOffsetsRequest,
        refused: Mapping[str, MainstemError],
        *,
        last_attempt: bool,
    ) -> tuple[log_pb2.ListOffsetsResponse, list[str]]:
        """Answers, and the topics whose files had gone when they were read."""
        errors = await self._planner.up_to_date(
            dict.fromkeys(one.topic for one in request.queries if one.topic not in refused)
        )
        errors.update(refused)
        # What has to be read is read in one thread.
        response = log_pb2.ListOffsetsResponse()
        lookups: list[OffsetLookup] = []
        for number, query in enumerate(request.queries, start=1):
            if number % PLANS_AT_ONCE == 0:
                await asyncio.sleep(0)
            answer = response.answers.add(topic=query.topic, partition=query.partition, offset=-1)
            error = errors.get(query.topic)
            if error is not None:
                answer.error.CopyFrom(error_to_message(error))
                continue
            found = self._topics.current(query.topic, any_age=True)
            if found is None:
                answer.error.CopyFrom(error_to_message(not_open(query.topic)))
                continue
            slow = self._threads.refusal(query.topic)
            if slow is not None:
                answer.error.CopyFrom(error_to_message(slow))
                continue
            lookups += answer_query(query, answer, found[0], found[1])
        if not lookups:
            return response, []
        finish = partial(look_up, lookups, last_attempt=last_attempt)
        return response, await self._threads.run(finish)


def _answers_at_once(plan: FetchPlan) -> bool:
    """Whether waiting is of no use: there is an error, or more than one answer has, or the next
    offset moves on although there is no record."""
    if plan.error is not None or plan.end_offset < plan.readable_end:
        return True
    return not plan.files and not plan.runs and plan.offset < plan.end_offset
