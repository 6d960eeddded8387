"""What consumer_group_metadata() says of a member, for the offsets of a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.client.polling import poll_until

from mainstem.client import Consumer, ConsumerGroupMetadata, TopicPartition
from mainstem.client.positions import LogIdentity
from mainstem.client.producer.transactions.offsets import offset_requests
from mainstem.errors import ConfigError
from mainstem.limits import OFFSETS_PER_COMMIT_MAX
from mainstem.testing._fake_fetch import FakeLogGateway

ONE = TopicPartition("one", 0)


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"one": 1}) as running:
        running.append("one", 0, [b"a", b"b", b"c"])
        yield running


@pytest.fixture
def consumer(gateway: FakeLogGateway) -> Iterator[Consumer]:
    config = {
        "bootstrap.servers": gateway.address,
        "group.id": "g",
        "group.instance.id": "i",
        "auto.offset.reset": "earliest",
        "retry.backoff.ms": 5,
    }
    with Consumer(config) as made:
        yield made


def test_a_member_has_its_id_its_epoch_and_the_logs_that_it_reads(
    gateway: FakeLogGateway, consumer: Consumer
) -> None:
    consumer.subscribe(["one"])
    poll_until(lambda: consumer.position([ONE])[0].offset == 2, consumer)
    member = consumer.consumer_group_metadata()
    heard = gateway.groups.heartbeats[-1]
    assert (member.group_id, member.member_id) == ("g", heard.member_id)
    assert member.member_epoch == heard.member_epoch > 0
    assert member.group_instance_id == "i"
    topic_id = gateway.topics["one"].topic_id
    assert member.logs[ONE].topic_id == topic_id
    assert member.logs[ONE].position == 2
    epoch = member.logs[ONE].leader_epoch
    read = epoch or -1
    assert member.logs[ONE].identity_at(2) == LogIdentity(topic_id, read)
    # Nobody has read up to there: it may be none of the log's offsets.
    assert member.logs[ONE].identity_at(3) == LogIdentity(topic_id, -1)


def test_a_consumer_that_did_not_subscribe_commits_from_outside_the_group(
    consumer: Consumer,
) -> None:
    consumer.assign([ONE])
    consumer.poll(5)
    member = consumer.consumer_group_metadata()
    assert (member.member_id, member.member_epoch) == ("", -1)


def test_a_member_that_was_put_out_can_commit_nothing_until_it_knows(
    gateway: FakeLogGateway, consumer: Consumer
) -> None:
    consumer.subscribe(["one"])
    poll_until(lambda: consumer.assignment() == [ONE], consumer)
    before = consumer.consumer_group_metadata()
    gateway.groups.restart()
    count = len(gateway.groups.heartbeats)
    # It joins again by itself, with a new id; what it has read was another membership's.
    while consumer.consumer_group_metadata().member_epoch:
        assert len(gateway.groups.heartbeats) < count + 10_000
    poll_until(lambda: consumer.consumer_group_metadata().member_epoch > 0, consumer)
    after = consumer.consumer_group_metadata()
    assert after.member_id not in ("", before.member_id)


def test_a_consumer_without_a_group_has_none(gateway: FakeLogGateway) -> None:
    with (
        Consumer({"bootstrap.servers": gateway.address}) as consumer,
        pytest.raises(ConfigError, match=r"group\.id"),
    ):
        consumer.consumer_group_metadata()


def test_many_offsets_go_in_several_requests() -> None:
    many = [TopicPartition("t", number, 1) for number in range(OFFSETS_PER_COMMIT_MAX + 1)]
    requests = list(offset_requests(many, ConsumerGroupMetadata("g", "m", 3)))
    assert [len(one.offsets) for one in requests] == [OFFSETS_PER_COMMIT_MAX, 1]
    assert {(one.group, one.member_id, one.member_epoch) for one in requests} == {("g", "m", 3)}
