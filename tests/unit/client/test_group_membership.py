"""A member leaves nothing behind, and is one member, whatever happens to its messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.muting_proxy import MutingProxy
from tests.unit.client.polling import DEADLINE_S, poll_until

from mainstem.client import Consumer
from mainstem.client.consumer.membership import Membership, MemberState
from mainstem.consumers.assignors import TopicInfo
from mainstem.errors import StaleMemberEpochError, UnknownMemberError
from mainstem.protocol.v1 import groups_pb2
from mainstem.testing._fake_fetch import FakeLogGateway

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 2}) as running:
        yield running


def consumer_of(address: str, **settings: object) -> Consumer:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "retry.backoff.ms": 5,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    consumer.subscribe(["t"])
    return consumer


def members(gateway: FakeLogGateway) -> list[str]:
    group = gateway.groups.coordinator.groups.get("g")
    return [] if group is None else list(group.members)


def answer_to(request: groups_pb2.HeartbeatRequest, epoch: int = 1) -> groups_pb2.HeartbeatResponse:
    return groups_pb2.HeartbeatResponse(member_id=request.member_id, member_epoch=epoch)


def test_a_join_that_comes_again_has_the_same_member_id() -> None:
    membership = Membership("g")
    membership.subscribe(["t"], "")
    first, second = membership.heartbeat(), membership.heartbeat()
    assert first.member_id
    assert (first.member_id, first.member_epoch) == (second.member_id, 0)
    membership.answered(answer_to(second), joined=True)
    membership.put_out(StaleMemberEpochError("stale"))
    assert membership.heartbeat().member_id == first.member_id


def test_an_id_that_the_coordinator_does_not_know_or_that_left_is_not_used_again() -> None:
    membership = Membership("g")
    membership.subscribe(["t"], "")
    ids = [membership.heartbeat().member_id]
    membership.put_out(UnknownMemberError("unknown"))
    ids.append(membership.heartbeat().member_id)
    membership.fall_asleep()
    assert membership.wake()
    ids.append(membership.heartbeat().member_id)
    membership.leave()
    membership.subscribe(["t"], "")
    ids.append(membership.heartbeat().member_id)
    assert len(set(ids)) == 4


def test_an_answer_to_who_the_member_was_before_it_left_is_not_taken() -> None:
    membership = Membership("g")
    membership.subscribe(["t"], "")
    before = membership.heartbeat()
    membership.leave()
    membership.subscribe(["t"], "")
    now = membership.heartbeat()
    assert not membership.answered(answer_to(before), joined=True)
    assert membership.joins == 0
    membership.answered(answer_to(now), joined=True)
    assert membership.state is MemberState.MEMBER


@pytest.mark.parametrize("where", ["before_heartbeat", "after_heartbeat"])
def test_a_consumer_that_closes_while_it_joins_leaves_no_member_behind(
    gateway: FakeLogGateway, where: str
) -> None:
    """Whether its leave overtakes the join on the way, or comes before the answer."""
    came, go_on, gone = threading.Event(), threading.Event(), threading.Event()

    def hold(_: groups_pb2.HeartbeatRequest) -> None:
        came.set()
        assert go_on.wait(DEADLINE_S)
        gone.set()

    setattr(gateway.groups, where, hold)
    consumer = consumer_of(gateway.address)
    consumer.poll(0.0)
    assert came.wait(DEADLINE_S)
    threading.Timer(0.1, go_on.set).start()
    consumer.close()
    assert len(gateway.groups.leaves) == 1
    go_on.set()
    assert gone.wait(DEADLINE_S)
    late = Consumer({"bootstrap.servers": gateway.address, "group.id": "g"})
    late.subscribe(["t"])
    poll_until(lambda: len(late.assignment()) == 2, late)
    assert len(members(gateway)) == 1
    late.close()
    assert members(gateway) == []


def test_consumers_that_close_at_any_moment_leave_no_member_behind(
    gateway: FakeLogGateway,
) -> None:
    for number in range(12):
        consumer = consumer_of(gateway.address)
        consumer.poll(number / 2_000)
        consumer.close()
    assert members(gateway) == []


def test_unsubscribing_while_joining_and_subscribing_again_makes_one_member(
    gateway: FakeLogGateway,
) -> None:
    consumer = consumer_of(gateway.address)
    for _ in range(5):
        consumer.unsubscribe()
        consumer.subscribe(["t"])
    poll_until(lambda: len(consumer.assignment()) == 2, consumer)
    assert len(members(gateway)) == 1
    consumer.close()
    assert members(gateway) == []


def test_a_join_whose_connection_died_without_a_word_is_made_again_over_a_new_one(
    gateway: FakeLogGateway,
) -> None:
    with MutingProxy(gateway.address) as proxy:
        gateway.groups.after_heartbeat = lambda _: proxy.mute() if proxy.count == 1 else None
        consumer = consumer_of(proxy.address, request_timeout_ms=1_000)
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        assert len(members(gateway)) == 1
        assert proxy.count == 2
        consumer.close()
    assert members(gateway) == []


def test_a_member_whose_connection_died_without_a_word_stays_a_member_and_reads_on(
    gateway: FakeLogGateway,
) -> None:
    with MutingProxy(gateway.address) as proxy:
        consumer = consumer_of(
            proxy.address,
            request_timeout_ms=1_000,
            session_timeout_ms=6_000,
            fetch_max_wait_ms=100,
        )
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        before = members(gateway)
        proxy.mute()
        gateway.append("t", 0, [b"after"])
        # Over a new connection: through the proxy again, or to the address that the gateway told.
        beats = len(gateway.groups.heartbeats)
        found = poll_until(lambda: len(gateway.groups.heartbeats) > beats + 1, consumer)
        while not found:
            record = consumer.poll(DEADLINE_S)
            assert record is not None
            found.append(record)
        assert found[0].value == b"after"
        assert members(gateway) == before
        consumer.close()
    assert members(gateway) == []


def test_a_topic_that_does_not_exist_is_warned_of_once_and_again_when_it_has_come_and_gone(
    gateway: FakeLogGateway, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        return sum("topic typo, which does not exist" in one for one in caplog.messages)

    def beats(more: int) -> None:
        seen = len(gateway.groups.heartbeats)
        poll_until(lambda: len(gateway.groups.heartbeats) > seen + more, consumer)

    consumer = consumer_of(gateway.address)
    consumer.subscribe(["t", "typo"])
    poll_until(lambda: told() == 1, consumer)
    beats(3)
    assert told() == 1
    gateway.groups.coordinator.set_topics({"typo": TopicInfo("id", 1)})
    poll_until(lambda: len(consumer.assignment()) == 3, consumer)
    gateway.groups.coordinator.set_topics({"typo": None})
    poll_until(lambda: told() == 2, consumer)
    consumer.close()
