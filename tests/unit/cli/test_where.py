"""Places in a log: offsets, times, ranges; and what a time that cannot be meant would mean."""

from __future__ import annotations

import pytest

from mainstem.cli.errors import FormatError
from mainstem.cli.where import Where, parse_range, parse_where

NOW_MS = 1_795_881_721_637  # 2026-11-28T16:02:01.637Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Where("start")),
        ("beginning", Where("start")),
        ("earliest", Where("start")),
        ("end", Where("end")),
        ("latest", Where("end")),
        ("1234", Where("offset", 1234)),
        ("-10", Where("last", 10)),
        ("@1500", Where("time", 1500)),
        ("@1970-01-01T00:00:02Z", Where("time", 2000)),
        ("@1970-01-01T00:00:01+00:00", Where("time", 1000)),
        ("@1795881721", Where("time", 1_795_881_721_000)),
        ("@1795881721637", Where("time", NOW_MS)),
        ("@2026-11-28T10:00", Where("time", 1_795_860_000_000)),
        ("@2026-11-28", Where("time", 1_795_824_000_000)),
        ("@2026-11-28T10:00+02:00", Where("time", 1_795_852_800_000)),
        ("@-1h", Where("time", NOW_MS - 3_600_000)),
        ("@-1h30m", Where("time", NOW_MS - 5_400_000)),
        ("@-1.5s", Where("time", NOW_MS - 1_500)),
        ("@-2w", Where("time", NOW_MS - 14 * 86_400_000)),
        ("@-PT1H", Where("time", NOW_MS - 3_600_000)),
        ("PT1H", Where("time", NOW_MS - 3_600_000)),
        ("P1DT0.5S", Where("time", NOW_MS - 86_400_500)),
        ("P99999D", Where("time", 0)),
        ("@1969-01-01", Where("time", 0)),
    ],
)
def test_a_place_is_read(text: str, expected: Where) -> None:
    assert parse_where(text, NOW_MS) == expected
    assert parse_range(text, NOW_MS) == (expected, None)


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "P", "PT1X", "1h", "@", "@yesterday", "--1", "-", "1.5", "@-1y"),
        *("@2026-13-01", "@-5", "P-1D", "@\u0661", "0x10", "+3", "@@1", "@1e12"),
    ],
)
def test_what_means_nothing_is_refused_with_what_would(text: str) -> None:
    with pytest.raises(FormatError, match="--to"):
        parse_where(text, NOW_MS, "--to")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@2062-01-31T00:00:00Z", "2062-01-31T00:00:00.000Z, which is in the future"),
        ("@1795881721638", "2026-11-28T16:02:01.638Z, which is in the future"),
        ("@2906000000", "2062-02-01.*future"),
        ("@9999-12-31", "future"),
        ("@1795881721637000", "microseconds since 1970 it would be 2026-11-28.*@1795881721637"),
        ("@1795881721637000000", "nanoseconds since 1970 it would be 2026-11-28.*@1795881721637"),
        ("@99999999999999999999999", "after the year 9999"),
        ("@20260131", "is 20260131 a date.* 2026-01-31"),
        ("@202601311200", "a date.* 1976"),
        ("@20260131120000", "a date"),
        ("@20260131120000", "2026-01-31"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused_with_what_it_would_mean(
    text: str, words: str
) -> None:
    with pytest.raises(FormatError, match=words):
        parse_where(text, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10:20", (Where("offset", 10), Where("offset", 20))),
        (":20", (Where("start"), Where("offset", 20))),
        ("10:", (Where("offset", 10), None)),
        (":end", (Where("start"), Where("end"))),
        ("start:end", (Where("start"), Where("end"))),
        ("-20:-10", (Where("last", 20), Where("last", 10))),
        ("@-2h:@-1h", (Where("time", NOW_MS - 7_200_000), Where("time", NOW_MS - 3_600_000))),
        ("@-2h:-1h", (Where("time", NOW_MS - 7_200_000), Where("time", NOW_MS - 3_600_000))),
        ("PT2H:PT1H", (Where("time", NOW_MS - 7_200_000), Where("time", NOW_MS - 3_600_000))),
        ("@1795860000:1795860001", (Where("time", 1795860000000), Where("time", 1795860001000))),
        ("@2026-11-28T10:00:end", (Where("time", 1_795_860_000_000), Where("end"))),
        (
            "@2026-11-28T10:00:@2026-11-28T10:01",
            (Where("time", 1_795_860_000_000), Where("time", 1_795_860_060_000)),
        ),
        (
            "@2026-11-28T10:00:00Z:2026-11-28T10:01:00Z",
            (Where("time", 1_795_860_000_000), Where("time", 1_795_860_060_000)),
        ),
    ],
)
def test_a_range_is_read_also_where_its_times_have_colons(
    text: str, expected: tuple[Where, Where | None]
) -> None:
    assert parse_range(text, NOW_MS) == expected


@pytest.mark.parametrize("text", [":", "a:b", "10:x", "1:2:3", "@-1h:@2062-01-01"])
def test_a_range_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="-o"):
        parse_range(text, NOW_MS)
