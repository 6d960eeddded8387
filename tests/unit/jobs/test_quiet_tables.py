"""A job that runs again and again opens what has changed or has something due, and nothing else;
and it misses nothing."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.delta_log.table_states import data_file, state_with
from tests.unit.jobs.topic_tables import NOW_MS, Appends, appends, heartbeat

from mainstem.delta_log import LocalStore, OpenTopic, TableState, Topics
from mainstem.delta_log.format import LOG, Register, registers
from mainstem.delta_log.table import TableCommit, VersionMark, commit_beside_leader, trim_step
from mainstem.delta_log.topics import TOPICS, altered_config
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import LogDamagedError
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import (
    NEVER_MS,
    Job,
    JobOutcome,
    OutcomeKind,
    Plan,
    PlanLine,
    TableView,
    Task,
    TaskResult,
)
from mainstem.jobs.jobs_config import JobSettings
from mainstem.jobs.keyed_compaction import KeyedCompaction
from mainstem.jobs.log_cleanup import LogCleanup
from mainstem.jobs.quiet_tables import NOTE_MS_MAX, QuietTables
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import run_job
from mainstem.jobs.schedule import Cron
from mainstem.jobs.spark_runs import SparkRuns
from mainstem.jobs.task_pool import InProcessPool
from mainstem.jobs.vacuum import Vacuum
from mainstem.jobs.vacuum_orphans import VacuumOrphans

HOUR = 3_600_000
MARK = VersionMark(3, b"x")
OTHER = VersionMark(4, b"x")


# -- the notes alone -------------------------------------------------------------------------------


def test_a_note_counts_from_its_time_until_something_is_due() -> None:
    quiet = QuietTables()
    quiet.looked("t", MARK, 100, 200)
    assert quiet.mark("t", 100) == quiet.mark("t", 199) == MARK
    assert quiet.mark("t", 200) is None
    assert quiet.mark("t", 99) is None, "the clock was set back"
    assert quiet.mark("t", 2**62) is None, "the clock was set forward"
    assert quiet.mark("other", 100) is None


def test_the_newest_look_is_what_counts() -> None:
    quiet = QuietTables()
    quiet.looked("t", MARK, 100, 200)
    quiet.looked("t", OTHER, 150, 300)
    assert quiet.mark("t", 250) == OTHER
    quiet.looked("t", None, 160, 300)
    assert quiet.mark("t", 250) is None, "a version that cannot be told from others"
    quiet.looked("t", MARK, 100, 200)
    quiet.looked("t", MARK, 160, 160)
    assert quiet.mark("t", 160) is None, "something is due at once"
    quiet.looked("t", MARK, 100, 200)
    quiet.forget("t")
    assert quiet.mark("t", 100) is None


def test_no_note_lasts_for_longer_than_a_day_by_a_clock_that_nobody_sets() -> None:
    elapsed = [0]
    quiet = QuietTables(elapsed_ms=lambda: elapsed[0])
    quiet.looked("t", MARK, 100, NEVER_MS)
    elapsed[0] = NOTE_MS_MAX - 1
    assert quiet.mark("t", 100) == MARK
    elapsed[0] = NOTE_MS_MAX
    assert quiet.mark("t", 100) is None


def test_notes_are_bounded_and_those_of_tables_that_went_make_room() -> None:
    quiet = QuietTables(notes_max=2)
    for name in ("a", "b", "c"):
        quiet.looked(name, MARK, 0, 1)
    assert [quiet.mark(name, 0) for name in ("a", "b", "c")] == [MARK, MARK, None]
    quiet.keep_only(["b", "c"])
    quiet.looked("c", MARK, 0, 1)
    assert [quiet.mark(name, 0) for name in ("a", "b", "c")] == [None, MARK, MARK]
    quiet.looked("c", OTHER, 0, 1)
    assert (quiet.mark("c", 0), len(quiet)) == (OTHER, 2)


# -- passes over tables ----------------------------------------------------------------------------


class _Watch(Job[Task, TaskResult]):
    """Has something to do on the topics in `busy`, and remembers which topics it looked at."""

    name = "watch"

    def __init__(self) -> None:
        self.looked_at: list[str] = []
        self.busy: set[str] = set()
        self.damaged: set[str] = set()
        self.due_ms = NEVER_MS

    def plan(self, table: TableView, now_ms: int) -> Plan[Task]:
        self.looked_at.append(table.topic)
        if table.topic in self.damaged:
            raise LogDamagedError("injected")
        lines = (PlanLine(None, "work"),) if table.topic in self.busy else ()
        version = table.state.version
        return Plan(table.topic, table.folder, version, lines=lines, due_ms=self.due_ms)

    def commit(
        self, opened: OpenTopic, plan: Plan[Task], results: Sequence[TaskResult], now_ms: int
    ) -> JobOutcome:
        if opened.topic == "failing":
            raise LogDamagedError("injected")
        return JobOutcome(OutcomeKind.OK)


class _Passes:
    """A process that runs the job again and again."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.job = _Watch()
        self.quiet = QuietTables()

    def run(self, now_ms: int = NOW_MS, topics: Sequence[str] = ()) -> list[str]:
        """A pass; returns the topics that it looked at."""
        self.job.looked_at.clear()
        self.rows = run_job(
            self.store.uri,
            self.job,
            topics,
            pool=InProcessPool,
            clock_ms=lambda: now_ms,
            quiet=self.quiet,
        )
        return sorted(self.job.looked_at)


