"""When jobs are due, scenario by scenario; the rules are in `tests/property/test_schedule.py`."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from mainstem.jobs.schedule import Cron, Due, JobTimes, Schedule

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def at(text: str) -> int:
    """ms since 1970 of a time of 2026-03-01, UTC."""
    time = datetime.fromisoformat(f"2026-03-01T{text}").replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


def schedule(
    *jobs: JobTimes, now: str, jitter_ms: int = 0, running_max: int = 1, seed: int = 1
) -> Schedule:
    return Schedule(
        jobs,
        now_ms=at(now),
        jitter_ms=jitter_ms,
        running_max=running_max,
        rng=random.Random(seed),
    )


EVERY_FIVE = Cron("*/5 * * * *")
DAILY = Cron("30 3 * * *")


def test_a_new_job_waits_for_its_first_time() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE), now="10:02")
    assert jobs.take(at("10:02")) == []
    assert jobs.wake_ms() == at("10:05")
    assert jobs.take(at("10:05") - 1) == []
    assert jobs.take(at("10:05")) == [Due("compaction", at("10:05"))]
    assert jobs.take(at("10:05")) == []


def test_what_was_missed_during_downtime_is_caught_up_with_one_run() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE, after_ms=at("06:01")), now="10:02")
    assert jobs.take(at("10:02")) == [Due("compaction", at("06:05"))]
    jobs.ended("compaction", at("10:03"))
    assert jobs.take(at("10:03")) == []
    assert jobs.next_start_ms("compaction") == at("10:05")


def test_a_missed_job_is_not_delayed_by_jitter() -> None:
    job = JobTimes("vacuum", DAILY, after_ms=at("03:30") - 24 * HOUR_MS)
    jobs = schedule(job, now="09:00", jitter_ms=HOUR_MS)
    assert jobs.take(at("09:00")) == [Due("vacuum", at("03:30"))]


def test_a_job_that_was_dealt_with_a_moment_ago_does_not_run_again_after_a_restart() -> None:
    jobs = schedule(JobTimes("vacuum", DAILY, after_ms=at("03:30")), now="03:31")
    assert jobs.take(at("03:31")) == []
    assert jobs.wake_ms() == at("03:30") + 24 * HOUR_MS


def test_a_job_does_not_overlap_itself_and_what_came_due_meanwhile_is_left_out() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE), now="10:02", running_max=2)
    jobs.take(at("10:05"))
    assert jobs.take(at("10:10")) == []
    assert jobs.is_running("compaction")
    jobs.ended("compaction", at("10:11"))
    assert jobs.take(at("10:11")) == []
    assert jobs.take(at("10:15")) == [Due("compaction", at("10:15"))]


def test_jobs_wait_for_a_place_and_the_longest_due_comes_first() -> None:
    jobs = schedule(
        JobTimes("a", Cron("4 * * * *")),
        JobTimes("b", Cron("3 * * * *")),
        JobTimes("c", Cron("2 * * * *")),
        now="10:00",
    )
    assert [due.name for due in jobs.take(at("10:02"))] == ["c"]
    assert jobs.take(at("10:05")) == []
    assert jobs.wake_ms() is None, "nothing can start before a job ends"
    jobs.ended("c", at("10:06"))
    assert jobs.take(at("10:06")) == [Due("b", at("10:03"))]
    jobs.ended("b", at("10:07"))
    assert jobs.take(at("10:07")) == [Due("a", at("10:04"))]


def test_a_paused_job_does_not_start_and_resuming_it_catches_nothing_up() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE, paused=True), now="10:02")
    assert jobs.is_paused("compaction")
    assert jobs.wake_ms() is None
    assert jobs.next_start_ms("compaction") is None
    assert jobs.take(at("10:21")) == []
    jobs.set_paused("compaction", False, at("10:22"))
    assert jobs.take(at("10:22")) == []
    assert jobs.take(at("10:25")) == [Due("compaction", at("10:25"))]


def test_a_pause_and_resume_between_two_times_changes_nothing() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE), now="10:02")
    jobs.set_paused("compaction", True, at("10:03"))
    jobs.set_paused("compaction", False, at("10:04"))
    assert jobs.take(at("10:05")) == [Due("compaction", at("10:05"))]


def test_a_running_job_that_is_paused_ends_and_does_not_come_again() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE), now="10:02")
    jobs.take(at("10:05"))
    jobs.set_paused("compaction", True, at("10:06"))
    jobs.ended("compaction", at("10:07"))
    assert jobs.take(at("10:10")) == []


def test_a_clock_that_is_set_back_does_not_stop_the_jobs_until_it_is_where_it_was() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE), now="10:02")
    jobs.take(at("10:05"))
    jobs.ended("compaction", at("10:05"))
    assert jobs.take(at("07:01")) == []
    assert jobs.take(at("07:05")) == [Due("compaction", at("07:05"))]


def test_a_clock_that_is_adjusted_by_seconds_runs_nothing_twice() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE), now="10:02")
    jobs.take(at("10:05"))
    jobs.ended("compaction", at("10:05"))
    assert jobs.take(at("10:04:59")) == []
    assert jobs.take(at("10:05:01")) == []


def test_a_last_run_in_the_future_does_not_hold_a_job_up() -> None:
    jobs = schedule(JobTimes("compaction", EVERY_FIVE, after_ms=at("23:00")), now="10:02")
    assert jobs.wake_ms() == at("10:05")


def test_jitter_spreads_jobs_and_is_the_same_for_the_same_seed() -> None:
    names = [f"job-{index}" for index in range(50)]

    def starts(seed: int) -> list[int | None]:
        jobs = schedule(
            *(JobTimes(name, EVERY_FIVE) for name in names),
            now="10:02",
            jitter_ms=MINUTE_MS,
            seed=seed,
        )
        return [jobs.next_start_ms(name) for name in names]

    assert starts(1) == starts(1)
    assert starts(1) != starts(2)
    late = [start - at("10:05") for start in starts(1) if start is not None]
    assert len(late) == 50
    assert 0 <= min(late) < max(late) <= MINUTE_MS
    assert len(set(late)) > 40


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("61 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * * *", "wrong number of fields"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("every day", "wrong number of fields"),
        ("0 0 31 4 *", "bad day-of-month"),
    ],
)
def test_bad_cron_text_is_refused_with_the_field(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Cron(text)


def test_six_fields_have_the_second_first_and_names_of_days_are_known() -> None:
    assert Cron("*/10 * * * * *").after(at("10:00:05")) == at("10:00:10")
    assert Cron("15 4 * * MON").after(at("10:00")) == at("04:15") + 24 * HOUR_MS
