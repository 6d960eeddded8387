"""Reading a planned range: in full, in order, or not at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.errors import LogDamagedError, StoreUnavailableError
from pyspark_mainstem import _range_reader
from pyspark_mainstem._columns import spark_schema
from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._options import COLUMNS
from pyspark_mainstem._range_plan import RangePlan, plan_range
from pyspark_mainstem._range_reader import arrow_schema, read_range


def _plan(topic_log: TopicLog, start: int, end: int, topic: str = "a") -> RangePlan:
    opened = topic_log.topics.open(topic)
    opened.store.close()
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
            _read(plan, "value")
    pq.write_table(pa.concat_tables([whole.slice(0, 4), whole.slice(5)]), file)
    with pytest.raises(LogDamagedError, match="lacks offset 0 of"):
        _read(plan, "value")
    pq.write_table(whole, file)
    assert _read(plan, "offset").num_rows == 9


def test_a_file_that_is_no_parquet_is_an_error(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9)
    plan = _plan(topic_log, 0, 9)
    topic_log.data_files("a", 0)[0].write_bytes(b"torn")
    with pytest.raises(LogDamagedError, match="is damaged"):
        _read(plan, "value")


def test_a_table_that_was_deleted_after_planning_is_an_error(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    plan = _plan(topic_log, 0, 3)
    topic_log.delete("a")
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        _read(plan, "value")
    topic_log.create("a")
    topic_log.count_up("a", 0, 3)
    with pytest.raises(LogDamagedError, match="is missing"):
        _read(plan, "value")


def test_a_file_with_gaps_may_have_them_after_compaction(topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9)
    plan = _plan(topic_log, 0, 9)
    sparse = dataclasses.replace(plan, files=tuple(f._replace(dense=False) for f in plan.files))
    file = topic_log.data_files("a", 0)[0]
    whole = pq.read_table(file, partitioning=None)
    pq.write_table(pa.concat_tables([whole.slice(0, 4), whole.slice(6)]), file)
    assert _read(sparse, "offset").column("offset").to_pylist() == [0, 1, 2, 3, 6, 7, 8]


def test_an_open_file_is_closed_again(topic_log: TopicLog, tmp_path: Path) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 9, file_count=3)
    batches = read_range(_plan(topic_log, 0, 9), ["value"])
    next(batches)
    close = getattr(batches, "close")  # noqa: B009
    close()
