"""What an object of a write-ahead log looks like, byte by byte. Pure.

    object = magic "MSWO" | u32 header length | u32 CRC32C of the header | header (JSON)
           | zeros to 16 bytes | frames, as in a segment
    header = {"kind": "frames" | "open" | "seal", "writer", "gateway", "host", "process"}

An object of the kind `frames` has requests. `open` says that from here on its writer has the log,
`seal` that nobody has, until one follows that is `open`. Both are without frames.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import struct
import uuid
from dataclasses import asdict, dataclass
from typing import Final

import google_crc32c

from mainstem.errors import LogDamagedError

_MAGIC: Final = b"MSWO"
_HEADER: Final = struct.Struct("<4sII")
_ALIGNMENT: Final = 16


class Kind(enum.StrEnum):
    FRAMES = "frames"
    OPEN = "open"
    SEAL = "seal"


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that writes to a log, or seals it.

    Attributes:
        writer: An id that no other process has, nor another opening of the log.
        gateway: Its gateway.id.
        host, process: For messages.
    """

    writer: str
    gateway: str
    host: str
    process: int

    @classmethod
    def new(cls, gateway_id: str) -> Writer:
        return cls(uuid.uuid4().hex, gateway_id, socket.gethostname(), os.getpid())

    def __str__(self) -> str:
        return f"gateway {self.gateway}, process {self.process} on {self.host}"


@dataclass(frozen=True, slots=True)
class WalObject:
    """An object as it was found.

    Attributes:
        frames_at: Where in the object its frames begin.
    """

    kind: Kind
    by: Writer
    frames_at: int


def encode_object(kind: Kind, by: Writer, frames: bytes = b"") -> bytes:
    """The bytes of an object."""
    assert bool(frames) == (kind is Kind.FRAMES)
    header = json.dumps({"kind": kind.value, **asdict(by)}, separators=(",", ":")).encode()
    padding = b"\0" * (-(_HEADER.size + len(header)) % _ALIGNMENT)
    start = _HEADER.pack(_MAGIC, len(header), google_crc32c.value(header))
    return b"".join((start, header, padding, frames))


def decode_object(data: bytes, path: str) -> WalObject:
    """What the header of an object says.

    Raises:
        LogDamagedError: It is none that `encode_object` made; names the object.
    """
    try:
        magic, length, checksum = _HEADER.unpack_from(data)
        header = data[_HEADER.size : _HEADER.size + length]
        if magic != _MAGIC or google_crc32c.value(header) != checksum:
            raise ValueError("its header is damaged")
        fields = json.loads(header)
        kind = Kind(fields.pop("kind"))
        frames_at = _HEADER.size + length + -(_HEADER.size + length) % _ALIGNMENT
        return WalObject(kind, Writer(**fields), frames_at)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogDamagedError(
            f"the write-ahead log {path} is no object of a log ({error}); acknowledged records may "
            "be there. Restore it, or move it away to give them up",
            file=path,
        ) from error
