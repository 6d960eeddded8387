"""The consumers that are started: a transaction names the member that commits its offsets."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable

from mainstem import client

#: By event loop: a consumer's calls belong to its own.
_consumers: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, weakref.WeakKeyDictionary[client.AsyncConsumer, str]
] = weakref.WeakKeyDictionary()


def started(consumer: client.AsyncConsumer, group_id: str) -> None:
    """A consumer of a group runs in this event loop, until nobody has it any more."""
    loop = asyncio.get_running_loop()
    _consumers.setdefault(loop, weakref.WeakKeyDictionary())[consumer] = group_id


def stopped(consumer: client.AsyncConsumer) -> None:
    """It was closed."""
    for consumers in list(_consumers.values()):
        consumers.pop(consumer, None)


async def by_member(
    group_id: str, offsets: Iterable[client.TopicPartition]
) -> list[tuple[client.ConsumerGroupMetadata, list[client.TopicPartition]]]:
    """Offsets with the member that has their partitions; with any member of this event loop where
    none has, which is then refused; and from outside the group where there is no member."""
    running = list(_consumers.get(asyncio.get_running_loop(), weakref.WeakKeyDictionary()).items())
    members = [
        (await consumer.consumer_group_metadata(), set(await consumer.assignment()))
        for consumer, group in running
        if group == group_id
    ]
    if not members:
        members.append((client.ConsumerGroupMetadata(group_id), set()))
    found: list[tuple[client.ConsumerGroupMetadata, list[client.TopicPartition]]] = [
        (member, []) for member, _ in members
    ]
    for offset in offsets:
        owner = next((i for i, (_, owned) in enumerate(members) if offset in owned), 0)
        found[owner][1].append(offset)
    return [(member, some) for member, some in found if some]
