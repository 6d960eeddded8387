"""Where a consumer is: commits, positions, seeks and offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from mainstem import client
from mainstem.client import OFFSET_BEGINNING, OFFSET_END
from mainstem.compat.aiokafka.asked import AskedConsumer
from mainstem.compat.aiokafka.configuration import their_errors
from mainstem.compat.aiokafka.errors import KafkaTimeoutError
from mainstem.compat.aiokafka.structs import OffsetAndTimestamp, TopicPartition, to_ours


class PositionCalls(AskedConsumer):
    """Commits, positions, seeks and offsets."""

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commits everything that was handed out, or these offsets; durable when it returns.

        Args:
            offsets: By partition the next offset to read, or (offset, metadata).

        Raises:
            IllegalOperation: There is no group_id.
            CommitFailedError: Another member may have the partitions.
        """
        self._needs_group()
        given = None
        if offsets is not None:
            given = [commit_of(tp, at) for tp, at in dictionary(offsets, "offsets").items()]
        consumer = await self._ready()
        with their_errors():
            await consumer.commit(offsets=given)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed; None: none."""
        self._needs_group()
        consumer = await self._ready()
        with their_errors():
            (found,) = await consumer.committed([to_ours(partition)])
        return found.offset if found.offset >= 0 else None

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record.

        Raises:
            IllegalStateError: The partition is not assigned.
            KafkaTimeoutError: It was not known within request_timeout_ms.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._check_assigned(partition)
            consumer = await self._ready()
            with their_errors():
                (found,) = await consumer.position([to_ours(partition)])
            if found.offset >= 0:
                return found.offset
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"where {partition} begins was not known in time")
            await asyncio.sleep(0.01)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes on at `offset`.

        Raises:
            IllegalStateError: The partition is not assigned.
            ValueError: The offset is negative, or not an int.
        """
        if not _is_offset(offset):
            raise ValueError(f"the offset of {partition} is {offset!r}; it must be an int from 0")
        self._check_assigned(partition)
        self._asked.append(lambda consumer: consumer.seek(to_ours(partition, offset)))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Goes on at the first records, of these partitions or of all."""
        return await self._seek_all(partitions, OFFSET_BEGINNING)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Goes on behind the last records, of these partitions or of all."""
        return await self._seek_all(partitions, OFFSET_END)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Goes on at the committed offsets, which it returns, of these partitions or of all."""
        found = {}
        for tp in partitions or frozenset(self._assigned):
            self._check_assigned(tp)
            offset = found[tp] = await self.committed(tp)
            if offset is not None:
                self.seek(tp, offset)
        await self._ready()
        return found

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {tp: low for tp, (low, _) in (await self._watermarks(partitions)).items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return {tp: high for tp, (_, high) in (await self._watermarks(partitions)).items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each time, in ms; None where no record is that late.

        The timestamp of the answer is the one that was asked for.
        """
        for tp, at in dictionary(timestamps, "timestamps").items():
            if at < 0:
                raise ValueError(f"The target time for partition {tp} is {at} ms: it is negative")
        consumer = await self._ready()
        with their_errors():
            found = await consumer.offsets_for_times(
                [to_ours(tp, at) for tp, at in timestamps.items()]
            )
        return {
            tp: OffsetAndTimestamp(one.offset, at) if one.offset >= 0 else None
            for (tp, at), one in zip(timestamps.items(), found, strict=True)
        }

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset after the last record, as the last fetch told it; None: none has."""
        self._check_assigned(partition)
        if self._consumer is None:
            return None
        # Read past the lock: an int that a fetching thread replaces.
        found = self._consumer._consumer._partitions.assigned.get(to_ours(partition))
        return found.high_watermark if found is not None and found.high_watermark >= 0 else None

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The same as highwater(): what is not committed is not in the log."""
        return self.highwater(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When records were asked for last, in ms since 1970-01-01 UTC; None: never."""
        self._check_assigned(partition)
        return self._polled_at_ms

    async def _seek_all(self, partitions: Iterable[TopicPartition], at: int) -> bool:
        chosen = list(partitions) or list(self._assigned)
        for tp in chosen:
            self._check_assigned(tp)
        consumer = await self._ready()
        with their_errors():
            for tp in chosen:
                await consumer.seek(to_ours(tp, at))
        return True

    async def _watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        consumer = await self._ready()
        with their_errors():
            return {tp: await consumer.get_watermark_offsets(to_ours(tp)) for tp in partitions}


def _is_offset(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value >= 0


def dictionary(given: Any, name: str) -> Mapping[TopicPartition, Any]:
    """An argument that is a dictionary by partition; else a TypeError."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{name} is a {type(given).__name__}; it must be a dict whose keys are TopicPartitions"
        )
    return given


def commit_of(tp: TopicPartition, at: Any) -> client.TopicPartition:
    """An offset to commit, as mainstem.client takes it."""
    offset, metadata = at if isinstance(at, tuple) and len(at) == 2 else (at, "")
    metadata = metadata or ""
    if not _is_offset(offset) or not isinstance(metadata, str):
        raise ValueError(f"the offset of {tp} is {at!r}; it must be an int from 0 or (int, str)")
    return client.TopicPartition(to_ours(tp).topic, tp.partition, offset, metadata)
