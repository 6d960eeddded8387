"""The write-ahead logs of other gateways, sealed by who takes topics over from them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from mainstem.delta_log.wal.log import Wal
from mainstem.delta_log.wal.place import SealedLog, WalPlace
from mainstem.errors import StoreUnavailableError

T = TypeVar("T")

#: Logs that are sealed and read at a time.
_THREADS: Final = 8

#: A gateway's log in one of the places.
_Key = tuple[WalPlace, str]


@dataclass(slots=True)
class _Other:
    log: SealedLog
    wal: Wal
    is_deleted: bool = False


class OtherLogs:
    """On the event loop; logs are read in threads of their own.

    A log is sealed and read when somebody asks for it, and again when its owner has gone on behind
    the seal since. Many who ask at the same time, for a topic each, share one look at it.

    Args:
        places: Each has a log for each gateway, or none.
        gateway_id: Ours, which is none of the others.
        warehouse_id: What the logs have to be of.
    """

    def __init__(self, places: Sequence[WalPlace], gateway_id: str, warehouse_id: str) -> None:
        self._places = tuple(places)
        self._gateway_id = gateway_id
        self._warehouse_id = warehouse_id
        self._others: dict[_Key, _Other] = {}
        #: One look at a log at a time.
        self._locks: dict[_Key, asyncio.Lock] = {}
        #: Looks that have not begun.
        self._looks: dict[_Key, asyncio.Task[_Other | None]] = {}
        self._closed = False
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="wal-others")

    async def of(self, gateway_ids: Iterable[str]) -> list[Wal]:
        """The logs of these gateways, sealed: what they have now is all that they acknowledged
        before, as far as there is one and it is not ours.

        Raises:
            LogDamagedError: A segment is damaged; the message names file and position.
            StoreUnavailableError: A log cannot be sealed or read, or is of another warehouse.
        """
        found = await asyncio.gather(
            *(
                self._look((place, gateway_id))
                for gateway_id in sorted({*gateway_ids} - {self._gateway_id})
                for place in self._places
            )
        )
        return [other.wal for other in found if other is not None]

    async def with_segments(self, but: Iterable[str]) -> list[str]:
        """The ids of the other gateways whose logs may have something, but for some. Nothing is
        sealed.

        Raises:
            StoreUnavailableError: A place cannot be read.
        """
        known = {*but, self._gateway_id}
        found: set[str] = set()
        for place in self._places:
            read = [gateway_id for one, gateway_id in self._others if one is place]
            done = {one for one in read if await self._is_done((place, one))}
            try:
                found.update(await self._in_thread(place.with_segments, known | done))
            except OSError as error:
                raise StoreUnavailableError(
                    f"the write-ahead logs of other gateways cannot be looked for: {error}"
                ) from error
        return sorted(found)

    async def drop_folded(self, but: Iterable[str]) -> None:
        """Deletes the segments of the logs whose entries are all in tables, as far as is known
        here, unless their owners may still use them: those of the gateways in `but` may."""
        alive = {*but}
        for key, other in list(self._others.items()):
            if key[1] in alive or other.is_deleted or other.wal.topics():
                continue
            with contextlib.suppress(OSError, StoreUnavailableError):
                other.is_deleted = await self._in_thread(
                    other.log.delete_segments, other.wal.segment_names
                )

    async def close(self) -> None:
        self._closed = True
        for key in list(self._locks):
            async with self._locks[key]:
                await self._forget(key)
        self._pool.shutdown(wait=True)

    async def _look(self, key: _Key) -> _Other | None:
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = asyncio.get_running_loop().create_task(self._look_now(key))
            look.add_done_callback(_retrieve)
        return await asyncio.shield(look)

    async def _look_now(self, key: _Key) -> _Other | None:
        async with self._locks.setdefault(key, asyncio.Lock()):
            # Who asks from now on has claimed an epoch after this look began, and needs the next.
            del self._looks[key]
            if self._closed:
                raise StoreUnavailableError("the gateway is shutting down", retry_delay_ms=100)
            known = self._others.get(key)
            if known is not None:
                if await self._in_thread(lambda: known.log.is_sealed):
                    return known
                await self._forget(key)
            opened = await self._in_thread(self._seal, *key)
            if opened is not None:
                self._others[key] = opened
            return opened

    async def _is_done(self, key: _Key) -> bool:
        """Whether nothing is left in a log, and it is sealed."""
        other = self._others.get(key)
        if other is None or other.wal.topics():
            return False
        return await self._in_thread(lambda: other.log.is_sealed)

    async def _forget(self, key: _Key) -> None:
        other = self._others.pop(key, None)
        if other is not None:
            await other.wal.close()
            other.log.close()

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    def _seal(self, place: WalPlace, gateway_id: str) -> _Other | None:
        try:
            log = place.seal(gateway_id, self._gateway_id)
        except (OSError, StoreUnavailableError) as error:
            raise StoreUnavailableError(
                f"the write-ahead log of gateway {gateway_id!r}, which led the topic before, "
                f"cannot be sealed: {error}; acknowledged records may be there",
                gateway_id=gateway_id,
            ) from error
        if log is None:
            return None
        try:
            wal = Wal(log, gateway_id)
            if wal.warehouse_id != self._warehouse_id and wal.topics():
                raise StoreUnavailableError(
                    f"the write-ahead log {log.uri} belongs to warehouse {wal.warehouse_id!r}, "
                    f"not to {self._warehouse_id!r}; move it away to give its records up",
                    directory=log.uri,
                )
        except BaseException:
            log.close()
            raise
        return _Other(log, wal)


def _retrieve(look: asyncio.Task[_Other | None]) -> None:
    if not look.cancelled():
        look.exception()
