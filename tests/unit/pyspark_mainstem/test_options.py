"""The options of the Spark source: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.errors import InvalidConfigError
from pyspark_mainstem._offsets import TopicPartition
from pyspark_mainstem._options import COLUMNS, OPTIONS, SourceOptions

BASE = {"mainstem.warehouse": "/warehouse", "subscribe": "orders"}


def _parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **options})


def test_defaults_are_those_of_kafkas_source() -> None:
    options = _parse()
    assert options.fail_on_data_loss
    assert options.columns == COLUMNS[:-1]
    assert options.offsets_per_trigger_max is None
    assert options.trigger_delay_ms_max == 900_000
    assert not options.latest_without_match


def test_a_batch_query_goes_from_earliest_to_latest_and_a_new_stream_starts_at_latest() -> None:
    batch, stream = _parse().for_batch(), _parse().for_stream()
    assert batch.starting is not None
    assert batch.ending is not None
    assert (batch.starting.kind, batch.ending.kind) == ("earliest", "latest")
    assert stream.starting is not None
    assert stream.starting.kind == "latest"


def test_names_of_options_are_read_in_any_case_as_spark_hands_them_over() -> None:
    low = {name.lower(): value for name, value in BASE.items()}
    options = SourceOptions.parse(
        {
            **low,
            "startingoffsets": "EARLIEST",
            "MAXOFFSETSPERTRIGGER": "5",
            "failondataloss": "FALSE",
        }
    )
    assert options.starting is not None
    assert options.starting.kind == "earliest"
    assert options.offsets_per_trigger_max == 5
    assert not options.fail_on_data_loss


def test_a_consistent_look_is_for_batches() -> None:
    assert not _parse().consistent
    options = _parse(**{"mainstem.consistent": "true"})
    assert options.for_batch().consistent
    with pytest.raises(InvalidConfigError, match="a stream reads topic by topic"):
        options.for_stream()


def test_subscribe_takes_a_list_of_topics() -> None:
    assert _parse(subscribe=" b, a ,, b").topics == ("a", "b")


def test_assign_takes_partitions_by_topic() -> None:
    options = SourceOptions.parse({"mainstem.warehouse": "/w", "assign": '{"b":[1,0],"a":[2]}'})
    assert options.assigned == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )


def test_a_timestamp_goes_before_timestamps_by_partition_and_those_before_offsets() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders":{"0":1}}',
        "startingTimestamp": "7",
    }
    first = _parse(**given).starting
    assert first is not None
    assert (first.kind, first.timestamp_ms) == ("timestamp", 7)
    del given["startingTimestamp"]
    second = _parse(**given).starting
    assert second is not None
    assert second.offsets == {TopicPartition("orders", 0): 1}


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("250", 250), ("500ms", 500), ("30s", 30_000), ("2 h", 7_200_000)]
)
def test_max_trigger_delay_has_units(text: str, milliseconds: int) -> None:
    assert _parse(maxTriggerDelay=text).trigger_delay_ms_max == milliseconds


def test_columns_are_read_in_the_order_given_and_in_any_case() -> None:
    assert _parse(columns="value, TIMESTAMPTYPE,offset").columns == (
        "value",
        "timestampType",
        "offset",
    )
    assert _parse(columns="headers").columns == ("headers",)
    assert _parse(includeHeaders="true").columns == COLUMNS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribeTopics": "x"}, "no option 'subscribeTopics'; did you mean subscribe"),
        ({"startingOffset": "x"}, "did you mean startingOffsets?"),
        ({"kafka.bootstrap.servers": "x:9092"}, "without a consumer group or a consumer"),
        ({"kafka.client.id": "x"}, "name the warehouse in the option mainstem.warehouse"),
        ({"kafka.group.id": "x"}, "mainstem.group.id names a group to which a stream commits"),
        ({"mainstem.group.id": "g"}, "is set without mainstem.bootstrap.servers"),
        ({"mainstem.group.id": " "}, "mainstem.group.id is empty"),
        ({"mainstem.consistent": "yes"}, "must be true or false"),
        ({"groupIdPrefix": "x"}, "groupIdPrefix is not supported"),
        ({"kafkaConsumer.pollTimeoutMs": "1"}, "kafkaConsumer.pollTimeoutMs is not supported"),
        ({"fetchOffset.numRetries": "1"}, "offsets come from the topics' tables"),
        ({"path": "/warehouse"}, "call load\\(\\) without a path"),
        ({"mainstem.warehouse": " "}, "mainstem.warehouse is missing"),
        ({"subscribe": " , "}, "names no topic"),
        (
            {"subscribePattern": "a.*"},
            "only one of the following options.*subscribe, subscribePattern",
        ),
        ({"startingOffsets": "newest"}, 'must have the form {"topicA":{"0":23,"1":-1}}'),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "at least -2"),
        ({"startingOffsets": '{"orders":{"0":1.5}}'}, "1.5 for partition 0"),
        ({"startingOffsets": '{"orders":[0]}'}, "must have the form"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "at least 0"),
        ({"startingTimestamp": "yesterday"}, "whole number of at least 0"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "must be error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number of at least 1"),
        ({"minPartitions": "many"}, "whole number of at least 1"),
        ({"maxRecordsPerPartition": "0"}, "whole number of at least 1"),
        ({"failOnDataLoss": "yes"}, "must be true or false"),
        ({"maxTriggerDelay": "5 weeks"}, "a time like 500ms"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "more than maxOffsetsPerTrigger",
        ),
        ({"columns": "key,valeu"}, "columns names 'valeu'"),
        ({"columns": ","}, "columns is empty"),
        ({"columns": "key", "includeHeaders": "true"}, "they contradict"),
        ({"columns": "headers", "includeHeaders": "false"}, "they contradict"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        _parse(**options)


@pytest.mark.parametrize(
    ("assign", "words"),
    [
        ("orders", "must have the form"),
        ("{}", "no partition in it"),
        ('{"orders":[-1]}', "-1 is not a partition"),
        ('{"orders":["0"]}', "'0' is not a partition"),
        ('{"orders":0}', "must have the form"),
    ],
)
def test_a_malformed_assign_is_refused(assign: str, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        SourceOptions.parse({"mainstem.warehouse": "/w", "assign": assign})


def test_without_a_selection_the_choices_are_named() -> None:
    with pytest.raises(InvalidConfigError, match="one of the following options must be specified"):
        SourceOptions.parse({"mainstem.warehouse": "/w"})


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="not a regular expression"):
        SourceOptions.parse({"mainstem.warehouse": "/w", "subscribePattern": "a("})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch query"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, r"cannot be latest .*\(for orders-0\)"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, r"cannot be earliest .*\(for orders-0\)"),
    ],
)
def test_a_batch_query_that_could_only_be_empty_is_refused(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        _parse(**options).for_batch()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "1"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":1}}'),
    ],
)
def test_a_stream_has_no_end(option: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{option} is for batch queries"):
        _parse(**{option: value}).for_stream()


def test_a_group_is_for_streams() -> None:
    group = {"mainstem.bootstrap.servers": "127.0.0.1:1", "mainstem.group.id": " g "}
    assert _parse(**group).for_stream().group_id == "g"
    with pytest.raises(InvalidConfigError, match=r"group\.id is for streams"):
        _parse(**group).for_batch()


def test_limits_of_a_trigger_have_no_effect_in_a_batch_query_and_this_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _parse(maxOffsetsPerTrigger="5").for_batch()
    assert "have no effect in a batch query" in caplog.text


def test_every_option_is_in_the_reference(repo_root: Path) -> None:
    page = (repo_root / "docs" / "reference" / "spark-options.md").read_text()
    assert [name for name in OPTIONS if f"`{name}`" not in page] == []


def test_a_stream_with_a_group_signs_in_and_its_options_do_not_show_the_password() -> None:
    given = {
        "mainstem.bootstrap.servers": "a:1",
        "mainstem.security.protocol": "sasl_ssl",
        "mainstem.sasl.mechanism": "SCRAM-SHA-512",
        "mainstem.sasl.username": "alice",
        "mainstem.sasl.password": "hunter2",
    }
    options = _parse(**given, **{"mainstem.group.id": "g"})
    assert options.connection == {
        name.removeprefix("mainstem."): value for name, value in given.items()
    }
    assert "hunter2" not in repr(options)
