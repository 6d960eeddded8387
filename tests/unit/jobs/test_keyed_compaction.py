"""Keyed compaction: what stays, what goes when, and what is left alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.jobs.keyed_logs import EAGER, append_rows, begin_at, run
from tests.unit.jobs.topic_tables import NOW_MS, Appends, all_records, check_verified

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.format import Remove
from mainstem.delta_log.table import TableCommit, commit_beside_leader
from mainstem.delta_log.topics import SYSTEM, altered_config
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import LogDamagedError
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import NOTHING, OutcomeKind, TableView
from mainstem.jobs.keyed_compaction import KeyedCompaction
from mainstem.limits import KIB, MIB

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    store = LocalStore(tmp_path / "warehouse")
    yield Topics(store)
    store.close()


def compacted(topics: Topics, partitions: int = 1, **config: Any) -> Appends:
    """A topic whose every file may be compacted at once."""
    settings = {**EAGER, **{name.replace("_", "."): value for name, value in config.items()}}
    topics.create("t", partitions, settings)
    return Appends(topics.open("t"))


def left(log: Appends, partition: int = 0) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Offset to key and value of what is in the table, which verifies."""
    check_verified(log.opened.store)
    return {one.offset: (one.key, one.value) for one in all_records(log.opened.store)[partition]}


def end_and_start(log: Appends) -> tuple[int, int]:
    state = load_table(log.opened.store)
    return state.log_start_offset(0), state.log_end_offset(0)


@pytest.mark.parametrize("each", [1, 2, 3, 8])
def test_the_last_value_of_each_key_stays_at_its_offset_and_a_tombstone_goes_in_its_time(
    topics: Topics, each: int
) -> None:
    log = compacted(topics, delete_retention_ms=DAY_MS)
    begin_at(log, 2)
    keys = [b"K3", b"K5", b"K3", b"K3", b"K4", b"K4", b"K5", b"K6"]
    values = [b"V1", b"V2", b"V3", b"V4", b"V5", None, b"V7", b"V8"]
    append_rows(log, list(zip(keys, values, strict=True)), each=each, modified_ms=NOW_MS)
    assert run(topics, NOW_MS).kind == OutcomeKind.OK
    tombstone = {7: (b"K4", None)}
    expected = {5: (b"K3", b"V4"), 8: (b"K5", b"V7"), 9: (b"K6", b"V8")}
    assert left(log) == expected | tombstone
    assert run(topics, NOW_MS + DAY_MS - 1) == NOTHING
    assert left(log) == expected | tombstone
    assert run(topics, NOW_MS + DAY_MS).kind == OutcomeKind.OK
    assert left(log) == expected
    assert run(topics, NOW_MS + 9 * DAY_MS) == NOTHING
    assert end_and_start(log) == (2, 10)


@pytest.mark.parametrize("each", [1, 2, 4, 11])
def test_each_key_is_left_once_by_offset(topics: Topics, each: int) -> None:
    log = compacted(topics)
    keys = [b"K%d" % number for number in (1, 2, 1, 1, 3, 2, 4, 5, 5, 2, 6)]
    rows = [(key, b"V%d" % (index + 1)) for index, key in enumerate(keys)]
    append_rows(log, rows, each=each, modified_ms=NOW_MS)
    before = {one.offset: one for one in all_records(log.opened.store)[0]}
    run(topics, NOW_MS)
    assert left(log) == {
        3: (b"K1", b"V4"),
        4: (b"K3", b"V5"),
        6: (b"K4", b"V7"),
        8: (b"K5", b"V9"),
        9: (b"K2", b"V10"),
        10: (b"K6", b"V11"),
    }
    # Headers, timestamp and all.
    assert all(before[one.offset] == one for one in all_records(log.opened.store)[0])


def test_a_second_run_commits_nothing(topics: Topics) -> None:
    log = compacted(topics)
    append_rows(log, [(b"a", b"1"), (b"a", b"2"), (b"b", b"3")], modified_ms=NOW_MS)
    assert run(topics, NOW_MS).kind == OutcomeKind.OK
    version = load_table(log.opened.store).version
    assert run(topics, NOW_MS + DAY_MS) == NOTHING
    assert load_table(log.opened.store).version == version


def test_a_partition_without_superseded_records_is_seen_once_and_keeps_its_files(
    topics: Topics,
) -> None:
    log = compacted(topics)
    append_rows(log, [(b"%d" % number, b"v") for number in range(9)], modified_ms=NOW_MS)
    files = {file.path for file in load_table(log.opened.store)}
    assert run(topics, NOW_MS).kind == OutcomeKind.OK
    assert {file.path for file in load_table(log.opened.store)} == files
    assert load_table(log.opened.store).cleaned_offset(0) == 9
    assert run(topics, NOW_MS) == NOTHING


