"""Trimming: which files go, and where the log start offset is after each commit."""

from __future__ import annotations

import pytest
from tests.unit.delta_log.table_states import state_of
from tests.unit.delta_log.tables import NOW_MS, append, commit, create_table

from mainstem.delta_log import LocalStore, TableState, load_table
from mainstem.delta_log.format import Action, Metadata, Register, Remove, registers
from mainstem.delta_log.table import HIGH_WATERMARK, trim_step, trim_targets
from mainstem.delta_log.verify import verify_topic
from mainstem.errors import OffsetOutOfRangeError, PolicyViolationError, UnknownPartitionError


def _trimmed(state: TableState, starts: dict[int, int], files_max: int = 2_000) -> int:
    """Takes steps until nothing is left to do; returns how many."""
    for count in range(100):
        actions = trim_step(state, starts, NOW_MS, files_max)
        if not actions:
            return count
        state.apply(state.version + 1, actions)
    raise AssertionError("trimming does not end")


def _start_and_files(state: TableState, partition: int) -> tuple[int, list[int]]:
    files = [file.base_offset for file in state.files(partition).sorted()]
    return state.log_start_offset(partition), files


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [0, 10, 20]),
        (1, [0, 10, 20]),
        (9, [0, 10, 20]),
        (10, [10, 20]),
        (11, [10, 20]),
        (29, [20]),
        (30, []),
    ],
)
def test_files_before_the_new_start_go_and_one_that_has_it_inside_stays(
    start: int, left: list[int]
) -> None:
    state = state_of([(0, 10), (10, 10), (20, 10)])
    _trimmed(state, {0: start})
    assert _start_and_files(state, 0) == (start, left)
    assert state.log_end_offset(0) == 30


def test_a_start_never_moves_back() -> None:
    state = state_of([(0, 10), (10, 10)])
    _trimmed(state, {0: 15})
    assert trim_step(state, {0: 4}, NOW_MS) == []
    assert _start_and_files(state, 0) == (15, [10])


def test_many_files_go_in_several_commits_each_of_which_moves_the_start_only_over_its_own() -> None:
    state = state_of([(base, 2) for base in range(0, 20, 2)])
    actions = trim_step(state, {0: 15}, NOW_MS, files_max=3)
    assert [action.path for action in actions if isinstance(action, Remove)] == [
        file.path for file in state.files(0).sorted()[:3]
    ]
    assert actions[-1] == Register(registers.lso(0), 6)
    assert _trimmed(state, {0: 15}, files_max=3) == 3
    assert _start_and_files(state, 0) == (15, [14, 16, 18])


def test_a_start_inside_the_first_file_that_is_left_over_is_reached_with_that_file() -> None:
    state = state_of([(0, 10), (10, 10)])
    state.apply(state.version + 1, [Register(registers.lso(0), 4)])
    actions = trim_step(state, {0: 20}, NOW_MS, files_max=0)
    assert actions == []
    assert _trimmed(state, {0: 20}, files_max=1) == 2
    assert _start_and_files(state, 0) == (20, [])


def test_holes_of_keyed_compaction_do_not_keep_a_start_back() -> None:
    state = state_of([(3, 2), (40, 1)], end=50)
    _trimmed(state, {0: 30})
    assert _start_and_files(state, 0) == (30, [40])


def test_removals_tell_delta_streams_that_records_go() -> None:
    state = state_of([(0, 10)])
    (remove, _) = trim_step(state, {0: 10}, NOW_MS)
    assert isinstance(remove, Remove)
    assert (remove.data_change, remove.removed_ms, remove.partition) == (True, NOW_MS, 0)


def test_targets_take_the_high_watermark_by_its_name_and_keep_a_start_that_is_further() -> None:
    state = state_of([(0, 10), (10, 10)])
    assert trim_targets(state, "t", {0: HIGH_WATERMARK}) == {0: 20}
    _trimmed(state, {0: 12})
    assert trim_targets(state, "t", {0: 3}) == {0: 12}


@pytest.mark.parametrize("offset", [-2, 21, 2**62])
def test_an_offset_that_is_not_in_the_log_is_refused_with_its_bounds(offset: int) -> None:
    state = state_of([(0, 10), (10, 10)])
    with pytest.raises(OffsetOutOfRangeError, match="high watermark is 20") as caught:
        trim_targets(state, "t", {0: offset})
    assert caught.value.facts["high_watermark"] == "20"


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownPartitionError, match="no partition 9"):
        trim_targets(state_of([(0, 1)]), "t", {9: 0})


@pytest.mark.parametrize(("policy", "refused"), [("compact", True), ("compact,delete", False)])
def test_a_topic_that_is_only_compacted_is_not_trimmed(policy: str, refused: bool) -> None:
    state = state_of([(0, 10)])
    assert state.metadata is not None
    configuration = {**state.metadata.configuration, "mainstem.cleanup.policy": policy}
    state.apply(state.version + 1, [Metadata("t", 0, configuration)])
    if refused:
        with pytest.raises(PolicyViolationError, match=r"cleanup\.policy=compact"):
            trim_targets(state, "t", {0: 5})
    else:
        assert trim_targets(state, "t", {0: 5}) == {0: 5}


def test_a_trimmed_table_verifies_whether_files_are_cut_or_all_are_gone(store: LocalStore) -> None:
    state = create_table(store)
    for partition in (0, 0, 0, 1, 1):
        append(store, state, partition)
    while actions := trim_step(state, {0: 4, 1: 6}, NOW_MS, files_max=1):
        state.apply(state.version + 1, commit(store, state.version + 1, actions, "TRIM").actions)
    assert _start_and_files(load_table(store), 0) == (4, [3, 6])
    assert _start_and_files(load_table(store), 1) == (6, [])
    report = verify_topic(store, "t")
    assert report.ok, report.findings
    append(store, state, 1)
    assert verify_topic(store, "t").ok


@pytest.mark.parametrize(
    ("actions", "finding"),
    [
        ([Register(registers.lso(0), 3)], "lies before"),
        ([Register(registers.lso(0), 10)], "mainstem/lso/0 is 10"),
    ],
)
def test_verify_finds_a_start_that_does_not_fit_the_files(
    store: LocalStore, actions: list[Action], finding: str
) -> None:
    state = create_table(store)
    append(store, state, 0)
    append(store, state, 0)
    commit(store, state.version + 1, actions, "TRIM")
    report = verify_topic(store, "t")
    assert {one.code for one in report.findings} == {"REGISTER_WRONG"}
    assert finding in report.findings[0].message


def test_verify_finds_files_that_are_gone_without_the_start_having_moved(store: LocalStore) -> None:
    state = create_table(store)
    append(store, state, 0)
    append(store, state, 0)
    removes = [one for one in trim_step(state, {0: 3}, NOW_MS) if isinstance(one, Remove)]
    commit(store, state.version + 1, removes, "TRIM")
    report = verify_topic(store, "t")
    assert [one.code for one in report.findings] == ["REGISTER_WRONG"]
