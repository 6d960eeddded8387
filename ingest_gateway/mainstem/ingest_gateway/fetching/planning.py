"""What each partition of a fetch can have: from the newest states of its topics to plans."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mainstem.errors import (
    BackPressureError,
    MainstemError,
    NotLeaderError,
    OffsetOutOfRangeError,
)
from mainstem.ingest_gateway.failures import as_ours
from mainstem.ingest_gateway.fetching.answer import FetchPlan
from mainstem.ingest_gateway.fetching.arrivals import Arrivals
from mainstem.ingest_gateway.fetching.refusals import offset_refusal, partition_refusal
from mainstem.ingest_gateway.fetching.tail_cache import CachedRun
from mainstem.ingest_gateway.reader_threads import ReaderThreads
from mainstem.ingest_gateway.topics import GatewayTopics
from mainstem.limits import FETCH_FILES_MAX
from mainstem.protocol.v1 import log_pb2

#: Partitions that are planned in one step of the loop, in some milliseconds, and topics that are
#: looked at in the store at a time.
PLANS_AT_ONCE: Final = 500
_LOOKS_AT_ONCE: Final = 20

#: Times that a topic's state is asked for in one request: while somebody else brings it up to date,
#: or pushes it out, it cannot be used.
_LOOKS_MAX: Final = 20

#: Looks at a topic before it is certain that it does not have an offset.
_LOOKS_SURE: Final = 2

_RETRY_DELAY_MS: Final = 100


class FetchPlanner:
    """On the event loop; the store is read in `threads`."""

    def __init__(self, topics: GatewayTopics, arrivals: Arrivals, threads: ReaderThreads) -> None:
        self._topics = topics
        self._cache = arrivals.cache
        self._durable_tail = arrivals.durable_tail
        self._threads = threads

    async def plans(
        self,
        request: log_pb2.FetchRequest,
        bytes_max: int,
        refused: Mapping[str, MainstemError],
    ) -> tuple[list[FetchPlan], dict[str, int]]:
        """What is known of each partition, and the version of each topic at the beginning.

        All at the same moment for `PLANS_AT_ONCE` partitions or fewer.

        Args:
            refused: Topics that are not looked at, and why.
        """
        topics = dict.fromkeys(
            asked.topic for asked in request.partitions if asked.topic not in refused
        )
        durable = request.visibility == log_pb2.VISIBILITY_DURABLE
        looked: Counter[str] = Counter()
        #: By topic, why it is not led here although an offset asks for that.
        refusals: dict[str, MainstemError] = {}
        while True:
            not_led = await self._lead(topics) if durable else {}
            errors = await self.up_to_date([topic for topic in topics if topic not in not_led])
            errors |= not_led
            errors.update(refused)
            versions = {}
            if len(request.partitions) > PLANS_AT_ONCE:
                versions = self._versions(topics)
            plans: list[FetchPlan] = []
            for number, asked in enumerate(request.partitions, start=1):
                plans.append(self._plan(asked, errors.get(asked.topic), bytes_max, durable))
                if number % PLANS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            # A client with an offset beyond the end, or an epoch that is not known here, may have
            # it from a gateway that knows more. The first look may have begun before it came.
            beyond = {
                plan.topic
                for plan in plans
                if isinstance(plan.error, OffsetOutOfRangeError)
                and plan.offset >= plan.log_start_offset
                and (looked[plan.topic] < _LOOKS_SURE or self._topics.looking(plan.topic))
            }
            if beyond:
                looked.update(beyond)
                # What fails here is found out again above, or does not matter.
                await asyncio.gather(
                    *(self._topics.look(topic) for topic in beyond), return_exceptions=True
                )
                continue
            unled = dict.fromkeys(plan.topic for plan in plans if _is_for_leader(plan))
            if unled.keys() <= refusals.keys():
                return [
                    plan.failed(refusals[plan.topic]) if _is_for_leader(plan) else plan
                    for plan in plans
                ], versions
            refusals |= {topic: _not_led(topic) for topic in unled} | await self._lead(unled)

    def still(self, plans: Sequence[FetchPlan], versions: dict[str, int]) -> bool:
        """Whether the plans of topics, made in several steps of the loop, are all still right."""
        return len(plans) <= PLANS_AT_ONCE or versions == self._versions(versions)

    def _versions(self, topics: Iterable[str]) -> dict[str, int]:
        """The versions of the states that are known of the topics."""
        states = {topic: self._topics.current(topic, any_age=True) for topic in topics}
        return {topic: -1 if found is None else found[0].version for topic, found in states.items()}

    async def _lead(self, topics: Iterable[str]) -> dict[str, MainstemError]:
        """Leads topics, for a reader of what is not in the table yet, or who has read that: only
        their leader knows it, and where nobody leads, it is in the write-ahead log of the last one.
        Returns why one of them is not led here."""
        missing = [topic for topic in topics if not self._topics.is_leader(topic)]
        return await _failures(missing, self._topics.lead)

    async def up_to_date(self, topics: Collection[str]) -> dict[str, MainstemError]:
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
            errors |= await _failures(missing, self._topics.look)
        errors.update((topic, not_open(topic)) for topic in missing)
        return errors

    async def look_again(self, topics: Iterable[str]) -> None:
        """After a data file was gone: takes the newest states, whatever is known of the topics."""
        led = [topic for topic in topics if self._topics.is_leader(topic)]
        for topic in set(topics).difference(led):
            self._topics.unfollow(topic)
        # What fails here is found out again by the next look.
        await asyncio.gather(*(self._topics.look(topic) for topic in led), return_exceptions=True)

    def _plan(
        self,
        asked: log_pb2.FetchPartition,
        error: MainstemError | None,
        bytes_max: int,
        durable: bool,
    ) -> FetchPlan:
        topic, partition, offset = asked.topic, asked.partition, asked.offset
        if error is not None:
            return FetchPlan(topic, partition, offset=offset, error=error)
        found = self._topics.current(topic, any_age=True)
        if found is None:
            return FetchPlan(topic, partition, offset=offset, error=not_open(topic))
        state, reader, led = found
        refusal = partition_refusal(state, reader, partition, asked.topic_id)
        if refusal is not None:
            return FetchPlan(topic, partition, offset=offset, error=refusal)
        if durable and not led:
            return FetchPlan(topic, partition, offset=offset, error=_not_led(topic))
        start, end = state.log_start_offset(partition), state.log_end_offset(partition)
        mark = end
        # Who has read past the high watermark under another leader is given more once the table
        # has told whether it is this log that it has read.
        if durable and (offset <= end or asked.leader_epoch in (0, -1, state.epoch)):
            mark = self._durable_tail.durable_mark(topic, state.topic_id, partition, end)
        leader = reader.leader if led else None
        plan = FetchPlan(
            topic,
            partition,
            topic_id=state.topic_id,
            log_start_offset=start,
            high_watermark=end,
            durable_mark=mark if durable else 0,
            # Who has read past the high watermark has an epoch of its own that is newer than that
            # of the table, or none: with that of the table it would be told later that the log was
            # put back from an older copy.
            leader_epoch=(
                state.partition_epoch(partition) if offset <= end else max(asked.leader_epoch, 0)
            ),
            offset=offset,
            end_offset=end,
            tail_offset=end,
            bytes_max=min(asked.max_bytes, bytes_max) if asked.max_bytes > 0 else bytes_max,
            reader=reader,
            known_at=None if led else reader.known_at,
        )
        accepted_end = 0 if leader is None else leader.log_end_offset(partition)
        refusal = offset_refusal(state, topic, partition, offset, asked.leader_epoch, accepted_end)
        if refusal is not None:
            return plan.failed(refusal)
        if offset >= mark:
            # There is no more: it waits. Most partitions of most fetches, so no copy without need.
            return plan if mark == end else replace(plan, end_offset=mark)
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
        runs: list[CachedRun] = []
        if tail < end:
            runs = self._cache.runs(topic, state.topic_id, partition, tail, plan.bytes_max)
            end = runs[-1].end_offset
        epoch = plan.leader_epoch
        if plan.high_watermark == end < mark:
            left = plan.bytes_max - sum(run.record_bytes for run in runs)
            more = self._durable_tail.runs(topic, state.topic_id, partition, max(offset, end), left)
            if more:
                runs += more
                end, epoch = more[-1].end_offset, state.epoch
        return replace(
            plan,
            leader_epoch=epoch,
            end_offset=end,
            tail_offset=tail,
            files=tuple(files),
            runs=tuple(runs),
        )


def _not_led(topic: str) -> NotLeaderError:
    return NotLeaderError(
        f"topic {topic!r} is not led here any more, and only its leader knows what is beyond the "
        "high watermark; ask for the leader again",
        topic=topic,
    )


def _is_for_leader(plan: FetchPlan) -> bool:
    """Whether only the topic's leader can tell that there is no such offset: it knows what is in
    its write-ahead log, from where a reader of the durable mark has it. Kafka: KIP-392."""
    beyond = isinstance(plan.error, OffsetOutOfRangeError) and plan.offset > plan.high_watermark
    return beyond and plan.known_at is not None


async def _failures(
    topics: Sequence[str], call: Callable[[str], Awaitable[object]]
) -> dict[str, MainstemError]:
    """Makes a call for each topic, some at a time; returns why it failed, where it did."""
    errors: dict[str, MainstemError] = {}
    for start in range(0, len(topics), _LOOKS_AT_ONCE):
        some = topics[start : start + _LOOKS_AT_ONCE]
        outcomes = await asyncio.gather(*map(call, some), return_exceptions=True)
        for topic, outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, Exception):
                error = errors[topic] = as_ours(outcome)
                # Frames and causes of thousands of them would keep the garbage collector busy, and
                # take long to free at once.
                error.__traceback__ = error.__context__ = error.__cause__ = None
            elif isinstance(outcome, BaseException):
                raise outcome
    return errors


def not_open(topic: str) -> BackPressureError:
    return BackPressureError(
        f"topic {topic!r} cannot be kept open: too many topics are read here at a time; "
        "use another gateway",
        retry_delay_ms=_RETRY_DELAY_MS,
        topic=topic,
    )