@pytest.fixture
def passes(store: LocalStore, topics: Topics) -> _Passes:
    """After a first pass over the topics a to e, of three appends each."""
    for name in "abcde":
        made = appends(topics, name, 1)
        for _ in range(3):
            made.append(0, [b"a"])
    found = _Passes(store)
    assert found.run() == [*"abcde"]
    return found


def touch(opened: OpenTopic) -> None:
    """A commit that changes nothing for any job."""
    done = Register("mainstem/test", opened.state.version)
    commit_beside_leader(opened, lambda _: TableCommit.of("X", [done], timestamp_ms=NOW_MS))


def test_only_what_has_changed_is_looked_at_and_every_table_has_its_row(
    passes: _Passes, topics: Topics
) -> None:
    assert passes.run() == []
    assert [row.topic for row in passes.rows] == [*"abcde"]
    assert {row.outcome.kind for row in passes.rows} == {OutcomeKind.NOTHING}
    touch(topics.open("b"))
    assert passes.run() == ["b"]
    assert passes.run() == []


def test_a_topic_that_was_deleted_is_gone_and_one_created_again_is_looked_at(
    passes: _Passes, topics: Topics
) -> None:
    topics.delete("b")
    assert passes.run() == []
    assert [row.topic for row in passes.rows] == [*"acde"]
    assert len(passes.quiet) == 4
    again = appends(topics, "b", 1)
    assert passes.run() == ["b"]
    topics.delete("c")
    again = appends(topics, "c", 1)  # within two passes, and up to the same version
    for _ in range(3):
        again.append(0, [b"other"])
    assert passes.run() == ["c"]


def test_settings_that_were_changed_are_looked_at(passes: _Passes, topics: Topics) -> None:
    opened = topics.open("d")

    def build(state: TableState) -> TableCommit:
        changed = altered_config(state, {"retention.ms": 1}, [])
        return TableCommit.of("CONFIG", [changed], timestamp_ms=NOW_MS)

    commit_beside_leader(opened, build)
    assert passes.run() == ["d"]


