"""What a producer asks the coordinator of transactions, again and again while that may help."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from mainstem.client.backoff import backoff_s
from mainstem.client.coordinator_calls import CoordinatorCalls
from mainstem.client.gateways import Gateways
from mainstem.client.results import ProducerIdentity
from mainstem.errors import (
    GatewayUnavailableError,
    MainstemError,
    OutcomeUnknownError,
    TransactionAbortedError,
)
from mainstem.protocol import never_left
from mainstem.protocol.v1 import transactions_pb2, transactions_pb2_grpc

#: A coordinator has so long for its answer at first, then twice as long each time, up to
#: request.timeout.ms: one that hangs is left early, and a large commit has the time that it takes.
_ANSWER_S: Final = 3.0

#: The same for the question who coordinates, which is answered from memory.
_FIND_S: Final = 1.0


#: Errors of calls that may have been taken, unless there was no connection.
_LOST: Final = (GatewayUnavailableError, OutcomeUnknownError)


class TransactionCalls:
    """Calls to whoever coordinates transactions. Thread-safe. Times in seconds.

    Args:
        transactional_id: transactional.id.
        answer_s_max: request.timeout.ms.
        first_backoff_s, backoff_s_max: retry.backoff.ms, retry.backoff.max.ms.
        pause: Sleeps; returns False if the producer was closed meanwhile.
    """

    def __init__(
        self,
        gateways: Gateways,
        *,
        transactional_id: str,
        answer_s_max: float,
        first_backoff_s: float,
        backoff_s_max: float,
        pause: Callable[[float], bool],
    ) -> None:
        self._calls = coordinator_calls(gateways)
        self._id = transactional_id
        self._answer_s_max = answer_s_max
        self._backoff_s = (first_backoff_s, backoff_s_max)
        self._pause = pause

    @property
    def address(self) -> str:
        """host:port of the coordinator that answered last."""
        return self._calls.address

    def coordinated_at(self, address: str) -> None:
        """The coordinator has said where it is reached; empty: it did not."""
        if address:
            self._calls.coordinated_at(address)

    def call(self, method: str, request: Any, timeout_s: float, *, first_at: str = "") -> Any:
        """The answer. Calls again after an error that is retriable, until `timeout_s` have passed
        or the producer is closed.

        Args:
            first_at: host:port of the gateway that has what the call is about. Others are asked
                only once it may have taken the call; if another one coordinates before, nobody has.

        Raises:
            TransactionAbortedError: Another gateway than `first_at` coordinates.
            MainstemError: The last error. A retriable one says nothing of those before it: with
                OutcomeUnknownError some of them may have taken effect.
        """
        ends_at = time.monotonic() + timeout_s
        failures = 0
        taken = in_doubt = False
        while True:
            left_s = max(0.001, ends_at - time.monotonic())
            answer_s = min(_ANSWER_S * 2.0 ** min(failures, 10), self._answer_s_max)
            only = "" if taken else first_at
            try:
                return self._calls.call(method, request, answer_s, left_s, only=only)
            except MainstemError as error:
                if not error.retriable:
                    raise
                in_doubt = in_doubt or isinstance(error, OutcomeUnknownError)
                taken = taken or (isinstance(error, _LOST) and not never_left(error))
                if only and not taken:
                    self._check_coordinates(only)
                wait_s = max(backoff_s(*self._backoff_s, failures), error.retry_delay_ms / 1000)
                failures += 1
                if time.monotonic() + wait_s < ends_at and self._pause(wait_s):
                    continue
                if in_doubt and not isinstance(error, OutcomeUnknownError):
                    raise OutcomeUnknownError(
                        f"{method} may have been taken; the last answer was: {error.message}"
                    ) from error
                raise

    def _check_coordinates(self, address: str) -> None:
        """Raises TransactionAbortedError if another gateway does."""
        found = self.find()
        if found and found != address:
            raise moved(address, found)

    def find(self) -> str:
        """host:port of the coordinator; empty: nobody could tell."""
        request = transactions_pb2.DescribeTransactionRequest(transactional_id=self._id)
        try:
            self._calls.call("DescribeTransaction", request, _FIND_S, self._answer_s_max)
        except MainstemError:
            return ""
        return self._calls.address


def coordinator_calls(gateways: Gateways, *, waits: bool = False) -> CoordinatorCalls:
    """Calls of the Transactions service. Each of them may be made twice.

    Args:
        waits: See `CoordinatorCalls`.
    """
    return CoordinatorCalls(
        gateways,
        repeats=True,
        stub=transactions_pb2_grpc.TransactionsStub,
        missing="transactions",
        waits=waits,
    )


def moved(begun_at: str, found: str) -> TransactionAbortedError:
    """A transaction belongs to the gateway that began it: no other has any of it."""
    return TransactionAbortedError(
        f"{found} coordinates transactions now, in place of {begun_at}, which had what was sent",
        leader=found,
    )


def transaction_id(identity: ProducerIdentity) -> transactions_pb2.TransactionId:
    """A transaction as the coordinator knows it."""
    return transactions_pb2.TransactionId(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        number=identity.transaction_number,
    )
