"""The write-ahead logs of other gateways, sealed by who takes topics over from them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mainstem.delta_log.wal.files import SealedWalFiles, is_segment
from mainstem.delta_log.wal.log import Wal
from mainstem.errors import StoreUnavailableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Other:
    files: SealedWalFiles
    wal: Wal


class OtherLogs:
    """On the event loop; files are read in a thread of its own.

    A log is sealed and read when somebody asks for it, and again when its owner has gone on behind
    the seal since.

    Args:
        directories: Each has a directory for each gateway.
        gateway_id: Ours, which is none of the others.
        warehouse_id: What the logs have to be of.
    """

    def __init__(self, directories: Sequence[Path], gateway_id: str, warehouse_id: str) -> None:
        self._directories = tuple(dict.fromkeys(directories))
        self._gateway_id = gateway_id
        self._warehouse_id = warehouse_id
        self._others: dict[Path, _Other] = {}
        self._lock = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wal-others")

    async def of(self, gateway_ids: Iterable[str]) -> list[Wal]:
        """The logs of these gateways, sealed: what they have now is all that they acknowledged
        before, as far as there is one and it is not ours.

        Raises:
            LogDamagedError: A segment is damaged; the message names file and position.
            StoreUnavailableError: A log cannot be sealed or read, or is of another warehouse.
        """
        found: list[Wal] = []
        async with self._lock:
            for gateway_id in sorted({*gateway_ids} - {self._gateway_id}):
                for directory in self._directories:
                    other = await self._sealed(directory / gateway_id)
                    if other is not None:
                        found.append(other.wal)
        return found

    async def with_segments(self, but: Iterable[str]) -> list[str]:
        """The ids of the other gateways that have segments, but for some. Nothing is sealed.

        Raises:
            StoreUnavailableError: The directories cannot be read.
        """
        return await self._in_thread(self._list, {*but, self._gateway_id})

    async def drop_folded(self) -> None:
        """Deletes the segments of the logs whose entries are all in tables, as far as is known
        here, and whose owners do not run on this machine."""
        async with self._lock:
            for other in self._others.values():
                if not other.wal.topics():
                    with contextlib.suppress(OSError):
                        await self._in_thread(other.files.delete_segments, other.wal.segment_names)

    async def close(self) -> None:
        async with self._lock:
            others, self._others = self._others, {}
            for other in others.values():
                await other.wal.close()
                other.files.close()
        self._pool.shutdown(wait=True)

    async def _sealed(self, path: Path) -> _Other | None:
        known = self._others.get(path)
        if known is not None:
            if await self._in_thread(lambda: known.files.is_sealed):
                return known
            del self._others[path]
            await known.wal.close()
            known.files.close()
        opened = await self._in_thread(self._seal, path)
        if opened is not None:
            self._others[path] = opened
        return opened

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    def _seal(self, path: Path) -> _Other | None:
        try:
            files = SealedWalFiles(path, self._gateway_id)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreUnavailableError(
                f"the write-ahead log {path} of a gateway that led the topic before cannot be "
                f"sealed: {error}; acknowledged records may be there",
                directory=str(path),
            ) from error
        try:
            wal = Wal(files, path.name)
            if wal.warehouse_id != self._warehouse_id and wal.topics():
                raise StoreUnavailableError(
                    f"the write-ahead log {path} belongs to warehouse {wal.warehouse_id!r}, not to "
                    f"{self._warehouse_id!r}; move it away to give its records up",
                    directory=str(path),
                )
        except BaseException:
            files.close()
            raise
        return _Other(files, wal)

    def _list(self, known: set[str]) -> list[str]:
        found: set[str] = set()
        for directory in self._directories:
            try:
                names = os.listdir(directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreUnavailableError(
                    f"the write-ahead logs in {directory} cannot be looked for: {error}",
                    directory=str(directory),
                ) from error
            for name in names:
                if name in known or name.startswith("."):
                    continue
                with contextlib.suppress(OSError):  # another one has removed it, or it is a file
                    if any(map(is_segment, os.listdir(directory / name))):
                        found.add(name)
        return sorted(found)