def test_an_empty_value_is_a_value_and_an_empty_key_a_key(topics: Topics) -> None:
    log = compacted(topics, delete_retention_ms=0)
    rows = [(b"", b"1"), (b"a", b"2"), (b"", b""), (b"a", None), (b"b", b"")]
    append_rows(log, rows, modified_ms=NOW_MS)
    run(topics, NOW_MS)
    assert left(log) == {2: (b"", b""), 4: (b"b", b"")}


def test_records_without_a_key_of_before_the_policy_stay(topics: Topics) -> None:
    log = compacted(topics, delete_retention_ms=HOUR_MS)
    rows = [(None, b"1"), (b"a", b"2"), (None, b"1"), (None, None), (b"b", None)]
    append_rows(log, rows, modified_ms=NOW_MS)
    run(topics, NOW_MS)
    append_rows(log, [(b"a", b"4")], modified_ms=NOW_MS)
    run(topics, NOW_MS + HOUR_MS)
    assert left(log) == {
        0: (None, b"1"),
        2: (None, b"1"),
        3: (None, None),
        5: (b"a", b"4"),
    }


def test_the_time_of_a_tombstone_counts_from_the_compaction_that_first_saw_it(
    topics: Topics,
) -> None:
    log = compacted(topics, delete_retention_ms=DAY_MS)
    append_rows(log, [(b"a", b"1"), (b"a", None)], modified_ms=NOW_MS)
    seen_ms = NOW_MS + 30 * DAY_MS  # its own timestamp is long past
    run(topics, seen_ms)
    assert left(log) == {1: (b"a", None)}
    # Another compaction in between, a checkpoint, and a merge of the files change nothing in that.
    append_rows(log, [(b"b", b"1"), (b"b", b"2"), (b"c", None)], modified_ms=seen_ms)
    run(topics, seen_ms + HOUR_MS)
    write_checkpoint(log.opened.store)
    run(topics, seen_ms + HOUR_MS, job=Compaction(min_age_ms=0))
    assert run(topics, seen_ms + DAY_MS - 1) == NOTHING
    assert left(log) == {1: (b"a", None), 3: (b"b", b"2"), 4: (b"c", None)}
    run(topics, seen_ms + DAY_MS)
    assert left(log) == {3: (b"b", b"2"), 4: (b"c", None)}
    run(topics, seen_ms + DAY_MS + HOUR_MS)
    assert left(log) == {3: (b"b", b"2")}


def test_a_retention_that_changes_later_does_not_change_the_time_of_tombstones(
    topics: Topics,
) -> None:
    log = compacted(topics, delete_retention_ms=DAY_MS)
    append_rows(log, [(b"a", None)], modified_ms=NOW_MS)
    run(topics, NOW_MS)
    _alter(topics, {"delete.retention.ms": HOUR_MS})
    append_rows(log, [(b"b", None)], modified_ms=NOW_MS)
    run(topics, NOW_MS + HOUR_MS)
    run(topics, NOW_MS + 2 * HOUR_MS)
    assert left(log) == {0: (b"a", None)}
    run(topics, NOW_MS + DAY_MS)
    assert left(log) == {}


def test_a_clock_that_is_ahead_or_behind_takes_no_tombstone_before_its_time(
    topics: Topics,
) -> None:
    log = compacted(topics, delete_retention_ms=DAY_MS)
    append_rows(log, [(b"a", b"1"), (b"a", None)], modified_ms=NOW_MS)
    run(topics, NOW_MS - 365 * DAY_MS, alive_ms=NOW_MS)
    append_rows(log, [(b"b", b"1"), (b"b", b"2")], modified_ms=NOW_MS)
    run(topics, NOW_MS, alive_ms=NOW_MS)
    run(topics, NOW_MS + 365 * DAY_MS, alive_ms=NOW_MS)
    assert left(log) == {1: (b"a", None), 3: (b"b", b"2")}
    run(topics, NOW_MS + 365 * DAY_MS, alive_ms=NOW_MS + DAY_MS)
    assert left(log) == {3: (b"b", b"2")}


def test_a_partition_whose_every_record_goes_keeps_its_offsets(topics: Topics) -> None:
    log = compacted(topics, delete_retention_ms=0)
    append_rows(log, [(b"a", b"1"), (b"a", None)], modified_ms=NOW_MS)
    run(topics, NOW_MS)
    assert left(log) == {}
    assert end_and_start(log) == (0, 2)
    write_checkpoint(log.opened.store)
    append_rows(log, [(b"a", b"3")], modified_ms=NOW_MS)
    assert left(log) == {2: (b"a", b"3")}


