"""Verification finds every fault that is planted, names it, and finds none in a sound table."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.unit.delta_log.tables import NOW_MS, commit, commit_file, create_table, records

from mainstem.cli.root import cli
from mainstem.delta_log import LocalStore, ObjectStore, TableState, Topics, load_table
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.format import (
    Action,
    Batch,
    DataFile,
    ProducerBatch,
    Register,
    Remove,
    checkpoint_path,
    commit_path,
    registers,
)
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.system import ProducerIdsTable
from mainstem.delta_log.table import open_delta_table
from mainstem.delta_log.topics import SYSTEM
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.delta_log.verify import (
    ADVICE,
    CHECKS,
    FINDINGS_MAX,
    ROW_CHECKS,
    TopicReport,
    verify_topic,
)
from mainstem.errors import UnknownTopicError
from mainstem.records import records_to_wire_batch

ALICE = 7_000_000_001


class Table:
    """A topic table of two partitions, whose files and log a test may edit by hand.

    Partition 0: offsets 0-4 of nobody, 5-9 and 10-14 of producer ALICE; partition 1: offsets 0-2.
    """

    def __init__(self, store: ObjectStore, root: Path) -> None:
        self.store = store
        self.root = root
        self.state = create_table(store, 2)
        self.append(0, 5)
        self.append(0, 5, ProducerBatch(ALICE, 0, 0))
        self.append(1, 3)
        self.append(0, 5, ProducerBatch(ALICE, 0, 5))

    def file(
        self, partition: int, base: int, count: int, by: ProducerBatch | None = None
    ) -> DataFile:
        """A data file, written and in no commit."""
        file, data = encode_data_file(
            partition,
            base,
            [records(count, base)],
            timestamp_type=CREATE_TIME,
            compression_type="zstd",
            now_ms=NOW_MS,
            producers=[by],
        )
        self.store.put(file.path, data)
        return file

    def append(self, partition: int, count: int, by: ProducerBatch | None = None) -> DataFile:
        base = self.state.log_end_offset(partition)
        file = self.file(partition, base, count, by)
        actions: list[Action] = [file, Register(registers.leo(partition), base + count)]
        if by is not None:
            last = by.base_sequence + count - 1
            actions.append(Register(registers.producer(by.id, partition), last, NOW_MS))
        self.commit(actions, batches=[Batch(partition, base, count, by)])
        return file

    def commit(
        self,
        actions: Sequence[Action],
        operation: str = "APPEND",
        batches: Sequence[Batch] = (),
    ) -> None:
        one = commit(self.store, self.state.version + 1, actions, operation, batches)
        self.state.apply(self.state.version + 1, one.actions)

    def edit(self, version: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Rewrites the actions of a commit file in place."""
        path = self.root / commit_path(version)
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        for line in lines:
            change(line)
        path.write_bytes(commit_file(lines))

    def edit_stats(self, version: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the statistics of the files that a version adds."""

        def changed(line: dict[str, Any]) -> None:
            if "add" in line:
                stats = json.loads(line["add"]["stats"])
                change(stats)
                line["add"]["stats"] = json.dumps(stats)

        self.edit(version, changed)

    def rewrite(self, path: str, change: Callable[[pa.Table], pa.Table]) -> None:
        """Rewrites a data file; the log is told its new size, and of no checksum."""
        file = self.root / path
        with pq.ParquetFile(file) as parquet:
            table = parquet.read()
        pq.write_table(change(table), file, store_schema=False)
        size = file.stat().st_size

        def resized(line: dict[str, Any]) -> None:
            if line.get("add", {}).get("path") == path:
                line["add"]["size"] = size
                del line["add"]["tags"]

        for version in range(1, self.state.version + 1):
            self.edit(version, resized)

    def path(self, partition: int, index: int) -> str:
        return self.state.files(partition).sorted()[index].path

    def verify(self) -> TopicReport:
        return verify_topic(self.store, "t")


@pytest.fixture
def table(topics: Topics, store: LocalStore, tmp_path: Path) -> Any:
    return Table(StoreFolder(store, "topics/t"), tmp_path / "warehouse" / "topics" / "t")


def found(report: TopicReport) -> set[tuple[str, str]]:
    """(check, code) of what was found."""
    return {(result.check, one.code) for result in report.results for one in result.findings}


def set_column(table: pa.Table, name: str, values: Sequence[int | None]) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, name, pa.array(values, table.schema.field(name).type))


def test_a_sound_table_passes_every_check_and_each_says_how_much_it_looked_at(
    table: Table,
) -> None:
    report = table.verify()
    assert report.findings == []
    assert report.ok
    assert report.notes == ()
    assert (report.table_version, report.file_count, report.record_count) == (4, 4, 18)
    assert [result.check for result in report.results] == list(CHECKS)
    checked = {result.check: result.checked_count for result in report.results}
    assert checked["files"] == 4
    assert checked["offsets"] == 18
    assert checked["sequences"] == 10
    assert checked["commits"] == 5


def test_a_topic_without_a_record_passes(store: LocalStore, topics: Topics) -> None:
    topics.create("empty", 3)
    bound = StoreFolder(store, "topics/empty")
    assert verify_topic(bound, "empty").ok


def test_a_table_passes_after_a_checkpoint_and_without_its_old_commit_files(table: Table) -> None:
    write_checkpoint(table.store)
    assert table.verify().ok
    for version in range(4):
        (table.root / commit_path(version)).unlink()
    table.append(0, 2, ProducerBatch(ALICE, 0, 10))
    report = table.verify()
    assert report.findings == []
    assert report.record_count == 20
    assert {r.check: r.checked_count for r in report.results}["commits"] == 2


def test_a_clean_up_that_was_killed_leaves_gaps_and_is_no_finding(table: Table) -> None:
    write_checkpoint(table.store)
    table.append(0, 2, ProducerBatch(ALICE, 0, 10))
    for version in range(5):
        os.utime(table.root / commit_path(version), (0, 0))
    for version in (0, 2, 3):
        (table.root / commit_path(version)).unlink()
    report = table.verify()
    assert report.findings == []
    assert {r.check: r.checked_count for r in report.results}["commits"] == 3


def test_retention_and_trimming_from_the_front_pass(table: Table) -> None:
    first = table.state.files(0).sorted()[0]
    table.commit(
        [
            Remove(first.path, 0, first.size_bytes, NOW_MS, True),
            Register(registers.lso(0), 7),
        ],
        "RETENTION",
    )
    report = table.verify()
    assert report.findings == []
    assert "1 files" in report.notes[0]
    assert "not yet vacuumed" in report.notes[0]


def test_retention_of_everything_passes(table: Table) -> None:
    removes = [
        Remove(file.path, 0, file.size_bytes, NOW_MS, True)
        for file in table.state.files(0).sorted()
    ]
    table.commit([*removes, Register(registers.lso(0), 15)], "RETENTION")
    assert table.verify().findings == []


def test_an_ordered_compaction_passes(table: Table) -> None:
    old = table.state.files(0).sorted()[:1] + table.state.files(0).sorted()[1:2]
    merged = merge(table, old)
    table.commit(swap(old, merged), "COMPACT")
    assert table.verify().findings == []


def test_swaps_of_several_ranges_inside_a_commit_of_records_pass(table: Table) -> None:
    """As a leader rolls up, which does not swap neighbours only."""
    for _ in range(4):
        table.append(0, 2)
    files = table.state.files(0).sorted()
    swaps = [*swap(files[:2], merge(table, files[:2])), *swap(files[4:6], merge(table, files[4:6]))]
    new = table.file(0, 23, 3)
    batches = [Batch(0, 23, 3)]
    table.commit([new, Register(registers.leo(0), 26), *swaps], batches=batches)
    report = table.verify()
    assert report.findings == []
    assert (report.file_count, report.record_count) == (1 + 6, 29)


def test_a_new_epoch_of_a_producer_may_begin_at_sequence_0_again(table: Table) -> None:
    table.append(0, 2, ProducerBatch(ALICE, 1, 0))
    assert table.verify().findings == []


def test_a_topic_that_does_not_exist_or_was_deleted_is_an_error(
    table: Table, store: LocalStore
) -> None:
    table.commit([Register(registers.DELETED, 1)], "DELETE TOPIC")
    with pytest.raises(UnknownTopicError, match="deleted"):
        table.verify()
    empty = StoreFolder(store, "topics/none")
    with pytest.raises(UnknownTopicError):
        verify_topic(empty, "none")


def test_files_that_the_log_does_not_name_are_a_note_and_no_finding(table: Table) -> None:
    table.file(0, 15, 3)
    report = table.verify()
    assert report.ok
    assert "1 files" in report.notes[0]


def test_files_of_before_there_were_checksums_are_a_note_and_no_finding(table: Table) -> None:
    old = table.state.files(0).sorted()[:2]
    table.commit(swap(old, merge(table, old)), "COMPACT")
    report = table.verify()
    assert report.ok
    assert any("1 files were written before files had checksums" in one for one in report.notes)


def test_a_large_file_is_compared_where_none_of_its_records_are(
    table: Table, rng: random.Random
) -> None:
    """Every byte has a checksum, whether a column needs it or not."""
    values = [rng.randbytes(1024) for _ in range(900)]
    batch = records_to_wire_batch([None] * 900, values, None, [NOW_MS] * 900)
    file, data = encode_data_file(
        1, 3, [batch], timestamp_type=CREATE_TIME, compression_type="none", now_ms=NOW_MS
    )
    table.store.put(file.path, data)
    table.commit([file, Register(registers.leo(1), 903)], batches=[Batch(1, 3, 900)])
    assert table.verify().findings == []
    path = table.root / file.path
    for byte in (0, 4, 300_000, 700_000, len(data) - 1):
        changed = bytearray(data.to_pybytes())
        changed[byte] ^= 16
        path.write_bytes(changed)
        assert [one.code for one in table.verify().findings] == ["FILE_DAMAGED"], byte


def merge(table: Table, old: Sequence[DataFile]) -> DataFile:
    """One file with the records of several that follow each other."""
    path = f"partition=0/{old[0].base_offset:020d}-merged.parquet"
    parts = []
    for file in old:
        with pq.ParquetFile(table.root / file.path) as parquet:
            parts.append(parquet.read())
    pq.write_table(pa.concat_tables(parts), table.root / path, store_schema=False)
    return DataFile(
        path,
        0,
        old[0].base_offset,
        old[-1].last_offset,
        sum(file.record_count for file in old),
        (table.root / path).stat().st_size,
        min(file.timestamp_ms_min for file in old),
        max(file.timestamp_ms_max for file in old),
        NOW_MS,
        data_change=False,
    )


def swap(old: Sequence[DataFile], new: DataFile) -> list[Action]:
    return [*(Remove(one.path, 0, one.size_bytes, NOW_MS, False) for one in old), new]


# -- planted faults --------------------------------------------------------------------------------


def a_data_file_is_missing(table: Table) -> None:
    (table.root / table.path(0, 1)).unlink()


def a_data_file_is_cut_short(table: Table) -> None:
    path = table.root / table.path(0, 1)
    path.write_bytes(path.read_bytes()[:-7])


def a_data_file_has_another_size(table: Table) -> None:
    def change(line: dict[str, Any]) -> None:
        if "add" in line:
            line["add"]["size"] += 1

    table.edit(2, change)


def a_data_file_is_garbage(table: Table) -> None:
    path = table.root / table.path(0, 1)
    path.write_bytes(b"x" * path.stat().st_size)


def the_values_of_a_data_file_are_garbage(table: Table) -> None:
    path = table.root / table.path(0, 1)
    with pq.ParquetFile(path) as parquet:
        column = parquet.metadata.row_group(0).column(4)
    data = bytearray(path.read_bytes())
    start = column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(bytes(data))


def a_bit_of_a_value_has_flipped(table: Table) -> None:
    path = table.root / table.path(0, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 8
    path.write_bytes(bytes(data))


def a_data_file_is_of_another_partition(table: Table) -> None:
    wrong = replace(table.file(0, 3, 3), partition=1)
    table.commit([wrong, Register(registers.leo(1), 6)], batches=[Batch(1, 3, 3)])


def a_data_file_lacks_a_column(table: Table) -> None:
    table.rewrite(table.path(0, 1), lambda rows: rows.drop_columns(["value"]))


def a_file_is_of_a_partition_that_does_not_exist(table: Table) -> None:
    table.commit([table.file(5, 0, 2), Register(registers.leo(5), 2)], batches=[Batch(5, 0, 2)])


def two_files_overlap(table: Table) -> None:
    table.commit([table.file(0, 13, 4), Register(registers.leo(0), 17)], batches=[Batch(0, 13, 4)])


def a_commit_leaves_a_gap(table: Table) -> None:
    table.commit([table.file(0, 17, 4), Register(registers.leo(0), 21)], batches=[Batch(0, 17, 4)])


def a_file_in_the_middle_left_the_log(table: Table) -> None:
    file = table.state.files(0).sorted()[1]
    table.commit([Remove(file.path, 0, file.size_bytes, NOW_MS, True)], "RETENTION")


def offsets_in_a_file_go_back(table: Table) -> None:
    table.rewrite(table.path(0, 1), lambda t: set_column(t, "offset", [5, 7, 6, 8, 9]))


def an_offset_in_a_file_is_there_twice(table: Table) -> None:
    table.rewrite(table.path(0, 1), lambda t: set_column(t, "offset", [5, 6, 6, 8, 9]))


def an_offset_in_a_file_is_left_out(table: Table) -> None:
    table.rewrite(table.path(0, 1), lambda rows: pa.concat_tables([rows[:2], rows[3:]]))


def the_end_register_is_too_high(table: Table) -> None:
    table.commit([Register(registers.leo(0), 16)])


def the_end_register_is_too_low(table: Table) -> None:
    table.commit([Register(registers.leo(0), 14)])


def the_start_register_is_before_the_first_file(table: Table) -> None:
    file = table.state.files(0).sorted()[0]
    table.commit([Remove(file.path, 0, file.size_bytes, NOW_MS, True)], "RETENTION")


def the_start_register_is_behind_the_end(table: Table) -> None:
    table.commit([Register(registers.lso(1), 4)])


def the_start_register_goes_back(table: Table) -> None:
    table.commit([Register(registers.lso(0), 3)])
    table.commit([Register(registers.lso(0), 2)])


def a_register_is_negative(table: Table) -> None:
    table.commit([Register(registers.wal("g"), -1)])


def a_producers_register_is_wrong(table: Table) -> None:
    table.commit([Register(registers.producer(ALICE, 0), 8, NOW_MS)])


def the_epoch_does_not_rise(table: Table) -> None:
    table.commit([Register(registers.EPOCH, 3)])
    table.commit([Register(registers.EPOCH, 3)])


def a_transaction_comes_twice(table: Table) -> None:
    for _ in range(2):
        base = table.state.log_end_offset(1)
        table.commit(
            [
                table.file(1, base, 2),
                Register(registers.leo(1), base + 2),
                Register(registers.transaction("x"), 8, NOW_MS),
            ],
            batches=[Batch(1, base, 2)],
        )


def a_fence_is_lowered(table: Table) -> None:
    table.commit([Register(registers.transaction("x"), 7, NOW_MS)])
    table.commit([Register(registers.transaction("x"), 5, NOW_MS)])


def a_transaction_has_no_records(table: Table) -> None:
    table.commit([Register(registers.transaction("x"), 8, NOW_MS)])


def a_fence_comes_with_records(table: Table) -> None:
    table.commit(
        [
            table.file(0, 15, 2),
            Register(registers.leo(0), 17),
            Register(registers.transaction("x"), 9, NOW_MS),
        ],
        batches=[Batch(0, 15, 2)],
    )


def statistic(group: str, column: str, value: object) -> Callable[[Table], None]:
    def plant(table: Table) -> None:
        table.edit_stats(2, lambda stats: stats[group].__setitem__(column, value))

    plant.__name__ = f"the_log_has_a_wrong_{group}_of_{column}"
    return plant


def the_log_has_a_wrong_number_of_records(table: Table) -> None:
    table.edit_stats(2, lambda stats: stats.__setitem__("numRecords", 4))


def the_log_has_no_null_counts(table: Table) -> None:
    table.edit_stats(2, lambda stats: stats.pop("nullCount"))


def a_record_has_no_timestamp(table: Table) -> None:
    table.rewrite(
        table.path(0, 1),
        lambda t: set_column(t, "timestamp", [None, *t.column("timestamp").to_pylist()[1:]]),
    )


def a_batch_is_in_the_log_twice(table: Table) -> None:
    table.append(0, 5, ProducerBatch(ALICE, 0, 5))


def one_record_of_a_batch_is_there_twice(table: Table) -> None:
    table.rewrite(table.path(0, 1), lambda t: set_column(t, "sequence", [0, 1, 1, 2, 3]))


def a_batch_of_a_producer_is_left_out(table: Table) -> None:
    table.append(0, 5, ProducerBatch(ALICE, 0, 15))


def a_record_has_a_producer_and_no_sequence(table: Table) -> None:
    table.rewrite(table.path(0, 1), lambda t: set_column(t, "sequence", [0, 1, None, 3, 4]))


def a_commit_names_a_batch_that_it_does_not_add(table: Table) -> None:
    table.commit([], batches=[Batch(0, 15, 2)])


def a_commit_adds_a_file_that_no_batch_names(table: Table) -> None:
    table.commit([table.file(0, 15, 2), Register(registers.leo(0), 17)])


def a_commit_names_fewer_records_than_it_adds(table: Table) -> None:
    table.commit([table.file(0, 15, 2), Register(registers.leo(0), 17)], batches=[Batch(0, 15, 1)])


def a_commit_adds_records_and_leaves_the_end_alone(table: Table) -> None:
    table.commit([table.file(0, 15, 2)], batches=[Batch(0, 15, 2)])


def maintenance_drops_a_record(table: Table) -> None:
    old = table.state.files(0).sorted()[:2]
    merged = merge(table, old)
    table.commit(swap(old, replace(merged, record_count=9, last_offset=8)), "COMPACT")


def a_swap_beside_records_brings_one_of_them(table: Table) -> None:
    """So that a reader that passes over maintenance never sees it."""
    old = table.state.files(0).sorted()[2:]
    new = table.file(0, 15, 1)
    merged = merge(table, [*old, new])
    actions: list[Action] = [*swap(old, merged), Register(registers.leo(0), 16)]
    table.commit(actions, batches=[Batch(0, 15, 1)])


def a_swap_beside_records_leaves_a_range_out(table: Table) -> None:
    old = table.state.files(0).sorted()
    removes = [action for action in swap(old, merge(table, old)) if isinstance(action, Remove)]
    merged = merge(table, old[1:])
    new = table.file(0, 15, 1)
    actions: list[Action] = [new, Register(registers.leo(0), 16), *removes, merged]
    table.commit(actions, batches=[Batch(0, 15, 1)])


def a_commit_file_is_missing(table: Table) -> None:
    write_checkpoint(table.store)
    (table.root / commit_path(2)).unlink()


def a_commit_file_is_torn_behind_a_checkpoint(table: Table) -> None:
    write_checkpoint(table.store)
    path = table.root / commit_path(2)
    path.write_bytes(path.read_bytes()[:-10])


def the_checkpoint_lacks_a_file(table: Table) -> None:
    path = table.root / commit_path(4)
    whole = path.read_bytes()
    lines = whole.splitlines()
    path.write_bytes(b"\n".join(line for line in lines if not line.startswith(b'{"add"')) + b"\n")
    open_delta_table(table.store).create_checkpoint()
    path.write_bytes(whole)


def the_checkpoint_has_another_register(table: Table) -> None:
    path = table.root / commit_path(4)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"version":15', b'"version":16'))
    open_delta_table(table.store).create_checkpoint()
    path.write_bytes(whole)


def the_newest_checkpoint_is_cut_short(table: Table) -> None:
    version = write_checkpoint(table.store)
    path = table.root / checkpoint_path(version)
    path.write_bytes(path.read_bytes()[:-100])


def the_checkpoint_that_readers_are_told_of_is_missing(table: Table) -> None:
    version = write_checkpoint(table.store)
    (table.root / checkpoint_path(version)).unlink()


def a_commit_and_the_checkpoint_differ_in_a_file(table: Table) -> None:
    def change(line: dict[str, Any]) -> None:
        if "add" in line:
            line["add"]["size"] += 1

    write_checkpoint(table.store)
    table.edit(2, change)


def a_bit_hides_the_checksum_of_a_commit_behind_a_checkpoint(table: Table) -> None:
    write_checkpoint(table.store)
    path = table.root / commit_path(2)
    path.write_bytes(path.read_bytes().replace(b'"crc32c"', b'"crc32b"'))


def the_newest_commit_file_is_empty(table: Table) -> None:
    (table.root / commit_path(4)).write_bytes(b"")


def the_writer_feature_is_gone(table: Table) -> None:
    def change(line: dict[str, Any]) -> None:
        if "protocol" in line:
            line["protocol"]["writerFeatures"] = ["appendOnly", "invariants"]

    table.edit(0, change)


FAULTS: list[tuple[Callable[[Table], None], str, str]] = [
    (a_data_file_is_missing, "files", "FILE_MISSING"),
    (a_data_file_is_cut_short, "files", "FILE_SIZE"),
    (a_data_file_has_another_size, "files", "FILE_SIZE"),
    (a_data_file_is_garbage, "files", "FILE_DAMAGED"),
    (the_values_of_a_data_file_are_garbage, "files", "FILE_DAMAGED"),
    (a_bit_of_a_value_has_flipped, "files", "FILE_DAMAGED"),
    (a_data_file_is_of_another_partition, "files", "FILE_DAMAGED"),
    (a_data_file_lacks_a_column, "files", "FILE_DAMAGED"),
    (a_file_is_of_a_partition_that_does_not_exist, "files", "COMMIT_WRONG"),
    (two_files_overlap, "offsets", "FILES_OVERLAP"),
    (a_commit_leaves_a_gap, "offsets", "OFFSET_GAP"),
    (a_commit_leaves_a_gap, "commits", "COMMIT_WRONG"),
    (a_file_in_the_middle_left_the_log, "offsets", "OFFSET_GAP"),
    (offsets_in_a_file_go_back, "offsets", "OFFSET_GAP"),
    (an_offset_in_a_file_is_there_twice, "offsets", "OFFSET_ORDER"),
    (an_offset_in_a_file_is_left_out, "offsets", "OFFSET_GAP"),
    (the_end_register_is_too_high, "registers", "REGISTER_WRONG"),
    (the_end_register_is_too_high, "commits", "COMMIT_WRONG"),
    (the_end_register_is_too_low, "registers", "REGISTER_WRONG"),
    (the_start_register_is_before_the_first_file, "registers", "REGISTER_WRONG"),
    (the_start_register_is_behind_the_end, "registers", "REGISTER_WRONG"),
    (the_start_register_goes_back, "commits", "COMMIT_WRONG"),
    (a_register_is_negative, "registers", "REGISTER_WRONG"),
    (a_producers_register_is_wrong, "registers", "REGISTER_WRONG"),
    (the_epoch_does_not_rise, "commits", "COMMIT_WRONG"),
    (a_transaction_comes_twice, "commits", "COMMIT_WRONG"),
    (a_fence_is_lowered, "commits", "COMMIT_WRONG"),
    (a_transaction_has_no_records, "commits", "COMMIT_WRONG"),
    (a_fence_comes_with_records, "commits", "COMMIT_WRONG"),
    (statistic("minValues", "offset", 4), "statistics", "STATISTICS_WRONG"),
    (statistic("maxValues", "offset", 10), "statistics", "STATISTICS_WRONG"),
    (
        statistic("minValues", "timestamp", "2027-01-15T08:00:00.006Z"),
        "statistics",
        "STATISTICS_WRONG",
    ),
    (
        statistic("maxValues", "timestamp", "2027-01-15T08:00:00.008Z"),
        "statistics",
        "STATISTICS_WRONG",
    ),
    (statistic("nullCount", "offset", 1), "statistics", "STATISTICS_WRONG"),
    (statistic("nullCount", "timestamp", 5), "statistics", "STATISTICS_WRONG"),
    (the_log_has_a_wrong_number_of_records, "statistics", "STATISTICS_WRONG"),
    (the_log_has_no_null_counts, "statistics", "STATISTICS_WRONG"),
    (a_record_has_no_timestamp, "statistics", "STATISTICS_WRONG"),
    (a_batch_is_in_the_log_twice, "sequences", "SEQUENCE_DUPLICATE"),
    (one_record_of_a_batch_is_there_twice, "sequences", "SEQUENCE_DUPLICATE"),
    (a_batch_of_a_producer_is_left_out, "sequences", "SEQUENCE_GAP"),
    (a_record_has_a_producer_and_no_sequence, "sequences", "SEQUENCE_GAP"),
    (a_commit_names_a_batch_that_it_does_not_add, "commits", "COMMIT_WRONG"),
    (a_commit_adds_a_file_that_no_batch_names, "commits", "COMMIT_WRONG"),
    (a_commit_names_fewer_records_than_it_adds, "commits", "COMMIT_WRONG"),
    (a_commit_adds_records_and_leaves_the_end_alone, "commits", "COMMIT_WRONG"),
    (maintenance_drops_a_record, "commits", "COMMIT_WRONG"),
    (maintenance_drops_a_record, "statistics", "STATISTICS_WRONG"),
    (a_swap_beside_records_brings_one_of_them, "commits", "COMMIT_WRONG"),
    (a_swap_beside_records_leaves_a_range_out, "commits", "COMMIT_WRONG"),
    (a_commit_file_is_missing, "commits", "COMMIT_WRONG"),
    (a_commit_file_is_torn_behind_a_checkpoint, "commits", "LOG_DAMAGED"),
    (a_bit_hides_the_checksum_of_a_commit_behind_a_checkpoint, "commits", "LOG_DAMAGED"),
    (a_commit_and_the_checkpoint_differ_in_a_file, "commits", "CHECKPOINT_WRONG"),
    (the_checkpoint_lacks_a_file, "commits", "CHECKPOINT_WRONG"),
    (the_checkpoint_lacks_a_file, "registers", "REGISTER_WRONG"),
    (the_checkpoint_has_another_register, "commits", "CHECKPOINT_WRONG"),
    (the_newest_checkpoint_is_cut_short, "log", "CHECKPOINT_DAMAGED"),
    (the_checkpoint_that_readers_are_told_of_is_missing, "log", "POINTER_WRONG"),
    (the_newest_commit_file_is_empty, "log", "LOG_DAMAGED"),
    (the_writer_feature_is_gone, "log", "UNSUPPORTED_TABLE"),
]


@pytest.mark.parametrize(
    ("plant", "check", "code"),
    FAULTS,
    ids=[f"{plant.__name__}: {check}" for plant, check, _ in FAULTS],
)
def test_a_planted_fault_is_found(
    table: Table, plant: Callable[[Table], None], check: str, code: str
) -> None:
    plant(table)
    report = table.verify()
    assert not report.ok
    assert (check, code) in found(report), report.findings


def test_every_code_has_a_planted_fault() -> None:
    assert {code for _, _, code in FAULTS} == set(ADVICE)


def test_what_is_wrong_with_statistics_is_found_in_a_checkpoint_too(table: Table) -> None:
    table.edit_stats(2, lambda stats: stats["nullCount"].__setitem__("offset", 1))
    write_checkpoint(table.store)
    for version in range(4):
        (table.root / commit_path(version)).unlink()
    assert ("statistics", "STATISTICS_WRONG") in found(table.verify())


def test_a_finding_says_what_where_and_what_to_do(table: Table) -> None:
    a_data_file_is_missing(table)
    path = table.path(0, 1)
    (finding,) = table.verify().findings
    assert str(finding) == (
        f"{path} with offsets 5 to 9 of partition 0 is not there; "
        "restore the file from a copy of the store"
    )


def test_of_many_findings_some_are_kept_and_all_are_counted(table: Table) -> None:
    for _ in range(FINDINGS_MAX + 5):
        table.append(1, 1)
    for file in table.state.files(1).sorted():
        (table.root / file.path).unlink()
    files = table.verify().results[1]
    assert (files.finding_count, len(files.findings)) == (FINDINGS_MAX + 6, FINDINGS_MAX)


def test_a_file_that_maintenance_removes_meanwhile_is_no_finding(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = table.state.files(0).sorted()[:2]
    table_before = load_table(table.store)

    def load(store: LocalStore) -> TableState:
        monkeypatch.undo()
        table.commit(swap(old, merge(table, old)), "COMPACT")
        for file in old:
            (table.root / file.path).unlink()
        return table_before

    monkeypatch.setattr("mainstem.delta_log.verify.topic.load_table", load)
    report = table.verify()
    assert report.findings == []


# -- the command -----------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments)


def test_the_command_prints_a_row_for_each_topic_and_check_and_exits_0(
    table: Table, tmp_path: Path
) -> None:
    answer = run("--format", "json", "cluster", "verify", "--warehouse", f"{tmp_path}/warehouse")
    assert answer.exit_code == 0, answer.output
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(row["topic"], row["check"], row["status"]) for row in rows] == [
        ("t", check, "OK") for check in CHECKS
    ]
    assert rows[2] == {
        "topic": "t",
        "check": "offsets",
        "checked": 18,
        "findings": 0,
        "status": "OK",
        "message": "",
    }


def test_the_command_looks_at_the_tables_of_the_platform_too(table: Table, tmp_path: Path) -> None:
    warehouse = LocalStore(tmp_path / "warehouse")
    Topics(warehouse, folder=SYSTEM).create("consumer_offsets", 1)
    for _ in range(3):
        ProducerIdsTable(warehouse).take(5)
    arguments = ("--format", "json", "cluster", "verify", "--warehouse", f"{tmp_path}/warehouse")
    answer = run(*arguments)
    assert answer.exit_code == 0, answer.output
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(row["topic"], row["check"]) for row in rows] == [
        *(("t", check) for check in CHECKS),
        *(("system/consumer_offsets", check) for check in CHECKS),
        *(("system/producer_ids", check) for check in ROW_CHECKS),
    ]
    assert len(run(*arguments, "-T", "t").stdout.splitlines()) == len(CHECKS), "that one alone"

    folder = StoreFolder(warehouse, "system/producer_ids")
    (file,) = load_table(folder)
    data = bytearray(folder.read(file.path))
    data[-20] ^= 1
    (tmp_path / "warehouse/system/producer_ids" / file.path).write_bytes(data)
    answer = run(*arguments)
    assert answer.exit_code == 1
    bad = [row for line in answer.stdout.splitlines() if (row := json.loads(line))["findings"]]
    assert [(row["topic"], row["status"]) for row in bad] == [
        ("system/producer_ids", "FILE_DAMAGED")
    ]
    warehouse.close()


def test_the_command_names_a_finding_and_exits_1(table: Table, tmp_path: Path) -> None:
    a_data_file_is_missing(table)
    answer = run("-v", "cluster", "verify", "--warehouse", f"{tmp_path}/warehouse")
    assert answer.exit_code == 1
    row = next(line for line in answer.stdout.splitlines() if " files " in line)
    assert "FILE_MISSING: partition=0/" in row
    assert row.endswith("restore the file from a copy of the store")
    assert "t: FILE_MISSING: partition=0/" in answer.stderr


def test_the_command_reports_a_topic_that_is_not_there_and_goes_on(
    table: Table, tmp_path: Path
) -> None:
    arguments = ("-T", "missing", "-T", "t", "--warehouse", f"{tmp_path}/warehouse")
    answer = run("--format", "json", "cluster", "verify", *arguments)
    assert answer.exit_code == 1
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert rows[0]["status"] == "UNKNOWN_TOPIC"
    assert {row["status"] for row in rows[1:]} == {"OK"}


def test_the_command_names_directories_that_are_no_topic(table: Table, tmp_path: Path) -> None:
    (tmp_path / "warehouse/topics/lost+found").mkdir()
    (tmp_path / "warehouse/topics/emptied/_delta_log").mkdir(parents=True)
    answer = run("cluster", "verify", "--warehouse", f"{tmp_path}/warehouse")
    assert answer.exit_code == 0, answer.output
    for name in ("lost+found", "emptied"):
        assert f"note: topics/{name} is not a topic" in answer.stderr
    assert "topics/t " not in answer.stderr


def test_the_command_says_so_where_there_is_no_warehouse(tmp_path: Path) -> None:
    answer = run("cluster", "verify", "--warehouse", f"{tmp_path}/none")
    assert answer.exit_code == 1
    assert "there is no warehouse" in answer.stderr
