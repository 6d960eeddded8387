"""Consume a topic, transform its records, produce the results: each once, whatever crashes.

    python examples/exactly_once_transform.py 127.0.0.1:9490 orders big-orders worker-1

The results and the offsets of what they were made of are committed in one transaction. A process
that is killed leaves an open transaction, which is aborted; who takes its partitions over goes on
from the committed offsets. Start several, each with a name of its own, which it keeps when it is
started again: that name fences the process before it, should that one still be alive.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from mainstem.client import (
    OFFSET_STORED,
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
)
from mainstem.errors import MainstemError


def transform(record: ConsumerRecord) -> bytes:
    return (record.value or b"").upper()


def next_offsets(records: Sequence[ConsumerRecord]) -> list[TopicPartition]:
    """Of each partition the offset behind the last of these records."""
    found = {(one.topic, one.partition): one.offset + 1 for one in records}
    return [TopicPartition(topic, number, offset) for (topic, number), offset in found.items()]


def go_back(consumer: Consumer) -> None:
    """What was read and not committed comes again."""
    for tp in consumer.assignment():
        consumer.seek(TopicPartition(tp.topic, tp.partition, OFFSET_STORED))


def main(servers: str, source: str, target: str, name: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{source}-to-{target}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # How long the partitions of a killed process wait for it.
            "session.timeout.ms": 3_000,
        }
    )
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": f"{source}-to-{target}-{name}"}
    )
    with consumer, producer:
        producer.init_transactions()
        consumer.subscribe([source])
        while True:
            records = consumer.consume(500, timeout=0.1)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.produce(target, transform(record), key=record.key)
                    producer.send_offsets_to_transaction(
                        next_offsets(records), consumer.consumer_group_metadata()
                    )
            except MainstemError as error:
                if not error.abortable:
                    raise
                # A rebalance, or a gateway that ended: nothing of it is in the log.
                print(f"again: {error}", flush=True)
                go_back(consumer)
            else:
                print(f"{len(records)} transformed", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        main(*sys.argv[1:])
