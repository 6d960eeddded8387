"""The admin client and the coordinator of the groups: who is asked, and how often."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from mainstem.client import AdminClient, TopicPartition
from mainstem.errors import (
    GatewayUnavailableError,
    MainstemError,
    NotLeaderError,
    OutcomeUnknownError,
)
from mainstem.limits import OFFSETS_PER_COMMIT_MAX
from mainstem.protocol.v1 import groups_pb2
from mainstem.testing._fake_fetch import FakeLogGateway

WANTED = TopicPartition("t", 0, 7)


@pytest.fixture
def one(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 1}) as running:
        yield running


@pytest.fixture
def two(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 1}) as running:
        yield running


@pytest.fixture
def admin(one: FakeLogGateway, two: FakeLogGateway) -> Iterator[AdminClient]:
    """Knows both, and begins with `one`."""
    with AdminClient({"bootstrap.servers": f"{one.address},{two.address}"}) as client:
        yield client


def test_the_gateway_that_coordinates_is_followed_and_asked_first_from_then_on(
    one: FakeLogGateway, two: FakeLogGateway, admin: AdminClient
) -> None:
    def elsewhere(_: groups_pb2.CommitOffsetsRequest) -> MainstemError:
        return NotLeaderError("not here", leader=two.address)

    one.groups.on_commit = elsewhere
    for _ in range(2):
        assert admin.alter_consumer_group_offsets("g", [WANTED]) == {WANTED: None}
    assert two.groups.offsets == {("g", "t", 0): 7}
    assert (len(one.groups.commits), len(two.groups.commits)) == (1, 2)


def test_gateways_that_name_each_other_end_in_an_error_and_not_in_a_loop(
    one: FakeLogGateway, two: FakeLogGateway, admin: AdminClient
) -> None:
    one.groups.on_commit = lambda _: NotLeaderError("not here", leader=two.address)
    two.groups.on_commit = lambda _: NotLeaderError("nor here", leader=one.address)
    with pytest.raises(NotLeaderError):
        admin.alter_consumer_group_offsets("g", [WANTED])


def test_the_next_gateway_is_asked_when_one_is_away(
    one: FakeLogGateway, two: FakeLogGateway, admin: AdminClient
) -> None:
    one.stop()
    assert admin.alter_consumer_group_offsets("g", [WANTED]) == {WANTED: None}
    assert admin.list_offsets({WANTED: 0}) == {WANTED: -1}
    two.stop()
    with pytest.raises(GatewayUnavailableError):
        admin.alter_consumer_group_offsets("g", [WANTED])


def test_a_call_that_got_no_answer_is_not_made_again_elsewhere(
    one: FakeLogGateway, two: FakeLogGateway, admin: AdminClient
) -> None:
    def be_late(_: groups_pb2.CommitOffsetsRequest) -> None:
        time.sleep(0.5)

    one.groups.on_commit = be_late
    with pytest.raises(OutcomeUnknownError):
        admin.alter_consumer_group_offsets("g", [WANTED], timeout=0.1)
    assert two.groups.commits == []


def test_every_call_says_what_group_and_topic_it_is_about_and_comes_from_outside(
    one: FakeLogGateway, admin: AdminClient
) -> None:
    admin.delete_consumer_group_offsets("g", [WANTED])
    (request,) = one.groups.commits
    assert (request.group, request.member_id, request.member_epoch) == ("g", "", -1)
    assert [(c.topic, c.partition, c.offset) for c in request.offsets] == [("t", 0, -1)]


def test_more_offsets_than_one_commit_may_have_go_in_several(
    one: FakeLogGateway, admin: AdminClient
) -> None:
    wanted = [TopicPartition("t", number, number) for number in range(OFFSETS_PER_COMMIT_MAX + 5)]
    assert admin.alter_consumer_group_offsets("g", wanted) == dict.fromkeys(wanted)
    assert [len(request.offsets) for request in one.groups.commits] == [OFFSETS_PER_COMMIT_MAX, 5]
    assert len(one.groups.offsets) == len(wanted)


def test_offsets_with_much_metadata_go_in_requests_that_a_gateway_takes(
    one: FakeLogGateway, admin: AdminClient
) -> None:
    wanted = [TopicPartition("t", number, 1, metadata="x" * 4_096) for number in range(600)]
    assert admin.alter_consumer_group_offsets("g", wanted) == dict.fromkeys(wanted)
    assert len(one.groups.commits) == 3
    assert max(request.ByteSize() for request in one.groups.commits) <= 2**20 + 64
