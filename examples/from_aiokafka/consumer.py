"""A consumer written for aiokafka; its import is all that changed.

It reads records in batches and commits each batch, with a listener that says what moves.
Run: python examples/from_aiokafka/consumer.py 127.0.0.1:9490 readers orders 100
"""

import asyncio
import json
import sys
from collections.abc import Iterable

from mainstem.compat.aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    TopicPartition,
)


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        print("revoked", sorted(revoked), file=sys.stderr)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        for tp in sorted(assigned):
            print("assigned", tp, await self.consumer.committed(tp), file=sys.stderr)


async def main(servers: str, group: str, topic: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=50,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
    )
    consumer.subscribe([topic], listener=Listener(consumer))
    await consumer.start()
    try:
        seen = 0
        while seen < count:
            batches = await consumer.getmany(timeout_ms=1000)
            for tp, records in batches.items():
                for record in records:
                    print(record.key, record.value["order"])
                seen += len(records)
                await consumer.commit({tp: records[-1].offset + 1})
        ends = await consumer.end_offsets(consumer.assignment())
        left = sum(ends.values()) - sum([await consumer.position(tp) for tp in ends])
        print(f"{left} left", file=sys.stderr)
    finally:
        await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
