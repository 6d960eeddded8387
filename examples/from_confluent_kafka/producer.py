"""A producer written for confluent-kafka; its import is all that changed.

Run: python examples/from_confluent_kafka/producer.py 127.0.0.1:9490 orders < lines.txt
"""

import sys

from mainstem.compat.confluent import KafkaError, KafkaException, Message, Producer


def delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        print(f"failed: {error.str()}", file=sys.stderr)
    else:
        print(f"{message.topic()} [{message.partition()}] at offset {message.offset()}")


def main(servers: str, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "lines",
            "security.protocol": "PLAINTEXT",
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.ms": 5,
            "message.timeout.ms": 60_000,
            "compression.codec": "lz4",
            "statistics.interval.ms": 0,
            "error_cb": lambda error: print(f"error: {error}", file=sys.stderr),
        }
    )
    for number, line in enumerate(sys.stdin):
        while True:
            try:
                producer.produce(topic, line.rstrip("\n"), key=str(number), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(1)
            except KafkaException as failure:
                sys.exit(f"cannot produce: {failure}")
        producer.poll(0)
    left = producer.flush(30)
    if left:
        sys.exit(f"{left} messages were not delivered")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
