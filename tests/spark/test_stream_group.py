"""A stream that commits its progress to a consumer group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.conftest import WAIT_S, Streams

from mainstem.client import AdminClient, Consumer, Producer
from mainstem.testing import GatewayProcess


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """One with the topic `orders`, of 2 partitions."""
    with GatewayProcess(tmp_path / "warehouse") as process:
        with AdminClient({"bootstrap.servers": process.address}) as admin:
            admin.create_topic("orders", 2)
        yield process


def _send(gateway: GatewayProcess, count: int) -> None:
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number in range(count):
            producer.produce("orders", b"%d" % number, partition=number % 2)


def _offsets(gateway: GatewayProcess) -> list[int]:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        found = admin.list_consumer_group_offsets("spark")
    return [one.offset for _, one in sorted(found.items(), key=lambda item: item[0].partition)]


def test_progress_is_committed_and_a_gateway_that_is_not_there_stops_nothing(
    spark: SparkSession, gateway: GatewayProcess, tmp_path: Path
) -> None:
    streams = Streams(spark, str(gateway.warehouse), tmp_path / "checkpoint")
    options = {
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "mainstem.bootstrap.servers": gateway.address,
        "mainstem.group.id": "spark",
    }
    _send(gateway, 20)
    assert [len(rows) for rows in streams.run(**options)] == [20]
    assert _offsets(gateway) == [10, 10], "although no batch came after it"

    _send(gateway, 6)
    gateway.terminate()
    assert [len(rows) for rows in streams.run(**options)] == [6]
    gateway.start()
    assert _offsets(gateway) == [10, 10]
    assert streams.run(**options) == []
    assert _offsets(gateway) == [13, 13], "the next query makes up for it"


def test_a_group_with_members_is_refused(
    spark: SparkSession, gateway: GatewayProcess, tmp_path: Path
) -> None:
    streams = Streams(spark, str(gateway.warehouse), tmp_path / "checkpoint")
    with Consumer({"bootstrap.servers": gateway.address, "group.id": "spark"}) as consumer:
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + WAIT_S
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        with pytest.raises(StreamingQueryException, match="a group with 1 members"):
            streams.run(
                **{
                    "subscribe": "orders",
                    "mainstem.bootstrap.servers": gateway.address,
                    "mainstem.group.id": "spark",
                }
            )
