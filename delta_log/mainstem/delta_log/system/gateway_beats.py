"""The heartbeats of gateways: one small object each in `system/gateways`, which only it writes.

The name of an object says all that others have to know of whether a gateway is there, so that one
listing tells it of all gateways: who (`gateway_key`), which start of it (its incarnation), and
whether it drains. What it contains is for those who want to talk to the gateway, or about it.

    system/gateways/<key, 16 hex digits>~<incarnation, 16 hex digits>~live.json

A topic's log names its leader by the incarnation (the register `mainstem/leader`).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import asdict, dataclass
from typing import Final

from mainstem.delta_log.store import NotFound, ObjectStore

#: Where the objects are.
DIRECTORY: Final = "system/gateways"

_NAME: Final = re.compile(r"([0-9a-f]{16})~([0-9a-f]{16})~(live|draining)\.json")
_MASK: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BeatName:
    """What the name of a heartbeat object says.

    Attributes:
        key: Of the gateway, over all its starts; see `gateway_key`.
        incarnation: Another one each time that the gateway starts; from 1.
        draining: It is about to end: it leads what it has not handed over yet, and takes no more.
    """

    key: int
    incarnation: int
    draining: bool = False

    def path(self) -> str:
        """Where the object is."""
        state = "draining" if self.draining else "live"
        return f"{DIRECTORY}/{self.key:016x}~{self.incarnation:016x}~{state}.json"

    @classmethod
    def parse(cls, name: str) -> BeatName | None:
        """What an object of the directory is called; None: it is none of ours."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found[1], 16), int(found[2], 16), found[3] == "draining")


@dataclass(frozen=True, slots=True)
class GatewayBeat:
    """What a gateway says of itself.

    Attributes:
        address: host:port that clients connect to.
        heartbeat_ms: When it said so, by its own clock.
        topics_led: How many.
        in_bytes_s, out_bytes_s: Bytes of records a second that it has taken from producers and
            given to consumers lately.
    """

    gateway_id: str
    incarnation: int
    address: str
    rack: str
    heartbeat_ms: int
    draining: bool = False
    topics_led: int = 0
    in_bytes_s: int = 0
    out_bytes_s: int = 0

    def name(self) -> BeatName:
        """Of the object that has it."""
        return BeatName(gateway_key(self.gateway_id), self.incarnation, self.draining)

    def encode(self) -> bytes:
        """What the object contains."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def gateway_key(gateway_id: str) -> int:
    """The number of a gateway: its id, as short as a register."""
    digest = hashlib.blake2b(gateway_id.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK


def new_incarnation() -> int:
    """A number that no other start of any gateway has."""
    return secrets.randbits(63) | 1


def read_beat(store: ObjectStore, name: BeatName) -> GatewayBeat | None:
    """What an object says; None: it is gone, or makes no sense. Blocks.

    Raises:
        StoreUnavailableError: The store failed.
    """
    try:
        data = store.read(name.path())
    except NotFound:
        return None
    try:
        body = json.loads(data)
        return GatewayBeat(
            str(body["gateway_id"]),
            int(body["incarnation"]),
            str(body["address"]),
            str(body["rack"]),
            int(body["heartbeat_ms"]),
            name.draining,
            int(body["topics_led"]),
            int(body["in_bytes_s"]),
            int(body["out_bytes_s"]),
        )
    except (ValueError, KeyError, TypeError):
        return None  # of another version, or torn: whoever wrote it writes it again


def last_heartbeat_ms(store: ObjectStore) -> int:
    """When a gateway was heard of last, by its own clock; 0: none is known. Blocks.

    Raises:
        StoreUnavailableError: The store failed.
    """
    names = (BeatName.parse(info.name) for info in store.list_files(DIRECTORY))
    beats = (read_beat(store, name) for name in names if name is not None)
    return max((beat.heartbeat_ms for beat in beats if beat is not None), default=0)
