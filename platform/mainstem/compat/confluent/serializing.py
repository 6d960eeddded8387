"""A producer and a consumer that serialize: SerializingProducer, DeserializingConsumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainstem.compat.confluent.consumer import Consumer
from mainstem.compat.confluent.error import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from mainstem.compat.confluent.model import Message
from mainstem.compat.confluent.producer import OnDelivery, Producer
from mainstem.compat.confluent.serialization import MessageField, SerializationContext


class SerializingProducer(Producer):
    """A Producer with `key.serializer` and `value.serializer`, functions (object, context)."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        config = dict(conf)
        self._key_serializer = config.pop("key.serializer", None)
        self._value_serializer = config.pop("value.serializer", None)
        super().__init__(config)

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """As Producer.produce; `key` and `value` go through the serializers, `key` first.

        Raises:
            KeySerializationError, ValueSerializationError: A serializer raised.
        """
        if self._key_serializer is not None:
            try:
                context = SerializationContext(topic, MessageField.KEY, headers)
                key = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        if self._value_serializer is not None:
            try:
                context = SerializationContext(topic, MessageField.VALUE, headers)
                value = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(
            topic, value, key, partition, on_delivery, timestamp=timestamp, headers=headers
        )


class DeserializingConsumer(Consumer):
    """A Consumer with `key.deserializer` and `value.deserializer`, functions (bytes, context)."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        config = dict(conf)
        self._key_deserializer = config.pop("key.deserializer", None)
        self._value_deserializer = config.pop("value.deserializer", None)
        super().__init__(config)

    def poll(self, timeout: float | None = -1) -> Message | None:
        """As Consumer.poll; keys and values have gone through the deserializers.

        Raises:
            ConsumeError: The message is an error.
            KeyDeserializationError, ValueDeserializationError: A deserializer raised.
        """
        message = super().poll(timeout)
        return None if message is None else self._deserialized(message)

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Refused, as in confluent-kafka: poll() one message after the other."""
        raise NotImplementedError("a DeserializingConsumer has no consume(); use poll()")

    def _deserialized(self, message: Message) -> Message:
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        topic, headers = message.topic() or "", message.headers()
        if self._value_deserializer is not None:
            try:
                context = SerializationContext(topic, MessageField.VALUE, headers)
                value = self._value_deserializer(message.value(), context)
            except Exception as failure:
                raise ValueDeserializationError(failure, message) from failure
            message.set_value(value)
        if self._key_deserializer is not None:
            try:
                context = SerializationContext(topic, MessageField.KEY, headers)
                key = self._key_deserializer(message.key(), context)
            except Exception as failure:
                raise KeyDeserializationError(failure, message) from failure
            message.set_key(key)
        return message
