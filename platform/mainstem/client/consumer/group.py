"""A group over the wire: heartbeats in a thread, and committed offsets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mainstem.client.callbacks import unexpected
from mainstem.client.consumer.group_commits import GroupCommits
from mainstem.client.consumer.membership import AssignmentPlan, Membership, MemberState
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.client.coordinator_calls import CoordinatorCalls
from mainstem.client.gateways import Gateways
from mainstem.client.positions import TopicPartition
from mainstem.errors import (
    GatewayUnavailableError,
    InstanceFencedError,
    MainstemError,
)
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import groups_pb2

_log = logging.getLogger("mainstem.client")

#: How long a member that leaves tries to tell that, at most, each of the two times that it does.
_LEAVE_S: Final = 5.0

#: Codes that say that the coordinator does not count this member any more.
_PUT_OUT: Final = ("UNKNOWN_MEMBER", "STALE_MEMBER_EPOCH", "INSTANCE_FENCED")


class CommittedOffset(NamedTuple):
    """What a group has committed of a partition.

    Attributes:
        offset: -1: nothing.
        leader_epoch: As `Partition.leader_epoch`.
    """

    offset: int
    metadata: str
    leader_epoch: int


class GroupClient:
    """The group of one consumer. Thread-safe.

    Attributes:
        commits: Sends offset commits.

    Args:
        on_plan: Called, without a lock, when `take_plan` has something.
        poll_count: Counts the application's polls.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        gateways: Gateways,
        on_plan: Callable[[], None],
        poll_count: Callable[[], int],
    ) -> None:
        self._settings = settings
        # An offset commit or a heartbeat that is taken twice has the effect of one.
        self._calls = CoordinatorCalls(gateways, repeats=True)
        self._on_plan = on_plan
        self._poll_count = poll_count
        self._membership = Membership(settings.group_id, settings.group_instance_id)
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self.commits = GroupCommits(
            settings, self._calls, self._membership, self._wake, self._beat_now
        )
        self._due_now = False
        self._closed = False
        self._told = False
        #: Heartbeats that failed in a row. The heartbeat thread's, as what follows.
        self._failures = 0
        #: Topics that were told to be missing.
        self._missing: set[str] = set()
        self._fatal: MainstemError | None = None
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._heart: threading.Thread | None = None

    # ---------------------------------------------------------------------------------- membership

    def subscribe(self, topics: Sequence[str], pattern: str) -> None:
        """Joins, or asks for other topics."""
        with self._lock:
            self._fatal = None
            self._membership.subscribe(topics, pattern)
            self._beat_now()
            if self._heart is None:
                self._heart = threading.Thread(
                    target=self._run_heart, name="mainstem-heartbeat", daemon=True
                )
                self._heart.start()

    def take_plan(self) -> AssignmentPlan:
        """What the application's thread has to do now.

        Raises:
            MainstemError: The membership cannot go on: another process has its instance id, or
                the coordinator refused the subscription.
        """
        with self._lock:
            if self._membership.wake():
                self._beat_now()
            if self._fatal is not None and not self._membership.has_plan():
                raise self._fatal
            plan = self._membership.plan()
            if plan.added:
                self._beat_now()
            return plan

    @property
    def failed(self) -> bool:
        """`take_plan` has an error to tell, now or after a plan."""
        return self._fatal is not None

    def told_lost(self) -> None:
        """The application reads nothing of what was lost any more."""
        with self._lock:
            self._membership.told_lost()

    def gave_up(self, partitions: Sequence[TopicPartition]) -> None:
        """Tells the coordinator at once."""
        with self._lock:
            self._membership.gave_up(partitions)
            self._beat_now()

    def owned(self) -> list[TopicPartition]:
        """What the member reads now."""
        with self._lock:
            return list(self._membership.owned)

    def identity(self) -> tuple[str, int]:
        """Member id and epoch, by which the application may commit; see ConsumerGroupMetadata."""
        with self._lock:
            membership = self._membership
            if membership.state is MemberState.OUT:
                return "", -1
            # Until it is told what it has lost, it reads in a membership that is over.
            return membership.member_id, membership.epoch if membership.told_joins else 0

    def leave(self) -> None:
        """Leaves; a static member keeps its place until its session ends. Errors are logged."""
        with self._lock:
            request = self._leave_request(keep_place=bool(self._settings.group_instance_id))
            self._membership.leave()
        self._send_leave(request)

    def close(self, timeout_s: float) -> None:
        """Ends the threads; waits so long for each."""
        with self._lock:
            self._closed = True
            self._wake.notify_all()
        self.commits.close(timeout_s)
        heart = self._heart
        if heart is not None:
            heart.join(timeout_s)

    def _beat_now(self) -> None:
        self._due_now = True
        self._wake.notify_all()

    def _leave_request(self, *, keep_place: bool) -> groups_pb2.LeaveRequest | None:
        membership = self._membership
        if not membership.may_be_known:
            return None
        # With epoch 0: the answer that told the newest one may be lost, or on its way.
        return groups_pb2.LeaveRequest(
            group=membership.group,
            member_id=membership.member_id,
            instance_id=membership.instance_id,
            keep_place=keep_place,
        )

    def _send_leave(self, request: groups_pb2.LeaveRequest | None) -> None:
        if request is None:
            return
        timeout_s = min(_LEAVE_S / 2, self._settings.request_timeout_ms / 1000)
        for is_last in (False, True):
            try:
                self._calls.call("Leave", request, timeout_s, _LEAVE_S)
            except MainstemError as error:
                if error.code in _PUT_OUT:
                    return  # it is no member, and a join that comes later makes it none
                if error.retriable and not is_last:
                    continue  # over a new connection, where the first was silent
                _log.warning(
                    "leaving group %s failed, its partitions wait for session.timeout.ms: %s",
                    request.group,
                    error,
                )
            return

    # ---------------------------------------------------------------------------- heartbeat thread

    def _run_heart(self) -> None:
        try:
            self._beat()
        except Exception as error:
            # Nobody beats any more: the coordinator puts this member out when its session ends.
            _log.exception("the heartbeat thread of group %s has ended", self._settings.group_id)
            with self._lock:
                self._fatal = unexpected("the heartbeat thread", error)
                self._heart = None  # another subscribe() begins again
            self._on_plan()

    def _beat(self) -> None:
        next_at = 0.0
        seen_count, seen_at = self._poll_count(), time.monotonic()
        poll_interval_s = self._settings.max_poll_interval_ms / 1000
        while True:
            with self._lock:
                while not self._closed and not self._due_now:
                    now = time.monotonic()
                    if self._poll_count() != seen_count:
                        seen_count, seen_at = self._poll_count(), now
                    until = min(next_at, seen_at + poll_interval_s)
                    if self._membership.state not in (MemberState.JOINING, MemberState.MEMBER):
                        until = now + 1.0
                        seen_at = now
                    if until <= now:
                        break
                    self._wake.wait(min(until - now, 1.0))
                if self._closed:
                    return
                self._due_now = False
                now = time.monotonic()
                if self._poll_count() != seen_count:
                    seen_count, seen_at = self._poll_count(), now
                state = self._membership.state
                if state not in (MemberState.JOINING, MemberState.MEMBER):
                    continue
                asleep = now - seen_at >= poll_interval_s
                leave = self._leave_request(keep_place=False) if asleep else None
                if asleep:
                    self._membership.fall_asleep()
            if asleep:
                _log.warning(
                    "no poll() for max.poll.interval.ms (%d ms): leaving group %s; the next poll "
                    "joins again. Poll more often, take fewer records at a time, or raise it",
                    self._settings.max_poll_interval_ms,
                    self._settings.group_id,
                )
                self._send_leave(leave)
                self._on_plan()
                continue
            next_at = time.monotonic() + self._beat_once()

    def _beat_once(self) -> float:
        """One heartbeat; returns the seconds until the next."""
        settings = self._settings
        with self._lock:
            joining = self._membership.state is MemberState.JOINING
            if not joining and self._membership.state is not MemberState.MEMBER:
                return 0.0  # it has left since it was looked at: this would make it a member again
            request = self._membership.heartbeat()
        request.client_id = settings.client_id
        request.rack = settings.client_rack
        request.assignor = settings.assignor
        request.session_timeout_ms = settings.session_timeout_ms
        request.rebalance_timeout_ms = settings.max_poll_interval_ms
        # A connection that died without a word is given up while the session still has time for
        # two more heartbeats.
        timeout_s = min(settings.request_timeout_ms, settings.session_timeout_ms / 3) / 1000
        try:
            answer: groups_pb2.HeartbeatResponse = self._calls.call("Heartbeat", request, timeout_s)
        except MainstemError as error:
            return self._beat_failed(error, request.member_id)
        with self._lock:
            plan = self._membership.answered(answer, joining)
            self._fatal = None
            self._told = False
            self._failures = 0
            if answer.heartbeat_interval_ms > 0:
                self._interval_s = (
                    min(answer.heartbeat_interval_ms, settings.heartbeat_interval_ms) / 1000
                )
        self._warn_of_missing(answer.missing_topics)
        if plan:
            self._on_plan()
        return self._interval_s

    def _warn_of_missing(self, topics: Sequence[str]) -> None:
        """Says it once for each topic, and again when it has come and gone."""
        for topic in sorted(set(topics) - self._missing):
            _log.warning(
                "group %s subscribes to topic %s, which does not exist or cannot be read now: "
                "nothing of it comes until it does. Check the name, or create it",
                self._settings.group_id,
                topic,
            )
        self._missing = set(topics)

    def _beat_failed(self, error: MainstemError, member_id: str) -> float:
        backoff_s = self._settings.backoff_s(self._failures, error)
        self._failures += 1
        with self._lock:
            if member_id != self._membership.member_id:
                return 0.0  # it has left meanwhile: the error is of who it was before
        if error.code in _PUT_OUT:
            _log.warning("group %s put this member out: %s", self._settings.group_id, error)
            with self._lock:
                if self._membership.state in (MemberState.MEMBER, MemberState.JOINING):
                    self._membership.put_out(error)
                    if isinstance(error, InstanceFencedError):
                        self._fatal = error
            self._on_plan()
            return backoff_s
        if not error.retriable:
            _log.error("group %s refused the heartbeat: %s", self._settings.group_id, error)
            with self._lock:
                self._fatal = error
            self._on_plan()
            return self._interval_s
        level = logging.DEBUG if self._told else logging.WARNING
        _log.log(level, "a heartbeat of group %s failed: %s", self._settings.group_id, error)
        self._told = True
        return backoff_s

    # ------------------------------------------------------------------------------------- offsets

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, CommittedOffset | MainstemError]:
        """What is committed; an error for what the coordinator did not tell."""
        by_topic: dict[str, list[int]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        request = groups_pb2.FetchOffsetsRequest(
            group=self._settings.group_id,
            partitions=[
                groups_pb2.TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in by_topic.items()
            ],
        )
        try:
            answer: groups_pb2.FetchOffsetsResponse = self._calls.call(
                "FetchOffsets", request, timeout_s
            )
        except MainstemError as error:
            return dict.fromkeys(partitions, error)
        found: dict[TopicPartition, CommittedOffset | MainstemError] = {}
        for one in answer.offsets:
            tp = TopicPartition(one.topic, one.partition)
            found[tp] = (
                error_from_message(one.error)
                if one.HasField("error")
                else CommittedOffset(one.offset, one.metadata, max(0, one.leader_epoch))
            )
        for tp in partitions:
            # It says -1 where nothing is committed: silence is not that.
            if tp not in found:
                found[tp] = GatewayUnavailableError(
                    f"the coordinator did not say what group {self._settings.group_id} has "
                    f"committed of {tp.topic}-{tp.partition}; ask again",
                    group=self._settings.group_id,
                    topic=tp.topic,
                    partition=tp.partition,
                )
        return found
