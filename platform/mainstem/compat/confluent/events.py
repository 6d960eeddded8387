"""What a consumer tells beside its messages: ends of partitions, topics that are missing, and that
no gateway can be reached."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from mainstem import client
from mainstem.compat.confluent.configuration import Configuration
from mainstem.compat.confluent.error import kafka_error
from mainstem.compat.confluent.model import Message
from mainstem.errors import GatewayUnavailableError, MainstemError

#: How long one wait lasts where ends of partitions are to be told in between.
_LOOK_S: Final = 0.1

#: Without a message for so long, error_cb is told if no gateway can be reached.
_QUIET_S: Final = 5.0

#: How long a gateway may take to show that it is there; a subscription is looked at so long after
#: it was made.
_PROBE_S: Final = 1.0


class Events:
    """The events of one consumer.

    Args:
        tells_ends: enable.partition.eof.
    """

    def __init__(
        self, consumer: client.Consumer, configuration: Configuration, tells_ends: bool
    ) -> None:
        self._consumer = consumer
        self._configuration = configuration
        self._tells_ends = tells_ends
        #: The high watermark at which each partition's end was told last.
        self._ends_told: dict[client.TopicPartition, int] = {}
        self._heard_at = self._subscribed_at = time.monotonic()
        #: Names that were subscribed to, until it is known whether there are such topics.
        self._looked_for: frozenset[str] = frozenset()

    def subscribed(self, topics: Sequence[str]) -> None:
        """These topics are read from now on; names that begin with ^ are patterns."""
        self._looked_for = frozenset(name for name in topics if not name.startswith("^"))
        self._subscribed_at = time.monotonic()

    def wait_at_most(self, wait_s: float | None) -> float | None:
        """How long to wait for messages, so that no event is late; None: without end."""
        limits = [wait_s] if wait_s is not None else []
        if self._tells_ends:
            limits.append(_LOOK_S)
        if self._looked_for:
            limits.append(_PROBE_S)
        if self._configuration.error_cb is not None:
            limits.append(_QUIET_S)
        return min(limits, default=None)

    def look(self, count: int, *, quiet: bool) -> list[Message]:
        """Calls error_cb if there is reason to; returns up to `count` events.

        Args:
            quiet: No message came.
        """
        self._tell_if_nobody_is_there(quiet)
        found: list[Message] = []
        if quiet and self._looked_for:
            found += islice(self._missing_topics(), count)
        if self._tells_ends and len(found) < count:
            found += islice(self._ends(), count - len(found))
        return found

    def _tell_if_nobody_is_there(self, quiet: bool) -> None:
        now = time.monotonic()
        if not quiet:
            self._heard_at = now
        elif self._configuration.error_cb is not None and now - self._heard_at >= _QUIET_S:
            try:
                self._consumer.list_topics(_PROBE_S)
            except GatewayUnavailableError as error:
                self._configuration.tell_error(error)
            except MainstemError:
                pass  # one is there, and says something
            self._heard_at = time.monotonic()

    def _missing_topics(self) -> Iterator[Message]:
        """An error for each topic that was subscribed to by name and does not exist, once."""
        if time.monotonic() - self._subscribed_at < _PROBE_S:
            return
        wanted, self._looked_for = self._looked_for, frozenset()
        try:
            there = self._consumer.list_topics(_PROBE_S)
        except MainstemError:
            return  # error_cb and the log tell of that
        for name in sorted(wanted - there.keys()):
            sentence = f"Subscribed topic not available: {name}: there is no topic of that name"
            yield Message(name, error=kafka_error("UNKNOWN_TOPIC_OR_PART", sentence))

    def _ends(self) -> Iterator[Message]:
        """An event for each partition whose end was reached since it was told last."""
        for tp in self._consumer.position(self._consumer.assignment()):
            _, high = self._consumer.get_watermark_offsets(tp, cached=True)
            if 0 <= tp.offset == high and self._ends_told.get(tp) != high:
                self._ends_told[tp] = high
                error = kafka_error("_PARTITION_EOF", f"the end of the partition, offset {high}")
                yield Message(tp.topic, tp.partition, tp.offset, error=error)
