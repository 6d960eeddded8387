"""Dead letters go back to where they came from: without loss, and with few repetitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from mainstem.client.consumer.consumer import Consumer
from mainstem.client.consumer.records import ConsumerRecord
from mainstem.client.positions import TopicPartition
from mainstem.client.producer.producer import Producer
from mainstem.client.recipes.dead_letters import (
    DEAD_LETTER_FACTS,
    HEADER_PREFIX,
    LEFT_OUT_HEADER,
    NULL_KEY_HEADER,
)
from mainstem.client.results import RecordMetadata
from mainstem.errors import InvalidRecordError, MainstemError

#: How often a record was put back; it is one of the record's own headers from then on.
REDRIVE_COUNT_HEADER: Final = "dlt-redrive-count"

_FACT_HEADERS: Final = frozenset(
    {
        *(HEADER_PREFIX + name for name in DEAD_LETTER_FACTS),
        LEFT_OUT_HEADER,
        NULL_KEY_HEADER,
    }
)

_log = logging.getLogger("mainstem.client")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, taken apart.

    Attributes:
        record: As it lies in the topic of dead letters.
        topic, partition, offset, timestamp: Of the record that it was; None where no header says.
        exception, reason: Why it failed.
        headers: The record's own, with the redrive count of before.
        redrive_count: How often it was put back before.
        key: The record's own.
        left_out: What of the record is not here, for lack of room: `value`, `headers`, `key`.
    """

    record: ConsumerRecord
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    exception: str
    reason: str
    headers: tuple[tuple[str, bytes | None], ...]
    redrive_count: int
    key: bytes | None
    left_out: tuple[str, ...] = ()

    @classmethod
    def read(cls, record: ConsumerRecord) -> DeadLetter:
        """Only the last of each header counts: a dead letter's dead letter has two sets. What is
        left out, or not the record's, is said after the set that it belongs to.
        """
        last = {name: index for index, (name, _) in enumerate(record.headers)}
        for name in (LEFT_OUT_HEADER, NULL_KEY_HEADER):
            if last.get(name, -1) < last.get(f"{HEADER_PREFIX}topic", -1):
                last.pop(name, None)
        facts = {
            name: (record.headers[index][1] or b"").decode(errors="replace")
            for name, index in last.items()
            if name in _FACT_HEADERS or name == REDRIVE_COUNT_HEADER
        }
        own = tuple(
            header
            for index, header in enumerate(record.headers)
            if header[0] not in _FACT_HEADERS or last.get(header[0]) != index
        )
        return cls(
            record,
            facts.get("dlt-topic") or None,
            _number(facts.get("dlt-partition")),
            _number(facts.get("dlt-offset")),
            _number(facts.get("dlt-timestamp")),
            facts.get("dlt-exception", ""),
            facts.get("dlt-reason", ""),
            own,
            _number(facts.get(REDRIVE_COUNT_HEADER)) or 0,
            None if NULL_KEY_HEADER in facts else record.key,
            tuple(filter(None, facts.get(LEFT_OUT_HEADER, "").split(","))),
        )


