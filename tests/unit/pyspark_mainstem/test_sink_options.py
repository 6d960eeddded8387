"""The options of the Spark sink: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.errors import InvalidConfigError
from pyspark_mainstem._sink_options import SINK_OPTIONS, SinkOptions

SERVERS = {"mainstem.bootstrap.servers": "127.0.0.1:9490"}


def _parse(**options: str) -> SinkOptions:
    return SinkOptions.parse({**SERVERS, **options}, stream=False)


def _parse_stream(**options: str) -> SinkOptions:
    return SinkOptions.parse({**SERVERS, **options}, stream=True)


def test_the_defaults_leave_room_for_tasks_that_compute_between_their_records() -> None:
    options = _parse()
    assert options.producer == {
        "bootstrap.servers": "127.0.0.1:9490",
        "transaction.timeout.ms": "900000",
    }
    assert options.topic == options.app_id == ""
    assert options.delivery_timeout_ms == 120_000
    assert options.commit_timeout_ms == 24 * 3600 * 1000


def test_settings_of_the_producer_are_taken_in_any_case_and_sparks_own_passed_over() -> None:
    options = _parse_stream(
        **{
            "TOPIC": " orders ",
            "Mainstem.Compression.Type": "zstd",
            "mainstem.delivery.timeout.ms": "60000",
            "mainstem.commit.timeout.ms": "5000",
            "checkpointlocation": "/c",
            "queryname": "q",
        },
    )
    assert options.topic == "orders"
    assert options.producer["compression.type"] == "zstd"
    assert (options.delivery_timeout_ms, options.commit_timeout_ms) == (60_000, 5_000)


def test_a_batch_in_foreach_batch_is_named_as_deltas_is() -> None:
    options = _parse(txnAppId="nightly", txnVersion="7")
    assert (options.app_id, options.version) == ("nightly", 7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mainstem.bootstrap.servers": " "}, "mainstem.bootstrap.servers is missing"),
        ({"mainstem.bootstrap.servers": "x"}, "mainstem.bootstrap.servers has 'x'"),
        ({"topics": "x"}, "the sink has no option 'topics'; did you mean topic"),
        ({"topic": " "}, "topic is empty"),
        ({"path": "orders"}, "name the topic in the option topic"),
        ({"kafka.bootstrap.servers": "x"}, "settings of the producer begin with mainstem"),
        ({"mainstem.warehouse": "/w"}, "the sink sends to gateways"),
        ({"mainstem.acks": "1"}, "mainstem.acks cannot be set"),
        ({"mainstem.transactional.id": "x"}, "every task writes in a transaction of its own"),
        ({"mainstem.compression.type": "rar"}, "mainstem.compression.type is"),
        ({"mainstem.linger.msec": "1"}, "did you mean mainstem.linger.ms"),
        ({"mainstem.commit.timeout.ms": "0"}, "a whole number from 1 to 86400000"),
        ({"txnAppId": "a"}, "txnAppId is set without txnVersion"),
        ({"txnVersion": "1"}, "txnVersion is set without txnAppId"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "a whole number from 0"),
        ({"txnAppId": "a" * 201, "txnVersion": "1"}, "has 201 bytes; it may have 200"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        _parse(**options)


def test_a_stream_has_an_id_of_its_own() -> None:
    with pytest.raises(InvalidConfigError, match="txnAppId is for batch queries"):
        _parse_stream(txnAppId="a", txnVersion="1")


def test_every_option_is_in_the_reference(repo_root: Path) -> None:
    page = (repo_root / "docs" / "reference" / "spark-options.md").read_text()
    assert [name for name in SINK_OPTIONS if f"`{name}`" not in page] == []


def test_a_sink_signs_in_and_its_options_do_not_show_the_password() -> None:
    options = _parse(
        **{
            "mainstem.security.protocol": "sasl_ssl",
            "mainstem.sasl.mechanism": "SCRAM-SHA-512",
            "mainstem.sasl.username": "alice",
            "mainstem.sasl.password": "hunter2",
        }
    )
    assert options.producer["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(options)
