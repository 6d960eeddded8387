"""The admin client against a gateway in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainstem.client import AdminClient
from mainstem.errors import (
    GatewayUnavailableError,
    InvalidConfigError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicError,
)
from mainstem.testing import FakeGateway


@pytest.fixture
def admin(gateway: FakeGateway) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": gateway.address}) as client:
        yield client


def test_a_topic_is_made_listed_described_and_deleted(
    gateway: FakeGateway, admin: AdminClient
) -> None:
    made = admin.create_topic("flights", 6, {"retention.ms": 1_000})
    assert made.partition_count == 6
    assert [one.topic for one in admin.list_topics()] == ["flights", "one", "t"]
    found = admin.describe_topic("flights")
    assert (found.topic_id, len(found.partitions)) == (made.topic_id, 6)
    assert found.partitions[0].high_watermark == 0
    retention = next(entry for entry in found.config if entry.name == "retention.ms")
    assert (retention.value, retention.is_default, retention.unit) == ("1000", False, "ms")
    assert admin.delete_topic("flights") == made.topic_id
    with pytest.raises(UnknownTopicError):
        admin.describe_topic("flights")


def test_validate_only_makes_nothing(gateway: FakeGateway, admin: AdminClient) -> None:
    assert admin.create_topic("x", 2, validate_only=True).topic_id == ""
    assert "x" not in gateway.topics


def test_what_the_gateway_refuses_is_raised_as_its_own_class(admin: AdminClient) -> None:
    with pytest.raises(TopicExistsError) as caught:
        admin.create_topic("t")
    assert caught.value.facts == {"topic": "t"}
    with pytest.raises(InvalidTopicError):
        admin.create_topic("no/where")
    with pytest.raises(InvalidConfigError, match=r"did you mean retention\.ms"):
        admin.create_topic("x", config={"retention.m": 1})
    with pytest.raises(UnknownTopicError):
        admin.delete_topic("nowhere")


def test_settings_are_set_and_put_back(admin: AdminClient) -> None:
    def value() -> tuple[str, bool]:
        entries = admin.describe_topic("t").config
        return next((e.value, e.is_default) for e in entries if e.name == "commit.interval.ms")

    assert admin.alter_config("t", {"commit.interval.ms": 0}) == 1
    assert value() == ("0", False)
    assert admin.alter_config("t", reset=["commit.interval.ms"]) == 2
    assert value() == ("100", True)


def test_partitions_are_added_by_their_new_total(gateway: FakeGateway, admin: AdminClient) -> None:
    admin.add_partitions("t", 5)
    admin.create_partitions("t", 6)
    assert gateway.topics["t"].partition_count == 6
    with pytest.raises(InvalidConfigError, match="larger"):
        admin.add_partitions("t", 6)


def test_the_cluster_names_its_gateways(gateway: FakeGateway, admin: AdminClient) -> None:
    assert [one.address for one in admin.describe_cluster().gateways] == [gateway.address]


def test_the_next_server_is_asked_when_one_is_away(gateway: FakeGateway) -> None:
    away = FakeGateway().start()
    away.stop()
    servers = f"{away.address},{gateway.address}"
    with AdminClient({"bootstrap.servers": servers}) as admin:
        assert len(admin.list_topics()) == 2
    with (
        AdminClient({"bootstrap.servers": away.address}) as admin,
        pytest.raises(GatewayUnavailableError),
    ):
        admin.list_topics()
