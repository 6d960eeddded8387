"""The committer: three outcomes, whatever the store does in between."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from tests.unit.delta_log.faults import FaultyStore, LateListing, times, unavailable, unknown
from tests.unit.delta_log.tables import append, commit, create_table, same_state

from mainstem.delta_log import (
    Committed,
    Committer,
    Conflict,
    LocalStore,
    OutcomeUnknown,
    load_table,
)
from mainstem.delta_log.format import CommitInfo, Register, commit_path
from mainstem.delta_log.table import Overtaken, TableCommit, read_commit
from mainstem.delta_log.table.committer import NewFile
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import (
    LogDamagedError,
    StoreUnavailableError,
)

pytestmark = pytest.mark.fault


@pytest.fixture(params=["near", "far"], autouse=True)
def distance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it holds in the same way where calls are made at the same time."""
    monkeypatch.setattr(LocalStore, "is_far", property(lambda _: request.param == "far"))


def _one(value: int = 1) -> TableCommit:
    return TableCommit.of("TEST", [Register("r", value)], timestamp_ms=5)


def test_a_commit_at_the_next_version_is_committed(store: LocalStore) -> None:
    create_table(store)
    one = _one()
    assert Committer(store).commit(1, one) == Committed(1)
    assert tuple(read_commit(store, 1)) == one.actions
    assert one.info.action_count == 2


def test_a_commit_at_a_version_that_is_taken_gets_the_winners_actions(store: LocalStore) -> None:
    create_table(store)
    winner = commit(store, 1, [Register("r", 7)])
    outcome = Committer(store).commit(1, _one())
    assert outcome == Conflict(1, winner.actions)
    assert load_table(store).registers["r"].value == 7


def test_a_commit_that_landed_but_was_reported_as_failed_is_told_by_its_id(
    store: LocalStore,
) -> None:
    create_table(store)
    faulty = FaultyStore(store, after=times(1, "put_if_absent", unknown()))
    committer = Committer(faulty)
    one = _one()
    assert committer.commit(1, one) == OutcomeUnknown(1, one.info.commit_id)
    assert committer.commit(1, one) == Committed(1)
    assert load_table(store).version == 1
    # What can be seen need not survive a loss of power: it is synced before it is called committed.
    assert ("make_durable", commit_path(1)) in faulty.calls


def test_a_commit_of_unknown_outcome_that_did_not_land_lands_at_the_second_attempt(
    store: LocalStore,
) -> None:
    create_table(store)
    committer = Committer(FaultyStore(store, times(1, "put_if_absent", unknown())))
    one = _one()
    assert isinstance(committer.commit(1, one), OutcomeUnknown)
    assert committer.commit(1, one) == Committed(1)
    assert load_table(store).version == 1


def test_a_commit_of_unknown_outcome_whose_version_another_has_is_a_conflict(
    store: LocalStore,
) -> None:
    create_table(store)
    committer = Committer(FaultyStore(store, times(1, "put_if_absent", unknown())))
    one = _one()
    assert isinstance(committer.commit(1, one), OutcomeUnknown)
    winner = commit(store, 1, [Register("r", 7)])
    assert committer.commit(1, one) == Conflict(1, winner.actions)


def test_a_failure_before_the_commit_could_be_there_is_raised_and_can_be_tried_again(
    store: LocalStore,
) -> None:
    create_table(store)
    committer = Committer(FaultyStore(store, times(1, "put_if_absent", unavailable())))
    one = _one()
    with pytest.raises(StoreUnavailableError):
        committer.commit(1, one)
    assert load_table(store).version == 0
    assert committer.commit(1, one) == Committed(1)


@pytest.mark.parametrize("call", ["read", "make_durable"])
def test_a_store_that_fails_while_the_outcome_is_found_out_leaves_it_unknown(
    store: LocalStore, call: str
) -> None:
    """Our own commit may be there: "nothing was done" would be a lie."""
    create_table(store)
    one = _one()
    Committer(store).commit(1, one)
    committer = Committer(FaultyStore(store, times(1, call, unavailable())))
    assert committer.commit(1, one) == OutcomeUnknown(1, one.info.commit_id)
    assert committer.commit(1, one) == Committed(1)


def test_a_torn_file_in_the_place_of_the_commit_is_named(store: LocalStore) -> None:
    create_table(store)
    Path(store.uri, commit_path(1)).write_bytes(b'{"commitInfo"')
    with pytest.raises(LogDamagedError, match=commit_path(1)):
        Committer(store).commit(1, _one())


def test_a_version_that_was_taken_and_cleaned_up_is_not_free_for_us(store: LocalStore) -> None:
    create_table(store)
    commit(store, 1, [Register("r", 7)])

    def clean_up(call: str, path: str) -> None:
        if (call, path) == ("read", commit_path(1)):
            Path(store.uri, path).unlink()

    outcome = Committer(FaultyStore(store, clean_up)).commit(1, _one())
    assert outcome == Overtaken(1, maybe_ours=False)


def test_a_foreign_commit_without_an_id_is_a_conflict(store: LocalStore) -> None:
    create_table(store)
    store.put(commit_path(1), b'{"commitInfo":{"operation":"WRITE"}}\n')
    outcome = Committer(store).commit(1, _one())
    assert isinstance(outcome, Conflict)
    assert isinstance(outcome.actions[0], CommitInfo)


