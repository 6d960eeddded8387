"""What the client reports back: where records went, and what topics look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """Where one record is. Of a record that failed, `offset` and `table_version` are -1.

    Attributes:
        topic: The topic's name.
        partition: The partition, from 0.
        offset: The record's offset; -1 with acks=0, for a record that was stored at a first attempt
            so long ago that the gateway has forgotten its place, and in a transaction, where
            records get their offsets when it is committed.
        timestamp: The record's own timestamp as it was sent, in ms since 1970-01-01 UTC. A topic
            with `message.timestamp.type=LogAppendTime` stores another.
        table_version: The version of the topic's Delta table that holds it; -1 with acks=0, and
            with acks=1 where the table does not have it yet.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    table_version: int


class PartitionOffsets(NamedTuple):
    """Records `base_offset` to `base_offset + record_count - 1` of a partition.

    `base_offset` is -1 where RecordMetadata's offset would be.
    """

    partition: int
    base_offset: int
    record_count: int


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Where the rows of a `produce_batch` are.

    Attributes:
        topic: The topic's name.
        table_version: The version of the Delta table from which all rows are visible; -1 with
            acks=0, and with acks=1 where the table does not have them yet.
        offsets: The offsets in the order of the batch's rows within each partition. One entry a
            partition, unless the batch was larger than `max.request.size` and went in parts.
    """

    topic: str
    table_version: int
    offsets: tuple[PartitionOffsets, ...]

    @property
    def record_count(self) -> int:
        """Rows of the whole batch."""
        return sum(part.record_count for part in self.offsets)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """What a producer needs to know of a topic.

    Attributes:
        topic: Its name.
        topic_id: A new one after delete and create.
        partition_count: Partitions 0 to `partition_count - 1` exist.
        leader: host:port of the gateway that takes its records.
    """

    topic: str
    topic_id: str
    partition_count: int
    leader: str


class GatewayPlace(NamedTuple):
    """A gateway that is alive, and where it is.

    Attributes:
        address: host:port.
        rack: Its gateway.rack; empty: it has none.
        draining: It is about to end: it is not to be turned to any more.
    """

    address: str
    rack: str
    draining: bool


class ProducerIdentity(NamedTuple):
    """Under which a producer numbers its records: what InitProducer gave, or a transaction.

    Attributes:
        transactional_id: Empty: no transaction.
        transaction_number: From 1.
    """

    producer_id: int
    epoch: int
    transactional_id: str = ""
    transaction_number: int = 0


class TransactionPlace(NamedTuple):
    """Where a committed transaction's records are in one partition: from `base_offset` on, without
    a gap.

    Attributes:
        base_offset: Of the first; -1: the gateway does not remember, as the commit had to be asked
            for again, or the topic was deleted since.
        record_count: How many there are.
        table_version: The version of the topic's Delta table that has them; -1 likewise.
    """

    base_offset: int
    record_count: int
    table_version: int


#: By topic and partition.
@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it, and its transaction.

    Attributes:
        state: EMPTY (none is open), OPEN, PREPARED, or COMMITTING (decided, and not in every table
            yet).
        number: Of the transaction, from 1 in each epoch of the producer; 0: there is none.
        age_ms: Since it was opened; or else since it was prepared or decided.
        timeout_ms: transaction.timeout.ms of the producer.
        record_count: How many records it has.
        size_bytes: What they take, while it is open; else 0.
        client_id: Of the producer.
        token: Of a prepared one; else empty.
        topics, groups: What it touches. A listing does not tell.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    number: int
    age_ms: int
    timeout_ms: int
    record_count: int
    size_bytes: int
    client_id: str
    token: str
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


TransactionPlaces = dict[tuple[str, int], TransactionPlace]
