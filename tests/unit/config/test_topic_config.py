"""Topic settings: reading, bounds, changing, and their life as table properties."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mainstem.config import (
    TOPIC_KEYS,
    ConfigKey,
    TopicConfig,
    format_value,
    interval_ms,
    keys_by_name,
    parse_value,
)
from mainstem.config._topic import TOPIC_KEYS_UNSUPPORTED
from mainstem.errors import InvalidConfigError

#: For each setting one value that is not the default, as text and as it is read.
SAMPLES: dict[str, tuple[str, int | float | bool | str]] = {
    "cleanup.policy": ("delete, compact", "delete,compact"),
    "commit.bytes": ("1", 1),
    "commit.interval.ms": (" 0 ", 0),
    "compaction.min.age.ms": ("0", 0),
    "compaction.target.bytes": ("1048576", 1_048_576),
    "compression.type": ("lz4", "lz4"),
    "delete.retention.ms": ("0", 0),
    "wal.records": ("all", "all"),
    "delta.deletedFileRetentionDuration": ("interval 3 days", "interval 3 days"),
    "delta.logRetentionDuration": ("interval 2 days", "interval 2 days"),
    "max.compaction.lag.ms": ("1", 1),
    "max.message.bytes": ("2048", 2048),
    "message.timestamp.after.max.ms": ("1", 1),
    "message.timestamp.before.max.ms": ("1", 1),
    "message.timestamp.type": ("LogAppendTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ("0.01", 0.01),
    "min.compaction.lag.ms": ("60000", 60_000),
    "retention.ms": ("-1", -1),
    "retention.bytes": ("7", 7),
    "rollup.files": ("0", 0),
    "rollup.max.bytes": ("0", 0),
    "vacuum.min.age.ms": ("0", 0),
}


#: What a table says where nobody set anything: Delta's own defaults would keep the log for 30 days
#: and removals in each checkpoint for 7.
IMPLIED = {
    "delta.deletedFileRetentionDuration": "interval 2 hours",
    "delta.logRetentionDuration": "interval 1 hours",
}


def test_a_table_says_our_defaults_of_deltas_own_settings() -> None:
    assert TopicConfig({}).to_properties() == IMPLIED
    assert TopicConfig.from_properties(IMPLIED) == TopicConfig({})
    changed = TopicConfig.parse({"delta.logRetentionDuration": "interval 2 days"})
    assert changed.altered({}, ["delta.logRetentionDuration"]).to_properties() == IMPLIED


@pytest.mark.parametrize("value", ["1 hour", "interval 0 hours", "interval 1 months", "3600"])
def test_an_interval_that_delta_would_not_understand_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"delta\.logRetentionDuration"):
        TopicConfig.parse({"delta.logRetentionDuration": value})


def test_a_setting_that_is_defined_twice_makes_no_table() -> None:
    key = TOPIC_KEYS["retention.ms"]
    other = dataclasses.replace(key, name="retention.bytes")
    assert keys_by_name([key, other]) == {"retention.ms": key, "retention.bytes": other}
    with pytest.raises(AssertionError, match=r"retention\.ms is defined twice"):
        keys_by_name([key, other, dataclasses.replace(key, doc="Another text.")])


def test_there_is_a_sample_of_every_setting() -> None:
    assert set(SAMPLES) == set(TOPIC_KEYS)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_setting_is_read_and_survives_the_tables_properties(name: str) -> None:
    text, value = SAMPLES[name]
    config = TopicConfig.parse({name: text})
    assert config.get(name) == value
    assert TopicConfig.parse({name: value}) == config
    properties = config.to_properties()
    property_name = name if name.startswith("delta.") else f"mainstem.{name}"
    assert properties == {**IMPLIED, property_name: format_value(value)}
    assert TopicConfig.from_properties(properties) == config


@pytest.mark.parametrize("key", TOPIC_KEYS.values(), ids=lambda key: key.name)
def test_every_setting_has_a_doc_and_a_default_that_it_would_take_itself(key: ConfigKey) -> None:
    assert key.doc.endswith(".")
    assert parse_value(key, key.default) == key.default
    assert parse_value(key, format_value(key.default)) == key.default
    if key.type == "int":
        assert key.minimum is not None
        assert key.maximum is not None
        assert key.unit


@pytest.mark.parametrize(
    "key", [key for key in TOPIC_KEYS.values() if key.type == "int"], ids=lambda key: key.name
)
def test_a_number_is_taken_at_its_bounds_and_refused_one_past_them(key: ConfigKey) -> None:
    assert key.minimum is not None
    assert key.maximum is not None
    for value in (key.minimum, key.maximum):
        assert parse_value(key, str(value)) == value
    for value in (key.minimum - 1, key.maximum + 1):
        with pytest.raises(
            InvalidConfigError, match=f"{key.name} is {value}.*must be at"
        ) as caught:
            parse_value(key, value)
        assert caught.value.facts == {"name": key.name, "value": str(value)}


@pytest.mark.parametrize(
    "value", ["", "1.5", "ten", True, None, 1.5, float("nan"), [1], "9" * 9999]
)
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfigError, match="must be a whole number"):
        parse_value(TOPIC_KEYS["retention.ms"], value)


def test_a_float_that_is_whole_is_a_number() -> None:
    assert parse_value(TOPIC_KEYS["retention.ms"], 5.0) == 5


@pytest.mark.parametrize("value", ["ZSTD", "", "brotli", 3, None, ["zstd"]])
def test_a_word_that_is_none_of_the_choices_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"compression\.type is"):
        TopicConfig.parse({"compression.type": value})


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        (" delete , compact ", True, True),
    ],
)
def test_a_cleanup_policy_has_its_words_in_either_order(
    policy: str, compacts: bool, deletes: bool
) -> None:
    config = TopicConfig.parse({"cleanup.policy": policy})
    assert (config.compacts, config.deletes) == (compacts, deletes)
    assert TopicConfig.from_properties(config.to_properties()) == config


@pytest.mark.parametrize("value", ["", "compact,", "compact;delete", "compact,compact", None, 1])
def test_a_list_with_another_word_or_one_twice_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"cleanup\.policy is"):
        TopicConfig.parse({"cleanup.policy": value})


@pytest.mark.parametrize("value", ["half", "", True, None, "nan", "inf", "9" * 400, [0.5]])
def test_what_is_no_number_is_no_ratio(value: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"dirty\.ratio is .*must be a number"):
        TopicConfig.parse({"min.cleanable.dirty.ratio": value})


@pytest.mark.parametrize("value", ["-0.1", 1.1, 2])
def test_a_ratio_outside_its_bounds_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"dirty\.ratio is .*at least 0 and at most 1"):
        TopicConfig.parse({"min.cleanable.dirty.ratio": value})


def test_the_least_compaction_lag_is_no_more_than_the_most() -> None:
    with pytest.raises(InvalidConfigError, match=r"more than max\.compaction\.lag\.ms"):
        TopicConfig.parse({"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1})
    config = TopicConfig.parse({"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 2})
    with pytest.raises(InvalidConfigError, match=r"more than max\.compaction\.lag\.ms"):
        config.altered({"max.compaction.lag.ms": 1}, [])


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), (" False ", False), (True, True), (False, False)]
)
def test_a_truth_is_read_from_words(value: object, expected: bool) -> None:
    assert parse_value(ConfigKey("x", "bool", False, "Doc."), value) is expected


@pytest.mark.parametrize("value", ["yes", "1", "", 1, None])
def test_other_words_are_no_truth(value: object) -> None:
    with pytest.raises(InvalidConfigError, match="must be true or false"):
        parse_value(ConfigKey("x", "bool", False, "Doc."), value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("retention.msec", "retention.ms"),
        ("compresion.type", "compression.type"),
        ("retention_bytes", "retention.bytes"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"did you mean {nearest}") as caught:
        TopicConfig.parse({name: "1"})
    assert caught.value.facts == {"name": name, "names": name, "nearest": nearest}


def test_an_unknown_setting_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        TopicConfig.parse({"qqqqqqqq": "1"})
    assert "did you mean" not in caught.value.message
    assert caught.value.facts["nearest"] == ""


@pytest.mark.parametrize("name", TOPIC_KEYS_UNSUPPORTED)
def test_a_setting_of_kafka_that_has_no_meaning_here_is_refused_with_the_reason(name: str) -> None:
    assert name not in TOPIC_KEYS
    with pytest.raises(InvalidConfigError, match="is not supported: ") as caught:
        TopicConfig.parse({name: "1"})
    assert TOPIC_KEYS_UNSUPPORTED[name] in caught.value.message


def test_settings_are_changed_and_put_back_and_the_rest_stays() -> None:
    config = TopicConfig.parse({"retention.ms": 5, "commit.bytes": 7})
    changed = config.altered({"compression.type": "none"}, ["retention.ms", "retention.bytes"])
    assert changed.overrides == {"commit.bytes": 7, "compression.type": "none"}
    assert config.overrides == {"retention.ms": 5, "commit.bytes": 7}
    assert changed.get("retention.ms") == TOPIC_KEYS["retention.ms"].default


@pytest.mark.parametrize(
    ("set_to", "reset"),
    [
        ({"retention.ms": "x"}, []),
        ({"retention.mss": "1"}, []),
        ({}, ["retention.mss"]),
        ({}, ["segment.ms"]),
        ({"retention.ms": "1"}, ["retention.ms"]),
    ],
)
def test_a_change_that_is_wrong_in_any_part_is_refused(
    set_to: dict[str, Any], reset: list[str]
) -> None:
    config = TopicConfig.parse({"retention.ms": 5})
    with pytest.raises(InvalidConfigError):
        config.altered(set_to, reset)
    assert config.overrides == {"retention.ms": 5}


def test_properties_that_are_no_settings_are_left_alone() -> None:
    config = TopicConfig.from_properties(
        {
            "mainstem.partitions": "6",
            "mainstem.retention.ms": "9",
            "delta.appendOnly": "true",
            "retention.bytes": "5",
            "mainstem.of.a.newer.version": "x",
        }
    )
    assert config.overrides == {"retention.ms": 9}


def test_typed_access_says_what_is_in_force() -> None:
    default = TopicConfig({})
    assert default.commit_interval_ms == 100
    assert default.commit_bytes == 16 * 1024 * 1024
    assert default.compression_type == "zstd"
    assert default.max_message_bytes == 1024 * 1024
    assert default.message_timestamp_after_max_ms == 3_600_000
    assert default.message_timestamp_before_max_ms == 2**63 - 1
    assert not default.log_append_time
    assert TopicConfig.parse({"message.timestamp.type": "LogAppendTime"}).log_append_time


def test_a_config_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TopicConfig({}).overrides = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 1 hours", 3_600_000),
        ("interval 1 hour", 3_600_000),
        ("INTERVAL 30 Seconds", 30_000),
        ("interval 2 weeks", 1_209_600_000),
    ],
)
def test_an_interval_is_so_many_milliseconds(text: str, milliseconds: int) -> None:
    assert interval_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "1 hour", "interval 1 months", "interval -1 days"])
def test_what_is_no_interval_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="interval 2 hours"):
        interval_ms(text)


def test_a_removal_must_not_be_forgotten_before_its_file_may_be_deleted() -> None:
    for settings in (
        {"vacuum.min.age.ms": 7_200_000},
        {"delta.deletedFileRetentionDuration": "interval 1 hours"},
    ):
        with pytest.raises(InvalidConfigError, match=r"vacuum\.min\.age\.ms is \d+ ms"):
            TopicConfig.parse(settings)
    config = TopicConfig.parse(
        {"vacuum.min.age.ms": 7_200_000, "delta.deletedFileRetentionDuration": "interval 3 hours"}
    )
    with pytest.raises(InvalidConfigError, match="make the second longer"):
        config.altered({}, ["delta.deletedFileRetentionDuration"])
