"""The other gateways of the warehouse, as one of them sees them, and what it may do beside them.

Each gateway renews a small object of its own, and looks at those of the others. That only keeps
gateways from taking topics from each other: who leads a topic says the topic's own log, by the
epoch and the register `mainstem/leader` that came with it. A topic is taken when its leader let go
of it, or is gone; that two never both write rests on the epoch, not on any clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log import ObjectStore, TableState
from mainstem.delta_log.store import StoreFull, time_elapsed_s, wall_clock_ms
from mainstem.delta_log.system import BeatName, GatewayBeat, gateway_key, new_incarnation
from mainstem.errors import InternalError, MainstemError, NotLeaderError
from mainstem.ingest_gateway.cluster.heartbeats import Heartbeats
from mainstem.ingest_gateway.cluster.membership import Membership
from mainstem.ingest_gateway.cluster.placement import Placement
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.supervised import SupervisedTask

log = structlog.get_logger()

T = TypeVar("T")

#: A gateway that ends does not wait longer for a store that hangs; its object then expires.
_STOP_TIMEOUT_S: Final = 2.0

#: So many times in a heartbeat interval we look at the others: from when we saw its last heartbeat
#: a gateway has the session timeout, so what passes until we look its clients wait in addition.
LOOKS_PER_INTERVAL: Final = 4

#: Asked again and again for a topic of another, we do not ask the topic's log each time.
_ELSEWHERE_S: Final = 0.1
_ELSEWHERE_MAX: Final = 10_000

#: For so long what was said of places holds: between two looks only the passing of time changes it.
_PLACES_S: Final = 0.05

#: Gateways that are remembered to be gone: a listing less for each topic that one of them led.
_GONE_MAX: Final = 100


#: The coordination of groups, which is placed, and led, as if it were a topic. None is called so.
COORDINATION: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class Load:
    """What a gateway does.

    Attributes:
        in_bytes, out_bytes: Of records, since it started.
    """

    in_bytes: int = 0
    out_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """Where topics may be.

    Attributes:
        others: The other gateways that topics may be placed on, by key.
        placement: Over these and the gateway that asks, unless it drains.
        beats, draining, at_s: What it was made of, and when.
    """

    others: Mapping[int, GatewayBeat]
    placement: Placement
    beats: Mapping[int, GatewayBeat]
    draining: bool
    at_s: float


class Cluster:
    """One gateway among the others. On the event loop; the store's calls run in a thread.

    Attributes:
        incarnation: What topics' logs name this gateway by; another one each time it starts.
        key: What it is placed by; the same each time.
        draining: Nothing is to be led here any more that another gateway can lead.

    Args:
        address: host:port that other gateways tell their clients.
        load: What the gateway does, for its heartbeat.
        on_health: Called with False when no heartbeat reached the store for the session timeout,
            other than for want of space, and with True when one can again.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: GatewayConfig,
        gateway_id: str,
        address: str,
        metrics: GatewayMetrics,
        *,
        load: Callable[[], Load] = Load,
        on_health: Callable[[bool], None] = lambda _: None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        elapsed_s: Callable[[], float] = time_elapsed_s,
    ) -> None:
        self._gateway_id = gateway_id
        self._address = address
        self._metrics = metrics
        self._rack = config.text("gateway.rack")
        self._interval_s = config.number("gateway.heartbeat.interval.ms") / 1000
        self._session_s = config.number("gateway.session.timeout.ms") / 1000
        self._placing = config.flag("placement.enabled")
        self._load = load
        self._on_health = on_health
        self._clock_ms = clock_ms
        self._elapsed_s = elapsed_s
        self.key = gateway_key(gateway_id)
        self.incarnation = new_incarnation()
        now_s = elapsed_s()
        self._membership = Membership(self.incarnation, self._interval_s, self._session_s, now_s)
        own = BeatName(self.key, self.incarnation)
        self._heartbeats = Heartbeats(store, own, self._membership, elapsed_s)
        self._renewed_at = now_s
        #: When the heartbeat was made that the store has: others count from later.
        self._beat_made_at = -float("inf")
        self._loaded_at, self._loaded = now_s, Load()
        self.draining = False
        self._held: set[str] = set()
        #: Led before and after a time in which others could have taken them.
        self._doubtful: set[str] = set()
        self._doubted_at = -float("inf")
        #: By topic, who led it when its log was looked at last, and when that was.
        self._elsewhere: dict[str, tuple[int, float]] = {}
        #: Incarnations that lead topics, as their logs say, and have no object any more.
        self._gone: frozenset[int] = frozenset()
        self._places_now = Places({}, Placement([]), {}, False, -float("inf"))
        self._healthy = True
        self._failure: MainstemError | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cluster")
        self._lock = asyncio.Lock()
        self._beating: SupervisedTask | None = None

    # -- begin and end -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Writes the gateway's first heartbeat, looks at the others, and goes on with both.

        On a full disk there is no heartbeat yet, and no topic is led, until space has been freed.

        Raises:
            StoreUnavailableError: The store failed.
        """
        try:
            await self._run(self._heartbeats.clear)
            await self.renew()
        except StoreFull as error:
            self._heartbeat_failed(error)
        self._beating = SupervisedTask("heartbeat", self._beat, self._metrics)

    async def stop(self) -> None:
        """Takes the gateway's object away, so that others can have what it led at once."""
        try:
            if self._beating is not None:
                await self._beating.stop()
                with contextlib.suppress(MainstemError, TimeoutError):
                    await asyncio.wait_for(self._run(self._heartbeats.remove), _STOP_TIMEOUT_S)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def begin_draining(self) -> None:
        """Tells the others that they should take what this gateway leads, and nothing be given to
        it. Whatever fails is tried again by the next heartbeat."""
        self.draining = True
        with contextlib.suppress(MainstemError, TimeoutError):
            await asyncio.wait_for(self.renew(), _STOP_TIMEOUT_S)

    # -- what is led here --------------------------------------------------------------------------

    async def check_heard(self, topic: str) -> None:
        """To be called before a topic is led: a gateway that nobody hears of leads nothing, and one
        that drains nothing that another one can.

        Raises:
            NotLeaderError: Another gateway led the topic a moment ago, or is to lead it.
            StoreUnavailableError: No heartbeat has reached the store for a session.
        """
        incarnation, at_s = self._elsewhere.get(topic, (0, 0.0))
        if incarnation and self._elapsed_s() - at_s < _ELSEWHERE_S:
            self._refuse(topic, incarnation)
        if self.draining and (target := self.target(topic)) is not None:
            raise _not_leader(topic, target)
        if self._elapsed_s() - self._beat_made_at >= self._session_s:
            await self.renew()

    def check_free(self, topic: str, state: TableState) -> None:
        """Raises NotLeaderError where another gateway that is there leads the topic, as its log
        says: the facts have its address. Blocks; in any thread."""
        leader = state.leader
        known = leader in (0, self.incarnation) or self._membership.knows(leader)
        if not known and leader not in self._gone:
            # It may have started since we looked: it has a heartbeat before it leads.
            self._heartbeats.look()
            if not self._membership.knows(leader):
                self._gone = frozenset((*sorted(self._gone)[-_GONE_MAX:], leader))
        self._refuse(topic, leader)

    def led(self, topic: str) -> None:
        """The topic is led here from now on."""
        self._held.add(topic)
        self._doubtful.discard(topic)

    def released(self, topic: str) -> None:
        """The topic is led here no more."""
        self._held.discard(topic)
        self._doubtful.discard(topic)

    def holds(self, topic: str) -> bool:
        """Whether the topic is led here and, as far as is known, nowhere else: a gateway that
        stalled for longer than its session may have lost it, and finds out when it commits."""
        return topic in self._held and topic not in self._doubtful

    def may_acknowledge(self, topic: str) -> bool:
        """Whether nobody else can have taken the topic, if all clocks run alike: this gateway was
        always heard of within the session timeout, or the topic was committed to since."""
        return self.holds(topic) and self._elapsed_s() - self._beat_made_at < self._session_s

    def committed(self, topic: str) -> None:
        """Notes a commit to the topic, which only its leader can make."""
        self._doubtful.discard(topic)

    def found_led(self, topic: str, looked_at_s: float) -> None:
        """Notes that a look at the topic's log, which began then, found no other leader."""
        if looked_at_s >= self._doubted_at:
            self._doubtful.discard(topic)

    # -- the others --------------------------------------------------------------------------------

    def leader(self, topic: str, state: TableState) -> str:
        """host:port of the gateway that leads the topic, or should if nobody does."""
        now_s = self._elapsed_s()
        if state.leader == self.incarnation:
            return self._address
        if state.leader and self._membership.is_alive(state.leader, now_s):
            beat = self._heartbeats.beats.get(state.leader)
            if beat is not None:
                return beat.address
        target = self.target(topic)
        return self._address if target is None else target.address

    def target(self, topic: str) -> GatewayBeat | None:
        """The other gateway that should lead the topic; None: this one, or none that is known."""
        if not self._placing and not self.draining:
            return None
        places = self.places()
        wanted = places.placement.target(topic)
        return None if wanted is None else places.others.get(wanted)

    def places(self) -> Places:
        """Where topics may be now."""
        # Asked for each topic of a listing, and 1,000 gateways take a millisecond.
        beats, now_s, known = self._heartbeats.beats, self._elapsed_s(), self._places_now
        if (
            beats is not known.beats
            or self.draining is not known.draining
            or now_s - known.at_s > _PLACES_S
        ):
            others = {
                name.key: beats[name.incarnation]
                for name in self._membership.others(now_s)
                if not name.draining and name.incarnation in beats
            }
            keys = frozenset(others) if self.draining else frozenset((*others, self.key))
            placement = known.placement if keys == known.placement.keys else Placement(keys)
            self._places_now = Places(others, placement, beats, self.draining, now_s)
        return self._places_now

    def gateways(self) -> list[GatewayBeat]:
        """The gateways that are alive, this one first."""
        beats = self._heartbeats.beats
        others = [
            beats[name.incarnation]
            for name in self._membership.others(self._elapsed_s())
            if name.incarnation in beats
        ]
        return [self._own_beat(), *sorted(others, key=lambda beat: beat.gateway_id)]

    @property
    def settled_s(self) -> float:
        """For how long no gateway has come, gone or begun to drain."""
        return self._membership.settled_s(self._elapsed_s())

    # -- heartbeats --------------------------------------------------------------------------------

    @property
    def failure(self) -> MainstemError | None:
        """Why the last heartbeat did not reach the store; None: it did. A store that fails now and
        then is not told of before the session is over, one that is full at once."""
        if self._failure is None or isinstance(self._failure, StoreFull) or not self._healthy:
            return self._failure
        return None

    async def renew(self) -> None:
        """Renews the gateway's object, and looks at the others: a heartbeat, which comes by itself.

        Raises:
            StoreUnavailableError: The store failed.
        """
        async with self._lock:
            made_at = self._elapsed_s()
            beat = self._own_beat()
            self._loaded_at, self._loaded = made_at, self._load()
            await self._run(self._heartbeats.write, beat)
            if made_at - self._beat_made_at >= self._session_s:
                self._doubt()
            self._beat_made_at = made_at
            await self._look()
        self._renewed_at = self._elapsed_s()
        self._failure = None

    async def look(self) -> None:
        """Looks at the others, without a heartbeat.

        Raises:
            StoreUnavailableError: The store failed.
        """
        async with self._lock:
            await self._look()

    async def _look(self) -> None:
        await self._run(self._heartbeats.look)
        if not self._heartbeats.own_is_there:
            # Somebody took us for gone, and with us what we lead.
            self._doubt()
        self._count()

    def _doubt(self) -> None:
        self._doubtful |= self._held
        self._doubted_at = self._elapsed_s()

    async def _watch(self) -> None:
        """Waits until the next heartbeat is due; looks at the others meanwhile."""
        for left in reversed(range(LOOKS_PER_INTERVAL)):
            await asyncio.sleep(self._interval_s / LOOKS_PER_INTERVAL)
            if left and self._membership.knows_others:
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
            self._count()
            # On a full disk reads and what frees space work: whoever asks for health may stay.
            healthy = self._elapsed_s() - self._renewed_at < self._session_s or isinstance(
                self._failure, StoreFull
            )
            if healthy != self._healthy:
                self._healthy = healthy
                self._on_health(healthy)

    def _count(self) -> None:
        others = self._membership.others(self._elapsed_s())
        draining_count = sum(name.draining for name in others) + self.draining
        self._metrics.cluster(
            live_count=len(others) + 1 - draining_count,
            draining_count=draining_count,
            topics_led=self._topics_led,
        )

    @property
    def _topics_led(self) -> int:
        return len(self._held) - (COORDINATION in self._held)

    def _heartbeat_failed(self, error: MainstemError) -> None:
        self._failure = error
        log.warning("heartbeat failed", error=error.message, errno=error.facts.get("errno"))

    def _own_beat(self) -> GatewayBeat:
        load = self._load()
        passed_s = max(self._elapsed_s() - self._loaded_at, 0.001)
        return GatewayBeat(
            self._gateway_id,
            self.incarnation,
            self._address,
            self._rack,
            self._clock_ms(),
            self.draining,
            self._topics_led,
            max(0, round((load.in_bytes - self._loaded.in_bytes) / passed_s)),
            max(0, round((load.out_bytes - self._loaded.out_bytes) / passed_s)),
        )

    # -- helpers -----------------------------------------------------------------------------------

    def _refuse(self, topic: str, leader: int) -> None:
        """Raises NotLeaderError if that gateway is another one, and there."""
        now_s = self._elapsed_s()
        if leader in (0, self.incarnation) or not self._membership.is_alive(leader, now_s):
            return
        if len(self._elsewhere) >= _ELSEWHERE_MAX:
            self._elsewhere = {}
        known = self._elsewhere.get(topic, (0, 0.0))
        if known[0] != leader or now_s - known[1] >= _ELSEWHERE_S:
            self._elsewhere[topic] = (leader, now_s)
        raise _not_leader(topic, self._heartbeats.beats.get(leader))

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)


def _not_leader(topic: str, leader: GatewayBeat | None) -> NotLeaderError:
    if leader is None:
        return NotLeaderError(
            f"a gateway that has just started leads topic {topic!r}; try again",
            topic=topic,
            leader="",
            gateway_id="",
        )
    return NotLeaderError(
        f"gateway {leader.gateway_id} leads topic {topic!r}; send to {leader.address}",
        topic=topic,
        leader=leader.address,
        gateway_id=leader.gateway_id,
    )
