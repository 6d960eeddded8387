"""Times and sizes with units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.config import (
    GATEWAY_KEYS,
    TOPIC_KEYS,
    TopicConfig,
    larger_unit,
    load_gateway_config,
    parse_amount,
    parse_value,
    with_unit,
)
from mainstem.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        (" 1d12h ", 129_600_000),
        ("1d 12h", 129_600_000),
        ("90 s", 90_000),
        ("1.5h", 5_400_000),
        ("30min", 1_800_000),
        ("30m", 1_800_000),
        ("250ms", 250),
        ("0.5s", 500),
        ("0s", 0),
    ],
)
def test_a_time_with_a_unit_is_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_amount(text, "ms") == milliseconds
    assert parse_value(TOPIC_KEYS["retention.ms"], text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("10GiB", 10 * 2**30), ("10GB", 10**10), ("1.5 KiB", 1536), ("1kB", 1000), ("7B", 7)],
)
def test_a_size_with_a_unit_is_bytes(text: str, size: int) -> None:
    assert parse_amount(text, "bytes") == size
    assert parse_value(TOPIC_KEYS["retention.bytes"], text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "d",
        "7",
        "1 day",
        "-1d",
        "1.5ms",
        "1d12",
        "1D",
        "1e3s",
        "10G",
        "1h!",
        "PT1H",
        "1d,2h",
    ],
)
def test_what_is_not_an_amount_is_none_of_it(text: str) -> None:
    assert parse_amount(text, "ms") is None
    assert parse_amount(text, "bytes") is None


def test_an_amount_of_another_kind_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidConfigError, match=r"whole number \(ms\), or such as 90s, 12h or 7d"):
        parse_value(TOPIC_KEYS["retention.ms"], "10GiB")
    with pytest.raises(InvalidConfigError, match=r"\(bytes\), or such as 64KiB, 10GiB or 10GB"):
        parse_value(TOPIC_KEYS["retention.bytes"], "10G")
    with pytest.raises(InvalidConfigError, match=r"it must be a whole number$"):
        parse_value(GATEWAY_KEYS["num.partitions"], "7d")


def test_bounds_count_for_amounts_too_and_are_told_in_both_units() -> None:
    with pytest.raises(InvalidConfigError, match=r"is 86400000 ms \(1 day\); it must be"):
        parse_value(GATEWAY_KEYS["commit.interval.max.ms"], "1d")


@given(st.integers(0, 2**63), st.sampled_from(["ms", "bytes", "records", ""]))
def test_a_larger_unit_is_the_same_amount(value: int, unit: str) -> None:
    shown = larger_unit(value, unit)
    if shown:
        text = shown.replace("days", "d").replace("day", "d").replace("hours", "h")
        assert parse_amount(text.replace("hour", "h"), unit) == value
    assert with_unit(value, unit).startswith(str(value))


def test_each_fault_of_a_topics_settings_is_told() -> None:
    with pytest.raises(InvalidConfigError) as error:
        TopicConfig.parse({"retention.ms": "x", "commit.bytes": "1d", "retenton.bytes": 1})
    message = error.value.message
    assert message.startswith("3 settings cannot be used:\n- retention.ms is 'x'")
    assert "\n- commit.bytes is '1d'" in message
    assert "did you mean retention.bytes?" in message
    assert error.value.facts["names"] == "retention.ms,commit.bytes,retenton.bytes"
    with pytest.raises(InvalidConfigError, match="2 settings cannot be used"):
        TopicConfig({}).altered({"retention.ms": "x", "commit.bytes": "y"}, [])


def test_each_fault_of_a_gateways_settings_is_told_with_its_source() -> None:
    with pytest.raises(InvalidConfigError) as error:
        load_gateway_config(
            environment={"MAINSTEM_NUM_PARTITIONS": "x"}, flags={"drain.timeout.ms": "soon"}
        )
    assert "- MAINSTEM_NUM_PARTITIONS: num.partitions is 'x'" in error.value.message
    assert "- flag: drain.timeout.ms is 'soon'" in error.value.message


def test_a_gateways_settings_take_units() -> None:
    config = load_gateway_config(environment={}, flags={"drain.timeout.ms": "20s"})
    assert config.number("drain.timeout.ms") == 20_000
