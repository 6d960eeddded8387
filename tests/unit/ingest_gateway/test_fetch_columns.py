"""How many bytes records are in an answer, and how many of them fit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.ingest_gateway.fetching.columns import batch_bytes, fitting
from mainstem.limits import FETCHED_RECORD_OVERHEAD_BYTES, HEADER_OVERHEAD_BYTES
from mainstem.records import HEADERS_TYPE, TABLE_SCHEMA

Header = tuple[str, bytes | None]
Row = tuple[bytes | None, bytes | None, list[Header] | None]

SHORT = st.binary(max_size=5)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | SHORT), max_size=3)
ROWS = st.lists(st.tuples(st.none() | SHORT, st.none() | SHORT, st.none() | HEADERS), min_size=1)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    headers = [
        None if row[2] is None else [{"key": key, "value": value} for key, value in row[2]]
        for row in rows
    ]
    return pa.record_batch(
        [
            pa.array(range(len(rows)), pa.int64()),
            pa.array([row[0] for row in rows], pa.binary()),
            pa.array([row[1] for row in rows], pa.binary()),
            pa.array(headers, HEADERS_TYPE),
        ],
        schema=pa.schema(
            [TABLE_SCHEMA.field(name) for name in ("offset", "key", "value", "headers")]
        ),
    )


def size_of(row: Row) -> int:
    key, value, headers = row
    return (
        FETCHED_RECORD_OVERHEAD_BYTES
        + len(key or b"")
        + len(value or b"")
        + sum(
            HEADER_OVERHEAD_BYTES + len(name.encode()) + len(text or b"")
            for name, text in headers or ()
        )
    )


@given(ROWS, st.integers(0, 20), st.integers(-5, 2_000))
def test_as_many_records_fit_as_their_sizes_say_in_a_slice_too(
    rows: list[Row], skipped: int, bytes_max: int
) -> None:
    skipped = min(skipped, len(rows) - 1)
    batch = batch_of(rows).slice(skipped)
    sizes = [size_of(row) for row in rows[skipped:]]
    expected = 0
    while expected < len(sizes) and sum(sizes[: expected + 1]) <= bytes_max:
        expected += 1

    assert batch_bytes(batch) == sum(sizes)
    assert fitting(batch, bytes_max) == expected


@pytest.mark.parametrize("columns", [["offset"], ["offset", "key"], ["offset", "headers"]])
def test_a_column_that_was_not_asked_for_takes_no_room(columns: list[str]) -> None:
    rows: list[Row] = [(b"key", b"value" * 100, [("h", b"1")])] * 10
    batch = batch_of(rows).select(columns)

    alone = FETCHED_RECORD_OVERHEAD_BYTES
    alone += 3 if "key" in columns else 0
    alone += HEADER_OVERHEAD_BYTES + 2 if "headers" in columns else 0
    assert batch_bytes(batch) == 10 * alone
    assert fitting(batch, 3 * alone) == 3
    assert fitting(batch, 4 * alone - 1) == 3
