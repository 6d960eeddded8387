"""A topic that other programs read: with the records and files that may trouble them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.delta_log.upkeep import write_checkpoint

TOPIC = "orders"

#: How the files of the topic are laid out.
LAYOUTS = ("fresh", "compacted")

RECORDS = [
    Record(b"value", b"key", START_MS, [("h", b"1"), ("h", None), ("", b"")]),
    Record(b"", b"", START_MS + 1),
    Record(None, None, START_MS + 999),
    Record(bytes(range(256)), "ключ".encode(), 0),
    Record(b"x" * 5000, b"far", START_MS - 10**11),
]
COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

#: How often partition 0 and partition 2 have `RECORDS`; partition 1 is empty.
_TIMES = {0: 4, 2: 1}


def fill(topic_log: TopicLog, layout: str = "fresh") -> str:
    """Makes the topic; returns the URI of its table.

    Fresh, it has files of one record and larger ones, some rolled up, and some behind a checkpoint;
    compacted, it has a file a partition.
    """
    topic_log.create(TOPIC, 3)
    topic_log.append(TOPIC, *((partition, RECORDS) for partition in (0, 2)))
    opened = topic_log.topics.open(TOPIC)
    write_checkpoint(opened.store)
    topic_log.append(TOPIC, (0, RECORDS[:2]), (0, RECORDS[2:]))
    topic_log.append(TOPIC, *((0, [record]) for record in RECORDS * 2))
    topic_log.roll_up(TOPIC, 0, 4, 10)
    if layout == "compacted":
        for partition in _TIMES:
            topic_log.merge(TOPIC, partition)
    return topic_log.topics.uri(TOPIC)


def expected(*partitions: int) -> list[Row]:
    """Every row of the topic, or of some partitions."""

    def rows(partition: int) -> Iterator[Row]:
        for offset, one in enumerate(RECORDS * _TIMES.get(partition, 0)):
            headers = None if one.headers is None else list(one.headers)
            yield (partition, offset, one.timestamp_ms, one.key, one.value, headers)

    return [row for partition in partitions or range(3) for row in rows(partition)]


def rows_of(table: pa.Table) -> list[Row]:
    """What a reader has found, in the order of the log."""
    found: list[Row] = []
    for row in table.select(COLUMNS).to_pylist():
        headers = row["headers"]
        found.append(
            (
                row["partition"],
                row["offset"],
                round(row["timestamp"].timestamp() * 1000),
                row["key"],
                row["value"],
                None if headers is None else [(one["key"], one["value"]) for one in headers],
            )
        )
    return sorted(found, key=lambda row: row[:2])
