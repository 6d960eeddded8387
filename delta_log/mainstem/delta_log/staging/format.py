"""What an object of staged records looks like, byte by byte. Pure.

Frames, each an Arrow IPC stream of records of one partition of one topic, one behind the other, and
an index of them. Frames of a partition are in the order in which its records came.

    object = frames | index (JSON) | u32 index length | u32 CRC32C of index and length | "MSSTAGE1"

Numbers are little-endian. The index has the CRC32C of each frame, so that every byte is covered.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
import pyarrow as pa

from mainstem.delta_log.files import Slice
from mainstem.limits import MIB
from mainstem.records import WIRE_SCHEMA

_MAGIC: Final = b"MSSTAGE1"
_TAIL: Final = struct.Struct("<II8s")
TAIL_BYTES: Final = _TAIL.size

#: Bytes of records in a frame, which is what is read at a time. One record may be larger.
FRAME_BYTES_MAX: Final = 4 * MIB

#: Records of one topic by partition.
StagedCounts = Mapping[int, int]


class FormatError(Exception):
    """The bytes are not those that were written; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class FrameEntry:
    """A frame, as the index has it.

    Attributes:
        start: Its first byte in the object.
        log_append_time: See `Slice`.
    """

    topic: str
    partition: int
    start: int
    length: int
    record_count: int
    crc32c: int
    log_append_time: bool | None = None

    def encode(self) -> dict[str, Any]:
        """As JSON says it."""
        return {name: getattr(self, name) for name in self.__slots__}


def encode_object(
    records: Mapping[str, Sequence[Slice]],
) -> tuple[pa.Buffer, list[FrameEntry]]:
    """The object with the records of topics, and its index.

    Args:
        records: By topic, in the order in which they came. Who numbered them is not kept.
    """
    sink = pa.BufferOutputStream()
    entries: list[FrameEntry] = []
    for topic, slices in records.items():
        by_partition: dict[int, list[Slice]] = {}
        for slice_ in slices:
            by_partition.setdefault(slice_.partition, []).append(slice_)
        for partition, found in sorted(by_partition.items()):
            for log_append_time, batches in _frames(found):
                start = int(sink.tell())
                frame = _encode_frame(batches)
                sink.write(frame)
                entries.append(
                    FrameEntry(
                        topic,
                        partition,
                        start,
                        len(frame),
                        sum(batch.num_rows for batch in batches),
                        google_crc32c.value(frame),
                        log_append_time,
                    )
                )
    index = json.dumps([entry.encode() for entry in entries], separators=(",", ":")).encode()
    sink.write(index)
    sink.write(_TAIL.pack(len(index), _index_checksum(index), _MAGIC))
    return sink.getvalue(), entries


def index_length(tail: bytes) -> int:
    """How many bytes the index has.

    Args:
        tail: The last `TAIL_BYTES` of an object.

    Raises:
        FormatError: It is not the end of such an object.
    """
    if len(tail) < TAIL_BYTES:
        raise FormatError(f"it has {len(tail)} bytes")
    length, _, magic = _TAIL.unpack(tail)
    if magic != _MAGIC:
        raise FormatError("its end is not one of staged records")
    return int(length)


def decode_index(index: bytes, tail: bytes) -> list[FrameEntry]:
    """The index that `index_length` has told the length of. Raises FormatError."""
    _, checksum, _ = _TAIL.unpack(tail)
    if _index_checksum(index) != checksum:
        raise FormatError("the checksum of its index is wrong")
    return [FrameEntry(**entry) for entry in json.loads(index)]


def decode_frame(frame: bytes, entry: FrameEntry) -> list[Slice]:
    """The records of a frame. Raises FormatError."""
    if len(frame) != entry.length or google_crc32c.value(frame) != entry.crc32c:
        raise FormatError(
            f"the checksum of {entry.length} bytes at {entry.start} is wrong, or they are cut off"
        )
    with pa.ipc.open_stream(pa.py_buffer(frame)) as reader:
        return [
            Slice(entry.partition, batch, log_append_time=entry.log_append_time) for batch in reader
        ]


def _index_checksum(index: bytes) -> int:
    return int(google_crc32c.value(index + struct.pack("<I", len(index))))


def _encode_frame(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, WIRE_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _frames(slices: Iterable[Slice]) -> Iterator[tuple[bool | None, list[pa.RecordBatch]]]:
    """The slices of a partition in parts that fill a frame each, with one kind of timestamp."""
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    kind: bool | None = None
    for slice_ in slices:
        for batch, batch_bytes in _cut(slice_.records):
            is_full = size_bytes + batch_bytes > FRAME_BYTES_MAX
            if waiting and (is_full or slice_.log_append_time != kind):
                yield kind, waiting
                waiting, size_bytes = [], 0
            kind = slice_.log_append_time
            waiting.append(batch)
            size_bytes += batch_bytes
    if waiting:
        yield kind, waiting


def _cut(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The same records, in batches that a frame has room for, with their bytes."""
    size_bytes = batch.nbytes
    if size_bytes <= FRAME_BYTES_MAX or batch.num_rows <= 1:
        yield batch, size_bytes
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))
