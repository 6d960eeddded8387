"""What answers to fetches take in memory: those that are made, and those that are not read yet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from mainstem.errors import BackPressureError
from mainstem.ingest_gateway.reader_threads import SLOW_S

#: How long an answer waits for room: those that are made take less, or are found slow.
_ROOM_S: Final = 2 * SLOW_S

_RETRY_DELAY_MS: Final = 100


class FetchRoom:
    """Bytes of answers. On the event loop.

    Args:
        bytes_max: Of all of them, `fetch.queue.bytes`. The only answer may have more.

    Attributes:
        unsent_bytes: Of answers that their clients have not read.
        reserved_bytes: What the answers that are being made may have.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.unsent_bytes = 0
        self.reserved_bytes = 0
        self._changed = asyncio.Event()

    def made(self, size_bytes: int) -> None:
        """An answer is there, and waits for its client."""
        self.unsent_bytes += size_bytes

    def sent(self, size_bytes: int) -> None:
        """An answer was read, or nobody waits for it any more."""
        self.unsent_bytes -= size_bytes
        self._changed.set()

    async def reserve(self, size_bytes: int) -> contextlib.ExitStack:
        """Waits until an answer of this size may be made, beside those that are unread.

        Returns:
            Closing it gives what was reserved back.

        Raises:
            BackPressureError: Slow readers leave no room for it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROOM_S):
                # What is being made may turn out smaller than it might be.
                while (
                    self.unsent_bytes < self._bytes_max
                    and (self.unsent_bytes or self.reserved_bytes)
                    and self.unsent_bytes + self.reserved_bytes + size_bytes > self._bytes_max
                ):
                    self._changed.clear()
                    await self._changed.wait()
        used_bytes = self.unsent_bytes + self.reserved_bytes
        if used_bytes and used_bytes + size_bytes > self._bytes_max:
            raise BackPressureError(
                f"{used_bytes} bytes of answers wait for slow readers or are being made, and "
                f"fetch.queue.bytes is {self._bytes_max}; try again later",
                retry_delay_ms=_RETRY_DELAY_MS,
                limit_bytes=self._bytes_max,
            )
        self.reserved_bytes += size_bytes
        reserved = contextlib.ExitStack()
        reserved.callback(self._give_back, size_bytes)
        return reserved

    def _give_back(self, size_bytes: int) -> None:
        self.reserved_bytes -= size_bytes
        self._changed.set()
