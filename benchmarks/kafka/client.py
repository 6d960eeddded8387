"""What a measurement asks of a system's client, and what two of the clients do alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

#: Of the batches that `produce_batches` gets.
BATCH_ROWS: Final = 10_000

#: For all that a client has to wait for.
DEADLINE_S: Final = 300.0


@dataclass(slots=True)
class Task:
    """What is measured.

    Attributes:
        system: As in `row.py`.
        row: The name of a function of `ROWS`.
        config: Settings of the client beside `bootstrap.servers`.
        topics: Beside `topic`, of rows that need many.
        server_pid: Whose processor time and memory are noted.
        call_tree: The file for the calls of the thread that measures; empty: it is not sampled.
    """

    system: str
    row: str
    address: str
    topic: str
    partitions: int
    server_pid: int
    count: int
    warm_up: int
    value_bytes: int = 100
    rate: float = 200.0
    config: dict[str, Any] = field(default_factory=dict)
    topics: list[str] = field(default_factory=list)
    call_tree: str = ""

    @property
    def produces(self) -> bool:
        """The row needs a producer."""
        return not self.row.startswith("consume")

    @property
    def reads(self) -> bool:
        """The row needs a consumer."""
        return self.row.startswith(("consume", "latency", "memory"))


class Client(Protocol):
    """What rows ask of a system."""

    def produce(self, records: Iterator[tuple[bytes, bytes]], *, callbacks: bool) -> None: ...
    def produce_batches(self, batches: list[pa.RecordBatch], count: int) -> None: ...
    def consume(self, count: int) -> None: ...
    def consume_batches(self, count: int) -> None: ...
    def poll(self, timeout_s: float) -> bytes | None: ...
    def produce_one(self, value: bytes, topic: str = "") -> None: ...
    def begin_transactions(self) -> None: ...
    def produce_transactions(self, records: Iterator[tuple[bytes, bytes]], size: int) -> None: ...
    def produce_and_wait(self, key: bytes, value: bytes) -> None: ...
    def begin_reading(self) -> None: ...
    def close(self) -> None: ...


def produce_and_wait(producer: Any, topic: str, key: bytes, value: bytes) -> None:
    """Both clients' calls have the same names."""
    failed: list[Any] = []

    def done(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(topic, value, key, on_delivery=done)
    if producer.flush(DEADLINE_S) or failed:
        raise RuntimeError(f"not delivered: {failed}")


def in_transactions(
    producer: Any, topic: str, records: Iterator[tuple[bytes, bytes]], size: int
) -> None:
    """Of so many records each; both clients' calls have the same names."""
    produce = producer.produce
    while some := list(itertools.islice(records, size)):
        producer.begin_transaction()
        for key, value in some:
            produce(topic, value, key)
        producer.commit_transaction(DEADLINE_S)
