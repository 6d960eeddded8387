"""Transactions seen from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mainstem.client.arguments import names_of
from mainstem.client.gateways import Gateways
from mainstem.client.producer.transactions import coordinator_calls, places_of
from mainstem.client.results import TransactionDescription, TransactionPlaces
from mainstem.protocol.v1 import transactions_pb2

#: Seconds. A large transaction takes a while to commit.
_TIMEOUT_S: Final = 60.0
_READ_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CompletedEpoch:
    """What became of the prepared transactions of an epoch.

    Attributes:
        places: Where their records are.
        already_committed: The epoch, or a later one, was committed before: this call has written
            nothing, and `places` are those of the first where somebody remembers them.
    """

    places: TransactionPlaces
    already_committed: bool


class TransactionAdmin:
    """The part of `AdminClient` that is about transactions."""

    def __init__(self, gateways: Gateways) -> None:
        self._transactions = coordinator_calls(gateways, waits=True)

    def complete_transaction(
        self, token: str, commit: bool = True, timeout: float = _TIMEOUT_S
    ) -> TransactionPlaces:
        """The second phase of a transaction that a producer has prepared, also if that producer is
        gone.

        Args:
            token: What prepare_transaction() returned.
            commit: False: abort.
            timeout: Seconds for each gateway asked.

        Returns:
            Where the records are, by (topic, partition). It may be called again with the same
            `commit`: the offsets are -1 then, where nobody remembers them.

        Raises:
            InvalidTxnStateError: It was completed the other way, or is not known.
            OutcomeUnknownError: No answer in time: call it again.
        """
        request = transactions_pb2.CompleteTransactionRequest(token=token, commit=commit)
        return places_of(self._transactions.call("CompleteTransaction", request, timeout))

    def complete_transactions(
        self,
        transactional_id: str,
        epoch: int,
        tokens: Sequence[str],
        commit: bool = True,
        *,
        one_off: bool = False,
        timeout: float = _TIMEOUT_S,
    ) -> CompletedEpoch:
        """Commits prepared transactions of several producers as one, the next epoch of
        `transactional_id`: an epoch is committed once, whoever asks how often and with which
        tokens.

        Args:
            transactional_id: Not one of a producer.
            epoch: From 0 to 2^31 - 1; each is higher than the one before, and there may be gaps.
            tokens: What prepare_transaction() returned; the records of a partition follow each
                other in this order. 10,000 at most.
            commit: False: abort those that are not committed; one that nobody knows is no error.
            one_off: There will be no other epoch: the id may be forgotten after
                transactional.id.expiration.ms.
            timeout: Seconds for each gateway asked.

        Raises:
            TransactionAbortedError: One of them is not prepared any more. None is committed, and
                the others are aborted; the epoch is still to come.
            OutcomeUnknownError: No answer in time: call it again.
        """
        request = transactions_pb2.CompleteTransactionsRequest(
            transactional_id=transactional_id,
            epoch=epoch,
            tokens=names_of(tokens, "tokens"),
            commit=commit,
            one_off=one_off,
        )
        answer = self._transactions.call("CompleteTransactions", request, timeout)
        return CompletedEpoch(places_of(answer), answer.already_committed)

    def abort_transaction(self, transactional_id: str, timeout: float = _TIMEOUT_S) -> None:
        """Aborts what is open or prepared under a transactional id. Its producer is told when it
        sends on, and may go on with the next.

        Args:
            timeout: Seconds for each gateway asked.

        Raises:
            InvalidTxnStateError: There is nothing that could be aborted.
            UnknownProducerIdError: No producer has begun with this id.
        """
        request = transactions_pb2.CompleteTransactionRequest(transactional_id=transactional_id)
        self._transactions.call("CompleteTransaction", request, timeout)

    def list_transactions(
        self, states: Iterable[str] = (), timeout: float = _READ_TIMEOUT_S
    ) -> list[TransactionDescription]:
        """Transactions that are not over, by transactional id.

        Args:
            states: Only these, of EMPTY, OPEN, PREPARED and COMMITTING. Empty: all but EMPTY.
            timeout: Seconds for each gateway asked.

        Raises:
            GatewayUnavailableError: No gateway answered.
        """
        request = transactions_pb2.ListTransactionsRequest(states=names_of(states, "states"))
        answer = self._transactions.call("ListTransactions", request, timeout)
        return [_description(one) for one in answer.transactions]

    def describe_transaction(
        self, transactional_id: str, timeout: float = _READ_TIMEOUT_S
    ) -> TransactionDescription:
        """A transactional id, and its transaction.

        Raises:
            UnknownProducerIdError: No producer has begun with it, or nobody has used it for
                transactional.id.expiration.ms.
        """
        request = transactions_pb2.DescribeTransactionRequest(transactional_id=transactional_id)
        return _description(self._transactions.call("DescribeTransaction", request, timeout))


def _description(one: transactions_pb2.TransactionDescription) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=one.transaction.transactional_id,
        state=one.state,
        producer_id=one.transaction.producer_id,
        producer_epoch=one.transaction.producer_epoch,
        number=one.transaction.number,
        age_ms=one.age_ms,
        timeout_ms=one.timeout_ms,
        record_count=one.record_count,
        size_bytes=one.bytes,
        client_id=one.client_id,
        token=one.token,
        topics=tuple(one.topics),
        groups=tuple(one.groups),
    )
