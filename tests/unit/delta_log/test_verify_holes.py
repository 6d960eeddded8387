"""Missing offsets are fine where keyed compaction has been, and damage everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.delta_log.tables import NOW_MS, append, commit, create_table

from mainstem.delta_log import LocalStore, load_table
from mainstem.delta_log.files import read_data_file, write_data_files
from mainstem.delta_log.format import Action, DataFile, Register, Remove, registers
from mainstem.delta_log.verify import verify_topic


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    """A table with offsets 0 to 8 of partition 0, three to a file."""
    found = LocalStore(tmp_path)
    state = create_table(found, 1)
    for _ in range(3):
        append(found, state, 0, 3)
    yield found
    found.close()


def files(store: LocalStore) -> list[DataFile]:
    return load_table(store).files(0).sorted()


def without(store: LocalStore, *gone: int, cleaned: int | None = None) -> None:
    """Takes offsets out of the table, as keyed compaction would, and sets its register."""
    actions: list[Action] = []
    for file in files(store):
        held = pa.Table.from_batches(read_data_file(store, file, 0, 2**62))
        mask = [one not in gone for one in held.column("offset").to_pylist()]
        if all(mask):
            continue
        actions.append(Remove(file.path, 0, file.size_bytes, NOW_MS, data_change=True))
        actions += write_data_files(
            store,
            0,
            held.filter(pa.array(mask)).to_batches(),
            target_bytes=1 << 20,
            compression_type="zstd",
            now_ms=NOW_MS,
        )
    if cleaned is not None:
        actions.append(Register(registers.cleaned(0), cleaned))
    commit(store, load_table(store).version + 1, actions, "KEYED COMPACTION")


def found(store: LocalStore) -> list[str]:
    report = verify_topic(store, "t")
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    ("gone", "end"),
    [((0,), 1), ((1,), 2), ((0, 1), 2), ((3, 4, 5), 6), ((2, 3), 4), ((7,), 8), ((8,), 9)],
    ids=str,
)
def test_a_hole_may_reach_as_far_as_compaction_has_seen(
    store: LocalStore, gone: tuple[int, ...], end: int
) -> None:
    without(store, *gone, cleaned=end)
    assert found(store) == []


@pytest.mark.parametrize(
    ("gone", "code"),
    [
        ((0,), "REGISTER_WRONG"),
        ((1,), "OFFSET_GAP"),
        ((3, 4, 5), "OFFSET_GAP"),
        ((2, 3), "OFFSET_GAP"),
        ((8,), "REGISTER_WRONG"),
        (tuple(range(9)), "REGISTER_WRONG"),
    ],
    ids=str,
)
def test_a_hole_that_reaches_further_is_found(
    store: LocalStore, gone: tuple[int, ...], code: str
) -> None:
    without(store, *gone, cleaned=gone[-1])
    assert set(found(store)) == {code}


def test_a_partition_may_be_empty_whose_every_record_was_compacted_away(
    store: LocalStore,
) -> None:
    without(store, *range(9), cleaned=9)
    assert files(store) == []
    assert found(store) == []


def test_compaction_cannot_have_seen_what_is_not_there_yet(store: LocalStore) -> None:
    without(store, 1, cleaned=10)
    assert found(store) == ["REGISTER_WRONG"]


def test_what_compaction_has_seen_does_not_become_less(store: LocalStore) -> None:
    without(store, 1, cleaned=6)
    without(store, 2, cleaned=5)
    assert found(store) == ["COMMIT_WRONG"]


def test_a_commit_that_removes_records_and_adds_others_is_found(store: LocalStore) -> None:
    first = files(store)[0]
    path = first.path.replace("partition=0/", "partition=0/copy-")
    with store.open(files(store)[1].path) as source:
        table = pq.read_table(source)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.put(path, sink.getvalue())
    actions: list[Action] = [
        Remove(first.path, 0, first.size_bytes, NOW_MS, data_change=True),
        DataFile(path, 0, 3, 5, 3, sink.getvalue().size, NOW_MS, NOW_MS, NOW_MS),
        Register(registers.cleaned(0), 3),
    ]
    commit(store, load_table(store).version + 1, actions, "KEYED COMPACTION")
    assert "COMMIT_WRONG" in found(store)
