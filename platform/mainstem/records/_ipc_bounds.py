"""How much memory an Arrow IPC stream will take, found out before anything of it is unpacked. Pure.

A few compressed kilobytes may unpack to gigabytes, and a column of type null has any number of rows
for no bytes at all. Both numbers stand in the messages' metadata, which pyarrow does not show.

Source: Arrow columnar format, "Serialization and Interprocess Communication", `Message.fbs`; and
the FlatBuffers internals for tables and vtables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from mainstem.limits import KIB

#: Every cell of a batch takes an offset of at least this many bytes, whatever it took before.
_CELL_BYTES = 4

#: Metadata of one message: a batch of records needs some hundred bytes.
_METADATA_BYTES_MAX = 64 * KIB

#: What Arrow gives a type of a program's own, on its word: the name of the type, or its settings.
_EXTENSION = b"ARROW:extension"

# Fields of the tables, by their position in Message.fbs.
_MESSAGE_VERSION = 0
_MESSAGE_HEADER = 2
_MESSAGE_CUSTOM_METADATA = 4
_SCHEMA_ENDIANNESS = 0
_BATCH_LENGTH = 0
_BATCH_NODES = 1
_BATCH_BUFFERS = 2
_BATCH_COMPRESSION = 3

#: Schemas that were found good, by who checked them: their messages. Bounded in number, and so,
#: with `_METADATA_BYTES_MAX`, in bytes. A dictionary's own operations are safe in any thread.
_accepted: dict[tuple[Callable[[pa.Schema], None], bytes], pa.Schema] = {}
_ACCEPTED_MAX = 64

# Metadata versions as Message.fbs numbers them.
_V4 = 3
_V5 = 4


class PackedBatch(NamedTuple):
    """A record batch of a stream, as it came.

    Attributes:
        row_count: Its rows.
        unpacked_bytes: What it unpacks to.
    """

    row_count: int
    unpacked_bytes: int
    schema: pa.Schema
    message: pa.Message

    def unpack(self) -> pa.RecordBatch:
        """The batch. What is not compressed is not copied, and keeps the whole stream.

        Raises:
            pa.ArrowException, OSError: It is damaged.
        """
        return pa.ipc.read_record_batch(self.message, self.schema)


def packed_batches(
    stream: pa.Buffer, check_schema: Callable[[pa.Schema], None]
) -> Iterator[PackedBatch]:
    """The record batches of an Arrow IPC stream, none of which is unpacked yet.

    Args:
        check_schema: Called before anything of a batch is looked at, unless it has let the same
            schema pass before; raises for one with columns that are not wanted. A function of a
            module: the schemas that it let pass are kept with it.

    Raises:
        ValueError, pa.ArrowInvalid, OSError: It is no IPC stream, or one with something else than
            record batches of metadata version V5 (or V4 without metadata of its messages), such as
            dictionaries and extension types.
    """
    schema: pa.Schema | None = None
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
        kind = message.type
        if kind == "record batch" and schema is not None:
            metadata = _metadata(message)
            _check_version(metadata)
            yield PackedBatch(*_batch_sizes(metadata, message.body), schema, message)
        elif kind == "schema" and schema is None:
            schema = _checked_schema(message, check_schema)
        else:
            raise ValueError(
                f"it has a {kind}; only a schema and then record batches of plain columns are taken"
            )


def _checked_schema(message: pa.Message, check: Callable[[pa.Schema], None]) -> pa.Schema:
    """The schema, checked. A producer sends the same one each time, which is looked up in less than
    a tenth of the time."""
    metadata = _metadata(message)
    schema = _accepted.get((check, metadata))
    if schema is not None:
        return schema
    _check_version(metadata)
    if _EXTENSION in metadata:
        raise ValueError("it has a column of an extension type; send its storage type")
    if _is_big_endian(metadata):
        raise ValueError("its numbers are big-endian; send them little-endian")
    schema = pa.ipc.read_schema(message)
    check(schema)
    if len(_accepted) >= _ACCEPTED_MAX:
        _accepted.clear()
    _accepted[check, metadata] = schema
    return schema


def _metadata(message: pa.Message) -> bytes:
    metadata = message.metadata
    if metadata.size > _METADATA_BYTES_MAX:
        raise ValueError(
            f"a message has {metadata.size} bytes of metadata; it may have {_METADATA_BYTES_MAX}"
        )
    data: bytes = metadata.to_pybytes()
    return data


def _check_version(metadata: bytes) -> None:
    """Refuses what may be packed otherwise than `RecordBatch.compression` says: Arrow also unpacks
    batches of version V4 with `ARROW:experimental_compression` among the metadata of their message.
    """
    try:
        root = _root(metadata)
        at = _field(metadata, root, _MESSAGE_VERSION)
        version = struct.unpack_from("<h", metadata, at)[0] if at else 0
        told = bool(_field(metadata, root, _MESSAGE_CUSTOM_METADATA))
    except struct.error as error:
        raise ValueError(f"its metadata are cut off: {error}") from error
    if version != _V5 and (version != _V4 or told):
        raise ValueError(
            f"a message has the metadata version V{version + 1}"
            + (" and metadata of its own" if told else "")
            + "; send version V5, which Arrow writes since 1.0"
        )


def _is_big_endian(metadata: bytes) -> bool:
    try:
        header = _indirect(metadata, _field(metadata, _root(metadata), _MESSAGE_HEADER))
        at = _field(metadata, header, _SCHEMA_ENDIANNESS)
        return bool(at and struct.unpack_from("<h", metadata, at)[0])
    except struct.error as error:
        raise ValueError(f"its metadata are cut off: {error}") from error


def _batch_sizes(metadata: bytes, body: pa.Buffer | None) -> tuple[int, int]:
    try:
        batch = _indirect(metadata, _field(metadata, _root(metadata), _MESSAGE_HEADER))
        length_at = _field(metadata, batch, _BATCH_LENGTH)
        rows: int = struct.unpack_from("<q", metadata, length_at)[0] if length_at else 0
        cells = [length for length, _ in _pairs(metadata, batch, _BATCH_NODES)]
        compressed = bool(_field(metadata, batch, _BATCH_COMPRESSION))
        sizes = [
            _unpacked_length(body, offset, length) if compressed else length
            for offset, length in _pairs(metadata, batch, _BATCH_BUFFERS)
        ]
    except struct.error as error:
        raise ValueError(f"its metadata are cut off: {error}") from error
    if rows < 0 or min(cells, default=0) < 0 or min(sizes, default=0) < 0:
        raise ValueError("its metadata have negative lengths")
    return rows, max(sum(sizes), _CELL_BYTES * max(rows, sum(cells)))


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
