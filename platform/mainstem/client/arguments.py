"""What callers give: of the shape that a call takes, or refused by the call's name.

Programs that were written for another client give a dict where offsets belong, or one partition
where there are several: taken as they iterate, they would mean something else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping

from mainstem.client.positions import TopicPartition


def partitions_of(given: Iterable[TopicPartition], call: str) -> list[TopicPartition]:
    """The partitions that a call was given.

    Args:
        call: Its name, for the message.

    Raises:
        TypeError: It is a text or one partition, or something in it is no TopicPartition of a text
            and whole numbers.
    """
    if isinstance(given, str | bytes | TopicPartition) or not isinstance(given, Iterable):
        raise _no_list(given, call)
    found = list(given)
    for one in found:
        _check(one, f"{call}() was given")
    return found


def offsets_of(given: Iterable[TopicPartition], call: str) -> list[TopicPartition]:
    """As `partitions_of`, for a call that takes their offsets.

    Raises:
        TypeError: As there; or it is a dict, whose keys have none.
    """
    if isinstance(given, Mapping):
        raise _no_list(given, call)
    return partitions_of(given, call)


def partition_of(given: TopicPartition, call: str) -> TopicPartition:
    """As `partitions_of`, for a call that takes one."""
    _check(given, f"{call}() takes a TopicPartition: it was given")
    return given


def _no_list(given: object, call: str) -> TypeError:
    return TypeError(
        f"{call}() takes a list of partitions, not a {type(given).__name__}: "
        "[TopicPartition(topic, partition, offset)]"
    )


def _check(one: object, said: str) -> None:
    if not isinstance(one, TopicPartition):
        raise TypeError(f"{said} a {type(one).__name__} in the place of a TopicPartition")
    if not isinstance(one.topic, str):
        raise TypeError(f"{said} {one}, whose topic is a {type(one.topic).__name__}, not a str")
    for name, number in (("partition", one.partition), ("offset", one.offset)):
        try:
            operator.index(number)
        except TypeError:
            kind = type(number).__name__
            raise TypeError(f"{said} {one}, whose {name} is a {kind}, not an int") from None


def names_of(given: Iterable[str], name: str) -> list[str]:
    """The texts that an argument has.

    Raises:
        TypeError: It is one text, whose letters would count as one each; or not all are texts.
        UnicodeEncodeError: One is no text in UTF-8. It is told before something is done to others.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is a {type(given).__name__}; it must be a list: [{given!r}]")
    found = list(given)
    for one in found:
        if not isinstance(one, str):
            raise TypeError(f"{name} has a {type(one).__name__}; each must be a str")
        one.encode()
    return found


def check_mapping(given: object, name: str, example: str) -> None:
    """Raises TypeError, with the example, unless an argument is a dict or the like."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is a {type(given).__name__}; it must be a dict: {example}")


def check_config(given: object) -> None:
    """Raises TypeError unless a client's configuration is a dict or the like."""
    check_mapping(given, "the configuration", "{'bootstrap.servers': '127.0.0.1:9490'}")


def check_seconds(timeout: object) -> None:
    """Raises TypeError unless a timeout is a number."""
    if not isinstance(timeout, int | float):
        raise TypeError(f"a timeout is a number of seconds, not a {type(timeout).__name__}")
