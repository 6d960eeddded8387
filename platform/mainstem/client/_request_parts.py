"""Cuts what is more than one request may have into several. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from google.protobuf.message import Message

from mainstem.limits import MIB

M = TypeVar("M", bound=Message)

#: What the channels of an `AdminClient` send in one message, beside its other fields.
PART_BYTES_MAX: Final = MIB

#: Of a message inside another one: its tag and its length.
_FRAME_BYTES: Final = 8


def request_parts(
    messages: Iterable[M], count_max: int, bytes_max: int = PART_BYTES_MAX
) -> Iterator[list[M]]:
    """The messages in their order, in as few parts as have no more than `count_max` messages and
    `bytes_max` bytes each; one message at least."""
    part: list[M] = []
    size_bytes = 0
    for message in messages:
        message_bytes = message.ByteSize() + _FRAME_BYTES
        if part and (len(part) == count_max or size_bytes + message_bytes > bytes_max):
            yield part
            part, size_bytes = [], 0
        part.append(message)
        size_bytes += message_bytes
    if part:
        yield part
