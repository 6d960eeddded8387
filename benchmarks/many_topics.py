"""What do many quiet topics cost, how long do their producers wait, and what of a busy one beside?

A gateway in a process of its own with its default settings (others with `--set`), and producers in
processes of their own. Quiet topics get single records through plain gRPC stubs, each sent at its
time whatever became of those before; ten connections share the topics. What a record waits is from
the time at which it was due to its answer. Processor time is the gateway's own, as the kernel
counts it.

Settings:
  trickle     one record a second to each of 1,000 topics of 4 partitions: acks=all, then acks=1,
              then one record in ten with acks=1
  busy        a producer as fast as it can on a topic of its own, alone and beside the trickle in
              turns (acks=all)
  partitions  1,000 records a second to one topic of 100 partitions, through the Python client

Usage: python benchmarks/many_topics.py [trickle busy partitions] [--topics 1000] [--partitions 4]
       [--seconds 30] [--warm-up 20] [--rounds 3] [--set NAME=VALUE] [--topic NAME=VALUE]
       [--directory DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pyarrow as pa
import uvloop

from mainstem.client import AdminClient, Producer
from mainstem.delta_log import LocalStore
from mainstem.delta_log.verify import verify_named
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc
from mainstem.records import records_to_wire_batch
from mainstem.testing import GatewayProcess

SETTINGS = ("trickle", "busy", "partitions")
CONNECTIONS = 10
KEY_BYTES, VALUE_BYTES = 16, 100
BUSY, BUSY_PARTITIONS, BUSY_ROWS = "busy", 6, 10_000
WIDE, WIDE_PARTITIONS, WIDE_RATE = "wide", 100, 1_000

#: Answers that come later than this count as lost.
LATE_S = 240.0


def main() -> None:
    if sys.argv[1:2] == ["--load"]:
        print(json.dumps(LOADS[sys.argv[2]](json.loads(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("settings", nargs="*", default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds before it")
    parser.add_argument("--rounds", type=int, default=3, help="turns of the setting busy")
    parser.add_argument("--set", action="append", default=[], help="a setting of the gateway")
    parser.add_argument("--topic", action="append", default=[], help="a setting of all topics")
    parser.add_argument("--directory", help="where the warehouse is made; default: a temporary one")
    parser.add_argument("--json", help="where to write the figures")
    options = parser.parse_args()
    if unknown := set(options.settings) - set(SETTINGS):
        parser.error(f"there is no setting {', '.join(sorted(unknown))}")
    figures: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="many-topics-") as folder:
        with GatewayProcess(folder, settings=pairs(options.set)) as gateway:
            for setting in options.settings:
                figures[setting] = MEASURED[setting](gateway, options)
                print(json.dumps({setting: figures[setting]}), file=sys.stderr)
        prove(folder, options)
    print(json.dumps(figures))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


# -- what is measured -----------------------------------------------------------------------------


def measure_trickle(gateway: GatewayProcess, options: argparse.Namespace) -> dict[str, Any]:
    create_trickle(gateway, options)
    # The first record of a topic takes its lead; that is over before anything is measured.
    run(gateway, "trickle", trickle_of(options, options.warm_up, leader_share=0.0))
    found = {}
    for name, leader_share in (("acks=all", 0.0), ("acks=1", 1.0), ("mixed", 0.1)):
        # Five seconds more come before, so that the queues have taken their shape.
        load = trickle_of(options, options.seconds, leader_share, settle_s=5.0)
        found[name] = run(gateway, "trickle", load)
    return found


def measure_busy(gateway: GatewayProcess, options: argparse.Namespace) -> dict[str, Any]:
    create_trickle(gateway, options)
    create(gateway, [BUSY], BUSY_PARTITIONS, {})
    seconds = options.seconds / 2
    run(gateway, "busy", {"seconds": seconds})
    run(gateway, "trickle", trickle_of(options, options.warm_up, leader_share=0.0))
    alone, beside = [], []
    trickles = []
    for _ in range(options.rounds):
        alone.append(run(gateway, "busy", {"seconds": seconds})["records_per_s"])
        trickle = start(gateway, "trickle", trickle_of(options, seconds + 15.0, 0.0, settle_s=5.0))
        time.sleep(10.0)
        beside.append(run(gateway, "busy", {"seconds": seconds})["records_per_s"])
        trickles.append(ended(trickle)["acks=all"])
    return {
        "alone_records_per_s": alone,
        "beside_records_per_s": beside,
        "beside_to_alone": round(float(np.median(beside) / np.median(alone)), 3),
        "trickle_p50_ms": [one["p50_ms"] for one in trickles],
        "trickle_p99_ms": [one["p99_ms"] for one in trickles],
    }


def measure_partitions(gateway: GatewayProcess, options: argparse.Namespace) -> dict[str, Any]:
    create(gateway, [WIDE], WIDE_PARTITIONS, pairs(options.topic))
    run(gateway, "wide", {"seconds": min(options.warm_up, 10.0)})
    return run(gateway, "wide", {"seconds": options.seconds})


MEASURED = {"trickle": measure_trickle, "busy": measure_busy, "partitions": measure_partitions}


@dataclass(frozen=True)
class Used:
    """Processor seconds of a process up to a moment, as the kernel counts them."""

    at: float
    user_s: float
    system_s: float

    @classmethod
    def of(cls, pid: int) -> Used:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        tick = os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), int(fields[11]) / tick, int(fields[12]) / tick)

    def since(self, before: Used) -> dict[str, float]:
        """Shares of a core."""
        wall = self.at - before.at
        user, system = self.user_s - before.user_s, self.system_s - before.system_s
        return {
            "cores": round((user + system) / wall, 3),
            "cores_user": round(user / wall, 3),
            "cores_system": round(system / wall, 3),
        }


def trickle_of(
    options: argparse.Namespace, seconds: float, leader_share: float, settle_s: float = 0.0
) -> dict[str, Any]:
    return {
        "topics": options.topics,
        "partitions": options.partitions,
        "seconds": seconds,
        "settle_s": settle_s,
        "leader_share": leader_share,
    }


def create_trickle(gateway: GatewayProcess, options: argparse.Namespace) -> None:
    names = [topic_name(number) for number in range(options.topics)]
    create(gateway, names, options.partitions, pairs(options.topic))


def create(
    gateway: GatewayProcess, topics: list[str], partitions: int, config: Mapping[str, str]
) -> None:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        for topic in topics:
            if not Path(gateway.warehouse, "topics", topic).exists():
                admin.create_topic(topic, partitions, config, timeout=60)


def topic_name(number: int) -> str:
    return f"quiet-{number:05d}"


def pairs(given: list[str]) -> dict[str, str]:
    return dict(one.split("=", 1) for one in given)


def prove(folder: str, options: argparse.Namespace) -> None:
    """A sample of the topics has no damage and no gap."""
    names = sorted(path.name for path in Path(folder, "topics").iterdir())
    for name in random.sample(names, min(20, len(names))):
        report = verify_named(LocalStore(folder), name)
        assert report.ok, report.findings


# -- loads, in processes of their own -------------------------------------------------------------


def start(gateway: GatewayProcess, load: str, options: Mapping[str, Any]) -> subprocess.Popen[str]:
    text = json.dumps({**options, "address": gateway.address, "pid": gateway.pid})
    command = [sys.executable, __file__, "--load", load, text]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    assert process.returncode == 0, "the load failed"
    found: dict[str, Any] = json.loads(output)
    return found


def run(gateway: GatewayProcess, load: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return ended(start(gateway, load, options))


def load_trickle(options: dict[str, Any]) -> dict[str, Any]:
    return uvloop.run(Trickle(options).run())


def load_busy(options: dict[str, Any]) -> dict[str, Any]:
    """Batches as fast as the producer takes them."""
    batch = pa.record_batch(
        {
            name: pa.array([secrets.token_bytes(size) for _ in range(BUSY_ROWS)], pa.binary())
            for name, size in (("key", KEY_BYTES), ("value", VALUE_BYTES))
        }
    )
    with Producer({"bootstrap.servers": options["address"]}) as producer:
        for _ in range(20):  # memory that was never touched is slow
            producer.produce_batch(BUSY, batch)
        producer.flush()
        began = time.monotonic()
        count = 0
        while time.monotonic() < began + options["seconds"]:
            producer.produce_batch(BUSY, batch)
            count += BUSY_ROWS
        producer.flush()
        return {"records_per_s": round(count / (time.monotonic() - began))}


def load_wide(options: dict[str, Any]) -> dict[str, Any]:
    waits: list[float] = []

    def send(producer: Producer) -> None:
        sent_at = time.perf_counter()

        def done(error: BaseException | None, _: object) -> None:
            assert error is None, error
            waits.append(time.perf_counter() - sent_at)

        key, value = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(VALUE_BYTES)
        producer.produce(WIDE, value, key, on_delivery=done)

    with Producer({"bootstrap.servers": options["address"]}) as producer:
        producer.partitions_for(WIDE)
        began, before = time.perf_counter(), Used.of(options["pid"])
        count = round(options["seconds"] * WIDE_RATE)
        for number in range(count):
            while (wait_s := began + number / WIDE_RATE - time.perf_counter()) > 0:
                producer.poll(min(wait_s, 0.05))
            send(producer)
        used = Used.of(options["pid"]).since(before)
        elapsed = time.perf_counter() - began
        producer.flush()
    assert len(waits) == count
    return percentiles(waits) | {"records_per_s": round(count / elapsed)} | used


@dataclass
class Topic:
    name: str
    producer_id: int
    sequences: list[int]
    sent: dict[int, float] = field(default_factory=dict)


class Trickle:
    """A record a second to each topic, at times of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._dice = random.Random(1)
        self._waits: dict[str, list[float]] = {"acks=all": [], "acks=1": []}
        self._sent_count = 0
        self._unanswered: dict[int, tuple[str, float]] = {}
        self._payloads = [_payload() for _ in range(256)]
        self._measured_from = 0.0

    async def run(self) -> dict[str, Any]:
        options = self._options
        async with contextlib.AsyncExitStack() as stack:
            channels = [
                await stack.enter_async_context(
                    grpc.aio.insecure_channel(
                        self._options["address"], options=[("grpc.use_local_subchannel_pool", 1)]
                    )
                )
                for _ in range(CONNECTIONS)
            ]
            shares = [await self._topics(n, c) for n, c in enumerate(channels)]
            began = time.perf_counter()
            self._measured_from = began + options["settle_s"]
            watching = asyncio.create_task(self._watch(began))
            await asyncio.gather(
                *(self._send(c, s, began) for c, s in zip(channels, shares, strict=True))
            )
        assert not self._unanswered, f"{len(self._unanswered)} records were not answered"
        found = {name: percentiles(waits) for name, waits in self._waits.items() if waits}
        return found | await watching

    async def _watch(self, began: float) -> dict[str, float]:
        await asyncio.sleep(self._measured_from - time.perf_counter())
        before, own_before = Used.of(self._options["pid"]), Used.of(os.getpid())
        await asyncio.sleep(self._options["seconds"])
        load = Used.of(os.getpid()).since(own_before)["cores"]
        return Used.of(self._options["pid"]).since(before) | {"load_cores": load}

    async def _topics(self, number: int, channel: grpc.aio.Channel) -> list[Topic]:
        stub: Any = log_pb2_grpc.LogStub(channel)
        topics = []
        for one in range(number, self._options["topics"], CONNECTIONS):
            answer = await stub.InitProducer(log_pb2.InitProducerRequest())
            sequences = [0] * self._options["partitions"]
            topics.append(Topic(topic_name(one), answer.producer_id, sequences))
        self._dice.shuffle(topics)
        return topics

    async def _send(self, channel: grpc.aio.Channel, topics: list[Topic], began: float) -> None:
        stub: Any = log_pb2_grpc.LogStub(channel)
        call = stub.ProduceStream()
        reading = asyncio.create_task(self._read(call))
        began += self._dice.random() / len(topics)
        for turn in range(round(self._options["settle_s"] + self._options["seconds"])):
            for place, topic in enumerate(topics):
                due = began + turn + place / len(topics)
                if (wait_s := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait_s)
                await call.write(self._request(topic, due))
        await call.done_writing()
        async with asyncio.timeout(LATE_S):
            await reading

    async def _read(self, call: Any) -> None:
        async for answer in call:
            assert not answer.HasField("error"), answer.error
            kind, due = self._unanswered.pop(answer.correlation_id)
            if due >= self._measured_from:
                self._waits[kind].append(time.perf_counter() - due)

    def _request(self, topic: Topic, due: float) -> log_pb2.ProduceRequest:
        self._sent_count += 1
        partition = self._dice.randrange(self._options["partitions"])
        range_ = log_pb2.PartitionRange(partition=partition, first_row=0, row_count=1)
        request = log_pb2.ProduceRequest(
            correlation_id=self._sent_count, topic=topic.name, acks=log_pb2.ACKS_ALL
        )
        kind = "acks=all"
        if self._dice.random() < self._options["leader_share"]:
            # As the client does it: without idempotence.
            kind = "acks=1"
            request.acks = log_pb2.ACKS_LEADER
        else:
            request.producer_id = topic.producer_id
            range_.base_sequence = topic.sequences[partition]
            topic.sequences[partition] += 1
        request.arrow.ipc_stream = self._payloads[self._sent_count % len(self._payloads)]
        request.arrow.ranges.append(range_)
        self._unanswered[self._sent_count] = (kind, due)
        return request


def _payload() -> bytes:
    batch = records_to_wire_batch(
        [secrets.token_bytes(KEY_BYTES)],
        [secrets.token_bytes(VALUE_BYTES)],
        None,
        [time.time_ns() // 1_000_000],
    ).drop_columns(["headers"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def percentiles(waits: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(np.array(waits) * 1000, [50, 99])
    return {
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "max_ms": round(max(waits) * 1000, 1),
        "records": len(waits),
    }


LOADS = {"trickle": load_trickle, "busy": load_busy, "wide": load_wide}


if __name__ == "__main__":
    main()
