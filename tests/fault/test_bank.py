"""Transfers between topics while gateways, coordinator and tellers are killed and frozen: at every
moment the sum is right, no transfer is torn, none is lost or doubled, and nothing aborted is read.

`make test` does it for some seconds; MAINSTEM_TEST_FAULTS=full for some minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault import bank
from tests.fault.bank import Size, run_bank
from tests.fault.newest_versions import newest_versions
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


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(300)
def test_the_newest_versions_of_all_topics_show_halves_which_the_onlooker_finds(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank, "whole_versions", newest_versions)
    result = run_bank(tmp_path, seed, Size(3, 1_500, tellers=2))
    assert result.torn, "the onlooker is blind"
    assert not result.wrong
