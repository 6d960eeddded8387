"""aiokafka.admin: AIOKafkaAdminClient, over `mainstem.client.AdminClient` in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

from mainstem import client
from mainstem.compat.aiokafka.configuration import ADMIN, settings_of, their_errors
from mainstem.compat.aiokafka.errors import (
    BrokerResponseError,
    IllegalStateError,
    UnsupportedFeatureError,
    from_mainstem,
)
from mainstem.compat.aiokafka.structs import OffsetAndMetadata, TopicPartition, to_ours, to_theirs
from mainstem.compat.topic_settings import taken
from mainstem.errors import ConfigError, MainstemError


class NewTopic:
    """A topic to be created; the replication factor is taken and changes nothing."""

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, list[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


class NewPartitions:
    """How many partitions a topic is to have."""

    def __init__(self, total_count: int, new_assignments: list[list[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class RecordsToDelete:
    """The first offset to keep; -1: none."""

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset


@dataclass(frozen=True, slots=True)
class TopicErrors:
    """What became of topics: (name, errno, sentence); errno 0: it was done."""

    topic_errors: list[tuple[str, int, str | None]]

    @property
    def topic_error_codes(self) -> list[tuple[str, int]]:
        """(name, errno)."""
        return [(name, errno) for name, errno, _ in self.topic_errors]


class AIOKafkaAdminClient:
    """Administration, awaited.

    Raises:
        ValueError: Settings are wrong.
    """

    def __init__(
        self,
        *,
        loop: Any = None,
        bootstrap_servers: str | list[str] = "localhost",
        request_timeout_ms: int = 40_000,
        **keywords: Any,
    ) -> None:
        self._settings = settings_of(ADMIN, bootstrap_servers, keywords)
        self._timeout_s = request_timeout_ms / 1000
        self._admin: client.AdminClient | None = None

    async def start(self) -> None:
        """Connects; once it has, nothing. What fails leaves nothing open."""
        if self._admin is not None:
            return
        try:
            self._admin = client.AdminClient(self._settings)
        except ConfigError as error:
            raise ValueError(error.message) from error
        try:
            await self.list_topics()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    async def create_topics(
        self, new_topics: list[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> TopicErrors:
        """Makes topics."""
        timeout_s = self._seconds(timeout_ms)

        def create(admin: client.AdminClient, new: NewTopic) -> None:
            count = max(0, new.num_partitions)
            admin.create_topic(new.name, count, taken(new.topic_configs), validate_only, timeout_s)

        return await self._each([(new.name, new) for new in new_topics], create)

    async def delete_topics(self, topics: list[str], timeout_ms: int | None = None) -> TopicErrors:
        """Removes topics with their records."""
        timeout_s = self._seconds(timeout_ms)

        def delete(admin: client.AdminClient, name: str) -> None:
            admin.delete_topic(name, timeout_s)

        return await self._each([(name, name) for name in topics], delete)

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Raises the number of partitions of topics."""
        if validate_only:
            raise UnsupportedFeatureError("create_partitions has no validate_only here")
        timeout_s = self._seconds(timeout_ms)

        def add(admin: client.AdminClient, pair: tuple[str, NewPartitions]) -> None:
            admin.add_partitions(pair[0], pair[1].total_count, timeout_s)

        return await self._each(
            [(name, (name, new)) for name, new in topic_partitions.items()], add
        )

    async def list_topics(self) -> list[str]:
        """The names of all topics."""
        return [one.topic for one in await self._call("list_topics", self._timeout_s)]

    async def describe_topics(self, topics: list[str] | None = None) -> list[dict[str, Any]]:
        """Partitions of topics, or of all; `error_code` 3: there is no such topic."""
        found = {one.topic: one for one in await self._call("list_topics", self._timeout_s)}
        described = []
        for name in found if topics is None else topics:
            one = found.get(name)
            described.append(
                {
                    "error_code": 0 if one else 3,
                    "topic": name,
                    "is_internal": False,
                    "partitions": [
                        {"error_code": 0, "partition": n, "leader": 1, "replicas": [1], "isr": [1]}
                        for n in range(one.partition_count if one else 0)
                    ],
                }
            )
        return described

    async def describe_cluster(self) -> dict[str, Any]:
        """The gateways."""
        found = await self._call("describe_cluster", self._timeout_s)
        brokers = sorted((*one.address.rpartition(":")[::2], one.rack) for one in found.gateways)
        return {
            "cluster_id": found.warehouse_uri,
            "controller_id": 1,
            "brokers": [
                {"node_id": number, "host": host, "port": int(port), "rack": rack or None}
                for number, (host, port, rack) in enumerate(brokers, 1)
            ],
        }

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, RecordsToDelete | int],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Removes what is before an offset; returns the first offset that is left."""
        by_topic: dict[str, dict[int, int]] = {}
        for tp, what in records_to_delete.items():
            by_topic.setdefault(tp.topic, {})[tp.partition] = (
                what.before_offset if isinstance(what, RecordsToDelete) else what
            )
        found = {}
        for topic, offsets in by_topic.items():
            seconds = self._seconds(timeout_ms)
            done = await self._call("delete_records", topic, offsets, False, seconds)
            for number, one in done.items():
                found[TopicPartition(topic, number)] = one.log_start_offset
        return found

    async def list_consumer_groups(
        self, broker_ids: list[int] | None = None
    ) -> list[tuple[str, str]]:
        """(name, protocol type) of every group."""
        found = await self._call("list_consumer_groups", self._timeout_s)
        return [(one.group_id, "consumer") for one in found]

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Sequence[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        wanted = None if partitions is None else [to_ours(tp) for tp in partitions]
        found = await self._call("list_consumer_group_offsets", group_id, wanted, self._timeout_s)
        return {to_theirs(tp): OffsetAndMetadata(o.offset, o.metadata) for tp, o in found.items()}

    async def describe_configs(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: the answer is a message of Kafka's protocol."""
        raise UnsupportedFeatureError("use mainstem.client.AdminClient.describe_topic(name).config")

    async def alter_configs(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: the answer is a message of Kafka's protocol."""
        raise UnsupportedFeatureError("use mainstem.client.AdminClient.alter_config(topic, {...})")

    async def describe_consumer_groups(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: the answer is a message of Kafka's protocol."""
        raise UnsupportedFeatureError("use mainstem.client.AdminClient.describe_consumer_groups")

    async def find_coordinator(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: coordinators are found by the clients."""
        raise UnsupportedFeatureError("a group's coordinator has no number here: leave it out")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _seconds(self, timeout_ms: int | None) -> float:
        return self._timeout_s if timeout_ms is None else timeout_ms / 1000

    def _open(self) -> client.AdminClient:
        if self._admin is None:
            raise IllegalStateError("the client is not started; await start() first")
        return self._admin

    async def _call(self, name: str, *args: Any) -> Any:
        with their_errors():
            return await asyncio.to_thread(getattr(self._open(), name), *args)

    async def _each(
        self,
        targets: Iterable[tuple[str, Any]],
        work: Callable[[client.AdminClient, Any], None],
    ) -> TopicErrors:
        admin = self._open()
        found: list[tuple[str, int, str | None]] = []
        for name, target in targets:
            try:
                await asyncio.to_thread(work, admin, target)
            except MainstemError as error:
                told = from_mainstem(error)
                if not isinstance(told, BrokerResponseError):
                    raise told from error
                found.append((name, told.errno, error.message))
            else:
                found.append((name, 0, None))
        return TopicErrors(found)
