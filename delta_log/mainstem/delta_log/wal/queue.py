"""The requests that wait to be written to a write-ahead log, and those that are being written.
Pure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from mainstem.errors import BackPressureError
from mainstem.limits import MIB

#: So much fills a frame: to write it takes an object storage service little longer than an empty
#: one. One entry alone may have more.
FRAME_BYTES: Final = 8 * MIB


@dataclass(frozen=True, slots=True)
class Queued:
    """An entry, which topic it is of, and the future of those who wait for it."""

    topic: tuple[str, str]
    number: int
    entry: bytes
    done: asyncio.Future[None]


class WriteQueue:
    """Bounded in bytes, together with what is being written.

    Args:
        bytes_max: One entry alone may have more.

    Attributes:
        group: What is being written.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[Queued] = deque()
        self._waiting_bytes = 0
        self._group_bytes = 0
        self.group: list[Queued] = []

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    @property
    def fills_a_frame(self) -> bool:
        """Whether what waits is enough for a frame."""
        return self._waiting_bytes >= FRAME_BYTES

    def check_room(self, size_bytes: int) -> None:
        """Raises BackPressureError where there is no room for so much more."""
        used_bytes = self._waiting_bytes + self._group_bytes
        if used_bytes and used_bytes + size_bytes > self._bytes_max:
            raise BackPressureError(
                f"{used_bytes} bytes wait to be written to the write-ahead log, at most "
                f"{self._bytes_max} may; send the batch again in 50 ms",
                retry_delay_ms=50,
                queued_bytes=used_bytes,
                limit_bytes=self._bytes_max,
            )

    def add(self, queued: Queued) -> None:
        self._waiting.append(queued)
        self._waiting_bytes += len(queued.entry)

    def drop_all_but(self, numbers: AbstractSet[int]) -> list[Queued]:
        """Takes what waits under other numbers out; returns it, in order."""
        dropped = [one for one in self._waiting if one.number not in numbers]
        if dropped:
            self._waiting = deque(one for one in self._waiting if one.number in numbers)
            self._waiting_bytes -= sum(len(one.entry) for one in dropped)
        return dropped

    def take_group(self) -> list[Queued]:
        """What the next frame gets, in order: at least one entry. It is the `group` from now on."""
        group = [self._waiting.popleft()]
        size_bytes = len(group[0].entry)
        while self._waiting:
            more_bytes = len(self._waiting[0].entry)
            if size_bytes + more_bytes > FRAME_BYTES:
                break
            group.append(self._waiting.popleft())
            size_bytes += more_bytes
        self._waiting_bytes -= size_bytes
        self._group_bytes = size_bytes
        self.group = group
        return group

    def written(self) -> None:
        """The group is written."""
        self.group = []
        self._group_bytes = 0

    def give_up(self) -> list[Queued]:
        """Empties all; returns what was there, in order."""
        lost = [*self.group, *self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        self.written()
        return lost

    def of(self, topic: tuple[str, str]) -> list[asyncio.Future[None]]:
        """What a topic has in it, also in the group."""
        return [one.done for one in (*self.group, *self._waiting) if one.topic == topic]
