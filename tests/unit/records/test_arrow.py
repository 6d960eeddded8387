"""Wire batches: what is taken from outside and how, the sizes of records, and columns of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mainstem.errors import InvalidRecordError
from mainstem.limits import HEADER_OVERHEAD_BYTES
from mainstem.records import (
    HEADERS_TYPE,
    WIRE_SCHEMA,
    bytes_column,
    empty_wire_batch,
    normalise_wire_batch,
    record_sizes,
    records_to_wire_batch,
)

NOW_MS = 1_800_000_000_123
MS = pa.timestamp("ms", tz="UTC")


def _normal(**columns: pa.Array) -> dict[str, list[Any]]:
    batch = normalise_wire_batch(pa.RecordBatch.from_pydict(columns), NOW_MS)
    batch.validate(full=True)
    assert batch.schema.equals(WIRE_SCHEMA)
    found = batch.drop_columns("timestamp").to_pydict()
    # As integers: Python's datetime ends with the year 9999.
    found["timestamp"] = batch.column("timestamp").view(pa.int64()).to_pylist()
    return dict(found)


@pytest.mark.parametrize(
    "type_",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
    ],
    ids=str,
)
def test_keys_and_values_of_every_text_or_binary_type_become_bytes(type_: pa.DataType) -> None:
    column = pa.array(["skipped", "é", "", None], pa.string()).cast(type_).slice(1)
    found = _normal(key=column, value=column)
    assert found["key"] == found["value"] == ["é".encode(), b"", None]


def test_what_a_batch_leaves_out_is_null_or_now() -> None:
    found = _normal(value=pa.array([b"v", None], pa.binary()))
    assert found["key"] == [None, None]
    assert found["value"] == [b"v", None]
    assert found["headers"] == [None, None]
    assert found["timestamp"] == [NOW_MS, NOW_MS]


def test_columns_of_arrows_null_type_are_all_null() -> None:
    nothing = pa.nulls(2)
    found = _normal(key=nothing, value=nothing, headers=nothing, timestamp=nothing)
    assert found["key"] == found["value"] == found["headers"] == [None, None]
    assert found["timestamp"] == [NOW_MS, NOW_MS]


def test_columns_may_come_in_any_order() -> None:
    found = _normal(timestamp=pa.array([5], MS), value=pa.array([b"v"]), key=pa.array([b"k"]))
    assert (found["key"], found["value"], found["timestamp"]) == ([b"k"], [b"v"], [5])


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.large_list(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.string())])),
        HEADERS_TYPE,
    ],
    ids=str,
)
def test_headers_of_every_near_type_keep_order_repeats_nulls_and_empties(
    type_: pa.DataType,
) -> None:
    rows = [
        [{"key": "skipped", "value": b"x"}],
        [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}],
        [],
        None,
    ]
    column = pa.array(rows, HEADERS_TYPE).cast(type_).slice(1)
    found = _normal(value=pa.array([b"", b"", b""]), headers=column)
    assert found["headers"] == rows[1:]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([0, 1_999, None], pa.int64()), [0, 1_999, NOW_MS]),
        (pa.array([0, 1_999, None], MS), [0, 1_999, NOW_MS]),
        (pa.array([0, 1_999], pa.timestamp("ms")), [0, 1_999]),
        (pa.array([0, 1_999], pa.timestamp("ms", tz="Asia/Tokyo")), [0, 1_999]),
        (pa.array([3, None], pa.timestamp("s")), [3_000, NOW_MS]),
        (pa.array([1_999, 2_000, None], pa.timestamp("us")), [1, 2, NOW_MS]),
        (pa.array([1_999_999, None], pa.timestamp("ns")), [1, NOW_MS]),
        (pa.array([253_402_300_799_999_999], pa.timestamp("us")), [253_402_300_799_999]),
        (pa.array([2**63 - 1], pa.timestamp("us")), [(2**63 - 1) // 1_000]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_timestamps_of_every_unit_become_milliseconds(
    column: pa.Array, expected: list[int]
) -> None:
    values = pa.array([b""] * len(column))
    assert _normal(value=values, timestamp=column)["timestamp"] == expected


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_moment_before_1970_stays_before_1970_when_it_is_cut_to_milliseconds(unit: str) -> None:
    """Rounded to zero it would pass the check that refuses negative timestamps."""
    column = pa.array([-1, -1_000_001], pa.timestamp(unit))
    found = _normal(value=pa.array([b"", b""]), timestamp=column)["timestamp"]
    assert found[0] == -1
    assert found[1] < -1


def test_a_batch_that_is_right_already_is_passed_on_without_a_copy() -> None:
    batch = records_to_wire_batch([b"k"], [b"v"], None, [1])
    found = normalise_wire_batch(batch, NOW_MS)
    assert found.column("value").buffers()[2].address == batch.column("value").buffers()[2].address


V = pa.array([b"v"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": V}, "no column 'value'"),
        ({"value": V, "other": V}, "a column 'other'"),
        ({"value": pa.array([1])}, "'value' has the Arrow type int64"),
        ({"value": V, "key": pa.array([1.5])}, "'key' has the Arrow type double"),
        ({"value": pa.array([b"1234"], pa.binary(4))}, "fixed_size_binary"),
        ({"value": pa.array(["a"]).dictionary_encode()}, "dictionary"),
        ({"value": V, "timestamp": pa.array([1], pa.int32())}, "'timestamp' has the Arrow type"),
        ({"value": V, "timestamp": pa.array(["2013"])}, "'timestamp' has the Arrow type string"),
        ({"value": V, "timestamp": pa.array([1], pa.date64())}, "'timestamp' has the Arrow type"),
        ({"value": V, "timestamp": pa.array([2**62], pa.timestamp("s"))}, "in seconds"),
        ({"value": V, "headers": pa.array([b"h"])}, "'headers' has the Arrow type binary"),
        ({"value": V, "headers": pa.array([["h"]])}, "'headers' has the Arrow type list"),
        (
            {"value": V, "headers": pa.array([[{"value": b"", "key": ""}]])},
            "'headers' has the Arrow type list",
        ),
        (
            {"value": V, "headers": pa.array([[{"key": 1, "value": b""}]])},
            "'headers' has the Arrow type list",
        ),
        (
            {"value": V, "headers": pa.array([[{"key": b"\xff", "value": b""}]])},
            "'headers' cannot be read",
        ),
        (
            {"value": V, "headers": pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE)},
            "no key",
        ),
        ({"value": V, "headers": pa.array([[None]], HEADERS_TYPE)}, "no key"),
    ],
)
def test_a_batch_of_another_shape_is_refused_by_the_name_of_the_column(
    columns: dict[str, pa.Array], message: str
) -> None:
    with pytest.raises(InvalidRecordError, match=message) as caught:
        normalise_wire_batch(pa.RecordBatch.from_pydict(columns), NOW_MS)
    assert caught.value.facts["column"] in {*columns, "value"}


def test_a_column_that_is_twice_there_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([V, V], names=["value", "value"])
    with pytest.raises(InvalidRecordError, match="'value' twice"):
        normalise_wire_batch(batch, NOW_MS)


def test_the_message_for_a_column_with_a_very_long_name_stays_short() -> None:
    batch = pa.RecordBatch.from_arrays([V, V], names=["value", "n" * 1_000_000])
    with pytest.raises(InvalidRecordError) as caught:
        normalise_wire_batch(batch, NOW_MS)
    assert len(caught.value.message) < 400
    assert len(caught.value.facts["column"]) < 400


def test_header_values_under_a_null_list_do_not_count() -> None:
    """Arrow says nothing about the entries of a null list."""
    entries = pa.array([{"key": "a", "value": b"123"}, {"key": None, "value": b"x" * 99}]).cast(
        HEADERS_TYPE.value_type
    )
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([False, True])
    ).cast(HEADERS_TYPE)
    batch = normalise_wire_batch(
        pa.RecordBatch.from_pydict({"value": pa.array([b"", b"v"]), "headers": headers}), NOW_MS
    )
    assert record_sizes(batch).tolist() == [1 + 3 + HEADER_OVERHEAD_BYTES, 1]


ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
    (b"key", b"value", None),
    (None, b"", [("é", b"12"), ("b", None)]),
    (b"", None, []),
    (None, None, None),
    (b"k", b"x" * 1000, [("a", b""), ("a", b"1")]),
]
SIZES = [8, 2 + 2 + 1 + 2 * HEADER_OVERHEAD_BYTES, 0, 0, 1001 + 3 + 2 * HEADER_OVERHEAD_BYTES]


def _rows(rows: list[Any]) -> pa.RecordBatch:
    return records_to_wire_batch(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        range(len(rows)),
    )


def test_a_record_is_as_large_as_its_key_value_and_headers() -> None:
    assert record_sizes(_rows(ROWS)).tolist() == SIZES


def test_the_sizes_of_a_slice_are_those_of_its_records() -> None:
    batch = _rows(ROWS)
    for first in range(len(ROWS)):
        for count in range(len(ROWS) - first + 1):
            expected = SIZES[first : first + count]
            assert record_sizes(batch.slice(first, count)).tolist() == expected


def test_a_batch_without_headers_or_without_records_has_sizes_too() -> None:
    batch = records_to_wire_batch([None, b"12"], [b"1", None], None, [0, 0])
    assert record_sizes(batch).tolist() == [1, 2]
    assert record_sizes(empty_wire_batch()).tolist() == []


def test_rows_become_a_wire_batch_that_says_the_same() -> None:
    batch = _rows(ROWS)
    batch.validate(full=True)
    assert batch.schema.equals(WIRE_SCHEMA)
    assert batch.column("key").to_pylist() == [row[0] for row in ROWS]
    assert batch.column("value").to_pylist() == [row[1] for row in ROWS]
    headers = [
        [(entry["key"], entry["value"]) for entry in row] if row else None
        for row in batch.column("headers").to_pylist()
    ]
    assert headers == [row[2] or None for row in ROWS]
    assert batch.column("timestamp").view(pa.int64()).to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "values",
    [[], [b""], [b"a", b"", b"bcd"], [None], [b"a", None, b""], [b"x" * 100_000] * 3],
    ids=["none", "empty", "mixed", "null", "with-null", "long"],
)
def test_a_column_of_bytes_has_those_bytes(values: list[bytes | None]) -> None:
    column = bytes_column(values)
    column.validate(full=True)
    assert column.type == pa.binary()
    assert column.to_pylist() == values


def test_a_column_takes_other_buffers_by_their_bytes() -> None:
    words = np.array([1, 2], dtype="<u4")
    column = bytes_column([bytearray(b"ab"), memoryview(words.data), b"c"])  # type: ignore[list-item]
    column.validate(full=True)
    assert column.to_pylist() == [b"ab", words.tobytes(), b"c"]


def test_text_in_a_column_of_bytes_becomes_its_utf_8_bytes() -> None:
    assert bytes_column(["é", None]).to_pylist() == ["é".encode(), None]  # type: ignore[list-item]
