"""The transactions of one producer as a state machine: no I/O, no clock, no lock.

    UNINITIALISED --init--> READY --begin--> OPEN --commit--> COMMITTING --answer--> READY
                                                                  '--refused--> LOST
    OPEN --prepare--> PREPARING --answer--> PREPARED --complete--> READY
    OPEN --a record fails--> LOST --abort--> ABORTING --answer--> READY

A transaction is begun at the coordinator with its first record or offset, so that an empty one
costs nothing; `number` counts those that were. COMMITTING, ABORTING and PREPARING last while the
answer of the coordinator is not known: the same call may be made again.

Source: KIP-98 (transactions), KIP-939 (two phases).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mainstem.client.results import ProducerIdentity
from mainstem.errors import (
    InvalidTxnStateError,
    MainstemError,
    TransactionAbortedError,
    TransactionTimedOutError,
)


class TxnState(Enum):
    """Where a producer stands. The value says it, and what to do."""

    UNINITIALISED = "init_transactions() was not called: call it first, once"
    READY = "no transaction is open: call begin_transaction() first"
    OPEN = "a transaction is open: commit_transaction() or abort_transaction() first"
    LOST = "the open transaction is lost: abort_transaction(), and go on with the next"
    COMMITTING = (
        "commit_transaction() had no answer, so the transaction may be committed: call it again "
        "until it has one"
    )
    ABORTING = "abort_transaction() had no answer: call it again until it has one"
    PREPARING = "prepare_transaction() had no answer: call it again until it has one"
    PREPARED = "a transaction is prepared: complete_transaction() with its token first"


#: In which states a call fits.
_FITS: Final[dict[str, frozenset[TxnState]]] = {
    "init_transactions": frozenset({TxnState.UNINITIALISED, TxnState.READY, TxnState.PREPARED}),
    "begin_transaction": frozenset({TxnState.READY}),
    "send_offsets_to_transaction": frozenset({TxnState.OPEN, TxnState.LOST}),
    "commit_transaction": frozenset({TxnState.OPEN, TxnState.LOST, TxnState.COMMITTING}),
    "prepare_transaction": frozenset({TxnState.OPEN, TxnState.LOST, TxnState.PREPARING}),
    "abort_transaction": frozenset({TxnState.OPEN, TxnState.LOST, TxnState.ABORTING}),
    "complete_transaction": frozenset({TxnState.UNINITIALISED, TxnState.READY, TxnState.PREPARED}),
}

#: Calls while which no record is taken.
_ENDS: Final = frozenset({"commit_transaction", "prepare_transaction", "abort_transaction"})

#: After these of the coordinator a commit was surely not made. After any other, it is asked again.
NOT_COMMITTED: Final = frozenset(
    {
        "TRANSACTION_ABORTED",
        "TRANSACTION_TIMED_OUT",
        "INVALID_TXN_STATE",
        "UNKNOWN_PRODUCER_ID",
        "UNKNOWN_MEMBER",
        "STALE_MEMBER_EPOCH",
        "STALE_COMMIT",
        "INSTANCE_FENCED",
        "NOT_ASSIGNED",
        "UNKNOWN_GROUP",
        "GROUP_NOT_EMPTY",
        "INVALID_OFFSET",
    }
)


class TransactionState:
    """What a transactional producer may do next. One call at a time: `start`, then `finish`.

    Args:
        transactional_id: transactional.id.

    Attributes:
        state: See TxnState.
        number: Of the last transaction that was begun at the coordinator, or may have been.
        begun: The coordinator has answered that the open transaction is begun.
        token: Of the prepared transaction.
        under_way: The call that is, by name; empty: none.
        last_end: What became of the last transaction; empty: there was none.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = TxnState.UNINITIALISED
        self.number = 0
        self.begun = False
        self.token = ""
        self.under_way = ""
        self.last_end = ""
        self._producer_id = 0
        self._epoch = 0
        self._numbered = False
        self._cause: MainstemError | None = None

    @property
    def identity(self) -> ProducerIdentity:
        """Of the transaction that was begun last."""
        return ProducerIdentity(self._producer_id, self._epoch, self.transactional_id, self.number)

    # ------------------------------------------------------------------------------ calls, in turn

    def start(self, call: str) -> None:
        """A call begins; `finish` ends it, however it went.

        Raises:
            InvalidTxnStateError: It does not fit the state, or another call is under way.
        """
        if self.under_way:
            raise self.wrong(
                call,
                f"{self.under_way}() is under way in another thread, or around this callback: wait "
                "for it",
            )
        if self.state not in _FITS[call]:
            said = self.state.value
            if self.state is TxnState.READY and self.last_end:
                said += f" (the last one was {self.last_end})"
            raise self.wrong(call, said)
        self.under_way = call

    def finish(self) -> None:
        """The call has ended."""
        self.under_way = ""

    # ------------------------------------------------------------------------------ what was done

    def initialised(self, producer_id: int, epoch: int, prepared_token: str) -> None:
        """The coordinator knows the producer, under a new epoch."""
        self._producer_id, self._epoch = producer_id, epoch
        self.number = 0
        self.last_end = ""
        self.token = prepared_token
        self.state = TxnState.PREPARED if prepared_token else TxnState.READY

    def opened(self) -> None:
        """begin_transaction()."""
        self.state = TxnState.OPEN
        self.begun = self._numbered = False
        self._cause = None

    def check_takes(self, what: str) -> None:
        """Refuses records and offsets where no transaction takes them.

        Args:
            what: The call.

        Raises:
            InvalidTxnStateError: No transaction is open, or it is being ended.
            TransactionAbortedError: It is lost.
        """
        if self.state is TxnState.LOST:
            raise self.lost_error()
        if self.under_way in _ENDS:
            raise self.wrong(what, f"{self.under_way}() is under way, and takes nothing more")
        if self.state is not TxnState.OPEN:
            raise self.wrong(what, self.state.value)

    def beginning(self) -> ProducerIdentity:
        """BeginTransaction is sent, perhaps again; returns the transaction."""
        if not self._numbered:
            self._numbered = True
            self.number += 1
        return self.identity

    def has_begun(self) -> None:
        """BeginTransaction was answered."""
        self.begun = True

    def lost(self, cause: MainstemError) -> bool:
        """Something of the open transaction failed; True: nothing had before."""
        if self.state is not TxnState.OPEN:
            return False
        self.state = TxnState.LOST
        self._cause = cause
        return True

    def ending(self, state: TxnState) -> bool:
        """The coordinator is to be told how the transaction ends; False: it need not, as it has
        nothing of it.

        Raises:
            TransactionAbortedError: It is lost, and cannot be committed or prepared.
        """
        if self.state is TxnState.LOST and state is not TxnState.ABORTING:
            raise self.lost_error()
        self.state = state
        return self._numbered

    def refused(self, cause: MainstemError) -> None:
        """It was not committed, or not prepared."""
        self.state = TxnState.LOST
        self._cause = cause

    def prepared(self, token: str) -> None:
        """It waits for complete_transaction()."""
        self.state = TxnState.PREPARED
        self.token = token
        self.begun = self._numbered = False

    def completed(self, token: str) -> None:
        """A prepared transaction was completed; perhaps another's."""
        if self.state is TxnState.PREPARED and token == self.token:
            self.ended("completed")

    def ended(self, how: str) -> None:
        """It is over.

        Args:
            how: A participle.
        """
        self.state = TxnState.READY
        self.begun = self._numbered = False
        self.token = ""
        self.last_end = how
        self._cause = None

    # ----------------------------------------------------------------------------------- errors

    def lost_error(self) -> TransactionAbortedError:
        """What says that the transaction is lost, and why."""
        cause = self._cause
        assert cause is not None
        kind = (
            TransactionTimedOutError
            if isinstance(cause, TransactionTimedOutError)
            else TransactionAbortedError
        )
        error = kind(
            f"the transaction of {self.transactional_id!r} cannot be committed, and nothing of it "
            f"is in the log: {cause.message}. abort_transaction(), and go on with the next",
            transactional_id=self.transactional_id,
            cause=cause.code,
        )
        error.__cause__ = cause
        return error

    def wrong(self, call: str, why: str) -> InvalidTxnStateError:
        """What says that a call does not fit."""
        return InvalidTxnStateError(
            f"{call}() does not fit: {why}",
            transactional_id=self.transactional_id,
            state=self.state.name,
        )