def test_what_is_due_without_a_commit_is_looked_at_and_a_clock_that_jumps_costs_looks_alone(
    passes: _Passes,
) -> None:
    passes.job.due_ms = NOW_MS + HOUR
    assert passes.run(NOW_MS - 1) == [*"abcde"], "the clock was set back"
    assert passes.run(NOW_MS + HOUR - 1) == []
    assert passes.run(NOW_MS + HOUR) == [*"abcde"]
    passes.job.due_ms = NOW_MS + 1000 * HOUR
    assert passes.run(NOW_MS + 999 * HOUR) == [*"abcde"], "the last look has found it due"
    assert passes.run(NOW_MS + 2000 * HOUR) == [*"abcde"], "the clock was set forward"
    assert passes.run(NOW_MS) == [*"abcde"], "and back"


def test_a_pass_that_failed_or_had_something_to_do_is_not_taken_for_done(
    passes: _Passes, topics: Topics
) -> None:
    for name in ("failing", "working"):
        topics.create(name, 1)
    passes.job.busy = {"failing", "working"}
    passes.job.damaged = {"a"}
    touch(topics.open("a"))
    for _ in range(2):
        assert passes.run() == ["a", "failing", "working"]
        assert [row.topic for row in passes.rows if row.outcome.kind is OutcomeKind.FAILED] == [
            "a",
            "failing",
        ]
    passes.job.busy, passes.job.damaged = set(), set()
    assert passes.run() == ["a", "failing", "working"]
    assert passes.run() == []


def test_a_table_that_failed_has_lost_its_note_of_before(passes: _Passes, topics: Topics) -> None:
    root = Path(passes.store.uri, "topics", "a", LOG)
    newest = max(root.glob("*.json"))
    content = newest.read_bytes()
    newest.write_bytes(b"torn")
    passes.run()
    assert [row.topic for row in passes.rows if row.outcome.kind is OutcomeKind.FAILED] == ["a"]
    newest.write_bytes(content)
    assert passes.run() == ["a"]


def test_a_warehouse_that_was_put_back_from_a_copy_is_looked_at(
    passes: _Passes, topics: Topics, tmp_path: Path
) -> None:
    root = Path(passes.store.uri, "topics")
    shutil.copytree(root, tmp_path / "copy")
    for name in "ab":
        touch(topics.open(name))
    assert passes.run() == ["a", "b"]
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    assert passes.run() == ["a", "b"], "those that are older than they were; the others are not"
    touch(topics.open("a"))
    assert passes.run() == ["a"], "it has grown as far as it was once, by another commit"


def test_a_log_that_has_gone_on_and_was_cleaned_is_looked_at(
    passes: _Passes, topics: Topics
) -> None:
    opened = topics.open("c")
    for _ in range(3):
        touch(opened)
    write_checkpoint(opened.store)
    root = Path(passes.store.uri, "topics", "c", LOG)
    for file in sorted(root.glob("*.json"))[:-1]:
        file.unlink()
    assert passes.run() == ["c"]
    assert passes.run() == []


def test_a_log_whose_newest_commit_file_is_gone_is_looked_at_in_each_pass(
    passes: _Passes, topics: Topics
) -> None:
    opened = topics.open("c")
    write_checkpoint(opened.store)
    max(Path(passes.store.uri, "topics", "c", LOG).glob("*.json")).unlink()
    assert passes.run() == passes.run() == ["c"]
    assert {row.outcome.kind for row in passes.rows} == {OutcomeKind.NOTHING}


def test_without_notes_every_pass_looks_at_all(passes: _Passes) -> None:
    passes.quiet = QuietTables(notes_max=0)
    assert passes.run() == passes.run() == [*"abcde"]


# -- each job acts when something comes due, and not a pass later ----------------------------------


def outcomes(
    store: LocalStore, job: Job[Any, Any], times_ms: Sequence[int], quiet: QuietTables
) -> list[str]:
    """What the job does to the topic `t` at these times, one pass each."""

    def one(now_ms: int) -> str:
        (row,) = run_job(
            store.uri, job, ["t"], pool=InProcessPool, clock_ms=lambda: now_ms, quiet=quiet
        )
        return row.outcome.kind.value

    return [one(now_ms) for now_ms in times_ms]


