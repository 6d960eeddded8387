"""What a write-ahead log's segments look like, byte by byte. Pure.

A segment is a row of frames. A frame is what one sync makes durable: a header and one or more entries under
one checksum. An entry is one accepted request of one topic. Numbers are little-endian.

    frame  = magic "MSW1" | u32 body length | u32 CRC32C of the rest | u64 number of the first entry | body
    body   = { u32 entry length | entry }
    entry  = u32 header length | header (JSON) | Arrow IPC stream, one record batch for each slice

Entries are numbered through all segments of a log; a segment is named after its first entry's number.
Because the next frame is written only after the sync of the one before, only the last frame of the last
segment can be torn by a crash.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import google_crc32c
import pyarrow as pa

from mainstem.delta_log.actions import Batch
from mainstem.delta_log.append_queue import Slice
from mainstem.errors import LogDamagedError
from mainstem.records import WIRE_SCHEMA

_MAGIC: Final = b"MSW1"
_HEADER: Final = struct.Struct("<4sII")
_FIRST: Final = struct.Struct("<Q")
_LENGTH: Final = struct.Struct("<I")

#: Frames are far smaller; a length above this was never written.
FRAME_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class WalRequest:
    """A request as it was accepted: what to append where, and under which epoch.

    Attributes:
        batches: One for each slice, with the offsets that were given.
    """

    topic: str
    topic_id: str
    epoch: int
    slices: tuple[Slice, ...]
    batches: tuple[Batch, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame as it was found: the bytes of its entries, numbered from `first_number`."""

    first_number: int
    entries: tuple[bytes, ...]
    end: int


def encode_entry(request: WalRequest) -> bytes:
    """The entry of a request."""
    header = json.dumps(
        {
            "topic": request.topic,
            "topicId": request.topic_id,
            "epoch": request.epoch,
            "sizeBytes": request.size_bytes,
            "batches": [batch.to_json() for batch in request.batches],
        },
        separators=(",", ":"),
    ).encode()
    sink = pa.BufferOutputStream()
    sink.write(_LENGTH.pack(len(header)))
    sink.write(header)
    with pa.ipc.new_stream(sink, WIRE_SCHEMA) as writer:
        for slice_ in request.slices:
            writer.write_batch(slice_.records)
    return bytes(sink.getvalue())


def decode_entry(entry: bytes) -> WalRequest:
    """The request of an entry that `encode_entry` made."""
    (length,) = _LENGTH.unpack_from(entry)
    header = json.loads(entry[_LENGTH.size : _LENGTH.size + length])
    batches = tuple(Batch.from_json(batch) for batch in header["batches"])
    with pa.ipc.open_stream(pa.py_buffer(entry)[_LENGTH.size + length :]) as reader:
        records = list(reader)
    slices = tuple(
        Slice(batch.partition, slice_, batch.producer)
        for batch, slice_ in zip(batches, records, strict=True)
    )
    return WalRequest(
        header["topic"], header["topicId"], header["epoch"], slices, batches, header["sizeBytes"]
    )


def entry_topic(entry: bytes) -> tuple[str, str]:
    """(topic, topic id) of an entry, without reading its records."""
    (length,) = _LENGTH.unpack_from(entry)
    header = json.loads(entry[_LENGTH.size : _LENGTH.size + length])
    return header["topic"], header["topicId"]


def encode_frame(first_number: int, entries: Sequence[bytes]) -> bytes:
    """The frame of consecutive entries."""
    parts = [_FIRST.pack(first_number)]
    for entry in entries:
        parts += (_LENGTH.pack(len(entry)), entry)
    rest = b"".join(parts)
    return _HEADER.pack(_MAGIC, len(rest), google_crc32c.value(rest)) + rest


def decode_segment(data: bytes, file: str, *, is_last: bool) -> Iterator[Frame]:
    """The frames of a segment. Ends at a torn last frame if `is_last`; `Frame.end` tells where that is.

    Raises:
        LogDamagedError: A frame is damaged that no crash can have torn; names the file and the position.
    """
    at = 0
    while at < len(data):
        frame, problem = _frame_at(data, at)
        if frame is None:
            if is_last and _reaches_end(data, at):
                return
            raise LogDamagedError(
                f"the write-ahead log {file} is damaged at byte {at}: {problem}; acknowledged records "
                "may follow. Restore the file, or move it away to give them up",
                file=file,
                position=at,
            )
        yield frame
        at = frame.end


def _frame_at(data: bytes, at: int) -> tuple[Frame | None, str]:
    if len(data) - at < _HEADER.size:
        return None, "the header of a frame is cut off"
    magic, length, checksum = _HEADER.unpack_from(data, at)
    begin = at + _HEADER.size
    if magic != _MAGIC or not _FIRST.size < length <= FRAME_BYTES_MAX:
        return None, "there is no frame"
    rest = data[begin : begin + length]
    if len(rest) < length:
        return None, f"a frame of {length} bytes is cut off after {len(rest)}"
    if google_crc32c.value(rest) != checksum:
        return None, "the checksum of a frame is wrong"
    (first_number,) = _FIRST.unpack_from(rest)
    entries = []
    inner = _FIRST.size
    while inner < length:
        (entry_length,) = _LENGTH.unpack_from(rest, inner)
        inner += _LENGTH.size
        entries.append(rest[inner : inner + entry_length])
        inner += entry_length
    return Frame(first_number, tuple(entries), begin + length), ""


def _reaches_end(data: bytes, at: int) -> bool:
    """Whether what stands at `at` can be the last frame, torn: nothing whole can follow it."""
    if len(data) - at < _HEADER.size:
        return True
    magic, length, _ = _HEADER.unpack_from(data, at)
    if magic != _MAGIC:
        # The header itself did not reach the disk: then nothing behind it is a frame either.
        return _MAGIC not in data[at:]
    return bool(at + _HEADER.size + length >= len(data))
