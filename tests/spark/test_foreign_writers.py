"""Foreign writers against the tables of a gateway at work: refused, while every reader reads."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.length import FULL

from mainstem.client import AdminClient, Consumer, Producer
from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.testing import GatewayProcess

STATEMENTS = (
    "INSERT INTO {table} SELECT * FROM {table}",
    "DELETE FROM {table} WHERE offset >= 0",
    "OPTIMIZE {table}",
    "VACUUM {table} RETAIN 1000 HOURS",
    "ALTER TABLE {table} ADD COLUMNS (mine int)",
)
WRITES: tuple[Callable[[str], object], ...] = (
    lambda uri: write_deltalake(uri, DeltaTable(uri).to_pyarrow_table(), mode="append"),
    lambda uri: DeltaTable(uri).delete("offset >= 0"),
    lambda uri: DeltaTable(uri).optimize.compact(),
)
TABLES = ("topics/orders", "system/producer_ids", "system/consumer_offsets")


@contextlib.contextmanager
def _load(address: str, acknowledged: list[int]) -> Iterator[None]:
    """Produces numbered records, one commit after the other, while the block lasts."""
    over = threading.Event()

    def produce() -> None:
        with Producer({"bootstrap.servers": address, "linger.ms": 0}) as producer:
            number = 0
            while not over.is_set():
                producer.send("orders", b"%d" % number, partition=0).result(timeout=60)
                acknowledged.append(number)
                number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.mark.spark
@pytest.mark.fault  # with them it is long: every statement on every table
@pytest.mark.timeout(300)
def test_no_foreign_writer_changes_a_table_of_a_gateway_at_work_and_every_reader_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    acknowledged: list[int] = []
    with GatewayProcess(tmp_path / "w") as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("orders", 1, {"commit.interval.ms": 100})
        with _load(gateway.address, acknowledged):
            _commit_an_offset(gateway.address)
            for name in TABLES:
                uri = str(gateway.warehouse / name)
                several_files = name == "topics/orders"
                # What refuses a statement is the same line of each table's log.
                every = several_files or FULL
                for statement in STATEMENTS if every else STATEMENTS[:1]:
                    with _refused(r"(?s)mainstemLog", several_files or "OPTIMIZE" not in statement):
                        spark.sql(statement.format(table=f"delta.`{uri}`")).collect()
                for write in WRITES if every else WRITES[:1]:
                    with _refused(r"(?i)feature", several_files or write is not WRITES[-1]):
                        write(uri)
                assert spark.read.format("delta").load(uri).count() > 0
                assert DeltaTable(uri).to_pyarrow_table().num_rows > 0
                operations = {row["operation"] for row in DeltaTable(uri).history()}
                assert not operations & {"WRITE", "DELETE", "OPTIMIZE", "MERGE", "VACUUM START"}
    opened = Topics(LocalStore(gateway.warehouse)).open("orders")
    assert load_table(opened.store).log_end_offset(0) == len(acknowledged)
    values = spark.read.format("delta").load(str(gateway.warehouse / "topics/orders"))
    stored = [int(row.value) for row in values.orderBy("offset").select("value").collect()]
    assert stored == acknowledged


@contextlib.contextmanager
def _refused(message: str, must_be: bool) -> Iterator[None]:
    """Expects a refusal. Merging small files is no write where there is nothing to merge: without
    `must_be` it may also do nothing, which the table's history then shows."""
    try:
        yield
    except Exception as error:
        if not re.search(message, str(error)):
            raise
    else:
        assert not must_be, "it was not refused"


def _commit_an_offset(address: str) -> None:
    config = {
        "bootstrap.servers": address,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(config) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.consume(1, timeout=60)
        consumer.commit(asynchronous=False)
