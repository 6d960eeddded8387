"""gRPC channels to gateways: their options, and one channel an address."""

from __future__ import annotations

import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import grpc
import grpc.experimental

from mainstem.limits import MESSAGE_OVERHEAD_BYTES, MIB

#: An answer is small; a topic list or a description of 10,000 partitions is not.
_ANSWER_BYTES_MAX = 64 * MIB

#: A call that was given less time than this says nothing of its connection.
_SILENCE_S: Final = 1.0


class Channels:
    """One channel an address, opened when first asked for. Thread-safe."""

    def __init__(self, request_bytes_max: int, client_id: str = "") -> None:
        self._options = channel_options(request_bytes_max, client_id)
        self._channels: dict[str, grpc.Channel] = {}
        #: What had the address before and may still have calls under way.
        self._retired: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, address: str) -> grpc.Channel:
        """The channel to `address` (host:port). Opening does not wait for the connection."""
        with self._lock:
            assert not self._closed
            channel = self._channels.get(address)
            if channel is None:
                channel = grpc.insecure_channel(address, options=self._options)
                self._channels[address] = channel
            return channel

    def unanswered(self, address: str, channel: grpc.Channel, waited_s: float) -> None:
        """A call had no answer for so long: the connection may have died without a word, which
        gRPC finds out after a minute, so the next call to the address gets a new one.

        Calls that are under way on the old one go on. It is closed when the one after it is given
        up as well, or all are closed.
        """
        if waited_s < _SILENCE_S:
            return
        with self._lock:
            if self._closed or self._channels.get(address) is not channel:
                return  # somebody else has said so
            del self._channels[address]
            retired = self._retired.get(address)
            self._retired[address] = channel
        if retired is not None:
            retired.close()

    def close(self) -> None:
        """Closes all; running calls are cancelled."""
        with self._lock:
            self._closed = True
            channels = [*self._channels.values(), *self._retired.values()]
            self._channels.clear()
            self._retired.clear()
        for channel in channels:
            channel.close()


def channel_options(request_bytes_max: int, client_id: str) -> list[tuple[str, int | str]]:
    """Why each differs from gRPC's default is said beside it."""
    try:
        agent = f"mainstem-client/{version('mainstem')}"
    except PackageNotFoundError:
        agent = "mainstem-client"
    return [
        # The default is 4 MiB in each direction.
        ("grpc.max_send_message_length", request_bytes_max + 2 * MESSAGE_OVERHEAD_BYTES),
        ("grpc.max_receive_message_length", _ANSWER_BYTES_MAX),
        # The defaults (1 s, doubling to 2 minutes) would outlast the restart of a gateway by far.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # Finds a peer that vanished without a word while a stream is open and quiet; the gateway
        # allows a ping every 5 s.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # The thread that reads a stream of answers does all of the call; else gRPC would start
        # another one for each call.
        (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
        # A connection of its own: another client's channel to the same gateway neither slows this
        # one down nor keeps it open after close().
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.primary_user_agent", f"{agent} {client_id}".strip()),
    ]
