"""Data files of a few records, without Arrow's writer: that takes half a millisecond to set up and
to take down, whatever it writes, and topics that trickle write nothing else.

What comes of it is as plain as Parquet can be: one row group, one data page a column, PLAIN, and
compressed only where keys or values have some KiB, with a checksum a page and the statistics that
every data file has. The schema, and all else in the footer that no record changes, is taken from a
file that Arrow's writer made.

Pure: no I/O. Source: parquet-format's `parquet.thrift`, "Data Pages" and "Encodings"; Thrift's
compact protocol.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log.files.data_file_encoder import STATISTICS, DataFileEncoder
from mainstem.delta_log.format import ProducerBatch
from mainstem.limits import KIB
from mainstem.records import TABLE_SCHEMA

#: Of more records Arrow's writer makes smaller files, and no later.
SMALL_ROWS_MAX: Final = 127
_BYTES_END: Final = 32 * KIB

#: Keys or values of a file are not compressed if they have fewer bytes: a compressor takes as long
#: as all else, and the file takes a block of the disk anyway.
COMPRESSED_BYTES_MIN: Final = 4 * KIB

#: Pages of one and the same value that are kept: of a partition, of records without a producer.
_PAGES_KEPT: Final = 4_096

_MAGIC: Final = b"PAR1"

#: Thrift's compact protocol: types in lists, the end of a struct, and the beginning of a field,
#: which is the next one of its struct or, as the name says, the second or third next.
_I32, _BINARY, _STRUCT = 5, 8, 12
_STOP: Final = b"\0"
_I32_FIELD, _I64_FIELD, _LIST_FIELD, _STRUCT_FIELD = b"\x15", b"\x16", b"\x19", b"\x1c"
_SECOND_I64_FIELD, _SECOND_BINARY_FIELD = b"\x26", b"\x28"
_THIRD_I64_FIELD, _THIRD_STRUCT_FIELD = b"\x36", b"\x3c"
_BINARY_FIELD, _TRUE_FIELD = b"\x18", b"\x11"

#: Parquet's numbers of physical types, and how `struct` calls their values.
_PHYSICAL: Final = {"INT32": (1, "i"), "INT64": (2, "q"), "BYTE_ARRAY": (6, "")}

#: Parquet's numbers of encodings: PLAIN of values, RLE of levels.
_PLAIN, _RLE = 0, 3

#: Parquet's numbers of codecs, by `compression.type`. Files that others compress are Arrow's.
_CODECS: Final = {"none": 0, "zstd": 6}
_ZSTD_LEVEL: Final = 1


@dataclass(slots=True)
class SmallRows:
    """The records of a small file by columns, one as long as the other."""

    timestamps_us: list[int]
    timestamp_types: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    producer_ids: list[int | None]
    sequences: list[int | None]

    @classmethod
    def of(
        cls,
        batches: Sequence[pa.RecordBatch],
        timestamp_types: Sequence[int],
        producers: Sequence[ProducerBatch | None],
        compression_type: str,
    ) -> Self | None:
        """The records of batches with the columns of `WIRE_SCHEMA`; None: they are too many or too
        large, or some have headers.

        Args:
            timestamp_types: Of each batch.
            producers: Who numbered each batch.
            compression_type: Of the topic.
        """
        counts = [batch.num_rows for batch in batches]
        bytes_end = _BYTES_END if compression_type in _CODECS else COMPRESSED_BYTES_MIN
        if sum(counts) > SMALL_ROWS_MAX or sum(batch.nbytes for batch in batches) >= bytes_end:
            return None
        rows = cls([], [], [], [], [], [])
        for batch, count, type_, producer in zip(
            batches, counts, timestamp_types, producers, strict=True
        ):
            keys, values, headers, timestamps = batch.columns
            if headers.null_count < count:
                return None
            rows.keys += keys.to_pylist()
            rows.values += values.to_pylist()
            rows.timestamps_us += [one * 1_000 for one in timestamps.view(pa.int64()).to_pylist()]
            rows.timestamp_types += [type_] * count
            if producer is None:
                rows.producer_ids += [None] * count
                rows.sequences += [None] * count
            else:
                rows.producer_ids += [producer.id] * count
                rows.sequences += range(producer.base_sequence, producer.base_sequence + count)
        return rows


def encode_small_file(
    partition: int, base_offset: int, rows: SmallRows, compression_type: str
) -> bytes:
    """The data file of 1 to `SMALL_ROWS_MAX` records of a partition, which have no headers.

    Args:
        base_offset: The offset of the first record; the others follow without a gap.
        compression_type: Of the topic.
    """
    codec = _CODECS.get(compression_type, 0)
    count = len(rows.values)
    assert 0 < count <= SMALL_ROWS_MAX
    pages = (
        _uniform_page(0, partition, count),
        _page(1, range(base_offset, base_offset + count)),
        _page(2, rows.timestamps_us),
        _numbers_page(3, rows.timestamp_types),
        _page(4, rows.keys, codec),
        _page(5, rows.values, codec),
        _uniform_page(6, None, count),
        _uniform_page(7, None, count),
        _numbers_page(8, rows.producer_ids),
        _page(9, rows.sequences),
    )
    statistics = (
        _statistics("<i", partition, partition),
        _statistics("<q", base_offset, base_offset + count - 1),
        _statistics("<q", min(rows.timestamps_us), max(rows.timestamps_us)),
    )
    bodies = [page.data for page in pages]
    return b"".join((_MAGIC, *bodies, _footer(pages, statistics, count), _MAGIC))


@dataclass(frozen=True, slots=True)
class _Page:
    """A data page, with its header.

    Attributes:
        plain_bytes: How many there would be if it were not compressed.
    """

    data: bytes
    plain_bytes: int
    codec: int


@dataclass(frozen=True, slots=True)
class _Column:
    """What is the same for a column in every file.

    Attributes:
        format: Of `struct`, for a value; empty: values are bytes.
        repeats: There are levels of repetition.
        definition_level: Of a value that is there.
        heads: Of the `ColumnChunk`, up to the number of its values; by codec.
    """

    format: str
    repeats: bool
    definition_level: int
    heads: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class _Template:
    """What is the same in every file.

    Attributes:
        head: Of the footer, up to the number of rows.
        row_groups: From there up to the first column.
        end: Of the footer, after the row groups.
    """

    columns: tuple[_Column, ...]
    head: bytes
    row_groups: bytes
    end: bytes


@lru_cache(maxsize=1)
def _template() -> _Template:
    encoder = DataFileEncoder(0, "none", [])
    encoder.write([pa.nulls(1, field.type) for field in TABLE_SCHEMA], 1)
    data, _ = encoder.finish()
    parquet = pq.ParquetFile(pa.BufferReader(data))
    columns = [parquet.schema.column(index) for index in range(len(parquet.schema))]
    assert [column.path for column in columns[: len(STATISTICS)]] == STATISTICS
    row_groups = b"".join(
        (_LIST_FIELD, _list_head(1, _STRUCT), _LIST_FIELD, _list_head(len(columns), _STRUCT))
    )
    before = _I64_FIELD + _number(1) + row_groups  # field 3, the number of rows, and field 4
    created_by = parquet.metadata.created_by.encode()
    end = _SECOND_BINARY_FIELD + _varint(len(created_by)) + created_by  # field 6
    footer = data.to_pybytes()[-8 - parquet.metadata.serialized_size : -8]
    assert footer.count(before) == footer.count(end) == 1, "Arrow writes other footers than it did"
    return _Template(
        tuple(_column(column) for column in columns),
        footer[: footer.index(before)] + _I64_FIELD,
        row_groups,
        footer[footer.index(end) :],
    )


def _column(column: Any) -> _Column:
    number, format_ = _PHYSICAL[column.physical_type]
    path = [part.encode() for part in column.path.split(".")]
    before = b"".join(
        (
            _SECOND_I64_FIELD,  # file_offset
            _number(0),
            _STRUCT_FIELD,  # meta_data
            _I32_FIELD,  # type
            _number(number),
            _LIST_FIELD,  # encodings
            _list_head(2, _I32),
            _number(_PLAIN),
            _number(_RLE),
            _LIST_FIELD,  # path_in_schema
            _list_head(len(path), _BINARY),
            *(_varint(len(part)) + part for part in path),
            _I32_FIELD,  # codec
        )
    )
    heads = {
        codec: before + _number(codec) + _I64_FIELD  # num_values
        for codec in _CODECS.values()
    }
    return _Column(format_, column.max_repetition_level > 0, column.max_definition_level, heads)


def _footer(pages: Sequence[_Page], statistics: Sequence[bytes], count: int) -> bytes:
    """The footer, with its length."""
    template = _template()
    rows = _number(count)
    parts = [template.head, rows, template.row_groups]
    at = len(_MAGIC)
    for index, (column, page) in enumerate(zip(template.columns, pages, strict=True)):
        parts += (
            column.heads[page.codec],
            rows,
            _I64_FIELD,  # total_uncompressed_size
            _number(page.plain_bytes),
            _I64_FIELD,  # total_compressed_size
            _number(len(page.data)),
            _SECOND_I64_FIELD,  # data_page_offset
            _number(at),
            statistics[index] if index < len(statistics) else b"",
            _STOP,
            _STOP,
        )
        at += len(page.data)
    parts += (
        _I64_FIELD,  # total_byte_size, not compressed
        _number(sum(page.plain_bytes for page in pages)),
        _I64_FIELD,  # num_rows
        rows,
        _SECOND_I64_FIELD,  # file_offset
        _number(len(_MAGIC)),
        _I64_FIELD,  # total_compressed_size
        _number(at - len(_MAGIC)),
        _STOP,
        template.end,
    )
    footer = b"".join(parts)
    return footer + len(footer).to_bytes(4, "little")


def _statistics(format_: str, least: int, most: int) -> bytes:
    """The field of a column's statistics: there is no null, and both bounds are exact."""
    lower, upper = struct.pack(format_, least), struct.pack(format_, most)
    return b"".join(
        (
            _THIRD_STRUCT_FIELD,
            _THIRD_I64_FIELD,  # null_count
            _number(0),
            _SECOND_BINARY_FIELD,  # max_value
            _varint(len(upper)),
            upper,
            _BINARY_FIELD,  # min_value
            _varint(len(lower)),
            lower,
            _TRUE_FIELD,  # is_max_value_exact
            _TRUE_FIELD,  # is_min_value_exact
            _STOP,
        )
    )


