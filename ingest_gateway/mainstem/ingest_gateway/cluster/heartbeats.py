"""Writes the heartbeats of this gateway, and reads those of the others. Blocks; in any thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Final

from mainstem.delta_log import ObjectStore
from mainstem.delta_log.system import DIRECTORY, BeatName, GatewayBeat, read_beat
from mainstem.errors import StoreUnavailableError
from mainstem.ingest_gateway.cluster.membership import Membership, Stamp

#: Objects that a look reads: of gateways that are new, and of those that it knows, to have their
#: figures, which in a large cluster are some seconds old. That somebody is there says the listing.
_NEW_READS_MAX: Final = 100
REREADS_MAX: Final = 2

#: Objects of gateways that are gone that a look deletes.
_DELETES_MAX: Final = 10


class Heartbeats:
    """The objects of all gateways, through one store.

    Attributes:
        beats: By incarnation, what the gateways that are alive say of themselves. Replaced by each
            look.
        own_is_there: Whether the last look has found the object of this gateway.
    """

    def __init__(
        self,
        store: ObjectStore,
        own: BeatName,
        membership: Membership,
        elapsed_s: Callable[[], float],
    ) -> None:
        self._elapsed_s = elapsed_s
        self._store = store
        self._own = own
        self._membership = membership
        self._lock = threading.Lock()
        self._written: set[BeatName] = set()
        self._read: dict[BeatName, Stamp] = {}
        self.beats: Mapping[int, GatewayBeat] = {}
        self.own_is_there = False

    def clear(self) -> None:
        """Deletes what earlier starts of this gateway have left: they have no topics any more."""
        for info in self._store.list_files(DIRECTORY):
            name = BeatName.parse(info.name)
            if name is not None and name.key == self._own.key:
                self._store.delete(name.path())

    def write(self, beat: GatewayBeat) -> None:
        """Renews this gateway's object.

        Raises:
            StoreUnavailableError: The store failed.
        """
        name = beat.name()
        with self._lock:
            self._written.add(name)  # also where the answer is lost
            self._store.put(name.path(), beat.encode())
            for other in self._written - {name}:
                self._store.delete(other.path())
                self._written.discard(other)

    def remove(self) -> None:
        """Takes this gateway's object away: others may have its topics at once."""
        with self._lock:
            for name in list(self._written):
                self._store.delete(name.path())
                self._written.discard(name)

    def look(self) -> None:
        """Sees who is there, reads what is new, and clears away what has long been gone.

        Raises:
            StoreUnavailableError: The store failed.
        """
        with self._lock:
            self._look(self._elapsed_s())

    def _look(self, now_s: float) -> None:
        found: dict[BeatName, Stamp] = {}
        for info in self._store.list_files(DIRECTORY):
            name = BeatName.parse(info.name)
            if name is not None:
                found[name] = (info.modified_ms, info.size_bytes)
        self.own_is_there = any(name.incarnation == self._own.incarnation for name in found)
        self._membership.look(found, now_s)
        alive = self._membership.others(now_s)
        self._read_some(alive, found)
        for name in self._membership.forgotten(now_s)[:_DELETES_MAX]:
            with contextlib.suppress(StoreUnavailableError):  # the next look tries it again
                self._store.delete(name.path())

    def _read_some(self, alive: list[BeatName], found: Mapping[BeatName, Stamp]) -> None:
        beats = {
            name.incarnation: self.beats[name.incarnation]
            for name in alive
            if name.incarnation in self.beats
        }
        # In the order in which they were read: whoever was read longest ago comes first.
        self._read = {name: stamp for name, stamp in self._read.items() if name in found}
        new = [name for name in alive if name.incarnation not in beats or name not in self._read]
        known = set(alive)
        changed = [n for n, stamp in self._read.items() if n in known and stamp != found[n]]
        for name in new[:_NEW_READS_MAX] + changed[:REREADS_MAX]:
            beat = read_beat(self._store, name)
            self._read.pop(name, None)
            if beat is not None:
                self._read[name] = found[name]
                beats[name.incarnation] = beat
        self.beats = beats
