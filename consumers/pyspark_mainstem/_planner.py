"""Where a query starts, how far a batch goes, and which files it reads. No Spark in it.

One planner lives as long as its query. What a checkpoint asks for and the log cannot give is data
loss: an error, or with `failOnDataLoss=false` a warning and the first offset that is there.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from mainstem.delta_log import TableState
from mainstem.delta_log.files import offset_for_timestamp
from mainstem.delta_log.store import parse_warehouse
from mainstem.errors import (
    LogDamagedError,
    MainstemError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedTableError,
)
from pyspark_mainstem._filters import Wanted
from pyspark_mainstem._offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    TopicPartition,
    check_all_named,
    limit_rate,
)
from pyspark_mainstem._options import WAREHOUSE, Position, SourceOptions
from pyspark_mainstem._range_plan import RangePlan, plan_range
from pyspark_mainstem._tasks import split_ranges
from pyspark_mainstem._topic_tables import TopicTables

log = logging.getLogger(__name__)


class Planner:
    """Plans the batches of one query.

    Args:
        options: Of `for_batch` or `for_stream`.
        monotonic: Clock of `maxTriggerDelay`, in seconds.
    """

    def __init__(
        self,
        options: SourceOptions,
        tables: TopicTables | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._tables = tables or TopicTables(
            parse_warehouse(options.warehouse, WAREHOUSE, options.store)
        )
        self._monotonic = monotonic
        self._states: dict[str, TableState] = {}
        self._topic_ids: dict[str, str] = {}
        #: Topics whose offsets in the checkpoint count in an earlier topic of the same name.
        self._recreated: set[str] = set()
        self._initial: Offsets | None = None
        self._initial_moves = False
        self._empty_batch_due = False
        self._target: Offsets | None = None
        self._triggered_at: float | None = None
        self._warned: set[str] = set()

    def close(self) -> None:
        """Closes the tables."""
        self._tables.close()

    # -- streams ---------------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """Where a new query starts. The same answer for the life of the planner: Spark asks several
        times.
        """
        if self._initial is None:
            self._refresh(must_exist=True)
            position = self._options.starting
            assert position is not None
            self._initial_moves = position.kind == "latest" or LATEST in position.offsets.values()
            self._initial = self._resolve(position, ending=False)
            self._empty_batch_due = self._initial_moves
        return dict(self._initial)

    def prepare_available_now(self) -> None:
        """Fixes the end of the query: what is in the log now."""
        self._refresh(must_exist=False)
        self._target = self._ends()

    def latest(self, start: Offsets, *, limit: int | None, may_wait: bool) -> Offsets:
        """Where a batch that begins at `start` ends; `start` itself where there is nothing to do.

        Args:
            limit: About how many records at most.
            may_wait: Honour `minOffsetsPerTrigger`.
        """
        if self._empty_batch_due and start == self._initial:
            # The first batch of a query that starts at "latest" is empty, so that its starting
            # point is in the checkpoint before any record is read. Otherwise a crash before the end
            # of the first batch would ask for "latest" once more, and pass over what came in
            # between.
            self._empty_batch_due = False
            return start
        self._refresh(must_exist=False)
        ends = self._ends()
        for where in sorted(start.keys() - ends.keys()):
            self._lose(self._gone(where))
        self._note_beyond(start, "the query is at")
        begins = {where: self._begin(where, start.get(where)) for where in ends}
        moved = {w for w in begins if w.topic in self._recreated and start.get(w) != begins[w]}
        self._recreated.clear()
        if moved & start.keys():
            # A batch that reads nothing takes the checkpoint to the first offsets of the new topic.
            # Whatever comes between, a restart too, no offset of the old one is mistaken for one of
            # the new one then.
            return {w: begins[w] for w in sorted(moved | start.keys()) if w in begins}
        if self._target is not None:
            ends = {w: min(ends[w], end) for w, end in self._target.items() if w in ends}
        ends = {where: max(end, begins[where]) for where, end in ends.items()}
        begins = {where: begins[where] for where in ends}
        if may_wait and self._target is None and self._should_wait(begins, ends):
            return start
        return ends if limit is None else limit_rate(limit, begins, ends)

    def ends(self) -> Offsets:
        """The log end offsets as of the last look."""
        return self._ends()

    def plan(self, start: Offsets, end: Offsets) -> list[RangePlan]:
        """What to read for a batch from `start` to `end`, in order of topic, partition and offset.

        Raises:
            MainstemError: The range is not there in full; the message says what is missing.
        """
        self._refresh(must_exist=False)
        for where in sorted(start.keys() | end.keys()):
            if not self._has(where):
                self._lose(self._gone(where))
        self._note_beyond(end, "the batch ends at")
        ranges = []
        for where, last in sorted(end.items()):
            # What was planned in a topic that is another one now is gone; `latest` goes on in the
            # new one.
            if not self._has(where) or where.topic in self._recreated:
                continue
            # A batch that begins after its end reads nothing: it leads into a topic that was
            # created again, see `latest`; or it began at "latest", was empty, and is planned once
            # more after a restart.
            if last > start.get(where, -1):
                begin = self._begin(where, start.get(where))
                ranges.append(OffsetRange(where, begin, last))
        return self._plan_ranges(ranges)

    # -- batches ---------------------------------------------------------------------------------

    def plan_batch(self, wanted: Wanted | None = None) -> list[RangePlan]:
        """What to read for `spark.read`: from the starting to the ending position as of now.

        Args:
            wanted: What can be in the query's answer; other data files are not read.
        """
        wanted = wanted or Wanted()
        options = self._options
        assert options.starting is not None
        assert options.ending is not None
        self._refresh(must_exist=True)
        if options.consistent:
            self._states = self._tables.whole(self._states)
        start = self._resolve(options.starting, ending=False)
        end = self._resolve(options.ending, ending=True)
        ranges = [
            wanted.part_of(OffsetRange(where, start[where], end[where])) for where in sorted(start)
        ]
        return [plan for plan in self._plan_ranges(ranges, wanted) if plan.files]

    # -- what there is ---------------------------------------------------------------------------

    def _refresh(self, *, must_exist: bool) -> None:
        """Takes the newest state of every topic of the query."""
        options = self._options
        if options.pattern is None:
            topics = sorted({*options.topics, *(where.topic for where in options.assigned)})
        else:
            pattern = re.compile(options.pattern)
            topics = [name for name in self._tables.names() if pattern.fullmatch(name)]
        self._states = {}
        for topic in topics:
            state = self._state(topic)
            if state is not None:
                self._states[topic] = state
                if self._topic_ids.setdefault(topic, state.topic_id) != state.topic_id:
                    self._note_recreated(topic, state)
            elif options.pattern is None:
                missing = UnknownTopicError(
                    f"there is no topic {topic!r} in the warehouse {options.warehouse}", topic=topic
                )
                if must_exist:
                    raise missing
                self._lose(missing)
        for where in options.assigned:
            state = self._states.get(where.topic)
            if state is not None and where.partition >= state.partition_count:
                absent = UnknownPartitionError(
                    f"assign names partition {where.partition} of topic {where.topic!r}, which has "
                    f"{state.partition_count}",
                    topic=where.topic,
                    partition=where.partition,
                )
                if must_exist:
                    raise absent
                self._lose(absent)

    def _state(self, topic: str) -> TableState | None:
        try:
            return self._tables.get(topic)
        except LogDamagedError as error:
            pattern = self._options.pattern
            if pattern is None:
                raise
            unsupported = isinstance(error, UnsupportedTableError)
            raise (UnsupportedTableError if unsupported else LogDamagedError)(
                f"topic {topic!r}, which subscribePattern takes in, cannot be read: "
                f"{error.message}. To go on without it, subscribe to "
                f"(?!{re.escape(topic)}$)(?:{pattern})",
                topic=topic,
            ) from error

    def _partitions(self) -> list[TopicPartition]:
        if self._options.assigned:
            return [where for where in self._options.assigned if self._has(where)]
        return [
            TopicPartition(topic, partition)
            for topic, state in self._states.items()
            for partition in range(state.partition_count)
        ]

    def _ends(self) -> Offsets:
        return {
            where: self._states[where.topic].log_end_offset(where.partition)
            for where in self._partitions()
        }

    def _has(self, where: TopicPartition) -> bool:
        state = self._states.get(where.topic)
        return state is not None and where.partition < state.partition_count

    def _wants(self, where: TopicPartition) -> bool:
        return not self._options.assigned or where in self._options.assigned

    def _bounds(self, where: TopicPartition) -> tuple[int, int]:
        """Log start and log end offset."""
        state = self._states[where.topic]
        return state.log_start_offset(where.partition), state.log_end_offset(where.partition)

    # -- positions -------------------------------------------------------------------------------

    def _resolve(self, position: Position, *, ending: bool) -> Offsets:
        """The offset of each partition at a position that the options name."""
        partitions = self._partitions()
        if position.kind in ("offsets", "timestamps"):
            check_all_named(position.option, position.offsets, partitions)
        found: Offsets = {}
        for where in partitions:
            first, last = self._bounds(where)
            match position.kind:
                case "earliest":
                    found[where] = first
                case "latest":
                    found[where] = self._latest(where, last)
                case "timestamp":
                    found[where] = self._at(where, position.timestamp_ms, position.option, ending)
                case "timestamps":
                    found[where] = self._at(where, position.offsets[where], position.option, ending)
                case "offsets":
                    found[where] = self._named(where, position.offsets[where], position.option)
        return found

    def _latest(self, where: TopicPartition, last: int) -> int:
        return last if self._target is None else self._target.get(where, last)

    def _at(self, where: TopicPartition, timestamp_ms: int, option: str, ending: bool) -> int:
        offset = offset_for_timestamp(
            self._tables.store(where.topic),
            self._states[where.topic],
            where.partition,
            timestamp_ms,
        )
        if offset is not None:
            return offset
        if not ending and not self._options.latest_without_match:
            raise OffsetOutOfRangeError(
                f"{option}: {where} has no record with a timestamp of {timestamp_ms} ms or later; "
                "startingOffsetsByTimestampStrategy=latest starts at its end instead",
                topic=where.topic,
                partition=where.partition,
                timestamp_ms=timestamp_ms,
            )
        if not ending:
            self._initial_moves = True
        return self._latest(where, self._bounds(where)[1])

    def _named(self, where: TopicPartition, offset: int, option: str) -> int:
        first, last = self._bounds(where)
        if offset == EARLIEST:
            return first
        if offset == LATEST:
            return self._latest(where, last)
        if not first <= offset <= last:
            nearest = min(max(offset, first), last)
            self._lose(
                _out_of_range(
                    where,
                    f"{option} names offset {offset} of {where}, which has the offsets {first} to "
                    f"{last} (exclusive)",
                    nearest,
                )
            )
            return nearest
        return offset

    def _begin(self, where: TopicPartition, start: int | None) -> int:
        """The first offset to read of a partition whose checkpoint says `start`; None: it was not
        there yet.
        """
        first, _ = self._bounds(where)
        if start is None:
            if first > 0:
                self._lose(
                    _out_of_range(
                        where,
                        f"{where} is new to the query, and begins at offset {first} instead of 0: "
                        "what was before has been removed unread",
                        first,
                    )
                )
            return first
        if where.topic in self._recreated:
            return first
        if start < first:
            self._lose(
                _out_of_range(
                    where,
                    f"the query is at offset {start} of {where}, but its log now starts at "
                    f"{first}: "
                    f"{first - start} records have been removed unread",
                    first,
                )
            )
            return first
        return start

    def _note_recreated(self, topic: str, state: TableState) -> None:
        """Remembers that the checkpoint counts in an earlier topic of that name; what is in the new
        one now is what is left to read of it.
        """
        self._topic_ids[topic] = state.topic_id
        self._recreated.add(topic)
        if self._target is not None:
            others = {w: end for w, end in self._target.items() if w.topic != topic}
            self._target = others | {
                TopicPartition(topic, partition): state.log_end_offset(partition)
                for partition in range(state.partition_count)
                if self._wants(TopicPartition(topic, partition))
            }

    def _note_beyond(self, offsets: Offsets, what: str) -> None:
        """Loses the offsets of topics that are not what they were, by their ids or because the log
        does not reach as far. None of the topic's offsets counts then, as nobody can tell which
        would.
        """
        beyond = set()
        for where, offset in sorted(offsets.items()):
            if not self._has(where):
                continue
            first, last = self._bounds(where)
            if where.topic in self._recreated:
                reason = (
                    f"topic {where.topic!r} was deleted and created again while the query ran: "
                    f"offset {offset} of {where} belongs to the old one"
                )
            elif offset > last:
                beyond.add(where.topic)
                reason = (
                    f"{what} offset {offset} of {where}, but its log ends at {last}: the topic was "
                    "deleted and created again, its log was put back from an older copy, or the "
                    "checkpoint is of another warehouse"
                )
            else:
                continue
            self._lose(_out_of_range(where, reason, first))
        self._recreated |= beyond

    def _should_wait(self, begins: Offsets, ends: Offsets) -> bool:
        least = self._options.offsets_per_trigger_min
        if least is None:
            return False
        now = self._monotonic()
        waited_ms = None if self._triggered_at is None else (now - self._triggered_at) * 1000
        waiting = sum(ends[where] - begins[where] for where in ends)
        may_wait = waited_ms is not None and waited_ms < self._options.trigger_delay_ms_max
        if may_wait and waiting < least:
            return True
        self._triggered_at = now
        return False

    # -- ranges ----------------------------------------------------------------------------------

    def _plan_ranges(
        self, ranges: list[OffsetRange], wanted: Wanted | None = None
    ) -> list[RangePlan]:
        options = self._options
        boundaries = {}
        if options.partition_count_min is not None or options.records_per_partition_max is not None:
            boundaries = {
                one.topic_partition: [
                    file.base_offset
                    for file in self._states[one.topic_partition.topic]
                    .files(one.topic_partition.partition)
                    .between(one.start, one.end)
                ]
                for one in ranges
            }
        pieces = split_ranges(
            ranges, options.partition_count_min, options.records_per_partition_max, boundaries
        )
        return [plan_range(self._states[one.topic_partition.topic], one, wanted) for one in pieces]

    # -- data loss -------------------------------------------------------------------------------

    def _gone(self, where: TopicPartition) -> UnknownTopicError:
        return UnknownTopicError(
            f"the query was reading {where}, which is gone, or is not among the topics of the "
            "query any more",
            topic=where.topic,
            partition=where.partition,
        )

    def _lose(self, error: MainstemError) -> None:
        """Raises, or warns once and lets the query go on."""
        if self._options.fail_on_data_loss:
            raise error
        if error.message not in self._warned:
            self._warned.add(error.message)
            log.warning("failOnDataLoss is false, the query goes on: %s", error.message)


def _out_of_range(where: TopicPartition, what: str, go_on: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{what}. failOnDataLoss=false goes on from offset {go_on}",
        topic=where.topic,
        partition=where.partition,
        offset=go_on,
    )
