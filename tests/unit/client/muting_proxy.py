"""A TCP proxy whose connections can die without a word, while new ones work."""

from __future__ import annotations

import contextlib
import socket
import threading


class MutingProxy:
    """Passes bytes between clients and `address` (host:port), both ways. A context manager.

    Attributes:
        count: Connections so far.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._muted = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.count = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def mute(self) -> None:
        """From now on nothing passes over the connections that there are, and none is closed."""
        muted, self._muted = self._muted, threading.Event()
        muted.set()

    def cut(self) -> None:
        """Closes the connections that there are, and none that comes meanwhile."""
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> MutingProxy:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for one in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.count += 1
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            self._start(self._pass, client, server, self._muted)
            self._start(self._pass, server, client, self._muted)

    def _pass(self, source: socket.socket, sink: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not muted.is_set():
                    sink.sendall(data)
            if not muted.is_set():
                sink.shutdown(socket.SHUT_WR)
