"""Removing records from the front of a topic's partitions because somebody asked for it."""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.delta_log import Appender, TableState
from mainstem.delta_log.format import Action
from mainstem.delta_log.store import wall_clock_ms
from mainstem.delta_log.table import trim_step, trim_targets
from mainstem.errors import InvalidRecordError
from mainstem.ingest_gateway.topics.gateway_topics import GatewayTopics
from mainstem.protocol.v1 import admin_pb2


async def trim_prefix(
    topics: GatewayTopics, request: admin_pb2.TrimPrefixRequest
) -> admin_pb2.TrimPrefixResponse:
    """Answers a TrimPrefix.

    Raises:
        UnknownTopicError, UnknownPartitionError, OffsetOutOfRangeError, PolicyViolationError: What
            was asked cannot be done; nothing was.
        MainstemError: The store failed. Some of it may be done: asking again does the rest.
    """
    topic = request.topic
    trim = _Trim(topic, _offsets(request))
    if request.validate_only:
        return await topics.describe(topic, trim.answer)
    version = await topics.commit(topic, "TRIM PREFIX", trim.step, frees_space=True)
    # A commit removes so many files; each round moves the start over some more.
    while trim.moved:
        version = await topics.commit(topic, "TRIM PREFIX", trim.step, frees_space=True)
    return trim.response(version)


def _offsets(request: admin_pb2.TrimPrefixRequest) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for one in request.partitions:
        if one.partition in offsets:
            raise InvalidRecordError(
                f"partition {one.partition} of topic {request.topic!r} is named twice",
                topic=request.topic,
                partition=one.partition,
            )
        offsets[one.partition] = one.offset
    return offsets


class _Trim:
    """One request, over all its commits: what was asked means what it meant at the first."""

    def __init__(self, topic: str, offsets: Mapping[int, int]) -> None:
        self._topic = topic
        self._offsets = offsets
        self._before: dict[int, int] = {}
        self._targets: dict[int, int] = {}
        #: Whether the last step had something to commit.
        self.moved = False

    def step(self, state: TableState) -> list[Action]:
        """The actions of the next commit."""
        if not self._targets:
            self._look(state)
        actions = trim_step(state, self._targets, wall_clock_ms())
        self.moved = bool(actions)
        return actions

    def answer(self, state: TableState, _: Appender | None) -> admin_pb2.TrimPrefixResponse:
        """What would be answered."""
        self._look(state)
        return self.response(state.version)

    def response(self, version: int) -> admin_pb2.TrimPrefixResponse:
        response = admin_pb2.TrimPrefixResponse(table_version=version)
        for partition, target in self._targets.items():
            response.partitions.add(
                partition=partition,
                log_start_offset_before=self._before[partition],
                log_start_offset=target,
            )
        return response

    def _look(self, state: TableState) -> None:
        self._targets = trim_targets(state, self._topic, self._offsets)
        self._before = {partition: state.log_start_offset(partition) for partition in self._targets}
