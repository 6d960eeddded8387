"""Record timestamps: exact from 1970 to year 9999, and refused outside the topic's bounds."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from mainstem.limits import TIMESTAMP_MS_MAX
from mainstem.records import (
    format_timestamp_ms,
    parse_duration_ms,
    parse_timestamp_ms,
    timestamps_ms_column,
    timestamps_out_of_range,
)

LONG_MAX = 2**63 - 1
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_357_016_400_000, "2013-01-01T05:00:00.000Z"),
        (TIMESTAMP_MS_MAX, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_timestamp_is_written_as_delta_writes_it_and_read_back(
    timestamp_ms: int, text: str
) -> None:
    assert format_timestamp_ms(timestamp_ms) == text
    assert parse_timestamp_ms(text) == timestamp_ms


def test_any_timestamp_survives_its_text_to_the_millisecond(rng: random.Random) -> None:
    for _ in range(2_000):
        timestamp_ms = rng.randint(0, TIMESTAMP_MS_MAX)
        assert parse_timestamp_ms(format_timestamp_ms(timestamp_ms)) == timestamp_ms


@pytest.mark.parametrize(
    "text",
    [
        "2013-01-01T05:00:00Z",
        "2013-01-01T05:00:00.000000Z",
        "2013-01-01T05:00:00.000",
        "2013-01-01T06:00:00.000+01:00",
    ],
)
def test_other_spellings_of_the_same_moment_are_read(text: str) -> None:
    assert parse_timestamp_ms(text) == 1_357_016_400_000


def test_a_column_is_seen_without_a_copy_also_in_a_slice() -> None:
    column = pa.array([1, 2, 3, 4], pa.timestamp("ms", "UTC"))
    assert timestamps_ms_column(column.slice(1, 2)).tolist() == [2, 3]
    assert not timestamps_ms_column(column).flags.owndata


def _refused(values: list[int], before_max_ms: int = LONG_MAX, after_max_ms: int = HOUR_MS) -> int:
    error = timestamps_out_of_range(
        np.array(values, dtype=np.int64), NOW_MS, after_max_ms, before_max_ms
    )
    if error is None:
        return -1
    assert error.facts["timestamp_ms"] == str(values[int(error.facts["record_index"])])
    assert f"record {error.facts['record_index']} " in error.message
    return int(error.facts["record_index"])


def test_every_timestamp_from_1970_to_the_bound_on_the_future_is_taken() -> None:
    assert _refused([]) == -1
    assert _refused([0, 1, NOW_MS, NOW_MS + HOUR_MS]) == -1


def test_a_negative_timestamp_is_refused_with_the_index_of_its_record() -> None:
    assert _refused([0, 1, -1, -2]) == 2


def test_a_timestamp_past_the_bound_on_the_future_is_refused_with_its_index() -> None:
    assert _refused([0, NOW_MS + HOUR_MS + 1]) == 1
    assert _refused([NOW_MS * 1_000]) == 0
    assert _refused([NOW_MS * 1_000_000]) == 0


def test_a_timestamp_past_the_bound_on_the_past_is_refused_with_its_index() -> None:
    year_ms = 365 * 24 * HOUR_MS
    assert _refused([NOW_MS, NOW_MS - year_ms], before_max_ms=year_ms) == -1
    assert _refused([NOW_MS, NOW_MS - year_ms - 1], before_max_ms=year_ms) == 1


def test_a_bound_of_fifty_years_on_the_past_catches_seconds() -> None:
    fifty_years_ms = 50 * 365 * 24 * HOUR_MS
    assert _refused([NOW_MS, NOW_MS // 1_000], before_max_ms=fifty_years_ms) == 1


def test_nothing_later_than_the_year_9999_is_taken_however_wide_the_bound() -> None:
    assert _refused([TIMESTAMP_MS_MAX], after_max_ms=LONG_MAX) == -1
    assert _refused([TIMESTAMP_MS_MAX + 1], after_max_ms=LONG_MAX) == 0


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("PT1H", HOUR_MS), ("P1DT2H3M4.5S", 26 * HOUR_MS + 184_500), ("PT0.001S", 1), ("P0D", 0)],
)
def test_a_duration_is_read(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1H", "P1M", "P1Y", "PT1D", "P9999999999D"])
def test_what_is_no_duration_or_has_no_fixed_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration_ms(text)
