"""An in-memory gateway for consumers: a real gRPC server with a hook per request.

    with FakeLogGateway({"flights": 6}) as gateway:
        gateway.append("flights", 0, [b"one", b"two"])
        consumer = Consumer({"bootstrap.servers": gateway.address})

Groups are those of the real coordinator; committed offsets are a dict.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from mainstem.errors import (
    MainstemError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.protocol import error_to_message, error_to_status
from mainstem.protocol.v1 import groups_pb2_grpc, log_pb2, log_pb2_grpc
from mainstem.records import HEADERS_TYPE
from mainstem.testing._fake_groups import FakeGroups
from mainstem.testing._fake_server import start_server
from mainstem.testing._fake_topic import FakeTopic, StoredRecord
from mainstem.testing._fake_topics import FakeTopics

_THREADS: Final = 64

#: A fetch may be broken (an error of the whole call) or waited with. None: serve it.
OnFetch = Callable[[log_pb2.FetchRequest], MainstemError | None]

_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)


class FakeLogGateway:
    """Serves Fetch, ListOffsets, Metadata and Groups without a disk. Start and stop it at will.

    Args:
        topics: Partition count by name.

    Attributes:
        topics: By name; tests may add, remove and change them with `changed`.
        log_starts: Log start offsets that are not 0, by topic and partition.
        fetches: Every fetch request, in order.
        lists: Every query of offsets, in order.
        leader_epoch: Of all partitions.
        places: The gateways that Metadata names, with where they are.
        follower_lag_ms: What its answers say; None: nothing, as it leads.
        in_flight_max: The most fetches that were under way at once.
        on_fetch: See OnFetch.
        partition_error: Asked for each partition of a fetch; an error that it
            returns is its answer.
        groups: The coordinator's side; see FakeGroups.
    """

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self.topics = FakeTopics.of(topics or {})
        self.log_starts: dict[tuple[str, int], int] = {}
        self.fetches: list[log_pb2.FetchRequest] = []
        self.lists: list[log_pb2.OffsetQuery] = []
        self.leader_epoch = 1
        self.places: list[log_pb2.GatewayPlace] = []
        self.follower_lag_ms: int | None = None
        self.in_flight_max = 0
        self._in_flight = 0
        self.on_fetch: OnFetch | None = None
        self.partition_error: Callable[[log_pb2.FetchPartition], MainstemError | None] | None = None
        self.condition = threading.Condition()
        self.groups = FakeGroups(self.topics)
        self._port = 0
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self.stopping = threading.Event()

    @property
    def address(self) -> str:
        """host:port; the same after each start."""
        assert self._port, "start the gateway first"
        return f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Listens, at the first time on a free port, then on that one again."""
        assert self._server is None
        self.stopping = threading.Event()

        def register(server: Any) -> None:
            log_pb2_grpc.add_LogServicer_to_server(_LogService(self), server)
            groups_pb2_grpc.add_GroupsServicer_to_server(self.groups, server)

        self._server, self._threads, self._port = start_server(
            self._port, _THREADS, "fake-log-gateway", register
        )
        return self

    def stop(self) -> None:
        """Ends every call at once. Members are forgotten, as a restart of the real one does."""
        server, self._server = self._server, None
        if server is not None:
            self.stopping.set()
            with self.condition:
                self.condition.notify_all()
            server.stop(grace=0).wait()
            assert self._threads is not None
            self._threads.shutdown(wait=True)
            self.groups.restart()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def append(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        *,
        timestamp_ms: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        key: bytes | None = None,
    ) -> None:
        """Adds records and wakes long polls."""
        now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        with self.condition:
            log = self.topics[topic].records[partition]
            for value in values:
                offset = log[-1].offset + 1 if log else self.log_start(topic, partition)
                log.append(StoredRecord(offset, key, value, headers, now_ms))
            self.condition.notify_all()

    def recreate(self, name: str, partition_count: int) -> None:
        """Deletes a topic and makes a new one of the same name."""
        with self.condition:
            self.topics[name] = FakeTopic(name, partition_count, str(uuid.uuid4()))
            self.log_starts.clear()
        self.groups.topics_changed()

    def grow(self, name: str, partition_count: int) -> None:
        """Adds partitions to a topic."""
        with self.condition:
            self.topics[name].grow(partition_count)
        self.groups.topics_changed()

    def trim(self, topic: str, partition: int, log_start_offset: int) -> None:
        """Removes the records before an offset."""
        with self.condition:
            self.log_starts[topic, partition] = log_start_offset
            log = self.topics[topic].records[partition]
            log[:] = [record for record in log if record.offset >= log_start_offset]

    def log_start(self, topic: str, partition: int) -> int:
        """The log start offset."""
        return self.log_starts.get((topic, partition), 0)

    def high_watermark(self, topic: str, partition: int) -> int:
        """One past the last record."""
        log = self.topics[topic].records[partition]
        return log[-1].offset + 1 if log else self.log_start(topic, partition)

    def check(self, name: str, partition: int) -> FakeTopic:
        """The topic, which has this partition.

        Raises:
            UnknownTopicError, UnknownPartitionError: It is not so.
        """
        topic = self.topics.find(name)
        if not 0 <= partition < topic.partition_count:
            raise UnknownPartitionError(f"topic {name} has no partition {partition}", topic=name)
        return topic

    def fetch(self, request: log_pb2.FetchRequest, active: Callable[[], bool]) -> Any:
        """Serves a fetch, after as long a wait as it asks for."""
        deadline = time.monotonic() + request.max_wait_ms / 1000
        with self.condition:
            self.fetches.append(request)
            self._in_flight += 1
            self.in_flight_max = max(self.in_flight_max, self._in_flight)
            try:
                while True:
                    answer, size, failed = self._read(request)
                    left_s = deadline - time.monotonic()
                    if size >= max(1, request.min_bytes) or failed or left_s <= 0:
                        return answer
                    if self.stopping.is_set() or not active():
                        return answer
                    self.condition.wait(min(left_s, 0.05))
            finally:
                self._in_flight -= 1

    def _read(self, request: log_pb2.FetchRequest) -> tuple[log_pb2.FetchResponse, int, bool]:
        answer = log_pb2.FetchResponse()
        left = request.max_bytes or 1 << 40
        total = 0
        failed = False
        for asked in request.partitions:
            one = answer.partitions.add(topic=asked.topic, partition=asked.partition)
            one.next_offset = asked.offset
            if self.follower_lag_ms is not None:
                one.follower_lag_ms = self.follower_lag_ms
            try:
                rows = self._rows(asked, one)
            except MainstemError as error:
                one.error.CopyFrom(error_to_message(error))
                failed = True
                continue
            limit = min(left, asked.max_bytes or left)
            taken: list[StoredRecord] = []
            size = 0
            for row in rows:
                cost = len(row.key or b"") + len(row.value or b"") + 16
                if size + cost > limit and (taken or total):
                    break
                taken.append(row)
                size += cost
            left = max(0, left - size)
            total += size
            if taken:
                one.arrow = _ipc(taken)
                one.next_offset = taken[-1].offset + 1
        return answer, total, failed

    def _rows(
        self, asked: log_pb2.FetchPartition, one: log_pb2.FetchedPartition
    ) -> list[StoredRecord]:
        if self.partition_error is not None and (error := self.partition_error(asked)) is not None:
            raise error
        topic = self.check(asked.topic, asked.partition)
        if asked.topic_id and asked.topic_id != topic.topic_id:
            raise UnknownTopicError(f"topic {asked.topic} was created again", topic=asked.topic)
        low = self.log_start(asked.topic, asked.partition)
        high = self.high_watermark(asked.topic, asked.partition)
        if not low <= asked.offset <= high:
            raise OffsetOutOfRangeError(
                f"offset {asked.offset} is not in [{low}, {high}]",
                log_start_offset=low,
                high_watermark=high,
            )
        one.topic_id = topic.topic_id
        one.log_start_offset = low
        one.high_watermark = high
        one.leader_epoch = self.leader_epoch
        log = topic.records[asked.partition]
        return [record for record in log if record.offset >= asked.offset]

    def list_offset(self, query: log_pb2.OffsetQuery) -> int:
        """Answers one query."""
        self.lists.append(query)
        topic = self.check(query.topic, query.partition)
        if query.WhichOneof("at") == "earliest":
            return self.log_start(query.topic, query.partition)
        if query.WhichOneof("at") == "latest":
            return self.high_watermark(query.topic, query.partition)
        for record in topic.records[query.partition]:
            if record.timestamp_ms >= query.timestamp_ms:
                return record.offset
        return -1


