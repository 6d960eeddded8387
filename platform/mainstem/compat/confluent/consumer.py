"""confluent-kafka's Consumer, over `mainstem.client.Consumer`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from mainstem import client
from mainstem.compat.confluent.configuration import (
    Configuration,
    in_kafkas_words,
    no_pickle,
    seconds,
)
from mainstem.compat.confluent.error import (
    NO_OTHER_CREDENTIALS,
    KafkaException,
    from_mainstem,
    refused,
)
from mainstem.compat.confluent.events import Events
from mainstem.compat.confluent.gathering import Gathering, closed
from mainstem.compat.confluent.metadata import ClusterMetadata, cluster_metadata
from mainstem.compat.confluent.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Message,
    TopicPartition,
    to_ours,
    to_theirs,
)
from mainstem.compat.confluent.turns import Turns
from mainstem.errors import (
    ConfigError,
    ConsumerClosedError,
    MainstemError,
    UnknownTopicError,
)

#: Called as `on_assign(consumer, partitions)`.
OnPartitions = Callable[[Any, list[TopicPartition]], object]

_OWN: Final = ("enable.partition.eof",)


class Consumer:
    """Reads messages, alone or as a member of a group. Look at `message.error()` first.

    Rebalances are incremental, as with librdkafka's `cooperative-sticky`: callbacks get the
    partitions that move. Inside them assign() and incremental_assign() may say where to begin, and
    need not be called. Several threads may use it, in turns: one that polls lets others in after a
    tenth of a second.

    Args:
        config: Settings by librdkafka's names, with `on_commit`, `error_cb`, `stats_cb`, `logger`.

    Raises:
        ValueError: There is no group.id.
        KafkaException: Settings are wrong; all of them are told.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        self._configuration = Configuration(config, keywords, own=_OWN)
        settings = self._configuration.settings
        if not settings.get("group.id"):
            raise ValueError("Failed to create consumer: group.id must be set")
        if self._configuration.on_commit is not None:
            settings["on_commit"] = self._committed_in_background
        tells_ends = self._configuration.own_bool("enable.partition.eof", False)
        try:
            self._servers = client.ConsumerSettings.parse(settings).bootstrap_servers
            self._consumer = client.Consumer(settings)
        except ConfigError as error:
            raise in_kafkas_words(error) from error
        self._stores_by_itself = not _is_false(settings.get("enable.auto.offset.store"))
        self._events = Events(self._consumer, self._configuration, tells_ends)
        self._turns = Turns()
        self._gathering = Gathering(self._consumer, self._configuration, self._events, self._turns)
        #: A rebalance callback is being called.
        self._in_rebalance = False

    # ------------------------------------------------------------------------------- messages

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next message or event; None when the time is over.

        Args:
            timeout: Seconds; None or negative: until there is one.

        Raises:
            RuntimeError: The consumer is closed.
        """
        found = self._gathering.gather(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Up to `num_messages` messages and events; waits for all until the time is over."""
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return self._gathering.gather(num_messages, timeout)

    # ----------------------------------------------------------------------------- membership

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Joins the group for these topics; a name that begins with ^ is a regular expression."""
        if isinstance(topics, str) or not isinstance(topics, Sequence):
            raise TypeError("expected list of topic unicode strings")
        for name, callback in (
            ("on_assign", on_assign),
            ("on_revoke", on_revoke),
            ("on_lost", on_lost),
        ):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        with self._calls():
            self._consumer.subscribe(
                _one_subscription(topics),
                self._wrapped(on_assign),
                self._wrapped(on_revoke),
                self._wrapped(on_lost),
            )
        self._events.subscribed(topics)

    def unsubscribe(self) -> None:
        """Leaves the group."""
        self._events.subscribed(())
        with self._calls():
            self._consumer.unsubscribe()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads exactly these partitions; inside on_assign, says where they begin."""
        with self._calls():
            self._consumer.assign(to_ours(partitions))

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads these partitions too; inside on_assign, says where they begin.

        Raises:
            KafkaException: _CONFLICT: one is assigned already.
        """
        with self._calls():
            held = self._consumer.assignment()
            new = to_ours(partitions)
            if not self._in_rebalance:
                for tp in new:
                    if tp in held:
                        raise refused(
                            "_CONFLICT", f"{tp.topic} [{tp.partition}] is assigned already"
                        )
            self._consumer.assign([*(tp for tp in held if tp not in new), *new])

    def unassign(self) -> None:
        """Reads nothing; inside on_revoke the partitions are given up without it."""
        with self._calls():
            self._consumer.unassign()

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads these partitions no more; inside on_revoke they are given up without it.

        Raises:
            KafkaException: _INVALID_ARG: one is not assigned.
        """
        with self._calls():
            gone, held = to_ours(partitions), self._consumer.assignment()
            if not self._in_rebalance:
                for tp in gone:
                    if tp not in held:
                        raise refused(
                            "_INVALID_ARG", f"{tp.topic} [{tp.partition}] is not assigned"
                        )
            self._consumer.assign([tp for tp in held if tp not in gone])

    def assignment(self) -> list[TopicPartition]:
        """What is read now."""
        with self._calls():
            return to_theirs(self._consumer.assignment())

    def memberid(self) -> str | None:
        """The name that this member has in its group; None before it has joined."""
        with self._calls():
            return self._consumer.consumer_group_metadata().member_id or None

    def consumer_group_metadata(self) -> client.ConsumerGroupMetadata:
        """This member's name and epoch."""
        with self._calls():
            return self._consumer.consumer_group_metadata()

    # -------------------------------------------------------------------------------- offsets

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commits a message, offsets, or everything that was handed out (or stored).

        Args:
            message: It is done: its offset + 1 is committed.
            offsets: The next offsets to read; those below 0, as OFFSET_INVALID, are left out.

        Returns:
            What was committed, with asynchronous=False; else None, and on_commit is told.

        Raises:
            KafkaException: With asynchronous=False: _NO_OFFSET when there was nothing to commit;
                else what the group's coordinator said.
        """
        given = self._given(message, offsets)
        if given is not None:
            given = [tp for tp in given if tp.offset >= 0]
        done: list[client.TopicPartition] | None = None
        with self._calls():
            if given is None or given:
                done = self._consumer.commit(offsets=given, asynchronous=asynchronous)
        if asynchronous:
            return None
        if not done:
            raise refused("_NO_OFFSET", "Commit failed: no offset stored")
        return to_theirs(done)

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> None:
        """Says what the next commit takes; needs enable.auto.offset.store=False."""
        given = self._given(message, offsets)
        if given is None:
            raise ValueError("expected either message or offsets")
        self.assignment()  # a closed consumer says that it is
        if self._stores_by_itself:
            raise refused(
                "_INVALID_ARG",
                "StoreOffsets failed: set enable.auto.offset.store to False, or it is done already",
            )
        with self._calls():
            self._consumer.store_offsets(offsets=[tp for tp in given if tp.offset >= 0])

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """What the group has committed; OFFSET_INVALID where nothing is.

        A partition of a topic that does not exist has an `error`.
        """
        wanted = to_ours(partitions)
        with self._calls():
            try:
                return to_theirs(self._consumer.committed(wanted, seconds(timeout)))
            except UnknownTopicError as error:
                if len(wanted) == 1:
                    found = TopicPartition(wanted[0].topic, wanted[0].partition)
                    found.error = from_mainstem(error)
                    return [found]
        return [one for tp in partitions for one in self.committed([tp], timeout)]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The offset of the next message; OFFSET_INVALID where it is not known yet."""
        with self._calls():
            return to_theirs(self._consumer.position(to_ours(partitions)))

    def seek(self, partition: TopicPartition) -> None:
        """Goes on at `partition.offset`."""
        with self._calls():
            self._consumer.seek(to_ours([partition])[0])

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Hands out nothing of them until resume(); those that are not assigned are left out."""
        with self._calls():
            self._consumer.pause(self._assigned(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Goes on with them; those that are not assigned are left out."""
        with self._calls():
            self._consumer.resume(self._assigned(partitions))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """The first offset, and the one after the last; OFFSET_INVALID where nothing is cached."""
        with self._calls():
            return self._consumer.get_watermark_offsets(
                to_ours([partition])[0], seconds(timeout), cached
            )

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """The first offset at or after each `offset`, a time in ms; OFFSET_END where none is.

        OFFSET_BEGINNING and OFFSET_END as times give the first offset, and that after the last.
        """
        asked, timeout_s = to_ours(partitions), seconds(timeout)
        places = [tp for tp in asked if tp.offset in (OFFSET_BEGINNING, OFFSET_END)]
        times = [tp for tp in asked if tp not in places]
        for tp in times:
            if tp.offset < 0:
                raise refused("_INVALID_ARG", f"the time for {tp} is {tp.offset} ms: negative")
        with self._calls():
            found = {tp: tp for tp in self._consumer.offsets_for_times(times, timeout_s)}
            for tp in places:
                low, high = self._consumer.get_watermark_offsets(tp, timeout_s)
                offset = low if tp.offset == OFFSET_BEGINNING else high
                found[tp] = client.TopicPartition(tp.topic, tp.partition, offset)
        return to_theirs(found[tp] for tp in asked)

    # ------------------------------------------------------------------------------- the rest

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Topics, partitions and gateways; with `topic` only that one."""
        with self._calls():
            found = self._consumer.list_topics(30.0 if timeout < 0 else timeout)
        return cluster_metadata(found, self._servers, topic)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The name that stands for the cluster; asks a gateway."""
        return self.list_topics(timeout=timeout).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refused: see sasl.password.location."""
        raise refused("_NOT_IMPLEMENTED", NO_OTHER_CREDENTIALS)

    def close(self) -> None:
        """Commits unless enable.auto.commit is False, leaves the group, ends threads."""
        with self._calls():
            self._consumer.close()

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._turns:
            self._consumer.__exit__(kind, error, traceback)

    # --------------------------------------------------------------------------------- inside

    def _assigned(self, partitions: Sequence[TopicPartition]) -> list[client.TopicPartition]:
        held = self._consumer.assignment()
        return [tp for tp in to_ours(partitions) if tp in held]

    def _given(
        self, message: Message | None, offsets: Sequence[TopicPartition] | None
    ) -> list[client.TopicPartition] | None:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if offsets is not None:
            return to_ours(offsets)
        if message is None:
            return None
        if not isinstance(message, Message):
            raise TypeError(f"expected a Message, not a {type(message).__name__}")
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is not None or topic is None or partition is None or offset is None:
            raise refused("_INVALID_ARG", "the message is an event or an error: it has no offset")
        return [client.TopicPartition(topic, partition, offset + 1)]

    def _wrapped(self, callback: OnPartitions | None) -> Any:
        if callback is None:
            return None

        def call(_: object, partitions: list[client.TopicPartition]) -> None:
            self._in_rebalance = True
            try:
                callback(self, to_theirs(partitions))
            finally:
                self._in_rebalance = False

        return call

    def _committed_in_background(
        self, error: MainstemError | None, partitions: list[client.TopicPartition]
    ) -> None:
        on_commit = self._configuration.on_commit
        assert on_commit is not None
        on_commit(None if error is None else from_mainstem(error), to_theirs(partitions))

    @contextlib.contextmanager
    def _calls(self) -> Iterator[None]:
        try:
            with self._turns:
                yield
        except ConsumerClosedError:
            raise closed() from None
        except MainstemError as error:
            raise KafkaException(from_mainstem(error)) from error
        except KafkaException:
            raise
        except RuntimeError as error:
            raise refused("_STATE", str(error)) from error
        except ValueError as error:
            raise refused("_INVALID_ARG", str(error)) from error


def _one_subscription(topics: Sequence[str]) -> list[str] | str:
    """Names, or one expression for what are names and expressions."""
    names = list(topics)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("expected list of topic unicode strings")
    patterns = [name for name in names if name.startswith("^")]
    if not patterns:
        return names
    if len(names) == 1:
        return names[0]
    parts = [n[1:] if n in patterns else n.replace(".", r"\.") for n in names]
    return "^(?:" + "|".join(f"(?:{part})" for part in parts) + ")"


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None or timeout < 0 else timeout


def _is_false(value: object) -> bool:
    return str(value).strip().lower() in ("false", "0", "f")
