"""The write-ahead log: numbers, syncs, segments, and a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.unit.delta_log.appending import batch, run

from mainstem.delta_log import Slice
from mainstem.delta_log.format import Batch
from mainstem.delta_log.wal import (
    LocalWalFiles,
    SealedWalFiles,
    Wal,
    WalFile,
    WalInUse,
    WalRequest,
    is_segment,
)
from mainstem.errors import BackPressureError, LogDamagedError, StoreUnavailableError


def _request(number: int, topic: str = "t", count: int = 1) -> WalRequest:
    slices = (Slice(0, batch(number, count), None, False),)
    return WalRequest(topic, f"{topic}-id", 1, slices, (Batch(0, number, count),), 10)


class _Files(LocalWalFiles):
    """Local files that can hold up, count and fail their syncs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.syncs = 0
        self.fails: OSError | None = None
        self.may_sync = threading.Event()
        self.may_sync.set()

    def create(self, name: str) -> WalFile:
        inner, outer = super().create(name), self

        class File:
            def append(self, data: bytes) -> None:
                inner.append(data)

            def sync(self) -> None:
                assert outer.may_sync.wait(10)
                outer.syncs += 1
                if outer.fails is not None:
                    raise outer.fails
                inner.sync()

            def cut(self, size_bytes: int) -> None:
                inner.cut(size_bytes)

            def close(self) -> None:
                inner.close()

        return File()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[_Files]:
    opened = _Files(tmp_path / "wal" / "g")
    yield opened
    opened.close()


def _note(order: list[int], index: int, _: object) -> None:
    order.append(index)


def _append(wal: Wal, request: WalRequest) -> tuple[int, asyncio.Future[None]]:
    number = wal.take_number()
    return number, wal.append(number, request)


