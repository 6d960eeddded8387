"""Keeps groups coordinated when none of their members is there to ask for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

import structlog

from mainstem.consumers.offsets_table import NAME
from mainstem.delta_log import ObjectStore
from mainstem.delta_log.topics import SYSTEM, TRANSACTIONS_TABLE, Topics
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.groups.coordination import GroupCoordination

log = structlog.get_logger()

#: A transaction that is decided is to be whole soon, whoever is left to ask for it.
FIRST_WATCH_S = 1.0

#: After a restart members that live have come long before, so that it is not this which begins to
#: coordinate while they still look for the gateway.
WATCH_EVERY_S = 30.0


async def watch_groups(coordination: GroupCoordination, store: ObjectStore, pool: Executor) -> None:
    """Begins to coordinate where there are offsets and nobody does, until it is cancelled; soon
    after the start where there were transactions.

    A coordinator begins when somebody asks. A group whose members are all dead asks nothing, and
    it is the one whose lag has to be seen, and whose offsets have to be forgotten one day.
    """
    tables = Topics(store, folder=SYSTEM)
    loop = asyncio.get_running_loop()
    name, wait_s = TRANSACTIONS_TABLE, FIRST_WATCH_S
    while True:
        await asyncio.sleep(wait_s)
        try:
            if coordination.now() is None and await loop.run_in_executor(pool, tables.exists, name):
                await coordination.started()
        except MainstemError:
            pass  # another gateway coordinates, or it is tried again; who asks is told
        except Exception:
            log.exception("groups are not watched")
        name, wait_s = NAME, WATCH_EVERY_S
