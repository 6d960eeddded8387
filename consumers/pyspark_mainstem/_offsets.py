"""Offsets of many partitions: Kafka's JSON for them, and the arithmetic of a micro-batch. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from mainstem.errors import InvalidConfigError

#: In Kafka's JSON: the end of the partition as it is, and its first record.
LATEST: Final = -1
EARLIEST: Final = -2


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Records of one partition: offsets [start, end)."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def to_checkpoint(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As the checkpoint has it: `{"topic": {"0": 23}}`, topics and partitions in order.

    The order matters: Spark compares the text to find out whether there is anything new.
    """
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_checkpoint(parsed: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The reverse of `to_checkpoint`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in parsed.items()
        for partition, offset in partitions.items()
    }


def parse_offsets_json(option: str, text: str, *, lowest: int = EARLIEST) -> Offsets:
    """Reads an option of the form `{"topic": {"0": 23, "1": -1}}`.

    Args:
        lowest: The smallest number that is allowed: EARLIEST for offsets, 0 for timestamps.

    Raises:
        InvalidConfigError: It has another form.
    """
    offsets: Offsets = {}
    try:
        parsed = json.loads(text)
        for topic, partitions in parsed.items():
            for partition, number in partitions.items():
                if not _is_integer(number) or number < lowest:
                    raise ValueError(f"{number!r} for partition {partition}")
                offsets[TopicPartition(topic, int(partition))] = number
    except (ValueError, AttributeError) as error:
        raise InvalidConfigError(
            f'{option} is {text!r}; it must have the form {{"topicA":{{"0":23,"1":-1}}}} with '
            "whole numbers of at "
            f"least {lowest} ({error})",
            name=option,
        ) from error
    return offsets


def parse_assign_json(text: str) -> list[TopicPartition]:
    """Reads the option `assign`: `{"topicA":[0,1],"topicB":[2]}`.

    Raises:
        InvalidConfigError: It has another form, or names no partition.
    """
    found: set[TopicPartition] = set()
    try:
        for topic, partitions in json.loads(text).items():
            for partition in partitions:
                if not _is_integer(partition) or partition < 0:
                    raise ValueError(f"{partition!r} is not a partition")
                found.add(TopicPartition(topic, partition))
        if not found:
            raise ValueError("no partition in it")
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidConfigError(
            f'assign is {text!r}; it must have the form {{"topicA":[0,1],"topicB":[0,1]}} '
            f"({error})",
            name="assign",
        ) from error
    return sorted(found)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_all_named(
    option: str, named: Iterable[TopicPartition], assigned: Iterable[TopicPartition]
) -> None:
    """Refuses a JSON option that leaves out a partition, or names one that is not read.

    Raises:
        InvalidConfigError: With both lists, as Kafka's source says it.
    """
    named, assigned = set(named), set(assigned)
    if named != assigned:
        raise InvalidConfigError(
            f"if {option} names partitions it must name all of them, and no others: use -1 for the "
            "latest offset and "
            f"-2 for the earliest where any will do. Specified: {_list(named)}; assigned: "
            f"{_list(assigned)}",
            name=option,
        )


def _list(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


def limit_rate(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Offsets:
    """Where a micro-batch of about `limit` records ends, each partition in proportion to what it
    has waiting.

    Every partition with something waiting moves by at least one record, so the batch can have up to
    one record more a partition. Source: `rateLimit` of Spark's Kafka source.

    Args:
        start: For each partition in `end`.
        end: The log end offsets.
    """
    sizes = {where: end[where] - start[where] for where in end if end[where] > start[where]}
    total = sum(sizes.values())
    if total == 0:
        return dict(end)
    limited = dict(end)
    for where, size in sizes.items():
        share = limit * size / total
        records = math.ceil(share) if share < 1 else math.floor(share)
        limited[where] = min(end[where], start[where] + records)
    return limited
