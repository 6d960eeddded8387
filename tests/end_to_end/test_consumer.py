"""The consumer against a real gateway process: tail and history, restarts, groups."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstem.cli.root import cli
from mainstem.client import (
    AdminClient,
    AsyncConsumer,
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
)
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

DEADLINE_S = 60.0


@pytest.fixture
def gateway(no_leaks: None, tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path / "warehouse") as running:
        admin = AdminClient({"bootstrap.servers": running.address})
        admin.create_topic("t", 3)
        admin.close()
        yield running


def produce(gateway: GatewayProcess, first: int, count: int) -> None:
    """Values `first` to `first + count - 1`, number modulo 3 the partition."""
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number in range(first, first + count):
            producer.produce("t", b"%d" % number, key=b"k%d" % number, partition=number % 3)


def consumer(gateway: GatewayProcess, **settings: object) -> Consumer:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    base = {"bootstrap.servers": gateway.address, "auto.offset.reset": "earliest"}
    return Consumer({**base, "retry.backoff.ms": 20, **config})


def take(count: int, *consumers: Consumer) -> list[ConsumerRecord]:
    """Reads so many records with all of them in turn."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for one in consumers:
            found += one.consume(500, 0.02)
    return found


def poll_until(what: Callable[[], bool], *consumers: Consumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        for one in consumers:
            assert one.poll(0.02) is None


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def test_tail_and_history_are_the_same_records_in_order(gateway: GatewayProcess) -> None:
    produce(gateway, 0, 3000)
    tps = [TopicPartition("t", number, 0) for number in range(3)]
    for history in (False, True):
        if history:
            gateway.restart()
        with consumer(gateway) as reading:
            reading.assign(tps)
            records = take(3000, reading)
            assert numbers(records) == list(range(3000))
            for tp in tps:
                mine = [record for record in records if record.partition == tp.partition]
                assert [record.offset for record in mine] == list(range(1000))
                assert [record.key for record in mine[:2]] == [
                    b"k%d" % tp.partition,
                    b"k%d" % (tp.partition + 3),
                ]
            reading.seek(TopicPartition("t", 1, 990))
            assert [record.offset for record in take(10, reading)] == list(range(990, 1000))
            assert reading.get_watermark_offsets(tps[0]) == (0, 1000)


def test_batches_are_the_same_records(gateway: GatewayProcess) -> None:
    produce(gateway, 0, 300)
    with consumer(gateway) as reading:
        reading.assign([TopicPartition("t", number, 0) for number in range(3)])
        found: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < 300 and time.monotonic() < deadline:
            for batch in reading.poll_batch(1.0).values():
                found += map(int, batch.column("value").to_pylist())
    assert sorted(found) == list(range(300))


def test_a_killed_gateway_that_comes_back_is_not_noticed(
    gateway: GatewayProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with consumer(gateway) as reading, caplog.at_level(logging.CRITICAL):
        reading.assign([TopicPartition("t", number, 0) for number in range(3)])
        produce(gateway, 0, 300)
        found = take(300, reading)
        for turn in range(1, 4):
            gateway.kill()
            assert reading.poll(0.1) is None
            gateway.start()
            produce(gateway, turn * 300, 300)
            found += take(300, reading)
    assert numbers(found) == list(range(1200))


def test_a_topic_that_was_created_again_is_read_from_its_start(gateway: GatewayProcess) -> None:
    produce(gateway, 0, 30)
    admin = AdminClient({"bootstrap.servers": gateway.address})
    with consumer(gateway) as reading:
        reading.assign([TopicPartition("t", number, 0) for number in range(3)])
        take(30, reading)
        admin.delete_topic("t")
        admin.create_topic("t", 3)
        produce(gateway, 100, 6)
        assert numbers(take(6, reading)) == list(range(100, 106))
    admin.close()


def test_a_group_shares_the_partitions_and_goes_on_where_it_was(gateway: GatewayProcess) -> None:
    produce(gateway, 0, 300)
    with consumer(gateway, group_id="g") as first, consumer(gateway, group_id="g") as second:
        first.subscribe(["t"])
        second.subscribe(["t"])
        poll = [first, second]
        found = take(300, *poll)
        poll_until(lambda: sorted(len(c.assignment()) for c in poll) == [1, 2], *poll)
    produce(gateway, 300, 30)
    gateway.restart()
    with consumer(gateway, group_id="g") as third:
        third.subscribe(["t"])
        found += take(30, third)
        ends = third.committed([TopicPartition("t", number) for number in range(3)])
        assert [tp.offset for tp in ends] == [100, 100, 100]
    assert numbers(found) == list(range(330))


def test_members_join_again_by_themselves_after_the_gateway_was_killed(
    gateway: GatewayProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with consumer(gateway, group_id="g") as reading, caplog.at_level(logging.CRITICAL):
        reading.subscribe(["t"])
        produce(gateway, 0, 30)
        found = take(30, reading)
        reading.commit(asynchronous=False)
        epoch = reading.consumer_group_metadata().member_epoch
        gateway.kill()
        gateway.start()
        produce(gateway, 30, 30)
        deadline = time.monotonic() + DEADLINE_S
        while reading.consumer_group_metadata().member_epoch <= epoch or set(numbers(found)) != set(
            range(60)
        ):
            assert time.monotonic() < deadline
            # What was read before the group said that it had forgotten the member comes again.
            found += reading.consume(500, 0.02)
    assert numbers(found)[:30] == list(range(30))


def test_partitions_that_are_added_later_are_read_from_their_start(
    gateway: GatewayProcess,
) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.address})
    with consumer(gateway, group_id="g", auto_offset_reset="latest") as reading:
        reading.subscribe(["t"])
        ours = [TopicPartition("t", number) for number in range(3)]
        poll_until(lambda: all(tp.offset == 0 for tp in reading.committed(ours)), reading)
        admin.add_partitions("t", 4)
        with Producer({"bootstrap.servers": gateway.address}) as producer:
            producer.produce("t", b"7", partition=3)
        (record,) = take(1, reading)
        assert (record.partition, record.offset, record.value) == (3, 0, b"7")
    admin.close()


def test_the_asyncio_consumer_reads_the_same(gateway: GatewayProcess) -> None:
    produce(gateway, 0, 300)

    async def read() -> list[ConsumerRecord]:
        async with AsyncConsumer({"bootstrap.servers": gateway.address}) as reading:
            await reading.assign([TopicPartition("t", number, 0) for number in range(3)])
            found: list[ConsumerRecord] = []
            async for record in reading:
                found.append(record)
                if len(found) == 300:
                    return found
            raise AssertionError("it ended")

    assert numbers(asyncio.run(asyncio.wait_for(read(), DEADLINE_S))) == list(range(300))


def test_the_command_prints_what_is_there(gateway: GatewayProcess) -> None:
    produce(gateway, 0, 30)
    arguments = ["--format", "json", "topic", "consume", "t", "-o", "-2", "-e"]
    result = CliRunner().invoke(cli, [*arguments, "-b", gateway.address])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(int(row["value"]) for row in rows) == list(range(24, 30))


def test_the_sqlite_example_stores_each_record_once_though_it_is_killed(
    gateway: GatewayProcess, tmp_path: Path, repo_root: Path
) -> None:
    database = tmp_path / "out.db"
    example = str(repo_root / "examples" / "exactly_once_sqlite.py")
    command = [sys.executable, example, gateway.address, "t", str(database)]
    produce(gateway, 0, 900)

    def stored() -> list[int]:
        if not database.exists():
            return []
        with contextlib.closing(sqlite3.connect(database, timeout=30.0)) as connection:
            try:
                rows = connection.execute("SELECT value FROM record").fetchall()
            except sqlite3.OperationalError:  # it has no table yet
                return []
        return sorted(int(value) for (value,) in rows)

    count = 900
    for turn in range(4):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            if turn < 3:
                # Killed right after a transaction, with more on its way.
                assert process.stdout.readline()
                produce(gateway, count, 300)
                count += 300
            else:
                deadline = time.monotonic() + DEADLINE_S
                while len(stored()) < count and time.monotonic() < deadline:
                    time.sleep(0.05)
        finally:
            process.kill()
            process.communicate()
    assert stored() == list(range(count))
