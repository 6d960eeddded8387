"""The calls of a transactional producer: the state, the coordinator and the engine together."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.gateways import Gateways
from mainstem.client.positions import ConsumerGroupMetadata, TopicPartition
from mainstem.client.producer.settings import ProducerSettings
from mainstem.client.producer.transactions.calls import TransactionCalls, moved, transaction_id
from mainstem.client.producer.transactions.offsets import offset_requests
from mainstem.client.producer.transactions.state import (
    NOT_COMMITTED,
    TransactionState,
    TxnState,
)
from mainstem.client.results import ProducerIdentity, TransactionPlace, TransactionPlaces
from mainstem.errors import (
    ConfigError,
    GatewayUnavailableError,
    MainstemError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortedError,
)
from mainstem.protocol.v1 import transactions_pb2

if TYPE_CHECKING:
    from mainstem.client.producer.engine import Engine

_log = logging.getLogger("mainstem.client")

#: close() in an open transaction tells the coordinator, which aborts it in any case when its time
#: is up: no reason to wait for one that does not answer.
_CLOSE_S: Final = 5.0


class Transactions:
    """The transactions of one producer. Thread-safe; one call at a time.

    Args:
        engine: Whose records they are of. Its `gate` guards the state: records are let in or not
            under the lock under which a call that ends the transaction begins.
        pause: Sleeps; returns False if the producer was closed meanwhile.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ProducerSettings,
        gateways: Gateways,
        pause: Callable[[float], bool],
    ) -> None:
        self._engine = engine
        self._calls = TransactionCalls(
            gateways,
            transactional_id=settings.transactional_id,
            answer_s_max=settings.request_timeout_ms / 1000,
            first_backoff_s=settings.retry_backoff_ms / 1000,
            backoff_s_max=settings.retry_backoff_max_ms / 1000,
            pause=pause,
        )
        self._id = settings.transactional_id
        self._timeout_ms = settings.transaction_timeout_ms
        self._block_s = settings.max_block_ms / 1000
        self._state = TransactionState(self._id)
        self._gate = engine.gate
        #: Notified when a call has ended.
        self._idle = threading.Condition(self._gate)
        #: Of several threads that bring a transaction's first record, one begins it.
        self._beginning = threading.Lock()
        #: A transaction that is being lost is not ended, and the next not begun, before its records
        #: are thrown away. Taken before the gate.
        self._losing = threading.RLock()
        self._looking = threading.Lock()
        #: The coordinator that began the open transaction: no other has any of it.
        self._begun_at = ""

    @staticmethod
    def of(engine: Engine, call: str) -> Transactions:
        """An engine's, for a call of the application.

        Raises:
            ConfigError: It has none.
        """
        if engine.transactions is None:
            raise ConfigError(
                f"{call}() needs transactional.id, which is not set", name="transactional.id"
            )
        return engine.transactions

    # --------------------------------------------------------------------------------- beginning

    def init(self, timeout_s: float | None, single_use: bool = False) -> str | None:
        """See Producer.init_transactions."""
        with self._call("init_transactions"):
            request = transactions_pb2.InitTransactionsRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._timeout_ms,
                single_use=single_use,
            )
            answer = self._ask("InitTransactions", request, timeout_s)
            self._calls.coordinated_at(answer.coordinator)
            with self._gate:
                self._state.initialised(
                    answer.producer_id, answer.producer_epoch, answer.prepared_token
                )
            return answer.prepared_token or None

    def open(self) -> None:
        """See Producer.begin_transaction."""
        with self._call("begin_transaction"), self._gate:
            self._state.opened()

    def must_begin(self) -> bool:
        """Whether a record has to wait until the coordinator has begun the transaction.

        Raises:
            InvalidTxnStateError, TransactionAbortedError: No transaction takes records.
        """
        with self._gate:
            self._state.check_takes("produce")
            return not self._state.begun

    def begin(self, call: str = "produce") -> int:
        """Begins the transaction at the coordinator, unless that was done; returns its number. The
        gate must not be held.

        Args:
            call: Of the application.

        Raises:
            TransactionAbortedError: The coordinator refuses it.
            MainstemError: As the calls of the application.
        """
        with self._beginning:
            with self._gate:
                self._state.check_takes(call)
                if self._state.begun:
                    return self._state.number
                identity = self._state.beginning()
            try:
                self._ask_to_begin(identity)
            except MainstemError as error:
                failure = error
            else:
                with self._gate:
                    self.check(identity.transaction_number, call)
                    self._begun_at = self._calls.address
                    self._state.has_begun()
                    self._engine.sender.begin(identity, self._begun_at)
                return identity.transaction_number
        raise self._refused(failure) from failure

    def _ask_to_begin(self, identity: ProducerIdentity) -> None:
        request = transactions_pb2.BeginTransactionRequest(transaction=transaction_id(identity))
        self._ask("BeginTransaction", request, None)

    def check(self, number: int, call: str = "produce") -> None:
        """Whether the transaction `number` still takes records; the gate is held.

        Raises:
            InvalidTxnStateError, TransactionAbortedError: It does not.
        """
        self._state.check_takes(call)
        if self._state.number != number:
            raise self._state.wrong(call, "the transaction that it was called in is over")

    # ------------------------------------------------------------------------------ in the middle

    def send_offsets(
        self,
        offsets: Iterable[TopicPartition],
        member: ConsumerGroupMetadata,
        timeout_s: float | None,
    ) -> None:
        """See Producer.send_offsets_to_transaction."""
        parts = list(offset_requests(offsets, member))
        with self._call("send_offsets_to_transaction"):
            with self._gate:
                self._state.check_takes("send_offsets_to_transaction")
            if not parts:
                return
            self.begin("send_offsets_to_transaction")
            for part in parts:
                request = transactions_pb2.AddOffsetsRequest(
                    transaction=transaction_id(self._state.identity), offsets=part
                )
                try:
                    self._ask("AddOffsets", request, timeout_s)
                except MainstemError as error:
                    raise self._refused(error) from error

    def lost(self, error: MainstemError) -> None:
        """A record failed, and with it the open transaction. Called without a lock."""
        with self._losing:
            with self._gate:
                if not self._state.lost(error):
                    return
            self._engine.shut()
            self._engine.sender.discard(
                TransactionAbortedError(
                    "something else of its transaction failed, so that nothing of it is in the "
                    f"log: {error.message}",
                    transactional_id=self._id,
                    cause=error.code,
                )
            )

    def look(self) -> None:
        """Asks who coordinates, unless that is under way: a transaction that another gateway began
        is lost."""
        begun_at = self._begun_at
        if not begun_at or not self._looking.acquire(blocking=False):
            return
        try:
            found = self._calls.find()
        finally:
            self._looking.release()
        if found and found != begun_at == self._begun_at:
            self.lost(moved(begun_at, found))

    # ------------------------------------------------------------------------------------- ending

    def commit(self, timeout_s: float | None) -> TransactionPlaces:
        """See Producer.commit_transaction."""
        with self._call("commit_transaction", ends=True):
            deadline = self._deadline(timeout_s)
            # Who has what was sent is told first. Asked again, any coordinator may know of it.
            first_at = ""
            if self._state.state is not TxnState.COMMITTING:
                self._flush("commit_transaction", timeout_s)
                first_at = self._begun_at
            if not self._ending(TxnState.COMMITTING):
                self._ended("committed")
                return {}
            request = transactions_pb2.EndTransactionRequest(
                transaction=transaction_id(self._state.identity),
                commit=True,
                record_count=self._engine.sender.transaction_record_count,
            )
            try:
                answer = self._ask("EndTransaction", request, self._left_s(deadline), first_at)
            except MainstemError as error:
                raise self._not_committed(error) from error
            self._ended("committed")
            return places_of(answer)

    def prepare(self, timeout_s: float | None, lifetime_s: float | None = None) -> str:
        """See Producer.prepare_transaction."""
        with self._call("prepare_transaction", ends=True):
            deadline = self._deadline(timeout_s)
            first_at = ""
            if self._state.state is not TxnState.PREPARING:
                self._flush("prepare_transaction", timeout_s)
                first_at = self._begun_at
            if not self._ending(TxnState.PREPARING):
                self._begin_empty()
            request = transactions_pb2.PrepareTransactionRequest(
                transaction=transaction_id(self._state.identity),
                timeout_ms=0 if lifetime_s is None else max(1, round(lifetime_s * 1000)),
                record_count=self._engine.sender.transaction_record_count,
            )
            try:
                left_s = self._left_s(deadline)
                answer = self._ask("PrepareTransaction", request, left_s, first_at)
            except MainstemError as error:
                raise self._not_committed(error, surely=not error.retriable) from error
            self._forget()
            with self._gate:
                self._state.prepared(answer.token)
            return str(answer.token)

    def abort(self, timeout_s: float | None) -> None:
        """See Producer.abort_transaction."""
        with self._call("abort_transaction", ends=True):
            begun = self._ending(TxnState.ABORTING)
            self._engine.sender.discard(
                TransactionAbortedError(
                    "abort_transaction() was called before the record was committed: it is not in "
                    "the log",
                    transactional_id=self._id,
                )
            )
            if begun:
                self._abort(timeout_s)
            self._ended("aborted")

    def complete(self, token: str, commit: bool, timeout_s: float | None) -> TransactionPlaces:
        """See Producer.complete_transaction."""
        with self._call("complete_transaction"):
            request = transactions_pb2.CompleteTransactionRequest(token=token, commit=commit)
            answer = self._ask("CompleteTransaction", request, timeout_s)
            with self._gate:
                self._state.completed(token)
            return places_of(answer)

    @property
    def is_open(self) -> bool:
        """A transaction is open, and may be committed or aborted."""
        return self._state.state in (TxnState.OPEN, TxnState.LOST)

    def roll_back(self) -> None:
        """Aborts an open transaction, on the way of another error; what fails is logged."""
        if not self.is_open:
            return
        try:
            self.abort(None)
        except MainstemError as error:
            _log.error("the transaction of %r was not aborted: %s", self._id, error)

    def wait_idle(self, timeout_s: float | None) -> None:
        """Waits for a call that another thread is in; its own timeout bounds it."""
        limit_s = None if timeout_s is None or timeout_s < 0 else timeout_s
        with self._gate:
            self._idle.wait_for(lambda: not self._state.under_way, limit_s)

    def close(self) -> None:
        """The producer is closed: an open transaction is aborted. Nothing is raised."""
        with self._gate:
            state = self._state
            if state.under_way or state.state not in (
                TxnState.OPEN,
                TxnState.LOST,
                TxnState.ABORTING,
            ):
                if state.state in (TxnState.COMMITTING, TxnState.PREPARING):
                    _log.error("the producer is closed, and %s", state.state.value)
                return
            was = state.state
            begun = state.ending(TxnState.ABORTING)
        if begun and was is TxnState.OPEN:
            _log.warning(
                "the producer of %r was closed in an open transaction, which is aborted", self._id
            )
        self._engine.sender.discard(
            TransactionAbortedError(
                "the producer was closed in an open transaction: the record is not in the log",
                transactional_id=self._id,
            )
        )
        if begun:
            with contextlib.suppress(MainstemError):
                self._abort(_CLOSE_S)

    # -------------------------------------------------------------------------------------- inside

    @contextlib.contextmanager
    def _call(self, name: str, *, ends: bool = False) -> Iterator[None]:
        """One call of the application.

        Args:
            ends: No record is taken while it lasts, nor after it.
        """
        engine = self._engine
        engine.check_open()
        with self._gate:
            self._state.start(name)
        try:
            if ends:
                engine.shut()
            yield
        finally:
            with self._gate:
                self._state.finish()
                self._idle.notify_all()

    def _ask(self, method: str, request: Any, timeout_s: float | None, first_at: str = "") -> Any:
        """What the coordinator answers; the producer ends where another has its place."""
        limit_s = self._block_s if timeout_s is None or timeout_s < 0 else timeout_s
        try:
            return self._calls.call(method, request, limit_s, first_at=first_at)
        except ProducerFencedError as error:
            self._engine.end(error)
            raise

    def _flush(self, call: str, timeout_s: float | None) -> None:
        left_count = self._engine.settle(call, timeout_s)
        if left_count:
            raise GatewayUnavailableError(
                f"{call}(): the coordinator has not taken {left_count} records within "
                f"{timeout_s} s, or their delivery reports are not served: call it again, or "
                "abort_transaction()",
                record_count=left_count,
            )

    def _begin_empty(self) -> None:
        """A transaction that is prepared has a token, also if nothing is in it."""
        with self._gate:
            identity = self._state.beginning()
        try:
            self._ask_to_begin(identity)
        except MainstemError as error:
            raise self._not_committed(error, surely=not error.retriable) from error

    def _ending(self, state: TxnState) -> bool:
        with self._beginning, self._losing, self._gate:
            self._engine.check_open()  # a callback may have closed it
            return self._state.ending(state)

    def _refused(self, error: MainstemError) -> MainstemError:
        """What to raise: an error that no repetition cures loses the open transaction."""
        if error.retriable or error.fatal or error.code == "INVALID_CONFIG":
            return error
        self.lost(error)
        with self._gate:
            return self._state.lost_error()

    def _not_committed(self, error: MainstemError, *, surely: bool = False) -> MainstemError:
        """What to raise when a commit, or a prepare, failed; the state is as before where it may
        have been done.

        Args:
            surely: It was not done. Else the error says whether that is so.
        """
        if error.fatal:
            return error
        if surely or error.code in NOT_COMMITTED:
            with self._gate:
                self._state.refused(error)
                return self._state.lost_error()
        with self._gate:
            said = self._state.state.value
        return OutcomeUnknownError(f"{said}. The last error was: {error.message}", cause=error.code)

    def _abort(self, timeout_s: float | None) -> None:
        request = transactions_pb2.EndTransactionRequest(
            transaction=transaction_id(self._state.identity), commit=False
        )
        try:
            self._ask("EndTransaction", request, timeout_s)
        except MainstemError as error:
            if error.retriable or error.fatal:
                raise
            # There is no such transaction, or not any more, which was the intention.
            _log.debug("abort_transaction(): %s", error)

    def _ended(self, how: str) -> None:
        self._forget()
        with self._gate:
            self._state.ended(how)

    def _forget(self) -> None:
        """The transaction is over: its numbers too, and the failures of its records were told."""
        self._begun_at = ""
        self._engine.sender.finish_transaction()
        self._engine.reports.forget_failure()

    def _deadline(self, timeout_s: float | None) -> float | None:
        return None if timeout_s is None or timeout_s < 0 else time.monotonic() + timeout_s

    def _left_s(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - time.monotonic())


def places_of(answer: transactions_pb2.EndTransactionResponse) -> TransactionPlaces:
    """Where the records are, as an answer says."""
    return {
        (one.topic, one.partition): TransactionPlace(
            one.base_offset, one.record_count, one.table_version
        )
        for one in answer.results
    }
