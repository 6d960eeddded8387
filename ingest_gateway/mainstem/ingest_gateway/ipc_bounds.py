"""How much memory an Arrow IPC stream will take, found out before anything of it is unpacked. Pure.

A few compressed kilobytes may unpack to gigabytes, and a column of type null has any number of rows
for no bytes at all. Both numbers stand in the messages' metadata, which pyarrow does not show.

Source: Arrow columnar format, "Serialization and Interprocess Communication", `Message.fbs`; and
the FlatBuffers internals for tables and vtables.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

#: Every cell of a wire batch takes an offset of at least this many bytes, whatever it took before.
_CELL_BYTES = 4

# Fields of the tables, by their position in Message.fbs.
_MESSAGE_HEADER = 2
_BATCH_LENGTH = 0
_BATCH_NODES = 1
_BATCH_BUFFERS = 2
_BATCH_COMPRESSION = 3


def unpacked_sizes(stream: pa.Buffer) -> Iterator[tuple[int, int]]:
    """For each record batch of the stream in turn: its rows, and the bytes that it unpacks to.

    Raises:
        ValueError, pa.ArrowInvalid, OSError: It is no IPC stream, or one with dictionaries.
    """
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
        if message.type == "record batch":
            yield _batch_sizes(message.metadata.to_pybytes(), message.body)
        elif message.type != "schema":
            raise ValueError(
                f"it has a {message.type}; only plain columns of keys, values, headers and "
                "timestamps are taken"
            )


def _batch_sizes(metadata: bytes, body: pa.Buffer | None) -> tuple[int, int]:
    try:
        batch = _indirect(metadata, _field(metadata, _root(metadata), _MESSAGE_HEADER))
        length_at = _field(metadata, batch, _BATCH_LENGTH)
        rows: int = struct.unpack_from("<q", metadata, length_at)[0] if length_at else 0
        cells = max((length for length, _ in _pairs(metadata, batch, _BATCH_NODES)), default=0)
        compressed = bool(_field(metadata, batch, _BATCH_COMPRESSION))
        size_bytes = sum(
            _unpacked_length(body, offset, length) if compressed else length
            for offset, length in _pairs(metadata, batch, _BATCH_BUFFERS)
        )
    except struct.error as error:
        raise ValueError(f"its metadata are cut off: {error}") from error
    if rows < 0 or cells < 0 or size_bytes < 0:
        raise ValueError("its metadata have negative lengths")
    return rows, max(size_bytes, _CELL_BYTES * max(rows, cells))


def _unpacked_length(body: pa.Buffer | None, offset: int, length: int) -> int:
    """A compressed buffer begins with its unpacked length; -1 says that it is not compressed."""
    if length == 0:
        return 0
    if body is None or offset < 0 or length < 8 or offset + length > body.size:
        raise ValueError("a buffer lies outside its message")
    unpacked: int = struct.unpack("<q", body.slice(offset, 8).to_pybytes())[0]
    if unpacked < -1:
        raise ValueError("a buffer has a negative length")
    return length - 8 if unpacked == -1 else unpacked


def _root(data: bytes) -> int:
    return _indirect(data, 0)


def _indirect(data: bytes, at: int) -> int:
    offset: int = struct.unpack_from("<I", data, at)[0]
    return at + offset


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table lies; 0 where the table leaves it out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    at = 4 + 2 * number
    if at + 2 > size:
        return 0
    offset: int = struct.unpack_from("<H", data, vtable + at)[0]
    return table + offset if offset else 0


def _pairs(data: bytes, table: int, number: int) -> Iterator[tuple[int, int]]:
    """A vector of structs of two 64-bit integers."""
    at = _field(data, table, number)
    if not at:
        return
    vector = _indirect(data, at)
    count = struct.unpack_from("<I", data, vector)[0]
    if vector + 4 + 16 * count > len(data):
        raise ValueError("a vector lies outside its metadata")
    yield from struct.iter_unpack("<qq", data[vector + 4 : vector + 4 + 16 * count])
