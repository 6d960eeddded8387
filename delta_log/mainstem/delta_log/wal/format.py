"""What a write-ahead log's segments look like, byte by byte. Pure.

A segment is a row of frames. A frame is what one sync makes durable: a header and one or more
entries under one checksum. An entry is one accepted request of one topic. Numbers are
little-endian.

    frame  = magic "MSW1" | u32 body length | u32 CRC32C of the body | body | zeros to 16 bytes
    body   = { u64 entry number | u32 entry length | entry }
    entry  = u32 header length | header (JSON) | Arrow IPC stream, one record batch for each slice

Because the next frame is written only after the sync of the one before, only the last frame of the
last segment can be torn by a crash. Frames begin at multiples of 16 bytes, so that a header lies in
one sector of a disk: it is there or it is not.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import google_crc32c
import pyarrow as pa

from mainstem.delta_log.files import Slice
from mainstem.delta_log.format import Batch
from mainstem.errors import LogDamagedError
from mainstem.records import WIRE_SCHEMA

_MAGIC: Final = b"MSW1"
_HEADER: Final = struct.Struct("<4sII")
_ENTRY: Final = struct.Struct("<QI")
_LENGTH: Final = struct.Struct("<I")
_ALIGNMENT: Final = 16

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

    def only(self, parts: Sequence[tuple[Slice, Batch]]) -> WalRequest:
        """The request with some of its slices."""
        slices, batches = zip(*parts, strict=True)
        return replace(self, slices=slices, batches=batches)


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame as it was found: its entries with their numbers, and the byte after it."""

    entries: tuple[tuple[int, bytes], ...]
    end: int


def encode_entry(request: WalRequest) -> bytes:
    """The entry of a request."""
    header: dict[str, Any] = {
        "topic": request.topic,
        "topicId": request.topic_id,
        "epoch": request.epoch,
        "sizeBytes": request.size_bytes,
        "batches": [batch.to_json() for batch in request.batches],
    }
    if any(slice_.log_append_time for slice_ in request.slices):
        header["logAppendTime"] = [bool(slice_.log_append_time) for slice_ in request.slices]
    encoded = json.dumps(header, separators=(",", ":")).encode()
    sink = pa.BufferOutputStream()
    sink.write(_LENGTH.pack(len(encoded)))
    sink.write(encoded)
    with pa.ipc.new_stream(sink, WIRE_SCHEMA) as writer:
        for slice_ in request.slices:
            writer.write_batch(slice_.records)
    return bytes(sink.getvalue())


def decode_entry(entry: bytes) -> WalRequest:
    """The request of an entry that `encode_entry` made."""
    header, end = _entry_header(entry)
    batches = tuple(Batch.from_json(batch) for batch in header["batches"])
    with pa.ipc.open_stream(pa.py_buffer(entry)[end:]) as reader:
        records = list(reader)
    slices = tuple(
        Slice(batch.partition, slice_, batch.producer, log_append_time)
        for batch, slice_, log_append_time in zip(
            batches, records, header.get("logAppendTime", [False] * len(batches)), strict=True
        )
    )
    return WalRequest(
        header["topic"], header["topicId"], header["epoch"], slices, batches, header["sizeBytes"]
    )


def entry_topic(entry: bytes) -> tuple[str, str]:
    """(topic, topic id) of an entry, without reading its records."""
    header, _ = _entry_header(entry)
    return header["topic"], header["topicId"]


def _entry_header(entry: bytes) -> tuple[dict[str, Any], int]:
    (length,) = _LENGTH.unpack_from(entry)
    end = _LENGTH.size + length
    return json.loads(entry[_LENGTH.size : end]), end


def encode_frame(entries: Sequence[tuple[int, bytes]]) -> bytes:
    """The frame of entries and their numbers."""
    parts: list[bytes] = []
    for number, entry in entries:
        parts += (_ENTRY.pack(number, len(entry)), entry)
    body = b"".join(parts)
    assert 0 < len(body) <= FRAME_BYTES_MAX
    unpadded = _HEADER.size + len(body)
    padding = b"\0" * (_aligned(unpadded) - unpadded)
    return b"".join((_HEADER.pack(_MAGIC, len(body), google_crc32c.value(body)), body, padding))


def decode_segment(data: bytes, file: str, *, is_last: bool, start: int = 0) -> Iterator[Frame]:
    """The frames of a segment, from `start` on. With `is_last` it ends before a frame that a crash
    has torn.

    Raises:
        LogDamagedError: A frame is damaged that no crash can have torn; names the file and the
            position.
    """
    at = start
    while at < len(data):
        frame, problem = _frame_at(data, at)
        if frame is None:
            if is_last and _may_be_torn(data, at):
                return
            raise LogDamagedError(
                f"the write-ahead log {file} is damaged at byte {at}: {problem}; acknowledged "
                "records may follow. Restore the file, or move it away to give them up",
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
    if magic != _MAGIC or not _ENTRY.size < length <= FRAME_BYTES_MAX:
        return None, "there is no frame"
    body = data[begin : begin + length]
    if len(body) < length:
        return None, f"a frame of {length} bytes is cut off after {len(body)}"
    if google_crc32c.value(body) != checksum:
        return None, "the checksum of a frame is wrong"
    entries = []
    inner = 0
    while inner < length:
        number, entry_length = _ENTRY.unpack_from(body, inner)
        inner += _ENTRY.size
        entries.append((number, body[inner : inner + entry_length]))
        inner += entry_length
    return Frame(tuple(entries), min(_aligned(begin + length), len(data))), ""


def _aligned(position: int) -> int:
    return position + -position % _ALIGNMENT


def _may_be_torn(data: bytes, at: int) -> bool:
    """Whether what stands at `at` can be the last frame, torn: it claims all that is left, and
    nothing whole follows. A length that was damaged also seems to claim all, or there seems to be
    no header: then the frames behind it tell."""
    if len(data) - at >= _HEADER.size:
        magic, length, _ = _HEADER.unpack_from(data, at)
        if magic == _MAGIC and _aligned(at + _HEADER.size + length) < len(data):
            return False
    following = data.find(_MAGIC, at + 1)
    while following >= 0:
        if following % _ALIGNMENT == 0 and _frame_at(data, following)[0] is not None:
            return False
        following = data.find(_MAGIC, following + 1)
    return True
