"""Compaction of random logs, with appends, removals from the front, checkpoints and other
compactions at any point in between. Every record that was not removed stays as it was.
"""

from __future__ import annotations

import pickle
import random
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.length import FULL
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.jobs.topic_tables import NOW_MS, Appends, all_records, appends, check_verified

from mainstem.delta_log import LocalStore, OpenTopic, Topics
from mainstem.delta_log.files import data_file_writer
from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.table import TableCommit, TableState, commit_beside_leader, replace_files
from mainstem.delta_log.topics import TOPICS
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.jobs.compaction import Compaction, Merge, Merged
from mainstem.jobs.job import JobOutcome, OutcomeKind, Plan, TableView
from mainstem.limits import KIB

PARTITIONS = 2

#: Small, so that files have several row groups.
ROWS_MAX = 7

Held = tuple[Compaction, OpenTopic, Plan[Merge], list[Merged]]


class CompactionMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), compression=st.sampled_from(["zstd", "none"]))
    def start(self, seed: int, compression: str) -> None:
        shared = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self.rng = random.Random(seed)
        self.store = LocalStore(self.directory / "warehouse")
        self.topics = Topics(self.store)
        self.table: Appends = appends(
            self.topics, partitions=PARTITIONS, compression_type=compression
        )
        self.expected = all_records(self.table.opened.store)
        self.between: list[int] = []
        self.held: list[Held] = []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            while self.held:
                self.commit_held()
            check_verified(self.table.opened.store)
            self.store.close()
            shutil.rmtree(self.directory)

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3 * ROWS_MAX))
    def append(self, partition: int, count: int) -> None:
        rng = self.rng
        before = self.table.opened.state.log_end_offset(partition)
        self.table.append(
            partition,
            [rng.choice([None, b"", rng.randbytes(rng.randrange(60))]) for _ in range(count)],
            keys=[rng.choice([None, b"", b"k", b"other"]) for _ in range(count)],
            headers=[
                rng.choice([None, [("h", None)], [("", b""), ("h", b"x")]]) for _ in "x" * count
            ],
            timestamps_ms=[NOW_MS + rng.randrange(-10, 10) for _ in range(count)],
            timestamp_type=rng.randrange(2),
            producer_id=rng.choice([None, 7, 8]),
        )
        self.expected[partition] += [
            record
            for record in all_records(self.table.opened.store)[partition]
            if record.offset >= before
        ]

    @rule(partitions=st.lists(st.integers(0, PARTITIONS - 1), max_size=3))
    def append_before_the_next_attempts(self, partitions: list[int]) -> None:
        """Another writer gets in between a job's look at the table and its commit."""
        self.between = partitions

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def remove_from_the_front(self, partition: int, count: int) -> None:
        """As retention does."""
        opened = self.topics.open("t")
        files = opened.state.files(partition).sorted()[:count]

        def removal(state: TableState) -> TableCommit | None:
            if not files:
                return None
            start = files[-1].last_offset + 1
            actions = replace_files(state, files, now_ms=NOW_MS, data_change=True)
            actions.append(Register(registers.lso(partition), start))
            return TableCommit.of("RETENTION", actions, timestamp_ms=NOW_MS)

        commit_beside_leader(opened, removal)
        if files:
            self.expected[partition] = [
                record
                for record in self.expected[partition]
                if record.offset > files[-1].last_offset
            ]

    @rule()
    def checkpoint(self) -> None:
        write_checkpoint(self.table.opened.store)

    @rule(target_kib=st.integers(3, 40))
    def write_and_hold(self, target_kib: int) -> None:
        """Everything up to the commit."""
        job = Compaction(target_bytes=target_kib * KIB, min_age_ms=0)
        opened = self.topics.open("t")
        plan = job.plan(TableView("t", TOPICS, opened.state), NOW_MS)
        with patch.object(data_file_writer, "ROW_GROUP_ROWS_MAX", ROWS_MAX):
            results = [job.run_task(opened.store, task) for task in plan.tasks]
        copies: list[Merged] = pickle.loads(pickle.dumps(results))
        self.held.append((job, opened, plan, copies))

    @precondition(lambda self: self.held)
    @rule()
    def commit_held(self) -> None:
        job, opened, plan, results = self.held.pop(0)
        outcome = self._commit(job, opened, plan, results)
        if plan.nothing:
            assert outcome.kind == OutcomeKind.SUPERSEDED
        elif outcome.kind == OutcomeKind.OK:
            assert outcome.before.records == outcome.after.records
            assert outcome.after.files < outcome.before.files

    @rule(target_kib=st.integers(3, 40))
    def compact_twice(self, target_kib: int) -> None:
        """The second time finds nothing."""
        for expected in (None, True):
            self.write_and_hold(target_kib)
            job, opened, plan, results = self.held.pop()
            assert expected is None or plan.nothing
            if not plan.nothing:
                self.between = []
                assert self._commit(job, opened, plan, results).kind == OutcomeKind.OK

    def _commit(
        self, job: Compaction, opened: OpenTopic, plan: Plan[Merge], results: list[Merged]
    ) -> JobOutcome:
        def append_first(call: str, path: str) -> None:
            if call == "put_if_absent" and "_delta_log" in path and self.between:
                self.append(self.between.pop(), 3)

        faulty = OpenTopic("t", FaultyStore(opened.store, append_first), opened.state)
        return job.commit(faulty, plan, results, NOW_MS)

    @invariant()
    def every_record_is_as_it_was(self) -> None:
        if hasattr(self, "store"):
            assert all_records(self.table.opened.store) == self.expected


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(
    max_examples=25 if FULL else 10, stateful_step_count=20, deadline=None
)
