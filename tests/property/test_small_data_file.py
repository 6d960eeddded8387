"""Small data files against Arrow's writer: every reader must find the same in both."""

from __future__ import annotations

from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.delta_log.files.data_file_encoder import DataFileEncoder
from mainstem.delta_log.files.small_data_file import (
    COMPRESSED_BYTES_MIN,
    SMALL_ROWS_MAX,
    SmallRows,
    encode_small_file,
)
from mainstem.limits import TIMESTAMP_MS_MAX
from mainstem.records import TABLE_SCHEMA

_compression = st.sampled_from(["none", "zstd"])
_long = st.integers(0, 2**63 - 1 - SMALL_ROWS_MAX)


@st.composite
def _rows(draw: st.DrawFn) -> SmallRows:
    count = draw(st.integers(1, SMALL_ROWS_MAX))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    # Enough for a compressor in half of the files.
    repeats = draw(st.sampled_from([1, COMPRESSED_BYTES_MIN // count + 1]))
    values = column(st.one_of(st.none(), st.binary(max_size=300)))
    producer_ids = column(st.one_of(st.none(), st.sampled_from([1, 2**62])))
    return SmallRows(
        timestamps_us=[one * 1_000 for one in column(st.integers(0, TIMESTAMP_MS_MAX))],
        timestamp_types=column(st.sampled_from([0, 1])),
        keys=column(st.one_of(st.none(), st.binary(max_size=20))),
        values=[None if one is None else one * repeats for one in values],
        producer_ids=producer_ids,
        sequences=[None if one is None else draw(_long) for one in producer_ids],
    )


def _by_arrow(partition: int, base_offset: int, rows: SmallRows) -> pa.Buffer:
    count = len(rows.values)
    encoder = DataFileEncoder(partition, "none", [])
    columns = [
        range(base_offset, base_offset + count),
        rows.timestamps_us,
        rows.timestamp_types,
        rows.keys,
        rows.values,
        [None] * count,
        rows.producer_ids,
        rows.sequences,
    ]
    encoder.write(
        [pa.array(one, field.type) for one, field in zip(columns, TABLE_SCHEMA, strict=True)],
        count,
    )
    return encoder.finish()[0]


def _open(data: Any) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)


@given(
    partition=st.integers(0, 2**31 - 1),
    base_offset=_long,
    rows=_rows(),
    compression_type=_compression,
)
def test_a_small_file_has_what_arrows_writer_would_have_written(
    partition: int, base_offset: int, rows: SmallRows, compression_type: str
) -> None:
    ours = _open(encode_small_file(partition, base_offset, rows, compression_type))
    theirs = _open(_by_arrow(partition, base_offset, rows))

    assert ours.schema.equals(theirs.schema)
    assert ours.schema_arrow.equals(theirs.schema_arrow, check_metadata=True)
    assert ours.read().equals(theirs.read())
    assert ours.metadata.created_by == theirs.metadata.created_by
    group, other = ours.metadata.row_group(0), theirs.metadata.row_group(0)
    assert (group.num_rows, ours.metadata.num_rows) == (other.num_rows, other.num_rows)
    assert group.total_byte_size == sum(
        group.column(index).total_uncompressed_size for index in range(group.num_columns)
    )
    for index in range(group.num_columns):
        column = group.column(index)
        assert column.path_in_schema == other.column(index).path_in_schema
        assert column.num_values == other.column(index).num_values
        assert column.is_stats_set == other.column(index).is_stats_set
        if column.is_stats_set:
            assert column.statistics.to_dict() == other.column(index).statistics.to_dict()


@given(rows=_rows(), compression_type=_compression)
def test_keys_and_values_are_compressed_where_that_is_worth_it(
    rows: SmallRows, compression_type: str
) -> None:
    group = _open(encode_small_file(3, 7, rows, compression_type)).metadata.row_group(0)
    assert group.num_columns == 10
    for index in range(group.num_columns):
        column = group.column(index)
        is_large = column.total_uncompressed_size >= COMPRESSED_BYTES_MIN + 100
        is_small = column.total_uncompressed_size < COMPRESSED_BYTES_MIN
        is_record = column.path_in_schema in ("key", "value")
        if compression_type == "zstd" and is_record and is_large:
            assert column.compression == "ZSTD"
        elif compression_type == "none" or is_small or not is_record:
            assert column.compression == "UNCOMPRESSED"
            assert column.total_compressed_size == column.total_uncompressed_size


@given(rows=_rows(), compression_type=_compression)
def test_other_readers_find_every_record_of_a_small_file(
    rows: SmallRows, compression_type: str
) -> None:
    expected = [
        {"offset": 7 + index, "key": key, "value": value, "sequence": sequence}
        for index, (key, value, sequence) in enumerate(
            zip(rows.keys, rows.values, rows.sequences, strict=True)
        )
    ]
    data = encode_small_file(3, 7, rows, compression_type)
    columns = list(expected[0])

    assert polars.read_parquet(data, columns=columns).to_dicts() == expected


@given(rows=_rows(), compression_type=_compression, data=st.data())
def test_a_bit_that_flips_in_a_page_of_a_small_file_is_told_by_its_checksum(
    rows: SmallRows, compression_type: str, data: st.DataObject
) -> None:
    file = bytearray(encode_small_file(3, 7, rows, compression_type))
    group = _open(bytes(file)).metadata.row_group(0)
    column = group.column(data.draw(st.integers(0, group.num_columns - 1)))
    end = column.data_page_offset + column.total_compressed_size
    file[data.draw(st.integers(end - 2, end - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(OSError, match="CRC"):
        _open(bytes(file)).read()
