"""confluent-kafka's calls about access control lists, against a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ingest_gateway.harness import run, running

from mainstem.compat.confluent import KafkaError, KafkaException
from mainstem.compat.confluent.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

READ = AclBinding(
    ResourceType.TOPIC,
    "orders",
    ResourcePatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
CLUSTER = AclBinding("broker", "kafka-cluster", "literal", "User:ops", "*", "alter", "allow")
PREFIX = AclBinding(2, "ord", 4, "User:*", "10.0.0.0/8", 4, 2)
EVERY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def at_gateway(warehouse: Path, work: Callable[[AdminClient], None], **settings: Any) -> None:
    async def test() -> None:
        async with running(warehouse, **settings) as (gateway, _):
            with AdminClient({"bootstrap.servers": gateway.address}) as admin:
                await asyncio.to_thread(work, admin)

    run(test())


def test_rules_are_created_described_and_deleted_with_a_future_each(tmp_path: Path) -> None:
    def work(admin: AdminClient) -> None:
        created = admin.create_acls([READ, CLUSTER, PREFIX], request_timeout=10)
        assert {one: future.result(10) for one, future in created.items()} == {
            READ: None,
            CLUSTER: None,
            PREFIX: None,
        }
        assert sorted(admin.describe_acls(EVERY).result(10)) == sorted([READ, CLUSTER, PREFIX])
        of_topic = AclBindingFilter("topic", "orders", "match", None, None, "any", "any")
        of_nobody = AclBindingFilter("any", None, "any", "User:nobody", None, "any", "any")
        assert set(admin.describe_acls(of_topic).result(10)) == {READ, PREFIX}
        deleted = admin.delete_acls([of_topic, of_nobody])
        assert set(deleted[of_topic].result(10)) == {READ, PREFIX}
        assert deleted[of_nobody].result(10) == []
        assert admin.describe_acls(EVERY).result(10) == [CLUSTER]

    at_gateway(tmp_path, work)


def test_who_may_not_is_told_by_the_future(tmp_path: Path) -> None:
    def work(admin: AdminClient) -> None:
        for future in (
            admin.create_acls([READ])[READ],
            admin.describe_acls(EVERY),
            admin.delete_acls([EVERY])[EVERY],
        ):
            with pytest.raises(KafkaException) as caught:
                future.result(10)
            assert caught.value.args[0] == KafkaError.CLUSTER_AUTHORIZATION_FAILED

    at_gateway(tmp_path, work, authorizer="acl")


def test_a_rule_that_cannot_be_is_told_by_the_future(tmp_path: Path) -> None:
    wrong = AclBinding("topic", "t", "literal", "alice", "*", "read", "allow")

    def work(admin: AdminClient) -> None:
        with pytest.raises(KafkaException, match="'alice' is no principal"):
            admin.create_acls([wrong])[wrong].result(10)

    at_gateway(tmp_path, work)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: AclBinding("any", "t", "literal", "User:a", "*", "read", "allow"), ValueError),
        (lambda: AclBinding("topic", "t", "match", "User:a", "*", "read", "allow"), ValueError),
        (lambda: AclBinding("topic", "t", "literal", "", "*", "read", "allow"), ValueError),
        (lambda: AclBinding("topic", "t", "literal", "User:a", "*", "fly", "allow"), ValueError),
        (lambda: AclBindingFilter("unknown", None, "any", None, None, "any", "any"), ValueError),
        (lambda: AclBindingFilter("any", 1, "any", None, None, "any", "any"), ValueError),  # type: ignore[arg-type]
    ],
)
def test_words_that_are_none_are_refused_where_they_are_said(
    make: Callable[[], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make()


def test_rules_are_equal_by_all_that_they_say_and_a_filter_is_no_rule() -> None:
    same = AclBinding("topic", "orders", "literal", "User:alice", "*", "read", "allow")
    assert same == READ
    assert hash(same) == hash(READ)
    assert same != PREFIX
    assert (READ.restype_int, READ.operation_int, READ.permission_type_int) == (2, 3, 3)
    assert repr(same) == "AclBinding(TOPIC,orders,LITERAL,User:alice,*,READ,ALLOW)"
    asked = AclBindingFilter("topic", "orders", "literal", "User:alice", "*", "read", "allow")
    assert asked != same
