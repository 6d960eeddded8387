"""Slows down who uses more than their quotas, and refuses what would have to wait for too long."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry

from mainstem.delta_log.store import time_elapsed_s
from mainstem.errors import QuotaExceededError
from mainstem.ingest_gateway.quotas.bucket import DEBT_S_MAX, Bucket
from mainstem.security import (
    GATEWAY,
    Limit,
    Principal,
    QuotaName,
    QuotaRows,
    limits_of,
)

#: A call waits no longer; one that had to is refused. A stream waits as long as it has to.
WAIT_S_MAX: Final = 1.0

#: Nobody waits for longer to make or delete partitions: whoever makes a thousand of them at once is
#: refused until their rate has made up for it.
_MUTATION_DEBT_S_MAX: Final = 3_600.0

#: Between two looks of a stream that waits: its quota may be another one meanwhile.
_LOOK_EVERY_S: Final = 0.25

#: Principals with client.ids, and those that share a rate, that are remembered. Those that were
#: quiet for longest are forgotten: their buckets are full.
_REMEMBERED_MAX: Final = 10_000

_RETRY_MS_MIN: Final = 100

_Who = tuple[str, str]


class Charge(Enum):
    """What a call uses beside being a request."""

    #: Bytes of the request.
    PRODUCE = QuotaName.PRODUCER_BYTE_RATE
    #: Bytes of the answer.
    FETCH = QuotaName.CONSUMER_BYTE_RATE
    #: Nothing.
    REQUEST = None


class Throttle:
    """What holds for one principal with a client.id. See `Quotas.throttle`."""

    __slots__ = ("_limits", "_quotas")

    def __init__(self, quotas: Quotas, limits: Mapping[QuotaName, Limit]) -> None:
        self._quotas = quotas
        self._limits = limits

    async def admit(self, charge: Charge, size_bytes: int) -> None:
        """Waits until a request may be served, a second at most, and counts it.

        Raises:
            QuotaExceededError: That would be longer, or too many wait already. Nothing is counted.
        """
        name, wait_s = self._wait((QuotaName.REQUEST_RATE, charge.value))
        self._check_wait(name, wait_s)
        self.use(charge, size_bytes if charge is Charge.PRODUCE else 0)
        if name is not None:
            await self._quotas.wait(wait_s)

    def mutate(self, partition_count: int) -> None:
        """Counts partitions that are made or deleted.

        Raises:
            QuotaExceededError: They would have to wait. Nothing is counted.
        """
        name, wait_s = self._wait((QuotaName.CONTROLLER_MUTATION_RATE,))
        if name is not None:
            self._quotas.throttled(name, self._limits[name])
            raise _exceeded(name, self._limits[name], wait_s)
        self._use(QuotaName.CONTROLLER_MUTATION_RATE, partition_count)

    @property
    def limits_mutations(self) -> bool:
        """Whether it counts how many partitions the caller makes and deletes."""
        return QuotaName.CONTROLLER_MUTATION_RATE in self._limits

    async def admit_mutation(self, partition_count: int) -> None:
        """Waits until partitions may be made or deleted, a second at most, and counts them.

        Raises:
            QuotaExceededError: As of `admit`.
        """
        name, wait_s = self._wait((QuotaName.CONTROLLER_MUTATION_RATE,))
        self._check_wait(name, wait_s)
        self._use(QuotaName.CONTROLLER_MUTATION_RATE, partition_count)
        if name is not None:
            await self._quotas.wait(wait_s)

    def wait_s(self, charge: Charge, *, again: bool) -> float:
        """How long a stream has to wait before it reads on.

        Args:
            again: It waits already, and is counted.
        """
        name, wait_s = self._wait((QuotaName.REQUEST_RATE, charge.value))
        if name is not None and not again:
            self._quotas.throttled(name, self._limits[name])
        return wait_s

    def use(self, charge: Charge, size_bytes: int) -> None:
        """Counts a request."""
        self._use(QuotaName.REQUEST_RATE, 1)
        if charge.value is not None:
            self._use(charge.value, size_bytes)

    def answered(self, charge: Charge, size_bytes: int) -> None:
        """Counts the answer: the next request waits for it."""
        if charge is Charge.FETCH:
            self._use(QuotaName.CONSUMER_BYTE_RATE, size_bytes)

    @contextmanager
    def connected(self, peer: str) -> Iterator[None]:
        """Counts a call of a connection, for the block.

        Raises:
            QuotaExceededError: As many others as may be have calls under way.
        """
        limit = self._limits.get(QuotaName.CONNECTIONS)
        if limit is None:
            yield
            return
        open_calls = self._quotas.open_calls.setdefault(limit.who, {})
        if peer not in open_calls and len(open_calls) >= limit.value:
            self._quotas.throttled(QuotaName.CONNECTIONS, limit)
            raise _exceeded(QuotaName.CONNECTIONS, limit, WAIT_S_MAX)
        open_calls[peer] = open_calls.get(peer, 0) + 1
        try:
            yield
        finally:
            open_calls[peer] -= 1
            if not open_calls[peer]:
                del open_calls[peer]
            if not open_calls:
                self._quotas.open_calls.pop(limit.who, None)

    @contextmanager
    def taking(
        self, quota: QuotaName, name: str, is_there: Callable[[str], bool]
    ) -> Iterator[None]:
        """Counts a transaction or a group that the caller begins or joins in the block.

        Args:
            quota: OPEN_TRANSACTIONS or GROUPS.
            name: The transactional id, or the group.
            is_there: Whether what has that name is not over.

        Raises:
            QuotaExceededError: As many others as may be are not over.
        """
        limit = self._limits.get(quota)
        if limit is None:
            yield
            return
        taken = self._quotas.taken.setdefault((quota, limit.who), Counter())
        if name not in taken and len(taken) >= min(limit.value, _REMEMBERED_MAX):
            for other in [one for one, now in taken.items() if not now and not is_there(one)]:
                del taken[other]
            if len(taken) >= limit.value:
                self._quotas.throttled(quota, limit)
                raise _exceeded(quota, limit, WAIT_S_MAX)
        taken[name] += 1
        self._quotas.keep_taken()
        try:
            yield
        finally:
            taken[name] -= 1

    def _check_wait(self, name: QuotaName | None, wait_s: float) -> None:
        """Counts who has to wait for a rate, and refuses who may not."""
        if name is not None:
            limit = self._limits[name]
            self._quotas.throttled(name, limit)
            if wait_s > WAIT_S_MAX or self._quotas.too_many_wait:
                raise _exceeded(name, limit, wait_s)

    def _wait(self, names: Iterable[QuotaName | None]) -> tuple[QuotaName | None, float]:
        """The rate that has to be waited for longest; None: there is none."""
        found: tuple[QuotaName | None, float] = (None, 0.0)
        for name in names:
            limit = None if name is None else self._limits.get(name)
            if name is not None and limit is not None:
                wait_s = self._quotas.bucket(name, limit).wait_s(self._quotas.now_s())
                if wait_s > found[1]:
                    found = (name, wait_s)
        return found

    def _use(self, name: QuotaName, amount: float) -> None:
        limit = self._limits.get(name)
        if limit is not None:
            self._quotas.bucket(name, limit).use(amount, self._quotas.now_s())


class Quotas:
    """Those of a gateway. On the event loop.

    Args:
        registry: Of the gateway's metrics.
        waiting_max: Calls that may wait at a time; each is one of `max.calls`.
        now_s: A clock that only goes forward.
        sleep: Waits for so many seconds.

    Attributes:
        open_calls: How many calls each connection has under way, by those that share a limit.
        taken: The transactional ids whose transactions, and the groups, that may not be over, and
            how many calls are beginning or joining each, by quota and likewise.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        waiting_max: int,
        now_s: Callable[[], float] = time_elapsed_s,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.now_s = now_s
        self._sleep = sleep
        self._waiting_max = waiting_max
        self._waiting = 0
        self._rows: QuotaRows = {}
        self._throttles: OrderedDict[_Who, Throttle | None] = OrderedDict()
        self._buckets: OrderedDict[tuple[QuotaName, _Who], Bucket] = OrderedDict()
        self._labels: set[tuple[str, str]] = set()
        self.open_calls: dict[_Who, dict[str, int]] = {}
        self.taken: OrderedDict[tuple[QuotaName, _Who], Counter[str]] = OrderedDict()
        self._throttled = prometheus_client.Counter(
            "mainstem_quota_throttled",
            "Calls that waited for a quota, or were refused.",
            ["principal", "kind"],
            registry=registry,
        )

    @property
    def rows(self) -> QuotaRows:
        """What is in force."""
        return self._rows

    def replace(self, rows: QuotaRows) -> None:
        """From now on these are in force. Debts stay."""
        self._rows = rows
        self._throttles.clear()
        labels = {(str(entity), name.value) for entity, row in rows.items() for name in row}
        for label in self._labels - labels:
            with contextlib.suppress(KeyError):
                self._throttled.remove(*label)
        self._labels &= labels

    def throttle(self, principal: Principal, client_id: str) -> Throttle | None:
        """What holds for a caller; None: nothing does."""
        if not self._rows:
            return None
        if principal.type == GATEWAY:  # its calls come from what others were allowed
            return None
        who = (str(principal), client_id)
        if who in self._throttles:
            self._throttles.move_to_end(who)
            return self._throttles[who]
        limits = limits_of(self._rows, *who)
        found = self._throttles[who] = Throttle(self, limits) if limits else None
        if len(self._throttles) > _REMEMBERED_MAX:
            self._throttles.popitem(last=False)
        return found

    async def pause(self, principal: Principal, client_id: str, charge: Charge) -> None:
        """Waits until a stream may read on, however long that takes."""
        again = False
        while (throttle := self.throttle(principal, client_id)) is not None:
            wait_s = throttle.wait_s(charge, again=again)
            if wait_s <= 0:
                return
            again = True
            await self._sleep(min(wait_s, _LOOK_EVERY_S))

    @property
    def too_many_wait(self) -> bool:
        """Whether no other call may wait."""
        return self._waiting >= self._waiting_max

    async def wait(self, wait_s: float) -> None:
        """A call waits."""
        self._waiting += 1
        try:
            await self._sleep(wait_s)
        finally:
            self._waiting -= 1

    def keep_taken(self) -> None:
        """Forgets what those took who took something first, where too many did."""
        if len(self.taken) > _REMEMBERED_MAX:
            self.taken.popitem(last=False)

    def bucket(self, name: QuotaName, limit: Limit) -> Bucket:
        """That of those that share the limit."""
        key = (name, limit.who)
        bucket = self._buckets.get(key)
        if bucket is None:
            mutates = name is QuotaName.CONTROLLER_MUTATION_RATE
            debt_s_max = _MUTATION_DEBT_S_MAX if mutates else DEBT_S_MAX
            bucket = self._buckets[key] = Bucket(limit.value, self.now_s(), debt_s_max)
            if len(self._buckets) > _REMEMBERED_MAX:
                self._buckets.popitem(last=False)
        elif bucket.rate != limit.value:
            bucket.set_rate(limit.value, self.now_s())
        self._buckets.move_to_end(key)
        return bucket

    def throttled(self, name: QuotaName, limit: Limit) -> None:
        """Counts a call that waits or is refused, by the entity whose quota it is."""
        label = (str(limit.entity), name.value)
        self._labels.add(label)
        self._throttled.labels(*label).inc()


def _exceeded(name: QuotaName, limit: Limit, wait_s: float) -> QuotaExceededError:
    wait_ms = max(math.ceil(wait_s * 1000), _RETRY_MS_MIN)
    return QuotaExceededError(
        f"{name} of {limit.entity} is {limit.value:g}, and more was used; try again in "
        f"{wait_ms} ms",
        retry_delay_ms=wait_ms,
        quota=name,
        entity=limit.entity,
        limit=limit.value,
    )
