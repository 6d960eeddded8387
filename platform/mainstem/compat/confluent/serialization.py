"""confluent_kafka.serialization: what turns keys and values into bytes, and back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NoReturn

from mainstem.compat.confluent.error import SerializationError


class MessageField(StrEnum):
    """Which part of a message."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """What is serialized: of which topic, which part, with which headers."""

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


#: A serializer or deserializer: a function, or an object of one of the classes below.
Serializing = Callable[..., Any]


class Serializer:
    """The base of serializers: `serializer(obj, ctx)` gives bytes or None."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> Any:
        """The bytes of `obj`."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing, unless a subclass has something to close."""

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Nothing, unless a subclass asks for the cluster's name."""


class Deserializer:
    """The base of deserializers: `deserializer(data, ctx)` gives an object or None."""

    def __call__(self, value: Any, ctx: SerializationContext | None = None) -> Any:
        """The object of `value`."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing, unless a subclass has something to close."""

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Nothing, unless a subclass asks for the cluster's name."""


class _Packed:
    _format = ""

    def _pack(self, obj: Any) -> bytes | None:
        try:
            return None if obj is None else struct.pack(self._format, obj)
        except struct.error as error:
            raise SerializationError(str(error)) from error

    def _unpack(self, value: bytes | None) -> Any:
        try:
            return None if value is None else struct.unpack(self._format, value)[0]
        except struct.error as error:
            raise SerializationError(str(error)) from error


class IntegerSerializer(_Packed, Serializer):
    """int to four bytes, the highest first."""

    _format = ">i"

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> Any:
        """The bytes of an int."""
        return self._pack(obj)


class IntegerDeserializer(_Packed, Deserializer):
    """Four bytes, the highest first, to int."""

    _format = ">i"

    def __call__(self, value: Any, ctx: SerializationContext | None = None) -> Any:
        """The int of four bytes."""
        return self._unpack(value)


class DoubleSerializer(_Packed, Serializer):
    """float to eight bytes of IEEE 754, the highest first."""

    _format = ">d"

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> Any:
        """The bytes of a float."""
        return self._pack(obj)


class DoubleDeserializer(_Packed, Deserializer):
    """Eight bytes of IEEE 754, the highest first, to float."""

    _format = ">d"

    def __call__(self, value: Any, ctx: SerializationContext | None = None) -> Any:
        """The float of eight bytes."""
        return self._unpack(value)


class StringSerializer(Serializer):
    """str to bytes."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> Any:
        """The bytes of a text."""
        try:
            return None if obj is None else obj.encode(self.codec)
        except (AttributeError, UnicodeError) as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """bytes to str."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: Any, ctx: SerializationContext | None = None) -> Any:
        """The text of bytes."""
        try:
            return None if value is None else value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


__all__ = [
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
]

#: Names of confluent_kafka.serialization that cannot be imported, and why.
REFUSED: Final = {
    **dict.fromkeys(
        ("SerializerBuilder", "DeserializerBuilder"),
        "give the serializer itself as key.serializer, value.deserializer and the like",
    )
}


def __getattr__(name: str) -> NoReturn:
    if name in REFUSED:
        raise ImportError(f"{name} does not exist here: {REFUSED[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
