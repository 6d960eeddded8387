"""Offset commits over the wire: one after the other, in the order in which they were made."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count

from mainstem.client.consumer.membership import Membership, MemberState
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.client.coordinator_calls import CoordinatorCalls, offset_message, request_parts
from mainstem.client.positions import LogIdentity, TopicPartition
from mainstem.errors import GatewayUnavailableError, MainstemError, UnknownMemberError
from mainstem.limits import COMMITS_WAITING_MAX, OFFSETS_PER_COMMIT_MAX
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import groups_pb2

_log = logging.getLogger("mainstem.client")

#: Offset and metadata by partition.
Offsets = dict[TopicPartition, tuple[int, str]]


@dataclass(slots=True)
class _Commit:
    """A commit that waits.

    Attributes:
        joins: Of the membership that it is made in; None: from outside the group.
    """

    offsets: Offsets
    logs: Mapping[TopicPartition, LogIdentity]
    deadline: float
    joins: int | None
    sequence: int
    future: Future[None]

    def messages(self) -> list[groups_pb2.CommittedOffset]:
        return [
            offset_message(tp, offset, metadata, self.logs.get(tp))
            for tp, (offset, metadata) in self.offsets.items()
        ]


class GroupCommits:
    """The commits of one consumer, sent by a thread. Thread-safe.

    Args:
        membership: Changed by the heartbeats.
        wake: Has the lock that guards the membership, and is notified of its changes.
        on_stale: The member's epoch is not the newest; called with the lock.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        calls: CoordinatorCalls,
        membership: Membership,
        wake: threading.Condition,
        on_stale: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._membership = membership
        self._wake = wake
        self._on_stale = on_stale
        self._waiting: deque[_Commit] = deque()
        self._sending = False
        #: What any commit was for: as many as the consumer has read, at most.
        self._named: set[TopicPartition] = set()
        self._count = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(
        self,
        offsets: Offsets,
        logs: Mapping[TopicPartition, LogIdentity],
        timeout_s: float,
        *,
        unless_named: bool = False,
    ) -> Future[None]:
        """Queues a commit. Commits take effect in the order of these calls, one after the other.

        Args:
            logs: What is known of the logs that the offsets are of.
            unless_named: Leaves out the partitions of earlier commits. `offsets` loses them too.

        Returns:
            Fails with GatewayUnavailableError at once while COMMITS_WAITING_MAX wait already.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._wake:
            if unless_named:
                for tp in self._named & offsets.keys():
                    del offsets[tp]
                if not offsets:
                    future.set_result(None)
                    return future
            self._named |= offsets.keys()
            membership = self._membership
            if len(self._waiting) >= COMMITS_WAITING_MAX:
                future.set_exception(
                    GatewayUnavailableError(
                        f"{len(self._waiting)} offset commits wait for the coordinator, as many as "
                        "may; commit less often, or wait for each with asynchronous=False"
                    )
                )
                return future
            self._count += 1
            commit = _Commit(
                offsets,
                logs,
                time.monotonic() + timeout_s,
                None if membership.state is MemberState.OUT else membership.told_joins,
                self._count,
                future,
            )
            self._waiting.append(commit)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._send_all, name="mainstem-commit", daemon=True
                )
                self._thread.start()
            self._wake.notify_all()
        return future

    @property
    def may_commit(self) -> bool:
        """False: what the application reads is of a membership that has ended."""
        with self._wake:
            membership = self._membership
            return membership.state is MemberState.OUT or membership.told_joins > 0

    def pending(self) -> int:
        """Commits that have not ended."""
        with self._wake:
            return len(self._waiting) + self._sending

    def _send_all(self) -> None:
        while True:
            with self._wake:
                self._sending = False
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if not self._waiting:
                    return
                commit = self._waiting.popleft()
                self._sending = True
            try:
                self._send_one(commit)
            except MainstemError as error:
                commit.future.set_exception(error)
            except Exception as error:
                _log.exception("a commit failed")
                commit.future.set_exception(error)
            else:
                commit.future.set_result(None)

    def _send_one(self, commit: _Commit) -> None:
        """Sends a commit until it is taken, refused, or out of time."""
        for failures in count():
            with self._wake:
                membership = self._membership
                member_id, epoch = "", -1
                if commit.joins is not None:
                    # 0: the membership had ended when the commit was made.
                    if commit.joins != membership.told_joins or not commit.joins:
                        raise _void(membership.group)
                    member_id, epoch = membership.member_id, membership.epoch
            try:
                for part in request_parts(commit.messages(), OFFSETS_PER_COMMIT_MAX):
                    request = groups_pb2.CommitOffsetsRequest(
                        group=self._settings.group_id,
                        member_id=member_id,
                        member_epoch=epoch,
                        sequence=commit.sequence,  # the same for all: each may be sent again
                        offsets=part,
                    )
                    self._request(request, max(0.001, commit.deadline - time.monotonic()))
                return
            except MainstemError as error:
                failure = error
            with self._wake:
                # The epoch may have gone up without this member having heard of it: it is a member
                # still. A heartbeat tells; if it is none any more, that ends its membership.
                again = failure.code == "STALE_MEMBER_EPOCH" and commit.joins is not None
                newer = self._membership.epoch > epoch
                if again and not newer:
                    self._on_stale()
                closed = self._closed
            pause_s = self._settings.backoff_s(failures, failure)
            out_of_time = time.monotonic() + pause_s >= commit.deadline
            if not (again or failure.retriable) or out_of_time or closed:
                raise failure
            if not (again and newer):
                time.sleep(pause_s)

    def _request(self, request: groups_pb2.CommitOffsetsRequest, timeout_s: float) -> None:
        timeout_s = min(timeout_s, self._settings.request_timeout_ms / 1000)
        answer: groups_pb2.CommitOffsetsResponse = self._calls.call(
            "CommitOffsets", request, timeout_s
        )
        for one in answer.offsets:
            if one.HasField("error"):
                raise error_from_message(one.error)

    def close(self, timeout_s: float) -> None:
        """Ends the thread. Commits that were not sent are tried once more."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)


def _void(group: str) -> MainstemError:
    """The error for a commit of a membership that ended."""
    return UnknownMemberError(
        f"this consumer is not a member of group {group}, or not any longer, so that nothing was "
        "committed: others may read its partitions now, from the last committed offsets. poll() "
        "tells what was lost, and joins again",
        group=group,
    )
