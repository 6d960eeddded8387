"""What unpacks to more than it says, or says more than it is, is refused before it is unpacked."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.ingest_gateway.payloads import batch_of, ipc, stream_request

from mainstem.config import TopicConfig
from mainstem.errors import InvalidRecordError, RequestTooLargeError
from mainstem.ingest_gateway.payloads import payload as payload_module
from mainstem.ingest_gateway.payloads.payload import Payload, PayloadRules, read_payload
from mainstem.ingest_gateway.payloads.placement import StickyPlacement
from mainstem.records import packed_batches

MIB = 1024 * 1024
NOW_MS = 1_700_000_000_000
V4 = pa.ipc.MetadataVersion.V4
V5 = pa.ipc.MetadataVersion.V5
RULES = PayloadRules("t", 1, TopicConfig.parse({}), MIB, 4 * MIB)


def read(stream: bytes) -> Payload:
    return read_payload(stream_request(stream), RULES, StickyPlacement(random.Random(1)), NOW_MS)


def stream_of(
    batch: pa.RecordBatch, version: Any = V5, custom: dict[str, str] | None = None
) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(metadata_version=version)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata=custom)
    return bytes(sink.getvalue())


@contextmanager
def at_most(limit_bytes: int) -> Iterator[None]:
    """Asserts that Arrow takes no more memory than that for the block's work."""
    pool = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(counting)
    try:
        yield
    finally:
        pa.set_memory_pool(pool)
    assert (counting.max_memory() or 0) < limit_bytes


def packed_column(unpacked_bytes: int) -> pa.RecordBatch:
    """A batch whose timestamps are, taken for a compressed buffer, that many zeros."""
    compressed = pa.Codec("zstd").compress(bytes(unpacked_bytes), asbytes=True)
    raw = struct.pack("<q", unpacked_bytes) + compressed
    padding = 8 + -len(raw) % 8
    raw += struct.pack("<II", 0x184D2A50, padding - 8) + bytes(padding - 8)  # a skippable frame
    rows = len(raw) // 8
    stamps = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(raw)], null_count=0)
    return pa.RecordBatch.from_arrays([pa.nulls(rows), stamps], names=["value", "timestamp"])


@pytest.mark.parametrize("codec", ["zstd", "ZSTD", "lz4", "lz4_raw"])
def test_a_message_that_asks_for_unpacking_in_its_own_metadata_is_refused_unread(
    codec: str,
) -> None:
    stream = stream_of(packed_column(64 * MIB), V4, {"ARROW:experimental_compression": codec})
    assert len(stream) < 16_384
    with at_most(MIB), pytest.raises(InvalidRecordError, match="metadata version V4"):
        read(stream)


def test_version_v4_without_metadata_of_its_messages_and_v5_with_them_are_taken() -> None:
    batch = batch_of(value=[b"v", None])
    for stream in (stream_of(batch, V4), stream_of(batch, V5, {"ARROW:experimental": "x"})):
        assert read(stream).record_count == 2
    stream = stream_of(batch_of(value=[b"v"]), V5, {"ARROW:experimental_compression": "zstd"})
    assert read(stream).record_bytes == 1


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"v" * 100] * 9).dictionary_encode(),
        pa.array([[b"v"]], pa.list_(pa.binary())),
        pa.array([[[[b"v"]]]]),
        pa.array([{"a": {"b": b"v"}}]),
        pa.array([[("k", b"v")]], pa.map_(pa.string(), pa.binary())),
        pa.array([[b"v"]], pa.list_view(pa.binary())),
        pa.array([[b"v"]], pa.large_list_view(pa.binary())),
        pa.array([[b"v"] * 3], pa.list_(pa.binary(), 3)),
        pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array([b"v"])),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([b"v"])]),
        pa.array([b"v"], pa.binary_view()),
        pa.array([["v"]], pa.list_(pa.string_view())),
        pa.array([b"1234"], pa.binary(4)),
        pa.array([1], pa.decimal128(3)),
    ],
    ids=lambda column: str(column.type)[:30],
)
@pytest.mark.parametrize("name", ["key", "value", "headers", "timestamp", "other"])
def test_a_column_of_any_other_type_is_refused_by_its_schema(
    column: pa.Array, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(column, pa.RunEndEncodedArray):
        values = pa.RunEndEncodedArray.from_arrays(
            pa.array([2**31 - 1], pa.int32()), pa.nulls(1, pa.binary())
        )
    else:
        values = pa.nulls(len(column), pa.binary())
    columns = {"value": values, name: column}
    stream = ipc([pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))])

    def opened(*_: object) -> None:
        raise AssertionError("the stream was read although its schema is wrong")

    monkeypatch.setattr(pa.ipc, "open_stream", opened)
    with at_most(MIB), pytest.raises(InvalidRecordError):
        read(stream)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("arrow.json", ""), ("arrow.fixed_shape_tensor", '{"shape":' + "[" * 9_000), ("mine", "x")],
)
def test_extension_types_are_refused_before_arrow_looks_at_their_settings(
    name: str, settings: str
) -> None:
    told = {"ARROW:extension:name": name, "ARROW:extension:metadata": settings}
    field = pa.field("value", pa.string(), metadata=told)
    batch = pa.RecordBatch.from_arrays([pa.array(["v"])], schema=pa.schema([field]))
    with pytest.raises(InvalidRecordError, match="extension type"):
        read(stream_of(batch))


def test_thousands_of_columns_and_megabytes_of_metadata_are_refused_by_their_size() -> None:
    wide = pa.schema([pa.field(f"c{number}", pa.null()) for number in range(5_000)])
    told = pa.schema([pa.field("value", pa.null())], metadata={"x": "y" * MIB})
    for schema in (wide, told):
        with pytest.raises(InvalidRecordError, match="bytes of metadata; it may have 65536"):
            read(bytes(schema.serialize()))


def test_every_cell_of_every_column_counts_also_those_without_bytes() -> None:
    rows = 500_000  # 2 MB of offsets a column, of 3 MiB
    rules = replace(RULES, request_bytes_max=3 * MIB)
    one = stream_request(stream_of(batch_of(value=pa.nulls(rows))), [(0, 0, rows)])
    placement = StickyPlacement(random.Random(1))
    assert read_payload(one, rules, placement, NOW_MS).record_count == rows
    two = stream_request(stream_of(batch_of(value=pa.nulls(rows), key=pa.nulls(rows))))
    with at_most(MIB), pytest.raises(RequestTooLargeError):
        read_payload(two, rules, placement, NOW_MS)


def test_more_record_batches_than_a_request_may_have_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payload_module, "REQUEST_BATCHES_MAX", 3)
    assert read(ipc([batch_of(value=[b"v"])] * 3)).record_count == 3
    with pytest.raises(RequestTooLargeError, match="more than 3 Arrow record batches"):
        read(ipc([batch_of(value=[b"v"])] * 4))


def test_what_arrow_unpacks_unforeseen_is_refused_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sizes are found out by reading metadata; the second look is at what became of them."""
    foreseen = packed_batches
    monkeypatch.setattr(
        payload_module,
        "packed_batches",
        lambda *given: (one._replace(unpacked_bytes=1) for one in foreseen(*given)),
    )
    stream = ipc([batch_of(value=[b"x" * 1000] * 6_000)], "zstd")
    with pytest.raises(RequestTooLargeError, match=r"socket\.request\.max\.bytes"):
        read(stream)
