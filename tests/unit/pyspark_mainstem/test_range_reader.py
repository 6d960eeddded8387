"""Reading a planned range: in full, in order, or not at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.errors import (
    LogDamagedError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from pyspark_mainstem import _range_reader
from pyspark_mainstem._columns import spark_schema
from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._options import COLUMNS
from pyspark_mainstem._range_plan import RangePlan, plan_range
from pyspark_mainstem._range_reader import arrow_schema, read_range


def _plan(topic_log: TopicLog, start: int, end: int, topic: str = "a") -> RangePlan:
    opened = topic_log.topics.open(topic)
    return plan_range(opened.state, OffsetRange(TopicPartition(topic, 0), start, end))


def _read(plan: RangePlan, *columns: str) -> pa.Table:
    return pa.Table.from_batches(list(read_range(plan, columns)), arrow_schema(columns))


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[:-1], ("value", "key")])
def test_the_arrow_schema_is_the_one_that_spark_makes_of_ours(columns: tuple[str, ...]) -> None:
    assert arrow_schema(columns).equals(to_arrow_schema(spark_schema(columns), timezone="UTC"))


def test_a_range_over_many_files_is_read_in_offset_order(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 60, file_count=12)
    table = _read(_plan(topic_log, 3, 57), "offset", "value", "topic", "partition")
    assert table.column("offset").to_pylist() == list(range(3, 57))
    assert table.column("value").to_pylist() == [b"%d" % offset for offset in range(3, 57)]
    assert set(table.column("topic").to_pylist()) == {"a"}
    assert set(table.column("partition").to_pylist()) == {0}


def test_small_files_are_gathered_into_batches(
    topic_log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_range_reader, "_BATCH_ROWS", 10)
    topic_log.create("a")
    topic_log.append(
        "a",
        (0, [Record(b"x")] * 4),
        (0, [Record(b"x")] * 4),
        (0, [Record(b"x")] * 4),
        (0, [Record(b"x")] * 25),
        (0, [Record(b"x")] * 3),
    )
    batches = list(read_range(_plan(topic_log, 0, 40), ["offset"]))
    assert [batch.num_rows for batch in batches] == [12, 25, 3]
    assert [row for batch in batches for row in batch.column("offset").to_pylist()] == list(
        range(40)
    )


def _sizes(plan: RangePlan, *columns: str) -> list[tuple[int, int]]:
    """Rows and bytes of each batch, whose records are those of the plan."""
    batches = list(read_range(plan, columns))
    offsets = [row for batch in batches for row in batch.column("offset").to_pylist()]
    assert offsets == list(range(plan.start, plan.end))
    return [(batch.num_rows, batch.nbytes) for batch in batches]


def test_large_records_of_many_files_are_gathered_by_bytes(
    topic_log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_range_reader, "_BATCH_BYTES_MAX", 100_000)
    topic_log.create("a")
    topic_log.append("a", *[(0, [Record(bytes(10_000))] * 3)] * 12)
    sizes = _sizes(_plan(topic_log, 0, 36), "offset", "value")
    assert [rows for rows, _ in sizes] == [9, 9, 9, 9]
    assert max(size for _, size in sizes) <= 100_000


def test_a_row_group_that_is_larger_than_a_batch_is_cut(
    topic_log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_range_reader, "_BATCH_BYTES_MAX", 100_000)
    monkeypatch.setattr(_range_reader, "ROW_GROUP_ROWS_MAX", 16)
    topic_log.create("a")
    small, large, huge = Record(b"x"), Record(bytes(30_000)), Record(bytes(300_000))
    topic_log.append("a", (0, [*[small] * 64, *[large] * 4, huge, small]))
    sizes = _sizes(_plan(topic_log, 0, 70), "offset", "value")
    assert max(rows for rows, _ in sizes) <= 16
    assert [rows for rows, size in sizes if size > 100_000] == [1], "a record is not cut"


def test_all_columns_come_as_they_were_sent(topic_log: TopicLog) -> None:
    topic_log.create("a")
    headers = [("b", b"1"), ("a", None), ("b", b"")]
    topic_log.append("a", (0, [Record(b"", None, headers=headers), Record(None, b"")]))
    first, second = _read(_plan(topic_log, 0, 2), *COLUMNS).to_pylist()
    assert (first["key"], first["value"]) == (None, b"")
    assert (second["key"], second["value"]) == (b"", None)
    assert first["headers"] == [{"key": key, "value": value} for key, value in headers]
    assert second["headers"] is None
    assert first["timestamp"].timestamp() * 1000 == START_MS
    assert first["timestampType"] == 0


def test_columns_without_the_offset_are_checked_all_the_same(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    assert _read(_plan(topic_log, 1, 3), "topic").to_pylist() == [{"topic": "a"}] * 2


def test_a_missing_file_is_an_error_that_names_it(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9, file_count=3)
    plan = _plan(topic_log, 0, 9)
    topic_log.data_files("a", 0)[1].unlink()
    with pytest.raises(LogDamagedError, match=r"offsets 3 to 5 of\s+partition 0, is missing"):
        _read(plan, "value")


def test_a_file_with_fewer_records_than_the_log_says_is_an_error(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9)
    plan = _plan(topic_log, 0, 9)
    file = topic_log.data_files("a", 0)[0]
    whole = pq.read_table(file, partitioning=None)
    for damaged, offset in ((whole.slice(0, 7), 7), (whole.slice(2), 0)):
        pq.write_table(damaged, file)
        with pytest.raises(LogDamagedError, match=f"lacks offset {offset} of topic 'a'"):
            _read(_of_another_writer(plan, file), "value")
    pq.write_table(pa.concat_tables([whole.slice(0, 4), whole.slice(5)]), file)
    with pytest.raises(LogDamagedError, match="lacks offset 0 of"):
        _read(_of_another_writer(plan, file), "value")
    pq.write_table(whole, file)
    assert _read(_of_another_writer(plan, file), "offset").num_rows == 9


def _of_another_writer(plan: RangePlan, file: Path) -> RangePlan:
    """The plan for a log that has the file as it is now, and no checksum of it."""
    size_bytes = file.stat().st_size
    files = [one._replace(size_bytes=size_bytes, tail_crc32c=None) for one in plan.files]
    return dataclasses.replace(plan, files=tuple(files))


@pytest.mark.parametrize("columns", [("value",), ("offset",), ("key", "headers")])
def test_a_file_in_which_a_bit_flipped_is_an_error_whatever_is_read_of_it(
    topic_log: TopicLog, columns: tuple[str, ...]
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9)
    plan = _plan(topic_log, 0, 9)
    file = topic_log.data_files("a", 0)[0]
    whole = file.read_bytes()
    for bit in range(0, 8 * len(whole), 97):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with pytest.raises(LogDamagedError, match="is damaged") as caught:
            _read(plan, *columns)
        assert caught.value.facts["file"] == plan.files[0].path


def test_a_file_that_is_no_parquet_is_an_error(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9)
    plan = _plan(topic_log, 0, 9)
    topic_log.data_files("a", 0)[0].write_bytes(b"torn")
    with pytest.raises(LogDamagedError, match="is damaged"):
        _read(plan, "value")


def test_a_table_that_was_deleted_after_planning_is_an_error_unless_told_otherwise(
    topic_log: TopicLog, caplog: pytest.LogCaptureFixture
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    plan = _plan(topic_log, 0, 3)
    topic_log.delete("a")
    with pytest.raises(UnknownTopicError, match="'a' was deleted while"):
        _read(plan, "value")
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    with pytest.raises(UnknownTopicError, match="'a' was deleted while"):
        _read(plan, "value")
    assert list(read_range(plan, ["value"], fail_on_data_loss=False)) == []
    assert "failOnDataLoss is false, the query goes on: topic 'a' was deleted" in caplog.text


def test_a_file_with_gaps_may_have_them_after_compaction(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9)
    plan = _plan(topic_log, 0, 9)
    file = topic_log.data_files("a", 0)[0]
    whole = pq.read_table(file, partitioning=None)
    pq.write_table(pa.concat_tables([whole.slice(0, 4), whole.slice(6)]), file)
    plan = _of_another_writer(plan, file)
    sparse = dataclasses.replace(plan, files=tuple(f._replace(record_count=7) for f in plan.files))
    assert _read(sparse, "offset").column("offset").to_pylist() == [0, 1, 2, 3, 6, 7, 8]
    part = dataclasses.replace(sparse, start=1, end=8)
    assert _read(part, "offset").column("offset").to_pylist() == [1, 2, 3, 6, 7]
    wrong = dataclasses.replace(plan, files=tuple(f._replace(record_count=8) for f in plan.files))
    with pytest.raises(LogDamagedError, match="has 7 records; the table's log says 8"):
        _read(wrong, "offset")


def test_an_open_file_is_closed_again(topic_log: TopicLog, tmp_path: Path) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9, file_count=3)
    batches = read_range(_plan(topic_log, 0, 9), ["value"])
    next(batches)
    close = getattr(batches, "close")  # noqa: B009
    close()


def _vacuum(topic_log: TopicLog, paths: list[Path]) -> None:
    """Deletes what the table does not have any more."""
    for path in set(paths).difference(topic_log.data_files("a", 0)):
        path.unlink(missing_ok=True)


def test_a_range_that_retention_overtakes_before_it_is_read_is_out_of_range(
    topic_log: TopicLog, caplog: pytest.LogCaptureFixture
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9, file_count=3)
    plan, files = _plan(topic_log, 1, 8), topic_log.data_files("a", 0)
    topic_log.trim("a", 0, 4)
    assert _read(plan, "offset").num_rows == 7, "what is still there is read"
    _vacuum(topic_log, files)
    with pytest.raises(
        OffsetOutOfRangeError, match=r"offset 1 .* the log now starts at 4"
    ) as caught:
        _read(plan, "value")
    assert caught.value.facts["log_start_offset"] == "4"
    left = list(read_range(plan, ["offset"], fail_on_data_loss=False))
    assert [row for batch in left for row in batch.column("offset").to_pylist()] == [4, 5, 6, 7]
    assert "failOnDataLoss is false" in caplog.text
    topic_log.trim("a", 0, 9)
    _vacuum(topic_log, files)
    assert list(read_range(plan, ["offset"], fail_on_data_loss=False)) == []


def test_a_range_that_retention_overtakes_in_the_middle_gives_no_offset_twice(
    topic_log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_range_reader, "_BATCH_ROWS", 1)
    topic_log.create("a")
    topic_log.count_up("a", 0, 12, file_count=4)
    files = topic_log.data_files("a", 0)
    batches = read_range(_plan(topic_log, 0, 12), ["offset"])
    assert next(batches).column("offset").to_pylist() == [0, 1, 2]
    more = read_range(_plan(topic_log, 0, 12), ["offset"], fail_on_data_loss=False)
    assert next(more).column("offset").to_pylist() == [0, 1, 2]
    topic_log.trim("a", 0, 7)
    _vacuum(topic_log, files)
    with pytest.raises(OffsetOutOfRangeError, match="offset 3 "):
        list(batches)
    left = [row for batch in more for row in batch.column("offset").to_pylist()]
    assert left == [7, 8, 9, 10, 11]


def test_a_range_whose_files_are_merged_and_vacuumed_while_it_is_read_is_read_in_full(
    topic_log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_range_reader, "_BATCH_ROWS", 1)
    topic_log.create("a")
    topic_log.count_up("a", 0, 12, file_count=4)
    files = topic_log.data_files("a", 0)
    batches = read_range(_plan(topic_log, 1, 11), ["offset", "value"])
    read = next(batches).column("offset").to_pylist()
    topic_log.merge("a", 0)
    _vacuum(topic_log, files)
    for batch in batches:
        read += batch.column("offset").to_pylist()
    assert read == list(range(1, 11))


def test_a_file_that_the_table_still_has_and_is_not_there_is_damage_after_another_look(
    topic_log: TopicLog,
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9, file_count=3)
    plan, files = _plan(topic_log, 0, 9), topic_log.data_files("a", 0)
    topic_log.trim("a", 0, 3)
    _vacuum(topic_log, files)
    files[2].unlink()
    with pytest.raises(LogDamagedError, match="offsets 6 to 8"):
        list(read_range(plan, ["value"], fail_on_data_loss=False))
