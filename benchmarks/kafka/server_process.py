"""A server of another system: a process with new data, while a block lasts."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

_STOP_S: Final = 30.0


class ServerProcess(ABC):
    """Makes a directory of its own, starts the server, and removes both at the end.

    Args:
        name: The system's, for errors and the directory.
        parent: Where the directory is made; None: among temporary files.

    Attributes:
        address: host:port, once it runs.

    Raises:
        RuntimeError: It is not installed, or does not start; the message has its log.
    """

    def __init__(self, name: str, parent: Path | None) -> None:
        self._name = name
        self._parent = parent
        self._made: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.address = ""

    @abstractmethod
    def _prepare(self) -> Sequence[str]:
        """Writes its settings into the directory; returns the command that starts it."""

    @abstractmethod
    def _wait_for_address(self, process: subprocess.Popen[bytes]) -> str:
        """host:port, once it listens; empty: it ended, or took too long."""

    @property
    def _directory(self) -> Path:
        assert self._made is not None
        return self._made

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self._made = Path(tempfile.mkdtemp(prefix=f"{self._name.lower()}-", dir=self._parent))
        try:
            log = self._directory / "server.log"
            command = self._prepare()
            self._log = log.open("wb")
            self._process = subprocess.Popen(
                command,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.address = self._wait_for_address(self._process)
            if not self.address:
                said = log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{self._name} does not listen in time:\n{said}")
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

    def close(self) -> None:
        """Stops it and removes its data."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
