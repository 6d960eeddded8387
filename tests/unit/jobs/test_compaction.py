"""Compaction: which files it takes, and that every record stays as it was."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.jobs.topic_tables import (
    NOW_MS,
    Appends,
    all_records,
    appends,
    check_verified,
    file_count,
)

from mainstem.delta_log import LocalStore, OpenTopic, Topics, load_table, read_data_file
from mainstem.delta_log.files import write_data_files
from mainstem.delta_log.format import DataFile, Register, Remove, registers
from mainstem.delta_log.table import (
    BESIDE_LEADER,
    TableCommit,
    blocking_commits,
    commit_beside_leader,
    read_commit,
    replace_files,
)
from mainstem.delta_log.topics import TOPICS
from mainstem.errors import LogDamagedError
from mainstem.jobs.compaction import Compaction, Merge, Merged, plan_runs
from mainstem.jobs.job import Counts, JobOutcome, OutcomeKind, Plan, TableView
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.limits import KIB, MIB

TARGET = 128 * MIB


def _files(*sizes: float, modified_ms: int = 0, first_offset: int = 0) -> list[DataFile]:
    """Files of ten records and so many MiB each."""
    return [
        DataFile(f"{n}.parquet", 0, n * 10, n * 10 + 9, 10, int(size * MIB), 1, 2, modified_ms)
        for n, size in enumerate(sizes, start=first_offset)
    ]


def _runs(files: Sequence[DataFile], target_bytes: int = TARGET) -> list[list[str]]:
    runs = plan_runs(files, target_bytes=target_bytes, not_after_ms=100)
    return [[file.path.removesuffix(".parquet") for file in run] for run in runs]


def test_small_files_that_follow_each_other_become_one_run() -> None:
    assert _runs(_files(1, 1, 1, 1)) == [["0", "1", "2", "3"]]
    assert _runs([]) == []


def test_a_single_file_has_nothing_to_be_merged_with() -> None:
    assert _runs(_files(1)) == []
    assert _runs(_files(1, 100, 1, 100, 1)) == []


def test_files_of_half_the_target_and_more_are_left_alone_and_part_the_runs() -> None:
    assert _runs(_files(1, 1, 64, 1, 1, 300, 1)) == [["0", "1"], ["3", "4"]]
    assert _runs(_files(63, 63)) == [["0", "1"]]
    assert _runs(_files(64, 64, 64)) == []


def test_a_young_file_is_left_alone_wherever_it_is() -> None:
    young = _files(1, modified_ms=101, first_offset=2)
    files = [*_files(1, 1), *young, *_files(1, 1, first_offset=3, modified_ms=100)]
    assert _runs(files) == [["0", "1"], ["3", "4"]]


def test_a_file_is_not_rewritten_for_less_than_half_of_what_it_has_itself() -> None:
    assert _runs(_files(10, 1, 1)) == [["1", "2"]]
    assert _runs(_files(10, 3, 3)) == [["0", "1", "2"]]
    assert _runs(_files(1, 1, 11, 1, 1, 1)) == [["0", "1"], ["3", "4", "5"]]
    assert _runs(_files(54, 18, 6, 2)) == [], "each has three times what comes after it"
    assert _runs(_files(1, 0.01)) == [["0", "1"]], "a MiB costs nothing"


def test_a_long_run_is_cut_into_tasks_and_no_task_has_a_single_file() -> None:
    runs = _runs(_files(*[1.0] * 33), target_bytes=4 * MIB)
    assert [len(run) for run in runs] == [33], "the last file is not left alone"
    runs = _runs(_files(*[1.0] * 100), target_bytes=4 * MIB)
    assert [len(run) for run in runs] == [33, 33, 34]
    assert [name for run in runs for name in run] == [str(n) for n in range(100)]


def test_a_run_of_very_many_files_is_cut_to_what_a_commit_may_remove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainstem.jobs.compaction.COMMIT_FILES_MAX", 10)
    assert [len(run) for run in _runs(_files(*[0.001] * 31))] == [10, 10, 11]


def test_files_of_different_windows_of_time_stay_apart_and_a_second_plan_finds_nothing() -> None:
    files = [
        replace(file, timestamp_ms_max=time_ms, modified_ms=50)
        for file, time_ms in zip(_files(1, 1, 1, 1, 1, 1), (3, 9, 10, 19, 99, 60), strict=True)
    ]
    runs = plan_runs(files, target_bytes=TARGET, not_after_ms=100, window_ms=10)
    # The last two count from when they were written, 50.
    names = [[file.path[0] for file in run] for run in runs]
    assert names == [["0", "1"], ["2", "3"], ["4", "5"]]
    merged = [replace(run[0], timestamp_ms_max=run[-1].timestamp_ms_max) for run in runs]
    assert plan_runs(merged, target_bytes=TARGET, not_after_ms=100, window_ms=10) == []


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({}, 1),
        ({"retention_ms": 8 * 3_600_000}, 2),
        ({"retention_ms": 8 * 3_600_000, "cleanup_policy": "compact"}, 1),
        ({"retention_bytes": 8 * 4096 * KIB}, 1),
    ],
)
def test_what_retention_keeps_stays_in_parts_that_it_can_remove(
    topics: Topics, settings: dict[str, object], runs: int
) -> None:
    log = appends(topics, "t", 1, **settings)
    for hour in (9, 9, 7, 7):
        time_ms = NOW_MS - hour * 3_600_000
        log.append(0, [b"v"], timestamps_ms=[time_ms], modified_ms=time_ms)
    plan = _plan(Compaction(), log.opened)
    assert len(plan.tasks) == runs
    limit = int(str(settings.get("retention_bytes", 8 * TARGET)))
    assert {task.target_bytes for task in plan.tasks} == {limit // 8}


def _plan(job: Compaction, opened: OpenTopic, now_ms: int = NOW_MS + 60_000) -> Plan[Merge]:
    return job.plan(TableView("t", TOPICS, load_table(opened.store)), now_ms)


def _run(job: Compaction, opened: OpenTopic, plan: Plan[Merge]) -> JobOutcome:
    # As Spark does: there and back as bytes.
    there: Plan[Merge] = pickle.loads(pickle.dumps(plan))
    results = [job.run_task(opened.store, task) for task in there.tasks]
    back: list[Merged] = pickle.loads(pickle.dumps(results))
    return job.commit(opened, plan, back, NOW_MS)


def _mixed(topics: Topics) -> Appends:
    """A topic with all kinds of records in eight small files."""
    table = appends(topics)
    for n in range(4):
        table.append(
            0,
            [b"v%d" % n, None, b"", b"x" * 1000],
            keys=[b"k", b"", None, b"k"],
            headers=[[("h", b"1"), ("h", None)], None, [("", b"")], None],
            timestamps_ms=[NOW_MS - n, NOW_MS + n, 0, 5],
            timestamp_type=n % 2,
            producer_id=7 if n < 3 else None,
        )
        table.append(1, [b"%d" % n])
    return table


def test_compaction_keeps_every_record_as_it_was_and_a_second_run_finds_nothing(
    topics: Topics,
) -> None:
    opened = _mixed(topics).opened
    before = all_records(opened.store)
    job = Compaction()
    plan = _plan(job, opened)
    assert [(line.partition, line.what) for line in plan.lines] == [
        (0, "merge offsets 0 to 15"),
        (1, "merge offsets 0 to 3"),
    ]
    outcome = _run(job, opened, plan)
    assert (outcome.kind, outcome.attempts, outcome.version) == (OutcomeKind.OK, 1, 9)
    assert (outcome.before.files, outcome.after.files) == (8, 2)
    assert (outcome.before.records, outcome.after.records) == (20, 20)
    assert all_records(opened.store) == before
    assert file_count(opened.store) == 2
    check_verified(opened.store)
    assert _plan(job, opened, NOW_MS * 2).nothing


def test_its_commit_is_no_new_data_and_its_statistics_are_exact(topics: Topics) -> None:
    opened = _mixed(topics).opened
    job = Compaction()
    _run(job, opened, _plan(job, opened))
    actions = read_commit(opened.store, 9)
    added = {one.partition: one for one in actions if isinstance(one, DataFile)}
    assert not any(one.data_change for one in actions if isinstance(one, (DataFile, Remove)))
    assert (added[0].base_offset, added[0].last_offset, added[0].record_count) == (0, 15, 16)
    assert (added[0].timestamp_ms_min, added[0].timestamp_ms_max) == (0, NOW_MS + 3)
    assert (added[1].timestamp_ms_min, added[1].timestamp_ms_max) == (NOW_MS, NOW_MS)


def test_a_large_backlog_is_committed_in_parts_and_a_part_that_lost_is_left_out(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.jobs.task_files.COMMIT_FILES_MAX", 10)
    table = appends(topics, partitions=3)
    for n in range(24):
        table.append(n % 3, [b"%d" % n])
    job = Compaction()
    plan = _plan(job, table.opened)
    other = topics.open("t")
    gone = other.state.files(1).sorted()[:1]
    actions = replace_files(other.state, gone, now_ms=1, data_change=True)
    commit_beside_leader(other, lambda _: TableCommit.of("RETENTION", actions, timestamp_ms=1))
    outcome = _run(job, table.opened, plan)
    assert (outcome.kind, outcome.version, outcome.before.files) == (OutcomeKind.OK, 27, 16)
    assert "files of 1 runs" in outcome.error
    state = load_table(table.opened.store)
    assert [len(state.files(n)) for n in range(3)] == [1, 7, 1]


def test_it_leaves_what_came_after_its_plan_alone(topics: Topics) -> None:
    table = _mixed(topics)
    job = Compaction()
    plan = _plan(job, table.opened)
    later = table.append(0, [b"later"])
    before = all_records(table.opened.store)
    outcome = _run(job, table.opened, plan)
    assert (outcome.kind, outcome.version) == (OutcomeKind.OK, 10)
    assert all_records(table.opened.store) == before
    assert load_table(table.opened.store).is_active(later.path)
    check_verified(table.opened.store)


def test_output_files_are_closed_at_the_target_and_the_rest_stays_whole(topics: Topics) -> None:
    table = appends(topics, partitions=1, compression_type="none")
    for n in range(40):
        table.append(0, [bytes([n]) * 100_000 for _ in range(20)])
    before = all_records(table.opened.store)
    job = Compaction(target_bytes=40 * MIB)
    outcome = _run(job, table.opened, _plan(job, table.opened))
    files = load_table(table.opened.store).files(0).sorted()
    assert outcome.after == Counts.of(files)
    assert [file.size_bytes >= 40 * MIB for file in files] == [True, False]
    assert all_records(table.opened.store) == before
    assert _plan(job, table.opened, NOW_MS * 2).nothing


def test_of_two_runs_at_once_one_lands_and_the_other_leaves_nothing(topics: Topics) -> None:
    opened = _mixed(topics).opened
    before = all_records(opened.store)
    job = Compaction()
    second = topics.open("t")
    plan, same = _plan(job, opened), _plan(job, second)
    results = [job.run_task(second.store, task) for task in same.tasks]
    assert _run(job, opened, plan).kind == OutcomeKind.OK
    outcome = job.commit(second, same, results, NOW_MS)
    assert (outcome.kind, outcome.version) == (OutcomeKind.SUPERSEDED, None)
    assert all_records(opened.store) == before
    check_verified(opened.store)
    present = {info.name for n in (0, 1) for info in opened.store.list_files(f"partition={n}")}
    assert not present & {
        file.path.rpartition("/")[2] for result in results for file in result.files
    }


def test_a_run_whose_files_went_is_left_out_and_the_others_are_committed(topics: Topics) -> None:
    opened = _mixed(topics).opened
    job = Compaction()
    plan = _plan(job, opened)
    other = topics.open("t")
    gone = other.state.files(1).sorted()[:1]
    actions = replace_files(other.state, gone, now_ms=1, data_change=True)
    commit_beside_leader(other, lambda _: TableCommit.of("RETENTION", actions, timestamp_ms=1))
    outcome = _run(job, opened, plan)
    assert outcome.kind == OutcomeKind.OK
    assert "files of 1 runs" in outcome.error
    assert [len(load_table(opened.store).files(n)) for n in (0, 1)] == [1, 3]


def test_a_file_that_another_run_removed_and_vacuumed_is_no_damage(topics: Topics) -> None:
    opened = _mixed(topics).opened
    job = Compaction()
    plan = _plan(job, opened)
    other = topics.open("t")
    assert _run(job, other, _plan(job, other)).kind == OutcomeKind.OK
    for task in plan.tasks:
        for file in task.files:
            opened.store.delete(file.path)
    assert _run(job, opened, plan).kind == OutcomeKind.SUPERSEDED


def test_a_live_file_that_is_missing_is_named_and_nothing_is_committed(topics: Topics) -> None:
    opened = _mixed(topics).opened
    job = Compaction()
    plan = _plan(job, opened)
    lost = plan.tasks[0].files[2]
    opened.store.delete(lost.path)
    with pytest.raises(LogDamagedError, match=lost.path):
        _run(job, opened, plan)
    assert load_table(opened.store).version == 8


@pytest.mark.parametrize("lost", [False, True])
def test_a_file_that_is_damaged_or_lost_keeps_its_neighbours_only_from_being_merged(
    store: LocalStore, topics: Topics, lost: bool
) -> None:
    table = appends(topics, partitions=3)
    files = [
        [table.append(partition, [b"%d of %d" % (n, partition)]) for n in range(4)]
        for partition in range(3)
    ]
    path = Path(table.opened.store.uri, files[1][2].path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    if lost:
        path.unlink()
    job = Compaction(min_age_ms=0)
    (row,) = run_job(store.uri, job, ["t"], pool=InProcessPool, clock_ms=lambda: NOW_MS)
    assert row.outcome.kind == OutcomeKind.FAILED
    assert "1 of 3 tasks failed, the others are done: LOG_DAMAGED" in row.outcome.error
    assert files[1][2].path in row.outcome.error
    state = table.opened.refresh()
    counts = [len(state.files(partition).sorted()) for partition in range(3)]
    assert counts == [1, 4, 1]
    assert (row.outcome.before.files, row.outcome.after.files) == (8, 2)


def test_a_file_with_other_records_than_the_log_says_is_named(
    store: LocalStore, topics: Topics
) -> None:
    opened = _mixed(topics).opened
    task = _plan(Compaction(), opened).tasks[0]
    one, other = task.files[0], task.files[1]
    opened.store.delete(one.path)
    opened.store.put(one.path, opened.store.read(other.path))
    with pytest.raises(LogDamagedError, match=f"{one.path} is damaged: the checksum of its tail"):
        Compaction().run_task(opened.store, task)
    unchecked = replace(one, tail_crc32c=None)
    with pytest.raises(LogDamagedError, match="the log says 4 with 0 to 3"):
        Compaction().run_task(opened.store, replace(task, files=(unchecked, *task.files[1:])))


def test_output_that_was_vacuumed_before_the_commit_does_not_become_part_of_the_table(
    topics: Topics,
) -> None:
    opened = _mixed(topics).opened
    job = Compaction()
    plan = _plan(job, opened)
    results = [job.run_task(opened.store, task) for task in plan.tasks]
    opened.store.delete(results[0].files[0].path)
    with pytest.raises(LogDamagedError, match="gone before its commit"):
        job.commit(opened, plan, results, NOW_MS)
    assert file_count(opened.store) == 8
    check_verified(opened.store)


class _Leader:
    """A store hook for a job: appends once more before each of its attempts to commit."""

    def __init__(self, topics: Topics, attempts: int) -> None:
        self._log = Appends(topics.open("t"))
        self._left = attempts

    def __call__(self, call: str, path: str) -> None:
        if call == "put_if_absent" and self._left:
            self._left -= 1
            self._log.append(0, [b"new"])


def test_a_merge_that_a_fast_leader_is_always_ahead_of_is_made_into_a_commit_once_only(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files it has, an attempt takes no longer than an append: so it lands."""
    opened = _mixed(topics).opened
    job = Compaction()
    plan = _plan(job, opened)
    results = [job.run_task(opened.store, task) for task in plan.tasks]
    leader = _Leader(topics, attempts=6)
    builds = []
    real = TableCommit.of

    def counted(operation: str, *arguments: Any, **named: Any) -> TableCommit:
        if operation == "COMPACT":
            builds.append(operation)
        return real(operation, *arguments, **named)

    monkeypatch.setattr(TableCommit, "of", counted)
    beside = OpenTopic("t", FaultyStore(opened.store, before=leader), load_table(opened.store))
    outcome = job.commit(beside, plan, results, NOW_MS)

    assert (outcome.kind, outcome.attempts, builds) == (OutcomeKind.OK, 7, ["COMPACT"])
    check_verified(opened.store)


