"""Asking gateways which topics exist and who leads them, and for a producer id."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from mainstem.client.backoff import backoff_s
from mainstem.client.gateways import FIRST_REFRESH_S, Gateways
from mainstem.client.results import GatewayPlace, ProducerIdentity, TopicMetadata
from mainstem.errors import (
    GatewayUnavailableError,
    InternalError,
    MainstemError,
    UnknownTopicError,
)
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc

_log = logging.getLogger("mainstem.client")

#: What a gateway says of one topic.
TopicAnswer = TopicMetadata | MainstemError


class MetadataClient:
    """Asks gateways, several at once where one is slow. Thread-safe.

    Args:
        gateways: Whom to ask; learns whom the answers name.
        clock: Monotonic seconds.
        may_create: What is asked for by name and does not exist is created if the gateway may. A
            producer's; a consumer creates nothing.

    Attributes:
        places: The gateways that are alive, as the last answer says. An older gateway names none.
    """

    def __init__(self, gateways: Gateways, clock: Callable[[], float], *, may_create: bool) -> None:
        self._gateways = gateways
        self._clock = clock
        self._may_create = may_create
        self.places: tuple[GatewayPlace, ...] = ()

    def fetch(self, topics: Sequence[str], timeout_s: float) -> dict[str, TopicAnswer]:
        """What is known of `topics`; of all, if there are none.

        Raises:
            GatewayUnavailableError: No gateway answered within `timeout_s`.
            MainstemError: One answered with an error.
        """
        answer, server = self._gateways.ask(
            lambda channel: log_pb2_grpc.LogStub(channel).Metadata,
            self._request(topics),
            timeout_s,
        )
        found = _read(answer, server)
        self.places = tuple(
            GatewayPlace(one.address, one.rack, one.draining) for one in answer.places
        )
        leaders = [one.leader for one in found.values() if isinstance(one, TopicMetadata)]
        self._gateways.learn([*answer.gateways, *leaders])
        return found

    def wait_for(
        self,
        topic: str,
        *,
        block_ms: int,
        timeout_ms: int,
        backoff_ms: int,
        backoff_max_ms: int,
        pause: Callable[[float], None],
    ) -> TopicMetadata:
        """Asks for a topic, again and again until a gateway knows or `block_ms` has passed.

        Args:
            block_ms: max.block.ms.
            timeout_ms: The longest that one round takes.
            backoff_ms: The wait between two rounds; it grows to `backoff_max_ms`.
            pause: Sleeps for so many seconds; may raise to end the waiting.

        Raises:
            UnknownTopicError: There is no such topic.
            GatewayUnavailableError: Nobody answered in time.
        """
        deadline = self._clock() + block_ms / 1000
        failures = 0
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
            wait_s = backoff_s(backoff_ms / 1000, backoff_max_ms / 1000, failures)
            wait_s = max(wait_s, answer.retry_delay_ms / 1000)
            failures += 1
            if self._clock() + wait_s >= deadline:
                raise GatewayUnavailableError(
                    f"no gateway of {', '.join(self._gateways.order())} told within max.block.ms "
                    f"({block_ms} ms) where topic {topic} is; check bootstrap.servers and that "
                    f"the gateway runs. The last answer: {answer}",
                    topic=topic,
                ) from answer
            pause(wait_s)

    def refresh(
        self,
        topics: Sequence[str],
        timeout_s: float,
        done: Callable[[dict[str, TopicAnswer]], None],
    ) -> None:
        """As `fetch`, in a thread of its own, which calls `done`; on failure with nothing."""

        def fetch() -> None:
            answers: dict[str, TopicAnswer] = {}
            try:
                answers = self.fetch(topics, timeout_s)
            except MainstemError as error:
                _log.debug("asking for metadata failed: %s", error)
            finally:
                done(answers)

        _start(fetch, "mainstem-metadata")

    def _request(self, topics: Sequence[str]) -> log_pb2.MetadataRequest:
        return log_pb2.MetadataRequest(topics=topics, allow_auto_topic_creation=self._may_create)

    def init_producer(
        self, timeout_s: float, done: Callable[[ProducerIdentity | MainstemError], None]
    ) -> None:
        """Asks for a producer id in a thread of its own, which calls `done`."""

        def ask() -> None:
            answer: ProducerIdentity | MainstemError = InternalError("asking for a producer id")
            try:
                response, _ = self._gateways.ask(
                    lambda channel: log_pb2_grpc.LogStub(channel).InitProducer,
                    log_pb2.InitProducerRequest(),
                    timeout_s,
                )
                answer = ProducerIdentity(response.producer_id, response.producer_epoch)
            except MainstemError as error:
                answer = error
            finally:
                done(answer)

        _start(ask, "mainstem-producer-id")


class RefreshSchedule:
    """When metadata is asked for again. Pure; times in monotonic seconds.

    After FIRST_REFRESH_S at first, then after twice as long each time up to metadata.max.age.ms: a
    gateway that started with the client is known early. Sooner where a leader may have moved.

    Args:
        now: The client begins.
        age_s_max: metadata.max.age.ms.

    Attributes:
        failures: Calls that failed since the last answer.
    """

    __slots__ = ("_age_s_max", "_asking", "_at", "_retry_at", "_wait_s", "failures")

    def __init__(self, now: float, age_s_max: float) -> None:
        self._age_s_max = age_s_max
        self._wait_s = min(FIRST_REFRESH_S, age_s_max)
        self._at = now + self._wait_s
        self._retry_at = now
        self._asking = False
        self.failures = 0

    def soon(self, now: float) -> None:
        """A leader may have moved: ask now; or, after a failure, as soon as that allows."""
        self._at = min(self._at, max(now, self._retry_at))

    def begin(self, now: float) -> bool:
        """Whether to ask now; if so, a call is under way until `answered` or `failed`."""
        if self._asking or now < self._at:
            return False
        self._asking = True
        return True

    def answered(self, now: float) -> None:
        """The call was answered."""
        self._asking = False
        self.failures = 0
        self._at = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, self._age_s_max)

    def failed(self, now: float, wait_s: float) -> None:
        """The call failed; the next one is for as soon as `wait_s` have passed."""
        self._asking = False
        self.failures += 1
        self._at = self._retry_at = now + wait_s

    def next_call(self) -> float:
        """When `begin` has something to do; infinite while a call is under way."""
        return float("inf") if self._asking else self._at


def readable(answers: Mapping[str, TopicAnswer]) -> dict[str, TopicMetadata]:
    """The topics that can be read, by name; the others are named in the log, with why."""
    found: dict[str, TopicMetadata] = {}
    for name, answer in sorted(answers.items()):
        if isinstance(answer, TopicMetadata):
            found[name] = answer
        else:
            _log.warning("topic %s is left out: %s: %s", name, answer.code, answer.message)
    return found


def _start(run: Callable[[], None], name: str) -> None:
    threading.Thread(target=run, name=name, daemon=True).start()


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
