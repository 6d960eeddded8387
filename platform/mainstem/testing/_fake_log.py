"""What a fake gateway stores, and what becomes of a produce request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from mainstem.errors import MainstemError
from mainstem.protocol.v1 import log_pb2
from mainstem.testing._fake_fault import Fault
from mainstem.testing._fake_producers import FakeRun
from mainstem.testing._fake_topic import (
    FakeTopic,
    Row,
    StoredRecord,
    columnar_rows,
    numbered_runs,
    placed_rows,
    plain_row,
)
from mainstem.testing._fake_topics import FakeTopics
from mainstem.testing._fake_transactions import FakeTransactions

#: Sees each produce request before it is stored. None: store it. It may wait, too.
OnProduce = Callable[[log_pb2.ProduceRequest], MainstemError | Fault | None]


class FakeLog:
    """Records in memory, and the hooks of a test.

    Args:
        topics: Partition count by name.
        on_produce: See OnProduce; may be set at any time.

    Attributes:
        topics: By name; tests may add, remove and change them.
        requests: Every produce request that came, stored or not, in order.
        violations: Rules of the protocol that a client broke. A test ends with `== []`.
        on_metadata: Called with each metadata request; an error that it returns is the answer.
        on_init_producer: Called for each producer id that is asked for; likewise.
        before_answer: Called after a request was stored; by waiting it makes the answer late.
        producer_count: Producer ids that were given.
        duplicate_count: Requests that came again and were answered with their first place.
        transactions: The coordinator of transactions, and what it was asked.
        stopping: Set while the gateway stops: nothing is stored any more.
    """

    def __init__(
        self, topics: Mapping[str, int] | None = None, on_produce: OnProduce | None = None
    ) -> None:
        self.topics = FakeTopics.of(topics or {})
        self.on_produce = on_produce
        self.on_metadata: Callable[[log_pb2.MetadataRequest], MainstemError | None] | None = None
        self.on_init_producer: Callable[[], MainstemError | None] | None = None
        self.before_answer: Callable[[log_pb2.ProduceRequest], object] | None = None
        self.producer_count = 0
        self.duplicate_count = 0
        self._numbered: dict[tuple[str, int, int, int, int, int], bytes] = {}
        self.requests: list[log_pb2.ProduceRequest] = []
        self.violations: list[str] = []
        self.metadata_count = 0
        self.stream_count = 0
        self._lock = threading.RLock()
        self.transactions = FakeTransactions(self.topics.find, self._store_rows, self._lock)
        self.stopping = threading.Event()

    def records(self, topic: str) -> list[list[StoredRecord]]:
        """A copy of what is stored, by partition."""
        with self._lock:
            return [list(partition) for partition in self.topics[topic].records]

    def values(self, topic: str) -> list[list[bytes | None]]:
        """The values only, by partition."""
        return [[record.value for record in part] for part in self.records(topic)]

    def store(self, request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        """Checks and stores a request, whole or not at all, and once."""
        topic = self.topics.find(request.topic)
        if request.WhichOneof("payload") == "records":
            rows = [plain_row(record) for record in request.records.records]
            ranges = None
        else:
            rows, ranges = columnar_rows(request.arrow)
        with self._lock:
            placed = placed_rows(topic, rows, ranges)
            if request.transactional_id:
                self._check_same(request, numbered_runs(request.arrow))
                return self.transactions.stage(request, placed)
            runs = numbered_runs(request.arrow) if request.producer_id else []
            self._check_same(request, runs)
            answer = log_pb2.ProduceResponse(
                correlation_id=request.correlation_id, table_version=topic.table_version
            )
            ids = (request.producer_id, request.producer_epoch)
            known = topic.producers.check(*ids, runs) if runs else None
            if known is not None:
                self.duplicate_count += 1
                for run, base_offset in zip(runs, known, strict=True):
                    answer.results.add(
                        partition=run.partition,
                        base_offset=base_offset,
                        record_count=run.record_count,
                    )
                return answer
            self._append(topic, placed, answer, positions=ranges is None)
            if runs:
                topic.producers.accept(*ids, runs, [r.base_offset for r in answer.results])
            topic.table_version += 1
            answer.table_version = topic.table_version
            if request.acks == log_pb2.ACKS_NONE:
                answer.table_version = -1
                for result in answer.results:
                    result.base_offset = -1
        return answer

    def _store_rows(
        self, topic: FakeTopic, placed: list[tuple[int, Row]]
    ) -> log_pb2.ProduceResponse:
        with self._lock:
            topic.table_version += 1
            answer = log_pb2.ProduceResponse(table_version=topic.table_version)
            self._append(topic, placed, answer, positions=False)
            return answer

    def _append(
        self,
        topic: FakeTopic,
        placed: list[tuple[int, Row]],
        answer: log_pb2.ProduceResponse,
        *,
        positions: bool,
    ) -> None:
        bases: dict[int, list[int]] = {}
        for partition, (key, value, headers, timestamp_ms) in placed:
            log = topic.records[partition]
            base = bases.setdefault(partition, [len(log), 0])
            base[1] += 1
            if positions:
                answer.positions.add(partition=partition, offset=len(log))
            log.append(StoredRecord(len(log), key, value, headers, timestamp_ms))
        for partition, (base_offset, count) in sorted(bases.items()):
            answer.results.add(partition=partition, base_offset=base_offset, record_count=count)

    def _check_same(self, request: log_pb2.ProduceRequest, runs: list[FakeRun]) -> None:
        """A request that comes again must be the same bytes, whatever became of it before."""
        for run in runs:
            place = (
                request.topic,
                request.producer_id,
                request.producer_epoch,
                request.transaction_number,
                run.partition,
                run.base_sequence,
            )
            content = request.arrow.SerializeToString(deterministic=True)
            if self._numbered.setdefault(place, content) != content:
                self.violations.append(f"other records came with the numbers of {place}")

    def new_producer_id(self) -> int:
        """What InitProducer answers: 1, 2, 3 and so on.

        Raises:
            MainstemError: What `on_init_producer` returned.
        """
        if self.on_init_producer is not None and (error := self.on_init_producer()) is not None:
            raise error
        with self._lock:
            self.producer_count += 1
            return self.producer_count

    def forget_producers(self) -> None:
        """As if producer.id.expiration.ms had passed for all of them."""
        with self._lock:
            for topic in self.topics.values():
                topic.producers.forget()

    def decide(
        self, request: log_pb2.ProduceRequest
    ) -> log_pb2.ProduceResponse | MainstemError | Fault:
        """What becomes of a request: the answer, an error, or a broken stream."""
        self.requests.append(request)
        verdict = self.on_produce(request) if self.on_produce is not None else None
        if verdict is Fault.BREAK or isinstance(verdict, MainstemError):
            return verdict
        if self.stopping.is_set():
            return Fault.BREAK
        try:
            answer = self.store(request)
        except MainstemError as error:
            return error
        if self.before_answer is not None:
            self.before_answer(request)
        return answer if verdict is None else verdict
