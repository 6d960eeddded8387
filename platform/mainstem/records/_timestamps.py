"""Record timestamps: milliseconds since 1970-01-01 UTC, from 0 to the end of the year 9999."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.errors import InvalidRecordError
from mainstem.limits import TIMESTAMP_MS_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def format_timestamp_ms(timestamp_ms: int) -> str:
    """As Delta writes a timestamp into statistics: `2013-01-01T05:00:00.000Z`."""
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def parse_timestamp_ms(text: str) -> int:
    """The inverse of `format_timestamp_ms`; takes any ISO 8601 time, UTC where it names no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def parse_duration_ms(text: str) -> int:
    """An ISO 8601 duration of days, hours, minutes and seconds, such as `P1DT12H`.

    Raises:
        ValueError: It is none. Months and years are none: they have no fixed length.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as PT1H or P1DT12H")
    parts = {unit: float(number) for unit, number in found.groupdict().items() if number}
    try:
        return timedelta(**parts) // timedelta(milliseconds=1)
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any log") from None


def timestamps_ms_column(column: pa.Array) -> npt.NDArray[np.int64]:
    """A `timestamp[ms, UTC]` column without nulls as a NumPy view, without a copy."""
    return np.asarray(column.view(pa.int64()).to_numpy(zero_copy_only=True), dtype=np.int64)


def timestamps_out_of_range(
    timestamps_ms: npt.NDArray[np.int64], now_ms: int, after_max_ms: int, before_max_ms: int
) -> InvalidRecordError | None:
    """The error for timestamps that are negative, too late or too early, with the first of them in
    its message and all of them in `record_indexes`; or None.

    The bound on the future catches microseconds and nanoseconds given by mistake. Seconds look like
    January 1970 and are legal unless the topic sets `message.timestamp.before.max.ms`.
    """
    if timestamps_ms.size == 0:
        return None
    lower = max(now_ms - before_max_ms, 0)
    upper = min(now_ms + after_max_ms, TIMESTAMP_MS_MAX)
    if int(timestamps_ms.min()) >= lower and int(timestamps_ms.max()) <= upper:
        return None
    indexes = np.flatnonzero((timestamps_ms < lower) | (timestamps_ms > upper))
    index = int(indexes[0])
    value = int(timestamps_ms[index])
    if value < 0:
        why = "a timestamp is milliseconds since 1970-01-01 UTC, 0 or more"
    elif value < lower:
        why = (
            f"that is earlier than now less message.timestamp.before.max.ms ({before_max_ms} ms); "
            "give milliseconds since 1970-01-01 UTC, not seconds"
        )
    else:
        why = (
            f"that is later than now plus message.timestamp.after.max.ms ({after_max_ms} ms); "
            "give milliseconds since 1970-01-01 UTC, not microseconds or nanoseconds"
        )
    error = InvalidRecordError(
        f"record {index} has the timestamp {value} ms: {why}",
        record_index=index,
        timestamp_ms=value,
        timestamp_ms_min=lower,
        timestamp_ms_max=upper,
    )
    error.record_indexes = indexes.tolist()
    return error
