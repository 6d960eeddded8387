"""Copy a topic into SQLite, each record once, whatever crashes.

    python examples/exactly_once_sqlite.py 127.0.0.1:9490 orders orders.db

The next offset of each partition is stored in the transaction that stores the records. After a
crash the program goes on where the database says, not where the group does. Start several: the
partitions are shared, and a member that was put out without knowing it cannot store a record twice,
because its transaction finds that the offset has moved on.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Sequence

from mainstem.client import OFFSET_BEGINNING, Consumer, ConsumerRecord, TopicPartition


class Sink:
    """The database: records, and where to go on."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=60.0)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS record (topic, partition, offset, key, value)"
        )
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS progress "
            "(topic, partition, next_offset, PRIMARY KEY (topic, partition))"
        )

    def next_offset(self, topic: str, partition: int) -> int | None:
        """Where to go on; None: nothing is stored yet."""
        found = self._database.execute(
            "SELECT next_offset FROM progress WHERE topic = ? AND partition = ?", (topic, partition)
        ).fetchone()
        return None if found is None else int(found[0])

    def store(self, records: Sequence[ConsumerRecord]) -> None:
        """Stores what is not stored yet, and the progress, in one transaction."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for record in records:
                done = self.next_offset(record.topic, record.partition)
                if done is not None and record.offset < done:
                    continue
                self._database.execute(
                    "INSERT INTO record VALUES (?, ?, ?, ?, ?)",
                    (record.topic, record.partition, record.offset, record.key, record.value),
                )
                self._database.execute(
                    "INSERT OR REPLACE INTO progress VALUES (?, ?, ?)",
                    (record.topic, record.partition, record.offset + 1),
                )
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def main(servers: str, topic: str, path: str) -> None:
    sink = Sink(path)

    def go_on(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            offset = sink.next_offset(tp.topic, tp.partition)
            where = OFFSET_BEGINNING if offset is None else offset
            consumer.seek(TopicPartition(tp.topic, tp.partition, where))

    config = {
        "bootstrap.servers": servers,
        "group.id": f"sqlite-{topic}",
        "enable.auto.commit": False,
        # How long the partitions of a killed process wait for it.
        "session.timeout.ms": 3_000,
    }
    with Consumer(config) as consumer:
        consumer.subscribe([topic], on_assign=go_on)
        while True:
            records = consumer.consume(200, timeout=0.1)
            if records:
                sink.store(records)
                print(f"{len(records)} stored", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        main(*sys.argv[1:])
