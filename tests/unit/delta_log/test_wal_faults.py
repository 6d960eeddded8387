"""The write-ahead log on a system that fails: each error number at each call that it makes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.length import FULL
from tests.unit.delta_log import os_faults
from tests.unit.delta_log.appending import batch, run
from tests.unit.delta_log.crashing_log import CrashingLog
from tests.unit.delta_log.os_faults import ERROR_NUMBERS, FaultyOs

from mainstem.delta_log import Slice
from mainstem.delta_log.append import Pending
from mainstem.delta_log.append.topic_wal import TopicWal
from mainstem.delta_log.format import Batch
from mainstem.delta_log.wal import LocalWalFiles, Wal
from mainstem.errors import StoreUnavailableError

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
def system() -> Iterator[FaultyOs]:
    with os_faults.installed() as faulty:
        yield faulty


class Life:
    """A gateway's log, from its start to its death, with one topic whose commits do not get on.

    Attributes:
        now_s: The monotonic clock.
        acknowledged: Offsets of requests that the log has taken.
    """

    def __init__(self, directory: Path, segment_bytes: int = 1) -> None:
        self.now_s = 0.0
        self.files = LocalWalFiles(directory)
        try:
            self.wal = Wal(
                self.files, "g", segment_bytes=segment_bytes, monotonic=lambda: self.now_s
            )
        except BaseException:
            self.files.close()
            raise
        self.topic: TopicWal[None] = TopicWal(self.wal, "t", "id")
        self.acknowledged: list[int] = []
        self._next = 0

    async def produce(self) -> bool:
        """Sends a request; returns whether the log has taken it, else it waits for its commit."""
        offset, self._next = self._next, self._next + 1
        slices = (Slice(0, batch(offset), None, False),)
        batches = (Batch(0, offset, 1),)
        self.topic.accepted(Pending(slices, batches, batches, 10, None, 1))
        done = self.topic.write()
        if done is None:
            return False
        try:
            await done
        except StoreUnavailableError:
            return False
        self.acknowledged.append(offset)
        return True

    async def die(self) -> None:
        """Closes what a process that is killed leaves to the system."""
        self.files.close()
        await self.wal.close()


async def _found(directory: Path) -> list[int]:
    """The offsets that the next start finds, in order."""
    files = LocalWalFiles(directory)
    wal = Wal(files, "g")
    entries = await wal.unfolded("t", "id", 0)
    await wal.close()
    files.close()
    found = [one.base_offset for _, request in entries for one in request.batches]
    return sorted(set(found))


@pytest.mark.parametrize("landed", [False, True], ids=["failed", "took place"])
@pytest.mark.parametrize("segment_bytes", [1, 2**20], ids=["a new segment", "the same segment"])
@pytest.mark.parametrize("number", ERROR_NUMBERS, ids=os_faults.name)
def test_an_error_at_each_call_of_a_write_costs_no_acknowledged_record_and_passes(
    tmp_path: Path, system: FaultyOs, number: int, segment_bytes: int, landed: bool
) -> None:
    """The request waits for its commit; then the log is used again, without a gap."""

    async def work(position: int) -> bool:
        directory = tmp_path / f"{position}"
        life = Life(directory, segment_bytes)
        assert await life.produce()
        assert await life.produce()
        os_faults.fail_at(system, position, number, landed=landed)
        calls = len(system.calls)
        was_taken = await life.produce()
        met = len(system.calls) - calls > position
        os_faults.heal(system)
        assert life.wal.failures == ({} if was_taken else {errno.errorcode[number]: 1})
        if not was_taken:
            assert not await life.produce(), "left alone for a while"
        # Some die with what the failure left.
        if was_taken or position % 3:
            life.now_s += 1.0
            assert await life.produce(), "and used again"
            assert await life.produce()
        await life.die()
        found = await _found(directory)
        assert found == list(range(len(found))), "there is a gap"
        assert set(life.acknowledged) <= set(found)
        return met

    async def at_each() -> None:
        position = 0
        while await work(position):
            position += 1
        assert position > 4

    run(at_each)


@pytest.mark.parametrize("number", ERROR_NUMBERS, ids=os_faults.name)
def test_an_error_at_each_call_of_a_start_is_told_and_costs_nothing(
    tmp_path: Path, system: FaultyOs, number: int
) -> None:
    """Also where the last frame is torn."""
    directory = tmp_path / "log"

    async def write() -> None:
        life = Life(directory, 2**20)
        for _ in range(3):
            assert await life.produce()
        await life.die()

    async def start() -> None:
        await Life(directory).die()

    run(write)
    (path,) = directory.glob("*.wal")
    torn = path.read_bytes()[:-20]
    position = -1
    met = True
    while met:
        position += 1
        path.write_bytes(torn)
        os_faults.fail_at(system, position, number, landed=False)
        calls = len(system.calls)
        with contextlib.suppress(StoreUnavailableError):
            run(start)
        met = len(system.calls) - calls > position
        os_faults.heal(system)
        assert asyncio.run(_found(directory)) == [0, 1]
    assert position > 5


@pytest.mark.parametrize("number", ERROR_NUMBERS, ids=os_faults.name)
def test_an_error_that_lasts_stops_no_request_and_is_over_when_it_is_over(
    tmp_path: Path, system: FaultyOs, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(call: str, _: object) -> None:
        raise os_faults.failure(number)

    async def work() -> None:
        life = Life(tmp_path / "log")
        assert await life.produce()
        system.before = hook
        for _ in range(10):
            life.now_s += 60.0
            assert not await life.produce()
        assert caplog.text.count("cannot be written") == 1
        assert life.wal.failures == {errno.errorcode[number]: 10}
        os_faults.heal(system)
        life.now_s += 60.0
        assert await life.produce()
        await life.die()
        # What waited went along.
        assert await _found(tmp_path / "log") == list(range(12))

    run(work)


@pytest.mark.parametrize("then", ["goes on", "dies", "cannot cut it yet"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_write_that_was_cut_short_leaves_nothing_that_looks_like_damage(
    tmp_path: Path,
    system: FaultyOs,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    then: str,
) -> None:
    """A disk that fills up takes a part of a frame, and refuses the rest."""
    left = [10**9]

    def write(fd: int, data: memoryview) -> int:
        if left[0] <= 0:
            raise os_faults.failure(errno.ENOSPC)
        count = os.write(fd, data[: left[0]])
        left[0] -= count
        return count

    async def work() -> None:
        life = Life(tmp_path / "log", 2**20)
        assert await life.produce()
        size = life.wal.size_bytes
        monkeypatch.setattr(system, "write", write, raising=False)
        left[0] = int(size * share)
        assert not await life.produce()
        left[0] = 10**9
        if then == "cannot cut it yet":
            os_faults.fail_calls(system, "ftruncate", errno.EIO, 1)
            life.now_s += 60.0
            await life.produce()
        if then != "dies":
            life.now_s += 60.0
            assert await life.produce()
            assert await life.produce()
        await life.die()
        found = await _found(tmp_path / "log")
        assert found == list(range(len(found)))
        assert set(life.acknowledged) <= set(found)

    run(work)


def test_what_was_acknowledged_before_a_sync_failed_is_written_again_with_what_comes_next(
    tmp_path: Path, system: FaultyOs
) -> None:
    """So that it does not rest on a segment whose last page the disk may have spoilt."""

    async def work() -> None:
        life = Life(tmp_path / "log", 2**20)
        for _ in range(3):
            assert await life.produce()
        os_faults.fail_calls(system, "fdatasync", errno.EIO, 1)
        assert not await life.produce()
        life.now_s += 1.0
        assert await life.produce()
        await life.die()
        first, second = sorted((tmp_path / "log").glob("*.wal"))
        for kept, expected in ((first, [0, 1, 2]), (second, [0, 1, 2, 3, 4])):
            directory = tmp_path / kept.name
            directory.mkdir()
            shutil.copy(kept, directory)
            assert await _found(directory) == expected
        assert await _found(tmp_path / "log") == [0, 1, 2, 3, 4]

    run(work)


def test_no_file_handle_for_a_new_segment_turns_the_log_off_for_a_moment_only(
    tmp_path: Path, system: FaultyOs
) -> None:
    async def work() -> None:
        life = Life(tmp_path / "log")
        assert await life.produce()
        os_faults.fail_calls(system, "open", errno.EMFILE, 1)
        taken = []
        for _ in range(3):
            taken.append(await life.produce())
            life.now_s += 0.2
        assert taken == [False, True, True]
        assert life.wal.failures == {"EMFILE": 1}
        await life.die()

    run(work)


def _directory() -> Path:
    shared = Path("/dev/shm")
    return (shared if shared.is_dir() else Path("/tmp")) / f"wal-{random.randrange(2**62)}"


def _fail_and_crash(count: int, seed: object) -> list[str]:
    """The findings of `count` lives in each of which calls fail and the power goes at last."""
    for number in range(count):
        rng = random.Random(f"{seed}:{number}")
        directory = _directory()
        directory.mkdir()
        try:
            log = CrashingLog(directory, rng)
            for _ in range(8):
                log.disk.faults_below = "wal/"
                log.disk.faults = {
                    rng.randint(1, 160): os_faults.failure(rng.choice(ERROR_NUMBERS))
                    for _ in range(rng.randint(0, 12))
                }
                log.crash(rng.randint(20, 200))
                if log.findings:
                    break
            findings = log.findings or log.settle()
        finally:
            shutil.rmtree(directory)
        if findings:
            return [f"seed {seed!r}, warehouse {number}: {one}" for one in findings]
    return []


def test_errors_of_the_disk_and_then_a_loss_of_power_cost_no_acknowledged_record(seed: int) -> None:
    assert _fail_and_crash(12, seed) == []


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(900)
def test_errors_of_the_disk_and_then_losses_of_power_cost_no_acknowledged_record(seed: int) -> None:
    assert _fail_and_crash(400, f"long {seed}") == []
