"""Compacted topics on a real gateway: what it takes, and what its readers see of the holes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.jobs.topic_tables import all_records, check_verified

from mainstem.client import (
    AdminClient,
    Consumer,
    ConsumerRecord,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from mainstem.delta_log import LocalStore
from mainstem.errors import MainstemError
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.keyed_compaction import KeyedCompaction
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

DEADLINE_S = 60.0
COMPACTED = {
    "cleanup.policy": "compact",
    "compaction.min.age.ms": 0,
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": 0,
}


@pytest.fixture
def gateway(no_leaks: None, tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path / "warehouse") as running:
        yield running


def create(gateway: GatewayProcess, partitions: int = 1, **config: object) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic("t", partitions, {**COMPACTED, **settings})


def alter(gateway: GatewayProcess, **config: object) -> None:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.alter_config("t", {name.replace("_", "."): value for name, value in config.items()})


def produce(gateway: GatewayProcess, *rows: tuple[bytes | None, bytes | None]) -> None:
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for key, value in rows:
            producer.produce("t", value, key=key, partition=0)
            producer.flush(DEADLINE_S)


def compact(warehouse: Path) -> OutcomeKind:
    runs = run_job(str(warehouse), KeyedCompaction(), ["t"], pool=InProcessPool)
    assert [run.outcome.error for run in runs] == [""]
    return runs[0].outcome.kind


def verified(warehouse: Path) -> None:
    store = LocalStore(warehouse / "topics" / "t", create=False)
    check_verified(store)
    store.close()


def read_to_end(reading: Consumer, end: int) -> list[ConsumerRecord]:
    """Reads partition 0 until the consumer's position is its end."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    tp = TopicPartition("t", 0)
    while reading.position([tp])[0].offset != end:
        assert time.monotonic() < deadline, f"at {reading.position([tp])}, not {end}"
        found += reading.consume(500, 0.05)
    return found


def consumer(gateway: GatewayProcess) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": gateway.address,
            "auto.offset.reset": "error",
            "group.id": "g",
            "enable.auto.commit": False,
        }
    )


