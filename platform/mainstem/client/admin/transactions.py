"""Transactions seen from outside."""

from __future__ import annotations

from typing import Final

from mainstem.client.gateways import Gateways
from mainstem.client.producer.transactions import coordinator_calls, places_of
from mainstem.client.results import TransactionPlaces
from mainstem.protocol.v1 import transactions_pb2

#: Seconds. A large transaction takes a while to commit.
_TIMEOUT_S: Final = 60.0


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
