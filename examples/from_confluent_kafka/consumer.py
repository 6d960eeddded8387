"""A consumer written for confluent-kafka; its import is all that changed.

It commits by itself, starts over with --rewind, and ends when it has read every partition to its
end. Run: python examples/from_confluent_kafka/consumer.py 127.0.0.1:9490 readers orders
"""

import sys

from mainstem.compat.confluent import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

COMMIT_EVERY = 100


def main(servers: str, group: str, topics: list[str], rewind: bool) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "session.timeout.ms": 6000,
            "auto.offset.reset": "smallest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    at_end: set[TopicPartition] = set()
    assigned: list[TopicPartition] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.extend(partitions)
        if rewind:
            for partition in partitions:
                partition.offset = OFFSET_BEGINNING
        consumer.incremental_assign(partitions)

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._NO_OFFSET:
                raise
        consumer.incremental_unassign(partitions)

    consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke)
    count = 0
    try:
        while not assigned or len(at_end) < len(assigned):
            message = consumer.poll(timeout=1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                print(message.key(), message.value())
                count += 1
                if count % COMMIT_EVERY == 0:
                    consumer.commit(asynchronous=False)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(TopicPartition(message.topic() or "", message.partition() or 0))
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    print(f"{count} messages", file=sys.stderr)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--rewind"]
    main(words[0], words[1], words[2:], "--rewind" in sys.argv)
