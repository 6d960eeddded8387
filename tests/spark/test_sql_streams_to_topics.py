"""`run_sql_stream` and `mainstem sql --stream`: INSERT INTO a topic SELECT ... FROM a topic."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.length import FULL

from mainstem.client import AdminClient, Consumer, ConsumerRecord, Producer, TopicPartition
from mainstem.jobs import SqlError
from mainstem.jobs.kept_streams import ENDED, KILLED, RUNNING, KeptStream, KeptStreams, StreamError
from mainstem.jobs.sql_streams import run_sql_stream
from mainstem.testing import GatewayProcess

LOUD = (
    "INSERT INTO `orders.loud` SELECT key, upper(CAST(value AS STRING)) AS value FROM orders "
    "WHERE value != 'c'"
)

#: A driver takes half a minute to start where the machine is busy.
DEADLINE_S = 180.0

KILLS = 2 if FULL else 1


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("warehouse")) as process:
        yield process


@pytest.fixture(autouse=True)
def topics(gateway: GatewayProcess) -> None:
    """`orders`, with the values a to d, and `orders.loud`, with none."""
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        for name in ("orders", "orders.loud"):
            if any(one.topic == name for one in admin.list_topics()):
                admin.delete_topic(name)
            admin.create_topic(name, 2)
    for kept in KeptStreams(gateway.warehouse).all():
        KeptStreams(gateway.warehouse).forget(kept.name)
    _send(gateway, "a", "b", "c", "d")


def _send(gateway: GatewayProcess, *values: str) -> None:
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for value in values:
            producer.produce("orders", value, f"k-{value}", headers=[("h", value.encode())])


def _once(
    spark: SparkSession, gateway: GatewayProcess, statement: str, servers: str | None = None
) -> KeptStream:
    return run_sql_stream(
        str(gateway.warehouse),
        statement,
        spark=spark.newSession(),
        available_now=True,
        producer={"bootstrap.servers": gateway.address if servers is None else servers},
    )


def _loud(gateway: GatewayProcess, partitions: int = 2) -> list[ConsumerRecord]:
    """What is in the topic."""
    config = {"bootstrap.servers": gateway.address, "auto.offset.reset": "earliest"}
    found = []
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition("orders.loud", number) for number in range(partitions)])
        last = time.monotonic()
        while time.monotonic() - last < 2.0:
            for record in consumer.consume(1000, timeout=0.5):
                last = time.monotonic()
                found.append(record)
    return found


def _values(gateway: GatewayProcess) -> list[bytes]:
    return sorted(record.value or b"" for record in _loud(gateway))


def test_a_stream_adds_to_its_topic_what_each_record_gives_once_and_goes_on(
    spark: SparkSession, gateway: GatewayProcess
) -> None:
    ended = _once(spark, gateway, LOUD)
    assert (ended.name, ended.table, ended.topic) == ("orders.loud", "", "orders.loud")
    assert ended.state == ENDED
    assert _values(gateway) == [b"A", b"B", b"D"]
    _send(gateway, "e")
    assert _once(spark, gateway, LOUD).table_id == ended.table_id
    found = _loud(gateway)
    assert sorted(record.value or b"" for record in found) == [b"A", b"B", b"D", b"E"]
    assert {record.value: record.key for record in found}[b"E"] == b"k-e"
    # A topic of the same name that is another one does not have what was written before.
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.delete_topic("orders.loud")
        admin.create_topic("orders.loud", 2)
    with pytest.raises(StreamError, match=r"the topic orders\.loud is another one"):
        _once(spark, gateway, LOUD)


def test_a_record_gets_all_that_the_select_names(
    spark: SparkSession, gateway: GatewayProcess
) -> None:
    _once(
        spark,
        gateway,
        "INSERT INTO `orders.loud` (value, `partition`, headers, timestamp) "
        "SELECT value, 1, headers, timestamp'2020-01-01 00:00:00' FROM orders",
    )
    found = _loud(gateway)
    assert {record.partition for record in found} == {1}
    assert {record.timestamp for record in found} == {1_577_836_800_000}
    assert {(record.key, record.value) for record in found} == {
        (None, value) for value in (b"a", b"b", b"c", b"d")
    }
    assert all(list(record.headers or ()) == [("h", record.value)] for record in found)


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ("key FROM orders", "value has to be there"),
        ("* FROM orders", "by their names, not offset, timestamp_type"),
        ("value, 'x' AS topic FROM orders", "not topic"),
        ("value, 'one' AS `partition` FROM orders", "is int, and the SELECT gives string"),
        ("struct(key) AS value FROM orders", "use CAST"),
        ("value FROM `orders.loud`", "have no end"),
    ],
)
def test_what_a_topic_has_no_room_for_is_refused_before_the_first_record(
    spark: SparkSession, gateway: GatewayProcess, select: str, words: str
) -> None:
    with pytest.raises(SqlError, match=words):
        _once(spark, gateway, f"INSERT INTO `orders.loud` SELECT {select}")
    assert KeptStreams(gateway.warehouse).all() == []


def test_a_gateway_of_another_warehouse_or_none_is_refused(
    spark: SparkSession, gateway: GatewayProcess, tmp_path: Path
) -> None:
    with pytest.raises(SqlError, match="put it into `backquotes`"):
        _once(spark, gateway, LOUD.replace("`", ""))
    with pytest.raises(SqlError, match="name it in bootstrap"):
        _once(spark, gateway, LOUD, servers="")
    with GatewayProcess(tmp_path / "other") as other:
        with pytest.raises(SqlError, match="is not one of this warehouse"):
            _once(spark, gateway, LOUD, servers=other.address)
        with AdminClient({"bootstrap.servers": other.address}) as admin:
            admin.create_topic("orders.loud")
        with pytest.raises(SqlError, match="is not one of this warehouse"):
            _once(spark, gateway, LOUD, servers=other.address)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("quick_java")
def test_a_command_that_is_killed_or_loses_its_gateway_goes_on_and_writes_each_record_once(
    gateway: GatewayProcess,
) -> None:
    streams = KeptStreams(gateway.warehouse)
    for number in range(KILLS):
        _send(gateway, *(f"{number}-{index}" for index in range(50)))
        # Its Java is killed with it; or ends when it finds itself alone.
        with _running(gateway, everything=number == 0):
            _wait_for_another_epoch(streams)
            # The gateway is gone, and there again, whatever the query is at.
            gateway.kill()
            gateway.start()
            _send(gateway, f"{number}-later")
            _wait_for_another_epoch(streams)
            assert [one.state for one in streams.all()] == [RUNNING]
            with pytest.raises(StreamError, match="runs"):
                streams.forget("orders.loud")
        _wait_until(lambda: streams.read("orders.loud").state == KILLED)
    _send(gateway, "last")
    with _running(gateway, "--once") as process:
        assert process.wait(DEADLINE_S) == 0
    assert streams.read("orders.loud").state == ENDED
    expected = {"A", "B", "D", "LAST"} | {
        f"{n}-{i}" for n in range(KILLS) for i in (*range(50), "LATER")
    }
    assert _values(gateway) == sorted(value.encode() for value in expected), "each once"


@contextlib.contextmanager
def _running(
    gateway: GatewayProcess, *more: str, everything: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which is killed when the block ends, or `everything` that it has started."""
    where = ("--warehouse", str(gateway.warehouse), "-b", gateway.address)
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstem.cli", "sql", "--stream", *where, *more, LOUD],
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in _session(process.pid) if everything else [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(stat.parent.name))
    return found


def _wait_for_another_epoch(streams: KeptStreams) -> None:
    """Until one more batch is planned: it is on its way, or done with."""
    planned = streams.checkpoint("orders.loud") / "offsets"
    before = set(planned.glob("[0-9]*"))
    _wait_until(lambda: not before.issuperset(planned.glob("[0-9]*")))


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
