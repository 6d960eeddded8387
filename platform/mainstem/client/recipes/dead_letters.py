"""Records that cannot be processed: tried again, then set aside with the reason, then committed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mainstem.client.consumer.consumer import Consumer
from mainstem.client.consumer.records import ConsumerRecord
from mainstem.client.positions import TopicPartition
from mainstem.client.producer.producer import Producer
from mainstem.errors import ConsumerClosedError, InvalidRecordError, RecordTooLargeError
from mainstem.records import check_topic_name

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

#: What a dead letter does not have of its record, as there is no room: value, headers, key. The
#: record itself is where the other headers say, as long as its topic keeps it.
LEFT_OUT_HEADER: Final = "dlt-left-out"

#: The record's key is null; the dead letter has one, which a compacted topic needs.
NULL_KEY_HEADER: Final = "dlt-null-key"

#: Of an exception's text: a header is no place for a log.
_TEXT_LENGTH_MAX: Final = 1_000

#: How often the consumer is polled during a wait, so that its group does not take it for dead.
_NAP_S: Final = 0.5

Process = Callable[[ConsumerRecord], object]

Headers = list[tuple[str, bytes | None]]


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
    is lost. When `run_once` raises, its record is the next one again, in this process or another.

    The topic of dead letters must exist, or be created by the gateway
    (auto.create.topics.enable); its name has four characters more, of 249 at most. That is checked
    here for the topics that the consumer subscribes to or is assigned, and for those of a pattern
    before the first record of each is processed.

    A dead letter has the key, value and headers of its record, and these headers more:
    `dlt-topic`, `dlt-partition`, `dlt-offset`, `dlt-timestamp` of the record; `dlt-exception`, the
    class; `dlt-reason`, the text; `dlt-attempts`. One that would be too large for its topic has an
    empty value, then no headers of the record, then a key that says where the record is, and
    `dlt-left-out` names what is not there: `value`, `value,headers` or `value,headers,key`. Where a
    compacted topic refuses a dead letter without a key it gets one, and the header `dlt-null-key`.

    Under a pattern, records of topics that end in `.dlt` are passed over, with a warning: they are
    the dead letters. To process those, subscribe to their topics by name.

    Args:
        consumer: Subscribed or assigned, with enable.auto.commit=false.
        producer: For the dead letters.
        process: Called with each record; an exception is a failure.
        retry: How often, and with which waits.
        sleep: Waits so many seconds.

    Raises:
        ValueError: The consumer commits by itself, or reads a topic and its dead letters.
        InvalidTopicError: The name of a topic of dead letters is too long.
        UnknownTopicError: A topic of dead letters does not exist.
        GatewayUnavailableError: That cannot be found out.
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
        self._checked: set[str] = set()
        self._passed_over: set[str] = set()
        topics = consumer.subscription() or sorted({tp.topic for tp in consumer.assignment()})
        if topics and topics[0].startswith("^"):
            return
        for topic in topics:
            if topic + DEAD_LETTER_SUFFIX in topics:
                raise ValueError(
                    f"the consumer reads {topic} and its dead letters, which would go in circles: "
                    "give each of them a consumer, in a group of its own"
                )
        for topic in topics:
            self._check(topic)

    def run_once(self, timeout: float | None = 1.0) -> bool:
        """Takes one record to its end; False: none came within `timeout` seconds.

        Raises:
            MainstemError: The dead letter was not acknowledged, or the commit was refused. The
                offset is not committed, and the next call begins with the same record.
        """
        record = self._consumer.poll(timeout)
        if record is None:
            return False
        try:
            self._take(record)
        except BaseException:
            self._go_back(record)
            raise
        return True

    def _take(self, record: ConsumerRecord) -> None:
        if self._is_passed_over(record.topic):
            self._consumer.commit(record)
            return
        self._check(record.topic)
        error = self._try(record)
        if error is not None:
            self._set_aside(record, error)
        self._consumer.commit(record, asynchronous=False)

    def _go_back(self, record: ConsumerRecord) -> None:
        """A later commit must not pass the record: it is the next one again."""
        # Another member has the partition, and begins with the record, or nobody reads any more.
        with contextlib.suppress(RuntimeError, ConsumerClosedError):
            self._consumer.seek(TopicPartition(record.topic, record.partition, record.offset))

    def _check(self, topic: str) -> None:
        if topic in self._checked:
            return
        self._producer.partitions_for(check_topic_name(topic + DEAD_LETTER_SUFFIX))
        self._checked.add(topic)

    def _is_passed_over(self, topic: str) -> bool:
        if not topic.endswith(DEAD_LETTER_SUFFIX):
            return False
        subscription = self._consumer.subscription()
        if not subscription or not subscription[0].startswith("^"):
            return False
        if topic not in self._passed_over:
            self._passed_over.add(topic)
            _log.warning(
                "the pattern %s matches %s: its records are dead letters, and are passed over",
                subscription[0],
                topic,
            )
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
        reason = _text(error)
        facts = (
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            type(error).__qualname__,
            reason,
            self._retry.attempts,
        )
        headers: Headers = [
            (HEADER_PREFIX + name, str(fact).encode(errors="backslashreplace"))
            for name, fact in zip(DEAD_LETTER_FACTS, facts, strict=True)
        ]
        left_out = self._send(topic, record, headers)
        _log.warning(
            "record %s-%d@%d failed %d times and is in %s now%s: %s",
            record.topic,
            record.partition,
            record.offset,
            self._retry.attempts,
            topic,
            f", without its {left_out}, for which it has no room" if left_out else "",
            reason,
        )

    def _send(self, topic: str, record: ConsumerRecord, facts: Headers) -> str:
        """Sends as much of the record as the topic takes; returns what was left out."""
        keyed = False
        forms = _forms(record)
        key, value, own, left_out = next(forms)
        while True:
            headers = [*own, *facts]
            if left_out:
                headers.append((LEFT_OUT_HEADER, left_out.encode()))
            if keyed:
                key = _place(record)
                headers.append((NULL_KEY_HEADER, b"1"))
            try:
                self._producer.send(topic, value, key, headers=headers).result()
            except RecordTooLargeError:
                form = next(forms, None)
                if form is None:
                    raise  # not even the headers fit, which say where it came from
                key, value, own, left_out = form
            except InvalidRecordError:
                if key is not None:
                    raise
                keyed = True  # the topic is compacted
            else:
                return left_out


def _forms(
    record: ConsumerRecord,
) -> Iterator[tuple[bytes | None, bytes | None, Headers, str]]:
    """Key, value and headers of the dead letter, ever smaller, and what each leaves out.

    The value is empty rather than null, which in a compacted topic would delete.
    """
    own = [*record.headers]
    yield record.key, record.value, own, ""
    yield record.key, b"", own, "value"
    yield record.key, b"", [], "value,headers"
    if record.key is not None:
        yield _place(record), b"", [], "value,headers,key"


def _place(record: ConsumerRecord) -> bytes:
    return f"{record.topic}-{record.partition}@{record.offset}".encode()


def _text(error: Exception) -> str:
    try:
        return str(error)[:_TEXT_LENGTH_MAX]
    except Exception:  # the application's exceptions may do anything
        return "its text cannot be had"
