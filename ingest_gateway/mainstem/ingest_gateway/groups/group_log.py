"""The log of what happens in groups, a bounded number of lines however many members come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from mainstem.consumers.events import EVICTED, GroupEvent
from mainstem.delta_log.store import time_elapsed_s

log = structlog.get_logger()

#: Lines of each kind: so many at once, and so many a second after that.
BURST: Final = 50
PER_S: Final = 5.0


class GroupLog:
    """Writes the events of groups, and counts those that it leaves out. On the event loop.

    Args:
        elapsed_s: The clock.
    """

    def __init__(self, elapsed_s: Callable[[], float] = time_elapsed_s) -> None:
        self._elapsed_s = elapsed_s
        #: By kind: how many may be written, as of when, and how many were not since the last one.
        self._room: dict[str, tuple[float, float]] = {}
        self._left_out: dict[str, int] = {}

    def write(self, events: Iterable[GroupEvent]) -> None:
        """Writes what there is room for, evictions as warnings."""
        for one in events:
            if self._has_room(one.kind):
                say = log.warning if one.kind == EVICTED else log.info
                say(one.kind, **one.facts, **self._omission(one.kind))
            else:
                self._left_out[one.kind] = self._left_out.get(one.kind, 0) + 1

    def tell_rest(self) -> None:
        """Says how many lines were left out, of kinds of which nothing has been written since."""
        for kind in [kind for kind in self._left_out if self._has_room(kind)]:
            log.warning("group events not logged", kind=kind, **self._omission(kind))

    def _omission(self, kind: str) -> dict[str, int]:
        count = self._left_out.pop(kind, 0)
        return {"left_out": count} if count else {}

    def _has_room(self, kind: str) -> bool:
        now_s = self._elapsed_s()
        room, at_s = self._room.get(kind, (BURST, now_s))
        room = min(BURST, room + (now_s - at_s) * PER_S)
        has_room = room >= 1
        self._room[kind] = (room - 1 if has_room else room), now_s
        return has_room
