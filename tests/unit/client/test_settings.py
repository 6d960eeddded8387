"""The producer's settings: Kafka's names, their checks, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.client import PRODUCER_KEYS, AdminClient, ProducerSettings
from mainstem.errors import ConfigError
from mainstem.protocol.v1 import log_pb2

SERVERS = {"bootstrap.servers": "127.0.0.1:9490"}


def parse(**settings: object) -> ProducerSettings:
    return ProducerSettings.parse(
        {**SERVERS, **{name.replace("_", "."): value for name, value in settings.items()}}
    )


def refusal(settings: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        ProducerSettings.parse({**SERVERS, **settings})
    assert caught.value.facts["name"] in settings
    return str(caught.value)


def test_defaults_are_the_documented_ones() -> None:
    found = parse()
    assert found.acks == log_pb2.ACKS_ALL
    assert (found.linger_ms, found.batch_size, found.buffer_memory) == (5, 1 << 20, 64 << 20)
    assert (found.delivery_timeout_ms, found.request_timeout_ms) == (120_000, 30_000)
    assert (found.max_in_flight, found.retries, found.partitioner) == (5, 2**31 - 1, "default")


@pytest.mark.parametrize(
    ("given", "acks"),
    [
        (0, log_pb2.ACKS_NONE),
        ("1", log_pb2.ACKS_LEADER),
        (-1, log_pb2.ACKS_ALL),
        ("all", log_pb2.ACKS_ALL),
    ],
)
def test_acks_takes_kafkas_words(given: object, acks: int) -> None:
    assert parse(acks=given).acks == acks


def test_values_given_as_text_are_read() -> None:
    assert parse(linger_ms="20").linger_ms == 20


def test_an_unknown_setting_names_its_nearest() -> None:
    assert "did you mean linger.ms?" in refusal({"linger.msec": 5})


@pytest.mark.parametrize("name", ["sasl.jaas.config", "sasl.kerberos.keytab", "sasl.unheard.of"])
def test_every_setting_of_a_family_that_does_not_exist_is_refused_with_its_reason(
    name: str,
) -> None:
    assert "signing in has security.protocol=sasl_ssl" in refusal({name: "x"})


def test_a_delivery_timeout_shorter_than_linger_and_request_timeout_is_refused() -> None:
    message = refusal({"delivery.timeout.ms": 30_004, "request.timeout.ms": 30_000})
    assert "at least linger.ms + request.timeout.ms (5 + 30000 ms)" in message
    assert parse(delivery_timeout_ms=30_005).request_timeout_ms == 30_000


def test_a_short_delivery_timeout_alone_lowers_the_request_timeout() -> None:
    found = parse(delivery_timeout_ms=10_000)
    assert (found.delivery_timeout_ms, found.request_timeout_ms) == (10_000, 9_995)


def test_a_batch_larger_than_a_request_is_refused_but_a_small_request_shrinks_the_default() -> None:
    assert "max.request.size" in refusal({"batch.size": 2000, "max.request.size": 1000})
    assert parse(max_request_size=1000).batch_size == 1000


def test_a_value_out_of_range_says_the_range_and_the_unit() -> None:
    assert "linger.ms is -1 ms; it must be at least 0" in refusal({"linger.ms": -1})


def test_a_producer_is_idempotent_unless_it_is_told_not_to_be() -> None:
    assert parse().idempotent
    assert parse(enable_idempotence="true", acks=-1, retries=1).idempotent
    assert not parse(enable_idempotence=False).idempotent


@pytest.mark.parametrize("settings", [{"acks": 0}, {"acks": 1}, {"retries": 0}])
def test_settings_that_rule_idempotence_out_turn_it_off_or_contradict_it_when_it_was_asked_for(
    settings: dict[str, object],
) -> None:
    assert not parse(**settings).idempotent
    assert "set enable.idempotence to false" in refusal({**settings, "enable.idempotence": True})
    assert not parse(**settings, enable_idempotence=False).idempotent


@pytest.mark.parametrize("asked", [{}, {"enable.idempotence": True}])
def test_more_requests_in_flight_than_the_gateway_remembers_are_refused_with_idempotence(
    asked: dict[str, object],
) -> None:
    assert "at most 5" in refusal({"max.in.flight.requests.per.connection": 6, **asked})
    assert parse(max_in_flight_requests_per_connection=6, acks=1).max_in_flight == 6
    found = parse(max_in_flight_requests_per_connection=6, enable_idempotence=False)
    assert found.max_in_flight == 6


def test_a_transactional_producer_is_idempotent() -> None:
    settings = parse(transactional_id="x")
    assert (settings.idempotent, settings.transactional_id) == (True, "x")
    assert settings.transaction_timeout_ms == settings.delivery_timeout_ms == 60_000
    own = parse(transactional_id="x", delivery_timeout_ms=90_000)
    assert own.delivery_timeout_ms == 90_000
    short = parse(transactional_id="x", transaction_timeout_ms=1_000, linger_ms=5_000)
    assert short.delivery_timeout_ms == 5_001
    assert parse(transactional_id="").transactional_id == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"enable.idempotence": False}, "enable.idempotence is false: transactions need it"),
        ({"acks": 1}, "acks is 1; with transactional.id it must be all"),
        ({"acks": 0}, "acks is 0; with transactional.id it must be all"),
        ({"retries": 0}, "retries is 0; with transactional.id it must be at least 1"),
        (
            {"max.in.flight.requests.per.connection": 6},
            "is 6; with transactional.id it must be at most 5",
        ),
        (
            {"transactional.id": "é" * 125},
            "has 250 bytes; it may have at most 249",
        ),
        ({"transactional.id": "\ud800"}, "which has no UTF-8 form"),
        ({"transaction.timeout.ms": 0}, "transaction.timeout.ms"),
    ],
)
def test_what_transactions_need_is_said(settings: dict[str, object], said: str) -> None:
    assert said in refusal({"transactional.id": "x", **settings})


def test_snappy_is_refused_with_what_to_use() -> None:
    assert "lz4" in refusal({"compression.type": "snappy"})


def test_an_unknown_partitioner_names_the_nearest() -> None:
    assert "did you mean round_robin?" in refusal({"partitioner": "roundrobin"})


def test_murmur2_random_is_the_default_partitioner() -> None:
    assert parse(partitioner="murmur2_random").partitioner == "default"


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:", "localhost:x", ":9490", "a:0"])
def test_a_bootstrap_server_that_is_no_address_is_refused_with_an_example(servers: str) -> None:
    assert "127.0.0.1:9490" in refusal({"bootstrap.servers": servers})


def test_several_bootstrap_servers_are_taken_as_text_or_list() -> None:
    wanted = ("a:1", "b:2")
    assert parse(bootstrap_servers="a:1, b:2").bootstrap_servers == wanted
    assert parse(bootstrap_servers=["a:1", "b:2"]).bootstrap_servers == wanted


def test_missing_bootstrap_servers_say_what_to_give() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9490"):
        ProducerSettings.parse({})


def test_the_admin_client_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match=r"did you mean client\.id"):
        AdminClient({**SERVERS, "client_id": "x"})


def test_every_setting_names_kafkas_and_is_in_the_reference(repo_root: Path) -> None:
    page = (repo_root / "docs/reference/client.md").read_text()
    for key in PRODUCER_KEYS.values():
        assert "Kafka: " in key.doc
        assert f"`{key.name}`" in page
