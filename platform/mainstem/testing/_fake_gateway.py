"""An in-memory gateway with a hook per request: a real gRPC server, whose records tests can judge.

    with FakeGateway({"flights": 6}) as gateway:
        producer = Producer({"bootstrap.servers": gateway.address})

It keeps the rules of the real one: answers in order within a topic, HELD after a retriable refusal
until `resume`, offsets without a gap.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import grpc
import pyarrow as pa

from mainstem.config import TOPIC_KEYS, TopicConfig, format_value
from mainstem.errors import (
    HeldError,
    InvalidConfigError,
    InvalidRecordError,
    MainstemError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.protocol import error_to_message, error_to_status
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from mainstem.records import check_topic_name, normalise_wire_batch, partition_for_key

#: Each open stream holds one; a handful of producers in one test at most.
_THREADS: Final = 32

#: A port that was just given up can stay busy for a moment.
_BIND_TIMEOUT_S: Final = 10.0


class Fault(enum.Enum):
    """What `on_produce` may answer beside an error."""

    #: The stream ends, and the request is not stored.
    BREAK = "break"
    #: The request is stored, and the stream ends before its answer.
    BREAK_AFTER = "break after"
    #: The request is stored, and is never answered.
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as it was stored."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(slots=True)
class FakeTopic:
    """A topic: its partitions are lists of records."""

    name: str
    partition_count: int
    topic_id: str = field(default_factory=lambda: str(uuid4()))
    config: TopicConfig = field(default_factory=lambda: TopicConfig.parse({}))
    table_version: int = 0
    leader: str = ""
    records: list[list[StoredRecord]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.grow(self.partition_count)

    def grow(self, partition_count: int) -> None:
        """Adds partitions up to a new total."""
        self.records += [[] for _ in range(partition_count - len(self.records))]
        self.partition_count = partition_count


#: Sees each produce request before it is stored. None: store it. It may wait, too.
OnProduce = Callable[[log_pb2.ProduceRequest], MainstemError | Fault | None]


class FakeGateway:
    """A gateway without a disk. Start and stop it at will: records and port are kept.

    Args:
        topics: Partition count by name.
        on_produce: See OnProduce; may be set at any time.

    Attributes:
        topics: By name; tests may add, remove and change them.
        requests: Every produce request that came, stored or not, in order.
        violations: Rules of the protocol that a client broke. A test ends with `== []`.
        on_metadata: Called with each metadata request; an error that it returns is the answer.
    """

    def __init__(
        self, topics: Mapping[str, int] | None = None, on_produce: OnProduce | None = None
    ) -> None:
        self.topics = {name: FakeTopic(name, count) for name, count in (topics or {}).items()}
        self.on_produce = on_produce
        self.on_metadata: Callable[[log_pb2.MetadataRequest], MainstemError | None] | None = None
        self.requests: list[log_pb2.ProduceRequest] = []
        self.violations: list[str] = []
        self.metadata_count = 0
        self.stream_count = 0
        self._lock = threading.Lock()
        self._port = 0
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        """host:port; the same after each start."""
        assert self._port, "start the gateway first"
        return f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Listens, at the first time on a free port, then on that one again."""
        assert self._server is None
        self._stopping = threading.Event()
        deadline = time.monotonic() + _BIND_TIMEOUT_S
        while True:
            server = grpc.server(
                threads := ThreadPoolExecutor(_THREADS, "fake-gateway"),
                options=[
                    ("grpc.so_reuseport", 0),
                    ("grpc.max_receive_message_length", -1),
                    ("grpc.max_send_message_length", -1),
                ],
            )
            log_pb2_grpc.add_LogServicer_to_server(_LogService(self), server)
            admin_pb2_grpc.add_AdminServicer_to_server(_AdminService(self), server)
            try:
                self._port = server.add_insecure_port(f"127.0.0.1:{self._port}")
                break
            except RuntimeError:
                threads.shutdown()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        server.start()
        self._server = server
        self._threads = threads
        return self

    def stop(self) -> None:
        """Ends every stream at once, without an answer to what is under way."""
        server, self._server = self._server, None
        if server is not None:
            self._stopping.set()
            server.stop(grace=0).wait()
            assert self._threads is not None
            # Not waiting: a hook of the test may hold one.
            self._threads.shutdown(wait=False)

    def records(self, topic: str) -> list[list[StoredRecord]]:
        """A copy of what is stored, by partition."""
        with self._lock:
            return [list(partition) for partition in self.topics[topic].records]

    def values(self, topic: str) -> list[list[bytes | None]]:
        """The values only, by partition."""
        return [[record.value for record in part] for part in self.records(topic)]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def topic(self, name: str) -> FakeTopic:
        """The topic.

        Raises:
            UnknownTopicError: There is none.
        """
        found = self.topics.get(name)
        if found is None:
            raise UnknownTopicError(f"topic {name} does not exist; create it", topic=name)
        return found

    def store(self, request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        """Checks and stores a request, whole or not at all."""
        topic = self.topic(request.topic)
        answer = log_pb2.ProduceResponse(correlation_id=request.correlation_id)
        if request.WhichOneof("payload") == "records":
            rows = [_plain(record) for record in request.records.records]
            ranges = None
        else:
            rows, ranges = _columnar(request.arrow)
        with self._lock:
            placed = _placed(topic, rows, ranges)
            none = request.acks == log_pb2.ACKS_NONE
            bases: dict[int, list[int]] = {}
            for partition, (key, value, headers, timestamp_ms) in placed:
                log = topic.records[partition]
                base = bases.setdefault(partition, [len(log), 0])
                base[1] += 1
                if ranges is None:
                    answer.positions.add(partition=partition, offset=len(log))
                log.append(StoredRecord(len(log), key, value, headers, timestamp_ms))
            for partition, (base_offset, count) in sorted(bases.items()):
                answer.results.add(
                    partition=partition,
                    base_offset=-1 if none else base_offset,
                    record_count=count,
                )
            topic.table_version += 1
            answer.table_version = -1 if none else topic.table_version
        return answer

    def decide(
        self, request: log_pb2.ProduceRequest
    ) -> log_pb2.ProduceResponse | MainstemError | Fault:
        """What becomes of a request: the answer, an error, or a broken stream."""
        self.requests.append(request)
        verdict = self.on_produce(request) if self.on_produce is not None else None
        if verdict is Fault.BREAK or isinstance(verdict, MainstemError):
            return verdict
        if self._stopping.is_set():
            return Fault.BREAK
        try:
            answer = self.store(request)
        except MainstemError as error:
            return error
        return answer if verdict is None else verdict

    def wait_for_stop(self, active: Callable[[], bool]) -> None:
        """Waits until the gateway stops or the caller's stream is gone."""
        while active() and not self._stopping.wait(0.02):
            pass


_Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def _plain(record: log_pb2.Record) -> tuple[int | None, _Row]:
    headers = tuple(
        (header.key, header.value if header.HasField("value") else None)
        for header in record.headers
    )
    timestamp_ms = (
        record.timestamp_ms if record.HasField("timestamp_ms") else int(time.time() * 1000)
    )
    row = (
        record.key if record.HasField("key") else None,
        record.value if record.HasField("value") else None,
        headers,
        timestamp_ms,
    )
    return record.partition if record.HasField("partition") else None, row


def _columnar(
    payload: log_pb2.ArrowRecords,
) -> tuple[list[tuple[int | None, _Row]], list[tuple[int, int]] | None]:
    rows: list[tuple[int | None, _Row]] = []
    try:
        with pa.ipc.open_stream(payload.ipc_stream) as reader:
            for batch in reader:
                batch.validate(full=True)
                batch = normalise_wire_batch(batch, int(time.time() * 1000))
                for key, value, headers, timestamp_ms in zip(
                    batch.column("key").to_pylist(),
                    batch.column("value").to_pylist(),
                    batch.column("headers").to_pylist(),
                    batch.column("timestamp").view(pa.int64()).to_pylist(),
                    strict=True,
                ):
                    pairs = tuple((h["key"], h["value"]) for h in headers or ())
                    rows.append((None, (key, value, pairs, timestamp_ms)))
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(f"the payload is no Arrow IPC stream: {error}") from error
    if not payload.ranges:
        return rows, None
    ranges = []
    following = 0
    for one in payload.ranges:
        if one.first_row != following or one.row_count < 1:
            raise InvalidRecordError(
                f"a range begins at row {one.first_row} with {one.row_count} rows; it must begin "
                f"at row {following} and have at least one"
            )
        following += one.row_count
        ranges.append((one.partition, one.row_count))
    if following != len(rows):
        raise InvalidRecordError(f"the ranges cover {following} of {len(rows)} rows")
    return rows, ranges


def _placed(
    topic: FakeTopic,
    rows: list[tuple[int | None, _Row]],
    ranges: list[tuple[int, int]] | None,
) -> list[tuple[int, _Row]]:
    """Each row with its partition; checks all before anything is stored."""
    if ranges is not None:
        partitions = [partition for partition, count in ranges for _ in range(count)]
    else:
        partitions = []
        for wanted, (key, _, _, _) in rows:
            if wanted is None:
                wanted = 0 if key is None else partition_for_key(key, topic.partition_count)
            partitions.append(wanted)
    for partition in partitions:
        if not 0 <= partition < topic.partition_count:
            raise UnknownPartitionError(
                f"topic {topic.name} has no partition {partition}; it has {topic.partition_count}",
                topic=topic.name,
                partition=partition,
            )
    return [(partition, row) for partition, (_, row) in zip(partitions, rows, strict=True)]


class _LogService(log_pb2_grpc.LogServicer):
    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    def Produce(self, request: log_pb2.ProduceRequest, context: Any) -> log_pb2.ProduceResponse:
        outcome = self._gateway.decide(request)
        if isinstance(outcome, MainstemError):
            context.abort_with_status(error_to_status(outcome))
        if isinstance(outcome, Fault):
            context.abort(grpc.StatusCode.UNAVAILABLE, "the fake gateway broke the call")
        assert isinstance(outcome, log_pb2.ProduceResponse)
        return outcome

    def ProduceStream(
        self, request_iterator: Iterator[log_pb2.ProduceRequest], context: Any
    ) -> Iterator[log_pb2.ProduceResponse]:
        gateway = self._gateway
        gateway.stream_count += 1
        held: set[str] = set()
        last_id = 0
        for request in request_iterator:
            if request.correlation_id <= last_id:
                gateway.violations.append(
                    f"correlation id {request.correlation_id} came after {last_id}"
                )
            last_id = request.correlation_id
            if request.resume:
                if request.topic not in held:
                    gateway.violations.append(f"resume of {request.topic}, which is not held")
                held.discard(request.topic)
            if request.topic in held:
                gateway.requests.append(request)
                yield _refusal(
                    request, HeldError(f"an earlier batch of topic {request.topic} was refused")
                )
                continue
            outcome = gateway.decide(request)
            if isinstance(outcome, MainstemError):
                if outcome.retriable:
                    held.add(request.topic)
                yield _refusal(request, outcome)
            elif outcome is Fault.SILENCE:
                gateway.wait_for_stop(context.is_active)
                return
            elif isinstance(outcome, Fault):
                context.abort(grpc.StatusCode.UNAVAILABLE, "the fake gateway broke the stream")
            else:
                yield outcome

    def Metadata(self, request: log_pb2.MetadataRequest, context: Any) -> log_pb2.MetadataResponse:
        gateway = self._gateway
        gateway.metadata_count += 1
        if gateway.on_metadata is not None and (error := gateway.on_metadata(request)) is not None:
            context.abort_with_status(error_to_status(error))
        answer = log_pb2.MetadataResponse(gateways=[gateway.address])
        for name in request.topics or sorted(gateway.topics):
            try:
                topic = gateway.topic(name)
            except MainstemError as error:
                answer.topics.add(topic=name, error=error_to_message(error))
            else:
                answer.topics.add(
                    topic=name,
                    topic_id=topic.topic_id,
                    partition_count=topic.partition_count,
                    leader=topic.leader or gateway.address,
                )
        return answer


def _refusal(request: log_pb2.ProduceRequest, error: MainstemError) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(
        correlation_id=request.correlation_id, error=error_to_message(error)
    )


class _AdminService(admin_pb2_grpc.AdminServicer):
    """Each call raises what is wrong; `_guarded` makes a status of it."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    def CreateTopic(
        self, request: admin_pb2.CreateTopicRequest, context: Any
    ) -> admin_pb2.CreateTopicResponse:
        with _statuses(context):
            check_topic_name(request.topic)
            if request.topic in self._gateway.topics:
                raise TopicExistsError(f"topic {request.topic} exists", topic=request.topic)
            config = TopicConfig.parse(dict(request.config))
        topic = FakeTopic(request.topic, request.partition_count or 1, config=config)
        if request.validate_only:
            return admin_pb2.CreateTopicResponse(partition_count=topic.partition_count)
        self._gateway.topics[topic.name] = topic
        return admin_pb2.CreateTopicResponse(
            topic_id=topic.topic_id, partition_count=topic.partition_count
        )

    def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, context: Any
    ) -> admin_pb2.DeleteTopicResponse:
        with _statuses(context):
            topic = self._gateway.topic(request.topic)
        del self._gateway.topics[topic.name]
        return admin_pb2.DeleteTopicResponse(topic_id=topic.topic_id)

    def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, context: Any
    ) -> admin_pb2.ListTopicsResponse:
        return admin_pb2.ListTopicsResponse(
            topics=[
                admin_pb2.TopicListing(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partition_count=topic.partition_count,
                )
                for _, topic in sorted(self._gateway.topics.items())
            ]
        )

    def DescribeTopic(
        self, request: admin_pb2.DescribeTopicRequest, context: Any
    ) -> admin_pb2.DescribeTopicResponse:
        with _statuses(context):
            topic = self._gateway.topic(request.topic)
        answer = admin_pb2.DescribeTopicResponse(
            topic=topic.name,
            topic_id=topic.topic_id,
            leader=topic.leader or self._gateway.address,
            leader_epoch=1,
            table_version=topic.table_version,
            table_uri=f"memory://topics/{topic.name}",
        )
        for partition, log in enumerate(topic.records):
            answer.partitions.add(
                partition=partition, high_watermark=len(log), log_end_offset=len(log)
            )
        for key in TOPIC_KEYS.values():
            answer.config.add(
                name=key.name,
                value=format_value(topic.config.get(key.name)),
                is_default=key.name not in topic.config.overrides,
                unit=key.unit,
                doc=key.doc,
            )
        return answer

    def AlterTopicConfig(
        self, request: admin_pb2.AlterTopicConfigRequest, context: Any
    ) -> admin_pb2.AlterTopicConfigResponse:
        with _statuses(context):
            topic = self._gateway.topic(request.topic)
            config = topic.config.altered(dict(request.set), list(request.reset))
        if not request.validate_only:
            topic.config = config
            topic.table_version += 1
        return admin_pb2.AlterTopicConfigResponse(table_version=topic.table_version)

    def AddPartitions(
        self, request: admin_pb2.AddPartitionsRequest, context: Any
    ) -> admin_pb2.AddPartitionsResponse:
        with _statuses(context):
            topic = self._gateway.topic(request.topic)
            if request.partition_count <= topic.partition_count:
                raise InvalidConfigError(
                    f"topic {topic.name} has {topic.partition_count} partitions; the new total, "
                    f"{request.partition_count}, must be larger"
                )
        topic.grow(request.partition_count)
        topic.table_version += 1
        return admin_pb2.AddPartitionsResponse(table_version=topic.table_version)

    def DescribeCluster(
        self, request: admin_pb2.DescribeClusterRequest, context: Any
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(
            warehouse_uri="memory://",
            version="fake",
            gateways=[
                admin_pb2.GatewayDescription(
                    gateway_id="fake",
                    address=self._gateway.address,
                    topics_led=len(self._gateway.topics),
                )
            ],
        )


class _statuses:
    """Turns a MainstemError of its block into the call's status."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, MainstemError):
            self._context.abort_with_status(error_to_status(error))
