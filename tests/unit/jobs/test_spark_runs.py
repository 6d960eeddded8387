"""What the scheduler makes of a job's run; without Spark, as far as it is not needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.jobs.topic_tables import appends

from mainstem.delta_log import LocalStore, Topics
from mainstem.errors import ShuttingDownError
from mainstem.jobs.job import JobOutcome, OutcomeKind
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.jobs_config import JobSettings
from mainstem.jobs.schedule import Cron
from mainstem.jobs.session import session_is_alive
from mainstem.jobs.spark_runs import RunEnd, SparkRuns, run_end

pytestmark = pytest.mark.usefixtures("no_leaks")

HOURLY = Cron("0 * * * *")
OLD_MS = 1_700_000_000_000


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[str]:
    """A warehouse whose topic `orders` has small files to merge."""
    store = LocalStore(tmp_path / "warehouse")
    orders = appends(Topics(store), "orders", 1)
    for _ in range(3):
        orders.append(0, [b"value"], modified_ms=OLD_MS)
    yield store.uri
    store.close()


def row(topic: str, kind: OutcomeKind, error: str = "") -> JobRun:
    return JobRun("run", "compaction", topic, 0, 1, JobOutcome(kind, error=error))


@pytest.mark.parametrize(
    ("kinds", "outcome", "tables"),
    [
        ([], OutcomeKind.NOTHING, 0),
        ([OutcomeKind.NOTHING, OutcomeKind.NOTHING], OutcomeKind.NOTHING, 0),
        ([OutcomeKind.NOTHING, OutcomeKind.SUPERSEDED], OutcomeKind.SUPERSEDED, 1),
        ([OutcomeKind.SUPERSEDED, OutcomeKind.OK, OutcomeKind.NOTHING], OutcomeKind.OK, 2),
    ],
)
def test_a_run_is_as_good_as_the_best_of_its_tables(
    kinds: list[OutcomeKind], outcome: OutcomeKind, tables: int
) -> None:
    rows = [row(f"t{number}", kind) for number, kind in enumerate(kinds)]
    assert run_end(rows) == RunEnd(outcome, tables=tables)


def test_a_run_has_failed_if_one_table_did_and_names_the_first() -> None:
    rows = [
        row("a", OutcomeKind.OK),
        row("b", OutcomeKind.FAILED, "LOG_DAMAGED: a file is missing"),
        row("c", OutcomeKind.FAILED, "STORE_UNAVAILABLE: the store is away"),
    ]
    assert run_end(rows[:2]) == RunEnd(
        OutcomeKind.FAILED, "b: LOG_DAMAGED: a file is missing", tables=2
    )
    assert run_end(rows).error == "b: LOG_DAMAGED: a file is missing (and 1 more of 3 tables)"


def test_patterns_that_no_topic_matches_mean_no_topic_and_not_all(warehouse: str) -> None:
    runs = SparkRuns(warehouse, {})
    settings = JobSettings(HOURLY, topics=("clicks-*",))
    assert runs.run("compaction", settings) == RunEnd(OutcomeKind.NOTHING)


def test_options_count_and_a_run_without_work_starts_no_spark(warehouse: str) -> None:
    runs = SparkRuns(warehouse, {})
    alive = session_is_alive()
    settings = JobSettings(
        HOURLY, topics=("ord*",), options={"compaction.min.age.ms": "1000000000000"}
    )
    assert runs.run("compaction", settings) == RunEnd(OutcomeKind.NOTHING)
    assert session_is_alive() == alive
    runs.close()
    assert session_is_alive() == alive, "a session that it did not start is not its own to end"


def test_after_it_was_abandoned_no_run_starts_spark_any_more(warehouse: str) -> None:
    runs = SparkRuns(warehouse, {})
    runs.abandon()
    with pytest.raises(ShuttingDownError):
        runs.run("compaction", JobSettings(HOURLY))
