"""Retention: which files go, where the log starts after, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.unit.delta_log.table_states import data_file, state_with
from tests.unit.jobs.topic_tables import (
    NOW_MS,
    Appends,
    all_records,
    appends,
    check_verified,
    heartbeat,
)

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.format import DataFile, Register, registers
from mainstem.delta_log.table import TableCommit, commit_beside_leader
from mainstem.delta_log.table import trimming as trimming_module
from mainstem.delta_log.topics import SYSTEM, TOPICS, altered_config
from mainstem.jobs import retention as retention_module
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import Counts, Job, JobOutcome, OutcomeKind, TableView
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.retention import UNLIMITED, Retention, expired
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool, TaskPool

HOUR = 3_600_000
DAY = 24 * HOUR


def no_pool() -> TaskPool:
    raise AssertionError("retention has no tasks: nothing needs a pool")


def run(
    store: LocalStore,
    job: Job[Any, Any] | None = None,
    now_ms: int = NOW_MS,
    alive_ms: int | None = NOW_MS,
) -> JobRun:
    """Runs a job on the topic `t`, at a moment, when a gateway was heard of at another."""
    if alive_ms is not None:
        heartbeat(store, alive_ms)
    (row,) = run_job(store.uri, job or Retention(), ["t"], pool=no_pool, clock_ms=lambda: now_ms)
    assert row.outcome.kind is not OutcomeKind.FAILED, row.outcome.error
    return row


def days(*ages: float) -> list[DataFile]:
    """Files of ten records and 100 bytes, each so many days old."""
    return [
        data_file(n * 10, 10, timestamp_ms=NOW_MS - int(age * DAY), modified_ms=NOW_MS)
        for n, age in enumerate(ages)
    ]


def gone(
    files: Sequence[DataFile],
    *,
    start: int = 0,
    end: int | None = None,
    retention_ms: int = 7 * DAY,
    retention_bytes: int = UNLIMITED,
) -> tuple[int, int]:
    """How many files go, and the log start offset then."""
    last = files[-1].last_offset + 1 if files else 0
    found = expired(
        files,
        start,
        last if end is None else end,
        now_ms=NOW_MS,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
    )
    assert list(found.files) == list(files[: len(found.files)])
    return len(found.files), found.log_start_offset


def test_files_whose_newest_record_is_too_old_go_from_the_front() -> None:
    assert gone(days(9, 8, 6, 1)) == (2, 20)
    assert gone(days(6, 5)) == (0, 0)
    assert gone([]) == (0, 0)


def test_a_file_that_is_exactly_as_old_as_allowed_stays() -> None:
    assert gone(days(7)) == (0, 0)
    assert gone(days(7.001)) == (1, 10)


def test_an_old_file_behind_a_young_one_stays() -> None:
    assert gone(days(9, 1, 9, 9)) == (1, 10)


def test_the_newest_file_goes_too_and_the_partition_is_empty() -> None:
    assert gone(days(9, 8)) == (2, 20)
    assert gone(days(9, 8), end=27) == (2, 27)


def test_without_a_limit_everything_stays() -> None:
    assert gone(days(9_999, 9_999), retention_ms=UNLIMITED) == (0, 0)


def test_a_record_from_the_future_expires_by_when_it_was_written() -> None:
    """Otherwise it would keep everything behind it for as long as it is ahead of its time."""
    ahead = data_file(0, 10, timestamp_ms=NOW_MS + 900 * DAY, modified_ms=NOW_MS - 8 * DAY)
    behind = data_file(10, 10, timestamp_ms=NOW_MS - 8 * DAY, modified_ms=NOW_MS - 8 * DAY)
    assert gone([ahead, behind]) == (2, 20)
    young = data_file(0, 10, timestamp_ms=NOW_MS + 900 * DAY, modified_ms=NOW_MS - 6 * DAY)
    assert gone([young, behind]) == (0, 0)


def test_a_file_of_a_leader_whose_clock_was_ahead_is_as_old_as_what_was_written_after_it() -> None:
    """Also by LogAppendTime, and several of them: they keep nothing that follows."""
    ahead_ms = NOW_MS + 900 * DAY
    files = [
        data_file(n * 10, 10, timestamp_ms=ahead_ms, modified_ms=ahead_ms + n) for n in range(3)
    ]
    old = data_file(30, 10, timestamp_ms=NOW_MS - 8 * DAY, modified_ms=NOW_MS - 8 * DAY)
    young = data_file(40, 10, timestamp_ms=NOW_MS, modified_ms=NOW_MS)
    assert gone([*files, old, young]) == (4, 40)
    assert gone([*files, young]) == (0, 0)
    assert gone(files) == (0, 0)


def test_records_that_came_late_expire_by_their_own_time() -> None:
    late = data_file(0, 10, timestamp_ms=NOW_MS - 8 * DAY, modified_ms=NOW_MS)
    assert gone([late]) == (1, 10)


@pytest.mark.parametrize(
    ("limit", "files", "start"),
    [(UNLIMITED, 0, 0), (400, 0, 0), (301, 0, 0), (300, 1, 10), (299, 1, 10), (0, 4, 40)],
)
def test_files_go_while_as_many_bytes_as_allowed_are_left(
    limit: int, files: int, start: int
) -> None:
    assert gone(days(0, 0, 0, 0), retention_bytes=limit) == (files, start)


def test_what_goes_by_time_does_not_count_for_the_size() -> None:
    assert gone(days(9, 9, 0, 0), retention_bytes=200) == (2, 20)
    assert gone(days(9, 9, 0, 0), retention_bytes=100) == (3, 30)


def test_what_is_too_old_behind_what_is_too_much_goes_in_the_same_run() -> None:
    assert gone(days(0, 9, 0, 0), retention_bytes=300) == (2, 20)
    assert gone(days(0, 9, 0, 0), retention_bytes=200) == (2, 20)
    assert gone(days(0, 0, 9, 0), retention_bytes=300) == (1, 10)


def test_a_start_inside_a_file_is_not_moved_back_by_what_goes_before_it() -> None:
    assert gone(days(9, 1), start=15) == (1, 15)
    assert gone(days(1, 1), start=15) == (1, 15)  # the first lies before the start


def test_holes_of_keyed_compaction_are_no_obstacle() -> None:
    old, young = days(9, 1)
    far = data_file(500, 1, timestamp_ms=young.timestamp_ms_max, modified_ms=NOW_MS)
    assert gone([old, far]) == (1, 10)


def _plan_lines(
    settings: Mapping[str, object], folder: str = TOPICS, ages: Sequence[float] = (9, 8, 1)
) -> list[str]:
    state = state_with(days(*ages), settings)
    view = TableView("t", folder, state)
    return [line.what for line in Retention().plan(view, NOW_MS).lines]


def _removed(what: str, age: int) -> str:
    """A line of a plan. A clock that is wrong is seen by the times in it."""
    return f"remove offsets {what}, the newest record of 2027-01-{15 - age:02}T08:00:00.000Z"


def test_a_plan_says_what_goes_and_why_and_from_when_it_is() -> None:
    assert _plan_lines({"retention.bytes": 0}) == [
        _removed("0 to 19 (retention.ms)", 8),
        _removed("20 to 29 (retention.bytes)", 1),
    ]


def test_a_plan_has_a_line_for_each_stretch_of_one_reason() -> None:
    assert _plan_lines({"retention.bytes": 100}, ages=(8, 1, 9, 1)) == [
        _removed("0 to 9 (retention.ms)", 8),
        _removed("10 to 19 (retention.bytes)", 1),
        _removed("20 to 29 (retention.ms)", 9),
    ]


def test_a_topic_that_is_only_compacted_keeps_everything() -> None:
    assert _plan_lines({"cleanup.policy": "compact"}) == []
    assert len(_plan_lines({"cleanup.policy": "compact,delete"})) == 1


def test_a_table_of_the_platform_keeps_everything_unless_it_says_how_long() -> None:
    assert _plan_lines({}, SYSTEM) == []
    assert len(_plan_lines({"retention.ms": DAY}, SYSTEM)) == 1


def _aged(topics: Topics, *ages_h: float, **config: int) -> Appends:
    """The topic `t` with two records in partition 0 for each age in hours; 1 stays empty."""
    log = appends(topics, "t", 2, **config)
    for age in ages_h:
        time_ms = NOW_MS - int(age * HOUR)
        log.append(0, [b"a", b"b"], timestamps_ms=[time_ms, time_ms - 1], modified_ms=time_ms)
    return log


def test_a_run_moves_the_start_and_leaves_the_end_and_every_other_record(
    store: LocalStore, topics: Topics
) -> None:
    log = _aged(topics, 5, 4, 1, retention_ms=2 * HOUR)
    before = all_records(log.opened.store)
    row = run(store)
    assert (row.outcome.kind, row.outcome.before.files) == (OutcomeKind.OK, 2)
    assert (row.outcome.before.records, row.outcome.after) == (4, Counts())
    state = load_table(log.opened.store)
    assert [(state.log_start_offset(p), state.log_end_offset(p)) for p in (0, 1)] == [
        (4, 6),
        (0, 0),
    ]
    assert all_records(log.opened.store) == {0: before[0][4:], 1: []}
    check_verified(log.opened.store)
    assert run(store).outcome.kind is OutcomeKind.NOTHING


def test_a_topic_without_traffic_is_emptied_and_goes_on_where_it_ended(
    store: LocalStore, topics: Topics
) -> None:
    log = _aged(topics, 5, 4, retention_ms=2 * HOUR)
    run(store)
    state = load_table(log.opened.store)
    assert (state.file_count, state.log_start_offset(0), state.log_end_offset(0)) == (0, 4, 4)
    check_verified(log.opened.store)
    log.append(0, [b"new"])
    assert [one.offset for one in all_records(log.opened.store)[0]] == [4]
    check_verified(log.opened.store)


@pytest.mark.parametrize("alive_h", [None, 1])
@pytest.mark.parametrize("ahead_ms", [2 * DAY, 365 * DAY])
def test_a_clock_that_is_ahead_takes_nothing_that_is_younger_than_half_of_its_time(
    store: LocalStore, topics: Topics, ahead_ms: int, alive_h: int | None
) -> None:
    log = _aged(topics, 26, 18, 14, 8, 1, 0, retention_ms=24 * HOUR)
    alive_ms = None if alive_h is None else NOW_MS - alive_h * HOUR
    row = run(store, now_ms=NOW_MS + ahead_ms, alive_ms=alive_ms)
    assert row.outcome.before.files == 3  # older than twelve hours
    again = run(store, now_ms=NOW_MS + ahead_ms + DAY, alive_ms=alive_ms)
    assert again.outcome.kind is OutcomeKind.NOTHING
    assert load_table(log.opened.store).log_start_offset(0) == 6
    # With a gateway that says the same, it is the time.
    run(store, now_ms=NOW_MS + ahead_ms, alive_ms=NOW_MS + ahead_ms)
    assert load_table(log.opened.store).file_count == 0
    check_verified(log.opened.store)


def test_a_clock_is_believed_by_a_day_at_most_and_by_ten_minutes_at_least(
    store: LocalStore, topics: Topics
) -> None:
    far_ms = NOW_MS + 365 * DAY
    log = _aged(topics, 6.5 * 24, 5 * 24, 0, retention_ms=7 * DAY)
    assert run(store, now_ms=far_ms, alive_ms=None).outcome.before.files == 1
    _set_retention(log, 1)
    log.append(0, [b"v"], timestamps_ms=[NOW_MS + 1], modified_ms=NOW_MS + 1)
    assert run(store, now_ms=NOW_MS + 2, alive_ms=None).outcome.before.files == 2
    assert load_table(log.opened.store).file_count == 1


def test_many_files_go_in_several_commits(
    store: LocalStore, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _aged(topics, 9, 8, 7, 6, 5, 1, retention_ms=2 * HOUR)
    monkeypatch.setattr(trimming_module.trim_step, "__defaults__", (2,))
    row = run(store)
    assert (row.outcome.before, row.outcome.attempts) == (
        Counts(5, 10, row.outcome.before.bytes),
        3,
    )
    assert load_table(log.opened.store).log_start_offset(0) == 10
    check_verified(log.opened.store)


def test_a_run_by_what_was_true_at_the_plan_keeps_what_a_setting_keeps_now(
    store: LocalStore, topics: Topics
) -> None:
    log = _aged(topics, 5, 1, retention_ms=2 * HOUR)
    job, opened = Retention(), topics.open("t")
    plan = job.plan(TableView("t", TOPICS, opened.state), NOW_MS)
    assert not plan.nothing
    _set_retention(log, 9 * HOUR)
    assert job.commit(opened, plan, (), NOW_MS) == JobOutcome(
        OutcomeKind.SUPERSEDED, error="what was to go is gone, or is to stay by now"
    )


def test_files_that_were_merged_after_the_plan_go_by_what_they_are_now(
    store: LocalStore, topics: Topics
) -> None:
    log = _aged(topics, 5, 4, 3, 1, retention_ms=2 * HOUR)
    job, opened = Retention(), topics.open("t")
    plan = job.plan(TableView("t", TOPICS, opened.state), NOW_MS)
    _set_retention(log, -1)
    merge = Compaction(min_age_ms=0)
    run_job(store.uri, merge, ["t"], pool=lambda: InProcessPool(1), clock_ms=lambda: NOW_MS)
    _set_retention(log, 2 * HOUR)
    assert load_table(log.opened.store).file_count == 1
    # The newest record of the merged file is an hour old.
    assert job.commit(opened, plan, (), NOW_MS).kind is OutcomeKind.SUPERSEDED
    heartbeat(store, NOW_MS + 2 * HOUR)
    job.begin(store)
    assert job.commit(opened, plan, (), NOW_MS + 2 * HOUR).before.files == 1
    assert load_table(log.opened.store).log_start_offset(0) == 8


def test_a_compaction_does_not_make_a_record_from_the_future_young_again(
    store: LocalStore, topics: Topics
) -> None:
    log = appends(topics, retention_ms=2 * HOUR)
    written_ms = NOW_MS - 5 * HOUR
    for _ in range(2):
        log.append(0, [b"v"], timestamps_ms=[NOW_MS + 900 * DAY], modified_ms=written_ms)
    run_job(
        store.uri,
        Compaction(min_age_ms=0),
        ["t"],
        pool=lambda: InProcessPool(1),
        clock_ms=lambda: NOW_MS,
    )
    assert load_table(log.opened.store).file_count == 1
    assert run(store).outcome.before.files == 1


def _set_retention(log: Appends, retention_ms: int) -> None:
    _commit(log, altered_config(log.opened.state, {"retention.ms": retention_ms}, []))


def _commit(log: Appends, *actions: object) -> None:
    def build(_: object) -> TableCommit:
        return TableCommit.of("OTHER", actions, timestamp_ms=NOW_MS)  # type: ignore[arg-type]

    assert commit_beside_leader(log.opened, build) is not None


def test_files_that_lie_before_a_start_that_somebody_set_go(
    store: LocalStore, topics: Topics
) -> None:
    log = _aged(topics, 1, 1, 1)
    _commit(log, Register(registers.lso(0), 3))
    assert run(store).outcome.before.files == 1
    state = load_table(log.opened.store)
    assert (state.log_start_offset(0), state.file_count) == (3, 2)
    check_verified(log.opened.store)


def test_a_writer_of_old_records_does_not_keep_a_run_going(
    store: LocalStore, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _aged(topics, 5, 4, retention_ms=2 * HOUR)
    commits = 0

    def beside_a_writer(*arguments: Any) -> Any:
        nonlocal commits
        commits += 1
        assert commits < 9
        log.append(0, [b"old"], timestamps_ms=[NOW_MS - 9 * HOUR], modified_ms=NOW_MS)
        return commit_beside_leader(*arguments)

    monkeypatch.setattr(retention_module, "commit_beside_leader", beside_a_writer)
    assert run(store).outcome.before.files == 3
    state = load_table(log.opened.store)
    assert (state.log_start_offset(0), state.log_end_offset(0)) == (5, 6)
    check_verified(log.opened.store)
