"""The bytes that Confluent's serialisers put in front of a value: zero, four bytes with the id of a
schema, and for Protobuf the place of the message in its file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

#: The zero byte and the id.
HEADER_BYTES: Final = 5


def split_frame(value: bytes) -> tuple[int, bytes]:
    """The id of the schema, and what follows.

    Raises:
        ValueError: There is no such header.
    """
    if len(value) < HEADER_BYTES or value[0] != 0:
        raise ValueError(
            "the value does not begin as Confluent's serialisers do: a zero byte, four more"
        )
    return int.from_bytes(value[1:HEADER_BYTES], "big"), value[HEADER_BYTES:]


def check_id(found: int, known: Collection[int] | None) -> None:
    """Refuses the id of a schema that nobody named.

    Raises:
        ValueError: It is not among those that are known.
    """
    if known is not None and found not in known:
        raise ValueError(
            f"its schema has the id {found}; given are {', '.join(map(str, sorted(known)))}"
        )


def message_prefixes(path: Sequence[int]) -> tuple[bytes, ...]:
    """What is in front of a Protobuf message, as there are several ways to write it.

    Args:
        path: Its index in the file, that of the message in it, and so on.
    """
    written = b"".join(_zigzag(number) for number in (len(path), *path))
    return (b"\0", written) if list(path) == [0] else (written,)


def _zigzag(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
