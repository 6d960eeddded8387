"""Topics of one warehouse in another, record by record, and with them a group's offsets.

    python examples/streams/mirror.py ./warehouse 127.0.0.1:9490 other:9490 ./checkpoints/mirror \\
        flights,airlines my-group

Kafka: MirrorMaker 2. Partitions, keys, headers and timestamps stay; offsets are others where the
source has lost its first records, or compacted. So each record has a header that says which offset
it had, and a group's offset is found with it. Nobody else may write to the topics of the mirror.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from source import arguments, send, stream

from mainstem.client import AdminClient, Consumer, TopicPartition

#: The header with the offset of a record in the source.
HEADER = "mirror-offset"

#: Seconds between two looks at what groups have committed.
EVERY_S = 10


def make_topics(source: AdminClient, target: AdminClient, topics: Sequence[str]) -> None:
    """Those that the mirror lacks, with the partitions and settings of the source."""
    there = {one.topic for one in target.list_topics()}
    for topic in sorted({*topics} - there):
        one = source.describe_topic(topic)
        config = {entry.name: entry.value for entry in one.config if not entry.is_default}
        target.create_topic(topic, len(one.partitions), config)


def mirrored(records: DataFrame) -> DataFrame:
    """What goes to the mirror, of records with their headers."""
    header = (
        f"array(named_struct('key', '{HEADER}', 'value', CAST(CAST(offset AS STRING) AS BINARY)))"
    )
    return records.selectExpr(
        "topic",
        "partition",
        "key",
        "value",
        "timestamp",
        f"concat(coalesce(headers, array()), {header}) AS headers",
    )


def start(
    spark: SparkSession,
    warehouse: str,
    target_servers: str,
    checkpoint: str,
    topics: Sequence[str],
    *,
    available_now: bool = False,
) -> StreamingQuery:
    """Starts the copying: each record once."""
    records = stream(spark, warehouse, ",".join(topics), includeHeaders="true")
    return send(mirrored(records), target_servers, checkpoint, available_now=available_now)


def translate(
    source: AdminClient, target: AdminClient, reader: Consumer, group: str, topics: Sequence[str]
) -> None:
    """Sets the group's offsets in the mirror: to the first record that it has not read yet.

    Where the mirror is behind the group, to its end: nothing is left out, and some is read twice.

    Args:
        reader: A consumer of the mirror, of no group.
    """
    committed = source.list_consumer_group_offsets(group)
    found = [
        TopicPartition(tp.topic, tp.partition, _position(reader, tp, tp.offset))
        for tp in committed
        if tp.topic in topics
    ]
    refused = target.alter_consumer_group_offsets(group, found) if found else {}
    for error in refused.values():
        if error is not None:
            raise error


def _position(reader: Consumer, tp: TopicPartition, offset: int) -> int:
    """The first offset of the mirror whose record was at `offset` or later, by halving."""
    low, high = reader.get_watermark_offsets(tp)
    while low < high:
        middle = (low + high) // 2
        reader.assign([TopicPartition(tp.topic, tp.partition, middle)])
        record = reader.poll(timeout=30.0)
        if record is None:
            raise TimeoutError(f"no record of {tp.topic}-{tp.partition} from {middle} on")
        if _source_offset(record.headers) < offset:
            low = record.offset + 1  # the log may have gaps
        else:
            high = middle
    return low


def _source_offset(headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    value = dict(headers or ()).get(HEADER)
    if value is None:
        raise ValueError(f"somebody else writes to the mirror: a record has no header {HEADER}")
    return int(value)


if __name__ == "__main__":
    spark, warehouse, source_servers, target_servers, checkpoint, names, group = arguments(
        "WAREHOUSE", "SOURCE", "TARGET", "CHECKPOINT", "TOPICS", "GROUP"
    )
    topics = names.split(",")
    with (
        AdminClient({"bootstrap.servers": source_servers}) as source,
        AdminClient({"bootstrap.servers": target_servers}) as target,
        Consumer({"bootstrap.servers": target_servers}) as reader,
    ):
        make_topics(source, target, topics)
        query = start(spark, warehouse, target_servers, checkpoint, topics)
        while not query.awaitTermination(EVERY_S):
            translate(source, target, reader, group, topics)