class Redrive:
    """Puts dead letters back, a batch at a time.

    A record goes to its original topic and partition with its key, value, timestamp and headers;
    `dlt-redrive-count` is added, the other `dlt-` headers go. Where the topic does not have that
    partition, the key decides. The offsets of a batch are committed when all its records are
    acknowledged: a crash before that puts that batch back once more; none is lost.

    A dead letter that does not have all of its record (see `DeadLetterHandler`) is not put back: it
    is passed over with a warning, counted in `incomplete_count`, and stays where it is. The record
    itself is in its topic for as long as that keeps it.

    Args:
        consumer: Subscribed to the topic of dead letters, with enable.auto.commit=false.
        producer: Of the records; acks=all.
        to: Send all of them to this topic, placed by their keys.
        by_key: The key decides, also in the original topic.
        now: Give records the current time instead of their own.
        kept_since_ms: The lowest timestamp that a topic keeps. An older record is refused, as
            retention would remove it before anybody reads it.

    Raises:
        ValueError: The consumer commits by itself.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        *,
        to: str | None = None,
        by_key: bool = False,
        now: bool = False,
        kept_since_ms: Callable[[str], int] = lambda _: 0,
    ) -> None:
        if consumer.commits_automatically:
            raise ValueError("a Redrive commits by itself: set enable.auto.commit=false")
        self._consumer = consumer
        self._producer = producer
        self._to = to
        self._by_key = by_key
        self._now = now
        self._kept_since_ms = kept_since_ms
        self.incomplete_count = 0

    def run_once(
        self,
        timeout: float = 1.0,
        limit: int = 500,
        ends: Mapping[TopicPartition, int] | None = None,
        done: Callable[[DeadLetter, RecordMetadata], object] = lambda *_: None,
    ) -> int:
        """Takes what is there to its end, acknowledged and committed.

        Args:
            timeout: Seconds to wait for the first dead letter.
            limit: The most that are taken, and may come twice after a crash.
            ends: Where to stop in each partition: what lies there or later stays.
            done: Called with each record that was acknowledged and committed, and where it is.

        Returns:
            How many were put back; 0 when none came in time.

        Raises:
            InvalidRecordError: A dead letter does not say where it came from, or is older than its
                topic keeps. Those before it are put back and committed.
            MainstemError: A record was not acknowledged, or the commit was refused: what was not
                committed comes again.
        """
        if not self._consumer.wait_ready(timeout):
            return 0
        records = self._consumer.take_ready_many(limit)
        letters = [DeadLetter.read(one) for one in records if ends is None or _before(one, ends)]
        if len(letters) < len(records):
            self._stop_at_ends(records, ends or {})
        failure: MainstemError | None = None
        sent: list[tuple[DeadLetter, Future[RecordMetadata] | None]] = []
        for letter in letters:
            try:
                sent.append((letter, None if letter.left_out else self._send(letter)))
            except MainstemError as error:
                failure = error
                break
        ended: list[tuple[DeadLetter, RecordMetadata | None]] = []
        blocked: set[int] = set()
        for letter, future in sent:
            try:
                metadata = None if future is None else future.result()
            except MainstemError as error:
                failure = failure or error
                blocked.add(letter.record.partition)
                continue
            if letter.record.partition not in blocked:
                ended.append((letter, metadata))
        if failure is not None:
            self._go_back(letters, {_place(letter.record) for letter, _ in ended})
        self._commit([letter for letter, _ in ended])
        put_back = 0
        for letter, metadata in ended:
            if metadata is None:
                self._pass_over(letter)
            else:
                put_back += 1
                done(letter, metadata)
        if failure is not None:
            raise failure
        return put_back

    def target(self, letter: DeadLetter) -> tuple[str, int]:
        """The topic and partition that a dead letter goes to; partition -1: the key decides.

        Raises:
            InvalidRecordError: It does not say where it came from, or is too old.
            UnknownTopicError: The topic does not exist.
        """
        where = f"{letter.record.topic}-{letter.record.partition}@{letter.record.offset}"
        topic = self._to or letter.topic
        if topic is None:
            raise InvalidRecordError(
                f"record {where} has no header dlt-topic, so nothing tells where it came from; "
                "say to which topic all shall go",
                topic=letter.record.topic,
                partition=letter.record.partition,
                offset=letter.record.offset,
            )
        timestamp, kept_since_ms = self._timestamp(letter), self._kept_since_ms(topic)
        if timestamp is not None and timestamp < kept_since_ms:
            raise InvalidRecordError(
                f"record {where} has the timestamp {timestamp} ms, but topic {topic} keeps records "
                f"from {kept_since_ms} ms on (retention.ms): nobody might read it before it is "
                "removed; give records the current time, or keep them longer",
                topic=topic,
                timestamp_ms=timestamp,
                timestamp_ms_min=kept_since_ms,
            )
        partition = -1 if self._to or self._by_key else letter.partition
        if partition is None or partition >= self._producer.partitions_for(topic):
            partition = -1
        return topic, partition

    def _pass_over(self, letter: DeadLetter) -> None:
        self.incomplete_count += 1
        record = letter.record
        _log.warning(
            "dead letter %s-%d@%d is not put back: it does not have the %s of its record, which is "
            "%s-%s@%s",
            record.topic,
            record.partition,
            record.offset,
            " and ".join(letter.left_out),
            letter.topic,
            letter.partition,
            letter.offset,
        )

    def _send(self, letter: DeadLetter) -> Future[RecordMetadata]:
        topic, partition = self.target(letter)
        count = b"%d" % (letter.redrive_count + 1)
        headers = [one for one in letter.headers if one[0] != REDRIVE_COUNT_HEADER]
        return self._producer.send(
            topic,
            letter.record.value,
            letter.key,
            partition,
            self._timestamp(letter),
            [*headers, (REDRIVE_COUNT_HEADER, count)],
        )

    def _timestamp(self, letter: DeadLetter) -> int | None:
        """None: the current time, which the producer takes."""
        if self._now:
            return None
        return letter.record.timestamp if letter.timestamp is None else letter.timestamp

    def _stop_at_ends(
        self, records: Sequence[ConsumerRecord], ends: Mapping[TopicPartition, int]
    ) -> None:
        """What lies at the end or later is not read any more; the position is the end."""
        reached: dict[TopicPartition, TopicPartition] = {}
        for record in records:
            if not _before(record, ends):
                tp = TopicPartition(record.topic, record.partition, record.offset)
                reached.setdefault(tp, tp)
        self._consumer.pause(reached)
        for tp in reached:
            self._consumer.seek(tp)

    def _go_back(self, letters: Sequence[DeadLetter], ended: set[tuple[int, int]]) -> None:
        """The next call begins with what was not put back: a commit must not pass it."""
        first: dict[TopicPartition, TopicPartition] = {}
        for letter in letters:
            if _place(letter.record) not in ended:
                record = letter.record
                tp = TopicPartition(record.topic, record.partition, record.offset)
                first.setdefault(tp, tp)
        for tp in first:
            self._consumer.seek(tp)

    def _commit(self, letters: Sequence[DeadLetter]) -> None:
        offsets: dict[TopicPartition, TopicPartition] = {}
        for letter in letters:
            record = letter.record
            tp = TopicPartition(record.topic, record.partition, record.offset + 1)
            offsets.pop(tp, None)
            offsets[tp] = tp
        if offsets:
            self._consumer.commit(offsets=list(offsets.values()), asynchronous=False)


def _before(record: ConsumerRecord, ends: Mapping[TopicPartition, int]) -> bool:
    return record.offset < ends.get(TopicPartition(record.topic, record.partition), 0)


def _place(record: ConsumerRecord) -> tuple[int, int]:
    return record.partition, record.offset


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
