"""A real gateway whose event loop is watched: for how long at most something held it.

Usage: python watched_gateway.py WAREHOUSE PAGE_FILE [KEY=VALUE]...
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvloop

from mainstem.config import load_gateway_config
from mainstem.ingest_gateway import configure_logging, serve

_TICK_S = 0.005
_SECONDS = struct.Struct("d")


class WatchedGateway:
    """What the test sees of the process.

    Attributes:
        address: host:port.
    """

    def __init__(self, address: str, process: subprocess.Popen[bytes], page: mmap.mmap) -> None:
        self.address = address
        self._process = process
        self._page = page

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory now."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not tell VmRSS")

    def take_stall_ms(self) -> float:
        """The longest stall of the event loop since the last call.

        A stall is the time for which the loop did not come round, as far as the process had the
        processor in it: what other processes take is not the gateway's fault.
        """
        (seconds,) = _SECONDS.unpack_from(self._page)
        _SECONDS.pack_into(self._page, 0, 0.0)
        return float(seconds) * 1000


@contextmanager
def watched_gateway(folder: Path, settings: Mapping[str, object]) -> Iterator[WatchedGateway]:
    """A gateway with its warehouse in the folder while the block lasts; its end must be clean."""
    page_file, log_file = folder / "page", folder / "gateway.log"
    page_file.write_bytes(bytes(mmap.PAGESIZE))
    command = [sys.executable, __file__, str(folder / "warehouse"), str(page_file)]
    command += [f"{name}={value}" for name, value in settings.items()]
    with (
        open(page_file, "r+b") as file,
        mmap.mmap(file.fileno(), 0) as page,
        open(log_file, "wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert line.startswith("listening on "), log_file.read_text()
            yield WatchedGateway(line.removeprefix("listening on ").strip(), process, page)
            process.terminate()
            assert process.wait(timeout=90) == 0, log_file.read_text()
        finally:
            if process.poll() is None:
                process.kill()


async def _watch(page: mmap.mmap) -> None:
    """Notes how late the loop is; ends the process when the one that started it is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        at, used = time.monotonic(), time.process_time()
        await asyncio.sleep(_TICK_S)
        late_s = time.monotonic() - at - _TICK_S
        stalled_s = min(late_s, time.process_time() - used)
        if stalled_s > _SECONDS.unpack_from(page)[0]:
            _SECONDS.pack_into(page, 0, stalled_s)
    os._exit(1)


async def _serve(warehouse: str, page: mmap.mmap, settings: list[str]) -> None:
    flags: dict[str, object] = {"warehouse": warehouse, "listeners": "127.0.0.1:0"}
    for setting in settings:
        name, _, value = setting.partition("=")
        flags[name] = value
    config = load_gateway_config(environment={}, flags=flags)
    configure_logging(config)
    watching: list[asyncio.Task[None]] = []

    def ready(address: str) -> None:
        watching.append(asyncio.create_task(_watch(page)))
        print(f"listening on {address}", flush=True)

    await serve(config, ready)


def main() -> None:
    warehouse, page_file, *settings = sys.argv[1:]
    with open(page_file, "r+b") as file, mmap.mmap(file.fileno(), 0) as page:
        uvloop.run(_serve(warehouse, page, settings))


if __name__ == "__main__":
    main()
