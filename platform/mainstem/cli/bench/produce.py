"""The measurement behind `mainstem bench produce`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from mainstem.cli.bench.place import BenchPlace, bench_topic, percentiles_ms, random_column
from mainstem.cli.context import fail, say
from mainstem.client import AdminClient, Producer
from mainstem.limits import MIB

#: In mode record, one record in so many is timed: often enough for a p99, too seldom to cost.
SAMPLE_EVERY: Final = 1_000

#: Random keys and values are made beforehand and used in turn. So many bytes of them are further
#: apart than any compressor of a data file looks back.
_POOL_BYTES: Final = 32 * MIB

#: For tiny values: a Python object costs more than its bytes.
_POOL_RECORDS_MAX: Final = 400_000

#: A batch in memory for each of the pool, at least this many.
_POOL_BATCHES_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class ProduceBenchmark:
    """What is measured."""

    mode: str
    record_count: int
    warm_up_count: int
    value_bytes: int
    key_bytes: int
    batch_rows: int
    producer_config: Mapping[str, object]


@dataclass(slots=True)
class _Acks:
    """Times from call to acknowledgement, noted by a thread of the client."""

    seconds: list[float] = field(default_factory=list)

    def time(self, started: float, future: Future[Any]) -> None:
        """Notes when the future ends of a call that was made at `started`."""
        seconds = self.seconds

        def ended(_: Future[Any]) -> None:
            seconds.append(time.perf_counter() - started)

        future.add_done_callback(ended)


#: Sends so many records and notes their acknowledgements; returns when all are acknowledged.
_Driver = Callable[[int, _Acks], None]


def measure_produce(benchmark: ProduceBenchmark, place: BenchPlace) -> dict[str, Any]:
    """Runs a benchmark and returns its result, ready for JSON.

    Raises:
        MainstemError: A record was not delivered, or the gateway refused something.
    """
    with bench_topic(place) as topic:
        seconds, acks = _drive(benchmark, topic.servers, topic.name)
        expected = benchmark.warm_up_count + benchmark.record_count
        _check_count(topic.admin, topic.name, expected, place.timeout_s)
        peak = topic.peak_rss_bytes()
    record_bytes = benchmark.key_bytes + benchmark.value_bytes
    per_second = benchmark.record_count / seconds
    return {
        "records_per_second": round(per_second),
        "megabytes_per_second": round(per_second * record_bytes / 1e6, 2),
        "ack_ms": percentiles_ms(acks),
        "gateway_peak_rss_bytes": peak,
        "settings": _settings(benchmark, place),
    }


def _drive(benchmark: ProduceBenchmark, servers: str, topic: str) -> tuple[float, list[float]]:
    config = {"bootstrap.servers": servers, **benchmark.producer_config}
    with Producer(config) as producer:
        driver = _DRIVERS[benchmark.mode](benchmark, producer, topic)
        if benchmark.warm_up_count:
            say(f"warming up: {benchmark.warm_up_count:,} records")
            driver(benchmark.warm_up_count, _Acks())
        say(f"measuring: {benchmark.record_count:,} records")
        acks = _Acks()
        started = time.perf_counter()
        driver(benchmark.record_count, acks)
        return time.perf_counter() - started, acks.seconds


def _record_driver(benchmark: ProduceBenchmark, producer: Producer, topic: str) -> _Driver:
    keys, values = _pool(benchmark)

    def drive(count: int, acks: _Acks) -> None:
        produce = producer.produce
        for first_key, first_value, other_keys, other_values in _runs(keys, values, count):
            started = time.perf_counter()
            acks.time(started, producer.send(topic, first_value, first_key))
            for key, value in zip(other_keys, other_values, strict=True):
                produce(topic, value, key)
        producer.flush()

    return drive


def _batch_driver(benchmark: ProduceBenchmark, producer: Producer, topic: str) -> _Driver:
    batches = _pool_batches(benchmark)

    def drive(count: int, acks: _Acks) -> None:
        pending: list[Future[Any]] = []
        sent = 0
        index = 0
        while sent < count:
            batch = batches[index % len(batches)].slice(0, count - sent)
            started = time.perf_counter()
            future = producer.produce_batch(topic, batch)
            acks.time(started, future)
            pending.append(future)
            sent += batch.num_rows
            index += 1
        producer.flush()
        for future in pending:
            future.result(0)  # a failure comes out here

    return drive


def _sync_driver(benchmark: ProduceBenchmark, producer: Producer, topic: str) -> _Driver:
    keys, values = _pool(benchmark)

    def drive(count: int, acks: _Acks) -> None:
        for index in range(count):
            at = index % len(values)
            started = time.perf_counter()
            producer.send(topic, values[at], keys[at]).result()
            acks.seconds.append(time.perf_counter() - started)

    return drive


_DRIVERS: Final[dict[str, Callable[[ProduceBenchmark, Producer, str], _Driver]]] = {
    "record": _record_driver,
    "batch": _batch_driver,
    "sync": _sync_driver,
}


def _runs(
    keys: list[bytes | None], values: list[bytes], count: int
) -> Iterator[tuple[bytes | None, bytes, list[bytes | None], list[bytes]]]:
    """The pool in turn, in runs of SAMPLE_EVERY: the first record, then the others."""
    begin = 0
    while count > 0:
        end = min(begin + min(SAMPLE_EVERY, count), len(values))
        yield keys[begin], values[begin], keys[begin + 1 : end], values[begin + 1 : end]
        count -= end - begin
        begin = end % len(values)


def _pool(benchmark: ProduceBenchmark) -> tuple[list[bytes | None], list[bytes]]:
    count = _pool_count(benchmark)
    values = _random_values(count, benchmark.value_bytes)
    if benchmark.key_bytes == 0:
        return [None] * count, values
    return list(_random_values(count, benchmark.key_bytes)), values


def _pool_count(benchmark: ProduceBenchmark) -> int:
    size = max(1, benchmark.value_bytes + benchmark.key_bytes)
    longest = max(benchmark.record_count, benchmark.warm_up_count)
    return max(1, min(_POOL_BYTES // size, _POOL_RECORDS_MAX, longest))


def _random_values(count: int, size: int) -> list[bytes]:
    data = secrets.token_bytes(count * size)
    return [data[at * size : (at + 1) * size] for at in range(count)]


def _pool_batches(benchmark: ProduceBenchmark) -> list[pa.RecordBatch]:
    rows = benchmark.batch_rows
    count = max(_POOL_BATCHES_MIN, _pool_count(benchmark) // rows)
    return [
        pa.record_batch(
            {
                name: random_column(rows, size)
                for name, size in (("key", benchmark.key_bytes), ("value", benchmark.value_bytes))
                if size or name == "value"
            }
        )
        for _ in range(count)
    ]


def _check_count(admin: AdminClient, topic: str, expected: int, timeout_s: float) -> None:
    """The high watermarks sum to what was sent; with acks=0 that may take a moment."""
    deadline = time.monotonic() + timeout_s
    while True:
        described = admin.describe_topic(topic, timeout=timeout_s)
        found = sum(partition.high_watermark for partition in described.partitions)
        if found == expected:
            return
        if found > expected or time.monotonic() >= deadline:
            wrong = "records are missing" if found < expected else "some were stored twice"
            fail(f"{expected:,} records were sent, the high watermarks sum to {found:,}: {wrong}")
        time.sleep(0.1)


def _settings(benchmark: ProduceBenchmark, place: BenchPlace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "mode": benchmark.mode,
        "records": benchmark.record_count,
        "warm_up": benchmark.warm_up_count,
        "key_bytes": benchmark.key_bytes,
        "value_bytes": benchmark.value_bytes,
        "partitions": place.partition_count,
    }
    if benchmark.mode == "batch":
        found["batch_rows"] = benchmark.batch_rows
    return {**found, **benchmark.producer_config, **place.facts()}
