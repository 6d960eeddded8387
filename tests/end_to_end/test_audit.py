"""The audit of a gateway that is killed, and of one that is asked to stop."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from mainstem.client import AdminClient
from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import AppendedTable
from mainstem.delta_log.verify import verify_system_table
from mainstem.errors import MainstemError
from mainstem.testing import GatewayProcess

pytestmark = pytest.mark.end_to_end


def test_the_audit_of_a_gateway_that_is_killed_again_and_again_is_whole_and_has_no_row_twice(
    tmp_path: Path, rng: random.Random
) -> None:
    warehouse = tmp_path / "warehouse"
    made: list[str] = []
    for round_number in range(4):
        is_last = round_number == 3
        with GatewayProcess(warehouse, settings={"audit.enabled": "true"}) as gateway:
            killer = threading.Timer(rng.uniform(1.0, 2.5), gateway.kill)
            if not is_last:
                killer.start()
            with AdminClient({"bootstrap.servers": gateway.address}) as admin:
                for number in range(10 if is_last else 10_000):
                    try:
                        admin.create_topic(f"t-{round_number}-{number}", 1, timeout=5.0)
                    except MainstemError:
                        break
                    made.append(f"t-{round_number}-{number}")
            killer.cancel()
    store = LocalStore(warehouse)
    table = AppendedTable(store, "audit", retention_ms=86_400_000)
    rows = [row.value for row in table.newest_first()]
    report = verify_system_table(store, "audit")
    store.close()
    assert report.ok, report.findings
    names = [row["resources"][0] for row in rows]
    assert len(names) == len(set(names))
    # Of a gateway that was asked to stop all are there, of a killed one all but the last second's.
    last = [name for name in made if name.startswith("t-3-")]
    assert set(last) <= set(names)
    assert len(set(made) & set(names)) > len(last)
