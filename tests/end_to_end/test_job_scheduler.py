"""The scheduler of jobs as real processes: Spark or it itself is killed, a standby that takes over,
SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from click.testing import CliRunner
from tests.length import FULL
from tests.unit.jobs.topic_tables import Appends, all_records, check_verified

from mainstem.cli.root import cli
from mainstem.delta_log import LocalStore, ObjectStore, Topics, load_table
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.job_history import read_history

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.spark]

DEADLINE_S = 60
MAINSTEM = [sys.executable, "-m", "mainstem.cli"]

JOBS = """
[scheduler]
jitter.ms = 0
heartbeat.interval.ms = 200
session.timeout.ms = 6000
metrics.listeners = "127.0.0.1:0"
[spark]
master = "local[1]"
driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
[jobs.compaction]
cron = "* * * * * *"
topics = ["ord*"]
options.compaction.min.age.ms = 0
"""


def write_jobs(directory: Path) -> Path:
    """A file in which compaction is the only job that is on."""
    from mainstem.jobs.catalogue import JOBS as KINDS

    others = "".join(f"[jobs.{name}]\nenabled = false\n" for name in KINDS if name != "compaction")
    file = directory / "jobs.toml"
    file.write_text(JOBS + others)
    return file


def is_ours(variable: str) -> bool:
    """Whether it would be taken for a setting."""
    return variable.startswith("MAINSTEM_")


class SchedulerProcess:
    """`mainstem job scheduler` in a process, with its log."""

    def __init__(self, warehouse: Path, jobs: Path, log: IO[bytes]) -> None:
        self._log = log
        place = ["--warehouse", str(warehouse), "--jobs", str(jobs)]
        self.process = subprocess.Popen(
            [*MAINSTEM, "-X", "log.format=json", "job", "scheduler", *place],
            env={name: value for name, value in os.environ.items() if not is_ours(name)},
            stderr=log,
        )

    @property
    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 24, 0).decode()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def metrics(self) -> str:
        address = self.said("scheduler ready")[0]["metrics"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=DEADLINE_S) as answer:
            body: bytes = answer.read()
        return body.decode()

    def jvm(self) -> int:
        """The process id of its JVM."""
        for one in processes():
            if one.parent == self.process.pid and "java" in one.command:
                return one.pid
        raise AssertionError("it has no JVM")

    def descendants(self) -> set[int]:
        """The process ids of its JVM and of all that this has started."""
        found: set[int] = set()
        parents = {self.process.pid}
        while parents:
            parents = {one.pid for one in processes() if one.parent in parents} - found
            found |= parents
        return found


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def processes() -> list[Process]:
    """All that run on this machine. Zombies do not."""
    listing = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,stat=,args="], text=True)
    found = []
    for line in listing.splitlines():
        pid, parent, state, command = line.split(maxsplit=3)
        if not state.startswith("Z"):
            found.append(Process(int(pid), int(parent), command))
    return found


@contextlib.contextmanager
def scheduler(warehouse: Path, jobs: Path) -> Iterator[SchedulerProcess]:
    with tempfile.TemporaryFile() as log:
        one = SchedulerProcess(warehouse, jobs, log)
        try:
            yield one
        finally:
            one.process.kill()
            one.process.wait()


def job(warehouse: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, rows and messages of `mainstem job ...`."""
    done = CliRunner().invoke(
        cli, ["--format", "json", "job", *arguments, "--warehouse", str(warehouse)]
    )
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_jobs_go_on_through_a_killed_jvm_a_pause_and_the_end_of_the_scheduler(
    tmp_path: Path,
) -> None:
    warehouse, jobs = tmp_path / "warehouse", write_jobs(tmp_path)
    store = LocalStore(warehouse)
    topics = Topics(store)
    for name in ("orders", "others"):
        topics.create(name, 1)
    appends = {name: Appends(topics.open(name)) for name in ("orders", "others")}

    def append(name: str) -> None:
        for _ in range(3):
            appends[name].append(0, [b"value"] * 5, modified_ms=1_700_000_000_000)

    def files(name: str) -> int:
        opened = topics.open(name)
        return opened.state.file_count

    append("orders")
    append("others")
    with scheduler(warehouse, jobs) as first:
        first.until(lambda: files("orders") == 1)
        assert first.said("job started"), "nothing but the scheduler ran"

        with scheduler(warehouse, jobs) as second:
            second.until(lambda: second.said("the scheduler waits for its turn"))
            assert "mainstem_job_scheduler_active 0.0" in second.metrics()

            os.kill(first.jvm(), signal.SIGKILL)
            append("orders")
            first.until(lambda: files("orders") == 1)
            assert first.said("the Spark session is lost; another is started")

            code, rows, _ = job(warehouse, "pause", "compaction")
            assert (code, rows[0]["status"]) == (0, "OK")
            first.until(lambda: is_paused(warehouse))
            append("orders")
            ended = len(first.said("job ended"))
            time.sleep(2.5)  # the job would have come due twice
            assert len(first.said("job ended")) == ended
            assert job(warehouse, "resume", "compaction")[0] == 0
            first.until(lambda: len(first.said("job ended")) > ended)

            text = first.metrics()
            assert re.search(
                r'^mainstem_job_runs_total{job="compaction",outcome="ok"} [1-9]', text, re.MULTILINE
            )
            assert 'mainstem_job_seconds_count{job="compaction"}' in text
            assert 'mainstem_job_last_success_timestamp_seconds{job="compaction"}' in text
            assert "mainstem_job_scheduler_active 1.0" in text

            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(DEADLINE_S) == 0
            second.until(lambda: second.said("the scheduler runs the jobs"))
            second.until(lambda: second.said("job ended"))
            found = status(warehouse)
            assert found["state"] in ("scheduled", "running")
            assert found["cron"] == "* * * * * *"
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(DEADLINE_S) == 0
    code, rows, message = job(warehouse, "status")
    assert code == 1
    assert "no scheduler runs" in message
    assert {row["state"] for row in rows} == {"stopped"}
    assert files("others") == 3, "the file says that compaction is for ord* only"
    store.close()


