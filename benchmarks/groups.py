"""How soon does a group settle, is a dead member replaced, and is a commit durable?

    python benchmarks/groups.py [members] [killed] [commits] [--seconds N]

members: ten members join a topic of 900 partitions; the time from the last join until each has 90.
killed: a member in a process of its own is killed with SIGKILL; the time until a record of each of
its partitions was read by others, less its session timeout.
commits: twenty members of five groups commit every 200 ms, and wait for the answer.

What members read and commit is in threads of one process; the gateway is in its own.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.testing import GatewayProcess

DEADLINE_S = 60.0

MEMBERS = 10
PARTITIONS = 900

SESSION_TIMEOUT_MS = 3_000
KILLED_PARTITIONS = 30

GROUPS = 5
MEMBERS_EACH = 4
COMMIT_EVERY_S = 0.2


class Reader:
    """A member that polls in a thread until the block ends.

    Attributes:
        seen: When the first record of each partition was there, by `time.monotonic`.
        count: Of partitions that it has.
    """

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.seen: dict[int, float] = {}
        self.count = 0
        self._consumer = Consumer(member_config(address, group))
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        with self._consumer as consumer:
            consumer.subscribe([self._topic])
            while not self._stopped.is_set():
                record = consumer.poll(0.05)
                if record is not None:
                    self.seen.setdefault(record.partition, time.monotonic())
                self.count = len(consumer.assignment())


def member_config(address: str, group: str) -> dict[str, object]:
    return {
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_TIMEOUT_MS,
    }


def seconds_until(reached: Callable[[], bool]) -> float:
    began_at = time.monotonic()
    while not reached():
        assert time.monotonic() < began_at + DEADLINE_S, "it took too long"
        time.sleep(0.005)
    return time.monotonic() - began_at


@contextlib.contextmanager
def topic_of(gateway: GatewayProcess, name: str, partitions: int) -> Iterator[str]:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic(name, partitions)
        yield name


def members(gateway: GatewayProcess, _: float) -> None:
    with topic_of(gateway, "wide", PARTITIONS) as topic, contextlib.ExitStack() as stack:
        share = PARTITIONS // MEMBERS
        one_by_one = [
            stack.enter_context(Reader(gateway.address, "wide", topic)) for _ in range(MEMBERS - 1)
        ]
        seconds_until(lambda: sum(one.count for one in one_by_one) == PARTITIONS)
        last = stack.enter_context(Reader(gateway.address, "wide", topic))
        everybody = [*one_by_one, last]
        took_s = seconds_until(lambda: [one.count for one in everybody] == [share] * MEMBERS)
        print(f"members: {MEMBERS} on {PARTITIONS} partitions, {took_s:.2f} s after the last join")
    with contextlib.ExitStack() as stack:
        at_once = [
            stack.enter_context(Reader(gateway.address, "at once", topic)) for _ in range(MEMBERS)
        ]
        took_s = seconds_until(lambda: [one.count for one in at_once] == [share] * MEMBERS)
        print(f"members: all {MEMBERS} at once, {took_s:.2f} s")


def killed(gateway: GatewayProcess, _: float) -> None:
    command = [sys.executable, __file__, "--member", gateway.address]
    with (
        topic_of(gateway, "killed", KILLED_PARTITIONS) as topic,
        Reader(gateway.address, "killed", topic) as first,
        Reader(gateway.address, "killed", topic) as second,
        Producer({"bootstrap.servers": gateway.address}) as producer,
    ):
        others = (first, second)
        victim = subprocess.Popen(command, stdin=subprocess.PIPE)
        try:
            third = KILLED_PARTITIONS // 3
            seconds_until(lambda: [one.count for one in others] == [third, third])
            # Sessions end between two heartbeats: any moment may be the last one.
            time.sleep(1.0 + random.random())
        finally:
            victim.kill()
            victim.communicate()
        killed_at = time.monotonic()
        for partition in range(KILLED_PARTITIONS):
            producer.produce(topic, b"after", partition=partition)
        producer.flush(DEADLINE_S)
        seconds_until(lambda: first.seen.keys() | second.seen.keys() >= {*range(KILLED_PARTITIONS)})
        read_at = max(max(one.seen.values()) for one in others)
        late_s = read_at - killed_at - SESSION_TIMEOUT_MS / 1000
        print(f"killed: all partitions read again {late_s:+.2f} s after session.timeout.ms")


def commits(gateway: GatewayProcess, seconds: float) -> None:
    latencies_ms: list[float] = []
    failures: list[str] = []
    ends_at = time.monotonic() + seconds

    def commit(consumer: Consumer, rng: random.Random) -> None:
        time.sleep(rng.random() * COMMIT_EVERY_S)
        offset = 0
        while time.monotonic() < ends_at:
            began_at = time.monotonic()
            offset += 1
            offsets = [TopicPartition(t.topic, t.partition, offset) for t in consumer.assignment()]
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except Exception as error:
                failures.append(repr(error))
            latencies_ms.append((time.monotonic() - began_at) * 1000)
            consumer.poll(0)
            time.sleep(max(began_at + COMMIT_EVERY_S - time.monotonic(), 0.0))

    with topic_of(gateway, "commits", MEMBERS_EACH) as topic, contextlib.ExitStack() as stack:
        # A commit beyond the end is refused: each partition has as many records as commits.
        with Producer({"bootstrap.servers": gateway.address}) as producer:
            for _ in range(int(seconds / COMMIT_EVERY_S) + 2):
                for partition in range(MEMBERS_EACH):
                    producer.produce(topic, b"read", partition=partition)
        consumers: list[Consumer] = []
        for number in range(GROUPS * MEMBERS_EACH):
            config = member_config(gateway.address, f"commits-{number % GROUPS}")
            consumer = Consumer({**config, "enable.auto.commit": False})
            consumers.append(stack.enter_context(consumer))
            consumer.subscribe([topic])

        def settled() -> bool:
            for consumer in consumers:
                consumer.poll(0)
            return all(len(consumer.assignment()) == 1 for consumer in consumers)

        seconds_until(settled)
        ends_at = time.monotonic() + seconds
        threads = [
            threading.Thread(target=commit, args=(consumer, random.Random(number)))
            for number, consumer in enumerate(consumers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + DEADLINE_S)
    latencies_ms.sort()

    def percentile(share: float) -> float:
        return latencies_ms[min(int(len(latencies_ms) * share), len(latencies_ms) - 1)]

    print(
        f"commits: {len(latencies_ms):,} in {seconds:.0f} s, {len(failures)} failed, "
        f"p50 {percentile(0.5):.1f} ms, p99 {percentile(0.99):.1f} ms, "
        f"max {latencies_ms[-1]:.1f} ms"
    )
    for failure in failures[:5]:
        print(failure)


#: By name, as on the command line.
PARTS: dict[str, Callable[[GatewayProcess, float], None]] = {
    "members": members,
    "killed": killed,
    "commits": commits,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS), help="all, without any")
    parser.add_argument("--seconds", type=float, default=60.0, help="of commits")
    parser.add_argument("--member", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.member:
        with Reader(options.member, "killed", "killed"):
            sys.stdin.read()
        return
    for part in options.parts or PARTS:
        if part not in PARTS:
            parser.error(f"{part!r} is none of {', '.join(PARTS)}")
        with tempfile.TemporaryDirectory() as directory, GatewayProcess(directory) as gateway:
            PARTS[part](gateway, options.seconds)


if __name__ == "__main__":
    main()
