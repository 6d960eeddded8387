"""Transactions seen from outside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mainstem.client.gateways import Gateways
from mainstem.client.producer.transactions import coordinator_calls, places_of
from mainstem.client.results import TransactionDescription, TransactionPlaces
from mainstem.protocol.v1 import transactions_pb2

#: Seconds. A large transaction takes a while to commit.
_TIMEOUT_S: Final = 60.0
_READ_TIMEOUT_S: Final = 30.0


class TransactionAdmin:
    """The part of `AdminClient` that is about transactions."""

    def __init__(self, gateways: Gateways) -> None:
        self._transactions = coordinator_calls(gateways)

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
        request = transactions_pb2.ListTransactionsRequest(states=states)
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
