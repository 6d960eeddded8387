"""Which gateways are alive, as one that looks at their heartbeats sees it. Pure.

A gateway is gone when its object has not changed for a session while another one looked at it. The
time of day in an object is for people: who wrote it may have a wrong clock. And only time counts in
which the other one looked: a machine that was suspended, or a store that failed, says nothing of
whether anybody is alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mainstem.delta_log.system import BeatName

#: Stands for what an object contains: it changes with each heartbeat.
Stamp = tuple[int, int]

#: So many intervals between two looks count as time in which we have looked.
LOOKED_INTERVALS: Final = 1.5

#: An object is cleared away when it has not changed for so many sessions. A gateway that comes back
#: writes it again, and until then it is gone for all the others anyway.
FORGOTTEN_SESSIONS: Final = 3.0


@dataclass(frozen=True, slots=True)
class _Seen:
    stamp: Stamp
    unchanged_s: float


@dataclass(frozen=True, slots=True)
class _Look:
    objects: Mapping[BeatName, _Seen]
    #: By incarnation, for how long none of its objects has changed.
    unchanged_s: Mapping[int, float]
    at_s: float


class Membership:
    """What one gateway knows of the others. A look replaces what is known at once, so that other
    threads may ask meanwhile.

    Args:
        incarnation: The one that looks; it is not among the others.
        interval_s: Between heartbeats, of this gateway and of those that it looks at.
        session_s: gateway.session.timeout.ms.
        now_s: By a clock that nobody sets and that goes on while the machine is suspended.
    """

    def __init__(self, incarnation: int, interval_s: float, session_s: float, now_s: float) -> None:
        self._incarnation = incarnation
        self._looked_s_max = LOOKED_INTERVALS * interval_s
        self._session_s = session_s
        self._look = _Look({}, {}, now_s)
        self._placeable: frozenset[int] = frozenset()
        self._changed_at_s = now_s

    def look(self, found: Mapping[BeatName, Stamp], now_s: float) -> None:
        """Takes what a listing has found just now."""
        before = self._look
        looked_s = self._looked_s(now_s, before)
        objects: dict[BeatName, _Seen] = {}
        silent_s: dict[int, float] = {}
        for name, stamp in found.items():
            if name.incarnation == self._incarnation:
                continue
            known = before.objects.get(name)
            unchanged_s = (
                known.unchanged_s + looked_s if known is not None and known.stamp == stamp else 0.0
            )
            objects[name] = _Seen(stamp, unchanged_s)
            silent_s[name.incarnation] = min(
                unchanged_s, silent_s.get(name.incarnation, unchanged_s)
            )
        self._look = _Look(objects, silent_s, now_s)
        self.settled_s(now_s)

    def knows(self, incarnation: int) -> bool:
        """Whether the last look has found an object of that start of a gateway, alive or not."""
        return incarnation in self._look.unchanged_s

    def is_alive(self, incarnation: int, now_s: float) -> bool:
        """Whether that start of a gateway is there, as of the last look."""
        look = self._look
        unchanged_s = look.unchanged_s.get(incarnation)
        return unchanged_s is not None and (
            unchanged_s + self._looked_s(now_s, look) < self._session_s
        )

    def others(self, now_s: float) -> list[BeatName]:
        """Those that are there, by key; one that drains once, as draining."""
        look = self._look
        unchanged_s_max = self._session_s - self._looked_s(now_s, look)
        alive: dict[int, BeatName] = {}
        for name in look.objects:
            known = alive.get(name.incarnation)
            is_alive = look.unchanged_s[name.incarnation] < unchanged_s_max
            if is_alive and (known is None or name.draining):
                alive[name.incarnation] = name
        return sorted(alive.values(), key=lambda name: (name.key, name.incarnation))

    def forgotten(self, now_s: float) -> list[BeatName]:
        """Objects of gateways that have long been gone: to be deleted."""
        look = self._look
        kept_s = FORGOTTEN_SESSIONS * self._session_s
        looked_s = self._looked_s(now_s, look)
        return [name for name, seen in look.objects.items() if seen.unchanged_s + looked_s > kept_s]

    def settled_s(self, now_s: float) -> float:
        """For how long no gateway has come, gone or begun to drain."""
        placeable = frozenset(name.key for name in self.others(now_s) if not name.draining)
        if placeable != self._placeable:
            self._placeable = placeable
            self._changed_at_s = now_s
        return now_s - self._changed_at_s

    @property
    def knows_others(self) -> bool:
        """Whether there was an object of another gateway, alive or not."""
        return bool(self._look.objects)

    def _looked_s(self, now_s: float, look: _Look) -> float:
        """How much of the time since then counts."""
        return min(now_s - look.at_s, self._looked_s_max)
