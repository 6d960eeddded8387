"""The table of access control lists: one row a principal, all or none, and no more than fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import AclsChange, AclsTable, all_rules
from mainstem.delta_log.system import acls_table as module
from mainstem.errors import LogDamagedError, PolicyViolationError
from mainstem.security import AclBinding, acl_binding_of, acl_filter_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(tmp_path)
    yield opened
    opened.close()


def rule(name: str = "t", principal: str = "User:a", operation: str = "READ") -> AclBinding:
    return acl_binding_of("TOPIC", name, "LITERAL", principal, "*", operation, "ALLOW")


def rules(store: LocalStore) -> list[AclBinding]:
    """As somebody else reads them."""
    return all_rules(AclsTable(store).read())


def test_rules_are_kept_once_each_with_one_file_for_each_principal(store: LocalStore) -> None:
    table = AclsTable(store)
    many = [rule(f"t{number}") for number in range(50)]
    first = AclsChange(added=[*many, rule(principal="User:b"), many[0]])
    table.update(first)
    assert first.created_count == 51
    again = AclsChange(added=[many[7], rule(principal="User:b", operation="WRITE")])
    table.update(again)
    assert again.created_count == 1
    assert set(rules(store)) == {
        *many,
        rule(principal="User:b"),
        rule(principal="User:b", operation="WRITE"),
    }
    assert len(list(table.opened.refresh())) == 2


def test_the_rules_that_a_filter_matches_are_removed_and_told(store: LocalStore) -> None:
    table = AclsTable(store)
    table.update(AclsChange(added=[rule("a"), rule("b"), rule("a", "User:b")]))
    removed = AclsChange(removed=[acl_filter_of(name="a"), acl_filter_of(principal="User:b")])
    table.update(removed)
    assert set(removed.removed) == {rule("a"), rule("a", "User:b")}
    assert rules(store) == [rule("b")]
    nothing = AclsChange(removed=[acl_filter_of(name="a")])
    table.update(nothing)
    assert nothing.removed == []


def test_two_who_add_rules_of_one_principal_at_once_lose_none(store: LocalStore) -> None:
    one, two = AclsTable(store), AclsTable(store)
    one.read()
    two.read()
    one.update(AclsChange(added=[rule("a")]))
    two.update(AclsChange(added=[rule("b")]))
    assert set(rules(store)) == {rule("a"), rule("b")}


def test_one_rule_too_many_is_refused_with_the_limit_and_none_is_added(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ACLS_MAX", 3)
    table = AclsTable(store)
    table.update(AclsChange(added=[rule("a"), rule("b")]))
    with pytest.raises(PolicyViolationError, match="there would be 4 rules, and there may be 3"):
        table.update(AclsChange(added=[rule("c"), rule("d", "User:b")]))
    assert len(rules(store)) == 2
    table.update(AclsChange(added=[rule("c"), rule("a")]))
    assert len(rules(store)) == 3


@pytest.mark.parametrize(
    "name", ["ünïcödé", "a:b,c;d", "line\nbreak", "x" * 249, '"quoted"', "\u202eright"]
)
def test_odd_names_come_back_as_they_were(store: LocalStore, name: str) -> None:
    odd = rule(name, f"User:{name}")
    AclsTable(store).update(AclsChange(added=[odd]))
    assert rules(store) == [odd]


def test_rules_that_are_not_understood_are_told_and_not_left_out() -> None:
    with pytest.raises(LogDamagedError, match="'FLY' is no operation"):
        module._decode(
            {
                "principal": "User:a",
                "rules": [
                    {
                        "resource_type": "TOPIC",
                        "name": "t",
                        "pattern_type": "LITERAL",
                        "host": "*",
                        "operation": "FLY",
                        "permission": "DENY",
                    }
                ],
            }
        )
    with pytest.raises(LogDamagedError, match="not understood"):
        module._decode({"rules": []})