class _LogService(log_pb2_grpc.LogServicer):
    def __init__(self, gateway: FakeLogGateway) -> None:
        self._gateway = gateway

    def Fetch(self, request: log_pb2.FetchRequest, context: Any) -> log_pb2.FetchResponse:
        gateway = self._gateway
        if gateway.on_fetch is not None and (error := gateway.on_fetch(request)) is not None:
            context.abort_with_status(error_to_status(error))
        answer: log_pb2.FetchResponse = gateway.fetch(request, context.is_active)
        return answer

    def ListOffsets(
        self, request: log_pb2.ListOffsetsRequest, context: Any
    ) -> log_pb2.ListOffsetsResponse:
        answer = log_pb2.ListOffsetsResponse()
        with self._gateway.condition:
            for query in request.queries:
                one = answer.answers.add(topic=query.topic, partition=query.partition, offset=-1)
                try:
                    one.offset = self._gateway.list_offset(query)
                except MainstemError as error:
                    one.error.CopyFrom(error_to_message(error))
        return answer

    def Metadata(self, request: log_pb2.MetadataRequest, context: Any) -> log_pb2.MetadataResponse:
        gateway = self._gateway
        answer = gateway.topics.metadata(request.topics, gateway.address)
        answer.places.extend(gateway.places)
        return answer


def _ipc(rows: list[StoredRecord]) -> bytes:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([row.offset for row in rows], pa.int64()),
            pa.array([row.timestamp_ms * 1000 for row in rows], pa.int64()).view(
                pa.timestamp("us", tz="UTC")
            ),
            pa.array([0] * len(rows), pa.int32()),
            pa.array([row.key for row in rows], pa.binary()),
            pa.array([row.value for row in rows], pa.binary()),
            pa.array(
                [[{"key": n, "value": v} for n, v in row.headers] or None for row in rows],
                HEADERS_TYPE,
            ),
        ],
        schema=_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
