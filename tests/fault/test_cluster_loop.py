"""Three gateways that go and come back in every way: nothing is lost, twice or out of order, and
what a reader of the durable mark was given is in the table.

`make test` runs this with a few faults, `make test-fault` (MAINSTEM_TEST_FAULTS=full) for 20
minutes. MAINSTEM_TEST_SEED repeats the faults of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.fault.cluster_loop import (
    FEW_CONSUMERS,
    FEW_PRODUCERS,
    ClusterLoop,
    ClusterReport,
    on_s3,
    run_cluster_loop,
)
from tests.length import FULL
from tests.s3_server import S3Server

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


#: Each fault takes as long as several sessions, and what is behind is read in about a minute.
ON_S3 = ClusterLoop(120.0, producers=FEW_PRODUCERS, consumers=FEW_CONSUMERS)


@pytest.mark.timeout(900)
def test_three_gateways_on_a_bucket_that_is_slow_and_fails_keep_every_promise(
    tmp_path: Path,
    versitygw: S3Server,
    seed: int,
    report: Callable[[object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in versitygw.options.items():
        monkeypatch.setenv(name, value)
    made = partial(on_s3, server=versitygw, seed=seed)
    result = run_cluster_loop(tmp_path, seed, ON_S3, made)
    report(result)
    check(result)


def check(result: ClusterReport) -> None:
    """Every promise was kept, and there was occasion to break them."""
    assert result.judgement.ok, str(result)
    assert result.judgement.verdict.acknowledged_count.keys() == {"0", "1", "all"}
    assert result.handed_over_count > 0
    assert all(result.given.values())
