"""The rows of `system/transactions`: one for each transactional id, the latest counting. Pure.

A row is written when a producer begins with its id, when a transaction is prepared, when one is
decided that touches more than one table, and when that is done. A transaction of one topic needs
none: the topic's commit decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mainstem.delta_log.append import TransactionMark
from mainstem.delta_log.latest import LatestTable, TableKind
from mainstem.delta_log.system import LOOK_KEY
from mainstem.delta_log.topics import TRANSACTIONS_TABLE
from mainstem.ingest_gateway.transactions.ids import TransactionRef
from mainstem.limits import KIB, MIB

EMPTY: Final = "EMPTY"
PREPARED: Final = "PREPARED"
COMMITTING: Final = "COMMITTING"
COMMITTED: Final = "COMMITTED"
ABORTED: Final = "ABORTED"


@dataclass(frozen=True, slots=True)
class TopicPart:
    """What a transaction brings to one topic.

    Attributes:
        staged: The staged objects that have it.
        counts: Records by partition.
    """

    topic: str
    topic_id: str
    staged: tuple[str, ...]
    counts: Mapping[int, int]

    def encode(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "staged": list(self.staged),
            "counts": {str(number): count for number, count in self.counts.items()},
        }

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> TopicPart:
        counts = {int(number): count for number, count in body["counts"].items()}
        return cls(body["topic"], body["topic_id"], tuple(body["staged"]), counts)


@dataclass(frozen=True, slots=True)
class OffsetPart:
    """An offset of a group that is committed with a transaction."""

    group: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Completed:
    """What became of a transaction that was prepared: who completes it may ask again, late."""

    producer_epoch: int
    number: int
    committed: bool


@dataclass(frozen=True, slots=True)
class IdRow:
    """What is kept of a transactional id.

    Attributes:
        timeout_ms: transaction.timeout.ms of its producer.
        state: Of the transaction `number`: EMPTY (nothing is kept of one in this epoch), PREPARED,
            COMMITTING (decided; its tables get it now), COMMITTED, ABORTED.
        transaction_epoch: Of that transaction; one that was prepared may be of an epoch before.
        number: 0 for none.
        ordinal: Of its commits, once it is decided.
        topics, offsets: What it has, while it is prepared or being committed.
        direct: Topics, with their ids, for which a topic's commit alone has decided, or may have.
        completed: The last one that was prepared and is over.
        updated_ms: When the row was written, or the transaction decided.
        client_id: Of the producer.
        deadline_ms: When a prepared transaction is aborted; 0: never.
        single_use: The id is forgotten when its transaction is over.
        is_epochs: The id is not a producer's: `number` counts the epochs of somebody who completes
            prepared transactions of others, one more than the epoch. It is not forgotten, unless
            `one_off`.
        owner: The principal that has begun with the id; empty: nobody was asked who they are.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: str = EMPTY
    transaction_epoch: int = 0
    number: int = 0
    ordinal: int = 0
    topics: tuple[TopicPart, ...] = ()
    offsets: tuple[OffsetPart, ...] = ()
    direct: tuple[tuple[str, str], ...] = ()
    completed: Completed | None = None
    updated_ms: int = 0
    client_id: str = ""
    deadline_ms: int = 0
    single_use: bool = False
    is_epochs: bool = False
    one_off: bool = False
    owner: str = ""

    @property
    def ref(self) -> TransactionRef:
        """The transaction that the row is about."""
        return TransactionRef(
            self.transactional_id, self.producer_id, self.transaction_epoch, self.number
        )

    @property
    def mark(self) -> TransactionMark:
        """What the commits of a decided transaction carry."""
        return TransactionMark(self.transactional_id, self.ordinal)

    @property
    def prepared_token(self) -> str:
        """Of the transaction that is prepared; empty: there is none."""
        return self.ref.token if self.state == PREPARED else ""

    @property
    def staged(self) -> set[str]:
        """The staged objects that it needs."""
        return {name for part in self.topics for name in part.staged}

    def over(self, state: str, now_ms: int) -> IdRow:
        """The same with nothing left to do."""
        completed = self.completed
        if self.state == PREPARED or (
            completed is not None
            and (completed.producer_epoch, completed.number)
            == (self.transaction_epoch, self.number)
        ):
            completed = Completed(self.transaction_epoch, self.number, state == COMMITTED)
        return replace(
            self,
            state=state,
            topics=(),
            offsets=(),
            completed=completed,
            updated_ms=now_ms,
            deadline_ms=0,
        )

    def encode(self) -> dict[str, Any]:
        """As JSON says it."""
        completed = self.completed
        body = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "timeout_ms": self.timeout_ms,
            "state": self.state,
            "transaction_epoch": self.transaction_epoch,
            "number": self.number,
            "ordinal": self.ordinal,
            "topics": [part.encode() for part in self.topics],
            "offsets": [
                {name: getattr(one, name) for name in OffsetPart.__slots__} for one in self.offsets
            ],
            "direct": [list(one) for one in self.direct],
            "completed": None
            if completed is None
            else [completed.producer_epoch, completed.number, completed.committed],
            "updated_ms": self.updated_ms,
            "client_id": self.client_id,
            "deadline_ms": self.deadline_ms,
            "single_use": self.single_use,
            "is_epochs": self.is_epochs,
            "one_off": self.one_off,
        }
        if self.owner:  # a gateway that knows of no owners reads the rows of others
            body["owner"] = self.owner
        return body

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> IdRow:
        """The way back."""
        facts = dict(body)
        facts["topics"] = tuple(TopicPart.decode(one) for one in body["topics"])
        facts["offsets"] = tuple(OffsetPart(**one) for one in body["offsets"])
        facts["direct"] = tuple((name, topic_id) for name, topic_id in body["direct"])
        facts["completed"] = None if body["completed"] is None else Completed(*body["completed"])
        return cls(**facts)


@dataclass(frozen=True, slots=True)
class LookRow:
    """The versions of topics' tables up to which all transactions are whole; see `look`."""

    pins: Mapping[str, int]

    def encode(self) -> dict[str, Any]:
        """As JSON says it."""
        return {"pins": dict(self.pins)}


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A row of the table.

    Attributes:
        transactional_id: Empty: the row is the one `LookRow`.
        value: None: the id is forgotten.
    """

    transactional_id: str
    value: IdRow | LookRow | None

    @property
    def place(self) -> str:
        """Says which key it is."""
        return self.transactional_id

    @property
    def takes_away(self) -> bool:
        """Whether it takes its key away."""
        return self.value is None

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value."""
        key = LOOK_KEY
        if self.transactional_id:
            body = {"transactional_id": self.transactional_id}
            key = json.dumps(body, separators=(",", ":")).encode()
        if self.value is None:
            return key, None
        return key, json.dumps(self.value.encode(), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes | None) -> TransactionRow:
        """The way back."""
        if key == LOOK_KEY:
            assert value is not None
            return cls("", LookRow(json.loads(value)["pins"]))
        name = json.loads(key)["transactional_id"]
        return cls(name, None if value is None else IdRow.decode(json.loads(value)))


#: A transaction waits for two rows at most, and what comes meanwhile shares their commits.
KIND: Final = TableKind(
    TRANSACTIONS_TABLE,
    {"commit.interval.ms": "5", "rollup.max.bytes": str(16 * KIB)},
    TransactionRow.decode,
    queue_bytes=16 * MIB,
)

TransactionsTable = LatestTable[TransactionRow]
