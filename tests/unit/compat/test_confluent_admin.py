"""confluent-kafka's AdminClient, against a gateway in memory."""

from __future__ import annotations

import gc
import pickle
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from mainstem.compat.confluent import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    KafkaError,
    KafkaException,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicCollection,
    TopicPartition,
)
from mainstem.testing import FakeGateway


@pytest.fixture
def admin(gateway: FakeGateway) -> Iterator[AdminClient]:
    made = AdminClient({"bootstrap.servers": gateway.address})
    yield made
    made._finalizer()


def failure(future: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        future.result(10)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_topics_are_created_described_grown_and_deleted_with_a_future_each(
    admin: AdminClient,
) -> None:
    new = [NewTopic("a", 3, 1, config={"retention.ms": "1000"}), NewTopic("b", 1), NewTopic("t", 1)]
    futures = admin.create_topics(new, operation_timeout=30, request_timeout=10)
    assert futures.keys() == {"a", "b", "t"}
    assert futures["a"].result(10) is None
    assert futures["b"].result(10) is None
    assert failure(futures["t"]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert admin.create_partitions([NewPartitions("b", 4)])["b"].result(10) is None
    described = admin.describe_topics(TopicCollection(["b", "none"]))
    assert [one.id for one in described["b"].result(10).partitions] == [0, 1, 2, 3]
    assert failure(described["none"]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    metadata = admin.list_topics(timeout=10)
    assert len(metadata.topics["a"].partitions) == 3
    assert admin.list_topics("none").topics["none"].error == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert admin.delete_topics(["a"])["a"].result(10) is None
    assert "a" not in admin.list_topics().topics


def test_settings_of_kafkas_topics_that_change_nothing_here_are_taken(admin: AdminClient) -> None:
    idle = {"min.insync.replicas": "2", "segment.ms": "1000", "compression.type": "producer"}
    new = NewTopic("k", 1, 3, config={**idle, "retention.ms": "5000"})
    assert admin.create_topics([new])["k"].result(10) is None
    resource = ConfigResource("topic", "k", set_config={**idle, "retention.ms": "6000"})
    assert admin.alter_configs([resource])[resource].result(10) is None
    changes = [
        ConfigEntry(name, "1", incremental_operation=AlterConfigOpType.SET)
        for name in ("flush.ms", "segment.bytes")
    ]
    resource = ConfigResource("topic", "k", incremental_configs=changes)
    assert admin.incremental_alter_configs([resource])[resource].result(10) is None
    found = admin.describe_configs([resource])[resource].result(10)
    assert found["retention.ms"].value == "6000"
    wrong = NewTopic("w", 1, config={**idle, "segment.sizes": "1"})
    assert failure(admin.create_topics([wrong])["w"]) == KafkaError.INVALID_CONFIG


def test_validate_only_makes_nothing(admin: AdminClient) -> None:
    assert admin.create_topics([NewTopic("a", 1)], validate_only=True)["a"].result(10) is None
    assert "a" not in admin.list_topics().topics


def test_settings_of_a_topic_are_described_and_changed(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.TOPIC, "t")

    def value(name: str) -> tuple[str | None, bool]:
        entry = admin.describe_configs([resource])[resource].result(10)[name]
        return entry.value, entry.is_default

    assert value("retention.ms") == ("604800000", True)
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    )
    assert admin.incremental_alter_configs([resource])[resource].result(10) is None
    assert value("retention.ms") == ("1000", False)
    whole = ConfigResource("topic", "t", set_config={"max.message.bytes": "2000"})
    assert admin.alter_configs([whole])[whole].result(10) is None
    assert value("max.message.bytes") == ("2000", False)
    assert value("retention.ms") == ("604800000", True), "what is not named goes to its default"
    back = ConfigResource("topic", "t")
    back.add_incremental_config(
        ConfigEntry("max.message.bytes", None, incremental_operation=AlterConfigOpType.DELETE)
    )
    assert admin.incremental_alter_configs([back])[back].result(10) is None
    assert value("max.message.bytes")[1]
    broker = ConfigResource("broker", "1")
    assert failure(admin.describe_configs([broker])[broker]) == KafkaError._NOT_IMPLEMENTED


def test_the_cluster_is_described(admin: AdminClient, gateway: FakeGateway) -> None:
    found = admin.describe_cluster().result(10)
    assert found.controller is not None
    assert f"{found.controller.host}:{found.controller.port}" == gateway.address
    assert [(node.id, node.rack) for node in found.nodes] == [(1, "rack-a")]


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.create_topics(["t"]),
        lambda a: a.create_topics(None),
        lambda a: a.delete_topics("t"),
        lambda a: a.create_partitions([NewTopic("t", 1)]),
        lambda a: a.describe_topics(["t"]),
        lambda a: a.describe_configs(["t"]),
        lambda a: a.create_topics([NewTopic("a", 1)], nosuch=1),
        lambda a: a.list_consumer_groups(states=["EMPTY"]),
        lambda a: a.list_offsets([TopicPartition("t", 0)]),
        lambda a: a.list_offsets({TopicPartition("t", 0): 5}),
        pickle.dumps,
    ],
)
def test_arguments_of_a_wrong_type_are_type_errors(
    admin: AdminClient, call: Callable[[AdminClient], object]
) -> None:
    with pytest.raises(TypeError):
        call(admin)


def test_an_empty_list_is_a_value_error(admin: AdminClient) -> None:
    with pytest.raises(ValueError, match="non-empty list of NewTopic"):
        admin.create_topics([])


def test_an_admin_client_ends_with_its_block(gateway: FakeGateway) -> None:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        assert admin
        assert len(admin) == 0
        assert "t" in admin.list_topics().topics


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.elect_leaders(None),
        lambda a: a.set_sasl_credentials("a", "b"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    admin: AdminClient, call: Callable[[AdminClient], object]
) -> None:
    with pytest.raises(KafkaException) as caught:
        call(admin)
    assert caught.value.args[0] == KafkaError._NOT_IMPLEMENTED


def test_a_gateway_that_cannot_be_reached_is_told_by_the_future(no_leaks: None) -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1"})
    future = admin.create_topics([NewTopic("a", 1)], request_timeout=5)["a"]
    assert failure(future) == KafkaError._ALL_BROKERS_DOWN
    admin._finalizer()


def test_an_admin_client_that_is_let_go_leaves_nothing_behind(gateway: FakeGateway) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.address, "request.timeout.ms": 1000})
    assert admin.poll(0) == 0
    admin.list_topics()
    admin.delete_topics(["t"])["t"].result(10)
    del admin
    gc.collect()


def test_calls_that_wait_when_the_block_ends_are_cancelled_those_of_one_answer_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, and says nothing
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with AdminClient({"bootstrap.servers": address}) as admin:
            busy = admin.describe_topics(TopicCollection(["a", "b"]))  # has both threads
            waiting: list[Future[Any]] = [
                *admin.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}).values(),
                *admin.delete_topics(["t"]).values(),
            ]
        for future in waiting:
            with pytest.raises(CancelledError):
                future.result(10)
        for future in busy.values():
            failure(future)
