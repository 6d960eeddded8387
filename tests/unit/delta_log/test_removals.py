"""What the log knows of removed files, and whether delta-rs agrees on those that are live."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.delta_log.tables import NOW_MS, append, commit, create_table

from mainstem.delta_log import LocalStore, TableState, load_table
from mainstem.delta_log.format import (
    Action,
    Register,
    Remove,
    checkpoint_path,
    commit_path,
    registers,
)
from mainstem.delta_log.table import TableCommit, check_replay, known_paths, read_removals
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import LogDamagedError


@pytest.fixture
def state(store: LocalStore) -> TableState:
    """A table with two files in partition 0, and two that were removed at `NOW_MS` and a second
    later: versions 5 and 6."""
    made = create_table(store)
    files = [append(store, made, 0) for _ in range(4)]
    for second, file in enumerate(files[:2]):
        removal = Remove(file.path, 0, file.size_bytes, NOW_MS + 1_000 * second, data_change=True)
        one = commit(store, made.version + 1, [removal], "TEST")
        made.apply(made.version + 1, one.actions)
    return made


def _times(store: LocalStore, after_ms: int = 0, until_ms: int = 2**62) -> list[int]:
    state = load_table(store)
    found = read_removals(store, state, after_ms=after_ms, until_ms=until_ms).files
    return sorted(one.removed_ms - NOW_MS for one in found)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_removals_are_found_by_their_time(
    store: LocalStore, state: TableState, checkpointed: bool
) -> None:
    if checkpointed:
        write_checkpoint(store)
    assert _times(store) == [0, 1_000]
    assert _times(store, after_ms=NOW_MS) == [1_000]
    assert _times(store, until_ms=NOW_MS) == [0]
    assert _times(store, after_ms=NOW_MS + 1_000) == []


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_first_removal_after_the_time_is_told(
    store: LocalStore, state: TableState, checkpointed: bool
) -> None:
    if checkpointed:
        write_checkpoint(store)
    loaded = load_table(store)

    def next_ms(after_ms: int, until_ms: int) -> int | None:
        return read_removals(store, loaded, after_ms=after_ms, until_ms=until_ms).next_ms

    assert next_ms(0, NOW_MS - 1) == NOW_MS
    assert next_ms(0, NOW_MS) == NOW_MS + 1_000
    assert next_ms(0, NOW_MS + 1_000) is None
    # What was dealt with while the clock was ahead is not to come.
    assert next_ms(NOW_MS, NOW_MS - 1) == NOW_MS + 1_000


def test_a_file_that_was_added_again_is_not_removed(store: LocalStore, state: TableState) -> None:
    first = next(iter(state))
    removal = Remove(first.path, 0, first.size_bytes, NOW_MS, data_change=True)
    commit(store, 7, [removal], "TEST")
    commit(store, 8, [first], "TEST")
    assert _times(store) == [0, 1_000]


def test_a_removal_counts_from_when_its_commit_landed(store: LocalStore, state: TableState) -> None:
    """A leader whose store fails tries the same commit for as long as it takes."""
    landed_s = NOW_MS / 1_000 + 60
    os.utime(Path(store.uri, commit_path(5)), (landed_s, landed_s))
    assert _times(store) == [1_000, 60_000]


def test_every_file_of_any_version_is_known_through_clean_up(
    store: LocalStore, state: TableState
) -> None:
    expected = {file.path for file in state} | {
        one.path for one in read_removals(store, state, after_ms=0, until_ms=2**62).files
    }
    assert len(expected) == 4
    assert known_paths(store) == expected
    write_checkpoint(store)
    for version in range(7):
        Path(store.uri, commit_path(version)).unlink()
    assert known_paths(store) == expected


def test_a_clean_up_that_was_killed_leaves_gaps_and_every_file_is_known(
    store: LocalStore, state: TableState
) -> None:
    expected = known_paths(store)
    write_checkpoint(store)
    for version in (1, 2, 4):
        Path(store.uri, commit_path(version)).unlink()
    assert known_paths(store) == expected


def test_a_damaged_checkpoint_is_said_to_be_one(store: LocalStore, state: TableState) -> None:
    version = write_checkpoint(store)
    loaded = load_table(store)
    Path(store.uri, checkpoint_path(version)).write_bytes(b"torn")
    with pytest.raises(LogDamagedError, match="is damaged"):
        read_removals(store, loaded, after_ms=0, until_ms=1)
    with pytest.raises(LogDamagedError, match="is damaged"):
        known_paths(store)


def test_a_log_that_is_cleaned_while_it_is_read_is_an_error_not_a_shorter_answer(
    store: LocalStore, state: TableState
) -> None:
    Path(store.uri, commit_path(5)).unlink()
    with pytest.raises(LogDamagedError, match="was cleaned up to version 5"):
        read_removals(store, state, after_ms=0, until_ms=1)
    with pytest.raises(LogDamagedError, match="was cleaned up to version 5"):
        known_paths(store)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_both_replays_agree(store: LocalStore, state: TableState, checkpointed: bool) -> None:
    if checkpointed:
        write_checkpoint(store)
        append(store, state, 1)
    check_replay(store, load_table(store))
    append(store, state, 2)  # a newer version is another matter


@pytest.mark.parametrize(
    ("what", "finding"),
    [
        ("missing", r"1 and 2 files: \S+ only there"),
        ("added", r"3 and 2 files: partition=0/more only here"),
        ("register", r"mainstem/leo/0: 11 and 12"),
        ("unset register", r"mainstem/lso/3: 4 and None"),
    ],
)
def test_what_the_replays_differ_in_is_said(
    store: LocalStore, state: TableState, what: str, finding: str
) -> None:
    first = next(iter(state))
    wrong: list[Action]
    if what == "missing":
        wrong = [Remove(first.path, 0, 0, 0, data_change=True)]
    elif what == "added":
        wrong = [replace(first, path="partition=0/more")]
    elif what == "register":
        wrong = [Register(registers.leo(0), 11)]
    else:
        wrong = [Register(registers.lso(3), 4)]
    state.apply(state.version + 1, TableCommit.of("APPEND", wrong, timestamp_ms=0).actions)
    state.version -= 1
    with pytest.raises(LogDamagedError, match=finding):
        check_replay(store, state)
