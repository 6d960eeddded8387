"""Keyed compaction against the policy in ten lines, and between appends, merges and readers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.length import FULL
from tests.unit.jobs.keyed_logs import EAGER, append_rows, run, survivors
from tests.unit.jobs.topic_tables import (
    NOW_MS,
    Appends,
    Record,
    all_records,
    check_verified,
)

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.table import OpenTopic
from mainstem.delta_log.topics import TOPICS
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import NOTHING, Plan, TableView
from mainstem.jobs.keyed_compaction import KeyedCompaction
from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._range_plan import plan_range
from pyspark_mainstem._range_reader import read_range

Rows = list[tuple[bytes | None, bytes | None]]

ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"", None]),
        st.sampled_from([b"1", b"2", b"", None, None]),
    ),
    min_size=1,
    max_size=8,
)

#: Small enough for a few keys: most runs end before the log does.
TINY_MAP_BYTES = 150


@contextmanager
def topic(**config: Any) -> Iterator[tuple[Topics, Appends]]:
    with tempfile.TemporaryDirectory() as directory:
        store = LocalStore(Path(directory))
        topics = Topics(store)
        topics.create("t", 1, {**EAGER, **config})
        log = Appends(topics.open("t"))
        try:
            yield topics, log
        finally:
            store.close()


class _Round(NamedTuple):
    """What happens before each compaction.

    Attributes:
        each: Records of a file.
        moved_ms: From now to the records' timestamps.
        merges: Ordered compaction comes in between.
        passes_ms: Until the compaction.
    """

    rows: Rows
    each: int
    moved_ms: int
    merges: bool
    passes_ms: int


ROUNDS = st.lists(
    st.builds(
        _Round,
        rows=ROWS,
        each=st.integers(1, 4),
        moved_ms=st.sampled_from([0, 0, -50, 50]),
        merges=st.booleans(),
        passes_ms=st.sampled_from([0, 20, 50]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40 if FULL else 15, deadline=None)
@given(
    ROUNDS,
    st.sampled_from([0, 30, 30, 1_000]),
    st.sampled_from([0, 0, 25]),
    st.sampled_from([0, 0, 25]),
    st.booleans(),
)
def test_what_is_left_is_what_the_policy_says(
    rounds: list[_Round], retention_ms: int, lag_ms: int, age_ms: int, tiny: bool
) -> None:
    config = {
        "delete.retention.ms": retention_ms,
        "min.compaction.lag.ms": lag_ms,
        "compaction.min.age.ms": age_ms,
    }
    job = KeyedCompaction(TINY_MAP_BYTES) if tiny else KeyedCompaction()
    with topic(**config) as (topics, log):
        store = log.opened.store
        now_ms = NOW_MS
        expected: list[Record] = []
        expiries_ms: dict[int, int] = {}
        for one in [*rounds, _Round([], 1, 0, False, 100)]:
            end = load_table(store).log_end_offset(0)
            append_rows(
                log,
                one.rows,
                each=one.each,
                modified_ms=now_ms,
                timestamp_ms=now_ms + one.moved_ms,
            )
            expected += [record for record in all_records(store)[0] if record.offset >= end]
            if one.merges:
                run(topics, now_ms, job=Compaction(min_age_ms=0))
            now_ms += one.passes_ms
            before = load_table(store).cleaned_offset(0)
            run(topics, now_ms, job=job)
            seen = load_table(store).cleaned_offset(0)
            for record in expected:
                if record.value is None and before <= record.offset < seen:
                    expiries_ms[record.offset] = now_ms + retention_ms
            expected = survivors(expected, seen, expiries_ms, now_ms)
            assert all_records(store)[0] == expected
            if not tiny:
                assert run(topics, now_ms, job=job) == NOTHING
        check_verified(store)
        if not tiny:
            assert load_table(store).cleaned_offset(0) == load_table(store).log_end_offset(0)


@dataclass
class _Cleaner:
    """A run of keyed compaction that stops between its steps."""

    opened: OpenTopic
    job: KeyedCompaction
    plan: Plan[Any]
    results: list[Any] = field(default_factory=list)

    def finish(self, now_ms: int) -> None:
        if not self.plan.nothing:
            self.job.commit(self.opened, self.plan, self.results, now_ms)


@dataclass
class _Reader:
    """Follows the log as the Spark source does, and keeps the newest value of each key."""

    position: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)

    def read(self, opened: OpenTopic) -> None:
        state = opened.state
        end = state.log_end_offset(0)
        plan = plan_range(state, OffsetRange(TopicPartition("t", 0), self.position, end))
        for batch in read_range(plan, ["offset", "key", "value"]):
            for row in batch.to_pylist():
                assert self.position <= row["offset"] < end
                self.position = row["offset"] + 1
                if row["value"] is None:
                    self.values.pop(row["key"], None)
                else:
                    self.values[row["key"]] = row["value"]
        self.position = end


@settings(max_examples=30 if FULL else 15, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), ROWS, st.integers(1, 4)),
            st.tuples(st.just("plan"), st.integers(0, 2)),
            st.tuples(st.just("work"), st.integers(0, 2)),
            st.tuples(st.just("commit"), st.integers(0, 2)),
            st.tuples(st.just("open"), st.integers(0, 2)),
            st.tuples(st.just("read"), st.integers(0, 2)),
            st.just(("merge",)),
        ),
        max_size=25,
    ),
    st.booleans(),
)
def test_cleaners_between_appends_merges_and_readers_lose_nothing(
    steps: list[Any], tiny: bool
) -> None:
    """Runs that overlap, each planned on an older table, and readers with old views."""
    job = KeyedCompaction(TINY_MAP_BYTES) if tiny else KeyedCompaction()
    with topic() as (topics, log):
        truth: dict[bytes, bytes] = {}
        cleaners: dict[int, _Cleaner] = {}
        views: dict[int, OpenTopic] = {}
        readers = {number: _Reader() for number in range(3)}
        ends = [(word, number) for word in ("work", "commit") for number in range(3)]
        for step in [*steps, *ends]:
            match step:
                case ("append", rows, each):
                    keyed = [(key, value) for key, value in rows if key is not None]
                    append_rows(log, keyed, each=each, modified_ms=NOW_MS)
                    for key, value in keyed:
                        truth.pop(key, None)
                        if value is not None:
                            truth[key] = value
                case ("plan", number) if number not in cleaners:
                    opened = topics.open("t")
                    view = TableView("t", TOPICS, opened.state)
                    cleaners[number] = _Cleaner(opened, job, job.plan(view, NOW_MS))
                case ("work", number) if number in cleaners and not cleaners[number].results:
                    one = cleaners[number]
                    one.results = [job.run_task(one.opened.store, t) for t in one.plan.tasks]
                case ("commit", number) if number in cleaners:
                    one = cleaners.pop(number)
                    if one.results or not one.plan.tasks:  # else its driver was killed
                        one.finish(NOW_MS)
                case ("open", number):
                    views[number] = topics.open("t")
                case ("read", number) if number in views:
                    if views[number].state.log_end_offset(0) >= readers[number].position:
                        readers[number].read(views[number])
                case ("merge",):
                    run(topics, NOW_MS, job=Compaction(min_age_ms=0))
        check_verified(log.opened.store)
        newest = topics.open("t")
        fresh = _Reader()
        for reader in (*readers.values(), fresh):
            reader.read(newest)
            assert reader.values == truth