def test_young_files_and_young_records_are_left_alone(topics: Topics) -> None:
    log = compacted(topics, compaction_min_age_ms=60_000, min_compaction_lag_ms=HOUR_MS)
    old_ms, late_ms = NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS + 1
    append_rows(log, [(b"a", b"1"), (b"a", b"2")], modified_ms=old_ms)
    append_rows(log, [(b"a", b"3"), (b"a", b"4")], modified_ms=old_ms, timestamp_ms=late_ms)
    append_rows(log, [(b"a", b"5"), (b"a", b"6")], modified_ms=old_ms)
    run(topics, NOW_MS)
    # What comes after a young record is young too, whatever its timestamp.
    assert list(left(log)) == [1, 2, 3, 4, 5]
    append_rows(log, [(b"a", b"7")], modified_ms=NOW_MS + HOUR_MS, timestamp_ms=old_ms)
    run(topics, NOW_MS + HOUR_MS + 59_999)
    assert list(left(log)) == [5, 6]
    run(topics, NOW_MS + HOUR_MS + 60_000)
    assert list(left(log)) == [6]


def test_the_part_of_new_bytes_decides_and_a_long_lag_overrules_it(topics: Topics) -> None:
    log = compacted(topics, min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=DAY_MS)
    values = [(b"%d" % number, b"v") for number in range(60)]
    append_rows(log, values, each=10, modified_ms=NOW_MS)
    assert run(topics, NOW_MS).kind == OutcomeKind.OK
    append_rows(log, values[:10], each=10, modified_ms=NOW_MS)
    assert run(topics, NOW_MS + DAY_MS) == NOTHING
    assert run(topics, NOW_MS + DAY_MS + 1).kind == OutcomeKind.OK
    assert list(left(log)) == list(range(10, 70))
    append_rows(log, values, each=10, modified_ms=NOW_MS + DAY_MS)
    append_rows(log, values[:20], each=10, modified_ms=NOW_MS + DAY_MS)
    assert run(topics, NOW_MS + DAY_MS + 1).kind == OutcomeKind.OK


