"""Who is connected to a gateway, as far as its calls tell: gRPC says nothing of connections."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

from mainstem.delta_log.store import time_elapsed_s
from mainstem.ingest_gateway.caller import Identity

#: A connection without a call for so long is forgotten: a client keeps a call open, or makes one
#: every few seconds.
IDLE_S_MAX: Final = 300.0


class Connection:
    """One client's connection.

    Attributes:
        peer: Its address, as gRPC has it.
        client_id: Empty where it gave none.
        host: The same without the port.
        proof: What the last call proved itself by; empty: the connection's certificate.
        identity: Whose that is; None: it was not asked, or is over.
        received_bytes, sent_bytes: Of requests and answers.
    """

    __slots__ = (
        "began_at",
        "call_count",
        "client_id",
        "host",
        "identity",
        "open_calls",
        "peer",
        "proof",
        "received_bytes",
        "sent_bytes",
        "used_at",
    )

    def __init__(self, peer: str, client_id: str, now: float) -> None:
        self.peer = peer
        self.client_id = client_id
        self.host = _host(peer)
        self.proof = ""
        self.identity: Identity | None = None
        self.began_at = self.used_at = now
        self.open_calls = self.call_count = 0
        self.received_bytes = self.sent_bytes = 0

    def received(self, size_bytes: int) -> None:
        """Counts a request."""
        self.received_bytes += size_bytes

    def sent(self, size_bytes: int) -> None:
        """Counts an answer."""
        self.sent_bytes += size_bytes


class Connections:
    """Those of one gateway. On the event loop.

    Args:
        connections_max: `max.connections`: as many are remembered.
        elapsed_s: The clock.
    """

    def __init__(
        self, connections_max: int, elapsed_s: Callable[[], float] = time_elapsed_s
    ) -> None:
        self._connections_max = connections_max
        self._elapsed_s = elapsed_s
        #: By peer, those that were used last at the end.
        self._connections: OrderedDict[str, Connection] = OrderedDict()

    @contextmanager
    def call(self, peer: str, client_id: Callable[[], str]) -> Iterator[Connection]:
        """A call of a connection, for the block.

        Args:
            client_id: Asked at the connection's first call.
        """
        now = self._elapsed_s()
        connection = self._connections.get(peer)
        if connection is None:
            self._forget(now, new_count=1)
            connection = self._connections[peer] = Connection(peer, client_id(), now)
        connection.open_calls += 1
        connection.call_count += 1
        self._used(connection, now)
        try:
            yield connection
        finally:
            connection.open_calls -= 1
            self._used(connection, self._elapsed_s())

    def list(self) -> list[Connection]:
        """Those that are not forgotten, the oldest first."""
        self._forget(self._elapsed_s(), new_count=0)
        return sorted(self._connections.values(), key=lambda one: (one.began_at, one.peer))

    def age_ms(self, connection: Connection) -> int:
        """Since its first call."""
        return int((self._elapsed_s() - connection.began_at) * 1000)

    def idle_ms(self, connection: Connection) -> int:
        """Since a call of it began or ended."""
        return int((self._elapsed_s() - connection.used_at) * 1000)

    def _used(self, connection: Connection, now: float) -> None:
        connection.used_at = now
        if connection.peer in self._connections:
            self._connections.move_to_end(connection.peer)

    def _forget(self, now: float, new_count: int) -> None:
        """Forgets those that are idle for too long, and the idlest where new ones have no room."""
        gone: list[str] = []
        for connection in self._connections.values():
            count = len(self._connections) - len(gone) + new_count
            if count <= self._connections_max and now - connection.used_at < IDLE_S_MAX:
                break
            if not connection.open_calls:
                gone.append(connection.peer)
        for peer in gone:
            del self._connections[peer]


def _host(peer: str) -> str:
    """Of `ipv4:192.0.2.1:4711` or `ipv6:%5B2001:db8::1%5D:4711`."""
    _, _, address = peer.partition(":")
    return unquote(address.rpartition(":")[0]).strip("[]")
