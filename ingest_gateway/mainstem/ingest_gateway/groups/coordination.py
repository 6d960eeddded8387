"""The coordinator of consumer groups with its I/O: its table, the topics, and time.

One gateway coordinates all groups: the one that leads `system/consumer_offsets`, taken when
somebody first asks. A gateway that lost that table to another cannot store an offset, whatever it
believes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import structlog

from mainstem.config import GatewayConfig
from mainstem.consumers import Beat, Coordinator, CoordinatorRules, Heartbeat, TopicInfo
from mainstem.consumers.offset_rows import GroupRow, Row, StoredOffset, expired, offset_row
from mainstem.consumers.offsets_table import QUEUE_BYTES, OffsetsTable
from mainstem.delta_log import ByteBudget, ObjectStore, OpenTopic
from mainstem.delta_log.system import GatewayBeat
from mainstem.errors import (
    GatewayUnavailableError,
    MainstemError,
    NotLeaderError,
    ShuttingDownError,
)
from mainstem.ingest_gateway.cluster import COORDINATION, Cluster
from mainstem.ingest_gateway.groups.group_log import GroupLog
from mainstem.ingest_gateway.groups.group_topics import GroupTopics
from mainstem.ingest_gateway.groups.learning import learn
from mainstem.ingest_gateway.groups.off_loop import OffLoop
from mainstem.ingest_gateway.groups.running import Running
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.supervised import STOP_TIMEOUT_S, SupervisedTask
from mainstem.ingest_gateway.topics import GatewayTopics, Maintainer
from mainstem.limits import OFFSETS_PER_COMMIT_MAX

log = structlog.get_logger()

#: Epochs that may be answered without another write of the group's row.
EPOCH_STEP = 1_000

#: All who ask within this after a start that failed get its error: a start reads the whole table.
RESTART_AFTER_S = 1.0

#: For how long a group without members that has committed nothing is remembered: a member that was
#: put out comes back within that, and finds which partitions came meanwhile.
UNUSED_GROUP_KEPT_MS = 600_000

#: How often sessions are looked at when nobody asks anything.
TICK_S = 0.5

#: Topics that a refresh looks up in the store, in turn: each takes about a millisecond of what
#: appends and fetches need.
LOOKED_UP_MAX = 100

#: Heartbeats of all members together: at most about 100 a second while all is settled, and 500
#: while partitions move. So small groups learn within half a second that they have to give way.
SETTLED_MS_MIN = 500
SETTLED_MS_PER_MEMBER = 10
MOVING_MS_MIN = 100
MOVING_MS_PER_MEMBER = 2


class GroupCoordination:
    """Runs the coordinator. On the event loop; calls of the store run in `pool`.

    Attributes:
        topics: What there is of the topics that groups read.
        log: Of what happens in groups.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        cluster: Cluster,
        maintainer: Maintainer,
        store: ObjectStore,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        pool: Executor,
    ) -> None:
        self._topics = topics
        self.topics = GroupTopics(topics)
        self._cluster = cluster
        self._maintainer = maintainer
        self._store = store
        self._metrics = metrics
        self._pool = pool
        self._heartbeat_ms = config.number("group.consumer.heartbeat.interval.ms")
        self._refresh_s = config.number("group.metadata.refresh.interval.ms") / 1000
        self._retention_ms = config.number("offsets.retention.minutes") * 60_000
        self._retention_check_s = config.number("offsets.retention.check.interval.ms") / 1000
        self._rules = CoordinatorRules(
            session_timeout_ms=config.number("group.consumer.session.timeout.ms"),
            members_max=config.number("group.consumer.max.size"),
            groups_max=config.number("group.max.count"),
        )
        self._off_loop = OffLoop(metrics)
        self.log = GroupLog()
        self._running: Running | None = None
        self._starting: asyncio.Task[Running] | None = None
        self._minder: SupervisedTask | None = None
        #: Closes the table of a term that is over.
        self._leaving: SupervisedTask | None = None
        self._closing = False
        self._failure: MainstemError | None = None
        self._failed_at = 0.0
        self._begin_also: Callable[[Running], Awaitable[None]] = _nothing
        self._end_also: Callable[[float], Awaitable[None]] = _nothing
        self._is_busy: Callable[[], bool] = lambda: False

    def accompany(
        self,
        begin: Callable[[Running], Awaitable[None]],
        end: Callable[[float], Awaitable[None]],
        is_busy: Callable[[], bool],
    ) -> None:
        """Has something else begin and end with the coordination.

        Args:
            begin: Before anybody is answered. What it raises ends the coordination again.
            end: Given the seconds in which to commit what was accepted; after an end, or a begin
                that failed, it may be called again.
            is_busy: Whether it has begun something that a move would end.
        """
        self._begin_also, self._end_also, self._is_busy = begin, end, is_busy

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that would not survive a move."""
        return self._is_busy()

    @property
    def running(self) -> Running | None:
        """For the metrics: None while another gateway, or none, coordinates."""
        return self._running

    def now(self) -> Running | None:
        """What runs, without waiting; None: call `started`."""
        running = self._running
        if running is None or running.table.failure is not None or self._closing:
            return None
        return running if self._cluster.holds(COORDINATION) else None

    async def started(self) -> Running:
        """Coordinates, having begun to if need be.

        Raises:
            NotLeaderError: Another gateway does; its address is in the facts.
            ShuttingDownError: The gateway is draining.
            StoreUnavailableError, LogDamagedError: The offsets table cannot be led.
        """
        running = self.now()
        if running is not None:
            return running
        if self._closing:
            raise ShuttingDownError(
                "the gateway is shutting down; try again after its restart", retry_delay_ms=500
            )
        if self._failure is not None and time.monotonic() - self._failed_at < RESTART_AFTER_S:
            # Raised again and again, it must not keep the frames of all who saw it.
            raise self._failure.with_traceback(None)
        if await self._still_led():
            running = self.now()
            if running is not None:
                return running
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(self._start_ended)
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if not starting.cancelled():
                raise
            raise GatewayUnavailableError(
                "this gateway began to coordinate the groups and was interrupted; ask again",
                retry_delay_ms=500,
            ) from None

    async def _still_led(self) -> bool:
        """After a stall, in which another gateway may have taken the table: asks its log."""
        running = self._running
        if running is None or self._starting is not None or running.table.failure is not None:
            return False
        try:
            await running.table.catch_up()
        except MainstemError:
            return False
        self._cluster.committed(COORDINATION)
        return True

    async def hand_over(self, target: GatewayBeat, timeout_s: float) -> bool:
        """Leaves the coordination to another gateway; what was accepted is committed.

        Returns:
            Whether the offsets table's log names that one now.
        """
        running = self.now()
        if running is None or self._starting is not None:
            return False
        moving = asyncio.get_running_loop().create_task(self._move(running, target, timeout_s))
        self._starting = moving
        moving.add_done_callback(self._start_ended)
        await asyncio.wait({moving})
        return not moving.cancelled() and isinstance(moving.exception(), NotLeaderError)

    async def _move(self, running: Running, target: GatewayBeat, timeout_s: float) -> Running:
        """In place of a start: whoever waits for that is sent on."""
        self._running = None
        await self._stop(0.0)
        await self._end_also(timeout_s)
        self._cluster.released(COORDINATION)
        if await running.table.hand_over(timeout_s, target.incarnation):
            log.info("groups handed over", gateway_id=target.gateway_id)
            raise _coordinated_elsewhere(target.address, target.gateway_id)
        raise GatewayUnavailableError("the coordination of groups moves; ask again")

    async def close(self, timeout_s: float) -> bool:
        """Commits what was accepted, and coordinates no more; returns whether it was in time."""
        self._closing = True
        ends_at = time.monotonic() + timeout_s
        if self._starting is not None:
            await asyncio.wait({self._starting}, timeout=timeout_s)
        await self._stop(max(ends_at - time.monotonic(), 0.0))
        return time.monotonic() <= ends_at or timeout_s == 0.0

    # -- heartbeats --------------------------------------------------------------------------------

    async def heartbeat(self, running: Running, beat: Heartbeat) -> tuple[Beat, int]:
        """The answer to a heartbeat, and after how many ms the next one is due."""
        coordinator = running.coordinator
        known, missing = coordinator.known_topics, running.missing
        # A difference of sets would look at all topics that anybody has.
        new = {topic for topic in beat.topics if topic not in known and topic not in missing}
        if beat.topic_pattern and not running.all_topics_known:
            new |= set(await self._topics.names()) - coordinator.known_topics.keys()
            running.all_topics_known = True
        if new:
            await learn(running, self.topics, new, self._metrics)
        answer = coordinator.heartbeat(beat)
        self.note_changes(running)
        interval_ms = self._interval_ms(running, beat, answer)
        await self._keep(running, beat.group, answer.member_epoch, interval_ms)
        return answer, interval_ms

    def note_changes(self, running: Running) -> None:
        """Writes down which groups have got their first member, lost their last, or are no more;
        logs what has happened to members."""
        self.log.write(running.coordinator.events.take())
        for name in running.coordinator.take_changed():
            group = running.coordinator.groups.get(name)
            epoch = 0 if group is None else group.epoch
            is_empty = group is None or not group.members
            # A full queue takes the next change; until then the group counts as it did before.
            with contextlib.suppress(MainstemError):
                self._write_group(
                    running, name, epoch, running.table.now_ms() if is_empty else None
                )

        for name in running.coordinator.take_dropped():
            log.info("group dropped: it had neither members nor offsets", group=name)
            if running.rows.pop(name, None) is not None:
                with contextlib.suppress(MainstemError):
                    running.table.write([Row(name, None, None)])

    async def _keep(self, running: Running, name: str, epoch: int, interval_ms: int) -> None:
        """Makes durable what a coordinator after this one has to know of an answer."""
        row = running.rows.get(name) or GroupRow()
        if epoch > row.epoch_floor or interval_ms > row.heartbeat_ms:
            self._write_group(running, name, epoch, None, interval_ms)
        durable = running.table.group(name)
        if durable is None or epoch > durable.epoch_floor or interval_ms > durable.heartbeat_ms:
            await running.table.flushed(name)

    def _write_group(
        self,
        running: Running,
        name: str,
        epoch: int,
        empty_since_ms: int | None,
        interval_ms: int = 0,
    ) -> None:
        row = running.rows.get(name) or GroupRow()
        floor = row.epoch_floor
        if epoch > floor:
            floor = epoch + EPOCH_STEP
        heartbeat_ms = max(row.heartbeat_ms, SETTLED_MS_MIN)
        while heartbeat_ms < interval_ms:
            heartbeat_ms *= 2  # few writes, however a group grows
        row = GroupRow(floor, empty_since_ms, heartbeat_ms)
        running.table.write([Row(name, None, row)])
        running.rows[name] = row

    def _interval_ms(self, running: Running, beat: Heartbeat, answer: Beat) -> int:
        count = running.members_count
        wanted = (
            max(SETTLED_MS_MIN, SETTLED_MS_PER_MEMBER * count)
            if answer.settled
            else max(MOVING_MS_MIN, MOVING_MS_PER_MEMBER * count)
        )
        member = running.coordinator.groups[beat.group].members.get(answer.member_id)
        session_ms = self._rules.session_timeout_ms if member is None else member.session_timeout_ms
        return max(1, min(wanted, self._heartbeat_ms, session_ms // 3))

    # -- topics ------------------------------------------------------------------------------------

    async def refresh(self, running: Running) -> None:
        """Looks for partitions that were added, and topics that came, went or are new ones.

        What was done to topics that are led here is known without the store; whether somebody else
        has done something is looked up of `LOOKED_UP_MAX` topics each time.
        """
        coordinator = running.coordinator
        wanted = coordinator.topic_names()
        if coordinator.has_patterns:
            wanted |= set(await self._topics.names())
        else:
            running.all_topics_known = False
        unwanted = coordinator.known_topics.keys() - wanted
        coordinator.set_topics(self.topics.led(wanted))
        await learn(running, self.topics, _to_look_up(running, wanted), self._metrics)
        gone = unwanted - coordinator.topic_names()  # nobody asked for it meanwhile
        if not coordinator.has_patterns or running.all_topics_known:
            coordinator.set_topics(dict.fromkeys(gone))
        running.missing &= wanted

    # -- time --------------------------------------------------------------------------------------

    async def _mind(self, running: Running) -> None:
        refresh_at = retention_at = 0.0
        retention_at = time.monotonic() + self._retention_check_s
        while True:
            await asyncio.sleep(min(TICK_S, self._refresh_s))
            try:
                if self.now() is not running and not (
                    await self._still_led() and self.now() is running
                ):
                    # Another gateway leads the table: nothing that is answered here counts.
                    self._abandon(running)
                    return
                running.coordinator.tick()
                running.members_count = running.coordinator.member_count
                self.note_changes(running)
                self.log.tell_rest()
                if running.members_count and time.monotonic() >= refresh_at:
                    await self.refresh(running)
                    refresh_at = time.monotonic() + self._refresh_s
                if time.monotonic() >= retention_at:
                    retention_at = time.monotonic() + self._retention_check_s
                    await self.expire(running)
            except MainstemError as error:
                log.warning("groups are not looked after", error=error.message)
            except Exception:
                log.exception("groups are not looked after")

    async def expire(self, running: Running) -> None:
        """Forgets offsets whose time is over, and those of topics that are no more."""
        topics: dict[str, TopicInfo | None] = {}
        for name in sorted(running.table.groups):
            named = {one.topic for one in running.table.offsets(name).values()}
            topics |= await self.topics.topics(named - topics.keys())
            await running.table.flushed(name)
            group = running.coordinator.groups.get(name)
            has_members = group is not None and bool(group.members)
            row = running.table.group(name)
            if row is not None and row.empty_since_ms is None and not has_members:
                # That it became empty could not be written when it did.
                self._write_group(running, name, 0, running.table.now_ms())
            # From here to the write nothing waits, so no member and no commit comes between.
            kept = dict(running.table.offsets(name))
            now_ms = running.table.now_ms()
            gone = expired(
                row,
                kept.values(),
                has_members=has_members,
                now_ms=now_ms,
                retention_ms=self._retention_ms,
            )
            known = set(gone)
            gone += [one for one in kept.values() if _is_orphan(one, topics) and one not in known]
            gone = gone[:OFFSETS_PER_COMMIT_MAX]  # the others next time
            rows = [Row(name, offset_row(name, one).key, None) for one in gone]
            empty_since = row.empty_since_ms if row is not None else None
            kept_ms = self._retention_ms if kept else min(self._retention_ms, UNUSED_GROUP_KEPT_MS)
            if (
                len(gone) == len(kept)
                and not has_members
                and empty_since is not None
                and empty_since + kept_ms <= now_ms
            ):
                rows.append(Row(name, None, None))
                running.coordinator.forget(name)
                running.rows.pop(name, None)
            if rows:
                running.table.write(rows)
                log.info("offsets forgotten", group=name, count=len(gone))

    # -- begin and end -----------------------------------------------------------------------------

    async def _start(self) -> Running:
        await self._stop(0.0)
        self._cluster.released(COORDINATION)
        try:
            await self._cluster.check_heard(COORDINATION)
            table = await OffsetsTable.lead(
                self._store,
                self._pool,
                budget=ByteBudget(QUEUE_BYTES),
                kept_ms=self._retention_ms,
                metrics=self._metrics,
                on_commit=self._committed,
                on_failure=self._lost,
                leader=self._cluster.incarnation,
                may_claim=partial(self._cluster.check_free, COORDINATION),
            )
        except NotLeaderError as error:
            facts = error.facts
            raise _coordinated_elsewhere(facts["leader"], facts["gateway_id"]) from None
        self._cluster.led(COORDINATION)
        coordinator = Coordinator(
            self._rules,
            lambda: time.monotonic_ns() // 1_000_000,
            has_offsets=lambda name: bool(table.offsets(name)),
            compute=self._off_loop.compute,
        )
        running = Running(coordinator, table)
        now_ms = table.now_ms()
        alive: list[Row] = []
        for name in table.groups:
            row = table.group(name) or GroupRow()
            running.rows[name] = row
            if row.empty_since_ms is not None:
                coordinator.restore(name, row.epoch_floor)
                continue
            # It had members when the last coordinator ended. Those that live come within the time
            # that they were told, and give up what they had. If none does, it is empty from now.
            coordinator.restore(name, row.epoch_floor, hold_ms=row.heartbeat_ms)
            running.rows[name] = replace(row, empty_since_ms=now_ms)
            alive.append(Row(name, None, running.rows[name]))
        if alive:
            with contextlib.suppress(MainstemError):
                table.write(alive)
        try:
            await self._begin_also(running)
        except BaseException:
            self._cluster.released(COORDINATION)
            await table.close(0.0)
            raise
        self._running = running
        self._minder = SupervisedTask(
            "look after groups", lambda: self._mind(running), self._metrics, returns=True
        )
        log.info("groups coordinated", group_count=len(table.groups))
        return running

    def _start_ended(self, task: asyncio.Task[Running]) -> None:
        self._starting = None
        failure = None if task.cancelled() else task.exception()
        if task.cancelled():
            self._metrics.background_task_ends.labels("coordinate groups").inc()
            log.error("groups are not coordinated: the start was cancelled; the next call tries it")
        # Who another gateway is costs nothing to say again.
        is_cheap = isinstance(failure, NotLeaderError)
        self._failure = failure if isinstance(failure, MainstemError) and not is_cheap else None
        self._failed_at = time.monotonic()

    def _committed(self, opened: OpenTopic) -> None:
        self._cluster.committed(COORDINATION)
        self._maintainer.committed_own(opened)

    def _lost(self, error: MainstemError) -> None:
        log.error("the offsets table is lost", code=error.code, error=error.message)
        self._cluster.released(COORDINATION)

    def _abandon(self, running: Running) -> None:
        if self._running is running and self._starting is None and not self._closing:
            log.warning("groups are coordinated no more")
            self._running = None
            self._leaving = SupervisedTask(
                "close offsets table",
                lambda: self._close_tables(running, 0.0),
                self._metrics,
                returns=True,
            )

    async def _stop(self, timeout_s: float) -> None:
        await self._off_loop.close()
        running, self._running = self._running, None
        minder, self._minder = self._minder, None
        if minder is not None:
            await minder.stop()
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            await leaving.finish(STOP_TIMEOUT_S)
        if running is not None:
            await self._close_tables(running, timeout_s)

    async def _close_tables(self, running: Running, timeout_s: float) -> None:
        await self._end_also(timeout_s)
        await running.table.close(timeout_s)


def _to_look_up(running: Running, wanted: set[str]) -> set[str]:
    """Those that nothing is known of, and the next ones of the others."""
    known, missing, rest = running.coordinator.known_topics, running.missing, running.not_looked_up
    if not rest:
        rest += sorted(wanted)
    some = rest[-LOOKED_UP_MAX:]
    del rest[-LOOKED_UP_MAX:]
    new = {name for name in wanted if name not in known and name not in missing}
    return new | wanted.intersection(some)


async def _nothing(*_: object) -> None:
    """Nothing else begins or ends with the coordination."""


def _coordinated_elsewhere(address: str, gateway_id: str) -> NotLeaderError:
    return NotLeaderError(
        f"another gateway coordinates the groups; send to {address}",
        topic=COORDINATION,
        leader=address,
        gateway_id=gateway_id,
    )


def _is_orphan(offset: StoredOffset, topics: dict[str, TopicInfo | None]) -> bool:
    if offset.topic not in topics:
        return False  # it came while others were looked at
    info = topics[offset.topic]
    return info is None or info.topic_id != offset.topic_id
