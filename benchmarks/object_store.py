"""What does a warehouse in S3 cost beside one on a disk?

    python benchmarks/object_store.py [local] [s3] [--records N] [--topics N] [--seconds N] ...

s3 is versitygw on this machine (`make s3` installs it) behind a proxy, in a process of its own,
that makes each request take as long as Amazon publishes for S3 Standard: a put 100 ms at the median
and 195 ms at the 99th percentile, a get 60 ms.

produce: records of 116 bytes to six partitions by `produce()`, acks=all.
ack: one record at a time; and at random times, 20 a second.
history: one consumer of the six partitions from their start, `poll_batch`.
trickle: topics of one partition that get a record each every second, or as --every says; requests
to the store a second. --acks is theirs. --records 0 measures this alone.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.slow_s3 import slow_s3
from tests.versitygw import running_versitygw

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.testing import GatewayProcess

PARTITIONS = 6
KEY_BYTES, VALUE_BYTES = 16, 100
DEADLINE_S = 600.0

Requests = Callable[[], Counter[str]]


def produce(address: str, record_count: int, topic: str) -> float:
    """Records a second."""
    key, value = os.urandom(KEY_BYTES), os.urandom(VALUE_BYTES)
    with Producer({"bootstrap.servers": address}) as producer:
        began_at = time.monotonic()
        for number in range(record_count):
            producer.produce(topic, value, key=key, partition=number // 500 % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0
        return record_count / (time.monotonic() - began_at)


def acks(address: str, count: int, topic: str, level: str) -> tuple[float, float]:
    """Milliseconds from a record to its answer: half of them, and 99 of 100."""
    found = []
    with Producer({"bootstrap.servers": address, "acks": level, "linger.ms": 0}) as producer:
        for number in range(count + 5):
            began_at = time.monotonic()
            producer.send(topic, b"x" * VALUE_BYTES, partition=0).result(DEADLINE_S)
            if number >= 5:
                found.append((time.monotonic() - began_at) * 1_000)
    cuts = statistics.quantiles(found, n=100)
    return cuts[49], cuts[98]


def acks_at_random(address: str, count: int, topic: str, level: str) -> tuple[float, float]:
    """Milliseconds from a record to its answer, of 20 records a second that wait for no answer."""
    rng, found = random.Random(7), list[float]()

    def note(began_at: float) -> None:
        found.append((time.monotonic() - began_at) * 1_000)

    with Producer({"bootstrap.servers": address, "acks": level, "linger.ms": 0}) as producer:
        for _ in range(count):
            began_at = time.monotonic()
            sent = producer.send(topic, b"x" * VALUE_BYTES, partition=0)
            sent.add_done_callback(lambda _, began_at=began_at: note(began_at))  # type: ignore[misc]
            time.sleep(rng.expovariate(20.0))
        assert producer.flush(DEADLINE_S) == 0
    cuts = statistics.quantiles(found, n=100)
    return cuts[49], cuts[98]


def history(address: str, record_count: int, topic: str) -> float:
    """Records a second."""
    with Consumer({"bootstrap.servers": address, "group.id": "none"}) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        began_at, found = time.monotonic(), 0
        while found < record_count:
            batches = consumer.poll_batch(timeout=60)
            assert batches, f"{found} of {record_count} records"
            found += sum(batch.num_rows for batch in batches.values())
        return found / (time.monotonic() - began_at)


def trickle(address: str, words: argparse.Namespace, requests: Requests) -> tuple[str, float]:
    """Requests to the store a second while topics get a record each now and then, and how many
    records a second were sent."""
    names = [f"quiet-{number}" for number in range(words.topics)]
    with AdminClient({"bootstrap.servers": address}) as admin, ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda name: admin.create_topic(name, 1), names))
    config = {"bootstrap.servers": address, "linger.ms": 0, "acks": words.acks}
    pause_s = words.every / len(names)
    with Producer(config) as producer:
        for _ in range(2):  # they are led, and their files known, from then on
            for name in names:
                producer.produce(name, b"x", partition=0)
            assert producer.flush(DEADLINE_S) == 0
        sent, began_at, before = 0, time.monotonic(), requests()
        while (now := time.monotonic()) < began_at + words.seconds:
            while sent * pause_s <= now - began_at:
                producer.produce(names[sent % len(names)], b"x", partition=0)
                sent += 1
            time.sleep(0.005)
        found = requests() - before
    each = ", ".join(f"{m} {n / words.seconds:.1f}" for m, n in sorted(found.items()))
    return each or "no", sent / words.seconds


def measure(place: str, words: argparse.Namespace, requests: Requests, name: str) -> None:
    settings = {"gateway.id": "bench", "log.level": "error"}
    with GatewayProcess(place, settings=settings) as gateway:
        address = gateway.address
        with AdminClient({"bootstrap.servers": address}) as admin:
            for topic in ("warm", "many", "single"):
                admin.create_topic(topic, PARTITIONS)
        if words.records:
            measure_records(address, words.records, name)
        if words.topics:
            each, rate = trickle(address, words, requests)
            print(
                f"{name}: {words.topics} quiet topics, acks={words.acks}, {rate:,.0f} records/s: "
                f"{each} requests/s",
                flush=True,
            )


def measure_records(address: str, record_count: int, name: str) -> None:
    produce(address, record_count // 4, "warm")
    rate = produce(address, record_count, "many")
    print(f"{name}: produce {rate:,.0f} records/s", flush=True)
    for level in ("all", "1"):
        for how, measured in (("one at a time", acks), ("at random", acks_at_random)):
            half, most = measured(address, 60, "single", level)
            print(f"{name}: acks={level}, {how} p50 {half:.1f}, p99 {most:.1f} ms", flush=True)
    for turn in ("first", "second"):
        rate = history(address, record_count, "many")
        print(f"{name}: history, {turn} time {rate:,.0f} records/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", help="local, s3; both where none is named")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--acks", choices=("all", "1"), default="all")
    words = parser.parse_args()
    for name in words.what or ("local", "s3"):
        with tempfile.TemporaryDirectory() as directory:
            if name == "local":
                measure(f"{directory}/warehouse", words, Counter, name)
                continue
            with running_versitygw(Path(directory)) as server, slow_s3(server.url) as proxy:
                os.environ.update(server.options, AWS_ENDPOINT_URL=proxy.url)
                place = f"s3://{server.make_bucket()}/lake"
                measure(place, words, proxy.requests, name)


if __name__ == "__main__":
    main()
