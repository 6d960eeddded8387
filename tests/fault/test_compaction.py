"""Compaction that is killed at each step, twice at once, and beside a gateway at work."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from tests.unit.jobs.topic_tables import (
    Appends,
    Record,
    all_records,
    appends,
    check_verified,
    file_count,
)

from mainstem.client import AdminClient, Consumer, Producer
from mainstem.delta_log import LocalStore, ObjectStore, Topics, load_table
from mainstem.delta_log.store import StoreFolder
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.fault, pytest.mark.slow]

DEADLINE_S = 90.0

PARTITIONS = 2


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Appends]:
    """The topic `t`, with six small files in each partition."""
    store = LocalStore(tmp_path / "warehouse")
    made = appends(Topics(store), partitions=PARTITIONS)
    for n in range(6 * PARTITIONS):
        made.append(n % PARTITIONS, [b"%d" % n] * 5, producer_id=n % 3, modified_ms=1)
    yield made
    store.close()


@contextlib.contextmanager
def _compacting(warehouse: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("compaction_process.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(warehouse), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Spark's JVM and workers with it
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _wait_for_line(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], DEADLINE_S)[0], f"no {expected!r}"
    assert process.stdout.readline().strip() == expected


def _wait_for_file(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _orphans(store: ObjectStore) -> int:
    active = {file.path for file in load_table(store)}
    return sum(
        f"partition={partition}/{info.name}" not in active
        for partition in range(PARTITIONS)
        for info in store.list_files(f"partition={partition}")
    )


@pytest.mark.parametrize(
    ("step", "words", "committed", "orphans"),
    [
        ("written", (), False, 1),
        pytest.param("written", ("spark",), False, 1, marks=pytest.mark.spark),
        ("before-commit", (), False, PARTITIONS),
        ("after-commit", (), True, 6 * PARTITIONS),
    ],
)
def test_a_driver_that_is_killed_loses_nothing_and_leaves_orphans_at_most(
    table: Appends,
    tmp_path: Path,
    step: str,
    words: tuple[str, ...],
    committed: bool,
    orphans: int,
) -> None:
    store, warehouse = table.opened.store, tmp_path / "warehouse"
    before = all_records(store)
    with _compacting(warehouse, step, *words) as process:
        if step == "written":
            _wait_for_file(warehouse / "written", process)
        else:
            _wait_for_line(process, "stopped")
        process.kill()
        process.wait()
    assert all_records(store) == before
    assert file_count(store) == (PARTITIONS if committed else 6 * PARTITIONS)
    assert _orphans(store) == orphans
    check_verified(store)
    # The next run does what is left, or finds nothing.
    (run,) = _compact(warehouse)
    assert run.outcome.kind == (OutcomeKind.NOTHING if committed else OutcomeKind.OK)
    assert all_records(store) == before
    assert file_count(store) == PARTITIONS
    check_verified(store)


def test_of_two_drivers_that_commit_at_once_one_lands_and_the_other_is_superseded(
    table: Appends, tmp_path: Path
) -> None:
    store, warehouse = table.opened.store, tmp_path / "warehouse"
    before = all_records(store)
    with (
        _compacting(warehouse, "before-commit") as one,
        _compacting(warehouse, "before-commit") as other,
    ):
        for process in (one, other):
            _wait_for_line(process, "stopped")
        answers = []
        for process in (one, other):
            assert process.stdin is not None
            # The loser's commit stops once more, and goes on at the end of stdin.
            process.stdin.write("go\n")
            process.stdin.close()
            process.stdin = None
        for process in (one, other):
            output, _ = process.communicate(timeout=DEADLINE_S)
            answers.append(json.loads(output.splitlines()[-1])["t"])
    assert sorted(answers) == ["ok", "superseded"]
    assert all_records(store) == before
    assert file_count(store) == PARTITIONS
    assert _orphans(store) == 6 * PARTITIONS, "the loser's files are gone"
    check_verified(store)


def test_beside_a_gateway_under_load_each_commit_lands_soon_and_consumers_miss_nothing(
    tmp_path: Path,
) -> None:
    """Ten table commits a second; consumers read old and new records all the while."""
    warehouse = tmp_path / "warehouse"
    count = 60
    runs: list[JobRun] = []
    stop = Event()

    def maintain() -> None:
        while not stop.is_set():
            runs.extend(_compact(warehouse))
            stop.wait(0.3)

    with GatewayProcess(warehouse) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("t", PARTITIONS, {"commit.interval.ms": 100})
        maintainer = Thread(target=maintain)
        maintainer.start()
        found: list[tuple[int, int]] = []
        settings = {"bootstrap.servers": gateway.address, "auto.offset.reset": "earliest"}
        try:
            with (
                Producer({"bootstrap.servers": gateway.address, "linger.ms": 0}) as producer,
                Consumer({**settings, "group.id": "g"}) as consumer,
            ):
                consumer.subscribe(["t"])
                for number in range(count):
                    for partition in range(PARTITIONS):
                        producer.produce("t", b"%d" % number, partition=partition)
                    producer.flush()
                    found += [(one.partition, one.offset) for one in consumer.consume(100, 0.1)]
                found += _rest(consumer, count * PARTITIONS - len(found))
            deadline = time.monotonic() + DEADLINE_S
            while not any(run.outcome.kind == OutcomeKind.OK for run in runs):
                assert time.monotonic() < deadline, "nothing was compacted"
                time.sleep(0.05)
        finally:
            stop.set()
            maintainer.join(DEADLINE_S)
        everything = [(partition, n) for partition in range(PARTITIONS) for n in range(count)]
        assert sorted(found) == everything
        with Consumer({**settings, "group.id": "late"}) as late:
            late.subscribe(["t"])
            assert sorted(_rest(late, len(everything))) == everything
    assert {run.outcome.kind for run in runs} <= {OutcomeKind.OK, OutcomeKind.NOTHING}
    store = LocalStore(warehouse)
    bound = StoreFolder(store, "topics/t")
    check_verified(bound)
    records: dict[int, list[Record]] = all_records(bound)
    assert [[one.value for one in records[n]] for n in range(PARTITIONS)] == [
        [b"%d" % number for number in range(count)]
    ] * PARTITIONS
    store.close()
    assert max(run.outcome.attempts for run in runs) <= 3


def _rest(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += [(one.partition, one.offset) for one in consumer.consume(500, 0.1)]
    return found


def _compact(warehouse: Path) -> list[JobRun]:
    return run_job(str(warehouse), Compaction(min_age_ms=0), ["t"], pool=InProcessPool)
