"""A task that runs twice at a time, as Spark's speculation has it, writes its records once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import deltalake
import pytest
from tests.length import FULL

from mainstem.client import AdminClient, Producer
from mainstem.testing import GatewayProcess

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not FULL, reason="three Java processes take a minute: make test-fault"),
]

RECORDS: Final = 400
PARTITIONS: Final = 4
DEADLINE_S: Final = 500.0


def test_a_task_that_runs_twice_at_a_time_writes_its_records_once(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "warehouse") as gateway:
        servers = {"bootstrap.servers": gateway.address}
        with AdminClient(servers) as admin, Producer(servers) as producer:
            for topic in ("in", "out"):
                admin.create_topic(topic, PARTITIONS)
            for number in range(RECORDS):
                producer.produce("in", b"%d" % number, partition=number % PARTITIONS)
        script = Path(__file__).with_name("speculative_process.py")
        attempts = tmp_path / "attempts"
        attempts.mkdir()
        subprocess.run(
            [sys.executable, script, gateway.warehouse, gateway.address, attempts],
            check=True,
            timeout=DEADLINE_S,
        )
        table = deltalake.DeltaTable(gateway.warehouse / "topics" / "out").to_pyarrow_table()
        with AdminClient(servers) as admin:
            left = [one.state for one in admin.list_transactions()]
    seen = {one.name for one in attempts.glob("0-*")}
    assert seen >= {"0-0", "0-1", "0-1.passed"}, "no second attempt ran beside the first"
    assert sorted(table["value"].to_pylist()) == sorted(b"%d" % n for n in range(RECORDS))
    assert "prepared" not in [state.lower() for state in left]
