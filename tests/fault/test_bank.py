"""Transfers between topics while gateways, coordinator and tellers are killed and frozen: at every
moment the sum is right, no transfer is torn, none is lost or doubled, and nothing aborted is read.

`make test` does it for some seconds; MAINSTEM_TEST_FAULTS=full for some minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.bank import Size, run_bank
from tests.length import FULL

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

SIZE = Size(200, 60_000, gateways=3, timeout_s=600.0) if FULL else Size(5, 1_000, tellers=2)


@pytest.mark.timeout(1_800 if FULL else 300)
def test_no_transfer_is_torn_lost_doubled_or_read_before_it_is_committed(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_bank(tmp_path, seed, SIZE)
    report(result)
    assert result.ok, str(result)
    assert result.booked == SIZE.requests
    assert result.looks