class _Crowd:
    """A store hook: a leader that is always ahead of a commit with more lines than `lines_max`."""

    def __init__(self, topics: Topics, lines_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = Appends(topics.open("t"))
        self._lines_max = lines_max
        self._lines = 0
        real = TableCommit.encoded

        def encoded(commit: TableCommit) -> bytes:
            self._lines = len(commit.actions)
            return real(commit)

        monkeypatch.setattr(TableCommit, "encoded", encoded)
        monkeypatch.setattr(
            blocking_commits,
            "BESIDE_LEADER",
            replace(BESIDE_LEADER, losses_max=3, loss_pause_s=None),
        )

    def __call__(self, call: str, path: str) -> None:
        if call == "put_if_absent" and self._lines > self._lines_max:
            self._lines = 0
            self._log.append(0, [b"new"])


@pytest.mark.parametrize(("lines_max", "runs"), [(12, 4), (6, 4), (2, 0)])
def test_a_commit_that_is_always_lost_is_cut_into_halves_until_it_lands_or_is_given_up(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, lines_max: int, runs: int
) -> None:
    topics.create("t", 4)
    log = Appends(topics.open("t"))
    for partition in range(4):
        for _ in range(3):
            log.append(partition, [b"v"])
    job = Compaction()
    plan = _plan(job, log.opened)
    assert len(plan.tasks) == 4
    results = [job.run_task(log.opened.store, task) for task in plan.tasks]
    crowd = _Crowd(topics, lines_max, monkeypatch)
    store = FaultyStore(log.opened.store, before=crowd)
    outcome = job.commit(OpenTopic("t", store, load_table(store)), plan, results, NOW_MS)

    assert outcome.before.files == 3 * runs
    written = {path for result in results for path in (file.path for file in result.files)}
    live = {file.path for file in load_table(log.opened.store)}
    if runs:
        assert (outcome.kind, outcome.error) == (OutcomeKind.OK, "")
        assert written <= live
    else:
        assert outcome.kind == OutcomeKind.SUPERSEDED
        assert outcome.error.startswith("4 were given up")
        on_disk = {info.name for info in log.opened.store.list_files("partition=0")}
        assert not {path.partition("/")[2] for path in written} & on_disk
    check_verified(log.opened.store)


def test_output_that_goes_while_the_commit_is_tried_does_not_become_part_of_the_table(
    topics: Topics,
) -> None:
    """As after a process was stopped in between for longer than vacuum waits."""
    opened = _mixed(topics).opened
    job = Compaction()
    plan = _plan(job, opened)
    results = [job.run_task(opened.store, task) for task in plan.tasks]
    leader = _Leader(topics, attempts=1)

    def before(call: str, path: str) -> None:
        leader(call, path)
        if call == "put_if_absent":
            opened.store.delete(results[0].files[0].path)

    beside = OpenTopic("t", FaultyStore(opened.store, before=before), load_table(opened.store))
    with pytest.raises(LogDamagedError, match="gone before its commit"):
        job.commit(beside, plan, results, NOW_MS)

    assert file_count(opened.store) == 9
    check_verified(opened.store)


def test_settings_of_the_topic_hold_unless_an_option_says_otherwise(topics: Topics) -> None:
    table = appends(topics, partitions=1, compaction_min_age_ms=5_000)
    for _ in range(3):
        table.append(0, [b"v"])
    assert _plan(Compaction(), table.opened, NOW_MS + 4_999).nothing
    assert not _plan(Compaction(), table.opened, NOW_MS + 5_000).nothing
    assert not _plan(Compaction.of({"compaction.min.age.ms": 0}), table.opened, NOW_MS).nothing


def test_a_log_with_holes_is_merged_and_keeps_them(topics: Topics) -> None:
    table = _mixed(topics)
    store = table.opened.store
    state = load_table(store)
    first, last = state.files(0).sorted()[0], state.files(0).sorted()[-1]
    kept = [
        write_data_files(
            store,
            0,
            [batch.take(pa.array(rows)) for batch in read_data_file(store, file, 0, 100)],
            target_bytes=MIB,
            compression_type="zstd",
            now_ms=NOW_MS,
        )[0]
        for file, rows in ((first, [1, 3]), (last, [0, 3]))
    ]
    actions = replace_files(state, [first, last], kept, now_ms=NOW_MS, data_change=True)
    actions.append(Register(registers.cleaned(0), last.last_offset + 1))
    commit_beside_leader(table.opened, lambda _: TableCommit.of("X", actions, timestamp_ms=1))
    before = all_records(store)
    assert [record.offset for record in before[0]][:3] == [1, 3, 4]
    job = Compaction()
    outcome = _run(job, table.opened, _plan(job, table.opened))
    assert (outcome.kind, outcome.after.files) == (OutcomeKind.OK, 2)
    merged = load_table(store).files(0).sorted()
    assert [(one.base_offset, one.last_offset, one.record_count) for one in merged] == [(1, 15, 12)]
    assert all_records(store) == before
    check_verified(store)
