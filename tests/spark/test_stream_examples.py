"""The examples in `examples/streams`, on flights from New York in 2013."""

from __future__ import annotations

import datetime as dt
import importlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, Row, SparkSession
from tests.spark.conftest import WAIT_S
from tests.unit.pyspark_mainstem.topic_log import Record, TopicLog

from mainstem.cli.demo.data import DemoRecord, read_flights, records

HOUR_MS = 3_600_000


class Examples:
    """The modules, and a topic `flights` that they read."""

    def __init__(self, spark: SparkSession, log: TopicLog, root: Path) -> None:
        self.spark = spark
        self.log = log
        self._root = root

    def __getattr__(self, name: str) -> Any:
        return importlib.import_module(name)

    def send(self, flights: list[DemoRecord]) -> None:
        rows = [Record(one.value, one.key.encode(), one.timestamp_ms) for one in flights]
        self.log.append("flights", (0, rows))

    def stream(self, topic: str = "flights") -> DataFrame:
        frame: DataFrame = self.source.stream(self.spark, self.log.uri, topic)
        return frame

    def run(self, frame: DataFrame, mode: str = "append") -> list[Row]:
        """Runs a query over what is there now; returns all that its table has then."""
        table = str(self._root / "table")
        query = (
            frame.writeStream.format("delta")
            .outputMode(mode)
            .option("checkpointLocation", f"{table}/_checkpoint")
            .trigger(availableNow=True)
            .start(table)
        )
        assert query.awaitTermination(WAIT_S)
        return self.spark.read.format("delta").load(table).collect()


@pytest.fixture(scope="module")
def flights() -> list[DemoRecord]:
    """The first flights: those of the morning of January 1st."""
    return list(records(read_flights().slice(0, 400), "carrier"))


@pytest.fixture
def examples(
    spark: SparkSession,
    topic_log: TopicLog,
    tmp_path: Path,
    repo_root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Examples]:
    monkeypatch.syspath_prepend(str(repo_root / "examples" / "streams"))
    topic_log.create("flights")
    yield Examples(spark, topic_log, tmp_path)
    for query in spark.streams.active:
        query.stop()


def parsed(flight: DemoRecord) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(flight.value)
    return body


def test_hours_are_told_once_they_are_over_and_what_is_later_still_is_left_out(
    examples: Examples,
    flights: list[DemoRecord],
) -> None:
    expected: dict[tuple[int, str], list[float]] = defaultdict(list)
    for one in flights:
        body = parsed(one)
        if body["dep_delay"] is not None:
            expected[one.timestamp_ms, body["origin"]].append(body["dep_delay"])
    last_ms = max(one.timestamp_ms for one in flights)

    def told(rows: list[Row]) -> dict[tuple[int, str], tuple[int, float]]:
        return {
            (int(row.hour.replace(tzinfo=dt.UTC).timestamp() * 1000), row.origin): (
                row.flights,
                round(row.mean_delay, 6),
            )
            for row in rows
        }

    def over(before_ms: int) -> dict[tuple[int, str], tuple[int, float]]:
        return {
            key: (len(delays), round(sum(delays) / len(delays), 6))
            for key, delays in expected.items()
            if key[0] + HOUR_MS <= before_ms - 2 * HOUR_MS
        }

    examples.send(flights)
    first = examples.run(examples.delays_by_hour.delays_by_hour(examples.stream()))
    assert told(first) == over(last_ms)
    assert len(first) > 3
    # One of the first hour again, and one of tomorrow.
    examples.send([flights[0], flights[0]._replace(timestamp_ms=last_ms + 24 * HOUR_MS)])
    rows = examples.run(examples.delays_by_hour.delays_by_hour(examples.stream()))
    assert told(rows) == over(last_ms + 24 * HOUR_MS)
    assert len(told(rows)) == len(rows)


