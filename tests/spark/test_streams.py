"""`mainstem.jobs.streams` in Spark: rows and dead letters, headers, the latest state by key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WAIT_S
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.errors import InvalidConfigError
from mainstem.jobs.streams import (
    Parsed,
    flatten_headers,
    infer_json_schema,
    latest_by_key,
    parse_avro,
    parse_json,
    parse_protobuf,
    upsert_latest,
)

SCHEMA = "row int NOT NULL, carrier string, legs struct<n: int>"
EMPTY = b"\0\0\0\0\x05"


def read(spark: SparkSession, log: TopicLog, topic: str) -> DataFrame:
    frame: DataFrame = _options(spark.read, log, topic).load()
    return frame


def _options(reader: Any, log: TopicLog, topic: str) -> Any:
    return (
        reader.format("mainstem")
        .option("mainstem.warehouse", log.uri)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
    )


def reasons(parsed: Parsed) -> dict[int, str]:
    """The reason of each dead letter by its record's offset."""
    found = {}
    for row in parsed.dead_letters.collect():
        headers = {header.key: bytes(header.value).decode() for header in row.headers}
        found[int(headers["dlt-offset"])] = headers["dlt-reason"]
    return found


def test_bad_json_goes_to_the_dead_letters_each_with_its_reason(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("flights")
    values = [
        b'{"row":0,"carrier":"UA","legs":{"n":1},"more":true}',
        None,
        b"",
        b"\xff\xfe",
        b'{"row":1} and more',
        b'{"row":1}{"row":2}',
        b"[1]",
        b"null",
        b'{"row":"x","carrier":"UA"}',
        b'{"row":1,"legs":{"n":"x"}}',
        b'{"carrier":"UA"}',
        b'{"row":null}',
        b'{"row":3,"carrier":"caf\xff"}',
        b'{"row":99999999999}',
        b'{"row":' * 2_000,
        b'{"row":4}',
    ]
    topic_log.append("flights", (0, [Record(value, b"k") for value in values]))
    parsed = parse_json(read(spark, topic_log, "flights"), SCHEMA)
    good = {row.offset: row.record for row in parsed.good.collect()}
    assert sorted(good) == [0, 1, 15]
    assert good[0].asDict(recursive=True) == {"row": 0, "carrier": "UA", "legs": {"n": 1}}
    assert good[1] is None
    not_json = "the value is not a JSON object"
    assert reasons(parsed) == {
        2: "the value is empty",
        3: "the value is not UTF-8",
        **dict.fromkeys((4, 5, 6, 7, 14), not_json),
        8: "row is not int",
        9: "a field in a field is of another type",
        10: "the field row is missing or null",
        11: "the field row is missing or null",
        12: "the value is not UTF-8",
        13: "row is not int",
    }


def test_a_dead_letter_is_the_record_with_its_place(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("flights", 2)
    headers = [("trace", b"\x01"), ("none", None)]
    topic_log.append("flights", (1, [Record(b"bad", b"UA", START_MS + 5, headers)]))
    (letter,) = parse_json(read(spark, topic_log, "flights"), "row int").dead_letters.collect()
    assert letter.topic == "flights.dlt"
    assert (bytes(letter.key), bytes(letter.value)) == (b"UA", b"bad")
    assert [(one.key, one.value and bytes(one.value)) for one in letter.headers] == [
        *headers,
        ("dlt-topic", b"flights"),
        ("dlt-partition", b"1"),
        ("dlt-offset", b"0"),
        ("dlt-timestamp", b"%d" % (START_MS + 5)),
        ("dlt-exception", b"InvalidJson"),
        ("dlt-reason", b"the value is not a JSON object"),
        ("dlt-attempts", b"1"),
    ]


def test_a_dead_letter_that_its_topic_has_no_room_for_says_what_is_left_out(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("flights")
    large = b"x" * 1_100_000
    topic_log.append(
        "flights", (0, [Record(large, b"a"), Record(b"b", b"b", headers=[("h", large)])])
    )
    letters = parse_json(read(spark, topic_log, "flights"), "row int").dead_letters.collect()
    letters.sort(key=lambda letter: letter.key)
    for letter, left_out in zip(letters, (b"value", b"value,headers"), strict=True):
        headers = {one.key: bytes(one.value) for one in letter.headers}
        assert (bytes(letter.value), headers["dlt-left-out"]) == (b"", left_out)
        assert "h" not in headers


def test_framed_json_is_read_behind_its_frame(spark: SparkSession, topic_log: TopicLog) -> None:
    topic_log.create("flights")
    values = [EMPTY + b'{"row":1}', b'{"row":1}', EMPTY[:3], EMPTY, None]
    topic_log.append("flights", (0, [Record(value) for value in values]))
    parsed = parse_json(read(spark, topic_log, "flights"), "row int", framed=True)
    assert {row.offset: row.record and row.record.row for row in parsed.good.collect()} == {
        0: 1,
        4: None,
    }
    assert sorted(reasons(parsed)) == [1, 2, 3]


def test_avro_and_protobuf_go_through_workers_and_leave_the_stream_running(
    spark: SparkSession, topic_log: TopicLog, tmp_path: Path
) -> None:
    from tests.unit.jobs.test_stream_values import (
        FLIGHT,
        ONE,
        avro,
        flight_descriptors,
        message,
    )

    topic_log.create("flights")
    flight = message("air.v1.Flight", carrier="UA", seats={"a": 3})
    two_gigabytes = b"\xd8\xff\xff\xff\x0f"
    values = [avro(ONE), flight, two_gigabytes, None]
    topic_log.append("flights", (0, [Record(value) for value in values]))
    (tmp_path / "air.pb").write_bytes(flight_descriptors())
    parsers: dict[str, Callable[[DataFrame], Parsed]] = {
        "avro": lambda records: parse_avro(records, json.dumps(FLIGHT)),
        "protobuf": lambda records: parse_protobuf(records, tmp_path / "air.pb", "air.v1.Flight"),
    }
    found: dict[str, tuple[list[int], list[int]]] = {}

    def take(batch: DataFrame, _: int) -> None:
        for name, parse in parsers.items():
            parsed = parse(batch)
            carriers = parsed.good.selectExpr("offset", "record.carrier").collect()
            assert [row.carrier for row in carriers] == ["UA", None]
            found[name] = ([row.offset for row in carriers], sorted(reasons(parsed)))

    stream = _options(spark.readStream, topic_log, "flights").load()
    query = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert found == {"avro": ([0, 3], [1, 2]), "protobuf": ([1, 3], [0, 2])}


def test_a_schema_is_inferred_from_what_can_be_read_of_a_sample(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("flights")
    values = [b'{"row":1,"at":{"x":1.5}}', b"bad", b'{"row":2,"carrier":"UA"}', None, b"[1]"]
    topic_log.append("flights", (0, [Record(value) for value in values]))
    records = read(spark, topic_log, "flights")
    schema = infer_json_schema(records)
    assert schema.simpleString() == "struct<at:struct<x:double>,carrier:string,row:bigint>"
    assert [row.offset for row in parse_json(records, schema).good.collect()] == [0, 2, 3]
    with pytest.raises(InvalidConfigError, match="none of the 1 values"):
        infer_json_schema(records.where("offset = 1"))
    with pytest.raises(InvalidConfigError, match="from a batch"):
        infer_json_schema(_options(spark.readStream, topic_log, "flights").load())


def test_what_a_parser_needs_is_asked_for_before_anything_runs(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("flights")
    records = read(spark, topic_log, "flights")
    with pytest.raises(InvalidConfigError, match="no column offset"):
        parse_json(records.drop("offset"), "row int")
    with pytest.raises(InvalidConfigError, match="a column 'key' already"):
        parse_json(records, "row int", into="key")
    with pytest.raises(InvalidConfigError, match="must be a struct"):
        parse_json(records, "array<int>")
    with pytest.raises(AnalysisException):
        parse_json(records, "row nothing")
    with pytest.raises(InvalidConfigError, match="framed=True"):
        parse_avro(records, '"string"', writers={1: '"string"'})


def test_headers_become_columns_and_the_last_of_a_name_counts(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("flights")
    headers = [("a", b"1"), ("b", b"\xff"), ("a", b"2"), ("c", None)]
    topic_log.append("flights", (0, [Record(b"v", headers=headers), Record(b"v")]))
    records = read(spark, topic_log, "flights").select("offset", "headers")
    rows = flatten_headers(records).orderBy("offset").collect()
    assert [row.headers for row in rows] == [{"a": "2", "b": None, "c": None}, {}]
    (row, without) = flatten_headers(records, {"a": "first", "b": "b"}, binary=True).collect()
    assert row.asDict() == {"offset": 0, "first": b"2", "b": b"\xff"}
    assert without.asDict() == {"offset": 1, "first": None, "b": None}
    with pytest.raises(InvalidConfigError, match="two columns offset"):
        flatten_headers(records, ["offset"])


def test_the_latest_state_by_key_has_no_key_that_was_deleted(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("airlines")
    changes = [(b"UA", b"1"), (b"B6", b"1"), (b"UA", b"2"), (b"B6", None), (None, b"x")]
    topic_log.append("airlines", (0, [Record(value, key) for key, value in changes]))
    latest = latest_by_key(read(spark, topic_log, "airlines")).collect()
    assert [(bytes(row.key), bytes(row.value), row.offset) for row in latest] == [(b"UA", b"2", 2)]


def test_a_change_log_keeps_a_table_as_it_is_now_and_a_batch_that_comes_again_changes_nothing(
    spark: SparkSession, topic_log: TopicLog, tmp_path: Path
) -> None:
    topic_log.create("airlines")
    table = tmp_path / "airlines"
    upsert = upsert_latest(table)
    changes = [
        *[(b"UA", b"1"), (b"B6", b"1"), (b"UA", b"2"), (b"DL", None)],
        *[(b"B6", None), (b"AA", b"1"), (b"UA", None), (b"UA", b"3")],
    ]
    topic_log.append("airlines", (0, [Record(value, key) for key, value in changes]))
    records = read(spark, topic_log, "airlines")

    def state() -> list[tuple[bytes, bytes]]:
        rows = spark.read.format("delta").load(str(table)).collect()
        return sorted((bytes(row.key), bytes(row.value)) for row in rows)

    upsert(records.where("offset < 4"), 0)
    assert state() == [(b"B6", b"1"), (b"UA", b"2")]
    for _ in range(2):
        upsert(records.where("offset >= 4"), 1)
        assert state() == [(b"AA", b"1"), (b"UA", b"3")]
