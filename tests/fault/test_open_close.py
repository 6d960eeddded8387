"""Clients that come and go, some of them killed, leave nothing behind: no thread, no descriptor, no
member of a group, no memory, in their own process as in the gateway's.

`make test` goes through 30 cycles, `make test-fault` (MAINSTEM_TEST_FAULTS=full) through 1,000.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.length import FULL

from mainstem.client import (
    AdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerGroupDescription,
    Producer,
    TopicPartition,
)
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]


CYCLES = 1_000 if FULL else 30

#: The first cycles fill caches and pools.
WARM_UP = 20 if FULL else 10

SESSION_MS = 2_000
DEADLINE_S = 60.0

#: What a process may grow by between the end of the warm-up and the end: the noise of allocators.
GROWN_BYTES_MAX = 40 * 2**20

#: Threads that the gateway's pools may have got meanwhile: they grow to their sizes, and by one for
#: each call that is slow on a busy machine. What clients left behind would be hundreds.
SPARE_THREADS = {"client": 0, "gateway": 8}

#: A client that is killed while it is in the middle of things.
VICTIM = """
import sys
from mainstem.client import Consumer, Producer
servers, number, session_ms = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers})
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": "g" + number,
        "session.timeout.ms": session_ms,
        "auto.offset.reset": "earliest",
    }
)
consumer.subscribe(["t"])
producer.send("t", b"x").result()
while consumer.poll(0.1) is None:
    pass
print("here", flush=True)
while True:
    producer.produce("t", b"x")
    producer.poll(0.01)
    consumer.poll(0.01)
"""


class Usage:
    """What a process has at a moment."""

    def __init__(self, pid: int) -> None:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        self.threads = int(status["Threads"])
        self.bytes = int(status["VmRSS"].split()[0]) * 1024
        self.descriptors = len(os.listdir(f"/proc/{pid}/fd"))

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.descriptors} descriptors, {self.bytes >> 20} MiB"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads /proc")
@pytest.mark.timeout(3_000 if FULL else 300)
def test_clients_that_come_and_go_leave_nothing_behind(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    rng = random.Random(seed)
    settings = {"append.threads": 2, "fetch.threads": 2}
    with GatewayProcess(tmp_path / "warehouse", settings=settings) as gateway:
        servers = {"bootstrap.servers": gateway.address}
        with AdminClient(servers) as admin:
            admin.create_topic("t", 4)
        for number in range(WARM_UP):
            cycle(servers, number, rng)
        gc.collect()
        before = Usage(os.getpid()), Usage(gateway.pid)
        for number in range(WARM_UP, WARM_UP + CYCLES):
            cycle(servers, number, rng)
        ended = time.monotonic()
        groups = wait_for_empty_groups(servers)
        gc.collect()
        after = settled(before, gateway.pid)
        report(f"before: {before[0]}; gateway {before[1]}")
        report(f"after:  {after[0]}; gateway {after[1]}")
        report(f"{groups} groups empty after {time.monotonic() - ended:.1f} s")
    for who, one, two in zip(("client", "gateway"), before, after, strict=True):
        assert two.threads <= one.threads + SPARE_THREADS[who], f"{who}: {one}; {two}"
        assert two.descriptors <= one.descriptors, f"{who}: {one}; {two}"
        assert two.bytes - one.bytes < GROWN_BYTES_MAX, f"{who}: {one}; {two}"
    assert not [t for t in threading.enumerate() if t.name.startswith("mainstem-")]


def cycle(servers: dict[str, str], number: int, rng: random.Random) -> None:
    """One client of a random kind, from its beginning to its end."""
    group = {
        **servers,
        "group.id": f"g{number % 10}",
        "session.timeout.ms": SESSION_MS,
        "auto.offset.reset": "latest",
    }
    match rng.choice(["producer", "assigned", "member", "hasty", "asyncio", "admin", "killed"]):
        case "producer":
            with Producer(servers) as producer:
                producer.produce("t", b"x", on_delivery=lambda error, where: None)
        case "assigned":
            with Consumer(servers) as consumer:
                consumer.assign([TopicPartition("t", p, 0) for p in range(4)])
                consumer.poll(rng.choice([0.0, 0.05]))
        case "member":
            with Consumer(group) as consumer:
                consumer.subscribe(["t"])
                deadline = time.monotonic() + DEADLINE_S
                while not consumer.assignment() and time.monotonic() < deadline:
                    consumer.poll(0.02)
                    if rng.random() < 0.2:
                        break
        case "hasty":
            with Consumer(group) as consumer:
                consumer.subscribe(["t"])
                consumer.poll(rng.choice([0.0, 0.001, 0.005]))
        case "asyncio":
            asyncio.run(come_and_go(servers, group))
        case "admin":
            with AdminClient(servers) as admin:
                admin.describe_topic("t")
        case "killed" if number % 5 == 0 or not FULL:
            arguments = (servers["bootstrap.servers"], str(number % 10), str(SESSION_MS))
            victim = subprocess.Popen(
                [sys.executable, "-c", VICTIM, *arguments], stdout=subprocess.PIPE
            )
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"here\n"
            victim.kill()
            victim.wait()
            victim.stdout.close()


async def come_and_go(servers: dict[str, str], group: dict[str, object]) -> None:
    async with AsyncProducer(servers) as producer, AsyncConsumer(group) as consumer:
        await consumer.subscribe(["t"])
        await producer.send_and_wait("t", b"x")
        await consumer.getmany(timeout_ms=20)


def wait_for_empty_groups(servers: dict[str, str]) -> int:
    """Waits until no group has a member: those of killed clients go with their sessions."""
    names = [f"g{number}" for number in range(10)]
    deadline = time.monotonic() + DEADLINE_S
    with AdminClient(servers) as admin:
        while True:
            found = admin.describe_consumer_groups(names)
            groups = [one for one in found.values() if isinstance(one, ConsumerGroupDescription)]
            members = {one.group_id: len(one.members) for one in groups if one.members}
            if not members:
                return len(groups)
            assert time.monotonic() < deadline, f"members that nobody is behind: {members}"
            time.sleep(0.2)


def settled(before: tuple[Usage, Usage], gateway: int) -> tuple[Usage, Usage]:
    """The usage of both, once threads and connections that are on their way out are gone."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        after = Usage(os.getpid()), Usage(gateway)
        is_settled = all(
            two.threads <= one.threads + spare and two.descriptors <= one.descriptors
            for one, two, spare in zip(before, after, SPARE_THREADS.values(), strict=True)
        )
        if is_settled or time.monotonic() > deadline:
            return after
        time.sleep(0.2)
