"""A consumer that reads from the gateway of its rack, which freezes, and comes back."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.client.consumer import sources
from mainstem.testing import GatewayProcess

DEADLINE_S = 60.0

SETTINGS = {
    "gateway.heartbeat.interval.ms": 200,
    "gateway.session.timeout.ms": 1000,
    "placement.enabled": False,  # the first that is asked leads
}


class Sending(threading.Thread):
    """Sends numbers to two partitions, until it is told to stop."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.done = threading.Event()
        self.sent = 0
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            with Producer({"bootstrap.servers": self._address, "linger.ms": 1}) as producer:
                for number in itertools.count():
                    if self.done.wait(0.005):
                        break
                    for partition in range(2):
                        producer.send("t", b"%d" % number, partition=partition)
                    self.sent = number + 1
        except BaseException as failure:
            self.failures.append(failure)


@pytest.mark.end_to_end
def test_a_consumer_leaves_a_frozen_gateway_of_its_rack_for_the_leader_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PAUSE_S", 0.5)
    far = GatewayProcess(tmp_path / "w", settings=SETTINGS | {"gateway.rack": "far"})
    near = GatewayProcess(tmp_path / "w", settings=SETTINGS | {"gateway.rack": "near"})
    read: dict[int, list[bytes | None]] = {0: [], 1: []}
    config: dict[str, object] = {
        "group.id": "g",
        "client.rack": "near",
        "auto.offset.reset": "earliest",
        "metadata.max.age.ms": 500,
    }
    with far, near:
        with AdminClient({"bootstrap.servers": far.address}) as admin:
            admin.create_topic("t", 2)
            deadline = time.monotonic() + DEADLINE_S
            racks: dict[str, str] = {}
            while len(racks) < 2 and time.monotonic() < deadline:
                racks = {one.address: one.rack for one in admin.describe_cluster().gateways}
            assert racks == {far.address: "far", near.address: "near"}
        sending = Sending(far.address)
        sending.start()
        with Consumer({**config, "bootstrap.servers": far.address}) as consumer:
            consumer.subscribe(["t"])

            def poll_until(condition: Callable[[], bool]) -> None:
                deadline = time.monotonic() + DEADLINE_S
                while not condition():
                    assert time.monotonic() < deadline, (consumer.sources(), sending.failures)
                    for record in consumer.consume(500, 0.05):
                        read[record.partition].append(record.value)

            def all_from(address: str) -> bool:
                return set(consumer.sources().values()) == {address}

            poll_until(lambda: all_from(near.address) and len(read[0]) > 20)
            os.kill(near.pid, signal.SIGSTOP)
            try:
                frozen_at = sending.sent
                poll_until(lambda: all_from(far.address) and len(read[0]) > frozen_at + 20)
            finally:
                os.kill(near.pid, signal.SIGCONT)
            poll_until(lambda: all_from(near.address))
            sending.done.set()
            sending.join(DEADLINE_S)
            assert not sending.failures
            poll_until(lambda: min(map(len, read.values())) >= sending.sent)
            position = consumer.position([TopicPartition("t", 0)])[0].offset
        assert position == sending.sent
    wanted = [b"%d" % number for number in range(sending.sent)]
    assert read == {0: wanted, 1: wanted}, "none lost, none twice, in order"
