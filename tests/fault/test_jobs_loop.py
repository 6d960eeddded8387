"""Nobody who reads or writes notices that every job runs every few seconds.

`make test` writes for 8 s, on a busy machine until each job has had something to do;
`make test-fault` sets MAINSTEM_TEST_FAULTS=full: 10 minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.fault.jobs_loop import WORKING, Reader, Record, judge, run_jobs_loop
from tests.length import FULL

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

SECONDS = 600.0 if FULL else 8.0


@pytest.mark.timeout(1_500 if FULL else 500)
def test_each_record_is_delivered_once_or_was_removed_by_a_policy_that_the_reader_is_told_of(
    tmp_path: Path, spark: SparkSession, seed: int, report: Callable[[object], None]
) -> None:
    result = run_jobs_loop(tmp_path, spark, seed, SECONDS)
    report(result)
    assert not result.findings, str(result)
    for job in WORKING:
        assert result.runs[f"{job} ok"] > 0, f"{job} had nothing to do: {result}"


APPENDED = {
    ("events", 0, 0): Record(b"a", b"0"),
    ("events", 0, 1): Record(b"a", b"1"),
    ("accounts", 0, 0): Record(b"a", b"2"),
    ("accounts", 0, 1): Record(b"a", b"3"),
    ("accounts", 0, 2): Record(b"b", None),
}


def reader(*places: tuple[str, int, int], told: bool = False) -> Reader:
    """One that was given the records at these places, as they were appended."""
    one = Reader("reader", ("events", "accounts"), told={("events", 0)} if told else set())
    for topic, partition, offset in places:
        one.take(topic, partition, offset, APPENDED[topic, partition, offset])
    return one


def test_the_judge_accepts_what_policies_remove_and_nothing_else() -> None:
    first, second = ("events", 0, 0), ("events", 0, 1)
    newest = ("accounts", 0, 1)
    starts = {("events", 0): 1, ("accounts", 0): 0}
    assert judge(reader(*APPENDED), APPENDED, starts) == []
    # Superseded by a newer record, or a tombstone.
    assert judge(reader(first, second, newest), APPENDED, starts) == []
    assert judge(reader(second, newest, told=True), APPENDED, starts) == []

    assert judge(reader(second, newest), APPENDED, starts) == [
        "reader: events-0 0 was never delivered"
    ], "it was not told"
    assert judge(reader(first, newest, told=True), APPENDED, starts) == [
        "reader: events-0 1 was never delivered"
    ], "it is still there"
    assert judge(reader(first, second), APPENDED, starts) == [
        "reader: accounts-0 1 was never delivered"
    ]
    assert "reader: events-0 twice: [1]" in judge(
        reader(first, second, second, newest), APPENDED, starts
    )
    assert judge(reader(second, first, newest), APPENDED, starts) == [
        "reader: events-0 out of order"
    ]
    wrong = reader(*APPENDED)
    wrong.records[first] = Record(b"a", b"9")
    assert len(judge(wrong, APPENDED, starts)) == 1
