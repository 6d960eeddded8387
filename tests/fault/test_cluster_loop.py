"""Three gateways that go and come back in every way: nothing is lost, twice or out of order, and
what a reader of the durable mark was given is in the table.

`make test` runs this with a few faults, `make test-fault` (MAINSTEM_TEST_FAULTS=full) for 20
minutes. MAINSTEM_TEST_SEED repeats the faults of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.cluster_loop import (
    FEW_CONSUMERS,
    FEW_PRODUCERS,
    ClusterLoop,
    ClusterReport,
    run_cluster_loop,
)
from tests.length import FULL

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

SIZE = (
    ClusterLoop(1_200.0)
    if FULL
    else ClusterLoop(0.0, (0.2, 0.5), producers=FEW_PRODUCERS, consumers=FEW_CONSUMERS)
)


@pytest.mark.timeout(2_400 if FULL else 120)
def test_three_gateways_on_one_warehouse_keep_every_promise_while_they_go_and_come_back(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_cluster_loop(tmp_path, seed, SIZE)
    report(result)
    check(result)


def check(result: ClusterReport) -> None:
    """Every promise was kept, and there was occasion to break them."""
    assert result.judgement.ok, str(result)
    assert result.judgement.verdict.acknowledged_count.keys() == {"0", "1", "all"}
    assert result.handed_over_count > 0
    assert all(result.given.values())
