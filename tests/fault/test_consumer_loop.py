"""Members that are paused, killed and restarted, and so is their gateway: no group loses its place.

`make test` brings faults for 25 s; `make test-fault` sets MAINSTEM_TEST_FAULTS=full: 10 minutes.
MAINSTEM_TEST_SEED repeats the faults of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.consumer_loop import SQLITE_GROUP, ConsumerLoop, run_consumer_loop

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

FULL = os.environ.get("MAINSTEM_TEST_FAULTS") == "full"
SIZE = ConsumerLoop(600.0) if FULL else ConsumerLoop(25.0)


@pytest.mark.timeout(1_500 if FULL else 600)
def test_every_record_reaches_every_group_and_no_committed_offset_goes_back(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_consumer_loop(tmp_path, seed, SIZE)
    report(result)
    assert result.judgement.ok, str(result)
    assert result.delivered[SQLITE_GROUP] > 0
    assert result.commits > 0
