"""Fetch and ListOffsets: what readers are answered, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from mainstem.config import GatewayConfig
from mainstem.errors import (
    BackPressureError,
    InvalidRecordError,
    MainstemError,
    OffsetOutOfRangeError,
    ShuttingDownError,
)
from mainstem.ingest_gateway.fetching import (
    Arrivals,
    FetchAnswer,
    FetchPlan,
    History,
    OffsetLookup,
    answer_query,
    as_ours,
    build_answer,
    check_count,
    columns_asked,
    look_up,
    partition_refusal,
)
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.reader_threads import SLOW_S, ReaderThreads
from mainstem.ingest_gateway.supervised import SupervisedTask
from mainstem.ingest_gateway.topics import (
    FOLLOW_INTERVAL_S,
    LED_CATCH_UP_INTERVAL_S,
    GatewayTopics,
)
from mainstem.limits import FETCH_FILES_MAX, FETCH_WAIT_MS_MAX, KIB
from mainstem.protocol import error_to_message, error_to_status
from mainstem.protocol.v1 import log_pb2

Context = grpc.aio.ServicerContext[Any, Any]
R = TypeVar("R")
T = TypeVar("T")

#: An answer of no more bytes, all from memory, is made on the loop: a thread would take longer.
_INLINE_BYTES_MAX: Final = 16 * KIB
_INLINE_PARTITIONS_MAX: Final = 8

#: A data file that was gone when it was read is looked for again in a newer state of its table. A
#: clean-up would have to overtake the same fetch again each time.
_ATTEMPTS_MAX: Final = 4

#: Topics that are followed at a time share this part of one core's time; a look at one takes about
#: `_LOOK_S`.
_FOLLOW_SHARE: Final = 0.25
_LOOK_S: Final = 0.001

_RETRY_DELAY_MS: Final = 100

#: Partitions that are planned in one step of the loop, in some milliseconds, and topics that are
#: looked at in the store at a time.
_PLANS_AT_ONCE: Final = 500
_LOOKS_AT_ONCE: Final = 20

#: A fetch of more partitions than that whose topics changed meanwhile is planned again after this.
_REPLAN_S: Final = 0.05

#: How long an answer waits for room: those that are made take less, or are found slow.
_ROOM_S: Final = 2 * SLOW_S

#: Times that a topic's state is asked for in one request: while somebody else brings it up to date,
#: or pushes it out, it cannot be used.
_LOOKS_MAX: Final = 20


class FetchService:
    """Serves `Fetch` and `ListOffsets`.

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
        self._metrics = metrics
        self._draining = draining
        self._bytes_max = config.number("fetch.max.bytes")
        self._requests_max = config.number("fetch.max.requests")
        self._unsent_bytes_max = config.number("fetch.queue.bytes")
        self._threads = threads
        self._topics = topics
        self._cache = arrivals.cache
        self._history = History()
        self._waiters = arrivals.waiters
        self._requests = 0
        self._unsent_bytes = 0
        #: What the answers that are being made may have.
        self._reserved_bytes = 0
        self._room_changed = asyncio.Event()
        self._followers: dict[str, _Follower] = {}

    @property
    def waiting(self) -> int:
        """Fetches that wait for records."""
        return len(self._waiters)

    def wake_all(self) -> None:
        """Answers the fetches that wait, with what there is."""
        self._waiters.wake_all()

    async def close(self) -> None:
        for follower in list(self._followers.values()):
            await follower.task.stop()
        self._history.clear()

    async def fetch(self, request: log_pb2.FetchRequest, context: Context) -> bytes:
        """The serialised answer to a Fetch."""
        try:
            answer = await self._counted(self._fetch, request)
        except Exception as failure:
            await context.abort_with_status(error_to_status(as_ours(failure)))
            raise
        for topic, served in answer.served.items():
            self._metrics.fetch_records.labels(topic).inc(served.record_count)
            self._metrics.fetch_bytes.labels(topic).inc(served.record_bytes)
        size = len(answer.data)  # counted by `_built`

        def sent(_: Context) -> None:
            self._unsent_bytes -= size
            self._room_changed.set()

        callback: Any = sent  # the stubs take it for an object with attributes
        context.add_done_callback(callback)
        return answer.data

    async def list_offsets(
        self, request: log_pb2.ListOffsetsRequest, context: Context
    ) -> log_pb2.ListOffsetsResponse:
        try:
            return await self._counted(self._list_offsets, request)
        except Exception as failure:
            await context.abort_with_status(error_to_status(as_ours(failure)))
            raise

    async def _counted(self, call: Callable[[R], Awaitable[T]], request: R) -> T:
        """Answers a request unless too many are under way."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        self._requests += 1
        try:
            return await call(request)
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

    async def _fetch(self, request: log_pb2.FetchRequest) -> FetchAnswer:
        check_count("partitions", len(request.partitions))
        columns = columns_asked(request.columns)
        if request.format not in log_pb2.FetchFormat.values():
            raise InvalidRecordError(f"there is no fetch format {request.format}")
        arrow = request.format != log_pb2.FETCH_FORMAT_RECORDS
        bytes_max = min(self._bytes_max, self._unsent_bytes_max)
        if request.max_bytes > 0:
            bytes_max = min(bytes_max, request.max_bytes)
        bytes_min = min(request.min_bytes, bytes_max)
        wait_s = min(max(request.max_wait_ms, 0), FETCH_WAIT_MS_MAX) / 1000
        clock = asyncio.get_running_loop().time
        ends_at = clock() + wait_s
        attempt = 1
        while True:
            plans, versions = await self._plans(request, bytes_max)
            missing = bytes_min - sum(plan.available_bytes for plan in plans)
            left_s = ends_at - clock()
            if (
                missing > 0
                and left_s > 0
                and not self._draining.is_set()
                and not any(_answers_at_once(plan) for plan in plans)
            ):
                if self._still(plans, versions):
                    await self._wait(plans, missing, left_s)
                else:
                    await asyncio.sleep(min(left_s, _REPLAN_S))
                continue
            answer = await self._built(
                plans, columns, bytes_max, arrow=arrow, last_attempt=attempt == _ATTEMPTS_MAX
            )
            if not answer.missing:
                return answer
            attempt += 1
            await self._look_again({plan.topic for plan in plans if plan.files})

    async def _wait(self, plans: Sequence[FetchPlan], bytes_missing: int, timeout_s: float) -> None:
        # No step of the loop lies between the plans and this: no commit is overlooked.
        for topic in {plan.topic for plan in plans}:
            self._follow(topic)
        await self._waiters.wait(
            ((plan.topic, plan.partition) for plan in plans), bytes_missing, timeout_s
        )

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
        await self._room_for(size_max)
        self._reserved_bytes += size_max
        with contextlib.ExitStack() as reserved:
            reserved.callback(self._give_back, size_max)
            if len(plans) <= _INLINE_PARTITIONS_MAX and size_max <= _INLINE_BYTES_MAX:
                answer = build()
            else:
                answer = await self._threads.run(
                    lambda reading: build(reading=reading),
                    # A store that hangs gives nothing: it is not to keep the room of others.
                    on_slow=reserved.close,
                )
        if not answer.missing:
            self._unsent_bytes += len(answer.data)
        return answer

    def _give_back(self, size_bytes: int) -> None:
        self._reserved_bytes -= size_bytes
        self._room_changed.set()

    async def _room_for(self, size_bytes: int) -> None:
        """Waits until an answer of this size may be made, beside those that are unread.

        Raises:
            BackPressureError: Slow readers leave no room for it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROOM_S):
                # What is being made may turn out smaller than it might be.
                while (
                    self._unsent_bytes < self._unsent_bytes_max
                    and (self._unsent_bytes or self._reserved_bytes)
                    and self._unsent_bytes + self._reserved_bytes + size_bytes
                    > self._unsent_bytes_max
                ):
                    self._room_changed.clear()
                    await self._room_changed.wait()
        used_bytes = self._unsent_bytes + self._reserved_bytes
        if used_bytes and used_bytes + size_bytes > self._unsent_bytes_max:
            raise BackPressureError(
                f"{used_bytes} bytes of answers wait for slow readers or are being made, and "
                f"fetch.queue.bytes is {self._unsent_bytes_max}; try again later",
                retry_delay_ms=_RETRY_DELAY_MS,
                limit_bytes=self._unsent_bytes_max,
            )

    def _still(self, plans: Sequence[FetchPlan], versions: dict[str, int]) -> bool:
        """Whether the plans of topics, made in several steps of the loop, are all still right."""
        return len(plans) <= _PLANS_AT_ONCE or versions == self._versions(versions)

    def _versions(self, topics: Iterable[str]) -> dict[str, int]:
        """The versions of the states that are known of the topics."""
        states = {topic: self._topics.current(topic, any_age=True) for topic in topics}
        return {topic: -1 if found is None else found[0].version for topic, found in states.items()}

    async def _plans(
        self, request: log_pb2.FetchRequest, bytes_max: int
    ) -> tuple[list[FetchPlan], dict[str, int]]:
        """What is known of each partition, and the version of each topic at the beginning.

        All at the same moment for `_PLANS_AT_ONCE` partitions or fewer.
        """
        topics = dict.fromkeys(asked.topic for asked in request.partitions)
        looked: set[str] = set()
        while True:
            errors = await self._up_to_date(topics)
            versions = {}
            if len(request.partitions) > _PLANS_AT_ONCE:
                versions = self._versions(topics)
            plans: list[FetchPlan] = []
            for number, asked in enumerate(request.partitions, start=1):
                plans.append(self._plan(asked, errors.get(asked.topic), bytes_max))
                if number % _PLANS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            # A client with an offset beyond the end may have it from a gateway that knows more.
            beyond = {
                plan.topic
                for plan in plans
                if isinstance(plan.error, OffsetOutOfRangeError)
                and plan.offset > plan.high_watermark
                and (plan.topic not in looked or self._topics.looking(plan.topic))
            }
            if not beyond:
                return plans, versions
            looked |= beyond
            # What fails here is found out again above, or does not matter.
            await asyncio.gather(
                *(self._topics.look(topic) for topic in beyond), return_exceptions=True
            )

    async def _up_to_date(self, topics: Iterable[str]) -> dict[str, MainstemError]:
        """Makes each topic's state ready for `GatewayTopics.current`; returns why one's is not."""
        errors: dict[str, MainstemError] = {}
        any_age = False
        missing: list[str] = []
        for _ in range(_LOOKS_MAX):
            missing = [
                topic
                for topic in topics
                if topic not in errors and self._topics.current(topic, any_age=any_age) is None
            ]
            if not missing:
                return errors
            # The second look takes what the first has brought, however long the others took.
            any_age = True
            outcomes: list[BaseException | None] = []
            for start in range(0, len(missing), _LOOKS_AT_ONCE):
                some = missing[start : start + _LOOKS_AT_ONCE]
                outcomes += await asyncio.gather(
                    *(self._topics.look(topic) for topic in some), return_exceptions=True
                )
            for topic, outcome in zip(missing, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    error = errors[topic] = as_ours(outcome)
                    # Frames and causes of thousands of them would keep the garbage collector busy.
                    error.__traceback__ = error.__context__ = error.__cause__ = None
                elif outcome is not None:
                    raise outcome
        errors.update((topic, _not_open(topic)) for topic in missing)
        return errors

    def _plan(
        self, asked: log_pb2.FetchPartition, error: MainstemError | None, bytes_max: int
    ) -> FetchPlan:
        topic, partition, offset = asked.topic, asked.partition, asked.offset
        if error is not None:
            return FetchPlan(topic, partition, offset=offset, error=error)
        found = self._topics.current(topic, any_age=True)
        if found is None:
            return FetchPlan(topic, partition, offset=offset, error=_not_open(topic))
        state, reader, led = found
        refusal = partition_refusal(state, reader, partition, asked.topic_id)
        if refusal is not None:
            return FetchPlan(topic, partition, offset=offset, error=refusal)
        start, end = state.log_start_offset(partition), state.log_end_offset(partition)
        plan = FetchPlan(
            topic,
            partition,
            topic_id=state.topic_id,
            log_start_offset=start,
            high_watermark=end,
            offset=offset,
            end_offset=end,
            tail_offset=end,
            bytes_max=min(asked.max_bytes, bytes_max) if asked.max_bytes > 0 else bytes_max,
            reader=reader,
        )
        if not start <= offset <= end:
            return plan.failed(
                OffsetOutOfRangeError(
                    f"offset {offset} of partition {partition} of topic {topic!r} is not in "
                    f"[{start}, {end}], from the log start offset to the high watermark",
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    log_start_offset=start,
                    high_watermark=end,
                )
            )
        if offset == end:
            return plan
        tail = end
        if led:
            tail = self._cache.start_offset(topic, state.topic_id, partition, end)
            # What keyed compaction removed is gone, although it may still be in memory.
            tail = max(tail, min(state.cleaned_offset(partition), end))
        if offset >= tail:
            tail = offset
            files = []
        else:
            files = state.files(partition).between(offset, tail, files_max=FETCH_FILES_MAX + 1)
        slow = self._threads.refusal(topic) if files else None
        if slow is not None:
            return plan.failed(slow)
        if len(files) > FETCH_FILES_MAX:
            files = files[:FETCH_FILES_MAX]
            end = tail = files[-1].last_offset + 1
        runs = []
        if tail < end:
            runs = self._cache.runs(topic, state.topic_id, partition, tail, plan.bytes_max)
            end = runs[-1].end_offset
        return replace(plan, end_offset=end, tail_offset=tail, files=tuple(files), runs=tuple(runs))

    async def _look_again(self, topics: Iterable[str]) -> None:
        """After a data file was gone: takes the newest states, whatever is known of the topics."""
        led = [topic for topic in topics if self._topics.is_leader(topic)]
        for topic in set(topics).difference(led):
            self._topics.unfollow(topic)
        # What fails here is found out again by the next look.
        await asyncio.gather(*(self._topics.look(topic) for topic in led), return_exceptions=True)

    # -- offsets by time -------------------------------------------------------------------------

    async def _list_offsets(
        self, request: log_pb2.ListOffsetsRequest
    ) -> log_pb2.ListOffsetsResponse:
        check_count("queries", len(request.queries))
        attempt = 1
        while True:
            response, outdated = await self._answers(request, last_attempt=attempt == _ATTEMPTS_MAX)
            if not outdated:
                return response
            attempt += 1
            await self._look_again(set(outdated))

    async def _answers(
        self, request: log_pb2.ListOffsetsRequest, *, last_attempt: bool
    ) -> tuple[log_pb2.ListOffsetsResponse, list[str]]:
        """Answers, and the topics whose files had gone when they were read."""
        errors = await self._up_to_date(dict.fromkeys(query.topic for query in request.queries))
        # What has to be read is read in one thread.
        response = log_pb2.ListOffsetsResponse()
        lookups: list[OffsetLookup] = []
        for number, query in enumerate(request.queries, start=1):
            if number % _PLANS_AT_ONCE == 0:
                await asyncio.sleep(0)
            answer = response.answers.add(topic=query.topic, partition=query.partition, offset=-1)
            error = errors.get(query.topic)
            if error is not None:
                answer.error.CopyFrom(error_to_message(error))
                continue
            found = self._topics.current(query.topic, any_age=True)
            if found is None:
                answer.error.CopyFrom(error_to_message(_not_open(query.topic)))
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

    # -- topics that somebody waits for ----------------------------------------------------------

    def _follow(self, topic: str) -> None:
        """Looks at the topic in the store while somebody waits for it."""
        follower = self._followers.get(topic)
        if follower is None:
            self._followers[topic] = _Follower(
                topic, self._topics.is_leader(topic), self._look_at, self._metrics
            )
        elif follower.was_led and not self._topics.is_leader(topic):
            follower.look_now.set()  # it looks too rarely for that

    async def _look_at(self, follower: _Follower) -> None:
        topic, seen = follower.topic, -1
        try:
            while not self._draining.is_set():
                interval_s = LED_CATCH_UP_INTERVAL_S if follower.was_led else FOLLOW_INTERVAL_S
                share_s = len(self._followers) * _LOOK_S / _FOLLOW_SHARE
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(interval_s, share_s)):
                        await follower.look_now.wait()
                follower.look_now.clear()
                if not self._waiters.waits_for(topic):
                    break
                await self._topics.look(topic)
                led = self._topics.is_leader(topic)
                if led != follower.was_led:
                    follower.was_led = led
                    self._waiters.changed(topic)
                if led:
                    continue  # what was looked at tells of itself
                found = self._topics.current(topic, any_age=True)
                if found is not None and found[0].version != seen:
                    seen = found[0].version
                    self._waiters.changed(topic)
        except MainstemError:
            pass  # the fetches that wait find out the same
        # In the same step in which nothing follows any more: a fetch that waits from now on sees
        # it.
        del self._followers[topic]
        self._waiters.changed(topic)


class _Follower:
    """Looks at one topic again and again, for the fetches that wait for it.

    Attributes:
        was_led: Whether the topic was led here at the last look.
        look_now: Set: it does not wait for the next time to look.
    """

    def __init__(
        self,
        topic: str,
        was_led: bool,
        look: Callable[[_Follower], Coroutine[Any, Any, None]],
        metrics: GatewayMetrics,
    ) -> None:
        self.topic = topic
        self.was_led = was_led
        self.look_now = asyncio.Event()
        self.task = SupervisedTask(
            "follow topic", lambda: look(self), metrics, returns=True, topic=topic
        )


def _not_open(topic: str) -> BackPressureError:
    return BackPressureError(
        f"topic {topic!r} cannot be kept open: too many topics are read here at a time; "
        "use another gateway",
        retry_delay_ms=_RETRY_DELAY_MS,
        topic=topic,
    )


def _answers_at_once(plan: FetchPlan) -> bool:
    """Whether waiting is of no use: there is an error, or more than one answer has, or the next
    offset moves on although there is no record."""
    if plan.error is not None or plan.end_offset < plan.high_watermark:
        return True
    return not plan.files and not plan.runs and plan.offset < plan.end_offset
