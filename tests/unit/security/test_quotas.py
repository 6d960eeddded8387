"""Quotas: whom they are for, and which one of several holds."""

from __future__ import annotations

import math

import pytest

from mainstem.errors import InvalidConfigError
from mainstem.security import (
    DEFAULT,
    QuotaEntity,
    QuotaName,
    limits_of,
    quota_name,
    quota_value,
)

RATE = QuotaName.PRODUCER_BYTE_RATE

#: From the one that is most about the caller to the one that is least; Kafka's order.
ORDER = [
    QuotaEntity("User:alice", "c"),
    QuotaEntity("User:alice", DEFAULT),
    QuotaEntity("User:alice"),
    QuotaEntity(DEFAULT, "c"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity("", "c"),
    QuotaEntity("", DEFAULT),
]


def test_the_quota_that_is_most_about_the_caller_holds() -> None:
    rows = {entity: {RATE: float(index + 1)} for index, entity in enumerate(ORDER)}
    for index, entity in enumerate(ORDER):
        limit = limits_of(rows, "User:alice", "c")[RATE]
        assert (limit.entity, limit.value) == (entity, index + 1)
        del rows[entity]
    assert limits_of(rows, "User:alice", "c") == {}


def test_each_value_comes_from_the_first_entity_that_has_it() -> None:
    rows = {
        QuotaEntity("User:alice"): {RATE: 1.0},
        QuotaEntity(DEFAULT): {RATE: 2.0, QuotaName.REQUEST_RATE: 3.0},
    }
    found = limits_of(rows, "User:alice", "")
    assert {name: limit.value for name, limit in found.items()} == {
        RATE: 1.0,
        QuotaName.REQUEST_RATE: 3.0,
    }


@pytest.mark.parametrize(
    ("entity", "who"),
    [
        (QuotaEntity("User:alice"), ("User:alice", "")),
        (QuotaEntity(DEFAULT), ("User:alice", "")),
        (QuotaEntity(DEFAULT, DEFAULT), ("User:alice", "c")),
        (QuotaEntity("", DEFAULT), ("", "c")),
    ],
)
def test_a_default_is_for_each_and_a_users_quota_is_shared_by_their_clients(
    entity: QuotaEntity, who: tuple[str, str]
) -> None:
    assert limits_of({entity: {RATE: 1.0}}, "User:alice", "c")[RATE].who == who


def test_who_gives_no_client_id_has_no_quota_of_one() -> None:
    rows = {QuotaEntity("", DEFAULT): {RATE: 1.0}, QuotaEntity(DEFAULT, DEFAULT): {RATE: 2.0}}
    assert limits_of(rows, "User:alice", "") == {}


@pytest.mark.parametrize(
    "name", ["<default>", "User:<default>", "*", 'a"b', "ü:,\n", "x" * 900, "User:"]
)
def test_a_client_id_is_any_text_and_stands_for_nothing_but_itself(name: str) -> None:
    entity = QuotaEntity("User:alice", name)
    entity.check()
    rows = {entity: {RATE: 1.0}}
    assert limits_of(rows, "User:alice", name)[RATE].value == 1.0
    other = limits_of(rows, "User:alice", "other")
    assert bool(other) == (name == DEFAULT)


@pytest.mark.parametrize(
    ("entity", "why"),
    [
        (QuotaEntity(), "a quota is for"),
        (QuotaEntity("alice"), "is no principal"),
        (QuotaEntity("Group:readers"), "cannot have a quota"),
        (QuotaEntity("Gateway:gateway"), "cannot have a quota"),
        (QuotaEntity("User:*"), "cannot have a quota"),
        (QuotaEntity("User:" + "x" * 1_000), "too long"),
        (QuotaEntity("User:a", "x" * 1_001), "too long"),
    ],
)
def test_an_entity_that_nobody_is_is_refused(entity: QuotaEntity, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        entity.check()


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf, 1e16])
def test_a_value_that_is_no_rate_is_refused(value: float) -> None:
    with pytest.raises(InvalidConfigError, match="must be more than 0"):
        quota_value(RATE, value)


def test_a_count_is_a_whole_number() -> None:
    assert quota_value(QuotaName.CONNECTIONS, 3.0) == 3.0
    with pytest.raises(InvalidConfigError, match="whole number"):
        quota_value(QuotaName.CONNECTIONS, 2.5)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("topics", "who made it"),
        ("request_percentage", "use request_rate"),
        ("nonsense", "there are producer_byte_rate"),
        ("", "there are producer_byte_rate"),
    ],
)
def test_a_name_that_is_no_quota_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        quota_name(name)
