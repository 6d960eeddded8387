"""The servers that are compared, and the topics that rows use."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from benchmarks.kafka.broker import Broker
from benchmarks.kafka.nats_server import NatsServer, new_stream
from benchmarks.kafka.row import KAFKA, MAINSTEM, NATS, NATS_UNSYNCED

from mainstem.client import AdminClient
from mainstem.testing import GatewayProcess

PARTITIONS: Final = 6

#: A client of Kafka that ends says at level 6 what its background thread still had.
QUIET: Final = {"log_level": 4}

_CREATE_S: Final = 120.0


class Systems:
    """Starts each server when it is asked for first, and stops all at the end of the block.

    Args:
        directory: Where their data are.

    Attributes:
        environment: Of the processes that rows start; None: as this one's.
        filled: Topics that rows keep for their further turns, by what they hold.
    """

    environment: Mapping[str, str] | None = None

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.filled: dict[str, str] = {}
        self._stack = contextlib.ExitStack()
        self._gateway: GatewayProcess | None = None
        self._broker: Broker | None = None
        self._nats: dict[str, NatsServer] = {}
        self._names = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    @property
    def gateway(self) -> GatewayProcess:
        """Of mainstem."""
        if self._gateway is None:
            self._gateway = self._stack.enter_context(GatewayProcess(self.directory / "warehouse"))
        return self._gateway

    @property
    def broker(self) -> Broker:
        """Of Kafka."""
        if self._broker is None:
            self._broker = self._stack.enter_context(Broker(self.directory))
        return self._broker

    def nats(self, system: str) -> NatsServer:
        """Of NATS: `nats` or `nats-unsynced`."""
        assert system in (NATS, NATS_UNSYNCED), system
        if system not in self._nats:
            server = NatsServer(self.directory, synced=system == NATS)
            self._nats[system] = self._stack.enter_context(server)
        return self._nats[system]

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Systems]:
        """Servers that did nothing before, beside these; their data go with them."""
        with (
            tempfile.TemporaryDirectory(prefix="fresh-", dir=self.directory) as folder,
            Systems(Path(folder)) as systems,
        ):
            yield systems

    def address(self, system: str) -> str:
        """Of the system's server, host:port."""
        return self._server(system).address

    def server_pid(self, system: str) -> int:
        """Of the system's server."""
        return self._server(system).pid

    def _server(self, system: str) -> GatewayProcess | Broker | NatsServer:
        if system == MAINSTEM:
            return self.gateway
        return self.broker if system == KAFKA else self.nats(system)

    def new_topic(
        self, system: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
    ) -> str:
        """Makes one with a name of its own; gives the name."""
        (name,) = self.new_topics(system, 1, partitions, config)
        return name

    def new_topics(
        self,
        system: str,
        count: int,
        partitions: int = PARTITIONS,
        config: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Makes several that are alike; gives their names."""
        names = [f"bench-{self._names + number}" for number in range(1, count + 1)]
        self._names += count
        address = self.address(system)
        if system == MAINSTEM:
            with AdminClient({"bootstrap.servers": address}) as admin:
                for name in names:
                    admin.create_topic(name, partitions, config=dict(config or {}))
            return names
        if system != KAFKA:
            for name in names:
                new_stream(address, name)
            return names
        from confluent_kafka.admin import AdminClient as KafkaAdmin
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        kafka = KafkaAdmin({"bootstrap.servers": address, **QUIET})
        topics = [NewTopic(name, partitions, 1, config=dict(config or {})) for name in names]
        for future in kafka.create_topics(topics, request_timeout=_CREATE_S).values():
            future.result(_CREATE_S)
        return names
