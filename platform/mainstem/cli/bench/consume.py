"""The measurement behind `mainstem bench consume`."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from mainstem.cli.bench.place import BenchPlace, BenchTopic, bench_topic, random_column
from mainstem.cli.context import fail, say
from mainstem.client import Consumer, Producer, TopicPartition
from mainstem.client.connection_security import connection_of

_FILL_ROWS: Final = 10_000

#: Some seconds' worth of records are never this late.
_STALL_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ConsumeBenchmark:
    """What is measured.

    Attributes:
        sources: tail, history.
        calls: consume, poll, poll_batch.
        records_at_once: What consume() is asked for.
    """

    record_count: int
    value_bytes: int
    key_bytes: int
    sources: tuple[str, ...]
    calls: tuple[str, ...]
    rounds: int
    records_at_once: int
    consumer_config: Mapping[str, object]


def measure_consume(benchmark: ConsumeBenchmark, place: BenchPlace) -> dict[str, Any]:
    """Runs a benchmark and returns its result, ready for JSON.

    Raises:
        MainstemError: A record could not be written or read.
    """
    with bench_topic(place) as topic:
        say(f"writing {benchmark.record_count:,} records")
        _fill(benchmark, place, topic)
        say("warming up")
        _read(benchmark, place, topic, benchmark.calls[0])
        # A full collection in the middle of a round would measure the objects of this program.
        gc.collect()
        gc.freeze()
        try:
            results = [
                _measure(benchmark, place, topic, source, call)
                for source in benchmark.sources
                for call in benchmark.calls
            ]
        finally:
            gc.unfreeze()
        peak = topic.peak_rss_bytes()
    return {
        "results": results,
        "gateway_peak_rss_bytes": peak,
        "settings": {
            "records": benchmark.record_count,
            "key_bytes": benchmark.key_bytes,
            "value_bytes": benchmark.value_bytes,
            "partitions": place.partition_count,
            "rounds": benchmark.rounds,
            "records_at_once": benchmark.records_at_once,
            **benchmark.consumer_config,
            **place.facts(),
        },
    }


def _measure(
    benchmark: ConsumeBenchmark, place: BenchPlace, topic: BenchTopic, source: str, call: str
) -> dict[str, Any]:
    say(f"measuring: {call} from {'the tail' if source == 'tail' else source}")
    rates = []
    for _ in range(benchmark.rounds):
        if source == "history":
            assert topic.gateway is not None
            topic.gateway.restart()  # nothing of the topic is in its memory then
        rates.append(_read(benchmark, place, topic, call))
    median = statistics.median(rates)
    record_bytes = benchmark.key_bytes + benchmark.value_bytes
    return {
        "source": source,
        "call": call,
        "records_per_second": round(median),
        "megabytes_per_second": round(median * record_bytes / 1e6, 2),
        "rounds": [round(rate) for rate in rates],
    }


def _fill(benchmark: ConsumeBenchmark, place: BenchPlace, topic: BenchTopic) -> None:
    partitions = pa.array([row % place.partition_count for row in range(_FILL_ROWS)], pa.int32())
    connection = connection_of(benchmark.consumer_config)
    with Producer({**connection, "bootstrap.servers": topic.servers}) as producer:
        pending = []
        for start in range(0, benchmark.record_count, _FILL_ROWS):
            columns = {"value": random_column(_FILL_ROWS, benchmark.value_bytes)}
            if benchmark.key_bytes:
                columns["key"] = random_column(_FILL_ROWS, benchmark.key_bytes)
            batch = pa.record_batch({**columns, "partition": partitions})
            batch = batch.slice(0, benchmark.record_count - start)
            pending.append(producer.produce_batch(topic.name, batch))
        producer.flush()
        for future in pending:
            future.result(0)  # a failure comes out here


def _read(benchmark: ConsumeBenchmark, place: BenchPlace, topic: BenchTopic, call: str) -> float:
    """Reads all records with a new consumer; returns records/s, the first fetch included."""
    total = benchmark.record_count
    tps = [TopicPartition(topic.name, number, 0) for number in range(place.partition_count)]
    with Consumer({"bootstrap.servers": topic.servers, **benchmark.consumer_config}) as consumer:
        take = _CALLS[call](consumer, benchmark)
        started = time.perf_counter()
        consumer.assign(tps)
        count = 0
        while count < total:
            taken = take()
            if not taken:
                fail(f"no record came for {_STALL_S:g} s after {count:,} of {total:,}")
            count += taken
        seconds = time.perf_counter() - started
        _check(consumer, tps, count, total)
    return total / seconds


def _check(consumer: Consumer, tps: Sequence[TopicPartition], count: int, total: int) -> None:
    """Each record came once: as many as there are, and every partition is at its end."""
    ends = sum(consumer.get_watermark_offsets(tp)[1] for tp in tps)
    positions = sum(tp.offset for tp in consumer.position(tps))
    if not count == total == positions == ends:
        fail(
            f"{total:,} records were written, {count:,} were read, the positions sum to "
            f"{positions:,} and the high watermarks to {ends:,}"
        )


def _consume(consumer: Consumer, benchmark: ConsumeBenchmark) -> Callable[[], int]:
    return lambda: len(consumer.consume(benchmark.records_at_once, _STALL_S))


def _poll(consumer: Consumer, _: ConsumeBenchmark) -> Callable[[], int]:
    return lambda: consumer.poll(_STALL_S) is not None


def _poll_batch(consumer: Consumer, _: ConsumeBenchmark) -> Callable[[], int]:
    return lambda: sum(batch.num_rows for batch in consumer.poll_batch(_STALL_S).values())


_CALLS: Final[dict[str, Callable[[Consumer, ConsumeBenchmark], Callable[[], int]]]] = {
    "consume": _consume,
    "poll": _poll,
    "poll_batch": _poll_batch,
}