def test_a_reader_goes_over_holes_and_arrives_at_the_end(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    create(gateway)
    rows: list[tuple[bytes | None, bytes | None]] = [
        (b"%d" % (number % 3), b"%d" % number) for number in range(9)
    ]
    produce(gateway, *rows, (b"0", None), (b"1", None), (b"9", b"x"), (b"9", None))
    assert compact(tmp_path / "warehouse") == OutcomeKind.OK
    gateway.restart()  # nothing comes from memory
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        (partition,) = admin.describe_topic("t").partitions
    assert (partition.record_count, partition.high_watermark) == (1, 13)
    with consumer(gateway) as reading:
        for start in range(13):
            reading.assign([TopicPartition("t", 0, start)])
            found = read_to_end(reading, 13)
            assert [(one.offset, one.key, one.value) for one in found] == (
                [(8, b"2", b"8")] if start <= 8 else []
            )
            assert reading.get_watermark_offsets(TopicPartition("t", 0)) == (0, 13)
        # What is stored is the end, not one past the last record that is left.
        reading.commit(asynchronous=False)
        assert [one.offset for one in reading.committed([TopicPartition("t", 0)])] == [13]
    produce(gateway, (b"0", b"new"))
    with consumer(gateway) as reading:
        reading.assign([TopicPartition("t", 0, 13)])
        assert [one.offset for one in read_to_end(reading, 14)] == [13]
    verified(tmp_path / "warehouse")


def test_an_offset_by_time_is_that_of_a_record_that_is_left(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    create(gateway)
    start_ms = 1_700_000_000_000
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number, key in enumerate([b"a", b"b", b"a", b"c", b"c", b"d"]):
            producer.produce("t", b"v", key=key, partition=0, timestamp=start_ms + number * 1000)
    compact(tmp_path / "warehouse")  # 1, 2, 4 and 5 are left
    gateway.restart()  # it knows of that at once
    with consumer(gateway) as reading:
        for second, expected in enumerate([1, 1, 2, 4, 4, 5, None]):
            asked = TopicPartition("t", 0, start_ms + second * 1000)
            answer = reading.offsets_for_times([asked])[0].offset
            assert answer == (-1 if expected is None else expected), second


def test_a_record_without_a_key_is_refused_and_keyed_ones_are_taken(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    create(gateway, cleanup_policy="delete")
    produce(gateway, (None, b"before"))
    alter(gateway, cleanup_policy="compact")
    told: dict[bytes, str] = {}

    def told_of(value: bytes) -> Callable[[MainstemError | None, RecordMetadata], None]:
        def note(error: MainstemError | None, _: RecordMetadata) -> None:
            told[value] = "" if error is None else error.code

        return note

    with Producer({"bootstrap.servers": gateway.address, "linger.ms": 0}) as producer:
        for key, value in ((None, b"1"), (b"a", b"2"), (None, b"3"), (b"a", b"4"), (b"", b"5")):
            producer.produce("t", value, key=key, partition=0, on_delivery=told_of(value))
            producer.flush(DEADLINE_S)
    refused = "INVALID_RECORD"
    assert told == {b"1": refused, b"2": "", b"3": refused, b"4": "", b"5": ""}
    compact(tmp_path / "warehouse")
    verified(tmp_path / "warehouse")
    store = LocalStore(tmp_path / "warehouse" / "topics" / "t", create=False)
    left = [(one.offset, one.key, one.value) for one in all_records(store)[0]]
    assert left == [(0, None, b"before"), (2, b"a", b"4"), (3, b"", b"5")]
    store.close()


def test_compactions_between_appends_show_a_reader_the_last_value_of_each_key(
    gateway: GatewayProcess, tmp_path: Path, rng: random.Random
) -> None:
    create(gateway, commit_interval_ms=20, delete_retention_ms=3_600_000)
    keys = [b"%d" % number for number in range(20)]
    truth: dict[bytes, bytes] = {}
    stop = threading.Event()
    kinds: list[OutcomeKind] = []

    def write() -> None:
        with Producer({"bootstrap.servers": gateway.address, "linger.ms": 5}) as producer:
            for number in range(6_000):
                key = rng.choice(keys)
                value = None if rng.random() < 0.1 else b"%d" % number
                producer.produce("t", value, key=key, partition=0)
                truth.pop(key, None)
                if value is not None:
                    truth[key] = value
                if number % 20 == 0:
                    time.sleep(0.01)

    def maintain() -> None:
        while not stop.is_set():
            runs = run_job(
                str(tmp_path / "warehouse"), KeyedCompaction(), ["t"], pool=InProcessPool
            )
            kinds.extend(run.outcome.kind for run in runs)

    threads = [threading.Thread(target=write), threading.Thread(target=maintain)]
    for thread in threads:
        thread.start()
    seen: dict[bytes, bytes] = {}
    position = 0
    try:
        with consumer(gateway) as reading:
            reading.assign([TopicPartition("t", 0, 0)])
            deadline = time.monotonic() + DEADLINE_S
            while threads[0].is_alive() or position < 6_000:
                assert time.monotonic() < deadline
                for one in reading.consume(500, 0.05):
                    assert one.offset >= position
                    position = one.offset + 1
                    assert one.key is not None
                    seen.pop(one.key, None)
                    if one.value is not None:
                        seen[one.key] = one.value
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert seen == truth
    assert kinds.count(OutcomeKind.OK) > 2
    assert OutcomeKind.FAILED not in kinds
    verified(tmp_path / "warehouse")
    compact(tmp_path / "warehouse")
    gateway.restart()
    with consumer(gateway) as reading:
        reading.assign([TopicPartition("t", 0, 0)])
        found = read_to_end(reading, 6_000)
    assert {one.key: one.value for one in found if one.value is not None} == truth
    assert len({one.key for one in found}) == len(found)
