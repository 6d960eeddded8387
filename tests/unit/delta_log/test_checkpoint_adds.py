"""Data files of a checkpoint: read by whole columns as usual, and row by row where they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.delta_log import TableState
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.format.checkpoint_adds import read_adds

STRINGS = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", STRINGS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", STRINGS),
    ]
)


def _file(number: int) -> DataFile:
    partition, base_offset = number % 11, number * 10
    return DataFile(
        path=f"partition={partition}/{base_offset:020d}-{number * 7**9:032x}.parquet",
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + 9,
        record_count=10,
        size_bytes=1000 + number,
        timestamp_ms_min=1_700_000_000_123 + number,
        timestamp_ms_max=1_700_000_000_456 + number,
        modified_ms=1_700_000_001_000 + number,
        data_change=number % 3 == 0,
        tail_crc32c=None if number % 5 == 0 else 0xFFFFFFFF - number,
    )


def _checkpoint(
    rows: Sequence[Mapping[str, Any] | None], type_: pa.DataType = ADD
) -> pq.ParquetFile:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": pa.array(rows, type_)}), sink)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()))


def _state(parquet: pq.ParquetFile) -> dict[str, DataFile]:
    state = TableState("t")
    state.begin(0, [], read_adds(parquet))
    return {file.path: file for file in state}


def _row(file: DataFile, **changes: object) -> dict[str, Any]:
    row: dict[str, Any] = file.to_json()["add"]
    return row | changes


def test_files_as_we_write_them_are_read_by_columns() -> None:
    files = [_file(number) for number in range(10_000)]
    added = read_adds(_checkpoint([None, *map(_row, files), None]))
    assert (len(added.rows), added.others) == (len(files), [])
    assert _state(_checkpoint([_row(file) for file in files])) == {one.path: one for one in files}


def test_a_checkpoint_without_files_or_without_their_column_has_none() -> None:
    assert _state(_checkpoint([None])) == {}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"txn": pa.array([1])}), sink)
    assert _state(pq.ParquetFile(pa.BufferReader(sink.getvalue()))) == {}


def test_a_checkpoint_may_lack_tags() -> None:
    files = [_file(number) for number in range(0, 50, 5)]
    rows = [_row(file) for file in files]
    assert _state(_checkpoint(rows, pa.struct(list(ADD)[:-1]))) == {one.path: one for one in files}


def _stats(changes: Mapping[str, str], **options: Any) -> str:
    text = json.dumps(json.loads(_row(_file(2))["stats"]), **options)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "changes",
    [
        {"stats": _stats({}, sort_keys=True)},
        {"stats": _stats({}, indent=2)},
        {"stats": _stats({".125Z": ".125999Z"})},
        {"stats": _stats({".125Z": ".125+00:00"})},
        {"stats": _stats({".125Z": ".125"})},
        {"stats": _stats({'"nullCount"': '"more": [1, {"a": "b"}], "nullCount"'})},
        {"tags": {"mainstem.tail.crc32c": "FFFFFFFD", "other": "x"}},
        {"tags": {"mainstem.tail.crc32c": "00fffffffd"}},
        {"partitionValues": {"partition": "+2"}},
        {"path": _file(2).path.replace("-", "%2D")},
    ],
)
def test_what_another_writer_may_write_otherwise_is_read_as_the_same(
    changes: dict[str, Any],
) -> None:
    files = [_file(number) for number in range(5)]
    rows = [_row(file, **(changes if file == _file(2) else {})) for file in files]
    assert _state(_checkpoint(rows)) == {one.path: one for one in files}


@pytest.mark.parametrize(
    "changes",
    [
        {"stats": None},
        {"stats": "{}"},
        {"stats": ""},
        {"stats": _stats({"10": '"ten"'})[:-9]},
        {"stats": _stats({".125Z": ".1x"})},
        {"partitionValues": {}},
        {"partitionValues": {"partition": None}},
        {"path": None},
        {"tags": {"mainstem.tail.crc32c": "no"}},
    ],
)
def test_a_row_that_cannot_be_read_is_an_error(changes: dict[str, Any]) -> None:
    rows = [_row(_file(number)) for number in range(5)]
    rows[2] |= changes
    with pytest.raises((pa.ArrowException, ValueError, LookupError, TypeError)):
        read_adds(_checkpoint(rows))
