"""What there is to measure of consumer groups, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mainstem.consumers.offsets_table import StoredOffset
from mainstem.delta_log import TableState
from mainstem.delta_log.committer import wall_clock_ms
from mainstem.ingest_gateway.group_coordination import GroupCoordination
from mainstem.ingest_gateway.topic_registry import TopicRegistry

#: Look-ups in one step of the event loop, some microseconds each.
_AT_ONCE = 500

#: A loop that does not come to it within this has worse to do: there are no ages this time.
_LOOP_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class _Unread:
    """A partition of a topic led here, of which a group has not committed all."""

    labels: tuple[str, str, str]
    state: TableState
    partition: int
    offset: int


class GroupMetrics(Collector):
    """Members, rebalances, committed offsets and lag of the groups coordinated here, when asked.

    Args:
        clock_ms: Wall clock.
    """

    def __init__(
        self,
        coordination: GroupCoordination,
        registry: TopicRegistry,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._coordination = coordination
        self._registry = registry
        self._clock_ms = clock_ms

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """In another thread, or on the event loop: copies what changes."""
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
            "Records after the committed offset, of topics led here.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "mainstem_consumer_group_lag_seconds",
            "Age of the first record after the committed offset, at most, of topics led here.",
            labels=labels,
        )
        running = self._coordination.running
        if running is not None:
            unread: list[_Unread] = []
            for name, group in list(running.coordinator.groups.items()):
                members.add_metric([name], len(group.members))
                rebalances.add_metric([name], group.rebalance_count)
            for name in sorted(running.table.groups):
                for one in list(running.table.offsets(name).values()):
                    values = (name, one.topic, str(one.partition))
                    committed.add_metric(values, one.offset)
                    state = self._state(one)
                    if state is None:
                        continue
                    behind = max(state.log_end_offset(one.partition) - one.offset, 0)
                    lag.add_metric(values, behind)
                    if behind:
                        unread.append(_Unread(values, state, one.partition, one.offset))
                    else:
                        age.add_metric(values, 0)
            for each, timestamp_ms in zip(
                unread, _first_timestamps(running.loop, unread), strict=False
            ):
                if timestamp_ms is not None:
                    age.add_metric(each.labels, max(self._clock_ms() - timestamp_ms, 0) / 1000)
        yield from (members, rebalances, committed, lag, age)

    def _state(self, offset: StoredOffset) -> TableState | None:
        """The topic's state, if it is led here and the one that the offset is of."""
        known = self._registry.leading(offset.topic)
        if known is None or known.appender is None:
            return None
        state = known.appender.state
        return state if state.topic_id == offset.topic_id else None


def _first_timestamps(
    loop: asyncio.AbstractEventLoop, unread: Sequence[_Unread]
) -> Iterator[int | None]:
    """The lowest timestamp of each one's data file; ends early if the event loop is too busy.

    The index of files changes on the event loop and is sorted when it is asked: it is asked there.
    """
    for start in range(0, len(unread), _AT_ONCE):
        some = unread[start : start + _AT_ONCE]
        if _runs_here(loop):
            yield from map(_first_timestamp_ms, some)
            continue
        found: Future[list[int | None]] = Future()

        def look(some: Sequence[_Unread] = some, found: Future[list[int | None]] = found) -> None:
            if found.set_running_or_notify_cancel():
                try:
                    found.set_result(list(map(_first_timestamp_ms, some)))
                except BaseException as error:
                    found.set_exception(error)

        try:
            loop.call_soon_threadsafe(look)
            yield from found.result(_LOOP_WAIT_S)
        except (TimeoutError, CancelledError, RuntimeError):  # RuntimeError: the loop has ended
            found.cancel()
            return


def _first_timestamp_ms(one: _Unread) -> int | None:
    """The lowest timestamp in the data file with the first record that was not read.

    The record's own is not lower. Both are of one commit, until compaction merges files.
    """
    start = max(one.offset, one.state.log_start_offset(one.partition))
    files = one.state.files(one.partition)
    # The record itself may have gone in a compaction: then the next one is meant.
    found = files.between(start, start + 1) or files.between(
        start, one.state.log_end_offset(one.partition)
    )
    return found[0].timestamp_ms_min if found else None


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
