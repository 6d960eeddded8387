"""Keyed compaction of `system/consumer_offsets`, with and without a gateway that leads it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.unit.consumers.test_offsets_table import led, shown, stored
from tests.unit.consumers.test_offsets_table import run as run_async
from tests.unit.jobs.keyed_logs import run
from tests.unit.jobs.topic_tables import check_verified

from mainstem.consumers.offset_rows import OffsetKey, Row, offset_row
from mainstem.consumers.offsets_table import NAME
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.latest.rewriting import Rewriter
from mainstem.delta_log.topics import SYSTEM
from mainstem.jobs.job import JobOutcome, OutcomeKind, TableView
from mainstem.jobs.keyed_compaction import KeyedCompaction


def eager() -> KeyedCompaction:
    """The job, whatever the age and the number of new rows."""
    return KeyedCompaction(settings={"compaction.min.age.ms": 0, "min.cleanable.dirty.ratio": 0.0})


def later_ms() -> int:
    return time.time_ns() // 1_000_000 + 1


def compact(warehouse: Path) -> JobOutcome:
    """Compacts the table."""
    store = LocalStore(warehouse)
    try:
        tables = Topics(store, folder=SYSTEM)
        return run(tables, later_ms(), NAME, eager(), SYSTEM)
    finally:
        store.close()


def check(warehouse: Path) -> None:
    store = LocalStore(warehouse / SYSTEM / NAME, create=False)
    check_verified(store, NAME)
    store.close()


def test_a_table_that_nobody_leads_says_the_same_in_fewer_rows(tmp_path: Path) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            for number in range(30):
                await table.write([offset_row("g", stored(number % 3, number))])
            await table.write([Row("g", OffsetKey("id", 2), None)])
            before = shown(table)
        outcome = compact(tmp_path)
        assert outcome.kind == OutcomeKind.OK
        assert (outcome.before.records, outcome.after.records) == (31, 2)
        check(tmp_path)
        async with led(tmp_path) as table:
            assert shown(table) == before

    run_async(test())


def test_a_live_leader_goes_on_beside_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            for number in range(10):
                await table.write([offset_row("g", stored(number % 2, number))])
            assert compact(tmp_path).kind == OutcomeKind.OK
            for number in range(10):
                await table.write([offset_row("g", stored(number % 2, 100 + number))])
            before = shown(table)
            assert compact(tmp_path).kind == OutcomeKind.OK
        check(tmp_path)
        async with led(tmp_path) as table:
            assert shown(table) == before

    run_async(test())


def test_a_key_that_went_stays_away_when_the_leader_rewrites_the_table_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the leader knows of old files is out of date by the time that it removes them."""
    remove = Rewriter._remove_before
    store = LocalStore(tmp_path)
    job = eager()
    kinds = []

    async def test() -> None:
        async with led(tmp_path) as table:
            for partition in (0, 1, 0):
                await table.write([offset_row("g", stored(partition, 1))])
            opened = Topics(store, folder=SYSTEM).open(NAME)
            plan = job.plan(TableView(NAME, SYSTEM, opened.state), later_ms())
            results = [job.run_task(opened.store, task) for task in plan.tasks]

            async def remove_after_the_commit(rewriter: Rewriter[Row], first_offset: int) -> None:
                kinds.append(job.commit(opened, plan, results, later_ms()).kind)
                await remove(rewriter, first_offset)

            await table.write([Row("g", OffsetKey("id", 1), None)])
            before = shown(table)
            monkeypatch.setattr(Rewriter, "_remove_before", remove_after_the_commit)
            await table.rewrite()
        assert kinds == [OutcomeKind.OK]
        async with led(tmp_path) as table:
            assert shown(table) == before

    run_async(test())
    store.close()
