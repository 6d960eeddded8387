"""Every setting of Kafka's clients has one fate, and all faults are told in one error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.kafka_setting_names import JAVA, LIBRDKAFKA

from mainstem.client import (
    ADMIN_KEYS,
    CONSUMER_KEYS,
    PRODUCER_KEYS,
    AdminClient,
    ConsumerSettings,
    ProducerSettings,
)
from mainstem.client.fates import FATES, NESTED, REFUSED_PREFIXES, ROLES, Fate, Role, fates_of
from mainstem.client.settings import say
from mainstem.errors import ConfigError

SERVERS = {"bootstrap.servers": "127.0.0.1:9490"}
GROUP = {**SERVERS, "group.id": "g"}
KEYS = {"producer": PRODUCER_KEYS, "consumer": CONSUMER_KEYS, "admin": ADMIN_KEYS}


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> Iterator[None]:
    say.cache_clear()
    yield
    say.cache_clear()


def parse(role: Role, settings: dict[str, Any]) -> Any:
    if "metadata.broker.list" in settings:
        return ProducerSettings.parse(settings)
    if role == "producer":
        return ProducerSettings.parse({**SERVERS, **settings})
    if role == "consumer":
        return ConsumerSettings.parse({**GROUP, **settings})
    AdminClient({**SERVERS, **settings}).close()
    return None


def rows(fate: str) -> list[tuple[Role, Fate]]:
    return [
        (role, row)
        for role in ROLES
        for row in fates_of(role).values()
        if row.fate == fate and row.name != "bootstrap.servers"
    ]


def ids(pairs: list[tuple[Role, Fate]]) -> list[str]:
    return [f"{role}-{row.name}" for role, row in pairs]


@pytest.mark.parametrize("role", ROLES)
def test_the_table_uses_exactly_the_settings_that_there_are(role: Role) -> None:
    used = [row for row in fates_of(role).values() if row.fate == "used" and row.target]
    assert {row.name for row in used if row.name == row.target} == KEYS[role].keys()
    assert {row.target for row in used} == KEYS[role].keys()


def test_every_row_says_what_a_reader_needs() -> None:
    for row in FATES:
        assert row.text or row.fate == "used", row.name
        assert bool(row.values) == bool(row.otherwise), row.name
        assert not row.text.endswith("."), row.name


@pytest.mark.parametrize(("role", "row"), rows("refused"), ids=ids(rows("refused")))
def test_what_is_refused_says_what_to_do(role: Role, row: Fate) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(role, {row.name: "x"})
    assert caught.value.message == f"{row.name} is not supported: {row.text}"
    assert caught.value.facts["name"] == row.name


@pytest.mark.parametrize(("role", "row"), rows("accepted"), ids=ids(rows("accepted")))
def test_what_changes_nothing_is_accepted_and_other_values_say_what_to_do(
    role: Role, row: Fate
) -> None:
    for value in row.values or ("x",):
        assert parse(role, {row.name: value}) == parse(role, {})
    if row.values:
        with pytest.raises(ConfigError, match="is not supported") as caught:
            parse(role, {row.name: "something else"})
        assert row.otherwise in caught.value.message


@pytest.mark.parametrize(
    ("role", "name", "value", "attribute", "wanted"),
    [
        ("producer", "message.timeout.ms", 60_000, "delivery_timeout_ms", 60_000),
        ("producer", "message.timeout.ms", 0, "delivery_timeout_ms", 2**31 - 1),
        ("producer", "queue.buffering.max.ms", "7", "linger_ms", 7),
        ("producer", "linger.ms", 0.5, "linger_ms", 1),
        ("producer", "queue.buffering.max.kbytes", 1024, "buffer_memory", 1024 * 1024),
        ("producer", "message.send.max.retries", 3, "retries", 3),
        ("producer", "compression.codec", "lz4", "compression_type", "lz4"),
        ("producer", "compression.type", "ZSTD", "compression_type", "zstd"),
        ("producer", "message.max.bytes", 1_000_000, "max_request_size", 1_000_000),
        ("producer", "socket.timeout.ms", 5_000, "request_timeout_ms", 5_000),
        ("producer", "max.in.flight", 2, "max_in_flight", 2),
        ("producer", "enable.idempotence", "0", "idempotent", False),
        ("producer", "partitioner", "consistent_random", "partitioner", "default"),
        ("producer", "partitioner", "random", "partitioner", "round_robin"),
        (
            "producer",
            "partitioner.class",
            "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "partitioner",
            "round_robin",
        ),
        ("producer", "metadata.broker.list", "a:1,b:2", "bootstrap_servers", ("a:1", "b:2")),
        ("producer", "topic.metadata.refresh.interval.ms", -1, "metadata_max_age_ms", 2**31 - 1),
        ("consumer", "auto.offset.reset", "smallest", "reset", "earliest"),
        ("consumer", "fetch.wait.max.ms", 100, "fetch_max_wait_ms", 100),
        ("consumer", "fetch.message.max.bytes", 2_000, "max_partition_fetch_bytes", 2_000),
        ("consumer", "max.poll.interval.ms", 2**31 - 1, "max_poll_interval_ms", 86_400_000),
        ("consumer", "fetch.max.bytes", 52_428_800, "fetch_max_bytes", 48 << 20),
        ("consumer", "partition.assignment.strategy", "range,roundrobin", "assignor", "range"),
        (
            "consumer",
            "partition.assignment.strategy",
            ["cooperative-sticky"],
            "assignor",
            "uniform",
        ),
        (
            "consumer",
            "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "assignor",
            "range",
        ),
        ("consumer", "group.remote.assignor", "range", "assignor", "range"),
        ("consumer", "auto.commit.enable", "f", "auto_commit", False),
        (
            "consumer",
            "default.topic.config",
            {"auto.offset.reset": "earliest"},
            "reset",
            "earliest",
        ),
        ("consumer", "isolation.level", "READ_COMMITTED", "group_id", "g"),
    ],
)
def test_kafkas_other_names_and_values_set_ours(
    role: Role, name: str, value: object, attribute: str, wanted: object
) -> None:
    assert getattr(parse(role, {name: value}), attribute) == wanted


def test_a_name_of_its_own_wins_over_what_only_stands_in_for_it() -> None:
    for settings in (
        {"socket.timeout.ms": 1_000, "request.timeout.ms": 2_000},
        {"request.timeout.ms": 2_000, "socket.timeout.ms": 1_000},
    ):
        assert parse("producer", settings).request_timeout_ms == 2_000


def test_two_names_of_one_setting_may_agree_but_not_contradict_each_other() -> None:
    assert parse("producer", {"linger.ms": 7, "queue.buffering.max.ms": 7}).linger_ms == 7
    with pytest.raises(ConfigError, match=r"one setting here, linger\.ms, and have two values"):
        parse("producer", {"linger.ms": 7, "queue.buffering.max.ms": 8})


@pytest.mark.parametrize("role", ROLES)
def test_none_means_not_set(role: Role) -> None:
    nothing = dict.fromkeys(fates_of(role))
    del nothing["bootstrap.servers"], nothing["metadata.broker.list"]
    nothing.pop("group.id", None)
    assert parse(role, nothing) == parse(role, {})
    with pytest.raises(ConfigError, match="no setting 'lingerms'"):
        parse(role, {"lingerms": None})


def test_all_faults_of_one_configuration_are_told_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerSettings.parse(
            {
                "bootstrap.servers": "nowhere",
                "error_cb": print,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.jaas.config": "x",
                "linger.msec": 1,
                "retries": "many",
                "compression.type": "snappy",
                "delivery.timeout.ms": 1_000,
                "request.timeout.ms": 2_000,
                "client.id": "\u00e4",
            }
        )
    error = caught.value
    wanted = (
        "error_cb,security.protocol,sasl.jaas.config,linger.msec,retries,compression.type,"
        "bootstrap.servers,delivery.timeout.ms,client.id"
    )
    assert error.facts["names"] == wanted
    assert error.message.startswith("9 settings cannot be used:\n- error_cb is not supported: ")
    for name in wanted.split(","):
        assert name in error.message


def test_a_consumers_faults_and_contradictions_are_told_together_too() -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerSettings.parse(
            {
                **SERVERS,
                "group.instance.id": "i",
                "auto.offset.reset": "sometimes",
                "heartbeat.interval.ms": 50_000,
                "stats_cb": print,
            }
        )
    assert set(caught.value.facts["names"].split(",")) == {
        "stats_cb",
        "auto.offset.reset",
        "heartbeat.interval.ms",
        "group.instance.id",
    }


@pytest.mark.parametrize("names", [LIBRDKAFKA, JAVA])
def test_every_setting_of_kafkas_clients_has_a_fate(names: dict[str, str]) -> None:
    for letters, words in names.items():
        for role in ROLES:
            if role[0].upper() in letters:
                known = [*fates_of(role), NESTED]
                missing = [
                    name
                    for name in words.split()
                    if name not in known and not name.startswith(tuple(REFUSED_PREFIXES))
                ]
                assert missing == [], f"a {role} does not know them"


def test_a_fault_hides_no_contradiction_and_makes_none_up() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("producer", {"linger.ms": "soon", "delivery.timeout.ms": 1, "request.timeout.ms": 2})
    assert caught.value.facts["names"] == "linger.ms"


def test_one_dictionary_serves_producer_consumer_and_admin_with_one_line_for_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = {
        **GROUP,
        "linger.ms": 20,
        "acks": "all",
        "transactional.id": None,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6_000,
        "max.poll.records": 5,
    }
    producer = {n: v for n, v in shared.items() if n in PRODUCER_KEYS}
    consumer = {n: v for n, v in shared.items() if n in CONSUMER_KEYS}
    for _ in range(2):
        assert ProducerSettings.parse(shared) == ProducerSettings.parse(producer)
        assert ConsumerSettings.parse(shared) == ConsumerSettings.parse(consumer)
        AdminClient(shared).close()
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 3
    assert said[0] == (
        "a producer has no use for auto.offset.reset, enable.auto.commit, group.id, "
        "max.poll.records, session.timeout.ms: ignored"
    )
    assert "linger.ms" in said[1]


@pytest.mark.parametrize(
    ("role", "settings", "sentence"),
    [
        ("producer", {"linger.ms": 0.5}, "linger.ms=0.5 is taken as 1 ms here"),
        (
            "consumer",
            {"fetch.max.bytes": 52_428_800},
            "fetch.max.bytes=52428800 is taken as 50331648 bytes here",
        ),
        (
            "producer",
            {"partitioner": "consistent_random"},
            "partitioner=consistent_random is taken as default here: keys are placed by murmur2",
        ),
        (
            "consumer",
            {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 3_000},
            "heartbeat.interval.ms=3000 is taken as 2000 ms here",
        ),
        (
            "producer",
            {"queue.buffering.max.messages": 10},
            "queue.buffering.max.messages changes nothing here: buffer.memory",
        ),
    ],
)
def test_a_value_that_becomes_another_is_said_once(
    role: Role, settings: dict[str, Any], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    parse(role, settings)
    parse(role, settings)
    assert [
        one.getMessage() for one in caplog.records if one.getMessage().startswith(sentence)
    ] == [one.getMessage() for one in caplog.records]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("value", [-1, "-0.5", "nan", "soon", True])
def test_a_number_that_means_nothing_is_refused_and_not_brought_into_range(value: object) -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        parse("producer", {"linger.ms": value})


def test_a_setting_of_a_topic_or_a_gateway_says_whose_it_is() -> None:
    with pytest.raises(ConfigError, match="a setting of a topic, not of the producer"):
        parse("producer", {"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match="a setting of a gateway, not of the consumer"):
        parse("consumer", {"num.partitions": 5})


def test_the_reference_has_every_row(repo_root: Path) -> None:
    page = (repo_root / "docs/reference/kafka-settings.md").read_text()
    for row in FATES:
        assert f"| `{row.name}` |" in page
