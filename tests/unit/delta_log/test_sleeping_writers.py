"""A writer that sleeps for longer than the log is kept, and wakes in a log that has gone on.

A paused process, a suspended machine: between any two of its calls another leader takes over,
writes, and the log is cleaned behind a checkpoint. Whatever the writer finds then, what it says has
happened must be in the table that everybody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.length import FULL
from tests.unit.delta_log.appending import batch, create, run, values
from tests.unit.delta_log.appending import lead as lead_topic
from tests.unit.delta_log.faults import FaultyStore, nothing
from tests.unit.delta_log.tables import append, same_state

from mainstem.delta_log import (
    Appender,
    LocalStore,
    OpenTopic,
    RollUpMemory,
    Slice,
    Topics,
    load_table,
)
from mainstem.delta_log.format import LAST_CHECKPOINT, LOG, Register, registers
from mainstem.delta_log.table import TableCommit, TableState, commit_beside_leader
from mainstem.delta_log.upkeep import LiveTable, write_checkpoint
from mainstem.delta_log.verify import verify_named
from mainstem.errors import MainstemError, OutcomeUnknownError

pytestmark = pytest.mark.fault

#: What becomes of `_last_checkpoint` while the writer sleeps.
POINTERS = ["there", "empty", "missing", "old"]

#: The calls of a commit that the writer can fall asleep before, or after.
CALLS = [
    (when, call)
    for when in ("before", "after")
    for call in ("put", "put_if_absent", "read_range", "read")
]


#: How long writers have slept: their clock goes on meanwhile.
_slept_s = [0.0]


async def lead(opened: OpenTopic, pool: ThreadPoolExecutor, **options: Any) -> Appender:
    """An appender whose clock goes on while it sleeps."""
    return await lead_topic(
        opened, pool, monotonic=lambda: time.monotonic() + _slept_s[0], **options
    )


def two_hours_pass(topics: Topics, pointer: str = "there", *, left: tuple[int, ...] = ()) -> int:
    """Another leader takes the topic over and writes; its log is cleaned behind a checkpoint, and
    it writes on.

    Args:
        pointer: See `POINTERS`.
        left: Versions whose files a clean-up that keeps no order left when it was killed.

    Returns:
        The log end offset of partition 0.
    """
    _slept_s[0] += 7200
    opened = topics.open("t")
    store, state = opened.store, opened.state
    first = state.version + 1
    claim = [Register(registers.EPOCH, state.epoch + 1)]
    commit_beside_leader(opened, lambda _: TableCommit.of("CLAIM", claim, timestamp_ms=1))
    for _ in range(6):
        append(store, opened.state, 0)
    kept = {version: store.read(f"{LOG}/{version:020d}.json") for version in left}
    before = store.read(LAST_CHECKPOINT) if pointer == "old" and _has_pointer(opened) else b""
    old = time.time() - 7200
    for info in store.list_files(LOG):
        os.utime(Path(store.uri, LOG, info.name), (old, old))
    write_checkpoint(store)
    append(store, opened.state, 0)
    assert not Path(store.uri, f"{LOG}/{first:020d}.json").exists(), "nothing was cleaned"
    for version, data in kept.items():
        store.put(f"{LOG}/{version:020d}.json", data)
        os.utime(Path(store.uri, LOG, f"{version:020d}.json"), (old, old))
    path = Path(store.uri, LAST_CHECKPOINT)
    if pointer in ("empty", "old"):
        path.write_bytes(before)
    elif pointer == "missing":
        path.unlink()
    return opened.state.log_end_offset(0)


def _has_pointer(opened: OpenTopic) -> bool:
    return Path(opened.store.uri, LAST_CHECKPOINT).exists()


def sleepy(opened: OpenTopic, when: str, call: str, sleep: Callable[[], object]) -> OpenTopic:
    """The topic on a store that sleeps once, before or after the first such call."""
    slept = [False]

    def hook(name: str, path: str) -> None:
        if name == call and not slept[0]:
            slept[0] = True
            sleep()

    before, after = (hook, nothing) if when == "before" else (nothing, hook)
    return OpenTopic("t", FaultyStore(opened.store, before, after), opened.state)


@pytest.mark.parametrize("pointer", POINTERS)
def test_a_deposed_leader_that_wakes_acknowledges_nothing(
    topics: Topics, pool: ThreadPoolExecutor, pointer: str
) -> None:
    create(topics, rollup_files=0)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        for number in range(3):
            await leader.submit([Slice(0, batch(number))], 1)
        end = two_hours_pass(topics, pointer)
        with pytest.raises(OutcomeUnknownError):
            await leader.submit([Slice(0, batch(3))], 1)
        assert leader.failure is not None
        assert leader.failure.retriable
        await leader.close(1)
        assert topics.open("t").state.log_end_offset(0) == end

    run(work)


@pytest.mark.parametrize("pointer", POINTERS)
@pytest.mark.parametrize(("when", "call"), CALLS)
def test_whatever_a_leader_acknowledges_is_in_the_table_wherever_it_slept(
    topics: Topics, pool: ThreadPoolExecutor, pointer: str, when: str, call: str
) -> None:
    create(topics, rollup_files=0)

    async def work() -> None:
        opened = topics.open("t")
        slow = sleepy(opened, when, call, lambda: two_hours_pass(topics, pointer))
        answers: list[tuple[int, bytes]] = []
        errors: list[MainstemError] = []
        try:
            leader = await lead(slow, pool)
        except MainstemError:
            return  # it slept while it claimed the lead, and has promised nothing
        for number in range(1000, 1008):
            try:
                answer = await leader.submit([Slice(0, batch(number))], 1)
            except MainstemError as error:
                errors.append(error)
            else:
                answers.append((answer.batches[0].base_offset, b"%d" % number))
        await leader.close(1)
        found = values(topics, 0)
        assert set(answers) <= set(found), "acknowledged, and not in the table"
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert all(error.retriable for error in errors)

    run(work)


@pytest.mark.parametrize("pointer", POINTERS)
@pytest.mark.parametrize("left", [(), (3,), (1, 3)])
def test_a_clean_up_that_keeps_no_order_opens_no_way_into_the_past(
    topics: Topics, pool: ThreadPoolExecutor, pointer: str, left: tuple[int, ...]
) -> None:
    """delta-rs deletes log files in any order; killed, it leaves some before a gap."""
    create(topics, rollup_files=0)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        await leader.submit([Slice(0, batch(0))], 1)
        await leader.submit([Slice(0, batch(1))], 1)
        assert leader.state.version == 3
        end = two_hours_pass(topics, pointer, left=left)
        with pytest.raises(OutcomeUnknownError):
            await leader.submit([Slice(0, batch(2))], 1)
        await leader.close(1)
        assert topics.open("t").state.log_end_offset(0) == end

    run(work)


@pytest.mark.parametrize("pointer", POINTERS)
def test_a_job_that_wakes_commits_to_the_table_that_there_is(topics: Topics, pointer: str) -> None:
    create(topics)
    mine = topics.open("t")
    append(mine.store, mine.state, 0)
    end = two_hours_pass(topics, pointer)
    seen: list[int] = []

    def build(state: TableState) -> TableCommit:
        seen.append(state.log_end_offset(0))
        return TableCommit.of("JOB", [Register("mainstem/vacuumed", 5)], timestamp_ms=1)

    landed = commit_beside_leader(mine, build)
    assert landed is not None
    assert seen == [end]
    assert load_table(mine.store).register_value("mainstem/vacuumed") == 5


@pytest.mark.parametrize("pointer", POINTERS)
@pytest.mark.parametrize(("when", "call"), CALLS)
def test_what_a_job_says_it_has_committed_is_in_the_table_wherever_it_slept(
    topics: Topics, pointer: str, when: str, call: str
) -> None:
    create(topics)
    opened = topics.open("t")
    append(opened.store, opened.state, 0)
    slept: list[int] = []
    slow = sleepy(opened, when, call, lambda: slept.append(two_hours_pass(topics, pointer)))
    landed = 0
    for _ in range(3):

        def build(state: TableState) -> TableCommit:
            one = Register("count", state.register_value("count") + 1)
            return TableCommit.of("JOB", [one], timestamp_ms=1)

        try:
            landed += commit_beside_leader(slow, build) is not None
        except OutcomeUnknownError:
            slow.state = load_table(slow.store)  # it has to look
            landed = slow.state.register_value("count")
    state = load_table(opened.store)
    assert state.register_value("count") == landed
    assert state.log_end_offset(0) == (24 if slept else 3), "what the other leader wrote is there"


@pytest.mark.parametrize("pointer", POINTERS)
def test_a_follower_that_wakes_follows_the_log_and_not_what_a_sleeper_left_in_the_past(
    topics: Topics, pointer: str
) -> None:
    create(topics)
    mine = topics.open("t")
    append(mine.store, mine.state, 0)
    two_hours_pass(topics, pointer)
    # Another writer has woken just before, put its commit into the past, and been killed there.
    stray = TableCommit.of("APPEND", [Register(registers.leo(0), 999)], timestamp_ms=1)
    mine.store.put(f"{LOG}/{mine.state.version + 1:020d}.json", stray.encoded())
    state = mine.refresh()
    assert state.log_end_offset(0) != 999
    assert same_state(state, load_table(mine.store))


@pytest.mark.parametrize("pointer", POINTERS)
def test_two_that_wake_do_not_build_a_log_of_their_own_on_each_other(
    topics: Topics, pool: ThreadPoolExecutor, pointer: str
) -> None:
    create(topics, rollup_files=0)

    async def work() -> None:
        first = await lead(topics.open("t"), pool)
        await first.submit([Slice(0, batch(0))], 1)
        job = topics.open("t")
        end = two_hours_pass(topics, pointer)
        with pytest.raises(OutcomeUnknownError):
            await first.submit([Slice(0, batch(1))], 1)
        landed = commit_beside_leader(
            job, lambda _: TableCommit.of("JOB", [Register("r", 1)], timestamp_ms=1)
        )
        assert landed is not None
        state = load_table(job.store)
        assert (state.register_value("r"), state.log_end_offset(0)) == (1, end)
        await first.close(1)

    run(work)


async def _work(opened: OpenTopic, pool: ThreadPoolExecutor) -> list[tuple[int, bytes]]:
    """All that a leader does: it takes the lead, appends, rolls up, writes a checkpoint and cleans
    the log. Returns what was acknowledged, with its offset."""
    acknowledged: list[tuple[int, bytes]] = []
    loop = asyncio.get_running_loop()
    try:
        leader = await lead(opened, pool, roll_up_memory=RollUpMemory(2**20))
    except MainstemError:
        return acknowledged
    for number in range(1000, 1008):
        with contextlib.suppress(MainstemError):
            answer = await leader.submit([Slice(0, batch(number))], 1)
            acknowledged.append((answer.batches[0].base_offset, b"%d" % number))
        if number == 1005:
            live = LiveTable.of(leader.state)
            # delta-rs has errors of its own for a log that is not what it was.
            with contextlib.suppress(Exception):
                await loop.run_in_executor(pool, write_checkpoint, opened.store, live)
    await leader.close(5)
    return acknowledged


def _calls(topics: Topics, pool: ThreadPoolExecutor) -> int:
    """How many calls of the store that takes."""
    opened = topics.open("t")
    watched = FaultyStore(opened.store)
    run(lambda: _void(_work(OpenTopic("t", watched, opened.state), pool)))
    return len(watched.calls)


async def _void(work: Coroutine[Any, Any, object]) -> None:
    await work


@pytest.mark.slow
@pytest.mark.parametrize("pointer", POINTERS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_leader_that_sleeps_at_any_call_of_all_it_does_has_told_no_lie(
    tmp_path: Path, pool: ThreadPoolExecutor, seed: int, when: str, pointer: str
) -> None:
    """Each call of the store in turn, in `make test-fault`; some of them, in `make test`."""

    def fresh(name: str) -> Topics:
        made = Topics(LocalStore(tmp_path / name))
        create(made, rollup_files=4)
        return made

    count = _calls(fresh("counted"), pool)
    assert count > 40
    steps = range(count) if FULL else sorted(random.Random(seed).sample(range(count), 6))
    lock = threading.Lock()
    for step in steps:
        topics = fresh(f"at-{step}")
        opened = topics.open("t")
        left = [step]

        def hook(call: str, path: str, left: list[int] = left, topics: Topics = topics) -> None:
            with lock:
                left[0] -= 1
                now = left[0] == -1
            if now:
                two_hours_pass(topics, pointer)

        before, after = (hook, nothing) if when == "before" else (nothing, hook)
        slow = OpenTopic("t", FaultyStore(opened.store, before, after), opened.state)
        acknowledged: list[tuple[int, bytes]] = []

        async def work(slow: OpenTopic = slow, to: list[tuple[int, bytes]] = acknowledged) -> None:
            to.extend(await _work(slow, pool))

        run(work)
        found = values(topics, 0)
        where = f"asleep {when} call {step} of {count}"
        assert set(acknowledged) <= set(found), f"{where}: acknowledged, and not in the table"
        assert [offset for offset, _ in found] == list(range(len(found))), where
        report = verify_named(topics.store, "t")
        # The pointer is what the test made of it: its mending is the next leader's.
        found_wrong = [one for one in report.findings if one.code != "POINTER_WRONG"]
        assert not found_wrong, (where, found_wrong)


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_a_leader_that_slept_while_its_log_was_put_back_and_went_on_adds_nothing_to_it(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """Restored in place from a copy: the versions are there again, and are other ones."""
    create(topics, rollup_files=0)

    async def work() -> None:
        sleeper = await lead(topics.open("t"), pool)
        for number in range(3):
            await sleeper.submit([Slice(0, batch(number))], 1)
        root = Path(topics.open("t").store.uri)
        kept = set(_files(root))
        for number in range(3, 6):
            await sleeper.submit([Slice(0, batch(number))], 1)
        for path in _files(root):
            if path not in kept:
                os.unlink(path)
        other = await lead(topics.open("t"), pool)
        await other.submit([Slice(0, batch(100, 40))], 1)
        while other.state.version < sleeper.state.version:
            await other.submit([Slice(1, batch(1))], 1)
        with pytest.raises(OutcomeUnknownError):
            await sleeper.submit([Slice(0, batch(9))], 1)
        answer = await other.submit([Slice(0, batch(200))], 1)
        assert answer.batches[0].base_offset == 43
        for one in (sleeper, other):
            await one.close(1)

    run(work)
    assert [offset for offset, _ in values(topics, 0)] == list(range(44))
