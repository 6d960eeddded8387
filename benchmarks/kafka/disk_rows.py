"""The row of bytes on the disk: a year's flights from New York, as JSON, as the demo produces them.

Of ours counts what the table refers to after compaction, and its log; of Kafka's the segments,
without their indexes.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka.compaction import compact
from benchmarks.kafka.row import KAFKA, MAINSTEM, Outcome, Row, Variant
from benchmarks.kafka.systems import Systems

from mainstem.cli.demo.data import DemoRecord, read_flights, records
from mainstem.delta_log import LocalStore, Topics

_DEADLINE_S: Final = 300.0
_MB: Final = 1e6

#: A topic of a table is in a folder of its name, with its log in this one.
_LOG: Final = "_delta_log"


def _measure(systems: Systems, variant: Variant, scale: float) -> Outcome:
    """One turn; `--scale` takes the year's first part."""
    flights = read_flights()
    wanted = list(islice(records(flights, "carrier"), max(round(flights.num_rows * scale), 1)))
    topic = systems.new_topic(variant.system, config=variant.topic)
    plain_mb = sum(len(one.key) + len(one.value) for one in wanted) / _MB
    if variant.system == KAFKA:
        _produce_to_kafka(systems, topic, variant, wanted)
        stored = systems.broker.data_bytes(topic)
        return Outcome(round(stored / _MB, 3), more={"records_mb": round(plain_mb, 3)})
    _produce(systems, topic, variant, wanted)
    warehouse = systems.gateway.warehouse
    before, before_files = _table_bytes(warehouse, topic)
    compact(warehouse, topic)
    after, after_files = _table_bytes(warehouse, topic)
    return Outcome(
        round(after / _MB, 3),
        more={
            "uncompacted_mb": round(before / _MB, 3),
            "uncompacted_files": before_files,
            "files": after_files,
            "records_mb": round(plain_mb, 3),
        },
    )


def _produce(systems: Systems, topic: str, variant: Variant, wanted: list[DemoRecord]) -> None:
    from mainstem.client import Producer

    servers = {"bootstrap.servers": systems.address(MAINSTEM)}
    with Producer({**servers, **variant.config}) as producer:
        for one in wanted:
            producer.produce(topic, one.value, one.key, timestamp=one.timestamp_ms)
        _flush(producer)


def _produce_to_kafka(
    systems: Systems, topic: str, variant: Variant, wanted: list[DemoRecord]
) -> None:
    from confluent_kafka import Producer

    servers = {"bootstrap.servers": systems.address(KAFKA), "enable.idempotence": True}
    producer = Producer({**servers, **variant.config})
    for one in wanted:
        while True:
            try:
                producer.produce(topic, one.value, one.key, timestamp=one.timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)
    _flush(producer)


def _flush(producer: Any) -> None:
    if producer.flush(_DEADLINE_S):
        raise RuntimeError("not everything was delivered")


def _table_bytes(warehouse: Path, topic: str) -> tuple[int, int]:
    """What the latest version of a table refers to, and its log; and the number of data files."""
    store = LocalStore(warehouse)
    try:
        state = Topics(store).open(topic).state
        folder = _folder(warehouse, topic)
        log = sum(path.stat().st_size for path in (folder / _LOG).rglob("*") if path.is_file())
        return state.size_bytes + log, state.file_count
    finally:
        store.close()


def _folder(warehouse: Path, topic: str) -> Path:
    (log,) = warehouse.rglob(f"{topic}/{_LOG}")
    return log.parent


#: Batches are as large as the client makes them, so that codecs have much to compress at a time.
_LINGER: Final = {"linger.ms": 100}

#: The flights are of 2013: a retention of days would remove them.
_KEPT: Final = {"retention.ms": "-1"}

ROWS: Final = (
    Row(
        "disk, flights as JSON",
        "MB",
        (
            Variant("mainstem", MAINSTEM, topic=_KEPT),
            Variant("Kafka, plain", KAFKA, _LINGER, _KEPT),
            Variant("Kafka, lz4", KAFKA, {**_LINGER, "compression.type": "lz4"}, _KEPT),
            Variant("Kafka, zstd", KAFKA, {**_LINGER, "compression.type": "zstd"}, _KEPT),
        ),
        _measure,
        round(1 / 0.95, 3),
        lower_is_better=True,
    ),
)
