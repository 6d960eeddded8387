"""Kafka's rule for topic names, at its edges."""

from __future__ import annotations

import string

import pytest

from mainstem.errors import InvalidTopicError
from mainstem.records import check_new_topic_name, check_topic_name


@pytest.mark.parametrize(
    "name",
    ["a", "t" * 249, "...", "-", "_", ".a", "a.b", "a_b", string.ascii_letters + string.digits],
)
def test_a_name_within_the_rule_is_taken_as_it_is(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "it is empty"),
        ("t" * 250, "it has 250 characters"),
        (".", "means a directory"),
        ("..", "means a directory"),
        ("a/b", "'/'"),
        ("a b", "' '"),
        ("naïve", "'ï'"),
        ("а", "'а'"),  # Cyrillic
        ("a\n", r"'\\n'"),
        ("٣", "'٣'"),  # a digit, but not one of ours
        ("a\0", r"'\\x00'"),
        ("\ud800", "ud800"),
    ],
)
def test_a_name_outside_the_rule_is_refused_with_what_is_wrong_and_the_rule(
    name: str, problem: str
) -> None:
    with pytest.raises(InvalidTopicError, match=problem) as caught:
        check_topic_name(name)
    assert "1 to 249 characters out of letters, digits, '.', '_' and '-'" in caught.value.message


def test_the_message_for_a_very_long_name_stays_short() -> None:
    with pytest.raises(InvalidTopicError) as caught:
        check_topic_name("é" * 1_000_000)
    assert len(caught.value.message) < 300
    assert len(caught.value.facts["topic"]) <= 60


@pytest.mark.parametrize("name", ["__consumer_offsets", "__", "__mine", "system"])
def test_a_reserved_name_is_no_name_for_a_new_topic_and_stays_one_for_an_old(name: str) -> None:
    assert check_topic_name(name) == name
    with pytest.raises(InvalidTopicError, match="is reserved"):
        check_new_topic_name(name)


@pytest.mark.parametrize("name", ["_", "_mine", "a__b", "systems", "System"])
def test_a_name_that_only_looks_like_a_reserved_one_is_taken(name: str) -> None:
    assert check_new_topic_name(name) == name
