"""The measurement behind `mainstem bench end-to-end`."""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mainstem.cli.bench.place import BenchPlace, BenchTopic, bench_topic, percentiles_ms
from mainstem.cli.context import fail, say
from mainstem.client import Consumer, Producer, TopicPartition
from mainstem.errors import MainstemError

#: A value begins with the number of its record, and when it was given to produce().
_STAMP: Final = struct.Struct("<qq")
STAMP_BYTES: Final = _STAMP.size

#: A record that is later than this is lost.
_LATE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class LatencyBenchmark:
    """What is measured: `rate` records/s for `seconds`, after `warm_up_seconds` of the same."""

    rate: float
    seconds: float
    warm_up_seconds: float
    value_bytes: int
    producer_config: Mapping[str, object]
    consumer_config: Mapping[str, object]

    @property
    def warm_up_count(self) -> int:
        return round(self.rate * self.warm_up_seconds)

    @property
    def record_count(self) -> int:
        return max(1, round(self.rate * self.seconds))


@dataclass(slots=True)
class _Sending:
    """What the sending thread tells."""

    failure: MainstemError | None = None
    seconds: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)


def measure_latency(benchmark: LatencyBenchmark, place: BenchPlace) -> dict[str, Any]:
    """Runs a benchmark and returns its result, ready for JSON.

    Raises:
        MainstemError: A record was not delivered, or could not be read.
    """
    with bench_topic(place) as topic:
        say(
            f"measuring: {benchmark.record_count:,} records at {benchmark.rate:g}/s, after "
            f"{benchmark.warm_up_count:,} to warm up"
        )
        latencies, sent_per_second = _run(benchmark, place, topic)
        peak = topic.peak_rss_bytes()
    return {
        "latency_ms": percentiles_ms(latencies),
        "records": len(latencies),
        "sent_per_second": round(sent_per_second, 1),
        "gateway_peak_rss_bytes": peak,
        "settings": {
            "rate": benchmark.rate,
            "seconds": benchmark.seconds,
            "warm_up_seconds": benchmark.warm_up_seconds,
            "value_bytes": benchmark.value_bytes,
            "partitions": place.partition_count,
            **benchmark.producer_config,
            **benchmark.consumer_config,
            **place.facts(),
        },
    }


def _run(
    benchmark: LatencyBenchmark, place: BenchPlace, topic: BenchTopic
) -> tuple[list[float], float]:
    """Seconds from produce() to poll() of each measured record; and how many were sent a second."""
    servers = {"bootstrap.servers": topic.servers}
    sending = _Sending()
    with (
        Producer({**servers, **benchmark.producer_config}) as producer,
        Consumer({**servers, **benchmark.consumer_config}) as consumer,
    ):
        producer.partitions_for(topic.name)  # knows the topic before the first record
        consumer.assign(
            [TopicPartition(topic.name, number, 0) for number in range(place.partition_count)]
        )
        thread = threading.Thread(
            target=_send, args=(benchmark, producer, topic.name, sending), name="bench-sender"
        )
        thread.start()
        try:
            latencies = _receive(benchmark, consumer, sending)
        finally:
            sending.stop.set()
            thread.join()
    if sending.failure is not None:
        raise sending.failure
    return latencies, benchmark.record_count / sending.seconds


def _send(benchmark: LatencyBenchmark, producer: Producer, topic: str, sending: _Sending) -> None:
    """Sends on a timetable that does not wait for answers: a slow one makes no later one late."""

    def ended(error: MainstemError | None, _: object) -> None:
        sending.failure = sending.failure or error

    padding = secrets.token_bytes(benchmark.value_bytes - STAMP_BYTES)
    count = benchmark.warm_up_count + benchmark.record_count
    begin = time.perf_counter()
    measured_from = begin
    try:
        for number in range(count):
            wait_s = begin + number / benchmark.rate - time.perf_counter()
            if (wait_s > 0 and sending.stop.wait(wait_s)) or sending.stop.is_set():
                return
            if number == benchmark.warm_up_count:
                measured_from = time.perf_counter()
            stamp = _STAMP.pack(number, time.perf_counter_ns())
            producer.produce(topic, stamp + padding, on_delivery=ended)
            producer.poll(0)
        # The last record has its own place in the timetable.
        sending.seconds = time.perf_counter() - measured_from + 1 / benchmark.rate
        producer.flush()
    except MainstemError as error:
        sending.failure = error


def _receive(benchmark: LatencyBenchmark, consumer: Consumer, sending: _Sending) -> list[float]:
    count = benchmark.warm_up_count + benchmark.record_count
    seen = bytearray(count)
    latencies: list[float] = []
    deadline = time.monotonic() + _LATE_S
    while len(latencies) < benchmark.record_count and sending.failure is None:
        record = consumer.poll(0.5)
        now_ns = time.perf_counter_ns()
        if record is None:
            if time.monotonic() > deadline:
                fail(f"no record came for {_LATE_S:g} s after {sum(seen):,} of {count:,}")
            continue
        deadline = time.monotonic() + _LATE_S
        number, sent_ns = _STAMP.unpack_from(record.value or b"")
        if seen[number]:
            fail(f"record {number:,} came twice")
        seen[number] = 1
        if number >= benchmark.warm_up_count:
            latencies.append((now_ns - sent_ns) / 1e9)
    return latencies
