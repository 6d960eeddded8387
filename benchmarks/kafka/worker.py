"""One measurement of one system, in a process of its own: client_rows.py starts it.

Reads a `Task` as JSON from its only argument, prints its `Outcome` as JSON. Both systems' clients
do the same with each record: what is produced is made beforehand, of what is consumed key, value
and offset are read.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import secrets
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from benchmarks.kafka.client import BATCH_ROWS, DEADLINE_S, Client, Task
from benchmarks.kafka.processes import cpu_s, peak_bytes, reset_peak, resident_bytes
from benchmarks.kafka.row import KAFKA, MAINSTEM, Outcome

#: The line on stderr after which a process measures.
BEGINS: Final = "measuring begins"

_POOL: Final = 100_000
_KEY_BYTES: Final = 16
_TRANSACTION_RECORDS: Final = 1_000
#: What a record begins with whose way is timed.
NUMBER: Final = struct.Struct("<q")

#: Between two samples of the server's memory, and the part of them that is the server's start.
_SAMPLE_RECORDS: Final = 250_000
_SAMPLES_BEFORE: Final = 0.2

#: Between two looks at the calls of a thread: a measurement of seconds has thousands.
_CALL_TREE_INTERVAL_S: Final = 0.001


def _random_records(task: Task) -> list[tuple[bytes, bytes]]:
    return [
        (secrets.token_bytes(_KEY_BYTES), secrets.token_bytes(task.value_bytes))
        for _ in range(_POOL)
    ]


def _flights(_: Task) -> list[tuple[bytes, bytes]]:
    """What `mainstem demo` sends: the carrier, and the flight as JSON."""
    from mainstem.cli.demo.data import read_flights, records

    return [(one.key.encode(), one.value) for one in records(read_flights(), "carrier")]


def _produce(
    client: Client, task: Task, records: list[tuple[bytes, bytes]], *, callbacks: bool = False
) -> Outcome:
    """Sends the records over and over until they are as many as the task wants."""

    def produce(count: int) -> None:
        client.produce(itertools.islice(itertools.cycle(records), count), callbacks=callbacks)

    produce(task.warm_up)
    return _measured(task, task.count, lambda: produce(task.count))


def _one_at_a_time(client: Client, task: Task) -> Outcome:
    """Each record is sent when the one before was acknowledged."""
    records = itertools.cycle(_random_records(task))
    waits_ms: list[float] = []

    def produce(count: int) -> None:
        for key, value in itertools.islice(records, count):
            begin = time.perf_counter()
            client.produce_and_wait(key, value)
            waits_ms.append((time.perf_counter() - begin) * 1000)

    produce(task.warm_up)
    waits_ms.clear()
    return _percentiles(_measured(task, task.count, lambda: produce(task.count)), waits_ms)


def _memory(client: Client, task: Task) -> Outcome:
    """Produces and consumes in steps, and looks after each at what the server has resident."""
    records = itertools.cycle(_random_records(task))
    client.begin_reading()
    resident_mb: list[float] = []

    def steps() -> None:
        for _ in range(task.count // _SAMPLE_RECORDS):
            client.produce(itertools.islice(records, _SAMPLE_RECORDS), callbacks=False)
            client.consume(_SAMPLE_RECORDS)
            resident_mb.append(resident_bytes(task.server_pid) / 1e6)

    outcome = _measured(task, task.count, steps)
    outcome.value = slope_mb_per_million(resident_mb)
    outcome.more = {
        "first MB": round(resident_mb[0]),
        "peak MB": round(outcome.server_peak_bytes / 1e6),
    }
    return outcome


def slope_mb_per_million(resident_mb: list[float]) -> float:
    """By how much memory grows with a million records: the line through all but the first fifth."""
    later = resident_mb[int(len(resident_mb) * _SAMPLES_BEFORE) :]
    if len(later) < 2:
        return 0.0
    millions = np.arange(len(later)) * _SAMPLE_RECORDS / 1e6
    return round(float(np.polyfit(millions, later, 1)[0]), 2)


def _transactions(client: Client, task: Task) -> Outcome:
    records = itertools.cycle(_random_records(task))

    def produce(count: int) -> None:
        client.produce_transactions(itertools.islice(records, count), _TRANSACTION_RECORDS)

    client.begin_transactions()
    produce(task.warm_up)
    return _measured(task, task.count, lambda: produce(task.count))


def _trickle(client: Client, task: Task) -> Outcome:
    """Records one by one to all topics in turn, on a timetable.

    The value is the server's processor time for what 60 s of the timetable sent, however long after
    it the last record was acknowledged.
    """
    value = secrets.token_bytes(task.value_bytes)
    topics = itertools.cycle(task.topics)

    def send(count: int) -> None:
        begin = time.perf_counter()
        for number in range(count):
            time.sleep(max(begin + number / task.rate - time.perf_counter(), 0.0))
            client.produce_one(value, next(topics))
        # Waits for the last ones, and fails unless all were delivered.
        client.produce(iter(()), callbacks=False)

    send(task.warm_up)
    outcome = _measured(task, task.count, lambda: send(task.count))
    planned_s = task.count / task.rate
    outcome.more = {"late_s": round(task.count / max(outcome.value, 1) - planned_s, 1)}
    outcome.value = round(outcome.server_cpu_s * 60 / planned_s, 2)
    return outcome


def _produce_batches(client: Client, task: Task) -> Outcome:
    batches = [
        pa.record_batch(
            {
                "key": _random_column(BATCH_ROWS, _KEY_BYTES),
                "value": _random_column(BATCH_ROWS, task.value_bytes),
            }
        )
        for _ in range(20)
    ]
    client.produce_batches(batches, task.warm_up)
    return _measured(task, task.count, lambda: client.produce_batches(batches, task.count))


def _consume(client: Client, task: Task, consume: Callable[[int], None]) -> Outcome:
    client.begin_reading()
    consume(task.warm_up)
    return _measured(task, task.count, lambda: consume(task.count))


def _latency(client: Client, task: Task) -> Outcome:
    """Produce to poll, one thread each, on a timetable that waits for nobody."""
    total = task.warm_up + task.count
    client.begin_reading()
    latencies_ms: list[float] = []
    outcome = _measured(task, total, lambda: latencies_ms.extend(_latencies_ms(client, task)))
    return _percentiles(outcome, latencies_ms[task.warm_up :])


def _latencies_ms(client: Client, task: Task) -> list[float]:
    total = task.warm_up + task.count
    seen = np.zeros(total)
    got = 0
    ends_at = time.monotonic() + DEADLINE_S
    with sending(client, total, task.rate, task.value_bytes) as sent:
        while got < total and time.monotonic() < ends_at:
            value = client.poll(0.5)
            if value is not None:
                (number,) = NUMBER.unpack_from(value)
                seen[number] = time.perf_counter()
                got += 1
    if got < total:
        raise RuntimeError(f"{total - got} records did not come")
    return [float(one) for one in (seen - sent) * 1000]


@contextlib.contextmanager
def sending(
    client: Client, count: int, rate: float, value_bytes: int, first: int = 0
) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    """A thread sends numbered records, on a timetable that waits for nobody; gives when each was
    sent, by `time.perf_counter`.

    Args:
        rate: Records a second.
        first: The number of the first.
    """
    sent = np.zeros(count)
    padding = bytes(value_bytes - NUMBER.size)
    stop = threading.Event()

    def send() -> None:
        begin = time.perf_counter()
        for number in range(count):
            if stop.wait(max(begin + number / rate - time.perf_counter(), 0)):
                return
            sent[number] = time.perf_counter()
            client.produce_one(NUMBER.pack(first + number) + padding)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield sent
    finally:
        stop.set()
        sender.join()


def _percentiles(outcome: Outcome, times_ms: list[float]) -> Outcome:
    p50, p99 = np.percentile(times_ms, [50, 99])
    outcome.value, outcome.more = round(float(p50), 3), {"p99": round(float(p99), 3)}
    return outcome


ROWS: Final[dict[str, Callable[[Any, Task], Outcome]]] = {
    "produce": lambda client, task: _produce(client, task, _random_records(task)),
    "produce_callbacks": lambda client, task: _produce(
        client, task, _random_records(task), callbacks=True
    ),
    "produce_flights": lambda client, task: _produce(client, task, _flights(task)),
    "one_at_a_time": _one_at_a_time,
    "memory": _memory,
    "produce_batches": _produce_batches,
    "consume": lambda client, task: _consume(client, task, client.consume),
    "consume_batches": lambda client, task: _consume(client, task, client.consume_batches),
    "latency": _latency,
    "transactions": _transactions,
    "trickle": _trickle,
}


def _measured(task: Task, count: int, work: Callable[[], None]) -> Outcome:
    print(BEGINS, file=sys.stderr, flush=True)
    own_pid = os.getpid()
    reset_peak(task.server_pid)
    reset_peak(own_pid)
    server_before, before = cpu_s(task.server_pid), _own_cpu_s()
    with call_tree(task.call_tree):
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
    return Outcome(
        round(count / seconds),
        round(_own_cpu_s() - before, 3),
        round(cpu_s(task.server_pid) - server_before, 3),
        peak_bytes(own_pid),
        peak_bytes(task.server_pid),
        records=count,
    )


@contextlib.contextmanager
def call_tree(path: str) -> Iterator[None]:
    """Samples this thread with pyinstrument, if there is a `path`, and writes the calls as HTML."""
    if not path:
        yield
        return
    from pyinstrument import Profiler

    with Profiler(interval=_CALL_TREE_INTERVAL_S, async_mode="disabled") as profiler:
        yield
    Path(path).write_text(profiler.output_html(), encoding="utf-8")


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _random_column(rows: int, size: int) -> pa.Array:
    offsets = np.arange(rows + 1, dtype=np.int32) * size
    data = pa.py_buffer(secrets.token_bytes(rows * size))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


def client_of(task: Task) -> Any:
    """The system's `Client`, NATS's for some rows only. Who measures a system needs its package."""
    if task.system == MAINSTEM:
        from benchmarks.kafka.mainstem_client import Mainstem

        return Mainstem(task)
    if task.system == KAFKA:
        from benchmarks.kafka.kafka_client import Kafka

        return Kafka(task)
    from benchmarks.kafka.nats_client import Nats

    return Nats(task)


def main() -> None:
    """Measures, and prints the outcome."""
    task = Task(**json.loads(sys.argv[1]))
    client = client_of(task)
    try:
        outcome = ROWS[task.row](client, task)
    finally:
        client.close()
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
