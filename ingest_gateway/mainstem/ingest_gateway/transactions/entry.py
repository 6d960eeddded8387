"""One transactional id on its coordinator: what may be done with it, and what became of what was.
Pure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from mainstem.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    MainstemError,
    ProducerFencedError,
    TransactionAbortedError,
    UnknownProducerIdError,
)
from mainstem.ingest_gateway.transactions.ids import TransactionRef
from mainstem.ingest_gateway.transactions.opened import OpenTransaction
from mainstem.ingest_gateway.transactions.rows import COMMITTING, EMPTY, PREPARED, IdRow
from mainstem.protocol.v1 import transactions_pb2

#: A transaction is open; no row says so.
OPEN: Final = "OPEN"

Results = list[transactions_pb2.TransactionResult]


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a transaction.

    Attributes:
        failure: Why it was aborted; None: it was committed, or aborted by its producer.
        results: Where its records are.
    """

    ref: TransactionRef
    committed: bool
    failure: MainstemError | None = None
    results: Results = field(default_factory=list)

    def answer(self, *, commit: bool) -> Results:
        """What whoever wants it to end so is told.

        Raises:
            InvalidTxnStateError: It was to be aborted, and is committed.
            TransactionAbortedError: It was to be committed, and is aborted.
        """
        ref = self.ref
        if self.committed and not commit:
            raise InvalidTxnStateError(
                f"transaction {ref.number} of {ref.transactional_id!r} is committed: it cannot be "
                "aborted any more",
                transactional_id=ref.transactional_id,
            )
        if not self.committed and commit:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            raise aborted(ref, "it was aborted before")
        return self.results


@dataclass(frozen=True, slots=True)
class Ending:
    """An end that is under way; who asks for it again waits for the same."""

    ref: TransactionRef
    task: asyncio.Task[Ended]


@dataclass(slots=True, eq=False)
class Entry:
    """What its coordinator knows of a transactional id.

    Attributes:
        row: The newest that was written to the table, durable or not.
        written: Done when the newest row is durable; None: it was read.
        epoch: Of its producer; that of the row, or the next while that is being written.
        settled: Nothing of the producer's epoch can be on its way into a topic's log that this
            coordinator does not know: since it began itself, or has looked.
        opened: The open transaction.
        ended: The last one of the epoch that is over.
        ending: The one that is about to be.
        used_s: When something of it began or ended last.
        lock: Held by whoever changes any of it across an await.
    """

    row: IdRow
    epoch: int
    settled: bool
    opened: OpenTransaction | None = None
    ended: Ended | None = None
    ending: Ending | None = None
    written: asyncio.Future[None] | None = None
    used_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def state(self) -> str:
        """EMPTY, OPEN, PREPARED or COMMITTING."""
        if self.row.state in (PREPARED, COMMITTING):
            return self.row.state
        return EMPTY if self.opened is None else OPEN

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is open, prepared or under way."""
        return (
            self.opened is None
            and self.ending is None
            and self.row.state not in (PREPARED, COMMITTING)
            and not self.lock.locked()
        )

    def check_producer(self, ref: TransactionRef) -> None:
        """Raises unless the caller is the id's producer of now."""
        if ref.producer_id != self.row.producer_id or ref.producer_epoch > self.epoch:
            raise UnknownProducerIdError(
                f"producer {ref.producer_id} with epoch {ref.producer_epoch} is not known for "
                f"transactional.id {ref.transactional_id!r}; call init_transactions() again",
                transactional_id=ref.transactional_id,
                producer_id=ref.producer_id,
                producer_epoch=ref.producer_epoch,
            )
        if ref.producer_epoch < self.epoch:
            raise ProducerFencedError(
                f"another producer has begun with transactional.id {ref.transactional_id!r}: epoch "
                f"{ref.producer_epoch} is over, {self.epoch} is in force. Close this one",
                transactional_id=ref.transactional_id,
                producer_id=ref.producer_id,
                producer_epoch=ref.producer_epoch,
            )

    def check_begin(self, ref: TransactionRef) -> None:
        """Raises unless the producer may open this transaction, or has."""
        if self.ending is not None:
            raise being_completed(ref.transactional_id)
        if self.row.state == PREPARED:
            raise InvalidTxnStateError(
                f"transaction {self.row.number} of {ref.transactional_id!r} is prepared; complete "
                "it before the next one begins",
                transactional_id=ref.transactional_id,
                token=self.row.ref.token,
            )
        if ref.number < self.last_number or (
            ref.number == self.last_number and (self.opened is None)
        ):
            raise InvalidTxnStateError(
                f"transaction {ref.number} of {ref.transactional_id!r} is over, and "
                f"{self.last_number} was the last one; begin the next",
                transactional_id=ref.transactional_id,
            )

    @property
    def last_number(self) -> int:
        """Of the last transaction of the epoch that is known here."""
        known = [0]
        if self.opened is not None:
            known.append(self.opened.ref.number)
        if self.ended is not None and self.ended.ref.producer_epoch == self.epoch:
            known.append(self.ended.ref.number)
        if self.row.transaction_epoch == self.epoch:
            known.append(self.row.number)
        return max(known)

    def open_one(self, ref: TransactionRef) -> OpenTransaction:
        """The open transaction, for what is sent in it.

        Raises:
            MainstemError: It is not this producer's, or not open any more.
        """
        self.check_producer(ref)
        opened = self.opened
        if opened is not None and opened.ref.number == ref.number and not opened.sealed:
            return opened
        ended = self.ended
        if ended is not None and ended.ref == ref and ended.failure is not None:
            raise ended.failure.with_traceback(None)
        raise aborted(
            ref,
            "it is not open: it has ended, or the coordination of transactions has moved to this "
            "gateway since it began",
        )


def aborted(ref: TransactionRef, why: str) -> TransactionAbortedError:
    """The transaction is lost."""
    return TransactionAbortedError(
        f"transaction {ref.number} of {ref.transactional_id!r} is aborted, and nothing of it is in "
        f"the log: {why}. Abort it, and begin the next",
        transactional_id=ref.transactional_id,
        producer_epoch=ref.producer_epoch,
        number=ref.number,
    )


def being_completed(transactional_id: str) -> ConcurrentTransactionsError:
    """Try again soon."""
    return ConcurrentTransactionsError(
        f"the last transaction of {transactional_id!r} is being completed; try again",
        retry_delay_ms=20,
        transactional_id=transactional_id,
    )
