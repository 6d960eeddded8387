"""Two gateways that both believe that they lead, and maintenance between their commits.

`make test` runs this for 6 s, `make test-fault` for 60 s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.two_gateways import LEADER_PRODUCERS, TOPICS, RaceReport, run_race
from tests.fault.workload import acknowledged_records, orphaned_records, stored_records
from tests.fault.wrong_clocks import commit_time_range_s, give_wrong_clocks
from tests.length import FULL

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]


@pytest.mark.timeout(900 if FULL else 300)
def test_two_gateways_and_maintenance_on_one_topic_lose_and_double_nothing(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_race(tmp_path, seed, 60.0 if FULL else 6.0)
    report(result)
    check(result)
    assert result.judgement.verdict.duplicate_count == 0, "a lost lead is an answer, not a doubt"


@pytest.mark.timeout(900 if FULL else 300)
def test_leaders_that_are_frozen_while_their_log_is_cleaned_lose_and_double_nothing(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_race(tmp_path, seed, 120.0 if FULL else 12.0, log_kept_s=1)
    report(result)
    check(result)
    for topic in TOPICS:
        log = tmp_path / "warehouse" / "topics" / topic / "_delta_log"
        assert not (log / f"{0:020d}.json").exists(), "the log was cleaned"


@pytest.mark.timeout(900 if FULL else 300)
def test_gateways_and_maintenance_whose_clocks_jump_by_minutes_lose_and_double_nothing(
    tmp_path: Path,
    seed: int,
    report: Callable[[object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_wrong_clocks(tmp_path / "hooks", monkeypatch)
    result = run_race(tmp_path, seed, 60.0 if FULL else 6.0)
    report(result)
    check(result)
    assert result.judgement.verdict.duplicate_count == 0, "a lost lead is an answer, not a doubt"
    assert all(commit_time_range_s(tmp_path / "warehouse", topic) > 300 for topic in TOPICS)


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(900)
def test_a_gateway_takes_over_from_one_that_was_killed_and_nothing_is_lost_or_doubled(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_race(tmp_path, seed, 60.0, kill=True)
    report(result)
    check(result)


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(900)
def test_what_acks_1_promised_goes_with_the_lead_of_its_topic(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_race(tmp_path, seed, 30.0, specs=LEADER_PRODUCERS)
    warehouse = tmp_path / "warehouse"
    histories = (tmp_path / "producers").glob("*.jsonl")
    lost = acknowledged_records(histories, "1") - stored_records(warehouse, TOPICS)
    waiting = lost & orphaned_records(warehouse)
    report(f"acks=1 and a change of the leader: {len(lost):,} lost, {len(waiting):,} in a log")
    assert all(topic.ok for topic in result.judgement.topics), str(result)
    assert sum(result.epochs.values()) > len(TOPICS), "the lead changed hands"
    assert not lost


def check(result: RaceReport) -> None:
    """Every promise was kept, and there was occasion to break them."""
    assert result.judgement.ok, str(result)
    assert sum(result.epochs.values()) > len(TOPICS), "the lead changed hands"
    assert result.maintenance["settings"] > 0
    assert result.maintenance["merges"] > 0
    assert result.judgement.acknowledged_count > 0
