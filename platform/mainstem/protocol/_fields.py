"""Protobuf fields that are put together by hand, where a message object would copy every record.

Source: the protobuf encoding guide.
"""

from __future__ import annotations

from google.protobuf.message import Message


def varint(number: int) -> bytes:
    """A number that is not negative, seven bits a byte."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field_tag(message: type[Message], field: str) -> bytes:
    """What stands before a field of bytes or of a message, and before its length."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)
