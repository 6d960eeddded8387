"""Members come and go and the gateway restarts, while records are written: none is missed."""

from __future__ import annotations

import logging
import random
import threading
import time

import pytest

from mainstem.client import Consumer, TopicPartition
from mainstem.testing._fake_fetch import FakeLogGateway

PARTITIONS = 4
RECORDS = 2_000
MEMBERS = 3
DEADLINE_S = 60.0


class Member(threading.Thread):
    """Reads until told to stop; closes, forgets to close, and starts again at random.

    Attributes:
        findings: What must not be.
    """

    def __init__(self, address: str, seen: set[tuple[int, int]], rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._seen = seen
        self._rng = rng
        self.ending = threading.Event()
        self.findings: list[str] = []
        self._next: dict[int, int] = {}

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self._life()
        except Exception as error:
            self.findings.append(repr(error))

    def _life(self) -> None:
        self._next = {}
        config = {
            "bootstrap.servers": self._address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 20,
            "session.timeout.ms": 6_000,
            "retry.backoff.ms": 5,
        }
        consumer = Consumer(config)
        with consumer:
            consumer.subscribe(["t"], self._taken, self._gone, self._gone)
            until = time.monotonic() + self._rng.uniform(0.1, 0.8)
            while time.monotonic() < until or not self._rng.randrange(3):
                for record in consumer.consume(self._rng.randrange(1, 60), 0.02):
                    expected = self._next.get(record.partition)
                    if expected is not None and record.offset != expected:
                        self.findings.append(f"{record.offset} came, not {expected}")
                    self._next[record.partition] = record.offset + 1
                    self._seen.add((record.partition, record.offset))

    def _taken(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._next.pop(tp.partition, None)

    _gone = _taken


@pytest.mark.parametrize("turn", range(2))
def test_no_record_is_missed_or_out_of_order_while_members_and_the_gateway_come_and_go(
    no_leaks: None, seed: int, turn: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(f"{seed}:{turn}")
    seen: set[tuple[int, int]] = set()
    everything = {(p, o) for p in range(PARTITIONS) for o in range(RECORDS // PARTITIONS)}
    with FakeLogGateway({"t": PARTITIONS}) as gateway, caplog.at_level(logging.CRITICAL):
        members = [
            Member(gateway.address, seen, random.Random(rng.random())) for _ in range(MEMBERS)
        ]
        for member in members:
            member.start()
        for _ in range(RECORDS // PARTITIONS // 50):
            for partition in range(PARTITIONS):
                gateway.append("t", partition, [b"x"] * 50)
            time.sleep(rng.uniform(0, 0.2))
            if not rng.randrange(4):
                gateway.stop()
                time.sleep(rng.uniform(0, 0.1))
                gateway.start()
        deadline = time.monotonic() + DEADLINE_S
        while seen != everything and time.monotonic() < deadline:
            time.sleep(0.01)
        for member in members:
            member.ending.set()
        for member in members:
            member.join(DEADLINE_S)
        committed = {p: gateway.groups.offsets.get(("g", "t", p), 0) for p in range(PARTITIONS)}
    assert [finding for member in members for finding in member.findings] == []
    assert everything - seen == set()
    assert all(offset <= RECORDS // PARTITIONS for offset in committed.values())
