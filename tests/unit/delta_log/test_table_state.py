"""`TableState`: what it refuses, and what it answers about a table with little in it."""

from __future__ import annotations

import pytest

from mainstem.delta_log import TableState
from mainstem.delta_log.append.actions import partition_epochs
from mainstem.delta_log.format import Action, CommitInfo, DataFile, Metadata, Protocol, Register
from mainstem.delta_log.table import PartitionFiles
from mainstem.errors import LogDamagedError, UnsupportedTableError

COMMIT = CommitInfo("id", "APPEND", 5)
METADATA = Metadata("id", 0, {"mainstem.partitions": "3", "mainstem.retention.ms": "5"})


def test_a_table_without_data_begins_at_zero_everywhere() -> None:
    state = TableState("t")
    state.apply(0, [Protocol(), METADATA])
    state.check_complete()
    assert (state.topic_id, state.partition_count, state.epoch, state.deleted) == (
        "id",
        3,
        0,
        False,
    )
    assert (state.log_end_offset(1), state.log_start_offset(1)) == (0, 0)
    assert state.files(1).between(0, 10) == []
    assert state.config.get("retention.ms") == 5
    assert list(state) == []


def test_the_registers_are_read_by_their_meaning() -> None:
    state = TableState("t")
    state.apply(0, [Protocol(), METADATA])
    state.apply(
        1,
        [
            Register("mainstem/leo/1", 10),
            Register("mainstem/lso/1", 4),
            Register("mainstem/epoch", 7),
            Register("mainstem/deleted", 1),
        ],
    )
    assert (state.log_end_offset(1), state.log_start_offset(1)) == (10, 4)
    assert (state.epoch, state.deleted) == (7, True)
    assert (state.log_end_offset(11), state.log_end_offset(0)) == (0, 0)


def test_the_newest_epochs_of_a_partition_say_up_to_where_an_older_log_goes() -> None:
    state = TableState("t")
    state.apply(0, [Protocol(), METADATA])
    ends = []
    for version, epoch in enumerate([2, 3, 5, 8, 13, 21], start=1):
        # What came from a log was accepted in the epoch before, which is known already.
        added = [(state.partition_epoch(1), version * 10), (epoch, version * 10)]
        actions = partition_epochs(state, {1: added})
        state.apply(version, [*actions, Register("mainstem/leo/1", version * 10 + 10)])
        ends.append((state.partition_epoch(1), state.log_end_offset(1)))
        assert partition_epochs(state, {1: [(epoch, 99)]}) == [], "only where it is a new one"
    assert ends == [(2, 20), (3, 30), (5, 40), (8, 50), (13, 60), (21, 70)]
    assert {epoch: state.truncated_to(1, 1000, epoch) for epoch in (5, 6, 8, 13, 21, 99)} == {
        5: 40,  # 8 began there
        6: 40,  # of another log, which has never been this one's
        8: 50,
        13: 60,
        21: 70,
        99: 70,  # this log's leader may have appended nothing yet
    }
    assert state.truncated_to(1, 1000, 2) == 30, "5 is the oldest that is known"
    assert [state.truncated_to(1, offset, 5) for offset in (39, 40, 41)] == [None, None, 40]
    assert [state.truncated_to(1, 1000, epoch) for epoch in (0, -1)] == [None, None]
    assert (state.truncated_to(0, 0, 5), state.truncated_to(0, 1, 5)) == (None, 0)


def test_each_epoch_that_one_commit_brings_has_its_own_beginning() -> None:
    """A leader was killed before it had committed anything: the next one commits what its log has
    together with what it has accepted itself. Who read the former has lost nothing."""
    state = TableState("t")
    state.apply(0, [Protocol(), METADATA])
    state.apply(1, [*partition_epochs(state, {0: [(2, 0)]}), Register("mainstem/leo/0", 10)])
    added = [(3, 10), (5, 20), (5, 25), (8, 30)]
    state.apply(2, [*partition_epochs(state, {0: added}), Register("mainstem/leo/0", 40)])
    assert state.partition_epoch(0) == 8
    ends = {epoch: state.truncated_to(0, 1000, epoch) for epoch in (1, 2, 3, 4, 5, 8)}
    assert ends == {1: 0, 2: 10, 3: 20, 4: 20, 5: 30, 8: 40}
    assert state.truncated_to(0, 20, 3) is None

    many = [(epoch, epoch * 10) for epoch in range(9, 15)]
    state.apply(3, [*partition_epochs(state, {0: many}), Register("mainstem/leo/0", 150)])
    ends = {epoch: state.truncated_to(0, 1000, epoch) for epoch in (8, 10, 11, 13, 14)}
    assert ends == {8: 110, 10: 110, 11: 120, 13: 140, 14: 150}, "the newest four"


