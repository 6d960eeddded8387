"""A producer written for aiokafka; its import is all that changed.

It sends records as JSON, some of them in one batch.
Run: python examples/from_aiokafka/producer.py 127.0.0.1:9490 orders 100
"""

import asyncio
import json
import sys
import time

from mainstem.compat.aiokafka import AIOKafkaProducer


async def main(servers: str, topic: str, count: int) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        client_id="orders",
        acks="all",
        enable_idempotence=True,
        compression_type="gzip",
        linger_ms=5,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    await producer.start()
    try:
        first = await producer.send_and_wait(topic, {"order": 0}, key="0")
        print(f"{first.topic} [{first.partition}] at offset {first.offset}")
        sent = [
            await producer.send(topic, {"order": number}, key=str(number), headers=[("by", b"me")])
            for number in range(1, count)
        ]
        places = await asyncio.gather(*sent)
        print(f"{1 + len(places)} records")

        partitions = sorted(await producer.partitions_for(topic))
        batch = producer.create_batch()
        while (
            batch.append(key="batch", value={"order": -1}, timestamp=int(time.time() * 1000)) != 9
        ):
            pass
        batch.close()
        place = await (await producer.send_batch(batch, topic, partition=partitions[-1]))
        print(f"{batch.record_count()} more in partition {place.partition}")
    finally:
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
