from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from benchmarks.kafka.table_reader import TableReader
from benchmarks.kafka.worker import NUMBER
from deltalake import DeltaTable, write_deltalake


def append(path: Path, *numbers: int) -> None:
    values = pa.array([NUMBER.pack(number) + b"padding" for number in numbers], pa.binary())
    write_deltalake(path, pa.table({"value": values}), mode="append")


def test_a_reader_sees_each_append_once_and_waits_for_a_table_that_is_not_there(
    tmp_path: Path,
) -> None:
    reader = TableReader(str(tmp_path / "table"))
    assert reader.poll() == []
    append(tmp_path / "table", 1, 2)
    assert reader.poll() == [1, 2]
    append(tmp_path / "table", 3)
    append(tmp_path / "table", 4)
    assert sorted(reader.poll()) == [3, 4]
    assert reader.poll() == []


def test_what_was_merged_before_the_first_look_is_seen(tmp_path: Path) -> None:
    append(tmp_path, 1)
    append(tmp_path, 2)
    reader = TableReader(str(tmp_path))
    assert sorted(reader.poll()) == [1, 2]
    append(tmp_path, 3)
    DeltaTable(tmp_path).optimize.compact()
    assert sorted(reader.poll()) == [1, 2, 3]
