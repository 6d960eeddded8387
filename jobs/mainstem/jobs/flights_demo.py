"""The Spark half of the demo: a stream over the topic `flights`, and the checks by SQL."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from mainstem.config import format_value
from mainstem.delta_log.store import CloudPrefix, LocalDirectory
from mainstem.jobs.session import spark_session
from mainstem.jobs.tables import register_topics

_RESULT: Final = "flights_by_carrier_and_day"
_FLIGHT: Final = "carrier string, year int, month int, day int, dep_delay int"

#: (carrier, ISO date) → flights, flights with a known departure delay, sum of those in minutes.
Totals = dict[tuple[str, str], tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """What SQL finds in a topic's table.

    Attributes:
        record_count: Rows.
        gaps: Offsets that are not one more than the one before in their partition, or not 0 at
            first.
        disordered_records: Records whose row number is not larger than that of the one before.
    """

    record_count: int
    gaps: int
    disordered_records: int


class FlightsDemo:
    """A Spark session with the demo's stream and queries; close it when done.

    Args:
        warehouse: Where the topics `flights` and `weather` are.
    """

    def __init__(self, warehouse: LocalDirectory | CloudPrefix) -> None:
        # Ctrl-C in the middle of a call to the JVM is no news to the user who pressed it; py4j
        # tells it to the root logger.
        logging.getLogger().addFilter(_is_not_of_py4j)
        self._warehouse = warehouse
        self._spark = spark_session("mainstem demo", reads=warehouse)
        self._query: StreamingQuery | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After Ctrl-C the JVM may be gone already.
        with contextlib.suppress(Exception):
            if self._query is not None:
                self._query.stop()
        with contextlib.suppress(Exception):
            self._spark.stop()

    def start_stream(self) -> None:
        """Counts flights and adds up delays by carrier and day, as the records arrive."""
        flights = (
            self._spark.readStream.format("mainstem")
            .option("mainstem.warehouse", self._warehouse.uri)
            .options(**self._store_options())
            .option("subscribe", "flights")
            .option("startingOffsets", "earliest")
            .option("columns", "value")
            .load()
            .select(F.from_json(F.col("value").cast("string"), _FLIGHT).alias("flight"))
            .select("flight.*")
        )
        totals = flights.groupBy("carrier", F.make_date("year", "month", "day").alias("date")).agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_delay").alias("delays_known"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
            F.avg("dep_delay").alias("mean_delay_minutes"),
        )
        writer = totals.writeStream.format("memory").queryName(_RESULT).outputMode("complete")
        self._query = writer.start()

    def _store_options(self) -> dict[str, str]:
        if not isinstance(self._warehouse, CloudPrefix):
            return {}
        return {
            name: format_value(value) for name, value in self._warehouse.settings.given().items()
        }

    def streamed_rows(self) -> int:
        """Records that the stream has processed so far. Raises what made the stream fail."""
        assert self._query is not None
        failure = self._query.exception()
        if failure is not None:
            raise failure
        return sum(progress.numInputRows for progress in self._query.recentProgress)

    def stream_totals(self) -> Totals:
        """The stream's result so far."""
        rows = self._spark.table(_RESULT).select(
            "carrier", F.col("date").cast("string"), "flights", "delays_known", "delay_minutes"
        )
        return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows.collect()}

    def check_topic(self, topic: str) -> TopicCheck:
        """Counts the records of a topic whose values have a `row`, and checks their order."""
        table = register_topics(self._spark, self._warehouse)[topic]
        found = self._spark.sql(
            f"""
            SELECT count(*) AS records,
                   count_if(offset <> coalesce(offset_before, -1) + 1) AS gaps,
                   count_if(row <= row_before) AS disordered
            FROM (SELECT offset, row, lag(offset) OVER in_order AS offset_before,
                         lag(row) OVER in_order AS row_before
                  FROM (SELECT partition, offset,
                               CAST(get_json_object(CAST(value AS STRING), '$.row') AS BIGINT)
                                 AS row
                        FROM {table})
                  WINDOW in_order AS (PARTITION BY partition ORDER BY offset))
            """
        ).first()
        assert found is not None
        return TopicCheck(found["records"], found["gaps"], found["disordered"])

    def busiest_carriers(self) -> list[tuple[str, int, float]]:
        """The five carriers with most flights, and their mean delay in minutes."""
        table = register_topics(self._spark, self._warehouse)["flights"]
        rows = self._spark.sql(
            f"""
            SELECT CAST(key AS STRING) AS carrier, count(*) AS flights,
                   avg(CAST(get_json_object(CAST(value AS STRING), '$.dep_delay') AS INT)) AS delay
            FROM {table} GROUP BY key ORDER BY flights DESC LIMIT 5
            """
        ).collect()
        return [(row["carrier"], row["flights"], row["delay"]) for row in rows]


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname
