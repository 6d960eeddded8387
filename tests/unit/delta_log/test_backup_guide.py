"""A copy of a live topic as `docs/guides/backup.md` has it: whole, with all that was there."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.length import FULL
from tests.unit.delta_log.tables import append, create_table

from mainstem.delta_log import LocalStore, load_table
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.upkeep import LiveTable, create_checkpoint
from mainstem.delta_log.verify import verify_named

COPIES = 12 if FULL else 4
GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/backup.md"


def _script() -> str:
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "copy-topic.sh" in block)
    copying, _, verifying = code.rpartition("mainstem cluster verify")
    assert verifying, "the last line verifies, which the test does in its own process"
    return str(copying)


@pytest.mark.fault
@pytest.mark.slow
def test_every_copy_of_a_topic_under_load_is_whole_and_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    warehouse = LocalStore(tmp_path / "warehouse")
    store = StoreFolder(warehouse, "topics/t")
    state = create_table(store)
    stop = threading.Event()
    acknowledged = [0]

    def write() -> None:
        while not stop.is_set():
            append(store, state, state.version % 4)
            acknowledged[0] = state.version
            if state.version % 20 == 0:
                create_checkpoint(store, LiveTable.of(state))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(COPIES):
            while acknowledged[0] < 15 * number:
                time.sleep(0.005)
            before = acknowledged[0]
            copy = tmp_path / f"copy{number}"
            command = ["bash", "-c", _script(), "copy-topic.sh", warehouse.uri, "t", str(copy)]
            subprocess.run(command, check=True, timeout=60)
            target = LocalStore(copy)
            report = verify_named(target, "t")
            assert report.ok, report.findings
            assert report.table_version >= before
            assert DeltaTable(copy / "topics/t").version() == report.table_version
            bound = StoreFolder(target, "topics/t")
            assert load_table(bound).version == report.table_version
            target.close()
    finally:
        stop.set()
        writer.join()
        warehouse.close()
    assert state.version >= 15 * (COPIES - 1)
    assert load_table(LocalStore(tmp_path / f"copy{COPIES - 1}/topics/t")).checkpoint_version > 0
