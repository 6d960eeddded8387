"""A real gateway in a process of its own, for tests, the benchmark and the demo."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from mainstem.config import GATEWAY_KEYS

START_TIMEOUT_S: Final = 30.0
"""A gateway starts in under 2 s; a machine that is busy with other tests may take much longer."""

STOP_TIMEOUT_S: Final = 60.0
"""Longer than `drain.timeout.ms` by default (30 s) and the 5 s for streams to end."""

_LISTENING: Final = re.compile(r"^listening on (?P<host>\S+):(?P<port>\d+)\n", re.MULTILINE)
_PORT_TAKEN: Final = "cannot listen on"

# Asks the kernel to kill this process when its parent dies, then becomes the gateway. It runs in
# an interpreter of its own, not in `preexec_fn`: code between fork and exec may hang in a process
# that has gRPC threads. The parent may die before prctl takes effect: then this process has
# another parent already.
_TIED_TO_PARENT: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class GatewayProcess:
    """Runs `python -m mainstem.cli gateway run` on a free port of 127.0.0.1 while the block lasts.

    The process has no terminal signals: Ctrl-C reaches the caller only, whose `with` block then
    stops the gateway. On Linux the kernel kills it when the thread that started it dies, however
    that happens, so start it from a thread that lives as long as the gateway shall.

    Args:
        warehouse: A directory, made if it is not there; or a URI such as `s3://bucket/prefix`, with
            which the settings name a `gateway.id`.
        settings: Settings of the gateway by name, for example `{"message.max.bytes": 4096}`.
            Variables `MAINSTEM_*` of this process do not count.
        listen: host:port; port 0 takes a free one, and a restart takes the same again.
        start_timeout_s: How long a start may take.

    Raises:
        GatewayProcessError: On start: it ended or was not ready in time; the message has its log.
    """

    def __init__(
        self,
        warehouse: str | os.PathLike[str],
        *,
        settings: Mapping[str, object] | None = None,
        listen: str = "127.0.0.1:0",
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._place = os.fspath(warehouse)
        self._settings = dict(settings or {})
        self._listen = listen
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._peak_rss_bytes = 0

    @property
    def warehouse(self) -> Path:
        """The warehouse's directory."""
        assert "://" not in self._place, f"{self._place} is no directory"
        return Path(self._place).absolute()

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """host:port, for `bootstrap.servers`."""
        return self._listen

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the gateway wrote to stderr, over all its starts."""
        if self._log is None:
            return ""
        # pread: the process writes at the offset that this descriptor shares with it.
        number = self._log.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def start(self) -> None:
        """Starts the process, after `terminate` or `kill` on the same port again.

        Raises:
            GatewayProcessError: It ended, or was not ready in time; the message has its log.
        """
        assert self._log is not None, "use it as a context manager"
        assert not self.is_running, "it runs already"
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            log_start = len(self.log)
            process = self._launch(self._log)
            self._process = process
            output = _read_until_listening(process, deadline)
            found = _LISTENING.search(output)
            if found:
                self._listen = f"{found['host']}:{found['port']}"
                return
            ended = process.poll() is not None or not _out_of_time(deadline)
            self.kill()
            log = self.log[log_start:]
            # While the port was free, any connection of this machine may have got it for its own
            # end. That passes.
            if (
                _PORT_TAKEN in log
                and not self._listen.endswith(":0")
                and not _out_of_time(deadline)
            ):
                time.sleep(0.1)
                continue
            what = (
                f"ended with exit code {process.returncode}"
                if ended
                else f"was not ready after {self._start_timeout_s} s"
            )
            raise GatewayProcessError(f"the gateway {what}; its log:\n{log}")

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Sends SIGTERM and waits for the drain; returns the exit code, 0 when all went well.

        Raises:
            GatewayProcessError: It did not end in time. It was killed.
        """
        process = self._running()
        self._note_peak()
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GatewayProcessError(
                f"the gateway was still draining {timeout_s} s after SIGTERM and was killed; "
                f"its log:\n{self.log}"
            ) from None

    def kill(self) -> int:
        """Sends SIGKILL and waits for the end; returns the exit code, -9 if it still ran."""
        process = self._running()
        self._note_peak()
        process.kill()
        return process.wait(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """SIGTERM, then a new process on the same port and warehouse.

        Raises:
            GatewayProcessError: As `terminate` and `start`.
        """
        self.terminate()
        self.start()

    def close(self) -> None:
        """Stops the process if it runs, with SIGTERM, and forgets its log. Safe to repeat."""
        try:
            if self.is_running:
                self.terminate()
        finally:
            if self.is_running:
                self.kill()
            if self._log is not None:
                self._log.close()
                self._log = None

    def rss_bytes(self) -> int:
        """Resident memory now. Linux only, elsewhere 0."""
        return self._status_bytes("VmRSS")

    def peak_rss_bytes(self) -> int:
        """The most resident memory so far, over all starts. Linux only, elsewhere 0."""
        self._note_peak()
        return self._peak_rss_bytes

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "use it as a context manager"
        return self._process

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        # Everybody on the machine can read a command line.
        secret = [
            name for name in self._settings if name in GATEWAY_KEYS and GATEWAY_KEYS[name].secret
        ]
        flags = [f"-X{n}={_text(v)}" for n, v in self._settings.items() if n not in secret]
        run = [sys.executable, "-m", "mainstem.cli", *flags, "gateway", "run"]
        run += ["--warehouse", self._place, "--listen", self._listen]
        if sys.platform == "linux":
            run = [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()), *run]
        environment = {n: v for n, v in os.environ.items() if not n.startswith("MAINSTEM_")}
        for name in secret:
            variable = f"MAINSTEM_{name.upper().replace('.', '_')}"
            environment[variable] = _text(self._settings[name])
        return subprocess.Popen(
            run,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
        )

    def _note_peak(self) -> None:
        self._peak_rss_bytes = max(self._peak_rss_bytes, self._status_bytes("VmHWM"))

    def _status_bytes(self, field: str) -> int:
        if not self.is_running:
            return 0
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) * 1024
        return 0


class GatewayProcessError(RuntimeError):
    """The gateway did not start or stop as it should; the message has its log."""


def _read_until_listening(process: subprocess.Popen[bytes], deadline: float) -> str:
    """Reads stdout until the line with the address, the end, or the deadline; then closes it."""
    assert process.stdout is not None
    output = b""
    with process.stdout as pipe:
        while not _LISTENING.search(output.decode(errors="replace")):
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(pipe.fileno(), 4096) if ready else b""
            if not chunk:
                break
            output += chunk
    return output.decode(errors="replace")


def _out_of_time(deadline: float) -> bool:
    return time.monotonic() >= deadline


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
