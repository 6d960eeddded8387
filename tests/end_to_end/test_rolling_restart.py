"""Three real gateways that are restarted, killed and frozen in turn, under load."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.length import FULL

from mainstem.client import AdminClient, Consumer, Producer, RecordMetadata
from mainstem.testing import GatewayProcess

TOPICS = [f"t{number}" for number in range(6)]
SETTINGS = {
    "gateway.heartbeat.interval.ms": 200,
    "gateway.session.timeout.ms": 1_000,
    "placement.delay.ms": 500,
}
WAIT_S = 60.0

#: How often each gateway goes.
ROUNDS = 20 if FULL else 1

#: The short cluster loop (`tests/fault/test_cluster_loop.py`) has these, too.
FAULT = (
    pytest.mark.fault,
    pytest.mark.skipif(not FULL, reason="`make test-fault` only"),
)


@dataclass
class Load:
    """What a producer was promised, and what a member of a group was given.

    Attributes:
        sent: By topic, what was sent, in order.
        read: Values by topic and partition, with their offsets.
    """

    sent: dict[str, list[tuple[bytes, Future[RecordMetadata]]]] = field(
        default_factory=lambda: {topic: [] for topic in TOPICS}
    )
    read: dict[str, dict[int, bytes]] = field(
        default_factory=lambda: {topic: {} for topic in TOPICS}
    )
    failures: list[BaseException] = field(default_factory=list)

    def check(self, warehouse: Path) -> None:
        """No send failed, and each record is once in its table, where it was said to be, in order;
        the consumer had no error, and was given all."""
        assert not self.failures, self.failures
        for topic in TOPICS:
            table = DeltaTable(str(warehouse / "topics" / topic)).to_pyarrow_table()
            rows = table.sort_by("offset").select(["offset", "value"]).to_pylist()
            assert [row["offset"] for row in rows] == list(range(len(rows)))
            promised = [(one.result(0).offset, value) for value, one in self.sent[topic]]
            assert [(row["offset"], row["value"]) for row in rows] == promised
            assert sorted(self.read[topic].items()) == promised


@contextlib.contextmanager
def load(addresses: list[str]) -> Iterator[Load]:
    """Producing and consuming while the block lasts, by clients that know one gateway to begin
    with; then all that was sent is read."""
    found, over = Load(), threading.Event()

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                found.failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def produce() -> None:
        number = 0
        with Producer({"bootstrap.servers": addresses[0], "linger.ms": 1}) as producer:
            while not over.is_set():
                for topic in TOPICS:
                    value = b"%d" % number
                    found.sent[topic].append((value, producer.send(topic, value)))
                number += 1
                time.sleep(0.005)
            for sent in found.sent.values():
                sent[-1][1].result(WAIT_S)

    def consume() -> None:
        config = {
            "bootstrap.servers": addresses[1],
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
        with Consumer(config) as consumer:
            consumer.subscribe(TOPICS)
            ends_at = float("inf")
            while not _is_all_read(found, over):
                if over.is_set():
                    ends_at = min(ends_at, time.monotonic() + WAIT_S)
                assert time.monotonic() < ends_at, "not all is read"
                for record in consumer.consume(500, 0.1):
                    before = found.read[record.topic].setdefault(record.offset, record.value or b"")
                    assert before == record.value  # once more, as after another coordinator came

    threads = [guarded(produce), guarded(consume)]
    try:
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join(3 * WAIT_S)
            assert not thread.is_alive()


def _is_all_read(found: Load, over: threading.Event) -> bool:
    return over.is_set() and all(
        sent and sent[-1][1].done() and len(found.read[topic]) == len(sent)
        for topic, sent in found.sent.items()
    )


@contextlib.contextmanager
def three(warehouse: Path) -> Iterator[list[GatewayProcess]]:
    with contextlib.ExitStack() as stack:
        gateways = [
            stack.enter_context(
                GatewayProcess(warehouse, settings=SETTINGS | {"gateway.id": f"g{number}"})
            )
            for number in range(3)
        ]
        with AdminClient({"bootstrap.servers": gateways[0].address}) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, 1)
        yield gateways


def restart(gateway: GatewayProcess) -> None:
    assert gateway.terminate() == 0
    gateway.start()


def kill(gateway: GatewayProcess) -> None:
    gateway.kill()
    time.sleep(2.0)  # longer than its session
    gateway.start()


def freeze(gateway: GatewayProcess) -> None:
    os.kill(gateway.pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(gateway.pid, signal.SIGCONT)


@pytest.mark.end_to_end
@pytest.mark.timeout(120 * ROUNDS)
@pytest.mark.parametrize(
    "how",
    [
        restart,
        pytest.param(kill, marks=FAULT),
        pytest.param(freeze, marks=FAULT),
    ],
)
def test_no_send_fails_and_nothing_is_lost_or_twice_when_each_gateway_goes_in_turn(
    tmp_path: Path, how: Callable[[GatewayProcess], None]
) -> None:
    with three(tmp_path / "w") as gateways:
        with load([gateway.address for gateway in gateways]) as found:
            time.sleep(1.0)
            for gateway in gateways * ROUNDS:
                how(gateway)
                time.sleep(1.0)
        found.check(tmp_path / "w")
        if how is restart:
            handed_over = sum(one.log.count("topic handed over") for one in gateways)
            assert handed_over >= len(TOPICS)
