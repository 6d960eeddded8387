"""What a consumer does beside handing out records: rebalances, commits, seeks, closing."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final, cast

from mainstem.client.callbacks import check_returned, collect, raise_first
from mainstem.client.channels import Channels
from mainstem.client.consumer.commits import Commits
from mainstem.client.consumer.group import GroupClient
from mainstem.client.consumer.membership import AssignmentPlan
from mainstem.client.consumer.partitions import Partition, Partitions, Start
from mainstem.client.consumer.reader import Reader
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.client.consumer.worker import ConsumerWorker
from mainstem.client.gateways import Gateways
from mainstem.client.metadata import readable
from mainstem.client.positions import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ConsumerGroupMetadata,
    TopicPartition,
)
from mainstem.client.results import TopicMetadata
from mainstem.errors import (
    ConfigError,
    ConsumerClosedError,
    MainstemError,
    UnknownTopicError,
)
from mainstem.limits import MIB

_log = logging.getLogger("mainstem.client")

#: Requests name partitions only; ten thousand of them are under a megabyte.
_REQUEST_BYTES_MAX: Final = 4 * MIB

#: close() waits so long for each kind of thread; they wake at once.
_JOIN_S: Final = 5.0

#: The same at the end of a program that did not close its consumer.
_EXIT_JOIN_S: Final = 1.0

#: `Partition.retry_at` of what on_assign has not seen yet.
_NOT_YET: Final = float("inf")

_Callback = Callable[[Any, list[TopicPartition]], object] | None


class ConsumerEngine:
    """The parts of one consumer, and the application thread's duties.

    Attributes:
        polls: Counts calls, for max.poll.interval.ms.
        closed: close() was called.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self.settings = settings = ConsumerSettings.parse(config)
        self.partitions = Partitions()
        self.reader = Reader(self.partitions)
        self.polls = 0
        self.closed = False
        self._pid = os.getpid()
        self._channels = Channels(_REQUEST_BYTES_MAX, settings.client_id, settings.connection)
        gateways = Gateways(settings.bootstrap_servers, self._channels, time.monotonic)
        self._group = (
            GroupClient(settings, gateways, self._call_attention, lambda: self.polls)
            if settings.group_id
            else None
        )
        self.commits = Commits(
            settings, self.partitions, self.reader, self._group, self._call_attention
        )
        self._worker = ConsumerWorker(
            settings,
            self.partitions,
            gateways,
            None if self._group is None else self._group.committed,
            self.commits.was_reset,
            self._look_at_clock,
            lambda: self._subscribed,
        )
        _engines.add(self)
        self._subscribed = False
        self._callbacks: tuple[_Callback, _Callback, _Callback] = (None, None, None)
        #: Which subscription it is, for a callback that changes it.
        self._subscription = 0
        self._callback_depth = 0
        #: Partitions that were paused when they were lost: they come back paused.
        self._paused_before: set[TopicPartition] = set()
        #: What on_revoke has been called for and is not given up yet.
        self._going: set[TopicPartition] = set()
        self._closing = False

    # ------------------------------------------------------------------------------ on every poll

    def attend(self, consumer: Any) -> None:
        """Does what is due; raises what is to be told."""
        self._check_open()
        partitions = self.partitions
        if self.commits.due:
            self.commits.automatic()
        if not partitions.attention:
            return
        with partitions.lock:
            partitions.attention = False
        self.commits.tell()
        if self._subscribed and not self.in_callback:
            self._reconcile(consumer)
        with partitions.lock:
            error = partitions.errors.popleft() if partitions.errors else None
            # What arrived meanwhile has set it: it is only ever cleared above.
            if partitions.errors:
                partitions.attention = True
        if error is not None:
            raise error

    def _check_open(self) -> None:
        if self.closed:
            raise ConsumerClosedError("the consumer is closed; make a new one")
        if self._pid != os.getpid():
            raise ConsumerClosedError(
                f"this consumer belongs to process {self._pid}, and this is its forked child "
                f"{os.getpid()}: threads and connections do not survive a fork. Start the process "
                "with multiprocessing's 'spawn' or 'forkserver', and make a consumer in it"
            )

    @property
    def in_callback(self) -> bool:
        """One of the application's callbacks for partitions is under way."""
        return self._callback_depth > 0

    def _call_attention(self) -> None:
        with self.partitions.lock:
            self.partitions.call_attention()

    def _look_at_clock(self) -> None:
        """Makes the next poll commit when it is time: a poll itself looks at no clock."""
        if self.commits.due:
            self._call_attention()

    # -------------------------------------------------------------------------------------- groups

    def subscribe(
        self, topics: list[str], pattern: str, callbacks: tuple[_Callback, _Callback, _Callback]
    ) -> None:
        group = self._need_group("subscribe()")
        if not self._subscribed and self.partitions.assigned:
            raise RuntimeError("partitions were assigned by assign(); unassign() them first")
        self._callbacks = callbacks
        if not self._subscribed:
            self._paused_before.clear()
        self._subscribed = True
        self._subscription += 1
        self._worker.start()
        group.subscribe(topics, pattern)

    def unsubscribe(self, consumer: Any) -> None:
        if not self._subscribed:
            self.assign([])
            return
        assert self._group is not None
        self.reader.settle()
        self._subscription = given_up = self._subscription + 1
        try:
            self._give_up(consumer, list(self.partitions.assigned), self._callbacks[1])
        finally:
            # Unless the callback has subscribed to something else, or closed the consumer.
            if self._subscription == given_up and not self.closed:
                self._subscribed = False
                self._group.leave()

    def group_metadata(self) -> ConsumerGroupMetadata:
        group = self._need_group("consumer_group_metadata()")
        member_id, epoch = group.identity()
        settings = self.settings
        return ConsumerGroupMetadata(
            settings.group_id,
            member_id,
            epoch,
            settings.group_instance_id,
            self.commits.read_logs(),
        )

    def _reconcile(self, consumer: Any) -> None:
        """Lets go of what was lost, gives up what is to be given up, then takes what is new."""
        group = self._group
        assert group is not None
        on_assign, on_revoke, on_lost = self._callbacks
        plan = self._take_plan(group)
        if plan.lost:
            try:
                self._call(consumer, on_lost or on_revoke, plan.lost)
            finally:
                self._keep_paused(plan.lost)
                self._drop(plan.lost)
                group.told_lost()
                # For what is left to do, should the callback have failed.
                self._call_attention()
            plan = self._take_plan(group)
        if plan.revoked:
            self._keep_paused(plan.replaced)
            try:
                self._give_up(consumer, plan.revoked, on_revoke)
            finally:
                group.gave_up(plan.revoked)
        elif plan.added:
            self._add(consumer, plan, on_assign)

    def _take_plan(self, group: GroupClient) -> AssignmentPlan:
        try:
            plan = group.take_plan()
        finally:
            if group.failed:
                self._call_attention()
        if plan:
            self.reader.settle()
        return plan

    def _give_up(self, consumer: Any, gone: list[TopicPartition], on_revoke: _Callback) -> None:
        gone = [tp for tp in gone if tp not in self._going]
        self._hold_back(gone)
        if self.settings.auto_commit:
            self.commits.last(gone)
        self._going.update(gone)
        try:
            self._call(consumer, on_revoke, gone)
        finally:
            self._going.difference_update(gone)
            self._drop(gone)

    def _keep_paused(self, tps: Iterable[TopicPartition]) -> None:
        """Of partitions that go and may come back to this consumer, without another one in
        between, those that are paused will be again."""
        assigned = self.partitions.assigned
        self._paused_before.update(tp for tp in tps if tp in assigned and assigned[tp].paused)

    def _hold_back(self, gone: list[TopicPartition]) -> None:
        """Nothing of them is handed out any more, whatever a callback does."""
        assigned = self.partitions.assigned
        self.pause([tp for tp in gone if tp in assigned], paused=True)

    def _add(self, consumer: Any, plan: AssignmentPlan, on_assign: _Callback) -> None:
        with self.partitions.lock:
            for tp, topic_id in plan.added.items():
                one = Partition(tp, topic_id)
                # Not to be fetched before on_assign has said from where.
                one.retry_at = _NOT_YET
                one.added_later = tp in plan.added_later
                one.paused = tp in self._paused_before
                self.partitions.assigned[tp] = one
        self._paused_before.difference_update(plan.added)
        try:
            self._call(consumer, on_assign, list(plan.added))
        finally:
            with self.partitions.lock:
                for tp in plan.added:
                    if (found := self.partitions.assigned.get(tp)) is not None:
                        found.retry_at = 0.0
                self.partitions.changed()

    def _call(self, consumer: Any, callback: _Callback, found: list[TopicPartition]) -> None:
        if callback is None or not found:
            return
        self._callback_depth += 1
        try:
            returned = callback(consumer, found)
            check_returned(returned, callback, "the callback", "AsyncConsumer")
        finally:
            self._callback_depth -= 1

    def _drop(self, gone: list[TopicPartition]) -> None:
        with self.partitions.lock:
            self.partitions.drop(gone)
        self.reader.drop_void()

    # ---------------------------------------------------------------------------------- assignment

    def assign(self, wanted: list[TopicPartition]) -> None:
        if self._subscribed:
            if not self.in_callback:
                raise RuntimeError("there is a subscription; unsubscribe() first")
            for tp in wanted:
                if tp.offset != OFFSET_INVALID:
                    self.seek(tp)
            return
        self.reader.settle()
        with self.partitions.lock:
            self.partitions.drop(self.partitions.assigned.keys() - set(wanted))
            for tp in wanted:
                one = self.partitions.assigned.get(tp)
                if one is None:
                    one = Partition(TopicPartition(tp.topic, tp.partition))
                    self.partitions.assigned[one.tp] = one
                    _start_at(one, tp.offset)
                elif tp.offset != OFFSET_INVALID:
                    _start_at(one, tp.offset)
            self.partitions.purge()
        self.reader.drop_void()
        if wanted:
            self._worker.start()

    def seek(self, tp: TopicPartition) -> None:
        self.reader.settle()
        with self.partitions.lock:
            one = self.partitions.find(tp)
            retry_at = one.retry_at
            _start_at(one, tp.offset)
            if retry_at == _NOT_YET:
                one.retry_at = retry_at
            one.stored = None
            self.reader.undone.pop(one, None)
            self.partitions.purge()
        self.reader.drop_void()

    def give_back(self, failure: BaseException) -> None:
        """A call ends without handing out the records that it has taken: the next one gets them.

        An interrupt (Ctrl-C, or what another signal's handler raises) may have come between any two
        steps: a chunk is then neither in the buffer nor in the reader. All is fetched again.
        """
        self.reader.settle()
        if not isinstance(failure, MainstemError):
            with self.partitions.lock:
                self.reader.forget()
                self.partitions.forget()
        self.undo()

    def undo(self) -> None:
        """Goes back to before what the latest call has handed out."""
        self.reader.settle()
        for one, offset in list(self.reader.undone.items()):
            if self.partitions.assigned.get(one.tp) is one:
                self.seek(TopicPartition(one.topic, one.partition, offset))

    def pause(self, tps: list[TopicPartition], *, paused: bool) -> None:
        self.reader.settle()
        if not paused:
            resumed = self._paused_before.intersection(tps)
            self._paused_before -= resumed
            tps = [tp for tp in tps if tp not in resumed]
        with self.partitions.lock:
            found = [self.partitions.find(tp) for tp in tps]
            for one in found:
                if paused and not one.paused and one.start is Start.READY:
                    one.generation += 1
                    one.fetch_offset = one.position
                one.paused = paused
            self.partitions.purge()
        self.reader.drop_void()

    # ------------------------------------------------------------------------------------- queries

    def committed(self, tps: list[TopicPartition], timeout: float | None) -> list[TopicPartition]:
        """See `Consumer.committed`."""
        group = self._need_group("committed()")
        found: list[TopicPartition] = []
        answers = self._retrying(lambda left_s: group.committed(tps, left_s), timeout)
        for tp in tps:
            answer = answers[tp]
            assert not isinstance(answer, MainstemError)
            offset = OFFSET_INVALID if answer.offset < 0 else answer.offset
            found.append(TopicPartition(tp.topic, tp.partition, offset, answer.metadata))
        return found

    def list_offsets(
        self, queries: dict[TopicPartition, int | Start], timeout: float | None
    ) -> dict[TopicPartition, int]:
        """ListOffsets, again until every partition was told."""
        answers = self._retrying(lambda left_s: self._worker.list_offsets(queries, left_s), timeout)
        return cast("dict[TopicPartition, int]", answers)

    def all_topics(self, timeout_s: float) -> dict[str, TopicMetadata]:
        """Every topic, by name."""
        return readable(self._worker.metadata.fetch([], timeout_s))

    def _retrying(
        self, ask: Callable[[float], Mapping[TopicPartition, Any]], timeout: float | None
    ) -> Mapping[TopicPartition, Any]:
        """Asks until there is no retriable error, or the time is over."""
        timeout_s = self.settings.api_timeout_ms / 1000 if timeout is None else timeout
        deadline = time.monotonic() + timeout_s
        for failures in count():
            left_s = max(0.001, deadline - time.monotonic())
            failure: MainstemError | None = None
            answers: Mapping[TopicPartition, Any] = {}
            try:
                answers = ask(min(left_s, self.settings.request_timeout_ms / 1000))
            except MainstemError as error:
                failure = error
            for answer in answers.values():
                if isinstance(answer, MainstemError):
                    failure = answer
            if failure is None:
                return answers
            pause_s = self.settings.backoff_s(failures, failure)
            fatal = isinstance(failure, UnknownTopicError) or not failure.retriable
            if fatal or time.monotonic() + pause_s >= deadline:
                raise failure
            time.sleep(pause_s)
        raise AssertionError("the deadline comes")

    def _need_group(self, what: str) -> GroupClient:
        if self._group is None:
            raise ConfigError(f"{what} needs group.id, which is not set", name="group.id")
        return self._group

    # --------------------------------------------------------------------------------------- close

    def close(self, consumer: Any, *, done: bool) -> None:
        """See `Consumer.close`; `done`: what the latest poll gave counts as done."""
        if self._pid != os.getpid():
            self.closed = True
        if self.closed or self._closing:
            return  # the second: a callback of the first calls it, which goes on after that
        self._closing = True
        failures: list[BaseException] = []
        with collect(failures):
            self.reader.settle()
            tps = [tp for tp in self.partitions.assigned if tp not in self._going]
            if self.settings.auto_commit and tps:
                self.commits.last(tps, done=done)
            if self._subscribed:
                self._hold_back(tps)
                self._going.update(tps)
                self._call(consumer, self._callbacks[1], tps)
        with collect(failures):
            if self._group is not None:
                self.commits.wait_for_all()
                self.commits.tell(failures)
        self.closed = True
        with collect(failures):
            if self._group is not None and self._subscribed:
                self._group.leave()
        self._stop(_JOIN_S)
        self.reader.drop_void()
        raise_first(failures, "consumer callbacks")

    def forked(self) -> None:
        """In a forked child: makes the next call look about, and find that it is refused. What was
        fetched before the fork is for the parent."""
        self.partitions.attention = True  # without the lock, which a thread of the parent may hold

    def at_exit(self) -> None:
        """The program ends without close(): nothing is committed and the group is not told, as if
        it were killed; only the threads end."""
        if not self.closed and self._pid == os.getpid():
            self.closed = True
            self._stop(0.0)  # nobody is waited for, but every call is cancelled
            self._stop(_EXIT_JOIN_S)

    def _stop(self, timeout_s: float) -> None:
        """Ends all threads; waits so long for each kind."""
        with self.partitions.lock:
            self.partitions.closed = True
            self.partitions.assigned.clear()
            self.partitions.purge()
            self.partitions.arrived.notify_all()
        if self._group is not None:
            self._group.close(timeout_s)
        self._worker.join(min(0.5, timeout_s))
        self._channels.close()
        self._worker.join(timeout_s)


_engines: weakref.WeakSet[ConsumerEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.forked()
    _engines.clear()


def _at_exit() -> None:
    # A thread that is inside gRPC or Arrow when the interpreter ends aborts the process.
    for engine in list(_engines):
        engine.at_exit()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def _start_at(one: Partition, offset: int) -> None:
    if offset >= 0:
        one.go_to(offset)
    elif offset == OFFSET_BEGINNING:
        one.find(Start.EARLIEST)
    elif offset == OFFSET_END:
        one.find(Start.LATEST)
    elif offset in (OFFSET_INVALID, OFFSET_STORED):
        one.find(Start.COMMITTED)
    else:
        raise ValueError(f"the offset of {one.topic}-{one.partition} is {offset}")
