"""What each aircraft did between two long stops: sessions, with state and timers of one's own.

    python examples/streams/sessions.py ./warehouse ./tables/sessions

Kafka Streams: a Processor with a state store and punctuators. (For a mere aggregation of sessions
there are SessionWindows, and in Spark session_window.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from source import append_to, arguments, stream

from mainstem.jobs.streams import parse_json

GAP_MS = 12 * 3_600_000

STATE = "first long, last long, flights int, delay double"
RESULT = "tailnum string, first timestamp, last timestamp, flights int, delay double"


class Sessions(StatefulProcessor):
    """Ends a session when no flight of the aircraft has been seen for `GAP_MS`, by the records' own
    time.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._session = handle.getValueState("session", STATE)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        flights = pd.concat(list(rows)).sort_values("time_ms")
        session = self._session.get() if self._session.exists() else None
        for time_ms, delay in zip(flights["time_ms"], flights["dep_delay"], strict=True):
            if session is not None and time_ms - session[1] > GAP_MS:
                yield _row(key, session)
                session = None
            first, last, count, total = session or (int(time_ms), int(time_ms), 0, 0.0)
            session = (first, max(last, int(time_ms)), count + 1, total + float(delay))
        assert session is not None
        self._session.update(session)
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(session[1] + GAP_MS)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield _row(key, self._session.get())
        self._session.clear()

    def close(self) -> None:
        pass


def sessions(flights: DataFrame) -> DataFrame:
    """A row for each session that has ended. The state store has to be RocksDB, see source.py."""
    parsed = parse_json(flights, "tailnum string, dep_delay double").good
    return (
        parsed.selectExpr(
            "timestamp",
            "unix_millis(timestamp) AS time_ms",
            "record.tailnum",
            "coalesce(record.dep_delay, 0) AS dep_delay",
        )
        .where("tailnum IS NOT NULL")
        .withWatermark("timestamp", "1 hour")
        .groupBy("tailnum")
        .transformWithStateInPandas(Sessions(), RESULT, "Append", "EventTime")
    )


def _row(key: Any, session: tuple[int, int, int, float]) -> pd.DataFrame:
    first, last, flights, delay = session
    return pd.DataFrame(
        {
            "tailnum": [key[0]],
            "first": pd.to_datetime([first], unit="ms"),
            "last": pd.to_datetime([last], unit="ms"),
            "flights": pd.Series([flights], dtype="int32"),
            "delay": [delay],
        }
    )


if __name__ == "__main__":
    spark, warehouse, table = arguments()
    append_to(sessions(stream(spark, warehouse, "flights")), table)
