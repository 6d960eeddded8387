"""What there is to measure of consumer groups, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mainstem.consumers.offset_rows import StoredOffset
from mainstem.consumers.progress import next_offset
from mainstem.delta_log import Appender, TableState
from mainstem.delta_log.store import wall_clock_ms
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.groups.coordination import GroupCoordination
from mainstem.ingest_gateway.topics import GatewayTopics

#: Look-ups in one step of the event loop, some microseconds each.
_AT_ONCE = 500

#: What was not found within this is left out. Prometheus itself gives up after 10 s.
_WAIT_S = 2.0

#: Group, topic and partition.
_Labels = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Lag:
    """How far a group is behind in a partition.

    Attributes:
        records: Offsets from the first that the group reads to the high watermark.
        since_ms: The lowest timestamp in the data file with the first of them; None: no record.
    """

    labels: _Labels
    records: int
    since_ms: int | None


class GroupMetrics(Collector):
    """Members, rebalances, committed offsets and lag of the groups coordinated here, when asked.

    Ask in another thread than the event loop's: lag is looked for there.

    Args:
        clock_ms: Wall clock.
    """

    def __init__(
        self,
        coordination: GroupCoordination,
        topics: GatewayTopics,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._coordination = coordination
        self._topics = topics
        self._clock_ms = clock_ms

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Copies what changes while it looks."""
        members = GaugeMetricFamily(
            "mainstem_consumer_group_members", "Members of a group.", labels=["group"]
        )
        rebalances = CounterMetricFamily(
            "mainstem_consumer_group_rebalances", "Changes of a group's target.", labels=["group"]
        )
        labels = ["group", "topic", "partition"]
        committed = GaugeMetricFamily(
            "mainstem_consumer_group_committed_offset", "The next offset to read.", labels=labels
        )
        lag = GaugeMetricFamily(
            "mainstem_consumer_group_lag_records",
            "Records that the group has not read.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "mainstem_consumer_group_lag_seconds",
            "Age of the first record that the group has not read, at most.",
            labels=labels,
        )
        running = self._coordination.running
        if running is not None:
            wanted: dict[str, list[tuple[_Labels, StoredOffset]]] = {}
            for name, group in list(running.coordinator.groups.items()):
                members.add_metric([name], len(group.members))
                rebalances.add_metric([name], group.rebalance_count)
            for name in sorted(running.table.groups):
                for one in list(running.table.offsets(name).values()):
                    values = (name, one.topic, str(one.partition))
                    committed.add_metric(values, one.offset)
                    wanted.setdefault(one.topic, []).append((values, one))
            for found in self._lags(running.loop, wanted):
                lag.add_metric(found.labels, found.records)
                if found.records == 0:
                    age.add_metric(found.labels, 0)
                elif found.since_ms is not None:
                    age_ms = max(self._clock_ms() - found.since_ms, 0)
                    age.add_metric(found.labels, age_ms / 1000)
        yield from (members, rebalances, committed, lag, age)

    def _lags(
        self,
        loop: asyncio.AbstractEventLoop,
        wanted: Mapping[str, Sequence[tuple[_Labels, StoredOffset]]],
    ) -> list[_Lag]:
        """What can be found in time: a busy loop or a slow store leaves the rest out."""
        found: list[_Lag] = []
        if not wanted:
            return found
        looking = self._look(wanted, found)
        try:
            future = asyncio.run_coroutine_threadsafe(looking, loop)
        except RuntimeError:  # the loop has ended
            looking.close()
            return found
        try:
            future.result(_WAIT_S)
        except (TimeoutError, CancelledError):
            future.cancel()
        return list(found)

    async def _look(
        self, wanted: Mapping[str, Sequence[tuple[_Labels, StoredOffset]]], found: list[_Lag]
    ) -> None:
        """On the event loop, where states change. Topics that are led here, which need no store,
        come first."""
        for topic in sorted(wanted, key=lambda topic: self._topics.leading(topic) is None):
            for start in range(0, len(wanted[topic]), _AT_ONCE):
                some = wanted[topic][start : start + _AT_ONCE]

                def view(
                    state: TableState,
                    _: Appender | None,
                    some: Sequence[tuple[_Labels, StoredOffset]] = some,
                ) -> list[_Lag]:
                    return _lags_in(state, some)

                try:
                    found += await self._topics.describe(topic, view)
                except MainstemError:
                    break  # it is gone, or cannot be read now
                await asyncio.sleep(0)


def _lags_in(state: TableState, offsets: Sequence[tuple[_Labels, StoredOffset]]) -> list[_Lag]:
    """The lags of offsets that are of this topic, and not of one of the same name before it."""
    found = []
    for labels, one in offsets:
        if one.topic_id == state.topic_id:
            first = next_offset(state, one)
            behind = state.log_end_offset(one.partition) - first
            since_ms = _since_ms(state, one.partition, first) if behind else None
            found.append(_Lag(labels, behind, since_ms))
    return found


def _since_ms(state: TableState, partition: int, offset: int) -> int | None:
    """The lowest timestamp in the data file with the first record at `offset` or later.

    The record's own is not lower. Both are of one commit, until compaction merges files.
    """
    files = state.files(partition)
    # The record itself may have gone in a compaction: then the next one is meant.
    end = state.log_end_offset(partition)
    found = files.between(offset, offset + 1) or files.between(offset, end, files_max=1)
    return found[0].timestamp_ms_min if found else None
