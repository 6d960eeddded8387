"""gRPC channels to gateways: their options, and one channel an address."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import grpc
import grpc.experimental

from mainstem.client.connection_security import ConnectionSettings, Security
from mainstem.errors import GatewayUnavailableError
from mainstem.limits import (
    KEEPALIVE_TIME_MS,
    KEEPALIVE_TIMEOUT_MS,
    MESSAGE_OVERHEAD_BYTES,
    MIB,
)

#: An answer is small; a topic list or a description of 10,000 partitions is not.
_ANSWER_BYTES_MAX = 64 * MIB

#: A call that was given less time than this says nothing of its connection.
_SILENCE_S: Final = 1.0

#: gRPC would follow `http_proxy`, `https_proxy` and `grpc_proxy`, also to the loopback interface.
NO_PROXY: Final = ("grpc.enable_http_proxy", 0)


class Channels:
    """One channel an address, opened when first asked for. Thread-safe.

    Args:
        connection: Whether they are encrypted, and who signs in; None: neither.

    Raises:
        RuntimeError: This process was forked from one that had channels open.
    """

    def __init__(
        self,
        request_bytes_max: int,
        client_id: str = "",
        connection: ConnectionSettings | None = None,
    ) -> None:
        _check_not_forked()
        self._security = Security(connection or ConnectionSettings())
        self._security_version = self._security.version
        self._options = channel_options(request_bytes_max, client_id)
        self._channels: dict[str, grpc.Channel] = {}
        # What `renew` has replaced, by address: calls that another thread has made over it may
        # still be answered.
        self._replaced: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, address: str) -> grpc.Channel:
        """The channel to `address` (host:port). Opening does not wait for the connection.

        Raises:
            GatewayUnavailableError: The client is closed.
        """
        with self._lock:
            if self._closed:
                raise GatewayUnavailableError("the client is closed")
            outdated = self._outdated()
            channel = self._channels.get(address)
            if channel is None:
                channel = self._security.open(address, self._options)
                self._channels[address] = channel
                _open.add(self)
        for one in outdated:
            one.close()
        return channel

    def _outdated(self) -> list[grpc.Channel]:
        """Forgets the channels that were opened with other certificates; calls under way on them go
        on. Returns those that were forgotten before, to be closed without the lock."""
        version = self._security.version
        if version == self._security_version:
            return []
        self._security_version = version
        before, self._replaced = list(self._replaced.values()), self._channels
        self._channels = {}
        return before

    def renew(self, address: str, channel: grpc.Channel, waited_s: float) -> None:
        """A call over `channel` had no answer for `waited_s`: the next one gets a new connection.

        Of several such calls over one channel the first replaces it. Calls that are under way on
        the old one go on; it is closed when the one after it is given up as well.
        """
        if waited_s < _SILENCE_S:
            return
        with self._lock:
            if self._closed or self._channels.get(address) is not channel:
                return
            del self._channels[address]
            before = self._replaced.get(address)
            self._replaced[address] = channel
        if before is not None:
            before.close()

    def session_over(self, address: str, channel: grpc.Channel | None = None) -> None:
        """The gateway has said that the client's session is over: the next call signs in again.

        Args:
            channel: Of the call; None: the newest to `address`.
        """
        with self._lock:
            channel = channel or self._channels.get(address)
        if channel is not None:
            self._security.session_over(channel)

    def take(self, address: str) -> list[grpc.Channel]:
        """Forgets the connections to a gateway that is not used any more; the caller closes them.

        Calls that are under way are cancelled then.
        """
        with self._lock:
            taken = [self._channels.pop(address, None), self._replaced.pop(address, None)]
        return [channel for channel in taken if channel is not None]

    def drop(self, address: str) -> None:
        """Closes the connections to a gateway that is not used any more."""
        for channel in self.take(address):
            channel.close()

    @property
    def closed(self) -> bool:
        """The client is closed."""
        return self._closed

    def close(self) -> None:
        """Closes all; running calls are cancelled."""
        with self._lock:
            self._closed = True
            channels = [*self._channels.values(), *self._replaced.values()]
            self._channels.clear()
            self._replaced.clear()
        for channel in channels:
            channel.close()
        _open.discard(self)


#: Those with channels. A fork copies gRPC's locks without the threads that would let go of them: in
#: the child a new channel hangs or aborts, in one of ten processes or in all, by gRPC's settings.
_open: weakref.WeakSet[Channels] = weakref.WeakSet()

#: The process that had channels open when it forked this one, or one before this one.
_forked_from: int | None = None
_parent = os.getpid()


def _check_not_forked() -> None:
    if _forked_from is not None:
        raise RuntimeError(
            f"process {os.getpid()} was forked while clients of mainstem were open in process "
            f"{_forked_from}, and gRPC does not work in such a child: start it with "
            "multiprocessing.get_context('spawn') or 'forkserver', or open those clients after the "
            "fork, or close them before it"
        )


def _after_fork() -> None:
    global _forked_from, _parent
    if _open:
        _forked_from = _parent
        _open.clear()
    _parent = os.getpid()


os.register_at_fork(after_in_child=_after_fork)


def read_to_end(call: Any) -> None:
    """Takes what is still to come of a call that has ended, or was cancelled, in one thread
    (`SingleThreadedUnaryStream`). Without it the call, and with it the connection, outlives its
    channel: gRPC raises for a cancelled call before it has read its status.
    """
    state = getattr(call, "_state", None)
    consume = getattr(call, "_consume_next_event", None)
    if state is None or consume is None:  # of another version of gRPC
        return
    while state.due:
        consume()


def channel_options(request_bytes_max: int, client_id: str) -> list[tuple[str, int | str]]:
    """Why each differs from gRPC's default is said beside it."""
    return [
        # The default is 4 MiB in each direction.
        ("grpc.max_send_message_length", request_bytes_max + 2 * MESSAGE_OVERHEAD_BYTES),
        ("grpc.max_receive_message_length", _ANSWER_BYTES_MAX),
        # The defaults (1 s, doubling to 2 minutes) would outlast the restart of a gateway by far.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # Finds a peer that hangs, or vanished without a word, while a call is under way, where the
        # defaults take minutes. The gateway takes any number of pings.
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        # A proxy for web pages that the environment names is not for gateways.
        NO_PROXY,
        # The thread that reads a stream of answers does all of the call; else gRPC would start
        # another one for each call.
        (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
        # A connection of its own: another client's channel to the same gateway neither slows this
        # one down nor keeps it open after close().
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.primary_user_agent", f"{_agent()} {client_id}".strip()),
    ]


@functools.cache
def _agent() -> str:
    """This program and its version, which takes milliseconds to look up; a task of Spark opens a
    producer of its own each time."""
    try:
        return f"mainstem-client/{version('mainstem')}"
    except PackageNotFoundError:
        return "mainstem-client"
