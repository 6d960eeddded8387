"""Asking gateways which topics exist and who leads them, and for a producer id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import grpc

from mainstem.client.channels import Channels
from mainstem.client.results import ProducerIdentity, TopicMetadata
from mainstem.errors import (
    GatewayUnavailableError,
    InternalError,
    MainstemError,
    OutcomeUnknownError,
    UnknownTopicError,
)
from mainstem.protocol import error_from_message, error_from_rpc
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc

_log = logging.getLogger("mainstem.client")

#: What a gateway says of one topic.
TopicAnswer = TopicMetadata | MainstemError


class MetadataClient:
    """Calls to whichever gateway answers. Thread-safe; remembers which one did.

    Args:
        servers: bootstrap.servers.
        channels: Where its connections come from.
        clock: Monotonic seconds.
        may_create: What is asked for by name and does not exist is created if the gateway may. A
            producer's; a consumer creates nothing.
    """

    def __init__(
        self,
        servers: Sequence[str],
        channels: Channels,
        clock: Callable[[], float],
        *,
        may_create: bool,
    ) -> None:
        self._servers = tuple(servers)
        self._channels = channels
        self._clock = clock
        self._may_create = may_create
        self._first = 0

    def fetch(self, topics: Sequence[str], timeout_s: float) -> dict[str, TopicAnswer]:
        """Asks the gateways one after the other, within `timeout_s` each. No topics: all of them.

        Raises:
            GatewayUnavailableError: None answered.
            MainstemError: One answered with an error.
        """
        failure: MainstemError | None = None
        for turn in range(len(self._servers)):
            index = (self._first + turn) % len(self._servers)
            server = self._servers[index]
            channel = self._channels.get(server)
            stub = log_pb2_grpc.LogStub(channel)
            began_at = self._clock()
            try:
                answer = stub.Metadata(self._request(topics), timeout=timeout_s)
            except grpc.RpcError as error:
                failure = error_from_rpc(error)
                if not failure.retriable:
                    raise failure from None
                if isinstance(failure, OutcomeUnknownError):
                    self._channels.unanswered(server, channel, self._clock() - began_at)
                    failure = GatewayUnavailableError(
                        f"{server} did not answer within {timeout_s * 1000:.0f} ms"
                    )
                continue
            self._first = index
            return _read(answer, server)
        assert failure is not None
        raise failure

    def wait_for(
        self,
        topic: str,
        *,
        block_ms: int,
        timeout_ms: int,
        backoff_ms: int,
        pause: Callable[[float], None],
    ) -> TopicMetadata:
        """Asks for a topic, again and again until a gateway knows or `block_ms` has passed.

        Args:
            block_ms: max.block.ms.
            timeout_ms: The longest that one gateway is waited for.
            backoff_ms: The wait between two rounds.
            pause: Sleeps for so many seconds; may raise to end the waiting.

        Raises:
            UnknownTopicError: There is no such topic.
            GatewayUnavailableError: Nobody answered in time.
        """
        deadline = self._clock() + block_ms / 1000
        while True:
            left_s = deadline - self._clock()
            try:
                answer = self.fetch([topic], max(0.001, min(timeout_ms / 1000, left_s))).get(topic)
            except MainstemError as error:
                answer = error
            if isinstance(answer, TopicMetadata):
                return answer
            if answer is None:
                answer = UnknownTopicError(
                    f"topic {topic} does not exist; create it, or set auto.create.topics.enable "
                    "on the gateway",
                    topic=topic,
                )
            if not answer.retriable:
                raise answer
            if self._clock() + backoff_ms / 1000 >= deadline:
                raise GatewayUnavailableError(
                    f"no gateway of {', '.join(self._servers)} told within max.block.ms "
                    f"({block_ms} ms) where topic {topic} is; check bootstrap.servers and that "
                    f"the gateway runs. The last answer: {answer}",
                    topic=topic,
                ) from answer
            pause(backoff_ms / 1000)

    def refresh(
        self,
        topics: Sequence[str],
        timeout_s: float,
        done: Callable[[dict[str, TopicAnswer]], None],
    ) -> None:
        """Asks one gateway without waiting; another thread calls `done`, on failure with nothing.

        A failure makes the next call ask the next gateway.
        """
        index = self._first
        server = self._servers[index]
        stub = log_pb2_grpc.LogStub(self._channels.get(server))
        call = stub.Metadata.future(self._request(topics), timeout=timeout_s)

        def ended(call: grpc.Future[log_pb2.MetadataResponse]) -> None:
            answers: dict[str, TopicAnswer] = {}
            try:
                answers = _read(call.result(), server)
            except grpc.RpcError as error:
                _log.debug("metadata from %s failed: %s", server, error_from_rpc(error))
                self._first = (index + 1) % len(self._servers)
            except grpc.FutureCancelledError:
                pass  # the connection was closed
            done(answers)

        call.add_done_callback(ended)

    def _request(self, topics: Sequence[str]) -> log_pb2.MetadataRequest:
        return log_pb2.MetadataRequest(topics=topics, allow_auto_topic_creation=self._may_create)

    def init_producer(
        self, timeout_s: float, done: Callable[[ProducerIdentity | MainstemError], None]
    ) -> None:
        """Asks one gateway for a producer id without waiting; another thread calls `done`.

        A failure makes the next call ask the next gateway.
        """
        index = self._first
        stub = log_pb2_grpc.LogStub(self._channels.get(self._servers[index]))
        call = stub.InitProducer.future(log_pb2.InitProducerRequest(), timeout=timeout_s)

        def ended(call: grpc.Future[log_pb2.InitProducerResponse]) -> None:
            answer: ProducerIdentity | MainstemError
            try:
                response = call.result()
                answer = ProducerIdentity(response.producer_id, response.producer_epoch)
            except grpc.RpcError as error:
                answer = error_from_rpc(error)
            except grpc.FutureCancelledError:
                answer = GatewayUnavailableError("the connection was closed")
            if isinstance(answer, MainstemError):
                self._first = (index + 1) % len(self._servers)
            done(answer)

        call.add_done_callback(ended)


def _read(answer: log_pb2.MetadataResponse, server: str) -> dict[str, TopicAnswer]:
    found: dict[str, TopicAnswer] = {}
    for topic in answer.topics:
        if topic.HasField("error"):
            found[topic.topic] = error_from_message(topic.error)
        elif topic.partition_count < 1:
            found[topic.topic] = InternalError(
                f"the gateway {server} says that topic {topic.topic} has "
                f"{topic.partition_count} partitions"
            )
        else:
            found[topic.topic] = TopicMetadata(
                topic.topic, topic.topic_id, topic.partition_count, topic.leader or server
            )
    return found
