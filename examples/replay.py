"""Read a topic again from a point in time to where it ends now.

    python examples/replay.py 127.0.0.1:9490 orders 2026-11-01T08:00:00+01:00

No group is involved: partitions are assigned by hand, and nothing is committed.
"""

from __future__ import annotations

import sys
from datetime import datetime

from mainstem.client import OFFSET_END, Consumer, TopicPartition


def main(servers: str, topic: str, time: str) -> None:
    since_ms = round(datetime.fromisoformat(time).timestamp() * 1000)
    with Consumer({"bootstrap.servers": servers}) as consumer:
        count = consumer.list_topics()[topic].partition_count
        asked = [TopicPartition(topic, partition, since_ms) for partition in range(count)]
        # Where each partition's first record of that time or later is, if it has one.
        starts = [tp for tp in consumer.offsets_for_times(asked) if tp.offset != OFFSET_END]
        ends = {tp: consumer.get_watermark_offsets(tp)[1] for tp in starts}
        consumer.assign(starts)
        while any(tp.offset < ends[tp] for tp in consumer.position(starts)):
            for record in consumer.consume(500, timeout=0.2):
                if record.offset < ends[TopicPartition(topic, record.partition)]:
                    print(f"{record.timestamp} {record.value!r}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
