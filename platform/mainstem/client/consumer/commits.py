"""What a consumer commits: what was handed out, what was stored, what the application names."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, cast

from mainstem.client.callbacks import check_returned, note_failure
from mainstem.client.consumer.group import GroupClient
from mainstem.client.consumer.group_commits import Offsets
from mainstem.client.consumer.partitions import Partition, Partitions
from mainstem.client.consumer.reader import Reader
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.client.positions import OFFSET_INVALID, LogIdentity, ReadLog, TopicPartition
from mainstem.errors import ConfigError, GatewayUnavailableError, MainstemError

_log = logging.getLogger("mainstem.client")

#: How long close() and a revocation wait for a commit, at most.
LAST_COMMIT_S: Final = 10.0


class Commits:
    """Commits of one consumer; its application's thread calls.

    Args:
        group: None: there is nothing to commit to.
        call_attention: Makes the next poll call `tell`.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        partitions: Partitions,
        reader: Reader,
        group: GroupClient | None,
        call_attention: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.partitions = partitions
        self.reader = reader
        self._group = group
        self._call_attention = call_attention
        self._next_at = time.monotonic() + settings.auto_commit_interval_ms / 1000
        self._ended: deque[tuple[MainstemError | None, Offsets]] = deque()
        self._telling = False

    @property
    def due(self) -> bool:
        """It is time for an automatic commit."""
        return self.settings.auto_commit and time.monotonic() >= self._next_at

    def tell(self, failures: list[BaseException] | None = None) -> None:
        """Calls on_commit for the asynchronous and the automatic commits that have ended.

        Args:
            failures: Takes what on_commit raises, and the others are told all the same. None: it is
                raised, and the others stay for the next call.
        """
        on_commit = self.settings.on_commit
        if on_commit is None or self._telling:
            return  # on_commit has called the consumer: the call around it goes on
        self._telling = True
        try:
            while self._ended:
                error, offsets = self._ended.popleft()
                try:
                    returned = on_commit(error, _listed(offsets))
                    check_returned(returned, on_commit, "on_commit", "AsyncConsumer")
                except BaseException as failure:
                    if failures is None:
                        raise
                    note_failure(failures, failure)
        finally:
            self._telling = False
            if self._ended:
                self._call_attention()

    def commit(
        self, offsets: list[TopicPartition] | None, *, asynchronous: bool
    ) -> list[TopicPartition] | None:
        """See `Consumer.commit`."""
        group = self._group
        if group is None:
            raise ConfigError("commit() needs group.id, which is not set", name="group.id")
        if offsets is None:
            wanted = self.done_offsets(list(self.partitions.assigned), done=True)
        else:
            _check_offsets(offsets)
            wanted = {TopicPartition(t.topic, t.partition): (t.offset, t.metadata) for t in offsets}
        if not wanted:
            return None if asynchronous else []
        timeout_s = self.settings.api_timeout_ms / 1000
        future = group.commits.add(wanted, self._logs(wanted), timeout_s)
        if asynchronous:
            future.add_done_callback(partial(self._commit_ended, wanted))
            return None
        _wait(future, timeout_s)
        self._note_committed(wanted)
        return _listed(wanted)

    def store(self, offsets: list[TopicPartition]) -> None:
        """See `Consumer.store_offsets`."""
        if self.settings.auto_offset_store:
            raise ConfigError(
                "store_offsets() needs enable.auto.offset.store=false, or what poll() hands out "
                "would be stored as well",
                name="enable.auto.offset.store",
            )
        _check_offsets(offsets)
        with self.partitions.lock:
            for one, tp in [(self.partitions.find(tp), tp) for tp in offsets]:
                one.stored = tp.offset
                one.stored_metadata = tp.metadata

    def done_offsets(self, tps: list[TopicPartition], *, done: bool) -> Offsets:
        """What may be committed of these; `done`: the latest records too."""
        found: Offsets = {}
        last = self.reader.last
        for tp in tps:
            one = self.partitions.assigned.get(tp)
            if one is None:
                continue
            offset, metadata = one.position, ""
            if not self.settings.auto_offset_store:
                offset = OFFSET_INVALID if one.stored is None else one.stored
                metadata = one.stored_metadata
            elif not done:
                offset = min(offset, self.reader.undone.get(one, offset))
                if last is not None and (last.topic, last.partition) == (tp.topic, tp.partition):
                    offset = min(offset, last.offset)
            if offset >= 0:
                found[tp] = (offset, metadata)
        return found

    def automatic(self) -> None:
        """Commits what was handed out before this poll; `begin` has settled the positions."""
        assert self._group is not None
        self._next_at = time.monotonic() + self.settings.auto_commit_interval_ms / 1000
        if self._group.commits.pending():
            return  # a slow coordinator: the next one says it all
        self._commit_new(self.done_offsets(list(self.partitions.assigned), done=True))

    def _commit_new(self, offsets: Offsets) -> Future[None] | None:
        assigned = self.partitions.assigned
        new = {
            tp: value
            for tp, value in offsets.items()
            if tp in assigned and assigned[tp].committed != value[0]
        }
        assert self._group is not None
        if not new or not self._group.commits.may_commit:
            return None  # what was lost is told soon, and was logged
        future = self._group.commits.add(new, self._logs(new), self.settings.api_timeout_ms / 1000)
        future.add_done_callback(partial(self._auto_commit_ended, new))
        return future

    def last(self, tps: list[TopicPartition], *, done: bool = True) -> None:
        """The last commit of partitions that go; a failure means that they are read again."""
        future = self._commit_new(self.done_offsets(tps, done=done))
        try:
            if future is not None:
                _wait(future, min(LAST_COMMIT_S, self.settings.api_timeout_ms / 1000))
        except MainstemError as error:
            _log.warning("the last commit failed, so records will be read again: %s", error)

    def _auto_commit_ended(self, offsets: Offsets, future: Future[None]) -> None:
        error = future.exception()
        if error is None:
            self._note_committed(offsets)
        else:
            _log.warning("an automatic commit failed; the next one makes up for it: %s", error)
        self._to_be_told(cast("MainstemError | None", error), offsets)

    def _commit_ended(self, offsets: Offsets, future: Future[None]) -> None:
        error = future.exception()
        if error is None:
            self._note_committed(offsets)
        elif self.settings.on_commit is None:
            _log.error("a commit failed: %s", error)
        self._to_be_told(cast("MainstemError | None", error), offsets)

    def _to_be_told(self, error: MainstemError | None, offsets: Offsets) -> None:
        if self.settings.on_commit is not None:
            self._ended.append((error, offsets))
            self._call_attention()

    def _note_committed(self, offsets: Offsets) -> None:
        with self.partitions.lock:
            for tp, (offset, _) in offsets.items():
                if (one := self.partitions.assigned.get(tp)) is not None:
                    one.committed = offset

    def was_reset(self, reset: dict[Partition, int]) -> None:
        """auto.offset.reset set these; commits that, so that a restart does not choose again.

        Called by a thread of the client, perhaps late: what the application has committed stays.
        """
        group = self._group
        if group is None or not self.settings.auto_commit or not group.commits.may_commit:
            return
        with self.partitions.lock:
            offsets: Offsets = {
                one.tp: (offset, "")
                for one, offset in reset.items()
                if self.partitions.assigned.get(one.tp) is one
            }
        if not offsets:
            return
        logs, timeout_s = self._logs(offsets), self.settings.api_timeout_ms / 1000
        future = group.commits.add(offsets, logs, timeout_s, unless_named=True)
        future.add_done_callback(partial(self._auto_commit_ended, offsets))

    def _logs(self, offsets: Offsets) -> dict[TopicPartition, LogIdentity]:
        logs = self.read_logs()
        return {tp: logs[tp].identity_at(offsets[tp][0]) for tp in offsets if tp in logs}

    def read_logs(self) -> dict[TopicPartition, ReadLog]:
        """The logs that are read now."""
        return {
            tp: ReadLog(one.topic_id, one.leader_epoch, one.position)
            for tp, one in list(self.partitions.assigned.items())
        }

    def wait_for_all(self) -> None:
        deadline = time.monotonic() + LAST_COMMIT_S
        while (
            self._group is not None
            and self._group.commits.pending()
            and time.monotonic() < deadline
        ):
            time.sleep(0.005)


def _check_offsets(offsets: list[TopicPartition]) -> None:
    for tp in offsets:
        if tp.offset < 0:
            raise ValueError(
                f"the offset of {tp.topic}-{tp.partition} is {tp.offset}; it must be 0 or more"
            )


def _wait(future: Future[None], timeout_s: float) -> None:
    try:
        future.result(timeout_s + 1.0)
    except TimeoutError:
        raise GatewayUnavailableError(
            f"a commit was not acknowledged within {timeout_s:.0f} s"
        ) from None


def _listed(offsets: Offsets) -> list[TopicPartition]:
    return [
        TopicPartition(tp.topic, tp.partition, offset, metadata)
        for tp, (offset, metadata) in offsets.items()
    ]
