"""The consumer's settings, and the member's state machine where no server is needed."""

from __future__ import annotations

import pytest

from mainstem.client import (
    ConsumerSettings,
    TopicPartition,
)
from mainstem.client.consumer.membership import Membership, MemberState
from mainstem.errors import ConfigError, InstanceFencedError, UnknownMemberError
from mainstem.protocol.v1 import groups_pb2

SERVER = {"bootstrap.servers": "127.0.0.1:9490"}


def test_the_defaults_are_kafkas_where_nothing_says_otherwise() -> None:
    settings = ConsumerSettings.parse(SERVER)
    assert settings.reset == "latest"
    assert settings.session_timeout_ms == 45_000
    assert settings.heartbeat_interval_ms == 3_000
    assert settings.max_poll_interval_ms == 300_000
    assert settings.fetch_max_wait_ms == 500
    assert settings.max_partition_fetch_bytes == 4 * 1024 * 1024
    assert not settings.auto_commit, "there is no group to commit to"
    assert ConsumerSettings.parse({**SERVER, "group.id": "g"}).auto_commit


@pytest.mark.parametrize(
    ("text", "kind", "duration_ms"),
    [
        ("earliest", "earliest", 0),
        ("smallest", "earliest", 0),
        ("latest", "latest", 0),
        ("none", "none", 0),
        ("error", "none", 0),
        ("by_duration:P2D", "by_duration", 172_800_000),
        ("by_duration:P1DT2H3M4.5S", "by_duration", 93_784_500),
        ("by_duration:PT30M", "by_duration", 1_800_000),
    ],
)
def test_auto_offset_reset_is_read(text: str, kind: str, duration_ms: int) -> None:
    settings = ConsumerSettings.parse({**SERVER, "auto.offset.reset": text})
    assert (settings.reset, settings.reset_duration_ms) == (kind, duration_ms)


@pytest.mark.parametrize(
    "text", ["", "sometimes", "by_duration", "by_duration:P", "by_duration:1D"]
)
def test_an_auto_offset_reset_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        ConsumerSettings.parse({**SERVER, "auto.offset.reset": text})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean session\.timeout\.ms"):
        ConsumerSettings.parse({**SERVER, "session.timeout": 1})


@pytest.mark.parametrize(
    "more",
    [
        {"heartbeat.interval.ms": 45_000},
        {"group.instance.id": "i"},
        {"client.id": "ä"},
        {"on_commit": "no function"},
        {"isolation.level": "serializable"},
        {"fetch.max.bytes": -1},
        {"bootstrap.servers": ""},
    ],
)
def test_settings_that_contradict_each_other_or_are_out_of_range_are_refused(
    more: dict[str, object],
) -> None:
    with pytest.raises(ConfigError):
        ConsumerSettings.parse({**SERVER, **more})


def test_a_short_session_lowers_the_heartbeat_interval() -> None:
    settings = ConsumerSettings.parse({**SERVER, "session.timeout.ms": 600})
    assert settings.heartbeat_interval_ms == 200


def answer(epoch: int, *numbers: int) -> groups_pb2.HeartbeatResponse:
    return groups_pb2.HeartbeatResponse(
        member_id="m",
        member_epoch=epoch,
        assignment=[groups_pb2.TopicPartitions(topic="t", topic_id="1", partitions=numbers)],
    )


def tps(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in numbers]


def joined(*numbers: int) -> Membership:
    member = Membership("g", new_id=lambda: "m")
    member.subscribe(["t"], "")
    assert member.heartbeat().member_epoch == 0
    assert member.answered(answer(1, *numbers), joined=True)
    assert list(member.plan().added) == tps(*numbers)
    return member


def test_partitions_are_given_up_before_new_ones_are_taken() -> None:
    member = joined(0, 1)
    assert member.answered(answer(2, 1, 2), joined=False)
    plan = member.plan()
    assert (plan.revoked, plan.added) == (tps(0), {})
    assert [list(one.partitions) for one in member.heartbeat().owned] == [[0, 1]]
    member.gave_up(plan.revoked)
    assert [list(one.partitions) for one in member.heartbeat().owned] == [[1]]
    assert list(member.plan().added) == tps(2)
    assert not member.has_plan()


def test_what_is_about_to_be_taken_counts_as_owned_at_once() -> None:
    member = joined(0)
    assert [list(one.partitions) for one in member.heartbeat().owned] == [[0]]


def test_a_topic_that_was_created_again_is_given_up_and_taken_anew() -> None:
    member = joined(0)
    again = answer(2, 0)
    again.assignment[0].topic_id = "2"
    assert member.answered(again, joined=False)
    plan = member.plan()
    assert plan.revoked == tps(0)
    member.gave_up(plan.revoked)
    assert member.plan().added == {tps(0)[0]: "2"}


def test_the_plan_says_which_of_the_partitions_to_take_came_to_their_topic_later() -> None:
    member = joined(0)
    more = answer(2, 1, 2, 3)
    more.added_later.add(topic="t", topic_id="1", partitions=[2, 3])
    assert member.answered(more, joined=False)
    plan = member.plan()
    assert plan.revoked == tps(0)
    assert not plan.added_later
    member.gave_up(plan.revoked)
    plan = member.plan()
    assert list(plan.added) == tps(1, 2, 3)
    assert plan.added_later == frozenset(tps(2, 3))
    more.assignment[0].partitions.append(4)
    more.added_later[0].partitions.append(4)
    assert member.answered(more, joined=False)
    assert member.plan().added_later == frozenset(tps(4))
    assert member.answered(answer(3, 1, 2, 3, 4, 5), joined=False)
    assert not member.plan().added_later


def test_a_member_that_was_put_out_loses_all_once_and_joins_anew_owning_nothing() -> None:
    member = joined(0, 1)
    member.put_out(UnknownMemberError("forgotten"))
    assert member.plan().lost == tps(0, 1)
    assert not member.plan()
    beat = member.heartbeat()
    assert (beat.member_epoch, list(beat.owned)) == (0, [])
    assert member.answered(answer(5, 0), joined=True)
    assert member.joins == 2


def test_an_answer_to_a_heartbeat_of_before_is_not_taken() -> None:
    member = joined(0)
    member.put_out(UnknownMemberError("forgotten"))
    assert not member.answered(answer(9, 0, 1), joined=False)
    assert member.target is None


def test_a_fenced_instance_stays_out_until_it_subscribes_again() -> None:
    member = joined(0)
    member.put_out(InstanceFencedError("another"))
    assert member.state is MemberState.FENCED
    assert not member.wake()
    member.subscribe(["t"], "")
    assert member.heartbeat().member_epoch == 0


def test_a_member_that_slept_joins_when_it_wakes() -> None:
    member = joined(0)
    member.fall_asleep()
    assert member.plan().lost == tps(0)
    assert member.wake()
    assert not member.wake()
    assert member.heartbeat().member_epoch == 0
