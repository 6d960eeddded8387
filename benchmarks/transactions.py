"""How long does a transaction take, and what does it cost against a producer without?

    python benchmarks/transactions.py [commits] [throughput] [large] [--rounds N] [--gigabytes N]

commits: the time of `commit_transaction` after 1,000 records of 100 bytes to three topics, with the
offsets of a group; and after one record to one topic.
throughput: records of 100 bytes in transactions of 10,000 to one topic, and the same records by an
idempotent producer without transactions, in turns.
large: one transaction of some gigabytes to two topics, and the gateway's memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.testing import GatewayProcess

VALUE = b"v" * 100
RECORDS = 10_000
PARTITIONS = 6

#: Records of a round of each producer.
ROUND = 200_000


@contextlib.contextmanager
def gateway_with(*topics: str) -> Iterator[GatewayProcess]:
    with tempfile.TemporaryDirectory() as directory, GatewayProcess(directory) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            for topic in topics:
                admin.create_topic(topic, PARTITIONS)
        yield gateway


@contextlib.contextmanager
def transactional(gateway: GatewayProcess, **config: object) -> Iterator[Producer]:
    settings = {"bootstrap.servers": gateway.address, "transactional.id": "bench", **config}
    with Producer(settings) as producer:
        producer.init_transactions()
        yield producer


def spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    p99 = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return f"p50 {statistics.median(ordered):.1f} ms, p99 {p99:.1f} ms"


def commits(options: argparse.Namespace) -> None:
    topics = ("a", "b", "c")
    with (
        gateway_with(*topics, "input") as gateway,
        transactional(gateway) as producer,
        Consumer(
            {
                "bootstrap.servers": gateway.address,
                "group.id": "bench",
                "enable.auto.commit": False,
            }
        ) as consumer,
    ):
        consumer.subscribe(["input"])
        while not consumer.assignment():
            consumer.poll(0.1)
        several, alone = [], []
        for _ in range(40 * options.rounds):
            producer.begin_transaction()
            for number in range(1_000):
                producer.produce(topics[number % 3], VALUE, key=b"%d" % number)
            producer.flush()
            producer.send_offsets_to_transaction(
                [TopicPartition("input", 0, 0)], consumer.consumer_group_metadata()
            )
            began = time.perf_counter()
            producer.commit_transaction()
            several.append((time.perf_counter() - began) * 1_000)
            producer.begin_transaction()
            producer.produce("a", VALUE)
            producer.flush()
            began = time.perf_counter()
            producer.commit_transaction()
            alone.append((time.perf_counter() - began) * 1_000)
    print(f"commits: 1,000 records, three topics and offsets: {spread(several)}")
    print(f"commits: one record, one topic: {spread(alone)}")


def throughput(options: argparse.Namespace) -> None:
    with (
        gateway_with("in-transactions", "without") as gateway,
        transactional(gateway) as producer,
        Producer({"bootstrap.servers": gateway.address}) as plain,
    ):

        def transactions() -> None:
            for _ in range(ROUND // RECORDS):
                with producer.transaction():
                    for _ in range(RECORDS):
                        producer.produce("in-transactions", VALUE)

        def without() -> None:
            for _ in range(ROUND):
                plain.produce("without", VALUE)
            plain.flush()

        rates: dict[Callable[[], None], list[float]] = {transactions: [], without: []}
        for number in range(options.rounds + 1):
            for run, found in rates.items():
                began = time.perf_counter()
                run()
                if number:  # the first warms up
                    found.append(ROUND / (time.perf_counter() - began))
    ratios = [one / other for one, other in zip(*rates.values(), strict=True)]
    print(
        f"throughput: in transactions {statistics.median(rates[transactions]):,.0f} records/s, "
        f"without {statistics.median(rates[without]):,.0f}; ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f}-{max(ratios):.2f})"
    )


def large(options: argparse.Namespace) -> None:
    with (
        gateway_with("a", "b") as gateway,
        transactional(
            gateway, **{"transaction.timeout.ms": 900_000, "delivery.timeout.ms": 600_000}
        ) as producer,
    ):
        before = memory_mb(gateway, "VmRSS")
        rows, value = 400, os.urandom(10_000)
        batch = pa.record_batch(
            {
                "value": pa.array([value] * rows, pa.binary()),
                "partition": pa.array([n % PARTITIONS for n in range(rows)], pa.int32()),
            }
        )
        began = time.perf_counter()
        producer.begin_transaction()
        under_way = deque[object]()
        for number in range(int(options.gigabytes * 1e9 / (rows * len(value)))):
            under_way.append(producer.produce_batch("ab"[number % 2], batch))
            if len(under_way) > 8:
                under_way.popleft().result()  # type: ignore[attr-defined]
        producer.flush()
        sent_s = time.perf_counter() - began
        producer.commit_transaction(600)
        took_s = time.perf_counter() - began
        print(
            f"large: {options.gigabytes:g} GB sent in {sent_s:.0f} s, committed "
            f"{took_s - sent_s:.0f} s later; the gateway took {before} MB before and "
            f"{memory_mb(gateway, 'VmHWM')} MB at its peak"
        )


def memory_mb(gateway: GatewayProcess, what: str) -> int:
    with open(f"/proc/{gateway.pid}/status", encoding="ascii") as status:
        return int(status.read().split(f"{what}:")[1].split()[0]) // 1024


#: By name, as on the command line.
PARTS = {"commits": commits, "throughput": throughput, "large": large}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS), help="all, without any")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of the large one")
    options = parser.parse_args(arguments)
    for part in options.parts or PARTS:
        if part not in PARTS:
            parser.error(f"{part!r} is none of {', '.join(PARTS)}")
        PARTS[part](options)


if __name__ == "__main__":
    main()