def test_a_version_that_does_not_follow_is_a_fault_of_the_caller() -> None:
    state = TableState("t")
    state.apply(0, [Protocol(), METADATA])
    for version in (0, 2):
        with pytest.raises(AssertionError, match="does not follow"):
            state.apply(version, [])


@pytest.mark.parametrize(("actions", "missing"), [([METADATA], "protocol"), ([Protocol()], "meta")])
def test_a_log_without_protocol_or_metadata_is_damaged(
    actions: list[Metadata | Protocol], missing: str
) -> None:
    state = TableState("/w/t")
    state.apply(0, actions)
    with pytest.raises(LogDamagedError, match=f"/w/t has no {missing}"):
        state.check_complete()


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({}, "property mainstem.partitions is ''"),
        ({"mainstem.partitions": "0"}, "property mainstem.partitions is '0'"),
        ({"mainstem.partitions": "-1"}, "property mainstem.partitions is '-1'"),
        ({"mainstem.partitions": "many"}, "property mainstem.partitions is 'many'"),
        (
            {"mainstem.partitions": "1", "mainstem.compression.type": "future"},
            "a setting that this version of mainstem does not know: compression.type is 'future'",
        ),
    ],
)
def test_a_table_whose_properties_make_no_topic_is_unsupported(
    configuration: dict[str, str], message: str
) -> None:
    state = TableState("/w/t")
    with pytest.raises(UnsupportedTableError, match=message):
        state.apply(0, [Protocol(), Metadata("id", 0, configuration)])


@pytest.mark.parametrize("text", ["3", "10"])
def test_a_table_of_a_newer_format_is_unsupported(text: str) -> None:
    state = TableState("/w/t")
    metadata = Metadata("id", 0, {**METADATA.configuration, "mainstem.format": text})
    with pytest.raises(UnsupportedTableError, match=f"/w/t has format {text}.*newer version"):
        state.apply(0, [COMMIT, Protocol(), metadata])


@pytest.mark.parametrize("text", ["0", "", "-1", "two"])
def test_a_table_with_a_format_that_cannot_be_is_unsupported(text: str) -> None:
    state = TableState("/w/t")
    metadata = Metadata("id", 0, {**METADATA.configuration, "mainstem.format": text})
    with pytest.raises(UnsupportedTableError, match=f"property mainstem.format is '{text}'"):
        state.apply(0, [COMMIT, Protocol(), metadata])


def test_a_table_without_a_format_is_of_the_first_and_its_commits_need_no_checksum() -> None:
    state = TableState("t")
    state.apply(0, [Protocol(), METADATA])
    state.apply(1, [Register("r", 1)])
    assert (state.format, state.register_value("r")) == (1, 1)


@pytest.mark.parametrize("info", [[], [CommitInfo("id", "APPEND", 5, has_checksum=False)]])
def test_a_commit_without_checksum_is_damage_in_a_table_of_the_second_format(
    info: list[CommitInfo],
) -> None:
    first: list[Action] = [
        Protocol(),
        Metadata("id", 0, {**METADATA.configuration, "mainstem.format": "2"}),
    ]
    with pytest.raises(LogDamagedError, match="version 0 of /w/t has no checksum"):
        TableState("/w/t").apply(0, [*info, *first])
    state = TableState("/w/t")
    state.apply(0, [COMMIT, *first])
    assert state.format == 2
    with pytest.raises(LogDamagedError, match="version 1 of /w/t has no checksum"):
        state.apply(1, [*info, Register("r", 1)])
    assert (state.version, state.register_value("r")) == (0, 0), "nothing of it is served"
    state.apply(1, [COMMIT, Register("r", 1)])


def test_a_protocol_that_changes_to_one_that_we_do_not_know_is_refused() -> None:
    state = TableState("/w/t")
    state.apply(0, [Protocol(), METADATA])
    with pytest.raises(UnsupportedTableError, match="rowTracking"):
        state.apply(1, [Protocol(writer_features=("mainstemLog", "rowTracking"))])


def _file(base_offset: int, count: int = 10) -> DataFile:
    last = base_offset + count - 1
    return DataFile(f"partition=0/{base_offset}-{count}", 0, base_offset, last, count, 1, 0, 0, 0)


def test_files_that_arrive_out_of_order_are_kept_in_order() -> None:
    files = PartitionFiles(0)
    assert (len(files), files.sorted(), files.between(0, 100)) == (0, [], [])
    for base_offset in (50, 20, 90, 0, 60, 100, 10):
        files.add(_file(base_offset))
    assert [file.base_offset for file in files] == [0, 10, 20, 50, 60, 90, 100]
    assert [file.base_offset for file in files.between(15, 61)] == [10, 20, 50, 60]
    assert [file.base_offset for file in files.between(15, 61, files_max=2)] == [10, 20]
    files.remove(next(file for file in files if file.base_offset == 60))
    assert [file.base_offset for file in files.between(15, 70)] == [10, 20, 50]
    assert (len(files), files.size_bytes, files.record_count) == (6, 6, 60)