@pytest.fixture
def log(topics: Topics) -> Appends:
    """The topic `t`, with two files written at `NOW_MS`."""
    made = appends(topics, partitions=1, retention_ms=2 * HOUR)
    for _ in range(2):
        made.append(0, [b"a"])
    return made


def test_retention_removes_the_oldest_file_when_its_time_has_come(
    store: LocalStore, log: Appends
) -> None:
    heartbeat(store, NOW_MS + 2 * HOUR)
    quiet = QuietTables()
    times_ms = [NOW_MS, NOW_MS + 1, NOW_MS + 2 * HOUR, NOW_MS + 2 * HOUR + 1]
    assert outcomes(store, Retention(), times_ms, quiet) == ["nothing"] * 3 + ["ok"]


def test_compaction_merges_files_when_they_are_old_enough(store: LocalStore, log: Appends) -> None:
    quiet = QuietTables()
    times_ms = [NOW_MS, NOW_MS + HOUR - 1, NOW_MS + HOUR]
    assert outcomes(store, Compaction(min_age_ms=HOUR), times_ms, quiet) == [
        "nothing",
        "nothing",
        "ok",
    ]


def test_vacuum_deletes_files_when_they_were_removed_long_enough_ago(
    store: LocalStore, log: Appends
) -> None:
    def trim(start_offset: int, now_ms: int) -> None:
        def build(state: TableState) -> TableCommit:
            actions = trim_step(state, {0: start_offset}, now_ms)
            return TableCommit.of("TRIM", actions, timestamp_ms=now_ms)

        commit_beside_leader(log.opened, build)

    trim(1, NOW_MS + HOUR)
    trim(2, NOW_MS + 2 * HOUR)
    quiet = QuietTables()
    times_ms = [NOW_MS + n for n in (0, 2 * HOUR - 1, 2 * HOUR, 2 * HOUR + 1, 2 * HOUR + 2)]
    assert outcomes(store, Vacuum(HOUR), times_ms, quiet) == [
        "nothing",
        "nothing",
        "ok",
        "nothing",
        "nothing",
    ]
    times_ms = [NOW_MS + 3 * HOUR - 1, NOW_MS + 3 * HOUR, NOW_MS + 3 * HOUR + 1]
    assert outcomes(store, Vacuum(HOUR), times_ms, quiet) == ["nothing", "ok", "nothing"]


def test_log_clean_up_removes_commit_files_when_they_are_old_enough(
    store: LocalStore, topics: Topics
) -> None:
    log = appends(topics, partitions=1)
    for _ in range(3):
        log.append(0, [b"a"])
    write_checkpoint(log.opened.store)
    log.append(0, [b"a"])
    # The times of files are the machine's: so is the clock by which they are removed.
    written_s = 1_000_000_000
    for file in sorted(Path(log.opened.store.uri, LOG).iterdir()):
        os.utime(file, (written_s, written_s))
    kept_ms = log.opened.state.config.log_retention_ms
    due_ms = written_s * 1000 + kept_ms
    times_ms = [written_s * 1000, due_ms - 1, due_ms]
    assert outcomes(store, LogCleanup(), times_ms, QuietTables()) == ["nothing", "nothing", "ok"]


def test_keyed_compaction_drops_tombstones_when_their_time_has_come(
    store: LocalStore, topics: Topics
) -> None:
    log = appends(
        topics,
        partitions=1,
        cleanup_policy="compact",
        delete_retention_ms=5 * HOUR,
        min_cleanable_dirty_ratio=0,
    )
    log.append(0, [b"a"], keys=[b"k"])
    log.append(0, [None], keys=[b"k"])
    heartbeat(store, NOW_MS + 10 * HOUR)
    quiet = QuietTables()
    age_ms = log.opened.state.config.compaction_min_age_ms
    first_ms = NOW_MS + age_ms
    times_ms = [NOW_MS, first_ms - 1, first_ms, first_ms + 1]
    assert outcomes(store, KeyedCompaction(), times_ms, quiet) == [
        "nothing",
        "nothing",
        "ok",
        "nothing",
    ]
    times_ms = [first_ms + 5 * HOUR - 1, first_ms + 5 * HOUR, first_ms + 5 * HOUR + 1]
    assert outcomes(store, KeyedCompaction(), times_ms, quiet) == ["nothing", "ok", "nothing"]


