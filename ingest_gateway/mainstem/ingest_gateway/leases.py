"""Which gateway leads which topic: leases in `system/cluster`, renewed by heartbeats.

A lease only keeps gateways from taking topics from each other. That two never both write rests on
the epoch in the topic's log, not on these clocks.

A gateway has lost its leases when its row did not change while another one looked at it for a
session timeout. The time in the row is for people: the gateway that wrote it may have a wrong
clock. And only time counts in which the other one looked: a machine that was suspended, or a store
that failed, says nothing of whether anybody is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log import ObjectStore
from mainstem.delta_log.store import StoreFull, time_elapsed_s, wall_clock_ms
from mainstem.delta_log.system import ClusterTable, GatewayRow
from mainstem.delta_log.table import OpenTopic
from mainstem.errors import InternalError, MainstemError, NotLeaderError
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.supervised import SupervisedTask

log = structlog.get_logger()

T = TypeVar("T")

#: A gateway that ends does not wait longer for a store that hangs; its row then expires.
_STOP_TIMEOUT_S = 2.0

#: So many heartbeat intervals between two looks count as time in which we have looked.
_LOOKED_INTERVALS = 1.5

#: So many times in a heartbeat interval we look at the others: from when we saw its last heartbeat
#: a gateway has the session timeout, so what passes until we look its clients wait in addition.
_LOOKS_PER_INTERVAL = 4


@dataclass(frozen=True, slots=True)
class _Look:
    """What the table said when we looked last.

    Attributes:
        topics: Of each row.
        unchanged_s: For how long we have looked at each row without a change.
        at: When that was.
    """

    rows: Mapping[str, GatewayRow]
    topics: Mapping[str, frozenset[str]]
    unchanged_s: Mapping[str, float]
    at: float


class Leases:
    """The leases of one gateway. On the event loop; the table's calls run in a thread of its own.

    Args:
        address: host:port that other gateways tell their clients.
        on_commit: Called after each commit to the table, for maintenance.
        on_health: Called with False when the row could not be renewed for the session timeout,
            other than for want of space, and with True when it can again.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: GatewayConfig,
        gateway_id: str,
        address: str,
        metrics: GatewayMetrics,
        *,
        on_commit: Callable[[OpenTopic], None] = lambda _: None,
        on_health: Callable[[bool], None] = lambda _: None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        elapsed_s: Callable[[], float] = time_elapsed_s,
    ) -> None:
        self._store = store
        self._gateway_id = gateway_id
        self._address = address
        self._metrics = metrics
        self._rack = config.text("gateway.rack")
        self._interval_s = config.number("gateway.heartbeat.interval.ms") / 1000
        self._session_s = config.number("gateway.session.timeout.ms") / 1000
        self._on_commit = on_commit
        self._on_health = on_health
        self._renewed_at = elapsed_s()
        #: When the row was made that the table has: others count from later.
        self._row_made_at = self._renewed_at
        #: Held before and after a time in which others could have had them, and led them.
        self._doubtful: set[str] = set()
        self._healthy = True
        self._failure: MainstemError | None = None
        self._clock_ms = clock_ms
        self._elapsed_s = elapsed_s
        self._incarnation = uuid.uuid4().hex
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cluster")
        self._lock = asyncio.Lock()
        self._held: set[str] = set()
        self._look = _Look({}, {}, {}, elapsed_s())
        self._table: ClusterTable | None = None
        self._beating: SupervisedTask | None = None

    async def start(self) -> None:
        """Writes the gateway's row, without leases, and begins to renew it.

        On a full disk there is no row yet, and no topic is led, until space has been freed.

        Raises:
            StoreUnavailableError: The store failed.
        """
        self._table = await self._run(ClusterTable, self._store)
        try:
            await self.renew()
        except StoreFull as error:
            self._heartbeat_failed(error)
        self._beating = SupervisedTask("heartbeat", self._beat, self._metrics)

    async def stop(self) -> None:
        """Takes the row away, so that others can have the topics at once."""
        try:
            if self._beating is not None:
                await self._beating.stop()
            table, self._table = self._table, None
            if table is not None:
                with contextlib.suppress(MainstemError, TimeoutError):
                    gone = self._run(table.update, lambda _: {self._gateway_id: None})
                    await asyncio.wait_for(gone, _STOP_TIMEOUT_S)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def acquire(self, topic: str) -> None:
        """Takes the topic's lease.

        Raises:
            NotLeaderError: A gateway that is alive has it; the facts have its address.
            StoreUnavailableError: The store failed.
        """
        if topic in self._held:
            return
        # Asked again and again for a topic of another, we do not ask the store each time.
        self._check_free(topic)
        async with self._lock:
            await self._write(topic)

    def release(self, topic: str) -> None:
        """Gives the topic's lease back, with the next heartbeat."""
        self._held.discard(topic)

    def holds(self, topic: str) -> bool:
        """Whether the topic's lease is ours, as of the last heartbeat."""
        return topic in self._held

    def may_acknowledge(self, topic: str) -> bool:
        """Whether nobody else can have had the topic's lease, if all clocks run alike: our row was
        always renewed within the session timeout, or the topic was committed to since."""
        return (
            topic in self._held
            and topic not in self._doubtful
            and self._elapsed_s() - self._row_made_at < self._session_s
        )

    def committed(self, topic: str) -> None:
        """Notes a commit to the topic, which only its leader can make."""
        self._doubtful.discard(topic)

    def holder(self, topic: str) -> str:
        """host:port of the gateway that has the topic's lease; ours, if nobody else has it."""
        other = self._other_holder(topic)
        return self._address if other is None else other.address

    def gateways(self) -> list[GatewayRow]:
        """The gateways that are alive, this one first."""
        look = self._look
        others = [
            row
            for row in look.rows.values()
            if row.gateway_id != self._gateway_id and self._is_alive(row.gateway_id, look)
        ]
        return [self._row(self._held), *sorted(others, key=lambda row: row.gateway_id)]

    @property
    def failure(self) -> MainstemError | None:
        """Why the last heartbeat did not reach the store; None: it did. A store that fails now and
        then is not told of before the session is over, one that is full at once."""
        if self._failure is None or isinstance(self._failure, StoreFull) or not self._healthy:
            return self._failure
        return None

    async def renew(self) -> None:
        """Renews the row, and has a look at the others: a heartbeat, which comes by itself.

        Raises:
            StoreUnavailableError: The store failed.
        """
        async with self._lock:
            await self._write()
        self._renewed_at = self._elapsed_s()
        self._failure = None

    async def look(self) -> None:
        """Has a look at the others, without a heartbeat.

        Raises:
            StoreUnavailableError: The store failed.
        """
        async with self._lock:
            assert self._table is not None
            table = self._table
            await self._run(lambda: self._note(table.read()))

    async def _watch(self) -> None:
        """Waits until the next heartbeat is due; looks at the others meanwhile."""
        for left in reversed(range(_LOOKS_PER_INTERVAL)):
            await asyncio.sleep(self._interval_s / _LOOKS_PER_INTERVAL)
            if left and self._look.rows.keys() - {self._gateway_id}:
                with contextlib.suppress(MainstemError):  # the heartbeat tells
                    await self.look()

    async def _beat(self) -> None:
        while True:
            await self._watch()
            try:
                await self.renew()
            except MainstemError as error:
                self._heartbeat_failed(error)
            except Exception as error:
                log.exception("heartbeat failed")
                self._failure = InternalError(f"the heartbeat failed: {error!r}")
            # On a full disk reads and what frees space work: whoever asks for health may stay.
            healthy = self._elapsed_s() - self._renewed_at < self._session_s or isinstance(
                self._failure, StoreFull
            )
            if healthy != self._healthy:
                self._healthy = healthy
                self._on_health(healthy)

    def _heartbeat_failed(self, error: MainstemError) -> None:
        self._failure = error
        log.warning("heartbeat failed", error=error.message, errno=error.facts.get("errno"))

    async def _write(self, wanted: str = "") -> None:
        """Renews the row, with the lease of one more topic if it is free. Under the lock."""
        assert self._table is not None
        table = self._table
        held = self._held | ({wanted} if wanted else set())
        made_at = self._row_made_at

        def make(rows: dict[str, GatewayRow]) -> Mapping[str, GatewayRow | None]:
            nonlocal made_at
            made_at = self._elapsed_s()
            self._note(rows)
            if wanted:
                self._check_free(wanted)
            # While we were not heard of, others may have taken topics of ours. They have them.
            held.difference_update(
                [topic for topic in held if self._other_holder(topic) is not None]
            )
            # Who is gone is forgotten, or the next gateway to start would wait for it once more.
            gone = [other for other in rows if not self._is_alive(other, self._look)]
            return {**dict.fromkeys(gone), self._gateway_id: self._row(held)}

        released = set(self._held)
        await self._run(table.update, make)
        if made_at - self._row_made_at >= self._session_s:
            self._doubtful |= self._held
        self._doubtful &= held
        self._row_made_at = made_at
        released -= self._held  # given back while we wrote: with the next heartbeat
        self._held = held - released
        self._on_commit(table.opened)

    def _note(self, rows: dict[str, GatewayRow]) -> None:
        """Takes the rows of all gateways. In the table's thread: replaces, does not change."""
        before, now = self._look, self._elapsed_s()
        looked_s = self._looked_s(before)
        unchanged_s = {
            gateway_id: before.unchanged_s[gateway_id] + looked_s
            if before.rows.get(gateway_id) == row
            else 0.0
            for gateway_id, row in rows.items()
        }
        topics = {gateway_id: frozenset(row.topics) for gateway_id, row in rows.items()}
        self._look = _Look(rows, topics, unchanged_s, now)

    def _check_free(self, topic: str) -> None:
        other = self._other_holder(topic)
        if other is not None:
            raise NotLeaderError(
                f"gateway {other.gateway_id} leads topic {topic!r}; send to {other.address}",
                topic=topic,
                leader=other.address,
                gateway_id=other.gateway_id,
            )

    def _other_holder(self, topic: str) -> GatewayRow | None:
        look = self._look
        for gateway_id, row in look.rows.items():
            if (
                gateway_id != self._gateway_id
                and topic in look.topics[gateway_id]
                and self._is_alive(gateway_id, look)
            ):
                return row
        return None

    def _is_alive(self, gateway_id: str, look: _Look) -> bool:
        if gateway_id == self._gateway_id:
            return True
        return look.unchanged_s[gateway_id] + self._looked_s(look) < self._session_s

    def _looked_s(self, look: _Look) -> float:
        """How much of the time since then counts."""
        return min(self._elapsed_s() - look.at, _LOOKED_INTERVALS * self._interval_s)

    def _row(self, held: set[str]) -> GatewayRow:
        return GatewayRow(
            self._gateway_id,
            self._incarnation,
            self._address,
            self._rack,
            self._clock_ms(),
            tuple(sorted(held)),
        )

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
