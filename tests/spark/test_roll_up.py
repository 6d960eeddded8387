"""Readers beside a gateway that rolls small files up: each record once, as it was, for all of them.

A producer sends ten times a second to twelve partitions of a real gateway. While it does, streams
of Spark's own Delta source and of ours run again and again from their checkpoints, and a consumer
fetches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WAIT_S

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.verify import verify_named
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "orders"
PARTITIONS = 12
ROUNDS = 40
ROUND_S = 0.1
ROLL_UP_FILES = 4

#: Of `format("delta")`, by name of the stream.
DELTA_STREAMS = {
    "default": {},
    "skip": {"skipChangeCommits": "true"},
    "from 0": {"startingVersion": "0"},
    "limited": {"startingVersion": "0", "maxFilesPerTrigger": "40"},
}

Seen = list[tuple[int, int, bytes]]


def _value(partition: int, number: int) -> bytes:
    return b"%d of %d" % (number, partition)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with the topic."""
    with GatewayProcess(tmp_path_factory.mktemp("roll-up") / "warehouse") as running:
        with AdminClient({"bootstrap.servers": running.address}) as admin:
            admin.create_topic(TOPIC, PARTITIONS, {"rollup.files": ROLL_UP_FILES})
        yield running


class _Sending(threading.Thread):
    """Sends one record to each partition in each round."""

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__()
        self._gateway = gateway
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Producer({"bootstrap.servers": self._gateway.address, "linger.ms": 0}) as producer:
                for number in range(ROUNDS):
                    for partition in range(PARTITIONS):
                        producer.produce(TOPIC, _value(partition, number), partition=partition)
                    time.sleep(ROUND_S)
        except BaseException as error:
            self.error = error


class _Fetching(threading.Thread):
    """Reads all partitions as a consumer, from their start."""

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__()
        self._address = gateway.address
        self.seen: Seen = []

    def run(self) -> None:
        config = {"bootstrap.servers": self._address, "auto.offset.reset": "earliest"}
        with Consumer(config) as consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            deadline = time.monotonic() + 4 * WAIT_S
            while len(self.seen) < ROUNDS * PARTITIONS and time.monotonic() < deadline:
                for one in consumer.consume(1000, 0.5):
                    self.seen.append((one.partition, one.offset, one.value or b""))


def _expected() -> Seen:
    return [(p, number, _value(p, number)) for p in range(PARTITIONS) for number in range(ROUNDS)]


def test_every_reader_sees_each_record_once_while_files_are_rolled_up(
    spark: SparkSession, gateway: GatewayProcess, tmp_path: Path
) -> None:
    uri = f"{gateway.warehouse}/topics/{TOPIC}"
    seen: dict[str, Seen] = {name: [] for name in [*DELTA_STREAMS, "ours"]}

    def run_once(name: str) -> None:
        def take(frame: DataFrame, batch_id: int) -> None:
            rows = frame.select("partition", "offset", "value").collect()
            seen[name].extend((row[0], row[1], bytes(row[2])) for row in rows)

        if name == "ours":
            reader = spark.readStream.format("mainstem").options(
                **{
                    "mainstem.warehouse": str(gateway.warehouse),
                    "subscribe": TOPIC,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": "500",
                }
            )
            frame = reader.load()
        else:
            frame = spark.readStream.format("delta").options(**DELTA_STREAMS[name]).load(uri)
        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(4 * WAIT_S)
        finally:
            query.stop()

    sending, fetching = _Sending(gateway), _Fetching(gateway)
    sending.start()
    fetching.start()
    while sending.is_alive():
        for name in seen:
            run_once(name)
    sending.join()
    fetching.join()
    assert sending.error is None
    for name in seen:
        run_once(name)

    expected = _expected()
    for name, records in seen.items():
        assert sorted(records) == expected, name
    assert sorted(fetching.seen) == expected
    late = _Fetching(gateway)
    late.start()
    late.join()
    assert sorted(late.seen) == expected

    batch = spark.read.format("delta").load(uri).select("partition", "offset", "value").collect()
    assert sorted((row[0], row[1], bytes(row[2])) for row in batch) == expected
    _check_time_travel(spark, gateway, uri)

    store = LocalStore(gateway.warehouse)
    report = verify_named(store, TOPIC)
    assert report.ok, report.findings
    # All but the newest of each level of each partition are rolled up.
    assert report.file_count < ROUNDS * PARTITIONS // 4
    store.close()


def _check_time_travel(spark: SparkSession, gateway: GatewayProcess, uri: str) -> None:
    """Each version has each partition's records from 0 on, and never fewer than one before it."""
    store = LocalStore(gateway.warehouse)
    opened = Topics(store).open(TOPIC)
    newest = load_table(opened.store).version
    store.close()
    before = 0
    for version in range(1, newest + 1, newest // 6):
        rows = spark.sql(
            f"SELECT count(*) AS n, count(DISTINCT offset) AS m, max(offset) + 1 AS e "
            f"FROM delta.`{uri}` VERSION AS OF {version} GROUP BY partition"
        ).collect()
        assert all(row.n == row.m == row.e for row in rows), (version, rows)
        total = sum(row.n for row in rows)
        assert total >= before
        before = total
