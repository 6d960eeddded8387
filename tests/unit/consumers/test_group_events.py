"""What a coordinator says of members that come and go, and how much of it is logged."""

from __future__ import annotations

from typing import Any

import structlog.testing

from mainstem.consumers import Coordinator, CoordinatorRules, Heartbeat, Partition, TopicInfo
from mainstem.consumers.events import EVICTED, JOINED, LEFT, REBALANCED, GroupEvent
from mainstem.ingest_gateway.groups import group_log
from mainstem.ingest_gateway.groups.group_log import GroupLog


class Scene:
    """A coordinator with a clock, and a topic of two partitions."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.coordinator = Coordinator(CoordinatorRules(), lambda: self.now_ms)
        self.coordinator.set_topics({"t": TopicInfo("id", 2)})

    def beat(self, member: str, epoch: int = 0, **facts: Any) -> int:
        beat = Heartbeat(
            "g", member, epoch, client_id=f"client {member}", topics=frozenset({"t"}), **facts
        )
        return self.coordinator.heartbeat(beat).member_epoch

    def told(self, *kinds: str) -> list[dict[str, object]]:
        """Facts of the events since the last call; asserts of which kinds they are."""
        events = self.coordinator.events.take()
        assert tuple(one.kind for one in events) == kinds
        return [one.facts for one in events]


def test_joins_leaves_and_rebalances_are_told_with_who_it_was() -> None:
    scene = Scene()
    epoch = scene.beat("a", peer="ipv4:1.2.3.4:5")
    joined, rebalanced = scene.told(JOINED, REBALANCED)
    assert joined == {
        "group": "g",
        "member_id": "a",
        "client_id": "client a",
        "peer": "ipv4:1.2.3.4:5",
        "member_epoch": joined["member_epoch"],
        "member_count": 1,
        "reason": "new",
    }
    assert rebalanced == {
        "group": "g",
        "group_epoch": rebalanced["group_epoch"],
        "member_count": 1,
        "partition_count": 2,
        "assignor": "uniform",
    }
    owned = frozenset({Partition("t", "id", 0), Partition("t", "id", 1)})
    scene.beat("a", epoch, owned=owned)
    assert scene.told() == [], "a heartbeat is nothing to speak of"
    scene.beat("a")
    (again,) = scene.told(JOINED)
    assert again["reason"] == "again: it did not hear the answer"
    scene.coordinator.leave("g", "a")
    (left,) = scene.told(LEFT)
    assert (left["member_id"], left["member_count"], left["reason"]) == ("a", 0, "it said so")


def test_an_eviction_says_why() -> None:
    scene = Scene()
    epoch = scene.beat("silent", session_timeout_ms=6_000)
    scene.beat("greedy", session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    scene.told(JOINED, REBALANCED, JOINED, REBALANCED)
    scene.now_ms = 6_001
    scene.coordinator.tick()
    silent, _ = scene.told(EVICTED, REBALANCED)
    assert silent["member_id"] == "silent"
    assert silent["reason"] == "no heartbeat for session.timeout.ms (6000 ms)"
    assert epoch


def test_a_static_member_is_told_to_be_away_and_replaced() -> None:
    scene = Scene()
    scene.beat("a", instance_id="i")
    scene.told(JOINED, REBALANCED)
    scene.coordinator.leave("g", "a", "i", keep_place=True)
    (away,) = scene.told(LEFT)
    assert away["reason"] == "it will come back: its place waits"
    scene.beat("b", instance_id="i")
    (back,) = scene.told(JOINED)
    assert (back["instance_id"], back["reason"]) == ("i", "with the instance id of a")


def test_a_storm_of_joins_is_a_bounded_number_of_lines_and_the_rest_is_counted() -> None:
    now_s = 0.0
    log = GroupLog(lambda: now_s)
    storm = [GroupEvent(JOINED, {"group": "g", "member_id": str(n)}) for n in range(1_000)]
    with structlog.testing.capture_logs() as lines:
        log.write(storm)
        log.write([GroupEvent(EVICTED, {"group": "g"})])
        log.tell_rest()
    assert [line["event"] for line in lines] == [JOINED] * group_log.BURST + [EVICTED]
    assert lines[-1]["log_level"] == "warning"
    now_s = 1.0
    with structlog.testing.capture_logs() as lines:
        log.write(storm[:10])
        log.tell_rest()
    assert len(lines) == group_log.PER_S
    assert lines[0]["left_out"] == 1_000 - group_log.BURST
    now_s = 2.0
    with structlog.testing.capture_logs() as lines:
        log.tell_rest()
        log.tell_rest()
    (line,) = lines
    assert (line["kind"], line["left_out"]) == (JOINED, 5)
