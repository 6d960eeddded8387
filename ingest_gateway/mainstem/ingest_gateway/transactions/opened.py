"""An open transaction: what its producer has sent, in memory and in staged objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from mainstem.delta_log import Slice
from mainstem.delta_log.format import Batch, ProducerBatch
from mainstem.errors import InvalidRecordError, OutOfOrderSequenceError, TransactionAbortedError
from mainstem.ingest_gateway.transactions.ids import TransactionRef
from mainstem.ingest_gateway.transactions.rows import OffsetPart, TopicPart

#: What a slice costs beside its records.
_SLICE_BYTES = 1024


@dataclass(slots=True)
class SentToTopic:
    """What a transaction has sent to one topic.

    Attributes:
        slices: In memory, in the order of their arrival; after what is in `staged`.
        counts: Records by partition, wherever they are.
        sequences: Of each partition the next one, and the first.
        staged: The objects that have the rest.
    """

    topic: str
    topic_id: str
    slices: list[Slice] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    staged: list[str] = field(default_factory=list)

    def part(self) -> TopicPart:
        """Once nothing is in memory alone."""
        return TopicPart(self.topic, self.topic_id, tuple(self.staged), dict(self.counts))


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """One transaction, from its begin to its end.

    Attributes:
        opened_s: By a clock that nobody sets.
        topics: By name.
        offsets: By group, topic id and partition; the last one counts.
        checks: By group, who committed the offsets: member id and epoch.
        memory_bytes: Of what is in memory, also while it is being put into a staged object.
        sealed: Its end has begun: it takes nothing more.
        decided: The row that commits it was written, durable or not.
    """

    ref: TransactionRef
    opened_s: float
    client_id: str
    topics: dict[str, SentToTopic] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], OffsetPart] = field(default_factory=dict)
    checks: dict[str, tuple[str, int]] = field(default_factory=dict)
    memory_bytes: int = 0
    size_bytes: int = 0
    record_count: int = 0
    sealed: bool = False
    decided: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.topics and not self.offsets

    @property
    def is_staged(self) -> bool:
        """Whether some of it is in staged objects."""
        return any(sent.staged for sent in self.topics.values())

    def add(
        self, topic: str, topic_id: str, slices: Sequence[Slice], size_bytes: int
    ) -> tuple[Batch, ...]:
        """Takes a request's records; what came before with the same sequences, it takes once.

        Args:
            size_bytes: That the records keep in memory.

        Returns:
            What the request has for each partition; its offsets are not known.

        Raises:
            OutOfOrderSequenceError: Records before these are missing. Nothing was taken.
            InvalidRecordError: Records are not numbered, or another producer's.
            TransactionAbortedError: The topic was deleted since the transaction began with it.
        """
        sent = self.topics.get(topic) or SentToTopic(topic, topic_id)
        if sent.topic_id != topic_id:
            raise TransactionAbortedError(
                f"topic {topic!r} was deleted after transaction {self.ref.number} of "
                f"{self.ref.transactional_id!r} had sent records to it; abort it",
                topic=topic,
            )
        sequences = dict(sent.sequences)
        new: list[Slice] = []
        batches: list[Batch] = []
        for one in slices:
            batches.append(Batch(one.partition, -1, one.records.num_rows))
            begin, end = self._sequences_of(topic, one)
            first, following = sequences.get(one.partition, (begin, begin))
            if first <= begin and end <= following and begin < following:
                continue
            if begin != following:
                raise OutOfOrderSequenceError(
                    f"transaction {self.ref.number} of {self.ref.transactional_id!r} sent sequence "
                    f"{begin} to partition {one.partition} of topic {topic!r}, where {following} "
                    "comes next",
                    topic=topic,
                    partition=one.partition,
                    producer_id=self.ref.producer_id,
                    producer_epoch=self.ref.producer_epoch,
                    sequence=begin,
                    expected_sequence=following,
                )
            sequences[one.partition] = first, end
            new.append(replace(one, producer=None))
        if not new:
            return tuple(batches)
        self.topics[topic] = sent
        sent.sequences = sequences
        sent.slices += new
        for one in new:
            count = one.records.num_rows
            sent.counts[one.partition] = sent.counts.get(one.partition, 0) + count
            self.record_count += count
        self.memory_bytes += size_bytes + _SLICE_BYTES * len(new)
        self.size_bytes += size_bytes
        return tuple(batches)

    def _sequences_of(self, topic: str, one: Slice) -> tuple[int, int]:
        by: ProducerBatch | None = one.producer
        if by is None or (by.id, by.epoch) != (self.ref.producer_id, self.ref.producer_epoch):
            raise InvalidRecordError(
                "records of a transaction need the producer_id and producer_epoch of its "
                "producer, and ranges with their sequences",
                topic=topic,
            )
        return by.base_sequence, by.base_sequence + one.records.num_rows

    def add_offsets(
        self, group: str, member_id: str, member_epoch: int, offsets: Iterable[OffsetPart]
    ) -> None:
        """Takes offsets of a group; later ones of a partition replace those before."""
        self.checks[group] = member_id, member_epoch
        for one in offsets:
            self.offsets[group, one.topic_id, one.partition] = one

    def take_memory(self) -> dict[str, list[Slice]]:
        """What is in memory alone, by topic; `staged` or `put_back` follows."""
        taken = {name: sent.slices for name, sent in self.topics.items() if sent.slices}
        for name in taken:
            self.topics[name].slices = []
        return taken

    def staged(self, names: Iterable[str], object_name: str, freed_bytes: int) -> None:
        """What was taken of these topics is in an object."""
        for name in names:
            self.topics[name].staged.append(object_name)
        self.memory_bytes -= freed_bytes

    def put_back(self, taken: dict[str, list[Slice]]) -> None:
        """The object could not be written."""
        for name, slices in taken.items():
            self.topics[name].slices[:0] = slices
