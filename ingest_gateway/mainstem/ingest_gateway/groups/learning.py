"""What a coordinator is told of the topics that its members want."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from mainstem.consumers import TopicInfo
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.groups.group_topics import GroupTopics
from mainstem.ingest_gateway.groups.running import Running
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.several import one_for_each
from mainstem.ingest_gateway.supervised import begin_once

log = structlog.get_logger()


async def learn(
    running: Running, topics: GroupTopics, names: Iterable[str], metrics: GatewayMetrics
) -> None:
    """Tells the coordinator what topics are. One that cannot be read stays as it was.

    A look goes on when its caller goes away: a member whose calls have less time than the looks at
    its topics take would otherwise have them begin from the start each time, and never join. Who
    asks for a topic that is being looked at waits for that look.
    """
    wanted = set(names)
    new = wanted - running.looks.keys()
    if new:
        look = begin_once("look at topics", _look(running, topics, new), metrics)
        running.looks.update(dict.fromkeys(new, look))
    looks = {running.looks[name] for name in wanted}
    if looks:
        await asyncio.wait(looks)
    for look in looks:
        look.result()


async def _look(running: Running, topics: GroupTopics, names: set[str]) -> None:
    async def look(name: str) -> TopicInfo | MainstemError | None:
        try:
            return await topics.topic(name)
        except MainstemError as error:
            return error

    try:
        in_order = sorted(names)
        found: dict[str, TopicInfo | None] = {}
        for name, info in zip(in_order, await one_for_each(in_order, look), strict=True):
            if isinstance(info, MainstemError):
                if name not in running.coordinator.known_topics:
                    running.missing.add(name)
                log.warning("a topic cannot be read", topic=name, error=info.message)
            else:
                found[name] = info
        running.missing |= {name for name, info in found.items() if info is None}
        running.missing -= {name for name, info in found.items() if info is not None}
        running.coordinator.set_topics(found)
    finally:
        for name in names:
            del running.looks[name]
