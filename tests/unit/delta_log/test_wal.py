"""The write-ahead log: numbers, syncs, segments, and a disk that fails."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.unit.delta_log.appending import batch, run

from mainstem.delta_log import Slice
from mainstem.delta_log.table import Batch
from mainstem.delta_log.wal import (
    LocalWalFiles,
    Wal,
    WalFile,
    WalInUse,
    WalRequest,
    decode_entry,
    decode_segment,
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
def test_after_a_sync_that_failed_nothing_more_is_promised_and_what_was_stays(
    files: _Files, fails: OSError
) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        first, done = _append(wal, _request(1))
        await done
        files.fails = fails
        files.may_sync.clear()
        waiting = [_append(wal, _request(index))[1] for index in (2, 3)]
        await asyncio.sleep(0.02)
        waiting.append(_append(wal, _request(4, "other"))[1])  # behind the sync that fails
        files.may_sync.set()
        for future in waiting:
            with pytest.raises(StoreUnavailableError, match="has failed"):
                await future
        files.fails = None
        with pytest.raises(StoreUnavailableError, match="acks=1 waits for table commits"):
            wal.append(wal.take_number(), _request(5))
        assert wal.topics() == [("t", "t-id")]
        assert [number for number, _ in await wal.unfolded("t", "t-id", 0)] == [first]
        await wal.close()
        wal = Wal(files, "g")
        assert (await wal.unfolded("t", "t-id", 0))[0][0] == first
        await wal.close()

    run(work)


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


def test_orphans_are_kept_once_also_when_more_join_them(files: _Files) -> None:
    async def work() -> None:
        wal = Wal(files, "g")
        orphans = [(number, _request(number, count=2)) for number in (5, 6)]
        path, count = await wal.keep_orphans("t-id", orphans)
        assert count == 4
        assert await wal.keep_orphans("t-id", orphans) == (path, 0)
        both = Slice(1, batch(9), None, False)
        wider = WalRequest(
            "t", "t-id", 1, (*orphans[1][1].slices, both), (Batch(0, 6, 2), Batch(1, 0, 1)), 10
        )
        second, count = await wal.keep_orphans("t-id", [orphans[0], (6, wider)])
        assert count == 1
        assert second != path
        found = [
            (number, [one.partition for one in decode_entry(entry).batches])
            for one in (path, second)
            for frame in decode_segment(files.read(os.path.basename(one)), one, is_last=False)
            for number, entry in frame.entries
        ]
        assert found == [(5, [0]), (6, [0]), (6, [1])]
        await wal.close()

    run(work)


def test_a_file_of_orphans_that_was_interrupted_is_as_if_it_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalWalFiles(tmp_path / "wal")

    def fails(*_: object) -> None:
        raise OSError(5, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr("mainstem.delta_log.wal.files.os.rename", fails)
        with pytest.raises(OSError, match="I/O error"):
            files.write_whole("x.orphans", b"all of it")
    assert files.names() == []
    files.write_whole("x.orphans", b"all of it")
    assert files.names() == ["x.orphans"]
    (tmp_path / "wal" / "y.orphans.tmp").write_bytes(b"a part")
    files.close()
    files = LocalWalFiles(tmp_path / "wal")
    assert sorted(os.listdir(tmp_path / "wal")) == [".lock", "x.orphans"]
    files.close()


def test_a_log_belongs_to_one_process(tmp_path: Path) -> None:
    files = LocalWalFiles(tmp_path / "a" / "b" / "wal")
    with pytest.raises(WalInUse, match=r"another gateway\.id"):
        LocalWalFiles(tmp_path / "a" / "b" / "wal")
    files.close()
    LocalWalFiles(tmp_path / "a" / "b" / "wal").close()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailableError, match="cannot be used"):
        LocalWalFiles(tmp_path / "file")
