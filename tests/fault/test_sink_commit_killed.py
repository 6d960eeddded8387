"""The gateway is killed while the driver of a Spark query commits an epoch: it is written once."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from tests.length import FULL

from mainstem.client import AdminClient
from mainstem.testing import GatewayProcess
from pyspark_mainstem._sink_commit import complete
from pyspark_mainstem._sink_options import SinkOptions
from pyspark_mainstem._sink_task import write_task

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS: Final = 20 if FULL else 2
ROWS: Final = 20
DEADLINE_S: Final = 60.0


def _written(gateway: GatewayProcess) -> int:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        written = sum(one.high_watermark for one in admin.describe_topic("out").partitions)
        deadline = time.monotonic() + DEADLINE_S
        # What every table has may still lack the row that says so.
        while left := admin.list_transactions():
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
    return written


def test_a_gateway_killed_at_any_moment_of_a_commit_has_written_the_epoch_once(
    tmp_path: Path, rng: random.Random
) -> None:
    with GatewayProcess(tmp_path / "warehouse") as gateway, ThreadPoolExecutor(1) as driver:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("out", 2)
        options = SinkOptions.parse(
            {"mainstem.bootstrap.servers": gateway.address, "topic": "out"}, stream=True
        )
        rows = [pa.RecordBatch.from_pydict({"value": [str(row) for row in range(ROWS)]})]

        def commit(epoch: int, tokens: list[str]) -> bool:
            return complete(
                options,
                "spark-query",
                epoch,
                tokens,
                commit=True,
                one_off=False,
                timeout_s=DEADLINE_S,
            )

        for epoch in range(ROUNDS):
            tokens = [write_task(rows, options, f"spark-query-{epoch}-{task}") for task in (0, 1)]
            committing = driver.submit(commit, epoch, tokens)
            time.sleep(rng.uniform(0.0, 0.03))
            gateway.kill()
            gateway.start()
            committing.result(DEADLINE_S)
            assert _written(gateway) == 2 * ROWS * (epoch + 1)
            # As a driver does that died before it heard of it.
            assert commit(epoch, [write_task(rows, options, f"spark-query-{epoch}-0")])
            assert _written(gateway) == 2 * ROWS * (epoch + 1)
