"""A queue of work: start it as often as you like, and each record goes to one of the workers.

    python examples/work_queue.py 127.0.0.1:9490 orders

The workers are members of one group, which share the topic's partitions. A record is committed when
its work is done: a worker that dies leaves what it had not committed to the others, so work may be
done twice, and is never left out.
"""

from __future__ import annotations

import contextlib
import os
import sys

from mainstem.client import Consumer, ConsumerRecord


def work(record: ConsumerRecord) -> None:
    print(f"worker {os.getpid()}: {record.value!r}", flush=True)


def main(servers: str, topic: str) -> None:
    config = {
        "bootstrap.servers": servers,
        "group.id": f"workers-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        # How long the records of a killed worker wait for another.
        "session.timeout.ms": 3_000,
    }
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while True:
            records = consumer.consume(100, timeout=0.2)
            for record in records:
                work(record)
            if records:
                consumer.commit(asynchronous=False)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        main(sys.argv[1], sys.argv[2])
