"""Arguments of another client's shape: refused by name before anything is done, never misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.scripted_gateway import ScriptedGateway

from mainstem.client import (
    AdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    TopicPartition,
)
from mainstem.protocol.v1 import groups_pb2
from mainstem.testing._fake_fetch import FakeLogGateway

ONE = TopicPartition("one", 0)


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"one": 1}) as running:
        yield running


@pytest.fixture
def consumer(gateway: FakeLogGateway) -> Iterator[Consumer]:
    config = {
        "bootstrap.servers": gateway.address,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
    }
    with Consumer(config) as made:
        yield made


CALLS: dict[str, Callable[[Consumer, Any], object]] = {
    "assign": lambda c, given: c.assign(given),
    "commit": lambda c, given: c.commit(offsets=given, asynchronous=False),
    "store_offsets": lambda c, given: c.store_offsets(offsets=given),
    "committed": lambda c, given: c.committed(given),
    "position": lambda c, given: c.position(given),
    "pause": lambda c, given: c.pause(given),
    "resume": lambda c, given: c.resume(given),
    "offsets_for_times": lambda c, given: c.offsets_for_times(given),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("one", "not a str"),
        (ONE, "not a TopicPartition"),
        (7, "not a int"),
        ([("one", 0)], "was given a tuple"),
        ([TopicPartition("one", None)], "TopicPartition.*partition"),  # type: ignore[arg-type]
        ([TopicPartition("one", 0, 1.5)], "TopicPartition.*offset"),  # type: ignore[arg-type]
        ([TopicPartition(b"one", 0)], "TopicPartition.*topic"),  # type: ignore[arg-type]
    ],
    ids=["text", "one", "number", "tuple", "partition", "offset", "topic"],
)
def test_what_is_no_list_of_partitions_is_refused_by_the_name_of_the_call(
    consumer: Consumer, call: str, given: object, why: str
) -> None:
    if call == "store_offsets":
        consumer.assign([ONE])
    with pytest.raises(TypeError, match=rf"{call}\(\) .*{why}"):
        CALLS[call](consumer, given)
    assert consumer.assignment() == ([ONE] if call == "store_offsets" else [])


@pytest.mark.parametrize("call", ["assign", "commit", "store_offsets", "offsets_for_times"])
def test_a_dict_is_refused_where_offsets_count_as_its_keys_have_none(
    consumer: Consumer, call: str
) -> None:
    if call == "store_offsets":
        consumer.assign([ONE])
    with pytest.raises(TypeError, match=r"not a dict: \[TopicPartition\(topic, partition"):
        CALLS[call](consumer, {ONE: 5})


def test_a_record_is_what_a_commit_takes_first(consumer: Consumer) -> None:
    given: Any = {ONE: 5}
    for call in (consumer.commit, consumer.store_offsets):
        with pytest.raises(TypeError, match=r"takes a record, not a dict; .* offsets=\["):
            call(given)


def test_one_partition_is_what_seek_and_watermarks_take(consumer: Consumer) -> None:
    consumer.assign([ONE])
    given: Any
    for given in (("one", 0), [ONE], "one"):
        with pytest.raises(TypeError, match=r"seek\(\) takes a TopicPartition"):
            consumer.seek(given)
        with pytest.raises(TypeError, match=r"get_watermark_offsets\(\) takes a TopicPartition"):
            consumer.get_watermark_offsets(given)


def test_partitions_come_from_anything_that_has_them_in_turn(consumer: Consumer) -> None:
    consumer.assign(one for one in (ONE,))
    consumer.pause({ONE})
    consumer.resume({ONE: "paused"})
    assert consumer.assignment() == [ONE]


@pytest.mark.parametrize("offset", [-1, -2, -1000, -1001])
def test_an_offset_that_is_none_is_neither_stored_nor_taken_for_a_time(
    gateway: FakeLogGateway, consumer: Consumer, offset: int
) -> None:
    gateway.append("one", 0, [b"a"] * 3)
    consumer.assign([TopicPartition("one", 0, 0)])
    assert len(consumer.consume(3, 10)) == 3
    consumer.store_offsets(offsets=[TopicPartition("one", 0, 2)])
    with pytest.raises(ValueError, match=f"the offset of one-0 is {offset}"):
        consumer.store_offsets(
            offsets=[TopicPartition("one", 0, 3), TopicPartition("one", 0, offset)]
        )
    with pytest.raises(ValueError, match=f"the time for one-0 is {offset} ms"):
        consumer.offsets_for_times([TopicPartition("one", 0, offset)])
    consumer.commit(asynchronous=False)
    assert gateway.groups.offsets == {("g", "one", 0): 2}


@pytest.mark.parametrize("client", [Producer, AsyncProducer, Consumer, AsyncConsumer, AdminClient])
@pytest.mark.parametrize("given", ["127.0.0.1:9490", ["127.0.0.1:9490"], None])
def test_a_configuration_that_is_no_dict_is_refused_with_an_example(
    client: Any, given: object
) -> None:
    with pytest.raises(TypeError, match=r"\{'bootstrap.servers': '127.0.0.1:9490'\}"):
        client(given)


def test_a_replication_factor_and_a_topic_in_the_place_of_a_timeout_are_refused() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    topic: Any = "one"
    factor: Any = 1
    several: Any = ["retention.ms=5"]
    with AdminClient(nowhere) as admin:
        with pytest.raises(TypeError, match="no replication factor"):
            admin.create_topic("one", 3, factor)
        with pytest.raises(TypeError, match="a timeout is a number of seconds, not a str"):
            admin.list_topics(topic)
        with pytest.raises(TypeError, match="set is a list"):
            admin.alter_config("one", several)
        with pytest.raises(TypeError, match="queries is a list"):
            admin.list_offsets([ONE])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="offsets is a list"):
            admin.delete_records("one", [ONE])  # type: ignore[arg-type]
    for client in (Producer(nowhere), Consumer(nowhere)):
        with pytest.raises(TypeError, match="a timeout is a number of seconds, not a str"):
            client.list_topics(topic)
        client.close()


def test_one_name_in_the_place_of_several_is_refused() -> None:
    """Its letters would be taken for names: `delete_consumer_groups("ab")` for groups a and b."""
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        calls: dict[str, Callable[[Any], object]] = {
            "group_ids": admin.delete_consumer_groups,
            "group_ids ": admin.describe_consumer_groups,
            "reset": lambda given: admin.alter_config("one", reset=given),
            "tokens": lambda given: admin.complete_transactions("x", 0, given),
            "states": admin.list_transactions,
        }
        for name, call in calls.items():
            with pytest.raises(TypeError, match=rf"{name.strip()} is a str; .*\['orders'\]"):
                call("orders")
            with pytest.raises(TypeError, match=f"{name.strip()} has a int"):
                call([5])


def test_a_group_that_is_no_text_is_refused_before_another_is_deleted() -> None:
    with (
        ScriptedGateway({"DeleteGroup": lambda *_: groups_pb2.DeleteGroupResponse()}) as gateway,
        AdminClient({"bootstrap.servers": gateway.address}) as admin,
    ):
        with pytest.raises(UnicodeEncodeError):
            admin.delete_consumer_groups(["g", "\udcff"])
        assert gateway.peers == []
        assert admin.delete_consumer_groups(["g"]) == {"g": None}


def test_offsets_of_a_group_are_no_dict() -> None:
    given: Any = {ONE: 5}
    with (
        AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin,
        pytest.raises(TypeError, match=r"alter_consumer_group_offsets\(\) .*not a dict"),
    ):
        admin.alter_consumer_group_offsets("g", given)
