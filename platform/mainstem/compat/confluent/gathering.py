"""What poll() and consume() of confluent-kafka's consumer do: gather messages and events."""

from __future__ import annotations

import time
from typing import Any

from mainstem import client
from mainstem.compat.confluent.configuration import Configuration, seconds
from mainstem.compat.confluent.error import from_mainstem
from mainstem.compat.confluent.events import Events
from mainstem.compat.confluent.model import Message
from mainstem.compat.confluent.turns import SLICE_S, Turns
from mainstem.errors import ConsumerClosedError, GatewayUnavailableError, MainstemError


class Gathering:
    """Messages of one consumer, in slices of time, so that other threads get their turns."""

    def __init__(
        self,
        consumer: client.Consumer,
        configuration: Configuration,
        events: Events,
        turns: Turns,
    ) -> None:
        self._consumer = consumer
        self._configuration = configuration
        self._events = events
        self._turns = turns
        self._consumed_count = 0
        #: What a call had when it was interrupted, or had too much: the next one gives it.
        self._kept: list[Message] = []

    def gather(self, count: int, timeout: float | None) -> list[Message]:
        """Up to `count` messages and events; waits for all of them until the time is over.

        Args:
            timeout: Seconds; None or negative: without end.
        """
        timeout_s = seconds(timeout)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._turns:
            found, self._kept = self._kept, []
        statistics = self._configuration.statistics
        try:
            while True:
                left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                wait_s = self._events.wait_at_most(statistics.due_in_s(left_s))
                wait_s = SLICE_S if wait_s is None else min(wait_s, SLICE_S)
                with self._turns:
                    more = self._more(found, count - len(found), wait_s)
                    found += more or ()
                    if not found:
                        statistics.report("consumer", self._collect)
                    found += self._events.look(count - len(found), quiet=not found)
                self._turns.give_way()
                late = left_s is not None and left_s <= wait_s
                if len(found) >= count or late or more is None:
                    self._kept = found[count:] + self._kept
                    return found[:count]
        except BaseException:
            self._kept = found + self._kept
            raise

    def _more(self, found: list[Message], count: int, wait_s: float) -> list[Message] | None:
        """What comes within a slice; None where the call has to end with what it has.

        A new call of the client's poll or consume says that what was given before is done: so for
        messages that nobody has been given yet it is asked for more of the same.
        """
        if count <= 0:
            return []
        if all(message.error() for message in found):
            return self._read(count, wait_s)
        try:
            records = self._consumer.consume_more(count, wait_s)
        except ConsumerClosedError:
            return None  # by another thread; the next call says so
        if records is None:
            return None
        self._consumed_count += len(records)
        return [Message.of_record(record) for record in records]

    def _read(self, count: int, wait_s: float) -> list[Message]:
        try:
            if count == 1:
                record = self._consumer.poll(wait_s)
                records = [] if record is None else [record]
            elif self._consumer.wait_ready(wait_s):
                records = self._consumer.take_ready_many(count)
            else:
                records = []
        except ConsumerClosedError:
            raise closed() from None
        except MainstemError as error:
            if isinstance(error, GatewayUnavailableError):
                self._configuration.tell_error(error)
            partition = error.facts.get("partition")
            return [
                Message(
                    error.facts.get("topic"),
                    int(partition) if partition is not None else None,
                    error=from_mainstem(error),
                )
            ]
        self._consumed_count += len(records)
        return [Message.of_record(record) for record in records]

    def _collect(self) -> dict[str, object]:
        topics: dict[str, dict[str, Any]] = {}
        sources = self._consumer.sources()
        for tp in self._consumer.position(self._consumer.assignment()):
            low, high = self._consumer.get_watermark_offsets(tp, cached=True)
            topic = topics.setdefault(tp.topic, {"topic": tp.topic, "partitions": {}})
            lag = high - tp.offset if tp.offset >= 0 and high >= 0 else -1
            topic["partitions"][str(tp.partition)] = {
                "partition": tp.partition,
                "app_offset": tp.offset,
                "lo_offset": low,
                "hi_offset": high,
                "consumer_lag": lag,
                "source": sources.get(tp, ""),
            }
        return {"rxmsgs": self._consumed_count, "topics": topics}


def closed() -> RuntimeError:
    """The error of a consumer that is closed."""
    return RuntimeError("Consumer closed")
