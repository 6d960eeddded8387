"""Loss of power at any step: what was acknowledged is there, once, in its place."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.length import FULL
from tests.unit.delta_log.crashing_log import CrashingLog

#: Crashes of one warehouse before it is judged, and a new one begins.
CRASHES = 10


def _directory() -> Path:
    """In memory where there is such a place: the syncs are simulated, the disk is only slow."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))


def _crash(count: int, seed: object, lies_about: frozenset[str] = frozenset()) -> list[str]:
    """The findings of `count` crashes, all decided by the seed; stops at the first ones."""
    crashes = 0
    number = 0
    while crashes < count:
        rng = random.Random(f"{seed}:{number}")
        directory = _directory()
        try:
            log = CrashingLog(directory, rng, lies_about)
            for _ in range(min(CRASHES, count - crashes)):
                log.crash(rng.randint(1, 160))
                if log.findings:
                    break
            crashes += log.crashes
            findings = log.findings or log.settle()
        finally:
            shutil.rmtree(directory)
        if findings:
            return [f"seed {seed!r}, warehouse {number}: {one}" for one in findings]
        number += 1
    return []


@pytest.mark.slow
def test_no_acknowledged_record_is_lost_or_doubled_by_150_losses_of_power(seed: int) -> None:
    assert _crash(150, seed) == []


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(900)
def test_no_acknowledged_record_is_lost_or_doubled_by_3000_losses_of_power(seed: int) -> None:
    assert _crash(3_000, f"long {seed}") == []


@pytest.mark.parametrize("sync", ["directory", "file", "wal"])
def test_the_simulated_disk_catches_a_log_that_leaves_out_a_sync(sync: str, seed: int) -> None:
    assert _crash(300, seed, frozenset([sync])) != []
