"""Killed at any step, or found with damaged files: the log comes back whole, or says why not."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.delta_log.appending import batch, create, lead, run, values
from tests.unit.delta_log.crashing_log import CrashingLog

from mainstem.delta_log import LocalStore, Slice, Topics
from mainstem.delta_log.format import LAST_CHECKPOINT, checkpoint_path, commit_path
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import LogDamagedError, MainstemError, UnknownTopicError

#: What a life of the log does to the disk, by kind of step and of file.
STEPS = {
    ("open", "parquet"): "a data file is made",
    ("write", "parquet"): "it is written",
    ("fsync", "parquet"): "and synced",
    ("mkdir", "partition"): "its directory is made",
    ("fsync", "partition"): "and synced",
    ("open", "tmp"): "the temporary commit file is made",
    ("write", "tmp"): "it is written",
    ("fsync", "tmp"): "and synced",
    ("link", "json"): "the commit gets its name",
    ("unlink", "tmp"): "the temporary name goes",
    ("fsync", "_delta_log"): "the log's directory is synced",
    ("open", "wal"): "a segment of the write-ahead log is made",
    ("fsync", "g"): "its name is synced",
    ("write", "wal"): "a frame is written",
    ("fdatasync", "wal"): "and synced",
    ("unlink", "wal"): "a segment that is folded goes",
}


def _kind(step: tuple[str, str]) -> tuple[str, str]:
    call, path = step
    name = os.path.basename(path)
    return call, name.rpartition(".")[2] if "." in name else name.partition("=")[0]


@pytest.mark.fault
def test_killed_at_every_step_of_a_life_the_log_comes_back_with_all_it_promised(
    tmp_path: Path,
) -> None:
    """The same life again and again, each time one step longer; the power goes with the process.

    The seed is one whose life comes to every kind of step.
    """
    seed = 1
    met: Counter[tuple[str, str]] = Counter()
    at = 0
    while True:
        at += 1
        directory = tmp_path / f"at-{at}"
        directory.mkdir()
        log = CrashingLog(directory, random.Random(f"{seed}:steps"))
        log.crash(requests=3)  # something to recover from
        log.rng.seed(f"{seed}:life")
        steps = log.crash(at, requests=5)
        findings = log.settle()
        assert findings == [], f"killed at step {at}, {steps[-1]}"
        if len(steps) < at:
            break
        met[_kind(steps[-1])] += 1
    assert set(STEPS) - set(met) <= {("mkdir", "partition")}, "steps that no life came to"


@pytest.fixture
def topic(topics: Topics, pool: ThreadPoolExecutor) -> Topics:
    """Versions 1 (the epoch) to 6, a checkpoint at 6, and 7 to 9."""
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        for number in range(8):
            if number == 5:
                opened = topics.open("t")
                assert write_checkpoint(opened.store) == 6
            await appender.submit([Slice(0, batch(number))], 1)
        await appender.close(10)

    run(work)
    return topics


WHOLE = [(number, b"%d" % number) for number in range(8)]


def _append_more(topics: Topics, pool: ThreadPoolExecutor) -> None:
    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        assert (await appender.submit([Slice(0, batch(8))], 1)).batches[0].base_offset == 8
        await appender.close(10)

    run(work)
    assert values(topics, 0) == [*WHOLE, (8, b"8")]


def _tear(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.fault
@pytest.mark.parametrize("size", [0, 1, 100, -1, -2])
def test_a_newest_commit_that_is_torn_stops_the_topic_and_is_named(
    topic: Topics, pool: ThreadPoolExecutor, size: int
) -> None:
    """It may have been acknowledged: the log is not served without it, nor written over."""
    path = Path(topic.uri("t"), commit_path(9))
    whole = path.read_bytes()
    _tear(path, size)
    for _ in range(2):
        with pytest.raises(LogDamagedError, match=f"{path.name} is damaged"):
            topic.open("t")
    path.write_bytes(whole)
    _append_more(topic, pool)


@pytest.mark.fault
def test_a_commit_that_is_missing_before_the_newest_stops_the_topic_and_is_named(
    topic: Topics,
) -> None:
    Path(topic.uri("t"), commit_path(8)).unlink()
    with pytest.raises(LogDamagedError, match=r"has version 9, but .*0008\.json is missing"):
        topic.open("t")


def _lost(path: Path) -> None:
    path.unlink()


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    _tear(path, path.stat().st_size // 2)


def _garbled(path: Path) -> None:
    path.write_bytes(b"PAR1 or {not quite")


@pytest.mark.fault
@pytest.mark.parametrize("damage", [_lost, _emptied, _cut, _garbled])
@pytest.mark.parametrize("file", ["pointer", "checkpoint", "both"])
def test_a_checkpoint_or_its_pointer_that_is_damaged_changes_nothing_while_the_commits_are_there(
    topic: Topics, pool: ThreadPoolExecutor, file: str, damage: Callable[[Path], None]
) -> None:
    for name in (LAST_CHECKPOINT, checkpoint_path(6)):
        if file in ("both", "pointer" if name == LAST_CHECKPOINT else "checkpoint"):
            damage(Path(topic.uri("t"), name))
    assert values(topic, 0) == WHOLE
    _append_more(topic, pool)


@pytest.mark.fault
def test_a_pointer_to_a_checkpoint_that_is_not_there_changes_nothing(
    topic: Topics, pool: ThreadPoolExecutor
) -> None:
    pointer = Path(topic.uri("t"), LAST_CHECKPOINT)
    pointer.write_text(json.dumps({"version": 7, "size": 1}))
    assert values(topic, 0) == WHOLE
    _append_more(topic, pool)


@pytest.mark.fault
@pytest.mark.parametrize("damage", [_emptied, _cut, _garbled])
def test_a_damaged_checkpoint_whose_commits_are_gone_stops_the_topic_and_is_named(
    topic: Topics, damage: Callable[[Path], None]
) -> None:
    for version in range(7):
        Path(topic.uri("t"), commit_path(version)).unlink()
    assert values(topic, 0) == WHOLE  # from the checkpoint alone
    path = Path(topic.uri("t"), checkpoint_path(6))
    damage(path)
    with pytest.raises(LogDamagedError, match=f"{path.name} is damaged"):
        topic.open("t")


@pytest.mark.fault
def test_a_checkpoint_that_was_killed_before_its_pointer_or_its_clean_up_is_made_again(
    topic: Topics, pool: ThreadPoolExecutor
) -> None:
    Path(topic.uri("t"), LAST_CHECKPOINT).unlink()
    Path(topic.uri("t"), checkpoint_path(8)).write_bytes(b"PAR1")  # and one that is half written
    opened = topic.open("t")
    assert opened.state.checkpoint_version == 6
    _append_more(topic, pool)


@pytest.mark.fault
def test_a_damaged_topic_can_be_deleted_and_made_anew(
    topic: Topics, pool: ThreadPoolExecutor
) -> None:
    _tear(Path(topic.uri("t"), commit_path(9)), 10)
    topic.delete("t")
    assert topic.names() == []
    with pytest.raises(UnknownTopicError):
        topic.delete("t")
    create(topic)
    assert values(topic, 0) == []


@pytest.mark.fault
def test_deleting_a_damaged_topic_stops_whoever_still_writes_to_it(
    topic: Topics, pool: ThreadPoolExecutor
) -> None:
    async def work() -> None:
        appender = await lead(topic.open("t"), pool)
        _tear(Path(topic.uri("t"), commit_path(9)), 10)
        topic.delete("t")
        create(topic)
        with pytest.raises(MainstemError, match="was deleted"):
            await appender.submit([Slice(0, batch(9))], 1)
        await appender.close(10)

    run(work)
    assert values(topic, 0) == []


@pytest.mark.fault
def test_temporary_files_of_dead_writers_are_swept_when_the_topic_is_led_and_others_are_not(
    topic: Topics, pool: ThreadPoolExecutor
) -> None:
    log = Path(topic.uri("t"), "_delta_log")
    old, new = log / ".old.tmp", log / ".new.tmp"
    for path in (old, new):
        path.write_bytes(b"a commit that never came to be")
    hours_ago = path.stat().st_mtime - 2 * 3_600
    os.utime(old, (hours_ago, hours_ago))
    _append_more(topic, pool)
    assert not old.exists()
    assert new.exists()
    store = LocalStore(topic.uri("t"))
    assert store.sweep("_delta_log", 0) == 0
    assert store.sweep("nothing of that name", 2**60) == 0
    assert store.sweep("_delta_log", 2**60) == 1
    store.close()