@pytest.mark.parametrize("left", [(), (1,), (3,), (0, 1, 3, 4)])
def test_a_writer_that_slept_through_a_clean_up_cannot_commit_into_the_past(
    store: LocalStore, left: tuple[int, ...]
) -> None:
    """The file of its next version is gone, so the name is free; but nobody would read it. Clean-up
    may have been killed, and left others."""
    state = create_table(store)
    for _ in range(5):
        append(store, state, 0)
    old = time.time() - 2 * 3600
    kept = {version: store.read(commit_path(version)) for version in left}
    for info in store.list_files("_delta_log"):
        os.utime(Path(store.uri, "_delta_log", info.name), (old, old))
    write_checkpoint(store)
    assert not Path(store.uri, commit_path(2)).exists()
    for version, data in kept.items():
        store.put(commit_path(version), data)
        os.utime(Path(store.uri, commit_path(version)), (old, old))
    one = _one()
    for _ in range(2):
        assert Committer(store).commit(2, one) == Overtaken(2, maybe_ours=False)
    assert not Path(store.uri, commit_path(2)).exists()
    assert same_state(load_table(store), state)
    assert Committer(store).commit(state.version + 1, one) == Committed(state.version + 1)


def test_a_commit_that_a_checkpoint_covers_at_once_is_committed(store: LocalStore) -> None:
    state = create_table(store)
    append(store, state, 0)

    def checkpoint(call: str, path: str) -> None:
        if call == "put_if_absent":
            write_checkpoint(store)

    assert Committer(FaultyStore(store, after=checkpoint)).commit(2, _one()) == Committed(2)


def test_a_commit_after_which_others_and_a_checkpoint_came_at_once_is_committed(
    store: LocalStore,
) -> None:
    state = create_table(store)
    append(store, state, 0)

    def go_on(call: str, path: str) -> None:
        if call == "put_if_absent":
            for version in (3, 4):
                commit(store, version, [Register("r", version)])
            write_checkpoint(store)

    assert Committer(FaultyStore(store, after=go_on)).commit(2, _one()) == Committed(2)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_commit_is_committed_though_a_listing_has_the_versions_after_the_next_but_not_the_next(
    store: LocalStore, checkpoint: bool
) -> None:
    state = create_table(store)
    append(store, state, 0)

    def go_on(call: str, path: str) -> None:
        if call == "put_if_absent":
            for version in (3, 4):
                commit(store, version, [Register("r", version)])
            if checkpoint:
                write_checkpoint(store)

    one = _one()
    listing = LateListing(store, after=go_on, lacks=3)
    assert Committer(listing).commit(2, one) == Committed(2)
    assert read_commit(store, 2) == list(one.actions), "what is needed was taken away"


def test_a_version_that_a_listing_lacks_and_the_next_of_which_it_has_is_a_conflict(
    store: LocalStore,
) -> None:
    state = create_table(store)
    append(store, state, 0)

    def go_on(call: str, path: str) -> None:
        if call == "list_files" and not (Path(store.uri) / commit_path(2)).exists():
            for version in (2, 3):
                commit(store, version, [Register("r", version)])

    outcome = Committer(LateListing(store, before=go_on, lacks=2)).commit(2, _one())
    assert isinstance(outcome, Conflict), outcome
    assert outcome.version == 2


@pytest.mark.parametrize("call", ["read_range", "list_files"])
def test_a_commit_of_which_it_cannot_be_told_whether_it_is_in_the_past_is_unknown(
    store: LocalStore, call: str
) -> None:
    create_table(store)
    is_put = [False]

    def note(name: str, path: str) -> None:
        is_put[0] = is_put[0] or name == "put_if_absent"

    fails = times(1, call, unavailable())

    def fail(name: str, path: str) -> None:
        if is_put[0]:
            fails(name, path)

    committer = Committer(FaultyStore(store, fail, note))
    one = _one()
    assert committer.commit(1, one) == OutcomeUnknown(1, one.info.commit_id)
    assert committer.commit(1, one) == Committed(1)


def test_a_far_store_is_asked_three_times_in_a_row_for_a_commit_with_files(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pair meets: the version before is read while the files are put, and once more while
    `_last_checkpoint` is."""
    monkeypatch.setattr(LocalStore, "is_far", True)
    create_table(store)
    meet = threading.Barrier(3)
    read = threading.Barrier(2)

    def before(call: str, path: str) -> None:
        if call == "put" or (call == "read_range" and not read_after.is_set()):
            meet.wait(20)
        elif call in ("read_range", "read"):
            read.wait(20)
        elif call == "put_if_absent":
            read_after.set()

    read_after = threading.Event()
    files = [NewFile(f"part-{number}.parquet", b"x") for number in range(2)]
    committer = Committer(FaultyStore(store))
    first = _one()
    assert committer.commit(1, first) == Committed(1)
    faulty = FaultyStore(store, before=before)
    committer._store = faulty
    second = TableCommit.of("TEST", [Register("r", 2)], timestamp_ms=5, new_files=files)
    assert committer.commit(2, second, first.info.commit_id) == Committed(2)
    assert len(faulty.calls) == 6
    assert not any(call == "list_files" for call, _ in faulty.calls)


@pytest.mark.parametrize("call", ["put", "read_range"])
def test_a_far_store_that_fails_at_one_of_two_calls_has_no_commit(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(LocalStore, "is_far", True)
    create_table(store)
    faulty = FaultyStore(store, before=times(1, call, unavailable()))
    files = [NewFile("part.parquet", b"x")]
    one = TableCommit.of("TEST", [Register("r", 2)], timestamp_ms=5, new_files=files)
    committer = Committer(faulty)
    with pytest.raises(StoreUnavailableError):
        committer.commit(1, one)
    assert load_table(store).version == 0
    assert committer.commit(1, one) == Committed(1)
    assert store.read("part.parquet") == b"x"