def test_what_waits_for_its_sync_is_found_by_whoever_takes_the_topic_over(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        files.may_sync.clear()
        number, done = _append(wal, _request(1))
        looking = asyncio.ensure_future(wal.unfolded("t", "t-id", 0))
        await asyncio.sleep(0.02)
        assert not looking.done()
        files.may_sync.set()
        assert [found for found, _ in await looking] == [number]
        assert done.done()
        await wal.close()

    run(work)


def test_what_was_appended_is_found_again_by_topic_in_order(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        numbers = []
        for index in range(6):
            number, done = _append(wal, _request(index, "ab"[index % 2]))
            numbers.append(number)
            await done
        await wal.close()
        wal = Wal(files, "g")
        assert wal.topics() == [("a", "a-id"), ("b", "b-id")]
        found = await wal.unfolded("a", "a-id", numbers[0])
        assert [number for number, _ in found] == [numbers[2], numbers[4]]
        assert [request.batches[0].base_offset for _, request in found] == [2, 4]
        assert found[0][1] == _request(2, "a")
        assert await wal.unfolded("b", "other id", 0) == []
        await wal.close()

    run(work)


def test_many_requests_that_wait_share_one_sync_and_are_done_in_order(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        files.may_sync.clear()
        order: list[int] = []
        futures = []
        for index in range(50):
            _, done = _append(wal, _request(index))
            done.add_done_callback(partial(_note, order, index))
            futures.append(done)
            if index == 0:
                await asyncio.sleep(0.05)
        assert not any(done.done() for done in futures)
        files.may_sync.set()
        await asyncio.gather(*futures)
        assert order == list(range(50))
        assert files.syncs == 2  # the first, and all that came meanwhile
        await wal.close()

    run(work)


@pytest.mark.parametrize("lost", ["nothing", "directory"])
def test_a_number_is_never_used_twice_whatever_the_clock_says(tmp_path: Path, lost: str) -> None:
    async def work() -> None:
        used: list[int] = []
        for start in range(4):
            files = LocalWalFiles(tmp_path / f"{start if lost == 'directory' else 0}")
            wal = Wal(files, "g", clock_us=lambda: 1_000)
            await wal.unfolded("t", "t-id", used[-1] if used else 0)  # the topic's register
            for index in range(3):
                number, done = _append(wal, _request(index))
                await done
                used.append(number)
            used.append(wal.take_number())  # of a request that never entered the log
            assert len(await wal.unfolded("t", "t-id", used[-4] - 1)) == 3
            await wal.close()
            files.close()
        assert len(set(used)) == len(used)
        assert used == sorted(used)

    run(work)


def test_a_new_log_begins_far_behind_all_numbers_of_one_that_was_lost(tmp_path: Path) -> None:
    async def work() -> None:
        numbers = []
        for name in ("lost", "new"):
            files = LocalWalFiles(tmp_path / name)
            wal = Wal(files, "g")
            numbers.append([wal.take_number() for _ in range(100)])
            await wal.close()
            files.close()
        assert numbers[0][-1] < numbers[1][0]

    run(work)


def test_folding_deletes_the_segments_whose_entries_are_all_folded_and_no_others(
    files: _Files,
) -> None:
    async def work() -> None:
        wal = Wal(files, "g", segment_bytes=2_500)  # two entries each
        numbers = []
        for index in range(8):
            number, done = _append(wal, _request(index, "abaaabaa"[index]))
            await done
            numbers.append(number)
        names = files.names()
        assert len(names) == 4
        wal.fold("a", "a-id", numbers[2])
        assert files.names() == names
        wal.fold("a", "a-id", numbers[4])  # a topic that is behind does not keep what came later
        assert files.names() == [names[0], *names[2:]]
        wal.fold("a", "a-id", numbers[7])
        assert files.names() == [names[0], names[2], names[3]]  # the last is in use
        wal.fold("b", "b-id", numbers[1])
        assert files.names() == names[2:]
        found = await wal.unfolded("b", "b-id", 0)
        assert [number for number, _ in found] == [numbers[5]]
        assert wal.topics() == [("b", "b-id")]
        await wal.close()
        assert files.names() == names[2:3]
        wal = Wal(files, "g")
        assert len(await wal.unfolded("b", "b-id", 0)) == 1
        await wal.close()

    run(work)


def test_a_log_with_entries_that_no_table_has_is_kept_when_it_is_closed(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        await _append(wal, _request(1))[1]
        await wal.close()
        wal = Wal(files, "g")
        assert wal.topics() == [("t", "t-id")]
        assert wal.forget("t", "t-id") == 1
        assert wal.forget("t", "t-id") == 0
        assert files.names() == []
        await wal.close()

    run(work)


def test_entries_of_a_request_that_is_in_its_table_before_it_is_written_hold_no_segment(
    files: _Files,
) -> None:
    async def work() -> None:
        wal = Wal(files, "g", segment_bytes=1)
        files.may_sync.clear()
        number, done = _append(wal, _request(1))
        await asyncio.sleep(0.02)
        wal.fold("t", "t-id", number)
        files.may_sync.set()
        await done
        await wal.close()
        assert files.names() == []

    run(work)


@pytest.mark.fault
@pytest.mark.parametrize("fails", [OSError(5, "I/O error"), OSError(28, "No space left")])
def test_after_a_failure_the_log_is_left_alone_for_a_while_and_then_goes_on_in_a_new_segment(
    files: _Files, fails: OSError, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [0.0]

    async def work() -> None:
        wal = Wal(files, "g", monotonic=lambda: now_s[0])
        first, done = _append(wal, _request(1))
        await done
        files.fails = fails
        files.may_sync.clear()
        waiting = [_append(wal, _request(index))[1] for index in (2, 3)]
        await asyncio.sleep(0.02)
        waiting.append(_append(wal, _request(4, "other"))[1])  # behind the sync that fails
        files.may_sync.set()
        for future in waiting:
            with pytest.raises(StoreUnavailableError, match="cannot be written"):
                await future
        for pause_s in (0.1, 0.2, 0.4):
            now_s[0] += pause_s - 0.01
            with pytest.raises(StoreUnavailableError, match="acks=1 waits for table commits"):
                wal.append(wal.take_number(), _request(5))
            now_s[0] += 0.02
            if pause_s < 0.4:
                with pytest.raises(StoreUnavailableError):  # tried again, and failed again
                    await _append(wal, _request(5))[1]
        assert wal.failures == {errno.errorcode[fails.errno or 0]: 3}
        assert caplog.text.count("cannot be written") == 1
        files.fails = None
        last, done = _append(wal, _request(6))
        await done
        assert wal.topics() == [("t", "t-id")]
        assert [number for number, _ in await wal.unfolded("t", "t-id", 0)] == [first, last]
        await _append(wal, _request(7))[1]  # at once
        await wal.close()
        assert len(files.names()) == 2
        wal = Wal(files, "g")
        assert [number for number, _ in await wal.unfolded("t", "t-id", 0)][:2] == [first, last]
        await wal.close()

    with caplog.at_level(logging.INFO):
        run(work)
    assert caplog.text.count("works again") == 1


def test_a_topic_is_looked_at_while_others_requests_come_without_end(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        ends = False

        async def produce(topic: str) -> None:
            while not ends:
                number, done = _append(wal, _request(1, topic))
                await done
                wal.fold(topic, f"{topic}-id", number)

        producers = [asyncio.ensure_future(produce(topic)) for topic in "abcd"]
        for _ in range(100):  # there is always one queued while others are written
            await asyncio.sleep(0)
        number, _ = _append(wal, _request(1))
        async with asyncio.timeout(5):
            assert [one for one, _ in await wal.unfolded("t", "t-id", 0)] == [number]
            assert await wal.unfolded("empty", "empty-id", 0) == []
            closing = asyncio.ensure_future(wal.close())
            await asyncio.sleep(0)
            ends = True
            await closing
        await asyncio.gather(*producers, return_exceptions=True)

    run(work)


def test_reading_a_topic_does_not_hold_up_others_requests(
    files: _Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = threading.Event()

    async def work() -> None:
        wal = Wal(files, "g")
        await _append(wal, _request(1))[1]
        read = files.read

        def slow(name: str) -> bytes:
            assert reads.wait(10)
            return read(name)

        monkeypatch.setattr(files, "read", slow)
        looking = asyncio.ensure_future(wal.unfolded("t", "t-id", 0))
        await asyncio.sleep(0.02)
        async with asyncio.timeout(5):
            await _append(wal, _request(1, "other"))[1]
        assert not looking.done()
        reads.set()
        assert len(await looking) == 1
        await wal.close()

    try:
        run(work)
    finally:
        reads.set()


def test_a_log_takes_only_so_much_that_waits_for_its_sync(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g", queue_bytes=2_000)
        files.may_sync.clear()
        futures = [_append(wal, _request(0, count=200))[1]]  # one of any size
        with pytest.raises(BackPressureError) as caught:
            _append(wal, _request(1))
        assert caught.value.retry_delay_ms > 0
        files.may_sync.set()
        await asyncio.gather(*futures)
        await _append(wal, _request(1))[1]
        await wal.close()
        with pytest.raises(StoreUnavailableError, match="is closed"):
            _append(wal, _request(2))

    run(work)


@pytest.mark.fault
def test_a_torn_end_is_cut_off_and_the_log_goes_on_in_a_new_segment(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        await _append(wal, _request(1))[1]
        await _append(wal, _request(2))[1]
        await wal.close()
        (name,) = files.names()
        whole = files.read(name)
        os.truncate(os.path.join(files.uri, name), len(whole) - 20)
        wal = Wal(files, "g")
        assert len(files.read(name)) < len(whole) - 20
        await _append(wal, _request(3))[1]
        found = await wal.unfolded("t", "t-id", 0)
        assert [request.batches[0].base_offset for _, request in found] == [1, 3]
        await wal.close()
        assert len(files.names()) == 2
        wal = Wal(files, "g")
        assert len(await wal.unfolded("t", "t-id", 0)) == 2
        await wal.close()

    run(work)


@pytest.mark.fault
@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"MSW1"])
def test_a_segment_that_was_only_just_made_is_no_damage(files: _Files, content: bytes) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        number, done = _append(wal, _request(1))
        await done
        await wal.close()
        files.write_whole(f"{number + 1_000:020d}.wal", content)
        for _ in range(2):
            wal = Wal(files, "g")
            assert len(files.names()) == 1
            assert len(await wal.unfolded("t", "t-id", 0)) == 1
            await wal.close()

    run(work)


@pytest.mark.fault
def test_damage_before_the_end_is_an_error_with_file_and_position(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        await _append(wal, _request(1))[1]
        await _append(wal, _request(2))[1]
        await wal.close()

    run(work)
    (name,) = files.names()
    path = Path(files.uri, name)
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamagedError, match=f"{name} is damaged at byte 0: the checksum"):
        Wal(files, "g")
    assert path.read_bytes() == data  # nothing was touched


@pytest.mark.fault
def test_entries_that_vanish_while_the_log_is_open_are_an_error(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        await _append(wal, _request(1))[1]
        (name,) = files.names()
        os.truncate(os.path.join(files.uri, name), 0)
        with pytest.raises(LogDamagedError, match="has lost entries of topic 't'"):
            await wal.unfolded("t", "t-id", 0)
        files.delete(name)
        with pytest.raises(StoreUnavailableError, match="cannot be read"):
            await wal.unfolded("t", "t-id", 0)
        await wal.close()

    run(work)


def test_files_of_orphans_say_which_batches_of_a_topic_they_keep(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        assert await wal.kept_orphans("t-id", {5, 6}) == set()
        first = await wal.keep_orphans("t-id", [(n, _request(n, count=2)) for n in (5, 6)])
        both = (Slice(1, batch(9), None, False), Slice(0, batch(7), None, False))
        wide = WalRequest("t", "t-id", 1, both, (Batch(1, 0, 1), Batch(0, 8, 1)), 10)
        second = await wal.keep_orphans("t-id", [(5, wide)])
        await wal.keep_orphans("other-id", [(6, _request(6, "other"))])
        assert second != first
        os.rename(first, f"{first}.done")  # by an operator, who has dealt with it
        assert await wal.kept_orphans("t-id", {5}) == {(5, 0, 5), (5, 1, 0), (5, 0, 8)}
        assert await wal.kept_orphans("t-id", {6, 7}) == {(6, 0, 6)}
        assert len(files.names()) == 3
        await wal.close()

    run(work)


def test_a_file_that_is_written_whole_is_there_with_all_it_has_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalWalFiles(tmp_path / "wal")

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr("mainstem.delta_log.store.disk.os.rename", fails)
        with pytest.raises(OSError, match="I/O error"):
            files.write_whole("x.orphans", b"all of it")
    assert files.names() == []
    files.write_whole("x.orphans", b"all of it")
    files.write_whole("x.orphans", b"all of it, again")
    assert files.names() == ["x.orphans"]
    assert files.read("x.orphans") == b"all of it, again"
    files.close()


def test_what_interrupted_writes_left_goes_and_other_peoples_files_stay(tmp_path: Path) -> None:
    directory = tmp_path / "wal"
    directory.mkdir()
    (directory / "t.orphans.tmp").write_bytes(b"a part")
    (directory / f".{'0a' * 16}.tmp").write_bytes(b"a part")
    theirs = ["notes.tmp", "5.wal", "old.wal", f"{9 * 10**19}.wal", f"{7:020d}.wal.gz"]
    for name in theirs:
        (directory / name).write_bytes(b"somebody's")
    (directory / "x.tmp").mkdir()
    files = LocalWalFiles(directory)

    async def work() -> None:
        wal = Wal(files, "g")
        assert wal.topics() == []
        await _append(wal, _request(1))[1]
        await wal.close()

    run(work)
    files.close()
    found = os.listdir(directory)
    assert sorted(found) == sorted([".lock", "x.tmp", *theirs, *_segments(found)])
    assert len(_segments(found)) == 1


def _segments(names: list[str]) -> list[str]:
    return [name for name in names if is_segment(name)]


@pytest.mark.parametrize("kind", ["a link", "a directory", "a pipe"])
def test_a_segment_that_is_no_file_is_not_followed_and_stops_the_start(
    tmp_path: Path, kind: str
) -> None:
    """It may stand for records that somebody has moved elsewhere."""
    directory = tmp_path / "wal"
    directory.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"of value to somebody")
    path = directory / f"{7:020d}.wal"
    if kind == "a link":
        path.symlink_to(elsewhere)
    elif kind == "a directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    files = LocalWalFiles(directory)
    with pytest.raises(StoreUnavailableError, match=r"cannot be read.*wal"):
        Wal(files, "g")
    files.close()
    assert elsewhere.read_bytes() == b"of value to somebody"


def test_segments_of_two_logs_in_one_directory_stop_the_start(tmp_path: Path) -> None:
    """Their numbers say nothing about each other."""

    async def write(directory: Path, topic: str) -> None:
        files = LocalWalFiles(directory)
        wal = Wal(files, "g", clock_us=lambda: 7)
        await _append(wal, _request(1, topic))[1]
        files.close()
        await wal.close()

    run(lambda: write(tmp_path / "a", "t"))
    run(lambda: write(tmp_path / "b", "u"))
    (name,) = _segments(os.listdir(tmp_path / "a"))
    os.rename(tmp_path / "b" / name, tmp_path / "a" / f"{99:020d}.wal")
    files = LocalWalFiles(tmp_path / "a")
    with pytest.raises(LogDamagedError, match="segments of two logs"):
        Wal(files, "g")
    files.close()


def test_a_log_belongs_to_one_process(tmp_path: Path) -> None:
    files = LocalWalFiles(tmp_path / "a" / "b" / "wal")
    who = rf"which is running \(process {os.getpid()} on .*\); give .* another gateway\.id"
    with pytest.raises(WalInUse, match=who):
        LocalWalFiles(tmp_path / "a" / "b" / "wal")
    files.close()
    LocalWalFiles(tmp_path / "a" / "b" / "wal").close()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailableError, match="cannot be used"):
        LocalWalFiles(tmp_path / "file")


@pytest.mark.fault
@pytest.mark.parametrize("how", ["taken", "replaced by a copy", "made anew"])
def test_a_log_whose_directory_is_not_its_own_any_more_promises_nothing(
    files: _Files, tmp_path: Path, how: str
) -> None:
    """On a network file system a lock may keep nobody out, and the writer has the file open."""

    async def work() -> None:
        wal = Wal(files, "g")
        await _append(wal, _request(1))[1]
        directory = Path(files.uri)
        if how == "taken":
            (directory / ".lock").write_bytes(b"f" * 32 + b" host-2 17\n")
        elif how == "replaced by a copy":
            os.rename(directory, tmp_path / "moved")
            shutil.copytree(tmp_path / "moved", directory)
        else:
            shutil.rmtree(directory)
            os.mkdir(directory)
            (directory / ".lock").write_bytes(b"")
        with pytest.raises(StoreUnavailableError, match=r"is lost|was removed") as caught:
            await _append(wal, _request(2))[1]
        if how == "taken":
            assert "process 17 on host-2" in caught.value.message
        with pytest.raises(StoreUnavailableError):
            _append(wal, _request(3))
        await wal.close()

    run(work)


async def _goes_on(wal: Wal) -> None:
    """Returns when the log goes on behind its seal."""
    for _ in range(1_000):
        if wal.generation:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it stays sealed")


@pytest.mark.fault
@pytest.mark.parametrize("sealed", [False, True])
def test_a_log_whose_directory_was_away_goes_on_when_it_is_back_with_all_that_it_promised(
    files: _Files, tmp_path: Path, sealed: bool
) -> None:
    """A volume that is not mounted for a while. Another gateway may see it, and seal the log."""
    directory = Path(files.uri)

    async def work() -> None:
        now_s = 0.0
        wal = Wal(files, "g", monotonic=lambda: now_s)
        promised = [_append(wal, _request(1))]
        await promised[0][1]
        os.rename(directory, tmp_path / "away")
        for _ in range(3):
            with pytest.raises(StoreUnavailableError, match=r"cannot be written: .* is not there"):
                await _append(wal, _request(2))[1]
            now_s += 20.0
        assert wal.failures == {"ENOENT": 3}
        assert len(list((tmp_path / "away").glob("*.wal"))) == 1, "nothing is added meanwhile"
        if sealed:
            SealedWalFiles(tmp_path / "away", "other").close()
        os.rename(tmp_path / "away", directory)
        if sealed:
            with pytest.raises(StoreUnavailableError, match="was sealed"):
                await _append(wal, _request(2))[1]
            await _goes_on(wal)
        promised.append(_append(wal, _request(3)))
        await promised[1][1]
        await wal.close()
        files.close()
        found = LocalWalFiles(directory)
        entries = [number for number, _ in found.segments(1 << 20).scan()]
        assert entries == [number for number, _ in promised]
        found.close()

    run(work)


@pytest.mark.fault
def test_a_log_that_was_sealed_and_is_away_is_opened_again_when_it_is_back(
    files: _Files, tmp_path: Path
) -> None:
    directory = Path(files.uri)

    async def work() -> None:
        wal = Wal(files, "g")
        await _append(wal, _request(1))[1]
        SealedWalFiles(directory, "other").close()
        with pytest.raises(StoreUnavailableError, match="was sealed"):
            await _append(wal, _request(2))[1]
        os.rename(directory, tmp_path / "away")
        await asyncio.sleep(0.25)  # it tries to go on behind the seal
        assert wal.generation == 0
        os.rename(tmp_path / "away", directory)
        await _goes_on(wal)
        await _append(wal, _request(3))[1]
        await wal.close()

    run(work)


@pytest.mark.fault
def test_a_segment_that_is_removed_under_its_writer_holds_nothing_that_was_promised(
    files: _Files,
) -> None:
    async def work() -> None:
        now_s = 0.0
        wal = Wal(files, "g", monotonic=lambda: now_s)
        await _append(wal, _request(1))[1]
        (name,) = files.names()
        os.unlink(os.path.join(files.uri, name))
        with pytest.raises(StoreUnavailableError, match="was removed while it was in use"):
            await _append(wal, _request(2))[1]
        now_s = 1.0
        await _append(wal, _request(3))[1]
        assert len(files.names()) == 1
        await wal.close()

    run(work)
