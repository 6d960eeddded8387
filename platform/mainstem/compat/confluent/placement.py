"""confluent_kafka's functions that say which partition a key belongs to."""

from __future__ import annotations

import zlib
from typing import Final

from mainstem.records import murmur2 as _hash

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


def murmur2(key: bytes, partition_count: int) -> int:
    """Where mainstem and Kafka's Java client place a key.

    Raises:
        TypeError: The key is not bytes.
        ValueError: partition_count is below 1.
    """
    _check(key, partition_count)
    return (_hash(key) & 0x7FFFFFFF) % partition_count


def consistent(key: bytes, partition_count: int) -> int:
    """Where librdkafka places a key by default: by its CRC32. Raises as murmur2 does."""
    _check(key, partition_count)
    return zlib.crc32(key) % partition_count


def fnv1a(key: bytes, partition_count: int) -> int:
    """Where Sarama places a key: by its FNV-1a hash of 32 bits. Raises as murmur2 does."""
    _check(key, partition_count)
    found = _FNV_OFFSET
    for byte in key:
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return (found if found < 1 << 31 else (1 << 32) - found) % partition_count


def _check(key: bytes, partition_count: int) -> None:
    if not isinstance(key, bytes):
        raise TypeError(f"key is a {type(key).__name__}; it must be bytes")
    if partition_count < 1:
        raise ValueError(f"partition_count is {partition_count}; it must be 1 or more")
