"""`df.write` and `df.writeStream` with `.format("mainstem")`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.conftest import WAIT_S

from mainstem.client import AdminClient, Producer
from mainstem.testing import GatewayProcess


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One with the topics `in` and `out`, of 2 partitions."""
    with GatewayProcess(tmp_path_factory.mktemp("warehouse")) as process:
        yield process


@pytest.fixture(autouse=True)
def topics(gateway: GatewayProcess) -> None:
    """`in`, with the values 0 to 39, and `out`, with none."""
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        for name in ("in", "out"):
            if any(one.topic == name for one in admin.list_topics()):
                admin.delete_topic(name)
            admin.create_topic(name, 2)
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number in range(40):
            producer.produce("in", str(number), str(number))


def _to(gateway: GatewayProcess, writer: Any, **options: str) -> Any:
    return writer.format("mainstem").options(
        **{"mainstem.bootstrap.servers": gateway.address, "topic": "out", **options}
    )


def _out(spark: SparkSession, gateway: GatewayProcess) -> list[str]:
    rows = (
        spark.read.format("mainstem")
        .options(**{"mainstem.warehouse": str(gateway.warehouse), "subscribe": "out"})
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .collect()
    )
    return sorted(row.value for row in rows)


def _left(gateway: GatewayProcess) -> int:
    """How many transactions are open, prepared or under way."""
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        return len(admin.list_transactions())


def _query(
    spark: SparkSession, gateway: GatewayProcess, checkpoint: Path, **options: str
) -> DataStreamWriter:
    """From `in` to `out`."""
    frame = (
        spark.readStream.format("mainstem")
        .options(
            **{
                "mainstem.warehouse": str(gateway.warehouse),
                "subscribe": "in",
                "startingOffsets": "earliest",
            }
        )
        .load()
        .selectExpr("key", "'x' || CAST(value AS STRING) AS value")
    )
    writer: DataStreamWriter = _to(gateway, frame.writeStream, **options)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


def _run(writer: DataStreamWriter) -> None:
    query = writer.start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()


def test_a_batch_is_written_whole_or_not_at_all_and_once_by_its_name(
    spark: SparkSession, gateway: GatewayProcess
) -> None:
    frame = spark.range(100, numPartitions=3).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value", "'out' AS topic"
    )
    named = {"txnAppId": "nightly", "txnVersion": "3"}
    for _ in range(2):
        _to(gateway, frame.write.mode("append"), **named).save()
    everything = sorted(map(str, range(100)))
    assert _out(spark, gateway) == everything

    failing = frame.selectExpr("IF(key = 99, raise_error('no'), key) AS value")
    with pytest.raises(PySparkException, match="no"):
        _to(gateway, failing.write.mode("append")).save()
    assert _out(spark, gateway) == everything
    assert _left(gateway) == 0

    with pytest.raises(PySparkException, match="'key' is bigint; it must be string or binary"):
        _to(
            gateway, spark.range(1).selectExpr("id AS key", "'v' AS value").write.mode("append")
        ).save()
    with pytest.raises(PySparkException, match="a topic is a log"):
        _to(gateway, frame.write.mode("overwrite")).save()
    with pytest.raises(AnalysisException, match="Append"):
        _to(gateway, frame.write).save()


def test_an_epoch_that_is_run_again_is_not_written_again(
    spark: SparkSession, gateway: GatewayProcess, tmp_path: Path
) -> None:
    expected = sorted(f"x{number}" for number in range(40))
    checkpoint = tmp_path / "checkpoint"
    _run(_query(spark, gateway, checkpoint))
    assert _out(spark, gateway) == expected
    # As after a driver that was killed when its last epoch was in the topic, and not yet in the
    # checkpoint.
    committed = checkpoint / "commits" / "0"
    committed.unlink()
    committed.with_name(".0.crc").unlink(missing_ok=True)
    _run(_query(spark, gateway, checkpoint))
    assert committed.exists()
    assert _out(spark, gateway) == expected
    assert _left(gateway) == 0
    # Another checkpoint is another query.
    _run(_query(spark, gateway, tmp_path / "fresh"))
    assert _out(spark, gateway) == sorted(expected * 2)


def test_a_query_that_cannot_write_says_why_and_goes_on_when_it_can(
    spark: SparkSession, gateway: GatewayProcess, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(StreamingQueryException, match="topic 'nowhere'"):
        _run(_query(spark, gateway, checkpoint, topic="nowhere"))
    assert _left(gateway) == 0
    _run(_query(spark, gateway, checkpoint))
    assert len(_out(spark, gateway)) == 40


def test_in_foreach_batch_each_batch_is_written_once_by_app_and_version(
    spark: SparkSession, gateway: GatewayProcess, tmp_path: Path
) -> None:
    def twice(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            name = {"txnAppId": f"copy-{tmp_path.name}", "txnVersion": str(batch_id)}
            _to(gateway, frame.write.mode("append"), **name).save()

    frame = (
        spark.readStream.format("mainstem")
        .options(
            **{
                "mainstem.warehouse": str(gateway.warehouse),
                "subscribe": "in",
                "startingOffsets": "earliest",
            }
        )
        .load()
    )
    _run(
        frame.writeStream.foreachBatch(twice)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert _out(spark, gateway) == sorted(map(str, range(40)))
