"""What access control lists allow."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mainstem.errors import InvalidConfigError
from mainstem.security import (
    CLUSTER_NAME,
    AclBinding,
    Acls,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)

ALICE = Principal("User", "alice", frozenset({"readers"}))
BOB = Principal("User", "bob")
HOST = "192.0.2.7"


def rule(
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    principal: str = "User:alice",
    host: str = "*",
    prefixed: bool = False,
    deny: bool = False,
    resource_type: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(
        resource_type,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        operation,
        Permission.DENY if deny else Permission.ALLOW,
    )


def allows(
    rules: list[AclBinding],
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    principal: Principal = ALICE,
    host: str = HOST,
    resource_type: ResourceType = ResourceType.TOPIC,
    **options: Any,
) -> bool:
    acls = Acls(**options)
    acls.replace(rules)
    first = acls.allows(principal, host, operation, resource_type, name)
    assert acls.allows(principal, host, operation, resource_type, name) is first, "remembered"
    return first


def test_nothing_is_allowed_that_no_rule_allows() -> None:
    assert not allows([])
    assert not allows([rule("payments")])
    assert not allows([rule(principal="User:bob")])
    assert not allows([rule(resource_type=ResourceType.GROUP)])
    assert not allows([rule()], Operation.WRITE)
    assert allows([rule()])


def test_a_rule_names_everybody_a_group_or_one() -> None:
    assert allows([rule(principal="User:*")])
    assert allows([rule(principal="Group:readers")])
    assert not allows([rule(principal="Group:readers")], principal=BOB)
    assert not allows([rule(principal="User:*")], principal=Principal("Gateway", "g"))


def test_a_rule_names_all_resources_some_or_one() -> None:
    assert allows([rule("*")])
    assert allows([rule("ord", prefixed=True)])
    assert not allows([rule("ord")])
    assert not allows([rule("orders.", prefixed=True)])
    assert allows([rule("orders", prefixed=True)])


def test_a_rule_names_an_address_or_a_network() -> None:
    assert allows([rule(host=HOST)])
    assert allows([rule(host="192.0.2.0/24")])
    assert not allows([rule(host="192.0.3.0/24")])
    assert not allows([rule(host="192.0.2.0/24")], host="/run/socket")
    assert allows([rule(host="2001:db8::/32")], host="2001:db8::1")


def test_what_is_denied_is_not_allowed_by_another_rule() -> None:
    assert not allows([rule(), rule(deny=True)])
    assert not allows([rule("*"), rule("ord", prefixed=True, deny=True)])
    assert not allows([rule(), rule(deny=True, operation=Operation.ALL)])
    assert allows([rule(), rule(deny=True, operation=Operation.WRITE)])
    assert allows([rule(), rule(deny=True, principal="User:bob")])


@pytest.mark.parametrize(
    ("allowed", "implied"),
    [
        (Operation.READ, Operation.DESCRIBE),
        (Operation.WRITE, Operation.DESCRIBE),
        (Operation.DELETE, Operation.DESCRIBE),
        (Operation.ALTER, Operation.DESCRIBE),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
        (Operation.ALL, Operation.ALTER),
    ],
)
def test_who_may_do_more_may_look(allowed: Operation, implied: Operation) -> None:
    assert allows([rule(operation=allowed)], implied)


def test_who_may_not_read_may_look_where_that_is_allowed() -> None:
    assert allows([rule(operation=Operation.DESCRIBE), rule(deny=True)], Operation.DESCRIBE), (
        "what denies reading says nothing of looking"
    )


def test_super_users_may_do_what_is_denied() -> None:
    assert allows([rule(deny=True)], super_users=["User:alice"])
    assert allows([], super_users=["Group:readers"])
    assert not allows([], super_users=["User:bob"])


def test_what_no_rule_is_about_is_open_where_that_is_set() -> None:
    assert allows([], allow_if_none=True)
    assert not allows([rule(principal="User:bob")], allow_if_none=True)


def test_other_rules_decide_from_when_they_are_there() -> None:
    acls = Acls()
    question = (ALICE, HOST, Operation.READ, ResourceType.TOPIC, "orders")
    assert not acls.allows(*question)
    acls.replace([rule()])
    assert acls.allows(*question)
    acls.replace([])
    assert not acls.allows(*question)


def test_whether_anything_is_allowed_takes_what_denies_all_of_it_into_account() -> None:
    def any_allowed(*rules: AclBinding, **options: Any) -> bool:
        acls = Acls(**options)
        acls.replace(rules)
        return acls.allows_any(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC)

    write = Operation.WRITE
    assert not any_allowed()
    assert any_allowed(rule(operation=write))
    assert not any_allowed(rule(operation=write), rule(operation=write, deny=True))
    assert not any_allowed(rule(operation=write), rule("*", write, deny=True))
    assert any_allowed(rule("*", write), rule(operation=write, deny=True))
    assert not any_allowed(rule("ab", write), rule("a", write, prefixed=True, deny=True))
    assert any_allowed(rule("a", write, prefixed=True), rule("ab", write, prefixed=True, deny=True))
    assert any_allowed(super_users=["User:alice"])
    assert any_allowed(allow_if_none=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"principal": "alice"}, "User:name"),
        ({"principal": "User:"}, "User:name"),
        ({"name": ""}, "1 to 249"),
        ({"name": "x" * 250}, "1 to 249"),
        ({"name": "*", "prefixed": True}, "LITERAL"),
        ({"host": "gateway.example"}, "no address"),
        ({"operation": Operation.CLUSTER_ACTION}, "not done on a TOPIC"),
        ({"resource_type": ResourceType.CLUSTER}, CLUSTER_NAME),
        (
            {"resource_type": ResourceType.GROUP, "operation": Operation.WRITE},
            "not done on a GROUP",
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        rule(**wrong)


def test_the_index_decides_as_a_look_at_every_rule_does(rng: random.Random) -> None:
    letters = ["a", "b", "ab", "abc", "b-", "*"]
    for _ in range(200):
        rules = []
        for _ in range(rng.randrange(8)):
            name = rng.choice(letters)
            rules.append(
                rule(
                    name,
                    rng.choice([Operation.READ, Operation.DESCRIBE, Operation.ALL]),
                    principal=rng.choice(["User:alice", "User:bob", "User:*", "Group:readers"]),
                    host=rng.choice(["*", HOST, "198.51.100.0/24"]),
                    prefixed=name != "*" and rng.random() < 0.5,
                    deny=rng.random() < 0.3,
                )
            )
        for name in [*letters, "abcd", "b-c", "x"]:
            for operation in (Operation.READ, Operation.DESCRIBE):
                found = {
                    one.permission
                    for one in rules
                    if one.is_about(name)
                    and one.principal in ALICE.names
                    and one.is_from(HOST)
                    and one.decides(operation)
                }
                expected = found == {Permission.ALLOW}
                assert allows(rules, operation, name) is expected, (rules, name, operation)


def test_no_more_is_remembered_than_has_room_and_nothing_of_names_that_no_thing_has() -> None:
    acls = Acls()
    acls.replace([rule("t", prefixed=True)])
    for name in ("t" * 249, "t" * 250, "x" * 1_000_000):
        allowed = acls.allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, name)
        assert allowed is name.startswith("t")
    assert {question[-1] for question in acls.remembered} == {"t" * 249}
    for number in range(50_100):
        acls.allows(BOB, HOST, Operation.READ, ResourceType.TOPIC, f"t-{number}")
    assert 0 < len(acls.remembered) <= 50_000
    acls.replace([])
    assert not acls.remembered
