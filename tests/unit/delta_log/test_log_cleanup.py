"""Log clean-up: in order, whatever interrupts it, and never more than is old by any clock."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from tests.unit.delta_log.faults import FaultyStore, unavailable
from tests.unit.delta_log.tables import append, create_table, same_state

from mainstem.delta_log import LocalStore, TableState, load_table
from mainstem.delta_log.format import LOG, LogFiles, checkpoint_path, commit_path
from mainstem.delta_log.store import ObjectInfo, SteadyClock
from mainstem.delta_log.upkeep import (
    LiveTable,
    clean_log,
    create_checkpoint,
    cut_off_ms,
    cut_off_version,
)
from mainstem.errors import StoreUnavailableError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Clock:
    """Wall and elapsed time that a test moves."""

    def __init__(self) -> None:
        self.wall_ms = time.time_ns() // 1_000_000
        self.elapsed_ms = 5_000
        self.steady = SteadyClock(lambda: self.wall_ms, lambda: self.elapsed_ms)

    def run(self, ms: int) -> None:
        self.wall_ms += ms
        self.elapsed_ms += ms

    def set_forward(self, ms: int) -> None:
        self.wall_ms += ms


def _age(store: LocalStore, seconds: float, versions: range | None = None) -> None:
    """Makes files of the log older, or all of them."""
    for info in store.list_files(LOG):
        if versions is None or (info.name[:20].isdigit() and int(info.name[:20]) in versions):
            at = info.modified_ms / 1000 - seconds
            os.utime(Path(store.uri, LOG, info.name), (at, at))


def _commits(store: LocalStore) -> list[int]:
    return sorted(LogFiles.of(store).commits)


def _table(store: LocalStore, checkpoints: tuple[int, ...] = (4, 9)) -> TableState:
    """Versions 0 to 11, with checkpoints."""
    state = create_table(store)
    while state.version < 11:
        append(store, state, state.version % 4)
        if state.version in checkpoints:
            create_checkpoint(store, LiveTable.of(state))
    return state


def test_all_stays_from_the_newest_checkpoint_on_that_is_old_enough(store: LocalStore) -> None:
    state = _table(store)
    _age(store, 2 * 3600, range(7))
    assert clean_log(store, HOUR_MS) == 4
    assert _commits(store) == list(range(4, 12))
    assert LogFiles.of(store).checkpoints == (4, 9)
    assert same_state(load_table(store), state)
    assert clean_log(store, HOUR_MS) == 0


def test_a_version_that_was_the_newest_within_the_retention_stays_readable(
    store: LocalStore,
) -> None:
    """The commit before a young one was the newest until the young one came."""
    _table(store)
    _age(store, 2 * 3600, range(9))
    clean_log(store, HOUR_MS)
    assert _commits(store)[0] == 4
    _age(store, 2 * 3600, range(10))
    clean_log(store, HOUR_MS)
    assert _commits(store)[0] == 9
    assert LogFiles.of(store).checkpoints == (9,)


def test_nothing_goes_without_a_checkpoint_that_is_old_enough(store: LocalStore) -> None:
    _table(store, checkpoints=(9,))
    _age(store, 2 * 3600, range(9))
    assert clean_log(store, HOUR_MS) == 0
    assert _commits(store) == list(range(12))


@pytest.mark.fault
def test_clean_up_may_be_killed_at_every_step_and_leaves_one_run_up_to_the_newest(
    store: LocalStore,
) -> None:
    state = _table(store)
    _age(store, 2 * 3600)
    steps = 0
    while True:
        seen: list[str] = []

        def kill(call: str, path: str, seen: list[str] = seen) -> None:
            if call == "delete":
                seen.append(path)
                if len(seen) > 1:  # one file each time
                    raise unavailable()

        try:
            clean_log(FaultyStore(store, kill), HOUR_MS)
        except StoreUnavailableError:
            steps += 1
        commits = _commits(store)
        assert commits == list(range(commits[0], 12))
        assert same_state(load_table(store), state)
        if not seen:
            break
    assert steps == 9  # nine commit files and a checkpoint, of which the last one ended well
    assert commits[0] == 9


@pytest.mark.fault
@pytest.mark.slow
def test_two_processes_may_clean_one_log_at_once_while_a_third_writes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    state = create_table(store)
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    cleaners = [spawn.Process(target=_clean_until, args=(store.uri, stop)) for _ in range(2)]
    for one in cleaners:
        one.start()
    try:
        until = time.monotonic() + 6
        gone = 0
        while time.monotonic() < until:
            append(store, state, state.version % 4)
            if state.version % 10 == 0:
                create_checkpoint(store, LiveTable.of(state))
            # A file that is found after the next one was not: the next one went first.
            for version in range(max(gone - 2, 0), state.version - 1):
                if not Path(store.uri, commit_path(version + 1)).exists():
                    gone = version + 1
                    assert not Path(store.uri, commit_path(version)).exists()
                else:
                    break
    finally:
        stop.set()
        for one in cleaners:
            one.join()
    assert [one.exitcode for one in cleaners] == [0, 0]
    assert gone > 50
    assert same_state(load_table(store), state)
    store.close()


def _clean_until(uri: str, stop: Event) -> None:
    store = LocalStore(uri)
    while not stop.is_set():
        clean_log(store, 300)
        time.sleep(0.01)


def test_a_damaged_checkpoint_is_no_reason_to_remove_anything(store: LocalStore) -> None:
    state = _table(store)
    _age(store, 2 * 3600)
    Path(store.uri, checkpoint_path(9)).write_bytes(b"PAR1")
    assert clean_log(store, HOUR_MS) == 4
    assert _commits(store) == list(range(4, 12))
    assert same_state(load_table(store), state)


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.9])
def test_nothing_goes_for_a_torn_checkpoint_that_no_older_one_replaces(
    store: LocalStore, kept: float
) -> None:
    _table(store, checkpoints=(9,))
    _age(store, 2 * 3600)
    path = Path(store.uri, checkpoint_path(9))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    assert clean_log(store, HOUR_MS) == 0
    assert _commits(store) == list(range(12))


def test_gaps_that_another_clean_up_left_are_no_obstacle(store: LocalStore) -> None:
    state = _table(store)
    _age(store, 2 * 3600)
    for version in (1, 2, 6, 9):
        Path(store.uri, commit_path(version)).unlink()
    assert clean_log(store, HOUR_MS) == 6
    assert _commits(store) == [10, 11]
    assert same_state(load_table(store), state)


def test_what_interrupted_writes_left_goes_when_it_is_old(store: LocalStore) -> None:
    _table(store)
    names = [
        f"{12:020d}.checkpoint.parquet#1",
        "_last_checkpoint#2",
        ".0123.tmp",
        f"{3:020d}.crc",
        f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
        "something.else",
    ]
    for name in names:
        Path(store.uri, LOG, name).write_bytes(b"half")
    _age_named(store, names, 30 * 60)
    _age(store, 2 * 3600, range(7))
    clean_log(store, HOUR_MS)
    assert {path.name for path in Path(store.uri, LOG).iterdir()} >= {*names[:3], names[5]}
    assert not {path.name for path in Path(store.uri, LOG).iterdir()} & {*names[3:5]}
    _age_named(store, names[:3], 2 * 3600)
    clean_log(store, HOUR_MS)
    assert {path.name for path in Path(store.uri, LOG).iterdir()} & {*names} == {names[5]}


def _age_named(store: LocalStore, names: list[str], seconds: float) -> None:
    at = time.time() - seconds
    for name in names:
        os.utime(Path(store.uri, LOG, name), (at, at))


# -- clocks ----------------------------------------------------------------------------------------


def _written(*ages_ms: int) -> tuple[LogFiles, int]:
    """Commit files of versions 0, 1, ... that were written so long before now; and now."""
    now_ms = 1_800_000_000_000
    commits = {
        version: ObjectInfo(commit_path(version), 1, now_ms - age)
        for version, age in enumerate(ages_ms)
    }
    return LogFiles(commits), now_ms


MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("what", "ages_min", "cut_off"),
    [
        ("in order", (90, 70, 50, 30, 10), 1),
        ("all old", (200, 190, 180), 2),
        ("none old", (50, 40), -1),
        ("the clock was a day ahead, then right", (-1400, -1390, -1385, 40, 30), -1),
        ("and for long", (-1300, -1290, 100, 59, 50), 2),
        ("one file of the future", (90, 80, -5000, 70, 30), 3),
        ("all of the future", (-10, -20, -30), -1),
        ("nothing there", (), -1),
    ],
)
def test_files_are_as_old_as_the_time_between_them_adds_up_to(
    what: str, ages_min: tuple[int, ...], cut_off: int
) -> None:
    files, now_ms = _written(*(age * MINUTE_MS for age in ages_min))
    assert cut_off_version(files, now_ms, HOUR_MS) == cut_off, what


@pytest.mark.parametrize("minutes_later", [0, 1, 59])
def test_a_clock_that_is_set_forward_removes_nothing_that_is_young(
    store: LocalStore, minutes_later: int
) -> None:
    _table(store)
    clock = Clock()
    clock.set_forward(DAY_MS)
    assert clean_log(store, HOUR_MS, clock.steady) == 0
    clock.run(minutes_later * MINUTE_MS)
    assert clean_log(store, HOUR_MS, clock.steady) == 0
    clock.run(61 * MINUTE_MS)
    assert clean_log(store, HOUR_MS, clock.steady) == 9


@pytest.mark.parametrize(
    ("move", "cleaned"),
    [
        (lambda clock: clock.run(2 * HOUR_MS), 9),  # also of a machine that was suspended
        (lambda clock: clock.set_forward(-DAY_MS), 0),
    ],
)
def test_time_that_passed_counts_and_a_clock_that_was_set_back_keeps(
    store: LocalStore, move: Callable[[Clock], None], cleaned: int
) -> None:
    _table(store)
    clock = Clock()
    move(clock)
    assert clean_log(store, HOUR_MS, clock.steady) == cleaned


def test_a_clock_that_is_set_forward_and_back_is_right_again() -> None:
    clock = Clock()
    clock.set_forward(DAY_MS)
    assert clock.steady.now_ms(HOUR_MS) == clock.wall_ms - DAY_MS
    clock.set_forward(-DAY_MS)
    assert clock.steady.now_ms(HOUR_MS) == clock.wall_ms


def test_a_clock_that_is_kept_right_in_small_steps_is_followed() -> None:
    clock = Clock()
    for _ in range(100):
        clock.run(HOUR_MS)
        clock.set_forward(2_000)
        assert clock.steady.now_ms(DAY_MS) == clock.wall_ms


def test_from_when_on_a_version_is_old_enough_is_told_beforehand() -> None:
    dice = random.Random(3)
    for _ in range(200):
        versions = dice.sample(range(8), dice.randrange(6))
        commits = {one: ObjectInfo("", 0, dice.randrange(20)) for one in sorted(versions)}
        files, kept_ms = LogFiles(commits), dice.randrange(1, 15)
        for version in range(8):
            at_ms = cut_off_ms(files, version, kept_ms)
            for now_ms in range(40):
                is_cut_off = cut_off_version(files, now_ms, kept_ms) >= version
                assert is_cut_off == (at_ms is not None and now_ms >= at_ms)
