"""Vacuum: what was removed long enough ago is deleted, and nothing else ever."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.faults import FaultyStore, times, unavailable
from tests.unit.jobs.topic_tables import NOW_MS, Appends, all_records, appends, check_verified

from mainstem.delta_log import (
    Committer,
    Conflict,
    LocalStore,
    ObjectStore,
    OpenTopic,
    Topics,
    load_table,
)
from mainstem.delta_log.format import DataFile, Register, registers
from mainstem.delta_log.table import (
    TableCommit,
    TableState,
    commit_beside_leader,
    commits_written_ms,
    is_expired,
    trim_step,
)
from mainstem.delta_log.table import removals as removals_module
from mainstem.delta_log.table import replay as replay_module
from mainstem.delta_log.topics import TOPICS
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import InvalidConfigError, StoreUnavailableError
from mainstem.jobs import file_deletion as file_deletion_module
from mainstem.jobs import vacuum_orphans as vacuum_orphans_module
from mainstem.jobs.catalogue import make_job
from mainstem.jobs.compaction import Compaction, Merge, Merged
from mainstem.jobs.file_deletion import DeleteFiles
from mainstem.jobs.job import Job, OutcomeKind, Plan, TableView
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.jobs.vacuum import Vacuum
from mainstem.jobs.vacuum_orphans import VacuumOrphans

HOUR = 3_600_000
DAY = 24 * HOUR


def run(store: LocalStore, job: Job[Any, Any], now_ms: int = NOW_MS) -> JobRun:
    """Runs a job on the topic `t`, at a moment."""
    (row,) = run_job(store.uri, job, ["t"], pool=lambda: InProcessPool(2), clock_ms=lambda: now_ms)
    return row


def stored(log: Appends) -> set[str]:
    """The data files in the store."""
    root = Path(log.opened.store.uri)
    return {str(path.relative_to(root)) for path in root.glob("partition=*/*.parquet")}


def active(log: Appends) -> set[str]:
    return {file.path for file in load_table(log.opened.store)}


def retain(log: Appends, start: int, now_ms: int = NOW_MS) -> None:
    """Removes the files of partition 0 before an offset, at a moment."""

    def build(state: TableState) -> TableCommit | None:
        actions = trim_step(state, {0: start}, now_ms)
        return TableCommit.of("TRIM", actions, timestamp_ms=now_ms) if actions else None

    commit_beside_leader(log.opened, build)


def commit(log: Appends, *actions: DataFile | Register) -> None:
    def build(_: TableState) -> TableCommit:
        return TableCommit.of("OTHER", actions, timestamp_ms=NOW_MS)

    assert commit_beside_leader(log.opened, build) is not None


@pytest.fixture
def log(topics: Topics) -> Appends:
    """The topic `t` with five files of two records."""
    made = appends(topics)
    for _ in range(5):
        made.append(0, [b"a", b"b"])
    return made


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_removed_file_is_deleted_when_it_is_old_enough_and_not_before(
    store: LocalStore, log: Appends, checkpointed: bool
) -> None:
    retain(log, 4)
    if checkpointed:
        write_checkpoint(log.opened.store)
    before = stored(log)
    assert run(store, Vacuum(), NOW_MS + HOUR - 1).outcome.kind is OutcomeKind.NOTHING
    assert stored(log) == before
    row = run(store, Vacuum(), NOW_MS + HOUR)
    assert (row.outcome.kind, row.outcome.before.files) == (OutcomeKind.OK, 2)
    assert stored(log) == active(log)
    check_verified(log.opened.store)


def test_the_age_is_the_topics_setting_unless_an_option_says_another(
    store: LocalStore, topics: Topics
) -> None:
    log = appends(topics, vacuum_min_age_ms=10)
    log.append(0, [b"a"])
    retain(log, 1)
    assert run(store, make_job("vacuum"), NOW_MS + 9).outcome.kind is OutcomeKind.NOTHING
    patient = make_job("vacuum", {"vacuum.min.age.ms": "20"})
    assert run(store, patient, NOW_MS + 19).outcome.kind is OutcomeKind.NOTHING
    assert run(store, make_job("vacuum"), NOW_MS + 10).outcome.kind is OutcomeKind.OK
    assert stored(log) == set()


def test_a_second_run_passes_over_what_the_first_deleted_though_the_log_still_has_it(
    store: LocalStore, log: Appends
) -> None:
    retain(log, 4)
    assert run(store, Vacuum(), NOW_MS + HOUR).outcome.before.files == 2
    assert run(store, Vacuum(), NOW_MS + 2 * HOUR).outcome.kind is OutcomeKind.NOTHING
    retain(log, 6, NOW_MS + 2 * HOUR)
    assert run(store, Vacuum(), NOW_MS + 3 * HOUR).outcome.before.files == 1
    assert stored(log) == active(log)


def test_a_version_within_the_age_can_still_be_read_and_an_older_one_not(
    store: LocalStore, log: Appends
) -> None:
    version = load_table(log.opened.store).version
    retain(log, 2)
    run(store, Compaction(min_age_ms=0), NOW_MS + HOUR)
    run(store, Vacuum(), NOW_MS + HOUR + 1)  # the trimmed file goes, the merged ones stay
    uri = log.opened.store.uri
    assert DeltaTable(uri, version=version + 1).to_pyarrow_table().num_rows == 8
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 8
    with pytest.raises(Exception, match=r"No such file|not found"):
        DeltaTable(uri, version=version).to_pyarrow_table()
    run(store, Vacuum(), NOW_MS + 3 * HOUR)
    assert stored(log) == active(log)


def test_files_that_are_live_or_not_yet_committed_or_of_others_stay(
    store: LocalStore, log: Appends
) -> None:
    retain(log, 4)
    opened = log.opened.store
    opened.put("partition=0/00000000000000000010-" + "a" * 32 + ".parquet", b"to be committed")
    opened.put("partition=0/notes.txt", b"of somebody")
    run(store, Vacuum(), NOW_MS + 999 * DAY)
    assert {path for path in stored(log) if "aaaa" not in path} == active(log)
    assert (Path(opened.uri) / "partition=0" / "notes.txt").exists()


def test_many_files_are_deleted_by_tasks(
    store: LocalStore, log: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_deletion_module, "DRIVER_FILES_MAX", 1)
    monkeypatch.setattr(file_deletion_module, "_TASK_FILES", 2)
    retain(log, 10)
    job, opened = Vacuum(), Topics(store).open("t")
    seen = job.examine(opened, NOW_MS + HOUR)
    plan = job.plan(TableView("t", TOPICS, opened.state, seen), NOW_MS + HOUR)
    assert [len(task.paths) for task in plan.tasks] == [2, 2, 1]
    assert plan.paths == ()
    assert run(store, Vacuum(), NOW_MS + HOUR).outcome.before.files == 5
    assert stored(log) == set()


def test_where_the_two_replays_differ_nothing_is_deleted(
    store: LocalStore, log: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    retain(log, 4)
    before = stored(log)
    open_delta_table = replay_module.open_delta_table

    def older(store: LocalStore, version: int) -> DeltaTable:
        return open_delta_table(store, version - 1)

    with monkeypatch.context() as patch:
        patch.setattr(replay_module, "open_delta_table", older)
        row = run(store, Vacuum(), NOW_MS + HOUR)
    assert row.outcome.kind is OutcomeKind.FAILED
    assert "differ in 3 and 5 files" in row.outcome.error
    assert stored(log) == before
    assert run(store, Vacuum(), NOW_MS + HOUR).outcome.kind is OutcomeKind.OK


@pytest.mark.fault
def test_a_run_that_fails_halfway_is_finished_by_the_next(store: LocalStore, log: Appends) -> None:
    retain(log, 6)
    job, opened = Vacuum(), Topics(store).open("t")
    view = TableView("t", TOPICS, opened.state, job.examine(opened, NOW_MS + HOUR))
    plan = job.plan(view, NOW_MS + HOUR)
    failing = FaultyStore(opened.store, times(1, "delete", unavailable(), "00000002-"))
    broken = type(opened)("t", failing, opened.state)
    with pytest.raises(StoreUnavailableError):
        job.commit(broken, plan, (), NOW_MS + HOUR)
    assert len(stored(log)) == 4
    assert run(store, Vacuum(), NOW_MS + HOUR).outcome.kind is OutcomeKind.OK
    assert stored(log) == active(log)
    check_verified(log.opened.store)


def test_two_runs_at_once_delete_the_same_and_both_end_well(
    store: LocalStore, log: Appends
) -> None:
    retain(log, 6)
    job, topics = Vacuum(), Topics(store)
    runs = [topics.open("t"), topics.open("t")]
    plans = [
        job.plan(TableView("t", TOPICS, one.state, job.examine(one, NOW_MS + HOUR)), NOW_MS + HOUR)
        for one in runs
    ]
    for one, plan in zip(runs, plans, strict=True):
        assert job.commit(one, plan, (), NOW_MS + HOUR).kind is OutcomeKind.OK
    assert stored(log) == active(log)
    check_verified(log.opened.store)


def test_checkpoints_remember_removals_for_longer_than_vacuum_waits(
    store: LocalStore, log: Appends
) -> None:
    """By the clock of delta-rs, which is the real one."""
    now_ms = time.time_ns() // 1_000_000
    retain(log, 4, now_ms - 90 * 60_000)
    write_checkpoint(log.opened.store)
    assert run(store, Vacuum(), now_ms).outcome.before.files == 2
    retain(log, 6, now_ms - 150 * 60_000)
    write_checkpoint(log.opened.store)
    assert run(store, Vacuum(), now_ms).outcome.kind is OutcomeKind.NOTHING


def _orphan(log: Appends, base_offset: int, age_ms: int = 2 * DAY) -> Path:
    """A data file that no version knows, written so long before `NOW_MS`."""
    path = Path(log.opened.store.uri, "partition=0", f"{base_offset:020d}-{'b' * 32}.parquet")
    path.write_bytes(b"left behind")
    written_s = (NOW_MS - age_ms) / 1000
    os.utime(path, (written_s, written_s))
    return path


def test_an_orphan_goes_and_live_removed_and_foreign_files_stay(
    store: LocalStore, log: Appends
) -> None:
    orphan = _orphan(log, 3)
    retain(log, 4)
    foreign = Path(log.opened.store.uri, "partition=0", "notes.parquet")
    foreign.write_bytes(b"of somebody")
    before = stored(log)
    row = run(store, VacuumOrphans(), NOW_MS + 9 * DAY)
    assert (row.outcome.kind, row.outcome.before.files) == (OutcomeKind.OK, 1)
    assert before - stored(log) == {f"partition=0/{orphan.name}"}
    assert run(store, VacuumOrphans(), NOW_MS + 9 * DAY).outcome.kind is OutcomeKind.NOTHING
    check_verified(log.opened.store)


def test_a_clock_that_is_a_year_ahead_leaves_its_time_in_no_register(
    store: LocalStore, log: Appends
) -> None:
    """What is written and removed in that year would else be taken for deleted already."""
    _orphan(log, 3, age_ms=2 * DAY)
    retain(log, 4)
    ahead_ms = NOW_MS + 365 * DAY
    for job in (VacuumOrphans(), Vacuum()):
        assert run(store, job, ahead_ms).outcome.before.files > 0
    state = load_table(log.opened.store)
    assert NOW_MS - 2 * DAY <= state.register_value(registers.ORPHANED) <= NOW_MS
    assert state.register_value(registers.VACUUMED) <= max(NOW_MS, _newest_commit_ms(log))
    later = _orphan(log, 3, age_ms=DAY)
    assert run(store, VacuumOrphans()).outcome.before.files == 1
    assert not later.exists()


def _newest_commit_ms(log: Appends) -> int:
    return max(commits_written_ms(log.opened.store).values())


def test_a_young_orphan_may_still_be_committed_and_stays(store: LocalStore, log: Appends) -> None:
    orphan = _orphan(log, 3, age_ms=DAY - 1_000)
    assert run(store, VacuumOrphans()).outcome.kind is OutcomeKind.NOTHING
    assert orphan.exists()
    assert run(store, VacuumOrphans(), NOW_MS + 1_000).outcome.before.files == 1


def test_a_file_at_the_end_of_its_partition_is_an_appends_however_old_it_is(
    store: LocalStore, log: Appends
) -> None:
    """A leader whose store fails tries the same commit until it lands, for days if need be."""
    pending = _orphan(log, 10, age_ms=99 * DAY)
    beyond = _orphan(log, 11, age_ms=99 * DAY)
    assert run(store, VacuumOrphans()).outcome.kind is OutcomeKind.NOTHING
    log.append(0, [b"c"])
    assert run(store, VacuumOrphans()).outcome.before.files == 1
    assert not pending.exists()
    assert beyond.exists()


def test_a_file_that_is_committed_between_the_listing_and_the_log_stays(
    store: LocalStore, log: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = _orphan(log, 3)
    known_paths = removals_module.known_paths

    def commits_first(table: LocalStore) -> set[str]:
        state = load_table(table)
        file = next(iter(state))
        late = replace(file, path=f"partition=0/{orphan.name}", size_bytes=11)
        commit(log, late)
        return known_paths(table)

    monkeypatch.setattr(vacuum_orphans_module, "known_paths", commits_first)
    assert run(store, VacuumOrphans()).outcome.kind is OutcomeKind.NOTHING
    assert orphan.exists()


def test_what_the_log_forgot_before_vacuum_saw_it_is_an_orphan(
    store: LocalStore, log: Appends
) -> None:
    now_ms = time.time_ns() // 1_000_000
    retain(log, 4, now_ms - 3 * HOUR)
    for _ in range(2):  # removals that are older than two hours leave the checkpoints
        write_checkpoint(log.opened.store)
        log.append(0, [b"c"])
        for info in log.opened.store.list_files("_delta_log"):
            os.utime(Path(log.opened.store.uri, "_delta_log", info.name), (1, 1))
    write_checkpoint(log.opened.store)
    assert run(store, Vacuum(), now_ms + HOUR).outcome.kind is OutcomeKind.NOTHING
    assert len(stored(log) - active(log)) == 2
    assert run(store, VacuumOrphans(), now_ms + 2 * DAY).outcome.before.files == 2
    assert stored(log) == active(log)
    assert len(all_records(log.opened.store)[0]) == 8


def test_a_merged_file_that_waited_until_vacuum_took_it_is_not_swapped_in(
    store: LocalStore, log: Appends
) -> None:
    """The process slept between its file and its commit, and between its own look for the file and
    the commit as well."""
    state = load_table(log.opened.store)
    merged = replace(
        next(iter(state)), path=f"partition=0/{_orphan(log, 0).name}", modified_ms=NOW_MS - 2 * DAY
    )
    assert not is_expired(state, merged)
    version = state.version + 1
    assert run(store, VacuumOrphans()).outcome.before.files == 1
    # Tried at the version that was next when it fell asleep, the swap loses; then it has the word.
    swap = TableCommit.of("SWAP", [merged], timestamp_ms=1)
    outcome = Committer(log.opened.store).commit(version, swap)
    assert isinstance(outcome, Conflict)
    assert is_expired(load_table(log.opened.store), merged)


def test_a_file_that_is_committed_after_it_was_listed_is_not_deleted(
    store: LocalStore, log: Appends
) -> None:
    """A process wakes up with an old file, and commits it while other topics are planned."""
    state = load_table(log.opened.store)
    late = replace(
        next(iter(state)),
        path=f"partition=0/{_orphan(log, 3).name}",
        size_bytes=len(b"left behind"),
    )

    class Late(VacuumOrphans):
        def prepare(
            self, opened: OpenTopic, plan: Plan[DeleteFiles], now_ms: int
        ) -> Plan[DeleteFiles]:
            commit(log, late)
            return super().prepare(opened, plan, now_ms)

    run(store, Late())
    assert Path(log.opened.store.uri, late.path).exists()


def test_a_run_that_was_asleep_until_vacuum_took_its_files_is_superseded(
    store: LocalStore, log: Appends
) -> None:
    class Sleepy(Compaction):
        def run_task(self, store: ObjectStore, task: Merge) -> Merged:
            done = super().run_task(store, task)
            old = [replace(file, modified_ms=NOW_MS - 2 * DAY) for file in done.files]
            for file in old:
                os.utime(Path(log.opened.store.uri, file.path), (1, 1))
            assert run(log_store, VacuumOrphans()).outcome.before.files == len(old)
            return Merged(tuple(old))

    log_store = store
    before = all_records(log.opened.store)
    row = run(store, Sleepy(min_age_ms=0))
    assert row.outcome.kind is OutcomeKind.SUPERSEDED, row.outcome
    assert all_records(log.opened.store) == before
    check_verified(log.opened.store)


@pytest.mark.parametrize("age_ms", [0, 6 * HOUR - 1])
def test_an_age_below_the_longest_commit_is_refused_with_the_reason(age_ms: int) -> None:
    with pytest.raises(InvalidConfigError, match="a file may wait 21600000 ms for its commit"):
        make_job("vacuum-orphans", {"orphan.min.age.ms": str(age_ms)})
    make_job("vacuum-orphans", {"orphan.min.age.ms": str(6 * HOUR)})


def test_the_register_of_vacuum_is_no_reason_for_a_finding(store: LocalStore, log: Appends) -> None:
    retain(log, 4)
    run(store, Vacuum(), NOW_MS + HOUR)
    state = load_table(log.opened.store)
    assert state.register_value(registers.VACUUMED) == NOW_MS
    commit(log, Register(registers.lso(0), 5))
    check_verified(log.opened.store)
