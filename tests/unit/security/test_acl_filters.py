"""Which rules a filter means."""

from __future__ import annotations

import pytest

from mainstem.errors import InvalidConfigError
from mainstem.security import (
    AclBinding,
    AclBindingFilter,
    acl_binding_of,
    acl_filter_of,
    words_of,
)

LITERAL = acl_binding_of("TOPIC", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW")
PREFIX = acl_binding_of("TOPIC", "ord", "PREFIXED", "User:a", "*", "READ", "ALLOW")
EVERY = acl_binding_of("TOPIC", "*", "LITERAL", "User:b", "10.0.0.0/8", "WRITE", "DENY")
GROUP = acl_binding_of("GROUP", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW")
RULES = [LITERAL, PREFIX, EVERY, GROUP]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, RULES),
        ({"resource_type": "TOPIC"}, [LITERAL, PREFIX, EVERY]),
        ({"name": "orders"}, [LITERAL, GROUP]),
        ({"name": "ord"}, [PREFIX]),
        ({"name": "ord", "pattern_type": "LITERAL"}, []),
        ({"name": "orders", "pattern_type": "MATCH"}, RULES),
        ({"name": "orders", "resource_type": "GROUP", "pattern_type": "MATCH"}, [GROUP]),
        ({"name": "order", "pattern_type": "MATCH"}, [PREFIX, EVERY]),
        ({"pattern_type": "MATCH"}, RULES),
        ({"pattern_type": "PREFIXED"}, [PREFIX]),
        ({"name": "*"}, [EVERY]),
        ({"principal": "User:b"}, [EVERY]),
        ({"host": "*"}, [LITERAL, PREFIX, GROUP]),
        ({"operation": "WRITE", "permission": "ALLOW"}, []),
        ({"permission": "DENY"}, [EVERY]),
    ],
)
def test_a_filter_means_the_rules_that_have_all_of_its_words(
    words: dict[str, str], expected: list[AclBinding]
) -> None:
    asked = acl_filter_of(**words)
    assert [rule for rule in RULES if asked.matches(rule)] == expected


def test_a_filter_of_nothing_is_the_one_without_words() -> None:
    assert acl_filter_of() == AclBindingFilter()


def test_a_rule_is_read_from_the_words_that_say_it() -> None:
    for rule in RULES:
        assert acl_binding_of(**words_of(rule)) == rule


@pytest.mark.parametrize("word", ["resource_type", "pattern_type", "operation", "permission"])
def test_a_word_that_is_none_is_refused_with_those_that_there_are(word: str) -> None:
    words = words_of(LITERAL) | {word: "read"}
    with pytest.raises(InvalidConfigError, match=r"'read' is no .*; there are [A-Z]+, "):
        acl_binding_of(**words)
    with pytest.raises(InvalidConfigError, match="'read' is no"):
        acl_filter_of(**{word: "read"})


@pytest.mark.parametrize(
    ("word", "value", "reason"),
    [
        ("principal", "User:" + "x" * 1_000, "1005 characters"),
        ("name", "\ud800", "no text"),
        ("host", "example.com", "no address"),
    ],
)
def test_what_no_rule_can_have_is_refused(word: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        acl_binding_of(**(words_of(LITERAL) | {word: value}))