def _numbers_page(index: int, values: Sequence[int | None]) -> _Page:
    first = values[0]
    if all(value == first for value in values):
        return _uniform_page(index, first, len(values))
    return _page(index, values)


@lru_cache(maxsize=_PAGES_KEPT)
def _uniform_page(index: int, value: int | None, count: int) -> _Page:
    return _page(index, [value] * count)


def _page(
    index: int, values: Sequence[int | None] | Sequence[bytes | None], codec: int = 0
) -> _Page:
    """The data page of a column.

    Args:
        codec: Of a page that is worth it.
    """
    column = _template().columns[index]
    count = len(values)
    runs: Iterable[tuple[int, int]] = [(count, column.definition_level)]
    there: Sequence[Any] = values
    if None in values:
        grouped = groupby(column.definition_level if one is not None else 0 for one in values)
        runs = [(len(list(run)), level) for level, run in grouped]
        there = [value for value in values if value is not None]
    if column.format:
        data = struct.pack(f"<{len(there)}{column.format}", *there)
    else:
        data = b"".join([part for one in there for part in (len(one).to_bytes(4, "little"), one)])
    body = _levels(runs) + data
    if column.repeats:
        body = _levels([(count, 0)]) + body
    plain_bytes = len(body)
    if plain_bytes < COMPRESSED_BYTES_MIN:
        codec = 0
    if codec:
        body = pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(body, asbytes=True)
    checksum = zlib.crc32(body)
    data = b"".join(
        (
            _PAGE_HEAD,
            _number(plain_bytes),  # uncompressed_page_size
            _I32_FIELD,  # compressed_page_size
            _number(len(body)),
            _I32_FIELD,  # crc, a signed number to Thrift
            _number(checksum - (checksum >> 31 << 32)),
            _STRUCT_FIELD,  # data_page_header
            _I32_FIELD,  # num_values
            _number(count),
            _PAGE_HEAD_END,
            body,
        )
    )
    return _Page(data, len(data) - len(body) + plain_bytes, codec)


def _levels(runs: Iterable[tuple[int, int]]) -> bytes:
    """Levels by RLE, each run its length and a byte for the level, in front their size."""
    encoded = b"".join([_varint(length << 1) + bytes((level,)) for length, level in runs])
    return len(encoded).to_bytes(4, "little") + encoded


def _list_head(size: int, type_: int) -> bytes:
    assert size < 15
    return bytes((size << 4 | type_,))


def _number(value: int) -> bytes:
    """A number as Thrift has it, positive or not."""
    if 0 <= value < len(_SMALL_NUMBERS):
        return _SMALL_NUMBERS[value]
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SMALL_NUMBERS: Final = tuple(_varint(value << 1) for value in range(8_192))

#: Of a `PageHeader`: its type, and the field of the size; and what follows the number of values.
_PAGE_HEAD: Final = _I32_FIELD + _number(0) + _I32_FIELD
_PAGE_HEAD_END: Final = b"".join(
    (
        _I32_FIELD,  # encoding
        _number(_PLAIN),
        _I32_FIELD,  # definition_level_encoding
        _number(_RLE),
        _I32_FIELD,  # repetition_level_encoding
        _number(_RLE),
        _STOP,
        _STOP,
    )
)
