"""Administration written for confluent-kafka; its import is all that changed.

Run: python examples/from_confluent_kafka/admin.py 127.0.0.1:9490 orders
"""

import sys

from mainstem.compat.confluent import KafkaError, KafkaException
from mainstem.compat.confluent.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)


def main(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(
        topic, num_partitions=3, replication_factor=1, config={"retention.ms": "86400000"}
    )
    for name, future in admin.create_topics([new]).items():
        try:
            future.result()
            print(f"created {name}")
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            print(f"{name} exists")

    for future in admin.create_partitions([NewPartitions(topic, 4)]).values():
        future.result()

    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    )
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result()
    for described in admin.describe_configs([ConfigResource("topic", topic)]).values():
        print(f"retention.ms is {described.result()['retention.ms'].value}")

    metadata = admin.list_topics(timeout=10)
    print(f"{topic} has {len(metadata.topics[topic].partitions)} partitions")
    print(f"{len(metadata.brokers)} brokers, cluster {metadata.cluster_id}")
    for group in admin.list_consumer_groups(request_timeout=10).result().valid:
        print(f"group {group.group_id} is {group.state.name if group.state else 'UNKNOWN'}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
