"""Whoever does exactly what `cluster verify` advises is rid of the damage and has lost nothing.

The advice to mend a log with `log-cleanup` is tried in `tests/unit/jobs/test_log_cleanup.py`. To
keep a table as it is, and to use another version of mainstem, changes nothing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.delta_log import test_verify as planted
from tests.unit.delta_log.test_verify import Table

from mainstem.delta_log import LocalStore, load_table
from mainstem.delta_log.files import read_data_file
from mainstem.delta_log.format import LAST_CHECKPOINT, checkpoint_path, commit_path
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.delta_log.verify import ADVICE

#: What is wrong without a change of the log, or with one of the log alone.
RESTORED: list[tuple[Callable[[Table], None], str]] = [
    (planted.a_data_file_is_missing, "FILE_MISSING"),
    (planted.a_data_file_is_cut_short, "FILE_SIZE"),
    (planted.a_data_file_is_garbage, "FILE_DAMAGED"),
    (planted.the_values_of_a_data_file_are_garbage, "FILE_DAMAGED"),
    (planted.a_bit_of_a_value_has_flipped, "FILE_DAMAGED"),
    (planted.the_newest_commit_file_is_empty, "LOG_DAMAGED"),
    (planted.a_commit_file_is_torn_behind_a_checkpoint, "LOG_DAMAGED"),
    (planted.a_bit_hides_the_checksum_of_a_commit_behind_a_checkpoint, "LOG_DAMAGED"),
]


@pytest.fixture
def table(store: LocalStore, tmp_path: Path) -> Table:
    return Table(StoreFolder(store, "topics/t"), tmp_path / "warehouse" / "topics" / "t")


def records(table: Table) -> list[list[dict[str, Any]]]:
    """Every record, by partition."""
    state = load_table(table.store)
    return [
        pa.Table.from_batches(
            batch
            for file in state.files(partition).sorted()
            for batch in read_data_file(table.store, file, -1, 2**62)
        ).to_pylist()
        for partition in range(state.partition_count)
    ]


@pytest.mark.parametrize(
    ("plant", "code"), RESTORED, ids=[f"{plant.__name__}: {code}" for plant, code in RESTORED]
)
def test_a_file_that_is_put_back_from_a_copy_makes_the_topic_whole_again(
    table: Table, tmp_path: Path, plant: Callable[[Table], None], code: str
) -> None:
    before = records(table)
    shutil.copytree(table.root, tmp_path / "copy")
    plant(table)
    findings = [one for one in table.verify().findings if one.code == code]
    assert findings
    for finding in findings:
        assert str(finding).endswith("restore the file from a copy of the store")
        named = re.search(r"(partition=\d+/\S+\.parquet|_delta_log/\d{20}\.json)", str(finding))
        assert named, "it does not say which file"
        shutil.copy2(tmp_path / "copy" / named[1], table.root / named[1])
    assert table.verify().findings == []
    assert records(table) == before


@pytest.mark.parametrize(
    "plant", [planted.the_checkpoint_lacks_a_file, planted.the_checkpoint_has_another_register]
)
def test_a_checkpoint_that_differs_from_the_commit_files_may_be_deleted_where_all_of_them_are_there(
    table: Table, plant: Callable[[Table], None]
) -> None:
    before = records(table)
    plant(table)
    findings = [one for one in table.verify().findings if one.code == "CHECKPOINT_WRONG"]
    assert findings
    assert "delete the checkpoint and `_last_checkpoint`" in str(findings[0])
    said = re.search(r"checkpoint (\d+) and", str(findings[0]))
    assert said
    (table.root / checkpoint_path(int(said[1]))).unlink()
    (table.root / LAST_CHECKPOINT).unlink()
    assert table.verify().findings == []
    assert records(table) == before


def test_nobody_is_told_to_delete_a_checkpoint_that_alone_has_what_was_in_older_commits(
    table: Table,
) -> None:
    """Without it the table could not be opened any more."""
    write_checkpoint(table.store)
    for version in (0, 1):
        (table.root / commit_path(version)).unlink()

    def change(line: dict[str, Any]) -> None:
        if "add" in line:
            line["add"]["size"] += 1

    table.edit(2, change)
    findings = [one for one in table.verify().findings if "differ in what they say of" in str(one)]
    assert findings
    for finding in findings:
        assert "delete" not in str(finding)
        assert "keep the table as it is" in str(finding)


def test_every_advice_that_changes_anything_is_tried() -> None:
    changing = {code for code, text in ADVICE.items() if "keep the table as it is" not in text}
    mended = {"CHECKPOINT_DAMAGED", "POINTER_WRONG"}  # by log-cleanup, in the tests of jobs
    assert changing == {code for _, code in RESTORED} | mended | {
        "CHECKPOINT_WRONG",
        "UNSUPPORTED_TABLE",
    }
