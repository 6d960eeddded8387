"""The transactions of a fake gateway: a small coordinator that keeps the wire's rules.

Nothing is shared with the gateway's own code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from mainstem.errors import (
    InvalidTxnStateError,
    MainstemError,
    NotLeaderError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionTimedOutError,
)
from mainstem.protocol import error_to_status
from mainstem.protocol.v1 import groups_pb2, log_pb2, transactions_pb2, transactions_pb2_grpc
from mainstem.testing._fake_fault import Fault
from mainstem.testing._fake_topic import FakeTopic, Row, numbered_runs

#: Sees each call before it is looked at: its name and the request. An error is the answer;
#: Fault.BREAK: no answer, and nothing done; Fault.BREAK_AFTER: done, and no answer.
OnTransaction = Callable[[str, Any], MainstemError | Fault | None]

#: Stores rows of a topic; returns the base offset by partition, and the table version.
Store = Callable[[FakeTopic, list[tuple[int, Row]]], log_pb2.ProduceResponse]


@dataclass
class FakeTransaction:
    """One transaction.

    Attributes:
        rows: By topic, in the order of their arrival.
        offsets: What was added, in order.
        state: OPEN, PREPARED, COMMITTED, ABORTED or TIMED_OUT.
    """

    number: int
    opened_at: float
    rows: dict[str, list[tuple[int, Row]]] = field(default_factory=dict)
    expected: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    offsets: list[groups_pb2.CommitOffsetsRequest] = field(default_factory=list)
    state: str = "OPEN"


@dataclass
class _Producer:
    """Who has a transactional id."""

    producer_id: int
    epoch: int
    timeout_s: float
    last: FakeTransaction | None = None
    prepared: FakeTransaction | None = None


class FakeTransactions(transactions_pb2_grpc.TransactionsServicer):
    """Transactions, and the hooks of a test.

    Args:
        find_topic: A topic by name.
        store: Appends the rows of a committed transaction.
        lock: Guards both the log and this.

    Attributes:
        calls: The name of each call that came, in order.
        commits: Offsets of committed transactions, by group, topic and partition.
        on_call: See OnTransaction.
        on_offsets: Called with offsets before they are added, and again before they are committed;
            an error that it returns refuses them.
        leader: host:port of another gateway that coordinates; empty: this one does.
        address: What this one says of itself; empty: nothing.
        store_commits: Transactions that changed a topic or offsets.
    """

    def __init__(
        self, find_topic: Callable[[str], FakeTopic], store: Store, lock: threading.RLock
    ) -> None:
        self._find_topic = find_topic
        self._store = store
        self._lock = lock
        self._producers: dict[str, _Producer] = {}
        self._tokens: dict[str, FakeTransaction] = {}
        self._last_id = 0
        self.calls: list[str] = []
        self.commits: dict[tuple[str, str, int], int] = {}
        self.on_call: OnTransaction | None = None
        self.on_offsets: (
            Callable[[groups_pb2.CommitOffsetsRequest], MainstemError | None] | None
        ) = None
        self.leader = ""
        self.address = ""
        self.store_commits = 0

    def lose_open(self) -> None:
        """As a restart of the coordinator: what is open is aborted, what is prepared stays."""
        with self._lock:
            for producer in self._producers.values():
                if producer.last is not None and producer.last.state == "OPEN":
                    producer.last.state = "ABORTED"

    def take_over(self, other: FakeTransactions) -> None:
        """Coordinates in another's place, which names this one from now on if it is asked."""
        with self._lock:
            other.lose_open()
            self._producers = other._producers
            for producer in self._producers.values():
                if producer.last is not None and producer.last.state != "COMMITTED":
                    producer.last = None  # nothing of it was kept
            self._tokens = other._tokens
            self._last_id = other._last_id
            self.leader = ""

    def lose(self, topic: str) -> None:
        """Forgets what open transactions have sent to a topic, though they were told otherwise."""
        with self._lock:
            for one in self._producers.values():
                if one.last is not None and one.last.state == "OPEN":
                    one.last.rows.pop(topic, None)

    def open_count(self) -> int:
        """Transactions that are open."""
        with self._lock:
            return sum(
                one.last is not None and one.last.state == "OPEN"
                for one in self._producers.values()
            )

    # ------------------------------------------------------------------------------------- records

    def stage(
        self, request: log_pb2.ProduceRequest, rows: list[tuple[int, Row]]
    ) -> log_pb2.ProduceResponse:
        """Takes the records of a produce request, once.

        Raises:
            MainstemError: It was refused.
        """
        with self._lock:
            found = self._open(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.transaction_number,
            )
            answer = log_pb2.ProduceResponse(
                correlation_id=request.correlation_id, table_version=-1
            )
            expected = dict(found.expected)
            new = False
            for run in numbered_runs(request.arrow):
                place = request.topic, run.partition
                following = run.base_sequence + run.record_count
                first, at = expected.get(place, (run.base_sequence, run.base_sequence))
                answer.results.add(
                    partition=run.partition, base_offset=-1, record_count=run.record_count
                )
                if first <= run.base_sequence and following <= at:
                    continue
                if run.base_sequence != at:
                    raise OutOfOrderSequenceError(
                        f"sequence {run.base_sequence} came, where {at} comes next"
                    )
                expected[place] = (first, following)
                new = True
            if new:
                found.expected = expected
                found.rows.setdefault(request.topic, []).extend(rows)
            return answer

    def _open(
        self, transactional_id: str, producer_id: int, epoch: int, number: int
    ) -> FakeTransaction:
        found = self._check_producer(transactional_id, producer_id, epoch).last
        if found is None or found.number != number:
            raise InvalidTxnStateError(
                f"transaction {number} of {transactional_id!r} is not open",
                transactional_id=transactional_id,
            )
        self._time_out(transactional_id, found)
        if found.state == "ABORTED":
            raise TransactionAbortedError(f"transaction {number} was aborted")
        if found.state == "TIMED_OUT":
            raise TransactionTimedOutError(f"transaction {number} was open for too long")
        if found.state != "OPEN":
            raise InvalidTxnStateError(f"transaction {number} is {found.state}")
        return found

    def _check_producer(self, transactional_id: str, producer_id: int, epoch: int) -> _Producer:
        self._check_coordinates()
        producer = self._producers.get(transactional_id)
        if producer is None or producer.producer_id != producer_id:
            raise InvalidTxnStateError(f"nobody has initialised {transactional_id!r}")
        if epoch < producer.epoch:
            raise ProducerFencedError(
                f"a newer producer has the transactional id {transactional_id!r}"
            )
        return producer

    def _time_out(self, transactional_id: str, found: FakeTransaction) -> None:
        timeout_s = self._producers[transactional_id].timeout_s
        if found.state == "OPEN" and time.monotonic() - found.opened_at > timeout_s:
            found.state = "TIMED_OUT"

    def _by_id(self, one: transactions_pb2.TransactionId) -> FakeTransaction:
        return self._open(one.transactional_id, one.producer_id, one.producer_epoch, one.number)

    # --------------------------------------------------------------------------------------- calls

    def InitTransactions(self, request: Any, context: Any) -> Any:
        def act() -> Any:
            name = request.transactional_id
            before = self._producers.get(name)
            if before is None:
                self._last_id += 1
                before = _Producer(self._last_id, -1, 0.0)
            if before.last is not None and before.last.state == "OPEN":
                before.last.state = "ABORTED"
            self._producers[name] = _Producer(
                before.producer_id,
                before.epoch + 1,
                (request.transaction_timeout_ms or 60_000) / 1000,
                None,
                before.prepared,
            )
            token = self._token(name, before.prepared) if before.prepared else ""
            return transactions_pb2.InitTransactionsResponse(
                producer_id=before.producer_id,
                producer_epoch=before.epoch + 1,
                prepared_token=token,
                coordinator=self.address,
            )

        return self._answer("InitTransactions", request, context, act)

    def BeginTransaction(self, request: Any, context: Any) -> Any:
        def act() -> Any:
            one = request.transaction
            producer = self._check_producer(
                one.transactional_id, one.producer_id, one.producer_epoch
            )
            if producer.prepared is not None:
                raise InvalidTxnStateError("a transaction is prepared: complete it first")
            last = producer.last
            if last is not None and last.number == one.number and last.state == "OPEN":
                return transactions_pb2.BeginTransactionResponse()
            if last is not None and (last.state == "OPEN" or one.number <= last.number):
                raise InvalidTxnStateError(f"transaction {last.number} was the last, {last.state}")
            producer.last = FakeTransaction(one.number, time.monotonic())
            return transactions_pb2.BeginTransactionResponse()

        return self._answer("BeginTransaction", request, context, act)

    def AddOffsets(self, request: Any, context: Any) -> Any:
        def act() -> Any:
            found = self._by_id(request.transaction)
            self._check_offsets(request.offsets)
            found.offsets.append(request.offsets)
            return transactions_pb2.AddOffsetsResponse()

        return self._answer("AddOffsets", request, context, act)

    def EndTransaction(self, request: Any, context: Any) -> Any:
        def act() -> Any:
            one = request.transaction
            producer = self._check_producer(
                one.transactional_id, one.producer_id, one.producer_epoch
            )
            last = producer.last
            if last is not None and last.number == one.number:
                if request.commit and last.state == "COMMITTED":
                    return _results([])
                if not request.commit and last.state in ("ABORTED", "TIMED_OUT"):
                    return _results([])
            found = self._by_id(one)
            if not request.commit:
                found.state = "ABORTED"
                return _results([])
            _check_complete(found, request)
            return _results(self._commit(found))

        return self._answer("EndTransaction", request, context, act)

    def PrepareTransaction(self, request: Any, context: Any) -> Any:
        def act() -> Any:
            one = request.transaction
            producer = self._check_producer(
                one.transactional_id, one.producer_id, one.producer_epoch
            )
            found = producer.prepared
            if found is None or found.number != one.number:
                found = self._by_id(one)
                _check_complete(found, request)
                if found.offsets:
                    raise InvalidTxnStateError("a transaction with offsets cannot be prepared")
                found.state = "PREPARED"
                producer.prepared = found
            return transactions_pb2.PrepareTransactionResponse(
                token=self._token(one.transactional_id, found)
            )

        return self._answer("PrepareTransaction", request, context, act)

    def CompleteTransaction(self, request: Any, context: Any) -> Any:
        def act() -> Any:
            if request.token not in self._tokens:
                raise InvalidTxnStateError(f"{request.token!r} is no token")
            found = self._tokens[request.token]
            wanted = "COMMITTED" if request.commit else "ABORTED"
            if found.state == wanted:
                return _results([])
            if found.state != "PREPARED":
                raise InvalidTxnStateError(f"the transaction is {found.state} already")
            for producer in self._producers.values():
                if producer.prepared is found:
                    producer.prepared = None
            if request.commit:
                return _results(self._commit(found))
            found.state = "ABORTED"
            return _results([])

        return self._answer("CompleteTransaction", request, context, act)

    def DescribeTransaction(self, request: Any, context: Any) -> Any:
        def act() -> Any:
            return transactions_pb2.TransactionDescription()

        return self._answer("DescribeTransaction", request, context, act)

    # -------------------------------------------------------------------------------------- inside

    def _commit(self, found: FakeTransaction) -> list[Any]:
        for offsets in found.offsets:
            try:
                self._check_offsets(offsets)
            except MainstemError:
                found.state = "ABORTED"
                raise
        results = []
        for name, rows in sorted(found.rows.items()):
            stored = self._store(self._find_topic(name), rows)
            results += [
                transactions_pb2.TransactionResult(
                    topic=name,
                    partition=one.partition,
                    base_offset=one.base_offset,
                    record_count=one.record_count,
                    table_version=stored.table_version,
                )
                for one in stored.results
            ]
        for offsets in found.offsets:
            for place in offsets.offsets:
                self.commits[offsets.group, place.topic, place.partition] = place.offset
        if found.rows or found.offsets:
            self.store_commits += 1
        found.state = "COMMITTED"
        return results

    def _check_offsets(self, offsets: groups_pb2.CommitOffsetsRequest) -> None:
        error = self.on_offsets(offsets) if self.on_offsets is not None else None
        if error is not None:
            raise error

    def _check_coordinates(self) -> None:
        if self.leader:
            raise NotLeaderError(f"{self.leader} coordinates", leader=self.leader)

    def _token(self, name: str, found: FakeTransaction) -> str:
        token = f"{name}/{id(found)}"
        self._tokens[token] = found
        return token

    def _answer(self, method: str, request: Any, context: Any, act: Callable[[], Any]) -> Any:
        self.calls.append(method)
        verdict = self.on_call(method, request) if self.on_call is not None else None
        try:
            if isinstance(verdict, MainstemError):
                raise verdict
            if verdict is Fault.BREAK:
                _abort(context)
            with self._lock:
                self._check_coordinates()
                answer = act()
        except MainstemError as error:
            context.abort_with_status(error_to_status(error))
            raise
        if verdict is Fault.BREAK_AFTER:
            _abort(context)
        return answer


def _check_complete(found: FakeTransaction, request: Any) -> None:
    """Raises TransactionAbortedError where a record was lost on its way."""
    count = sum(map(len, found.rows.values()))
    if request.HasField("record_count") and request.record_count != count:
        found.state = "ABORTED"
        raise TransactionAbortedError(f"{request.record_count} records were sent, {count} came")


def _results(results: list[Any]) -> transactions_pb2.EndTransactionResponse:
    return transactions_pb2.EndTransactionResponse(results=results)


def _abort(context: Any) -> None:
    context.abort(grpc.StatusCode.UNAVAILABLE, "the fake gateway broke the call")
