"""The error classes: codes, flags and facts."""

from __future__ import annotations

import pickle
import re

import pytest

import mainstem.errors
from mainstem.errors import (
    BackPressureError,
    ConfigError,
    FencedError,
    InvalidConfigError,
    MainstemError,
    NotLeaderError,
    QueueFullError,
    error_classes,
)

CLASSES = [
    value
    for value in vars(mainstem.errors).values()
    if isinstance(value, type) and issubclass(value, MainstemError)
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_says_what_it_means_and_has_a_stable_code(cls: type[MainstemError]) -> None:
    assert cls.__name__ in mainstem.errors.__all__
    assert cls.__doc__
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", cls.code)
    assert not (cls.retriable and cls.fatal)


def test_a_code_leads_to_the_most_general_class_that_has_it() -> None:
    classes = error_classes()
    assert classes["NOT_LEADER"] is NotLeaderError
    assert classes["INVALID_CONFIG"] is InvalidConfigError
    assert {cls.code for cls in CLASSES} == set(classes)
    assert FencedError.code == NotLeaderError.code
    assert ConfigError.code == InvalidConfigError.code


def test_an_error_has_its_message_facts_as_text_and_a_delay() -> None:
    error = BackPressureError("full", retry_delay_ms=100, queued_bytes=5, limit_bytes=4)
    assert str(error) == error.message == "full"
    assert error.facts == {"queued_bytes": "5", "limit_bytes": "4"}
    assert error.retry_delay_ms == 100
    assert error.retriable
    assert BackPressureError("full").retry_delay_ms == 0


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_survives_the_way_to_another_process(cls: type[MainstemError]) -> None:
    error = pickle.loads(pickle.dumps(cls("what", retry_delay_ms=3, fact=1)))
    assert type(error) is cls
    assert (error.message, error.facts, error.retry_delay_ms) == ("what", {"fact": "1"}, 3)


def test_a_full_buffer_is_a_buffer_error_as_in_confluents_client() -> None:
    with pytest.raises(BufferError):
        raise QueueFullError("full")