@pytest.mark.fault  # with them, as it is long
@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
def test_a_scheduler_that_is_killed_in_the_middle_of_a_job_is_followed_and_loses_nothing(
    tmp_path: Path,
) -> None:
    warehouse, jobs = tmp_path / "warehouse", write_jobs(tmp_path)
    store = LocalStore(warehouse)
    topics = Topics(store)
    topics.create("orders", 2)
    log = Appends(topics.open("orders"))
    table = log.opened.store
    for number in range(6):
        log.append(number % 2, [b"%d" % number] * 5, modified_ms=1_700_000_000_000)
    expected, old = all_records(table), stored(table)
    # The job's one task on Spark writes the file of partition 0, and then waits for a file of
    # partition 1: a pipe that nobody writes to.
    held = Path(table.uri) / next(one.path for one in load_table(table) if one.partition == 1)
    held.rename(tmp_path / "held")
    os.mkfifo(held)

    with contextlib.ExitStack() as at_end:
        first = at_end.enter_context(scheduler(warehouse, jobs))
        first.until(lambda: first.said("the scheduler runs the jobs"))
        second = at_end.enter_context(scheduler(warehouse, jobs))
        second.until(lambda: second.said("the scheduler waits for its turn"))
        first.until(lambda: stored(table) - old)
        assert job(warehouse, "pause", "compaction")[0] == 0
        theirs = first.descendants()
        assert len(theirs) >= 3, "a JVM, the workers' parent, a worker"
        assert status(warehouse)["state"] == "running"
        assert not second.said("the scheduler runs the jobs")
        first.process.kill()
        first.process.wait()
        second.until(lambda: not theirs & {one.pid for one in processes()})
        (tmp_path / "held").replace(held)
        (orphan,) = stored(table) - old
        assert all_records(table) == expected
        check_verified(table, "orders")

        second.until(lambda: second.said("the scheduler runs the jobs"))
        found = status(warehouse)
        assert (found["state"], found["outcome"]) == ("paused", "abandoned")
        assert found["error"] == "the scheduler that ran it has ended"
        assert job(warehouse, "resume", "compaction")[0] == 0
        second.until(lambda: second.said("job ended"))
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(DEADLINE_S) == 0
    assert all_records(table) == expected
    check_verified(table, "orders")
    state = load_table(table)
    assert state.file_count == 2, "one for each partition"
    assert stored(table) == old | {orphan} | {one.path for one in state}
    (run,) = read_history(store, limit=0)
    assert (run.topic, run.outcome.kind) == ("orders", OutcomeKind.OK)
    store.close()


def stored(table: ObjectStore) -> set[str]:
    """The data files in the store, by path, whether the table knows them or not."""
    root = Path(table.uri)
    return {str(path.relative_to(root)) for path in root.glob("partition=*/*.parquet")}


def is_paused(warehouse: Path) -> bool:
    """Whether compaction is, the scheduler knows, and it has ended what it had begun before."""
    row = status(warehouse)
    return row["state"] == "paused" and row["next_ms"] is None


def status(warehouse: Path) -> dict[str, Any]:
    """The row of compaction."""
    _, rows, _ = job(warehouse, "status")
    return next(row for row in rows if row["job"] == "compaction")
