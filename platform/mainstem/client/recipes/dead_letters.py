"""Records that cannot be processed: tried again, then set aside with the reason, then committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mainstem.client.consumer.consumer import Consumer
from mainstem.client.consumer.records import ConsumerRecord
from mainstem.client.producer.producer import Producer

_log = logging.getLogger("mainstem.client")

#: What is added to a topic's name for its dead letters.
DEAD_LETTER_SUFFIX: Final = ".dlt"

#: What a dead letter's own headers say, in this order after the record's headers.
HEADER_PREFIX: Final = "dlt-"
DEAD_LETTER_FACTS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "exception",
    "reason",
    "attempts",
)

#: Of an exception's text: a header is no place for a log.
_TEXT_LENGTH_MAX: Final = 1_000

#: How often the consumer is polled during a wait, so that its group does not take it for dead.
_NAP_S: Final = 0.5

Process = Callable[[ConsumerRecord], object]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a record is tried, and how long the waits are.

    Attributes:
        attempts: Calls of `process`, the first included.
        backoff_ms: The wait before the second.
        factor: By which each wait is longer than the one before; 1: they are all the same.
        backoff_max_ms: The longest wait.
    """

    attempts: int = 3
    backoff_ms: int = 100
    factor: float = 2.0
    backoff_max_ms: int = 10_000

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.backoff_ms < 0 or self.factor < 1:
            raise ValueError("attempts must be at least 1, backoff_ms 0 or more, factor at least 1")

    def wait_s(self, failures: int) -> float:
        """The wait after so many failures."""
        wait_ms = self.backoff_ms * self.factor ** (failures - 1)
        return float(min(wait_ms, self.backoff_max_ms)) / 1000


class DeadLetterHandler:
    """Processes records one after the other; what fails goes to `<topic>.dlt`.

    An offset is committed after its record was processed, or after the gateway acknowledged its
    dead letter. So a crash may make a record come again, or write its dead letter twice; no record
    is lost. The topic of dead letters must exist, or be created by the gateway
    (auto.create.topics.enable).

    A dead letter has the key, value and headers of its record, and these headers more:
    `dlt-topic`, `dlt-partition`, `dlt-offset`, `dlt-timestamp` of the record; `dlt-exception`, the
    class; `dlt-reason`, the text; `dlt-attempts`.

    Args:
        consumer: Subscribed or assigned, with enable.auto.commit=false.
        producer: For the dead letters.
        process: Called with each record; an exception is a failure.
        retry: How often, and with which waits.
        sleep: Waits so many seconds.

    Raises:
        ValueError: The consumer commits by itself.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        process: Process,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if consumer.commits_automatically:
            raise ValueError("a DeadLetterHandler commits by itself: set enable.auto.commit=false")
        self._consumer = consumer
        self._producer = producer
        self._process = process
        self._retry = retry or RetryPolicy()
        self._sleep = sleep

    def run_once(self, timeout: float | None = 1.0) -> bool:
        """Takes one record to its end; False: none came within `timeout` seconds.

        Raises:
            MainstemError: The dead letter was not acknowledged, or the commit was refused. The
                offset is not committed, and the record comes again after a restart.
        """
        record = self._consumer.poll(timeout)
        if record is None:
            return False
        error = self._try(record)
        if error is not None:
            self._set_aside(record, error)
        self._consumer.commit(record, asynchronous=False)
        return True

    def _try(self, record: ConsumerRecord) -> Exception | None:
        failures = 0
        while True:
            try:
                self._process(record)
            except Exception as error:
                failures += 1
                if failures >= self._retry.attempts:
                    return error
                self._wait(self._retry.wait_s(failures))
            else:
                return None

    def _wait(self, seconds: float) -> None:
        """Sleeps in naps; between them the consumer tells its group that it is alive."""
        while seconds > 0:
            nap_s = min(seconds, _NAP_S)
            self._sleep(nap_s)
            self._consumer.assignment()
            seconds -= nap_s

    def _set_aside(self, record: ConsumerRecord, error: Exception) -> None:
        topic = record.topic + DEAD_LETTER_SUFFIX
        reason = str(error)[:_TEXT_LENGTH_MAX]
        facts = (
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            type(error).__qualname__,
            reason,
            self._retry.attempts,
        )
        headers = [*record.headers]
        headers += [
            (HEADER_PREFIX + name, str(fact).encode(errors="backslashreplace"))
            for name, fact in zip(DEAD_LETTER_FACTS, facts, strict=True)
        ]
        self._producer.send(topic, record.value, record.key, headers=headers).result()
        _log.warning(
            "record %s-%d@%d failed %d times and is in %s now: %s",
            record.topic,
            record.partition,
            record.offset,
            self._retry.attempts,
            topic,
            reason,
        )
