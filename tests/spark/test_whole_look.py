"""SQL over several topics while transactions go on: whole transactions only, where asked for."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.length import FULL

from mainstem.client import AdminClient, Producer
from mainstem.jobs import register_topics, run_sql
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOPICS = ["a", "b"]

ALL = " UNION ALL ".join(f"SELECT CAST(CAST(value AS STRING) AS INT) v FROM {t}" for t in TOPICS)


@contextmanager
def transfers(address: str) -> Iterator[threading.Event]:
    """Transactions one after the other, each of two records in two topics whose sum is 0."""
    stop, begun = threading.Event(), threading.Event()

    def run(seed: int) -> None:
        dice = random.Random(seed)
        config = {"bootstrap.servers": address, "transactional.id": f"bank-{seed}"}
        with Producer(config) as producer:
            producer.init_transactions()
            while not stop.is_set():
                with producer.transaction():
                    debit, credit = dice.sample(TOPICS, 2)
                    producer.produce(debit, b"-1")
                    producer.produce(credit, b"1")
                begun.set()
                stop.wait(0.02)  # a table of few versions is read soon

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield begun
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def test_a_consistent_query_never_sees_half_of_a_transaction(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The short form asks when the transactions are over: each version that Delta goes back to
    takes it seconds."""
    with GatewayProcess(tmp_path) as gateway, ExitStack() as under_way:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, 1)
        assert under_way.enter_context(transfers(gateway.address)).wait(60)
        if not FULL:
            under_way.close()
        counts = []
        for _ in range(5 if FULL else 1):
            statement = f"SELECT sum(v), count(*) FROM ({ALL})"
            result = run_sql(tmp_path, statement, spark=spark, consistent=True)
            ((total, count),) = result.rows
            assert total in (0, None), f"half of a transaction in {count} records"
            counts.append(count)
            read = spark.read.format("mainstem").options(
                **{"mainstem.warehouse": str(tmp_path), "subscribe": "a,b"},
                **{"mainstem.consistent": "true"},
            )
            rows = read.load().selectExpr("CAST(CAST(value AS STRING) AS INT) v").collect()
            assert sum(row.v for row in rows) == 0, f"half of a transaction in {len(rows)} records"
            counts.append(len(rows))
        register_topics(spark, tmp_path, TOPICS, consistent=True)
        for _ in range(2):  # the views stand for one moment
            row = spark.sql(f"SELECT sum(v) s, count(*) n FROM ({ALL})").collect()[0]
            assert row.s == 0
            counts.append(row.n)
    assert counts == sorted(counts)
    assert counts[-1] == counts[-2] >= 2, "the look is not one of newer versions"
