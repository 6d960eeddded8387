"""Whether a table still is at a version that was seen: nothing that changed it is missed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.unit.delta_log.faults import FaultyStore, unavailable
from tests.unit.delta_log.tables import append, create_table

from mainstem.delta_log import LocalStore, ObjectStore, Topics, load_table
from mainstem.delta_log.format import LAST_CHECKPOINT, LOG, Register, commit_path
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.table import TableCommit, VersionMark, commit_beside_leader
from mainstem.delta_log.upkeep import clean_log, write_checkpoint
from mainstem.errors import StoreUnavailableError


def table(store: LocalStore, topic: str = "t", appends: int = 3) -> ObjectStore:
    """A new topic's table with that many commits after the first."""
    bound = StoreFolder(store, f"topics/{topic}")
    state = create_table(bound)
    for _ in range(appends):
        append(bound, state, 0)
    return bound


def grow(bound: ObjectStore, appends: int) -> None:
    state = load_table(bound)
    for _ in range(appends):
        append(bound, state, 0)


def mark_of(bound: ObjectStore) -> VersionMark:
    mark = VersionMark.of(bound, load_table(bound).version)
    assert mark is not None
    return mark


def test_a_table_that_nobody_touched_is_at_its_mark(store: LocalStore) -> None:
    bound = table(store)
    mark = mark_of(bound)
    assert mark.version == 3
    assert mark.is_newest(StoreFolder(store, "topics/t"))


def test_three_files_are_asked_for_by_name_and_nothing_is_listed(store: LocalStore) -> None:
    mark = mark_of(table(store))
    faulty = FaultyStore(StoreFolder(store, "topics/t"))
    assert mark.is_newest(faulty)
    assert [path for _, path in faulty.calls] == [
        commit_path(4),
        commit_path(3),
        LAST_CHECKPOINT,
    ]
    assert {call for call, _ in faulty.calls} == {"read", "read_range"}


def test_any_commit_is_seen(store: LocalStore) -> None:
    topics = Topics(store)
    topics.create("t", 1)
    opened = topics.open("t")
    mark = mark_of(opened.store)
    commit_beside_leader(
        opened, lambda _: TableCommit.of("X", [Register("mainstem/x", 1)], timestamp_ms=1)
    )
    assert not mark.is_newest(StoreFolder(store, "topics/t"))


@pytest.mark.parametrize("appends", [0, 3, 5])
def test_another_table_in_its_place_is_another_at_whatever_version(
    store: LocalStore, appends: int
) -> None:
    mark = mark_of(table(store))
    shutil.rmtree(Path(store.uri, "topics", "t"))
    assert not mark.is_newest(StoreFolder(store, "topics/t"))
    table(store, appends=appends)
    assert not mark.is_newest(StoreFolder(store, "topics/t"))


def test_a_table_that_was_put_back_from_a_copy_is_seen_also_when_it_has_grown_as_far_again(
    store: LocalStore, tmp_path: Path
) -> None:
    bound = table(store, appends=2)
    root = Path(store.uri, "topics", "t")
    shutil.copytree(root, tmp_path / "copy")
    grow(bound, 1)
    mark = mark_of(bound)
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    assert not mark.is_newest(StoreFolder(store, "topics/t"))
    grow(StoreFolder(store, "topics/t"), 1)
    assert not mark.is_newest(StoreFolder(store, "topics/t"))


def clean(bound: ObjectStore) -> None:
    """Checkpoints the newest version, and removes every commit file before it."""
    write_checkpoint(bound)
    for info in bound.list_files(LOG):
        os.utime(Path(bound.uri, LOG, info.name), (1_000_000_000, 1_000_000_000))
    assert clean_log(bound, 3_600_000) > 0


@pytest.mark.parametrize("version", [0, 3])
def test_a_log_that_was_cleaned_beyond_the_next_version_is_seen(
    store: LocalStore, version: int
) -> None:
    bound = table(store, appends=version)
    mark = mark_of(bound)
    grow(bound, 3)
    clean(bound)
    assert not Path(bound.uri, commit_path(version + 1)).exists()
    assert not mark.is_newest(StoreFolder(store, "topics/t"))


@pytest.mark.parametrize("version", [0, 3])
def test_a_commit_that_a_writer_which_slept_puts_back_into_a_cleaned_log_is_not_the_newest(
    store: LocalStore, version: int
) -> None:
    bound = table(store, appends=version)
    mark = mark_of(bound)
    same = bound.read(commit_path(version))
    grow(bound, 3)
    clean(bound)
    bound.put_if_absent(commit_path(version), same)
    assert not mark.is_newest(StoreFolder(store, "topics/t"))


def test_a_checkpoint_is_no_commit_and_is_seen(store: LocalStore) -> None:
    bound = table(store)
    mark = mark_of(bound)
    write_checkpoint(bound)
    assert not mark.is_newest(StoreFolder(store, "topics/t"))
    assert mark_of(bound).is_newest(StoreFolder(store, "topics/t"))


def test_without_its_commit_file_a_version_has_no_mark(store: LocalStore) -> None:
    bound = table(store)
    mark = mark_of(bound)
    write_checkpoint(bound)
    bound.delete(commit_path(3))
    assert VersionMark.of(bound, 3) is None
    assert not mark.is_newest(StoreFolder(store, "topics/t"))


def test_a_store_that_fails_does_not_say_that_nothing_has_changed(store: LocalStore) -> None:
    mark = mark_of(table(store))
    for name in (commit_path(4), commit_path(3), LAST_CHECKPOINT):

        def before(call: str, path: str, name: str = name) -> None:
            if path.endswith(name):
                raise unavailable()

        with pytest.raises(StoreUnavailableError):
            mark.is_newest(FaultyStore(StoreFolder(store, "topics/t"), before))
