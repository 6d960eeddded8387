"""Producing clients while a real gateway is killed and comes back: once, in order, nothing lost."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from tests.length import FULL

from mainstem.client import AdminClient, Producer, RecordMetadata
from mainstem.errors import MainstemError
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.fault]

KILLS = 12 if FULL else 3
PARTITIONS = 3
WAIT_S = 60.0


class Client:
    """Produces numbered records, one by one and in batches, until told to stop."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.produced = 0
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.errors: list[MainstemError] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": address, "linger.ms": 1, "batch.size": 20_000}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                self._produce(self.produced)
            self._producer.poll()
            time.sleep(0.002)

    def _produce(self, number: int) -> None:
        value = b"%s:%d" % (self.name.encode(), number)

        def told(error: MainstemError | None, where: RecordMetadata) -> None:
            if error is None:
                self.acknowledged[value] = where.partition, where.offset
            else:
                self.errors.append(error)

        self._producer.produce("t", value, partition=number % PARTITIONS, on_delivery=told)
        self.produced += 1

    def acknowledged_more_than(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while len(self.acknowledged) <= count:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.01)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        self._producer.close()


def stored(uri: str) -> dict[int, list[bytes]]:
    """The values by partition, in the order of their offsets, which are dense."""
    table = DeltaTable(uri).to_pyarrow_table(columns=["partition", "offset", "value"])
    table = table.cast(
        pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])
    )
    logs = {}
    for partition in range(PARTITIONS):
        log = table.filter(pc.field("partition") == partition).sort_by("offset")
        assert log.column("offset").to_pylist() == list(range(log.num_rows))
        logs[partition] = log.column("value").to_pylist()
    return logs


def test_every_record_is_stored_once_and_in_order_while_the_gateway_is_killed_again_and_again(
    tmp_path: Path, rng: random.Random
) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("t", num_partitions=PARTITIONS, config={"commit.interval.ms": 20})
            uri = admin.describe_topic("t").table_uri
        clients = [Client(name, gateway.address) for name in ("a", "b")]
        try:
            for _ in range(KILLS):
                before = [len(client.acknowledged) for client in clients]
                for client, count in zip(clients, before, strict=True):
                    client.acknowledged_more_than(count)
                # At any point of a commit.
                time.sleep(rng.random() * 0.1)
                gateway.kill()
                gateway.start()
        finally:
            for client in clients:
                client.finish()
        gateway.terminate()
    logs = stored(uri)
    for client in clients:
        assert client.errors == []
        assert len(client.acknowledged) == client.produced
        for value, (partition, offset) in client.acknowledged.items():
            assert offset == -1 or logs[partition][offset] == value
    found = defaultdict(list)
    for partition, log in logs.items():
        for value in log:
            name, number = value.split(b":")
            found[name.decode(), partition].append(int(number))
    for client in clients:
        for partition in range(PARTITIONS):
            wanted = list(range(partition, client.produced, PARTITIONS))
            assert found[client.name, partition] == wanted, "once each, in the order of produce()"