def test_orphans_come_without_a_commit_so_that_job_looks_at_each_pass(
    store: LocalStore, log: Appends
) -> None:
    now_ms = NOW_MS
    quiet = QuietTables()
    assert outcomes(store, VacuumOrphans(), [now_ms], quiet) == ["nothing"]
    name = f"partition=0/{0:020d}-{'0' * 32}.parquet"
    log.opened.store.put(name, b"left by a writer that was killed")
    os.utime(Path(log.opened.store.uri, name), (1_000_000_000, 1_000_000_000))
    assert outcomes(store, VacuumOrphans(), [now_ms + 1], quiet) == ["ok"]


# -- when something is due, against plans at every time --------------------------------------------


def random_state(dice: random.Random) -> TableState:
    """A table of one partition with small times, ages and sizes."""
    files = [
        data_file(
            offset,
            1,
            size_bytes=dice.choice([1_000, 10**9]),
            timestamp_ms=dice.randrange(40),
            modified_ms=dice.randrange(40),
        )
        for offset in range(dice.randrange(6))
    ]
    settings = {
        "cleanup.policy": dice.choice(["delete", "compact", "compact,delete"]),
        "retention.ms": dice.choice([-1, 5, 20]),
        "compaction.min.age.ms": dice.choice([0, 7]),
        "min.compaction.lag.ms": dice.choice([0, 9]),
        "max.compaction.lag.ms": dice.choice([11, 2**62]),
        "min.cleanable.dirty.ratio": dice.choice([0, 0.5, 0.9]),
    }
    state = state_with(files, settings, ends={0: len(files)})
    if dice.random() < 0.7:
        cleaned = dice.randrange(len(files) + 1)
        state.apply(
            1,
            [
                Register(registers.cleaned(0), cleaned),
                Register(registers.tombstones_end(0, 0), dice.choice([0, cleaned])),
                Register(registers.tombstones_expiry(0, 0), dice.randrange(60)),
            ],
        )
    return state


@pytest.mark.parametrize("kind", [Compaction, Retention, KeyedCompaction])
def test_no_plan_has_anything_to_do_between_a_look_and_the_time_that_is_due(kind: Any) -> None:
    dice = random.Random(7)
    early = late = 0
    for _ in range(250):
        job = kind()
        view = TableView("t", TOPICS, random_state(dice))
        plans = [job.plan(view, now_ms) for now_ms in range(60)]
        for now_ms, plan in enumerate(plans):
            if not plan.nothing:
                continue
            until_ms = min(plan.due_ms, len(plans))
            assert all(one.nothing for one in plans[now_ms:until_ms])
            if now_ms < plan.due_ms < len(plans):
                early += plans[plan.due_ms].nothing
                late += not plans[plan.due_ms].nothing
    assert late > 100, "the times that are due are of no use"
    assert early < 20 * late


# -- the process that runs jobs again and again ----------------------------------------------------


def test_the_scheduler_keeps_notes_for_each_job_with_its_options(
    store: LocalStore, log: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int | None] = []

    def plan(self: Retention, table: TableView, now_ms: int) -> Plan[Task]:
        looked_at.append(now_ms)
        return Plan(table.topic, table.folder, table.state.version, due_ms=NEVER_MS)

    monkeypatch.setattr(Retention, "plan", plan)
    runs = SparkRuns(store.uri, {})
    settings = JobSettings(Cron("0 * * * *"), topics=("t",))
    for _ in range(3):
        runs.run("retention", settings)
    assert len(looked_at) == 1