def test_with_more_keys_than_memory_the_rest_stays_for_the_next_run(topics: Topics) -> None:
    log = compacted(topics)
    rows = [(b"%0512d" % (number % 2_000), b"") for number in range(6_000)]
    append_rows(log, rows, each=500, modified_ms=NOW_MS)
    job = KeyedCompaction(map_bytes_max=MIB // 4)
    runs = 0
    cleaned = [0]
    while run(topics, NOW_MS, job=job) != NOTHING:
        runs += 1
        cleaned.append(load_table(log.opened.store).cleaned_offset(0))
        assert cleaned[-1] > cleaned[-2]
    assert runs > 3
    assert list(left(log)) == list(range(4_000, 6_000))


def test_large_files_of_which_nothing_goes_are_left_as_they_are(topics: Topics) -> None:
    log = compacted(topics, compaction_target_bytes=64 * KIB)
    rng = random.Random(5)
    for part in range(3):
        rows = [(b"%d-%d" % (part, number), rng.randbytes(4_000)) for number in range(20)]
        append_rows(log, rows, each=20, modified_ms=NOW_MS)
    append_rows(log, [(b"1-0", b"")], modified_ms=NOW_MS)
    before = [file.path for file in load_table(log.opened.store).files(0).sorted()]
    run(topics, NOW_MS)
    after = {file.path for file in load_table(log.opened.store)}
    assert [path in after for path in before] == [True, False, True, True]
    assert len(left(log)) == 60


def test_many_small_files_become_few(topics: Topics) -> None:
    log = compacted(topics)
    rows = [(b"%d" % (number % 50), b"v") for number in range(200)]
    append_rows(log, rows, each=2, modified_ms=NOW_MS)
    run(topics, NOW_MS)
    assert load_table(log.opened.store).file_count == 1
    assert list(left(log)) == list(range(150, 200))


def test_partitions_are_compacted_each_by_itself(topics: Topics) -> None:
    log = compacted(topics, partitions=3)
    for partition in (0, 2):
        append_rows(log, [(b"a", b"1"), (b"a", b"2")], modified_ms=NOW_MS, partition=partition)
    outcome = run(topics, NOW_MS)
    assert (outcome.before.records, outcome.after.records) == (4, 2)
    assert [list(left(log, partition)) for partition in range(3)] == [[1], [], [1]]


def test_partitions_with_many_files_are_committed_apart(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.jobs.task_files.COMMIT_FILES_MAX", 3)
    log = compacted(topics, partitions=3)
    for partition in range(3):
        rows = [(b"a", b"1"), (b"a", b"2")]
        append_rows(log, rows, each=1, modified_ms=NOW_MS, partition=partition)
    version = load_table(log.opened.store).version
    outcome = run(topics, NOW_MS)
    assert (outcome.before.records, outcome.after.records) == (6, 3)
    assert load_table(log.opened.store).version == outcome.version == version + 3
    assert [list(left(log, partition)) for partition in range(3)] == [[1]] * 3


def test_files_of_different_days_stay_apart_where_retention_is_to_remove_them(
    topics: Topics,
) -> None:
    log = compacted(topics, cleanup_policy="compact,delete", retention_ms=8 * DAY_MS)
    for day in range(4):
        rows = [(b"%d-%d" % (day, number % 3), b"v") for number in range(6)]
        append_rows(log, rows, modified_ms=NOW_MS - day * DAY_MS)
    run(topics, NOW_MS)
    files = load_table(log.opened.store).files(0).sorted()
    assert [(one.base_offset, one.last_offset) for one in files] == [
        (3, 5),
        (9, 11),
        (15, 17),
        (21, 23),
    ]
    # Their times are what they were.
    assert [one.modified_ms for one in files] == [NOW_MS - day * DAY_MS for day in range(4)]


def test_producers_numbers_survive_and_gaps_in_them_verify(topics: Topics) -> None:
    log = compacted(topics)
    for key in (b"a", b"a", b"b", b"a"):
        log.append(0, [b"v", b"w"], keys=[key, key], producer_id=7)
        log.append(0, [b"x"], keys=[b"c"], producer_id=8)
    run(topics, NOW_MS)
    check_verified(log.opened.store)
    found = [
        (one.offset, one.producer_id, one.sequence) for one in all_records(log.opened.store)[0]
    ]
    assert found == [(7, 7, 5), (10, 7, 7), (11, 8, 3)]
    log.append(0, [b"v"], keys=[b"a"], producer_id=7)
    check_verified(log.opened.store)


def test_a_topic_that_is_not_compacted_is_none_of_its_business(topics: Topics) -> None:
    topics.create("t", 1, {**EAGER, "cleanup.policy": "delete"})
    log = Appends(topics.open("t"))
    append_rows(log, [(b"a", b"1"), (b"a", b"2")], modified_ms=NOW_MS)
    assert run(topics, NOW_MS) == NOTHING


@pytest.mark.parametrize("policy", ["compact,delete", "delete,compact"])
def test_both_policies_compact_too(topics: Topics, policy: str) -> None:
    log = compacted(topics, cleanup_policy=policy)
    append_rows(log, [(b"a", b"1"), (b"a", b"2")], modified_ms=NOW_MS)
    run(topics, NOW_MS)
    assert list(left(log)) == [1]


def test_holes_stay_fine_when_the_policy_goes_back_to_delete(topics: Topics) -> None:
    log = compacted(topics)
    append_rows(log, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], modified_ms=NOW_MS)
    run(topics, NOW_MS)
    _alter(topics, {"cleanup.policy": "delete"})
    append_rows(log, [(None, b"4")], modified_ms=NOW_MS)
    assert list(left(log)) == [1, 2, 3]


def test_of_two_that_run_at_once_one_is_superseded_and_leaves_nothing_behind(
    topics: Topics,
) -> None:
    log = compacted(topics, partitions=2)
    for partition in (0, 1):
        append_rows(log, [(b"a", b"1"), (b"a", b"2")], modified_ms=NOW_MS, partition=partition)
    job = KeyedCompaction()
    first, second = topics.open("t"), topics.open("t")
    plans = [job.plan(TableView("t", "topics", one.state), NOW_MS) for one in (first, second)]
    results = [[job.run_task(first.store, task) for task in plan.tasks] for plan in plans]
    assert job.commit(first, plans[0], results[0], NOW_MS).kind == OutcomeKind.OK
    assert job.commit(second, plans[1], results[1], NOW_MS).kind == OutcomeKind.SUPERSEDED
    assert list(left(log)) == [1]
    for partition, result in enumerate(results[1]):
        listed = {one.name for one in first.store.list_files(f"partition={partition}")}
        assert not listed & {file.path.split("/")[1] for file in result.added}


def test_a_partition_that_another_writer_changed_is_left_out_and_the_rest_is_done(
    topics: Topics,
) -> None:
    log = compacted(topics, partitions=2)
    for partition in (0, 1):
        rows = [(b"a", b"1"), (b"a", b"2")]
        append_rows(log, rows, each=1, modified_ms=NOW_MS, partition=partition)
    job = KeyedCompaction()
    opened = topics.open("t")
    plan = job.plan(TableView("t", "topics", opened.state), NOW_MS)
    results = [job.run_task(opened.store, task) for task in plan.tasks]
    merge = Compaction(min_age_ms=0)
    one = topics.open("t")
    theirs = merge.plan(TableView("t", "topics", one.state), NOW_MS)
    of_one = [task for task in theirs.tasks if task.files[0].partition == 1]
    only = dataclasses.replace(theirs, tasks=tuple(of_one))
    merge.commit(one, only, [merge.run_task(one.store, task) for task in of_one], NOW_MS)
    outcome = job.commit(opened, plan, results, NOW_MS)
    assert outcome.kind == OutcomeKind.OK
    assert "1 partitions: another writer" in outcome.error
    assert [list(left(log, partition)) for partition in (0, 1)] == [[1], [0, 1]]
    run(topics, NOW_MS)
    assert [list(left(log, partition)) for partition in (0, 1)] == [[1], [1]]


def test_a_policy_that_changes_during_the_run_stops_it(topics: Topics) -> None:
    log = compacted(topics)
    append_rows(log, [(b"a", b"1"), (b"a", b"2")], modified_ms=NOW_MS)
    job = KeyedCompaction()
    opened = topics.open("t")
    plan = job.plan(TableView("t", "topics", opened.state), NOW_MS)
    results = [job.run_task(opened.store, task) for task in plan.tasks]
    _alter(topics, {"cleanup.policy": "delete"})
    assert job.commit(opened, plan, results, NOW_MS).kind == OutcomeKind.SUPERSEDED
    assert list(left(log)) == [0, 1]


def test_a_file_that_is_lost_fails_the_run_and_one_that_was_replaced_does_not(
    topics: Topics,
) -> None:
    log = compacted(topics)
    append_rows(log, [(b"a", b"1"), (b"a", b"2")], each=1, modified_ms=NOW_MS)
    job = KeyedCompaction()
    opened = topics.open("t")
    plan = job.plan(TableView("t", "topics", opened.state), NOW_MS)
    lost = plan.tasks[0].files[0]
    opened.store.delete(lost.path)
    with pytest.raises(LogDamagedError, match="is missing"):
        job.run_task(opened.store, plan.tasks[0])
    remove = Remove(lost.path, 0, lost.size_bytes, NOW_MS, data_change=True)
    commit = TableCommit.of("RETENTION", [remove], timestamp_ms=NOW_MS)
    commit_beside_leader(topics.open("t"), lambda _: commit)
    results = [job.run_task(opened.store, task) for task in plan.tasks]
    assert job.commit(opened, plan, results, NOW_MS).kind == OutcomeKind.SUPERSEDED


def test_a_new_file_that_is_gone_before_the_commit_is_not_committed(topics: Topics) -> None:
    log = compacted(topics)
    append_rows(log, [(b"a", b"1"), (b"a", b"2")], modified_ms=NOW_MS)
    job = KeyedCompaction()
    opened = topics.open("t")
    plan = job.plan(TableView("t", "topics", opened.state), NOW_MS)
    result = job.run_task(opened.store, plan.tasks[0])
    opened.store.delete(result.added[0].path)
    with pytest.raises(LogDamagedError, match="is gone before its commit"):
        job.commit(opened, plan, [result], NOW_MS)
    assert list(left(log)) == [0, 1]


def test_it_takes_care_of_the_offsets_table_and_keeps_no_tombstone_there(topics: Topics) -> None:
    system = Topics(topics.store, folder=SYSTEM)
    system.create("consumer_offsets", 1)
    log = Appends(system.open("consumer_offsets"))
    rows = [(b"g1", b"1"), (b"g2", b"1"), (b"g1", b"2"), (b"g2", None)]
    append_rows(log, rows, modified_ms=NOW_MS)
    later_ms = NOW_MS + HOUR_MS
    assert run(system, later_ms, "consumer_offsets", folder=SYSTEM).kind == OutcomeKind.OK
    assert [one.value for one in all_records(log.opened.store)[0]] == [b"2"]
    assert run(system, later_ms, "consumer_offsets", folder=SYSTEM) == NOTHING
    assert "consumer_offsets" in KeyedCompaction.system_tables


def _alter(topics: Topics, settings: dict[str, object]) -> None:
    opened = topics.open("t")
    commit_beside_leader(
        opened,
        lambda state: TableCommit.of(
            "ALTER", [altered_config(state, settings, [])], timestamp_ms=NOW_MS
        ),
    )
