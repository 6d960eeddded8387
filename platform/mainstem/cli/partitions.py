"""Which partitions `mainstem group ...` is about, and where their logs begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from mainstem.cli.completion import complete_topics

if TYPE_CHECKING:
    from mainstem.client import AdminClient, TopicPartition
    from mainstem.errors import MainstemError

topics_option = click.option(
    "-T",
    "--topics",
    multiple=True,
    metavar="TOPIC,...",
    help="Only these topics; may be repeated.",
    shell_complete=complete_topics,
)
partitions_option = click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition of each topic; may be repeated.",
)


def split_topics(texts: Iterable[str]) -> list[str]:
    """The names in `--topics a,b --topics c`, each once."""
    return list(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name))


def all_partitions(
    admin: AdminClient, topics: Iterable[str], numbers: Sequence[int], timeout_s: float
) -> list[TopicPartition]:
    """The partitions of topics, or with `numbers` only these of each.

    Raises:
        UnknownTopicError, UnknownPartitionError, TopicAuthorizationError: As named.
    """
    from mainstem.client import TopicPartition
    from mainstem.errors import UnknownPartitionError, UnknownTopicError

    counts = {one.topic: one.partition_count for one in admin.list_topics(timeout=timeout_s)}
    found = []
    for topic in topics:
        count = counts.get(topic)
        if count is None:
            admin.describe_topic(topic, timeout=timeout_s)  # says so where it may not be seen
            raise UnknownTopicError(f"topic {topic} does not exist", topic=topic)
        for number in numbers:
            if number >= count:
                raise UnknownPartitionError(
                    f"topic {topic} has no partition {number}; it has partitions 0 to {count - 1}",
                    topic=topic,
                    partition=number,
                )
        found += [TopicPartition(topic, number) for number in sorted(set(numbers)) or range(count)]
    return found


def offset_bounds(
    admin: AdminClient, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, tuple[int, int]]:
    """Log start offset and high watermark of each partition.

    Raises:
        MainstemError: One cannot be read, or does not exist.
    """
    from mainstem.client import OFFSET_BEGINNING, OFFSET_END

    tps = list(partitions)
    low = offsets_at(admin, dict.fromkeys(tps, OFFSET_BEGINNING), timeout_s)
    high = offsets_at(admin, dict.fromkeys(tps, OFFSET_END), timeout_s)
    return {tp: (low[tp], max(low[tp], high[tp])) for tp in tps}


def offsets_at(
    admin: AdminClient, queries: dict[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int]:
    """`AdminClient.list_offsets`, of which every answer is needed."""
    from mainstem.errors import MainstemError

    found: dict[TopicPartition, int] = {}
    for tp, answer in admin.list_offsets(queries, timeout=timeout_s).items():
        if isinstance(answer, MainstemError):
            raise answer
        found[tp] = answer
    return found


def members_refusal(admin: AdminClient, group_id: str, timeout_s: float) -> MainstemError | None:
    """Why nothing of the group can be changed: it has members. The gateway refuses it too."""
    from mainstem.errors import GroupNotEmptyError, MainstemError, UnknownGroupError

    found = admin.describe_consumer_groups([group_id], timeout=timeout_s)[group_id]
    if isinstance(found, UnknownGroupError):
        return None
    if isinstance(found, MainstemError):
        raise found
    if not found.members:
        return None
    count = len(found.members)
    names = sorted({one.client_id or one.member_id for one in found.members})
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return GroupNotEmptyError(
        f"group {group_id} has {count} member{'s' * (count > 1)} ({shown}): stop them "
        "first, or wait until their sessions end",
        group=group_id,
        member_count=count,
    )
