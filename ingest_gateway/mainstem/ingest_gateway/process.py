"""The gateway process: starts a gateway, waits for a signal, drains, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Final

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log.store import Warehouse
from mainstem.ingest_gateway.server import Gateway

log = structlog.get_logger()

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def serve(
    config: GatewayConfig, on_ready: Callable[[str], None], store: Warehouse | None = None
) -> None:
    """Runs a gateway until SIGTERM, SIGINT or SIGHUP, then drains it.

    More of these signals change nothing, also after this has returned: the process is about to end,
    and its exit code says whether the drain was clean.

    When not everything that was accepted could be committed in time, this ends the process with
    exit code 1: a store call that hangs would keep it alive.

    Args:
        on_ready: Gets the host:port that is listened on, once requests are answered. What it raises
            ends the gateway as a signal would, and is raised then.
        store: See `Gateway`.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOPPING:
        # Not a handler of the loop, which gives the signal back when it closes.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    _raise_descriptor_limit()
    gateway = Gateway(config, store)
    address = await gateway.start()
    try:
        on_ready(address)
        await stop.wait()
    finally:
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
        if not await gateway.drain():
            log.error("not everything could be committed within shutdown.grace.ms")
            logging.shutdown()
            sys.stdout.flush()
            os._exit(1)


def _raise_descriptor_limit() -> None:
    """Every open topic holds a descriptor, and the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