def test_a_session_ends_when_its_aircraft_was_not_seen_for_long(
    examples: Examples, flights: list[DemoRecord]
) -> None:
    flown: dict[str, list[DemoRecord]] = defaultdict(list)
    for one in flights:
        if parsed(one)["tailnum"] is not None:
            flown[parsed(one)["tailnum"]].append(one)
    last_ms = max(one.timestamp_ms for one in flights)
    gap_ms = examples.sessions.GAP_MS

    def ended(seen_ms: int) -> dict[str, tuple[int, float]]:
        return {
            tailnum: (len(flights), sum(parsed(one)["dep_delay"] or 0 for one in flights))
            for tailnum, flights in flown.items()
            if max(one.timestamp_ms for one in flights) + gap_ms <= seen_ms - HOUR_MS
        }

    def told(rows: list[Row]) -> dict[str, tuple[int, float]]:
        assert len({row.tailnum for row in rows}) == len(rows)
        return {row.tailnum: (row.flights, row.delay) for row in rows}

    # The workers do not find the module: it goes to them as a program's own code does.
    register_pickle_by_value(examples.sessions)  # type: ignore[no-untyped-call]
    setting = "spark.sql.streaming.stateStore.providerClass"
    examples.spark.conf.set(setting, examples.source.STATE_STORE)
    try:
        examples.send(flights)
        first = told(examples.run(examples.sessions.sessions(examples.stream())))
        assert first == ended(last_ms)
        assert 0 < len(first) < len(flown)
        next_day_ms = last_ms + 24 * HOUR_MS
        examples.send([flights[0]._replace(timestamp_ms=next_day_ms)])
        rows = examples.run(examples.sessions.sessions(examples.stream()))
    finally:
        examples.spark.conf.unset(setting)
    assert told(rows) == ended(next_day_ms)
    assert len(rows) == len(flown)


def test_each_flight_has_the_name_that_its_airline_has_when_the_flight_is_read(
    examples: Examples,
    flights: list[DemoRecord],
) -> None:
    examples.log.create("airlines")
    names: list[tuple[bytes, bytes | None]] = [
        (b"UA", b"United"),
        (b"AA", b"American"),
        (b"UA", b"United Air Lines"),
    ]
    names += [(b"B6", b"JetBlue"), (b"B6", None)]
    examples.log.append("airlines", (0, [Record(name, code) for code, name in names]))

    def named() -> dict[int, str | None]:
        table = examples.enrichment.airlines(examples.spark, examples.log.uri)
        rows = examples.run(examples.enrichment.named_flights(examples.stream(), table))
        return {row.offset: row.airline for row in rows}

    examples.send(flights[:50])
    known = {"UA": "United Air Lines", "AA": "American"}
    expected = {at: known.get(one.key) for at, one in enumerate(flights[:50])}
    assert named() == expected
    examples.log.append("airlines", (0, [Record(b"JetBlue Airways", b"B6")]))
    examples.send(flights[50:60])
    known["B6"] = "JetBlue Airways"
    assert named() == expected | {at: known.get(flights[at].key) for at in range(50, 60)}


def test_a_table_is_as_its_change_log_says(examples: Examples, tmp_path: Path) -> None:
    examples.log.create("airlines")
    table = str(tmp_path / "airlines")

    def state(*changes: tuple[bytes, bytes | None]) -> dict[str, str]:
        examples.log.append("airlines", (0, [Record(name, code) for code, name in changes]))
        query = examples.current_state.keep_current(
            examples.stream("airlines"), table, available_now=True
        )
        assert query.awaitTermination(WAIT_S)
        rows = examples.spark.read.format("delta").load(table).collect()
        return {row.code: row.airline for row in rows}

    assert state((b"UA", b"United"), (b"B6", b"JetBlue")) == {"UA": "United", "B6": "JetBlue"}
    assert state((b"B6", None), (b"UA", b"United Air Lines"), (b"AA", b"American")) == {
        "UA": "United Air Lines",
        "AA": "American",
    }
