"""Keyed compaction, killed at each of its writes: all of it is in the table, or nothing."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.jobs.keyed_logs import EAGER, append_rows, run
from tests.unit.jobs.topic_tables import Appends, all_records, check_verified

from mainstem.delta_log import LocalStore, Topics
from mainstem.jobs.job import NOTHING

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("keyed_compaction_process.py")

#: The process that is killed has the real time.
OLD_MS = 1_700_000_000_000

#: More writes than a run of two partitions makes: new files, the commit, the history.
WRITES_MAX = 20


def content(warehouse: Path) -> dict[int, list[int]]:
    """The offsets of each partition. The table verifies."""
    store = LocalStore(warehouse / "topics" / "t", create=False)
    try:
        check_verified(store)
        found = all_records(store)
        return {partition: [one.offset for one in found[partition]] for partition in found}
    finally:
        store.close()


def finish(warehouse: Path) -> None:
    """Runs the job to its end, and once more for nothing."""
    store = LocalStore(warehouse)
    try:
        run(Topics(store), OLD_MS)
        assert run(Topics(store), OLD_MS) == NOTHING
    finally:
        store.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_write_leaves_the_table_as_it_was_or_as_it_should_be(
    tmp_path: Path, when: str
) -> None:
    original = tmp_path / "original"
    store = LocalStore(original)
    topics = Topics(store)
    topics.create("t", 2, {**EAGER, "delete.retention.ms": 0})
    log = Appends(topics.open("t"))
    for partition in (0, 1):
        rows = [(b"%d" % (n % 4), None if n == 9 else b"%d" % n) for n in range(12)]
        append_rows(log, rows, modified_ms=OLD_MS, partition=partition)
    store.close()
    untouched = content(original)
    compacted = {partition: [8, 10, 11] for partition in (0, 1)}

    seen = []
    for at in range(1, WRITES_MAX):
        warehouse = tmp_path / f"{at}"
        shutil.copytree(original, warehouse)
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(warehouse), str(at), when], timeout=60, check=False
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        seen.append(content(warehouse))
        assert seen[-1] in (untouched, compacted)
        finish(warehouse)
        assert content(warehouse) == compacted
    else:
        raise AssertionError("a run makes more writes than expected")
    # Two new files and the commit, and then only the history: the change is in one write.
    assert seen[:2] == [untouched] * 2
    assert seen[2] == (untouched if when == "before" else compacted)
    assert seen[3:] == [compacted] * (len(seen) - 3)
    assert len(seen) > 3
