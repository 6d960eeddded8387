"""Produce with the Python client: with a callback, with a future, and a whole batch at once.

Usage: python producer.py HOST:PORT TOPIC
"""

from __future__ import annotations

import sys

import pyarrow as pa

from mainstem.client import Producer, RecordMetadata
from mainstem.errors import MainstemError


def report(error: MainstemError | None, where: RecordMetadata) -> None:
    """Called by poll(), flush() and close(), once for each record that has it."""
    if error is not None:
        print(f"not delivered: {error.code}: {error.message}")
    else:
        print(f"callback: partition {where.partition}, offset {where.offset}")


def main(address: str, topic: str) -> None:
    # Leaving the block flushes: nothing is lost without an exception or a report.
    with Producer({"bootstrap.servers": address}) as producer:
        # As in confluent-kafka: queue a record, hear of it later. The same key, the same partition.
        producer.produce(topic, b'{"total": 9.5}', key="alice", on_delivery=report)
        producer.poll(0)

        # A future, for who wants to wait for one record.
        sent = producer.send(topic, b'{"total": 3.0}', key="bob", headers={"source": b"example"})
        where = sent.result(timeout=30)
        print(f"future: partition {where.partition}, offset {where.offset}")

        # Many at once: the fastest way. A null value is not an empty one.
        batch = pa.record_batch(
            {"key": ["alice", "bob", "carol"], "value": [b'{"total": 1.0}', b"", None]}
        )
        done = producer.produce_batch(topic, batch).result(timeout=30)
        for part in done.offsets:
            print(
                f"batch: partition {part.partition}, {part.record_count} records from offset "
                f"{part.base_offset}, table version {done.table_version}"
            )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
