"""The planner: where a query starts, how far a batch goes, and what counts as data loss."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.delta_log import Topics
from mainstem.delta_log.system import LOOK_KEY
from mainstem.delta_log.topics import SYSTEM, TRANSACTIONS_TABLE
from mainstem.errors import (
    InvalidConfigError,
    InvalidTopicError,
    LogDamagedError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedTableError,
)
from pyspark_mainstem._offsets import Offsets, TopicPartition
from pyspark_mainstem._options import SourceOptions
from pyspark_mainstem._planner import Planner
from pyspark_mainstem._range_plan import RangePlan

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stream(topic_log: TopicLog, clock: Clock) -> Iterator[Callable[..., Planner]]:
    """Makes planners of streaming queries."""
    made: list[Planner] = []

    def make(**options: str) -> Planner:
        if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
            options["subscribe"] = "a"
        parsed = SourceOptions.parse({"mainstem.warehouse": topic_log.uri, **options})
        made.append(Planner(parsed.for_stream(), monotonic=clock))
        return made[-1]

    yield make
    for planner in made:
        planner.close()


def _batch(topic_log: TopicLog, **options: str) -> list[RangePlan]:
    parsed = SourceOptions.parse({"mainstem.warehouse": topic_log.uri, "subscribe": "a", **options})
    planner = Planner(parsed.for_batch())
    try:
        return planner.plan_batch()
    finally:
        planner.close()


def _spans(plans: list[RangePlan]) -> list[tuple[str, int, int, int]]:
    return [(plan.topic, plan.partition, plan.start, plan.end) for plan in plans]


def _latest(planner: Planner, start: Offsets, limit: int | None = None) -> Offsets:
    return planner.latest(start, limit=limit, may_wait=True)


# -- where it starts -----------------------------------------------------------------------------


def test_a_new_stream_starts_at_the_end_and_its_first_batch_is_empty(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 2)
    topic_log.count_up("a", 0, 5)
    planner = stream()
    start = planner.initial()
    assert start == {A0: 5, A1: 0}
    topic_log.count_up("a", 0, 3)
    assert planner.initial() == start  # Spark asks again at every trigger until there is a batch
    assert _latest(planner, start) == start
    assert _latest(planner, start) == {A0: 8, A1: 0}
    assert _spans(planner.plan(start, {A0: 8, A1: 0})) == [("a", 0, 5, 8)]


def test_a_crash_in_the_first_batch_of_a_stream_from_latest_loses_nothing(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 5)
    before = stream()
    planned_end = _latest(before, before.initial())
    topic_log.count_up("a", 0, 3)
    # Spark has the end of the first batch in its checkpoint, but not its start: it asks for that
    # again.
    after = stream()
    assert after.plan(after.initial(), planned_end) == []
    assert _latest(after, planned_end) == {A0: 8}
    assert _spans(after.plan(planned_end, {A0: 8})) == [("a", 0, 5, 8)]


def test_a_stream_from_the_earliest_offset_starts_at_the_log_start(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 10, file_count=2)
    topic_log.trim("a", 0, 7)
    planner = stream(startingOffsets="earliest")
    assert planner.initial() == {A0: 7}
    assert _latest(planner, {A0: 7}) == {A0: 10}


def test_offsets_by_partition_may_say_earliest_and_latest(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 3)
    for partition in range(3):
        topic_log.count_up("a", partition, 5)
    planner = stream(startingOffsets='{"a":{"0":2,"1":-1,"2":-2}}')
    assert list(planner.initial().values()) == [2, 5, 0]


def test_offsets_for_some_partitions_only_are_refused(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 2)
    with pytest.raises(InvalidConfigError, match="Specified: a-0; assigned: a-0, a-1"):
        stream(startingOffsets='{"a":{"0":2}}').initial()


def test_a_timestamp_means_the_first_record_as_late_as_that(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 2)
    topic_log.count_up("a", 0, 10, file_count=5)
    topic_log.count_up("a", 1, 4)
    assert stream(startingTimestamp=str(START_MS + 2500)).initial() == {A0: 3, A1: 3}
    by_partition = f'{{"a":{{"0":{START_MS + 9000},"1":0}}}}'
    assert stream(startingOffsetsByTimestamp=by_partition).initial() == {A0: 9, A1: 0}


def test_a_timestamp_after_the_last_record_is_an_error_unless_latest_will_do(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 2)
    topic_log.count_up("a", 0, 10)
    topic_log.count_up("a", 1, 2)
    late = str(START_MS + 5000)
    with pytest.raises(OffsetOutOfRangeError, match="a-1 has no record with a timestamp of"):
        stream(startingTimestamp=late).initial()
    planner = stream(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert planner.initial() == {A0: 5, A1: 2}
    assert _latest(planner, {A0: 5, A1: 2}) == {A0: 5, A1: 2}  # it starts at an end: see above


def test_an_offset_outside_the_log_is_data_loss(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 10, file_count=2)
    topic_log.trim("a", 0, 5)
    for offset, nearest in ((2, 5), (11, 10)):
        named = f'{{"a":{{"0":{offset}}}}}'
        with pytest.raises(OffsetOutOfRangeError, match="has the offsets 5 to 10"):
            stream(startingOffsets=named).initial()
        assert stream(startingOffsets=named, failOnDataLoss="false").initial() == {A0: nearest}


# -- what it reads -------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_an_error_and_so_is_a_warehouse(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic 'a' in the warehouse"):
        stream().initial()
    with pytest.raises(InvalidTopicError):
        stream(subscribe="../etc").initial()


def test_a_pattern_must_match_the_whole_name(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    for topic in ("a", "ab", "abc", "b"):
        topic_log.create(topic)
    assert list(stream(subscribePattern="a.?").initial()) == [A0, TopicPartition("ab", 0)]
    assert stream(subscribePattern="none").initial() == {}


def test_a_pattern_over_a_broken_topic_names_it_and_the_pattern_without_it(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    for topic in ("a.b", "b", "mine"):
        topic_log.create(topic)
    newest = Path(topic_log.uri, "topics", "a.b", "_delta_log", f"{0:020}.json")
    newest.write_bytes(newest.read_bytes()[:-100])
    foreign = Path(topic_log.uri, "topics", "mine")
    shutil.rmtree(foreign)
    write_deltalake(foreign, pa.table({"x": [1]}))
    with pytest.raises(LogDamagedError, match=r"topic 'a\.b', which subscribePattern") as caught:
        stream(subscribePattern="a.*|[bm].*").initial()
    without = caught.value.message.rsplit(" ", 1)[1]
    with pytest.raises(
        UnsupportedTableError, match="topic 'mine', which subscribePattern"
    ) as other:
        stream(subscribePattern=without).initial()
    without = other.value.message.rsplit(" ", 1)[1]
    assert stream(subscribePattern=without).initial() == {B0: 0}


def test_assigned_partitions_alone_are_read(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 3)
    topic_log.create("b")
    assert stream(assign='{"a":[1],"b":[0]}').initial() == {A1: 0, B0: 0}
    with pytest.raises(UnknownPartitionError, match="partition 3 of topic 'a', which has 3"):
        stream(assign='{"a":[3]}').initial()


def test_new_partitions_and_new_topics_are_read_from_their_start(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    planner = stream(subscribePattern="[ab]", startingOffsets="earliest")
    start = planner.initial()
    assert start == {A0: 0}
    topic_log.create("b")
    topic_log.count_up("b", 0, 3)
    topic_log.add_partitions("a", 2)
    topic_log.count_up("a", 1, 4)
    end = _latest(planner, start)
    assert end == {A0: 0, A1: 4, B0: 3}
    assert _spans(planner.plan(start, end)) == [("a", 1, 0, 4), ("b", 0, 0, 3)]


def test_a_new_partition_that_has_lost_its_start_already_is_data_loss(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 2)
    topic_log.count_up("a", 1, 4, file_count=2)
    topic_log.trim("a", 1, 2)
    with pytest.raises(OffsetOutOfRangeError, match="a-1 is new to the query, and begins at"):
        _latest(stream(), {A0: 0})


def test_the_limit_of_a_trigger_is_kept_and_nothing_new_gives_the_start_again(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 2)
    topic_log.count_up("a", 0, 6)
    topic_log.count_up("a", 1, 3)
    planner = stream(startingOffsets="earliest")
    assert _latest(planner, {A0: 0, A1: 0}, limit=3) == {A0: 2, A1: 1}
    assert _latest(planner, {A0: 6, A1: 3}, limit=3) == {A0: 6, A1: 3}


def test_a_batch_waits_for_the_minimum_but_not_for_ever(
    topic_log: TopicLog, stream: Callable[..., Planner], clock: Clock
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 2)
    planner = stream(startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    start = planner.initial()
    assert _latest(planner, start) == {A0: 2}  # the first one does not wait, as Kafka's
    topic_log.count_up("a", 0, 2)
    assert _latest(planner, {A0: 2}) == {A0: 2}
    topic_log.count_up("a", 0, 3)
    assert _latest(planner, {A0: 2}) == {A0: 7}
    topic_log.count_up("a", 0, 1)
    assert _latest(planner, {A0: 7}) == {A0: 7}
    assert planner.latest({A0: 7}, limit=None, may_wait=False) == {A0: 8}
    clock.seconds += 10
    assert _latest(planner, {A0: 7}) == {A0: 8}


def test_available_now_ends_at_what_was_there_when_it_began(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 4)
    planner = stream(startingOffsets="earliest", minOffsetsPerTrigger="100")
    planner.prepare_available_now()
    topic_log.count_up("a", 0, 4)
    topic_log.add_partitions("a", 2)
    assert _latest(planner, planner.initial(), limit=3) == {A0: 3}
    assert _latest(planner, {A0: 3}, limit=3) == {A0: 4}
    assert _latest(planner, {A0: 4}, limit=3) == {A0: 4}


def test_available_now_from_latest_reads_nothing(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 4)
    planner = stream()
    planner.prepare_available_now()
    topic_log.count_up("a", 0, 4)
    start = planner.initial()
    assert _latest(planner, start) == start == _latest(planner, start)


# -- data loss -----------------------------------------------------------------------------------


def test_records_removed_before_they_were_read_are_data_loss(
    topic_log: TopicLog, stream: Callable[..., Planner], caplog: pytest.LogCaptureFixture
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 10, file_count=2)
    topic_log.trim("a", 0, 5)
    with pytest.raises(OffsetOutOfRangeError, match="3 records have been removed unread") as caught:
        _latest(stream(), {A0: 2})
    assert caught.value.facts["offset"] == "5"
    with pytest.raises(OffsetOutOfRangeError, match="log now starts at 5"):
        stream().plan({A0: 2}, {A0: 10})
    tolerant = stream(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert _latest(tolerant, {A0: 2}) == {A0: 10}
        assert _spans(tolerant.plan({A0: 2}, {A0: 10})) == [("a", 0, 5, 10)]
    assert caplog.text.count("failOnDataLoss is false, the query goes on") == 1


def test_a_topic_that_was_deleted_is_data_loss(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    strict, tolerant = stream(), stream(failOnDataLoss="false")
    pattern = stream(subscribePattern="a|b")
    for planner in (strict, tolerant, pattern):
        assert _latest(planner, {A0: 1}) == {A0: 3}
    topic_log.delete("a")
    topic_log.create("b")
    with pytest.raises(UnknownTopicError, match="there is no topic 'a'"):
        _latest(strict, {A0: 3})
    with pytest.raises(UnknownTopicError, match="the query was reading a-0, which is gone"):
        _latest(pattern, {A0: 3})
    with pytest.raises(UnknownTopicError, match="which is gone"):
        pattern.plan({A0: 1}, {A0: 3})
    assert _latest(tolerant, {A0: 3}) == {}
    assert tolerant.plan({A0: 3}, {}) == []


@pytest.mark.parametrize("new_count", [2, 3, 9])
def test_a_topic_created_again_while_the_query_runs_is_data_loss_whatever_its_length(
    topic_log: TopicLog, stream: Callable[..., Planner], new_count: int
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    strict, tolerant = stream(), stream(failOnDataLoss="false")
    for planner in (strict, tolerant):
        assert _latest(planner, {A0: 1}) == {A0: 3}
    topic_log.delete("a")
    topic_log.create("a")
    topic_log.count_up("a", 0, new_count)
    with pytest.raises(OffsetOutOfRangeError, match="deleted and created again while the query"):
        _latest(strict, {A0: 3})
    with pytest.raises(OffsetOutOfRangeError, match="deleted and created again while the query"):
        strict.plan({A0: 1}, {A0: 3})
    assert tolerant.plan({A0: 1}, {A0: 3}) == [], "its records are gone"
    assert _latest(tolerant, {A0: 3}) == {A0: 0}, "a batch without records leads to the new topic"
    assert tolerant.plan({A0: 3}, {A0: 0}) == []
    assert _latest(tolerant, {A0: 0}) == {A0: new_count}
    assert _spans(tolerant.plan({A0: 0}, {A0: new_count})) == [("a", 0, 0, new_count)]


def test_a_checkpoint_beyond_the_end_of_the_log_is_data_loss(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    with pytest.raises(OffsetOutOfRangeError, match="at offset 8 of a-0, but its log ends at 3"):
        _latest(stream(), {A0: 8})
    with pytest.raises(OffsetOutOfRangeError, match="the batch ends at offset 9 of a-0"):
        stream().plan({A0: 2}, {A0: 9})
    tolerant = stream(failOnDataLoss="false")
    assert _latest(tolerant, {A0: 8}) == {A0: 0}
    assert tolerant.plan({A0: 8}, {A0: 0}) == []
    assert _latest(tolerant, {A0: 0}) == {A0: 3}
    assert stream(failOnDataLoss="false").plan({A0: 2}, {A0: 9}) == []


def _available_now(
    make: Callable[[], Planner], start: Offsets, before: Callable[[str], None]
) -> tuple[list[RangePlan], Offsets]:
    """Drives planners as Spark does with `Trigger.AvailableNow`; returns what it reads, and the
    checkpoint. `before` is called with each step's name; "restart" at a step raises Restart.
    """
    planner = make()
    planner.prepare_available_now()
    read: list[RangePlan] = []
    for number in range(40):
        before(f"latest {number}")
        end = planner.latest(start, limit=6, may_wait=True)
        if end == start:
            return read, end
        try:
            before(f"plan {number}")
        except Restart:
            planner = make()
            planner.prepare_available_now()
        read += planner.plan(start, end)
        start = end
    raise AssertionError(f"the query does not end: {_spans(read)}")


class Restart(Exception):
    """The query ends here, and begins again from its checkpoint."""


@pytest.mark.parametrize(
    ("partition_count", "count", "step"),
    [
        (4, 5, "latest 2"),
        (4, 5, "plan 2"),
        (4, 0, "latest 2"),
        (4, 0, "plan 2"),
        (1, 30, "latest 2"),
        (1, 3, "plan 2"),
        (2, 6, "latest 2"),
        (2, 6, "plan 2"),
        (2, 30, "plan 2"),
    ],
)
def test_a_topic_created_again_during_available_now_is_read_once_and_the_query_ends(
    topic_log: TopicLog,
    stream: Callable[..., Planner],
    partition_count: int,
    count: int,
    step: str,
) -> None:
    _make_topic(topic_log, 2, 12)
    new_id = ""

    def recreate(now: str) -> None:
        nonlocal new_id
        if now == step:
            topic_log.delete("a")
            new_id = _make_topic(topic_log, partition_count, count)

    selection = {"subscribe": "a"} if count == 5 else {"subscribePattern": "[ab]"}

    def make() -> Planner:
        return stream(startingOffsets="earliest", failOnDataLoss="false", **selection)

    read, checkpoint = _available_now(make, {A0: 0, A1: 0}, recreate)
    end = {TopicPartition("a", partition): count for partition in range(partition_count)}
    assert checkpoint == end
    assert _offsets(read, new_id) == {where: list(range(count)) for where in end if count}


def _make_topic(topic_log: TopicLog, partition_count: int, count: int) -> str:
    """Topic `a` with so many records in each partition; returns its id."""
    topic_id = topic_log.create("a", partition_count)
    if count:
        records = [Record(b"x")] * count
        topic_log.append("a", *((partition, records) for partition in range(partition_count)))
    return topic_id


def _offsets(plans: list[RangePlan], topic_id: str) -> dict[TopicPartition, list[int]]:
    read: dict[TopicPartition, list[int]] = {}
    for plan in plans:
        if plan.topic_id == topic_id:
            where = TopicPartition(plan.topic, plan.partition)
            read.setdefault(where, []).extend(range(plan.start, plan.end))
    return read


@pytest.mark.parametrize("count", [0, 5, 12, 30])
def test_a_restart_on_the_way_into_a_new_topic_reads_it_once_all_the_same(
    topic_log: TopicLog, stream: Callable[..., Planner], count: int
) -> None:
    _make_topic(topic_log, 2, 12)
    new_id = ""

    def recreate(now: str) -> None:
        nonlocal new_id
        if now == "latest 2":
            topic_log.delete("a")
            new_id = _make_topic(topic_log, 2, count)
        if now in ("plan 2", "plan 3"):
            raise Restart

    def make() -> Planner:
        return stream(startingOffsets="earliest", failOnDataLoss="false")

    read, checkpoint = _available_now(make, {A0: 0, A1: 0}, recreate)
    assert checkpoint == {A0: count, A1: count}
    wanted = list(range(count))
    assert _offsets(read, new_id) == ({A0: wanted, A1: wanted} if count else {})


def test_an_assigned_partition_that_a_new_topic_does_not_have_is_data_loss(
    topic_log: TopicLog, stream: Callable[..., Planner]
) -> None:
    topic_log.create("a", 2)
    topic_log.count_up("a", 1, 2)
    strict, tolerant = (
        stream(assign='{"a":[0,1]}', failOnDataLoss=lose) for lose in ("true", "false")
    )
    for planner in (strict, tolerant):
        assert _latest(planner, {A0: 0, A1: 0}) == {A0: 0, A1: 2}
    topic_log.delete("a")
    topic_log.create("a")
    topic_log.count_up("a", 0, 2)
    with pytest.raises(UnknownPartitionError, match="partition 1 of topic 'a', which has 1"):
        _latest(strict, {A0: 0, A1: 2})
    assert _latest(tolerant, {A0: 0, A1: 2}) == {A0: 2}


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_file_missing_from_the_table_is_damage_not_a_shorter_batch(
    topic_log: TopicLog, stream: Callable[..., Planner], fail_on_data_loss: str
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9, file_count=3)
    topic_log.forget_file("a", 0, 1)
    planner = stream(failOnDataLoss=fail_on_data_loss)
    with pytest.raises(LogDamagedError, match="offset 3 of topic 'a', partition 0, is in no data"):
        planner.plan({A0: 0}, {A0: 9})
    with pytest.raises(LogDamagedError, match="offset 4 "):
        planner.plan({A0: 4}, {A0: 9})
    assert _spans(planner.plan({A0: 6}, {A0: 9})) == [("a", 0, 6, 9)]
    topic_log.forget_file("a", 0, 1)
    with pytest.raises(LogDamagedError, match="offset 3 "):
        planner.plan({A0: 0}, {A0: 9})


# -- batches -------------------------------------------------------------------------------------


def test_a_batch_reads_between_two_positions(topic_log: TopicLog) -> None:
    topic_log.create("a", 2)
    topic_log.count_up("a", 0, 10, file_count=3)
    topic_log.count_up("a", 1, 5)
    assert _spans(_batch(topic_log)) == [("a", 0, 0, 10), ("a", 1, 0, 5)]
    assert _spans(
        _batch(
            topic_log,
            startingOffsets='{"a":{"0":4,"1":-2}}',
            endingOffsets='{"a":{"0":-1,"1":2}}',
        )
    ) == [("a", 0, 4, 10), ("a", 1, 0, 2)]
    assert _spans(
        _batch(
            topic_log,
            startingTimestamp=str(START_MS + 2000),
            endingTimestamp=str(START_MS + 6000),
        )
    ) == [("a", 0, 2, 6), ("a", 1, 2, 5)]
    assert _spans(
        _batch(topic_log, endingOffsetsByTimestamp=f'{{"a":{{"0":{START_MS},"1":{2**52}}}}}')
    ) == [("a", 1, 0, 5)]


def test_a_batch_beyond_the_end_is_data_loss_and_one_that_ends_before_it_starts_is_empty(
    topic_log: TopicLog,
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 10)
    beyond = {"endingOffsets": '{"a":{"0":11}}'}
    with pytest.raises(OffsetOutOfRangeError, match="endingOffsets names offset 11 of a-0"):
        _batch(topic_log, **beyond)
    assert _spans(_batch(topic_log, **beyond, failOnDataLoss="false")) == [("a", 0, 0, 10)]
    assert _batch(topic_log, startingOffsets='{"a":{"0":6}}', endingOffsets='{"a":{"0":5}}') == []


def test_more_partitions_than_there_are_cut_at_the_beginning_of_files(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 100, file_count=10)
    plans = _batch(topic_log, minPartitions="4")
    assert _spans(plans) == [("a", 0, 0, 20), ("a", 0, 20, 50), ("a", 0, 50, 70), ("a", 0, 70, 100)]
    assert [len(plan.files) for plan in plans] == [2, 3, 2, 3]


def test_a_timestamp_is_found_after_a_log_start_inside_a_file(topic_log: TopicLog) -> None:
    topic_log.create("a")
    late = Record(b"late", timestamp_ms=START_MS + 9000)
    early = Record(b"early", timestamp_ms=START_MS)
    topic_log.append("a", (0, [late, early, early]), (0, [early, late]))
    assert _spans(_batch(topic_log, startingTimestamp=str(START_MS + 1))) == [("a", 0, 0, 5)]
    topic_log.trim("a", 0, 1)
    assert _spans(_batch(topic_log, startingTimestamp=str(START_MS + 1))) == [("a", 0, 4, 5)]


def test_a_consistent_batch_ends_at_versions_that_belong_together(
    topic_log: TopicLog,
) -> None:
    versions = {}
    for topic in ("a", "b", "c"):
        topic_log.create(topic)
        topic_log.count_up(topic, 0, 3)
        versions[topic] = topic_log.topics.open(topic).state.version
        topic_log.count_up(topic, 0, 2)
    # As the coordinator of transactions publishes them; no transaction has touched `c` lately.
    system = TopicLog(Path(topic_log.uri))
    system.topics = Topics(system.store, folder=SYSTEM)
    system.create(TRANSACTIONS_TABLE)
    pins = {topic: versions[topic] for topic in ("a", "b")}
    system.append(TRANSACTIONS_TABLE, (0, [Record(json.dumps({"pins": pins}).encode(), LOOK_KEY)]))
    system.close()
    ends = {"subscribe": "a,b,c"}
    assert {plan.topic: plan.end for plan in _batch(topic_log, **ends)} == {"a": 5, "b": 5, "c": 5}
    ends["mainstem.consistent"] = "true"
    assert {plan.topic: plan.end for plan in _batch(topic_log, **ends)} == {"a": 3, "b": 3, "c": 5}
    with pytest.raises(OffsetOutOfRangeError):
        _batch(topic_log, **ends, endingOffsets='{"a":{"0":5},"b":{"0":3},"c":{"0":5}}')
