"""The gateway process: starts a gateway, waits for a signal, drains, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log.store import Warehouse
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.gateway_logging import set_log_level
from mainstem.ingest_gateway.server import Gateway

log = structlog.get_logger()

#: Settings that a gateway takes over while it runs.
RELOADED: Final = ("log.level",)


async def serve(
    config: GatewayConfig,
    on_ready: Callable[[str], None],
    store: Warehouse | None = None,
    reload: Callable[[], GatewayConfig] | None = None,
) -> None:
    """Runs a gateway until SIGTERM or SIGINT, then drains it. SIGHUP reloads the settings.

    More of these signals change nothing, also after this has returned: the process is about to end,
    and its exit code says whether the drain was clean.

    When not everything that was accepted could be committed in time, this ends the process with
    exit code 1: a store call that hangs would keep it alive.

    Args:
        on_ready: Gets the host:port that is listened on, once requests are answered. What it raises
            ends the gateway as a signal would, and is raised then.
        store: See `Gateway`.
        reload: Reads the settings again, for SIGHUP. None: SIGHUP drains, too.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    settings = _Settings(config)
    on_hangup = stop.set if reload is None else partial(settings.reload, reload)
    handlers = {signal.SIGTERM: stop.set, signal.SIGINT: stop.set, signal.SIGHUP: on_hangup}
    # Not handlers of the loop, which gives the signals back when it closes.
    before = {
        number: signal.signal(number, lambda *_, handle=handle: loop.call_soon_threadsafe(handle))
        for number, handle in handlers.items()
    }
    try:
        _raise_descriptor_limit()
        gateway = Gateway(config, store)
        address = await gateway.start()
    except BaseException:
        for number, earlier in before.items():
            signal.signal(number, earlier)
        raise
    try:
        # What lives as long as the process need not be looked through by the garbage collector
        # again and again: 30 to 50 ms for imports alone, in which no request is answered.
        gc.collect()
        gc.freeze()
        on_ready(address)
        await stop.wait()
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)
        if not await gateway.drain():
            log.error("not everything could be committed within drain.timeout.ms")
            logging.shutdown()
            sys.stdout.flush()
            os._exit(1)


class _Settings:
    """Those that are in force."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config

    def reload(self, read: Callable[[], GatewayConfig]) -> None:
        """Takes over what may change while the gateway runs, and says what else has."""
        try:
            new = read()
        except MainstemError as error:
            log.error("settings not reloaded", error=error.message)
            return
        values = {name: setting.value for name, setting in new.settings.items()}
        changed = {
            name: value
            for name, value in values.items()
            if value != self._config.settings[name].value
        }
        set_log_level(new)
        log.warning(
            "settings reloaded",
            changed={name: changed[name] for name in RELOADED if name in changed},
            need_restart=sorted(changed.keys() - set(RELOADED)),
        )
        self._config = replace(
            self._config,
            settings={**self._config.settings, **{name: new.settings[name] for name in RELOADED}},
        )


def _raise_descriptor_limit() -> None:
    """Every open topic holds a descriptor, and the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
