"""Drop-in classes for programs that were written for a Kafka client.

    from mainstem.compat.confluent import Consumer, Producer  # was: from confluent_kafka import ...
    from mainstem.compat.aiokafka import AIOKafkaProducer  # was: from aiokafka import ...

They are adapters over `mainstem.client`: the same producer, consumer and administration, with the
call shapes of the other library. docs/guides/coming-from-kafka.md says what differs.
"""
