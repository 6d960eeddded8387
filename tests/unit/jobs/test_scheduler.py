"""The scheduler with jobs that are functions: leases, pauses, failures, restarts, draining."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mainstem.delta_log import LocalStore
from mainstem.errors import StoreUnavailableError
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.jobs_config import SCHEDULER_KEYS, JobsConfig, JobSettings
from mainstem.jobs.schedule import Cron
from mainstem.jobs.scheduler import Scheduler
from mainstem.jobs.scheduler_http import serve_http
from mainstem.jobs.scheduler_lease import Lease
from mainstem.jobs.scheduler_metrics import SchedulerMetrics
from mainstem.jobs.scheduler_table import (
    JobRow,
    SchedulerTable,
    job_key,
    jobs_of,
    lease_of,
    read_rows,
    set_paused,
)
from mainstem.jobs.spark_runs import RunEnd

pytestmark = pytest.mark.usefixtures("no_leaks")

EVERY_SECOND = Cron("* * * * * *")
YEARLY = Cron("0 0 1 1 *")
DEADLINE_S = 20.0

OK = RunEnd(OutcomeKind.OK)


def fast_ms() -> int:
    """A clock on which a second takes 40 ms."""
    return 1_700_000_000_000 + int(time.monotonic() * 25_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    """An empty warehouse."""
    opened = LocalStore(tmp_path / "warehouse")
    yield opened
    opened.close()


def config(jobs: dict[str, JobSettings], **scheduler: int) -> JobsConfig:
    """Settings with short times; `heartbeat_interval_ms=...` for heartbeat.interval.ms."""
    values = {name: key.default for name, key in SCHEDULER_KEYS.items()} | {
        "jitter.ms": 0,
        "heartbeat.interval.ms": 50,
        "session.timeout.ms": 1_000,
        "shutdown.grace.ms": 10_000,
    }
    values |= {name.replace("_", "."): value for name, value in scheduler.items()}
    return JobsConfig(values, jobs, {})


@contextmanager
def running(scheduler: Scheduler) -> Iterator[list[bool]]:
    """Runs it in a thread, and stops it at the end; the list gets what `run` returned."""
    clean: list[bool] = []
    thread = threading.Thread(target=lambda: clean.append(scheduler.run()))
    thread.start()
    try:
        yield clean
    finally:
        scheduler.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def row(store: LocalStore, job: str) -> JobRow:
    return jobs_of(read_rows(store)).get(job, JobRow())


def every_second(*names: str) -> dict[str, JobSettings]:
    return {name: JobSettings(EVERY_SECOND) for name in names}


def sample(metrics: SchedulerMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def test_a_job_that_fails_is_recorded_and_tried_at_its_next_time(store: LocalStore) -> None:
    calls: list[str] = []

    def run_job(name: str, _: JobSettings) -> RunEnd:
        calls.append(name)
        if name == "good":
            return OK
        if len(calls) % 2:
            raise ZeroDivisionError("by accident")
        raise StoreUnavailableError("the store is away")

    metrics = SchedulerMetrics()
    scheduler = Scheduler(
        store,
        config(every_second("good", "bad")),
        run_job,
        metrics=metrics,
        clock_ms=fast_ms,
    )
    with running(scheduler) as clean:
        until(lambda: calls.count("bad") >= 2 and calls.count("good") >= 2)
        until(lambda: row(store, "good").outcome == "ok")
        until(lambda: row(store, "bad").outcome == "failed")
    assert clean == [True]
    bad = row(store, "bad")
    assert bad.error in (
        "ZeroDivisionError: by accident",
        "STORE_UNAVAILABLE: the store is away",
    )
    assert bad.last_success_ms is None
    assert bad.running == ""
    assert sample(metrics, "mainstem_job_runs_total", job="bad", outcome="failed") >= 2
    assert sample(metrics, "mainstem_job_runs_total", job="good", outcome="ok") >= 2
    assert sample(metrics, "mainstem_job_seconds_count", job="good") >= 2
    good = row(store, "good").last_success_ms
    assert good is not None
    seen = sample(metrics, "mainstem_job_last_success_timestamp_seconds", job="good")
    assert abs(seen * 1000 - good) < 60_000


def test_a_paused_job_does_not_run_until_it_is_resumed(store: LocalStore) -> None:
    calls: list[str] = []

    def run_job(name: str, _: JobSettings) -> RunEnd:
        calls.append(name)
        return OK

    assert set_paused(store, "vacuum", True, now_ms=1)
    assert not set_paused(store, "vacuum", True, now_ms=2), "it is paused already"
    jobs = every_second("vacuum", "retention")
    with running(Scheduler(store, config(jobs), run_job, clock_ms=fast_ms)):
        until(lambda: calls.count("retention") >= 2)
        assert "vacuum" not in calls, "a pause from before the start"
        assert row(store, "vacuum").paused
        set_paused(store, "vacuum", False, now_ms=fast_ms())
        set_paused(store, "retention", True, now_ms=0)
        until(lambda: row(store, "retention").next_ms is None)
        before = calls.count("retention")
        until(lambda: calls.count("vacuum") >= 2)
    assert calls.count("retention") <= before + 1, "at most the run that was at work"


def test_what_was_missed_is_caught_up_once_after_a_restart(store: LocalStore) -> None:
    calls: list[str] = []

    def run_job(name: str, _: JobSettings) -> RunEnd:
        calls.append(name)
        return OK

    start_ms = 1_700_000_000_000
    clock = [start_ms]
    jobs = {"vacuum": JobSettings(Cron("*/5 * * * *")), "yearly": JobSettings(YEARLY)}

    def scheduler() -> Scheduler:
        return Scheduler(store, config(jobs), run_job, clock_ms=lambda: clock[0])

    with running(scheduler()):
        until(lambda: row(store, "vacuum").next_ms is not None)
    assert calls == []
    clock[0] += 3_600_000
    with running(scheduler()):
        until(lambda: row(store, "vacuum").outcome == "ok")
        until(lambda: (row(store, "vacuum").next_ms or 0) > clock[0])
    assert calls == ["vacuum"]
    assert row(store, "vacuum").cron == "*/5 * * * *"
    with running(scheduler()):
        until(lambda: lease_of(read_rows(store)))
    assert calls == ["vacuum"], "it is not caught up twice"


def test_a_second_scheduler_waits_and_takes_over_when_the_first_ends(store: LocalStore) -> None:
    ran_by: list[int] = []

    def run_by(number: int) -> Callable[[str, JobSettings], RunEnd]:
        def run_job(_: str, __: JobSettings) -> RunEnd:
            ran_by.append(number)
            return OK

        return run_job

    settings = config(every_second("compaction"), session_timeout_ms=600_000)
    first, second = (
        Scheduler(store, settings, run_by(number), clock_ms=fast_ms) for number in (1, 2)
    )
    with running(second), running(first):
        until(lambda: first.is_active or second.is_active)
        active = 1 if first.is_active else 2
        until(lambda: len(ran_by) >= 2)
        assert set(ran_by) == {active}
        (first if active == 1 else second).stop()
        waiting = 3 - active
        # Long before the session timeout: a lease that is given back is free at once.
        until(lambda: waiting in ran_by)


def test_a_scheduler_that_is_silent_loses_its_lease_and_starts_nothing_more(
    store: LocalStore,
) -> None:
    begun = threading.Event()
    let_go = threading.Event()
    ran_by: list[str] = []

    def stuck(_: str, __: JobSettings) -> RunEnd:
        ran_by.append("stuck")
        begun.set()
        let_go.wait(DEADLINE_S)
        return OK

    def by_other(_: str, __: JobSettings) -> RunEnd:
        ran_by.append("other")
        return OK

    # Its heartbeats are so rare that it is silent for the whole test, unless a job begins or ends.
    silent = Scheduler(
        store,
        config(every_second("compaction"), heartbeat_interval_ms=600_000, session_timeout_ms=1_000),
        stuck,
        clock_ms=fast_ms,
    )
    other = Scheduler(
        store,
        config(every_second("compaction")),
        by_other,
        clock_ms=fast_ms,
    )
    with running(silent):
        assert begun.wait(DEADLINE_S)
        with running(other):
            until(lambda: "other" in ran_by)
            let_go.set()
            until(lambda: not silent.is_active)
            assert ran_by.count("stuck") == 1
            until(lambda: row(store, "compaction").outcome == "ok")


def test_a_run_that_its_scheduler_did_not_survive_is_told_as_abandoned(store: LocalStore) -> None:
    jobs = {"vacuum": JobSettings(YEARLY)}
    with running(Scheduler(store, config(jobs), lambda _, __: OK)):
        until(lambda: row(store, "vacuum").next_ms is not None)
    table = SchedulerTable(store)
    table.update(lambda _: {job_key("vacuum"): JobRow(after_ms=1, running="gone", started_ms=5)})
    scheduler = Scheduler(store, config(jobs), lambda _, __: OK, clock_ms=lambda: 1_000)
    with running(scheduler):
        until(lambda: row(store, "vacuum").outcome)
    found = row(store, "vacuum")
    assert (found.outcome, found.running, found.started_ms) == ("abandoned", "", 5)


def test_ending_waits_for_the_running_job_and_starts_no_other(store: LocalStore) -> None:
    begun = threading.Event()
    ended: list[str] = []

    def run_job(name: str, _: JobSettings) -> RunEnd:
        begun.set()
        time.sleep(0.3)  # other jobs come due meanwhile
        ended.append(name)
        return OK

    settings = config(every_second("a", "b"), max_running_jobs=1)
    scheduler = Scheduler(store, settings, run_job, clock_ms=fast_ms)
    with running(scheduler) as clean:
        assert begun.wait(DEADLINE_S)
    assert clean == [True]
    assert len(ended) == 1
    assert row(store, ended[0]).outcome == "ok"
    assert lease_of(read_rows(store)) is None


def test_a_job_that_does_not_end_in_time_is_abandoned(store: LocalStore) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def run_job(_: str, __: JobSettings) -> RunEnd:
        begun.set()
        assert cancelled.wait(DEADLINE_S)
        raise RuntimeError("the work was cancelled")

    scheduler = Scheduler(
        store,
        config(every_second("a"), shutdown_grace_ms=0),
        run_job,
        cancelled.set,
        clock_ms=fast_ms,
    )
    with running(scheduler) as clean:
        assert begun.wait(DEADLINE_S)
    assert clean == [True]
    assert row(store, "a").outcome == "abandoned"
    assert row(store, "a").error == "RuntimeError: the work was cancelled"


def test_a_scheduler_whose_store_is_away_starts_nothing_while_another_has_the_lease(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran_by: list[str] = []

    def run_by(who: str) -> Callable[[str, JobSettings], RunEnd]:
        def run_job(_: str, __: JobSettings) -> RunEnd:
            ran_by.append(who)
            return OK

        return run_job

    cut_off_store = LocalStore(Path(store.uri.removeprefix("file://")))
    jobs = every_second("compaction")
    cut_off = Scheduler(cut_off_store, config(jobs), run_by("cut off"), clock_ms=fast_ms)
    other = Scheduler(store, config(jobs), run_by("other"), clock_ms=fast_ms)
    with contextlib.closing(cut_off_store), running(cut_off):
        until(lambda: "cut off" in ran_by)
        with running(other):
            with monkeypatch.context() as patch:

                def away(*_: object, **__: object) -> None:
                    raise StoreUnavailableError("the store is away")

                patch.setattr(cut_off._table, "update", away)
                until(lambda: "other" in ran_by)
                ran_by.clear()
                until(lambda: ran_by.count("other") >= 3)
                assert "cut off" not in ran_by
            other.stop()
            ran_by.clear()
            until(lambda: "cut off" in ran_by)


def test_a_job_that_came_due_while_the_store_was_away_runs_when_it_is_back(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def run_job(name: str, _: JobSettings) -> RunEnd:
        calls.append(name)
        return OK

    clock = [1_700_000_000_000]
    scheduler = Scheduler(
        store,
        config({"vacuum": JobSettings(Cron("0 0 * * *"))}),
        run_job,
        clock_ms=lambda: clock[0],
    )
    with running(scheduler):
        until(lambda: row(store, "vacuum").next_ms is not None)
        due_ms = row(store, "vacuum").next_ms
        assert due_ms is not None
        with monkeypatch.context() as patch:

            def away(*_: object, **__: object) -> None:
                raise StoreUnavailableError("the store is away")

            patch.setattr(scheduler._table, "update", away)
            clock[0] = due_ms
            until(lambda: scheduler.not_ready)
            assert calls == []
        until(lambda: row(store, "vacuum").outcome == "ok")
    assert calls == ["vacuum"]


def test_what_was_missed_is_caught_up_also_after_a_clock_that_was_a_year_ahead(
    store: LocalStore,
) -> None:
    calls: list[str] = []

    def run_job(name: str, _: JobSettings) -> RunEnd:
        calls.append(name)
        return OK

    start_ms = 1_700_000_000_000
    clock = [start_ms + 365 * 86_400_000]
    jobs = {"vacuum": JobSettings(Cron("*/5 * * * *"))}

    def scheduler() -> Scheduler:
        return Scheduler(store, config(jobs), run_job, clock_ms=lambda: clock[0])

    with running(scheduler()):
        until(lambda: row(store, "vacuum").next_ms is not None)
        clock[0] = start_ms
        until(lambda: (row(store, "vacuum").next_ms or 0) < start_ms + 3_600_000)
    assert calls == []
    clock[0] += 3_600_000
    with running(scheduler()):
        until(lambda: lease_of(read_rows(store)))
        until(lambda: (row(store, "vacuum").next_ms or 0) > clock[0])
        assert row(store, "vacuum").started_ms == clock[0]


def test_jobs_that_are_not_enabled_do_not_run_and_lose_their_times(store: LocalStore) -> None:
    calls: list[str] = []

    def run_job(name: str, _: JobSettings) -> RunEnd:
        calls.append(name)
        return OK

    jobs = every_second("a", "b")
    with running(Scheduler(store, config(jobs), run_job, clock_ms=fast_ms)):
        until(lambda: "b" in calls and row(store, "b").cron)
    calls.clear()
    jobs = every_second("a") | {"b": JobSettings(EVERY_SECOND, enabled=False)}
    with running(Scheduler(store, config(jobs), run_job, clock_ms=fast_ms)):
        until(lambda: calls.count("a") >= 2)
    assert "b" not in calls
    assert (row(store, "b").cron, row(store, "b").next_ms) == ("", None)


def ask(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_scheduler_shows_metrics_health_and_a_page_with_its_jobs(store: LocalStore) -> None:
    def run_job(name: str, _: JobSettings) -> RunEnd:
        return RunEnd(OutcomeKind.FAILED, "<b>bad</b>") if name == "bad" else OK

    metrics = SchedulerMetrics()
    jobs = every_second("good", "bad")
    scheduler = Scheduler(store, config(jobs), run_job, metrics=metrics, clock_ms=fast_ms)
    server = serve_http("127.0.0.1:0", scheduler, metrics, store.uri)
    try:
        assert ask(server.address, "/readyz") == (503, "the scheduler starts\n")
        with running(scheduler):
            until(lambda: row(store, "bad").outcome == "failed")
            assert ask(server.address, "/healthz") == (200, "ok\n")
            assert ask(server.address, "/readyz") == (200, "ok\n")
            _, text = ask(server.address, "/metrics")
            assert "mainstem_job_scheduler_active 1.0" in text
            assert "process_open_fds" in text
            _, page = ask(server.address, "/")
            assert "runs the jobs" in page
            assert "&lt;b&gt;bad&lt;/b&gt;" in page
            assert ask(server.address, "/ready")[0] == 404
        assert ask(server.address, "/readyz") == (503, "the scheduler ends\n")
    finally:
        server.close()


def test_a_scheduler_that_cannot_reach_its_table_is_not_ready_and_says_why(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(store, config({}), lambda *_: OK, clock_ms=fast_ms)
    with running(scheduler):
        until(lambda: not scheduler.not_ready)
        with monkeypatch.context() as patch:

            def away(*_: object) -> None:
                raise StoreUnavailableError("the store is away")

            patch.setattr(Lease, "renew", away)
            until(lambda: scheduler.not_ready == "the store is away")
        until(lambda: not scheduler.not_ready)
