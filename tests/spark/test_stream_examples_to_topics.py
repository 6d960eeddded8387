"""The examples in `examples/streams` that send to topics, on flights from New York in 2013."""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mainstem.cli.demo.data import read_flights, records
from mainstem.client import AdminClient, Consumer, ConsumerRecord, Producer, TopicPartition
from mainstem.testing import GatewayProcess

#: A query between two gateways takes a busy machine minutes: then it has failed.
WAIT_S = 180

FLIGHTS = list(records(read_flights().slice(0, 600), "carrier"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One with `flights`, of 2 partitions."""
    with GatewayProcess(tmp_path_factory.mktemp("warehouse")) as process:
        with AdminClient({"bootstrap.servers": process.address}) as admin:
            admin.create_topic("flights", 2)
        send(process, 0, 400)
        yield process


@pytest.fixture
def example(repo_root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(repo_root / "examples" / "streams"))
    return importlib.import_module


def send(gateway: GatewayProcess, first: int, end: int) -> None:
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for one in FLIGHTS[first:end]:
            producer.produce(
                "flights",
                one.value,
                one.key,
                timestamp=one.timestamp_ms,
                headers=[("carrier", one.key.encode())],
            )


def read(gateway: GatewayProcess, topic: str, partitions: int = 2) -> list[ConsumerRecord]:
    """All that is in the topic, partition by partition."""
    found = []
    with Consumer({"bootstrap.servers": gateway.address}) as consumer:
        for number in range(partitions):
            tp = TopicPartition(topic, number)
            at, end = consumer.get_watermark_offsets(tp)
            if at < end:
                consumer.assign([TopicPartition(topic, number, at)])
            while at < end:
                batch = consumer.consume(end - at, timeout=WAIT_S)
                assert batch
                found += batch
                at = batch[-1].offset + 1
    return found


def test_late_flights_go_to_the_topics_of_their_airlines(
    spark: SparkSession, gateway: GatewayProcess, example: Any, tmp_path: Path
) -> None:
    route, source = example("route"), example("source")
    expected: dict[str, list[bytes]] = defaultdict(list)
    for one in FLIGHTS[:400]:
        if (json.loads(one.value)["dep_delay"] or 0) > 60:
            airline = one.key if one.key in route.AIRLINES else "other"
            expected[f"late.{airline}"].append(one.value)
    assert len(expected) > 2
    topics = [f"late.{airline}" for airline in (*route.AIRLINES, "other")]
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        for topic in topics:
            admin.create_topic(topic, 2)
    for _ in range(2):
        flights = source.stream(spark, str(gateway.warehouse), "flights")
        query = source.send(
            route.late_flights(flights), gateway.address, str(tmp_path / "c"), available_now=True
        )
        assert query.awaitTermination(WAIT_S)
    for topic in topics:
        values = [record.value or b"" for record in read(gateway, topic)]
        assert sorted(values) == sorted(expected[topic])


def test_a_mirror_has_every_record_and_groups_go_on_in_it_where_they_were(
    spark: SparkSession, gateway: GatewayProcess, example: Any, tmp_path: Path
) -> None:
    mirror = example("mirror")
    topics = ["flights"]
    with (
        GatewayProcess(tmp_path / "mirror") as other,
        AdminClient({"bootstrap.servers": gateway.address}) as source,
        AdminClient({"bootstrap.servers": other.address}) as target,
        Consumer({"bootstrap.servers": other.address}) as reader,
    ):
        # The offsets of the mirror are others: the source has lost its first records.
        first = [one.log_start_offset for one in source.describe_topic("flights").partitions]
        gone = {number: first[number] + 7 for number in range(2)}
        source.delete_records("flights", gone)
        mirror.make_topics(source, target, topics)
        mirror.make_topics(source, target, topics)
        assert len(target.describe_topic("flights").partitions) == 2

        def copy() -> None:
            query = mirror.start(
                spark,
                str(gateway.warehouse),
                other.address,
                str(tmp_path / "c"),
                topics,
                available_now=True,
            )
            assert query.awaitTermination(WAIT_S)

        def check(offsets: list[int]) -> None:
            """The group reads the same in the mirror as in the source."""
            wanted = [TopicPartition("flights", p, offset) for p, offset in enumerate(offsets)]
            assert not any(source.alter_consumer_group_offsets("mine", wanted).values())
            mirror.translate(source, target, reader, "mine", topics)
            committed = target.list_consumer_group_offsets("mine")
            at = {tp.partition: tp.offset for tp in committed}
            left = [facts(one) for one in there if one.offset >= offsets[one.partition]]
            assert [facts(one) for one in copied if one.offset >= at[one.partition]] == left

        copy()
        there, copied = read(gateway, "flights"), read(other, "flights")
        assert [facts(one) for one in copied] == [facts(one) for one in there]
        assert copied[0].offset != there[0].offset
        ends = [max(one.offset for one in there if one.partition == p) + 1 for p in range(2)]
        for offsets in ([50, 60], [7, 8], [0, ends[1] - 1], ends):
            check(offsets)
        # A mirror that is behind the group: it goes to the end, and nothing is left out.
        send(gateway, 400, 500)
        there = read(gateway, "flights")
        later = [max(one.offset for one in there if one.partition == p) + 1 for p in range(2)]
        wanted = [TopicPartition("flights", p, offset) for p, offset in enumerate(later)]
        source.alter_consumer_group_offsets("mine", wanted)
        mirror.translate(source, target, reader, "mine", topics)
        at = {tp.partition: tp.offset for tp in target.list_consumer_group_offsets("mine")}
        assert at == {p: ends[p] - gone[p] for p in range(2)}
        copy()
        there, copied = read(gateway, "flights"), read(other, "flights")
        assert [facts(one) for one in copied] == [facts(one) for one in there]
        check(later)


def facts(one: ConsumerRecord) -> tuple[object, ...]:
    """All of a record that is the same in the mirror."""
    headers = [(name, value) for name, value in one.headers or () if name != "mirror-offset"]
    return one.partition, one.timestamp, one.key, one.value, tuple(headers)
