"""A reader that is slower than retention, vacuum and compaction, at a real gateway."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.delta_log.store import open_warehouse
from mainstem.delta_log.verify import verify_named
from mainstem.errors import OffsetOutOfRangeError
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.jobs.vacuum import Vacuum
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.fault, pytest.mark.slow]

DEADLINE_S = 80.0

#: Records that are written while the jobs run, and those that come when the writer is done.
COUNT = 4_000
REST = 200

#: What is kept of the partition: less than a thousand records, in eight files or more.
KEPT_BYTES = 600_000


@contextmanager
def _cleaning(warehouse: Path, failures: list[str]) -> Iterator[None]:
    """Compaction, retention and vacuum, again and again; removed files go at once."""
    done = threading.Event()

    def clean() -> None:
        while not done.is_set():
            for job in (Compaction(min_age_ms=0), Retention(), Vacuum()):
                (row,) = run_job(str(warehouse), job, ["t"], pool=InProcessPool)
                if row.outcome.kind is OutcomeKind.FAILED:
                    failures.append(f"{job.name}: {row.outcome.error}")

    thread = threading.Thread(target=clean)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_each_record_is_read_once_or_reported_as_gone(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    failures: list[str] = []
    # Nothing from memory: every fetch reads data files that are about to go.
    with GatewayProcess(warehouse, settings={"fetch.cache.bytes": 0}) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            settings = {
                "commit.interval.ms": 5,
                "compression.type": "none",
                "retention.bytes": KEPT_BYTES,
                "vacuum.min.age.ms": 0,
                "rollup.files": 4,
            }
            admin.create_topic("t", 1, settings)
        read, gone = _read_beside_the_jobs(gateway.address, warehouse, failures)
    assert not failures, failures[:3]
    assert read == sorted(set(read)), "an offset came twice, or out of order"
    assert gone, "retention was never ahead of the reader: the test shows nothing"
    missing = set(range(COUNT + REST)).difference(read)
    reported = {offset for start, end in gone for offset in range(start, end)}
    assert missing == reported
    store = open_warehouse(str(warehouse))
    report = verify_named(store, "t")
    store.close()
    assert report.ok, report.findings


def _read_beside_the_jobs(
    address: str, warehouse: Path, failures: list[str]
) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets that were read, and the ranges that the reader was told are gone."""
    config = {
        "bootstrap.servers": address,
        "auto.offset.reset": "error",
        "max.partition.fetch.bytes": 40_000,
        "queued.max.messages.kbytes": 50,
        "retry.backoff.ms": 20,
    }
    where = TopicPartition("t", 0, 0)
    read: list[int] = []
    gone: list[tuple[int, int]] = []
    at = 0
    writing = threading.Thread(target=_write, args=(address,))
    deadline = time.monotonic() + DEADLINE_S
    with Consumer(config) as reader, _cleaning(warehouse, failures):
        reader.assign([where])
        writing.start()
        while at < COUNT + REST:
            assert time.monotonic() < deadline, f"at {at} of {COUNT + REST}: {gone[-3:]}"
            try:
                records = reader.consume(50, 0.5)
            except OffsetOutOfRangeError as error:
                start = int(error.facts["log_start_offset"])
                assert start > at, "told of a loss where there is none"
                gone.append((at, start))
                at = start
                reader.seek(TopicPartition("t", 0, start))
                continue
            read += [record.offset for record in records]
            at = read[-1] + 1 if records else at
            if writing.is_alive():
                time.sleep(0.7)  # slower than the writer, and than retention
        writing.join()
    return read, gone


def _write(address: str) -> None:
    with Producer({"bootstrap.servers": address, "linger.ms": 0}) as producer:
        for number in range(COUNT):
            producer.produce("t", b"%04d" % number * 200)
            if number % 20 == 0:
                producer.flush()
    time.sleep(0.5)
    with Producer({"bootstrap.servers": address}) as producer:
        for number in range(REST):
            producer.produce("t", b"%d" % number)
