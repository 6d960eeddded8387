"""How old a group's lag is: found in the index of files, on the event loop, or left out."""

from __future__ import annotations

import asyncio
import time

import pytest

from mainstem.delta_log import TableState
from mainstem.delta_log.actions import DataFile, Metadata, Protocol, Register
from mainstem.ingest_gateway import group_metrics
from mainstem.ingest_gateway.group_metrics import _first_timestamps, _Unread


def file(base_offset: int, record_count: int, timestamp_ms_min: int) -> DataFile:
    """A file of partition 0 without gaps."""
    return DataFile(
        path=f"partition=0/{base_offset}.parquet",
        partition=0,
        size_bytes=1,
        modified_ms=0,
        record_count=record_count,
        base_offset=base_offset,
        last_offset=base_offset + record_count - 1,
        timestamp_ms_min=timestamp_ms_min,
        timestamp_ms_max=timestamp_ms_min + 10,
    )


def state_of(*files: DataFile, log_start_offset: int = 0, end: int) -> TableState:
    state = TableState("t")
    state.apply(0, [Protocol(), Metadata("id", 0, {"mainstem.partitions": "1"})])
    registers = [Register("mainstem/leo/0", end), Register("mainstem/lso/0", log_start_offset)]
    state.apply(1, [*files, *registers])
    return state


def ages(state: TableState, *offsets: int) -> list[int | None]:
    """As a scrape finds them, in another thread than the loop's."""

    async def scrape() -> list[int | None]:
        loop = asyncio.get_running_loop()
        unread = [_Unread(("g", "t", "0"), state, 0, offset) for offset in offsets]
        return await asyncio.to_thread(lambda: list(_first_timestamps(loop, unread)))

    return asyncio.run(scrape())


def test_the_file_with_the_first_record_that_was_not_read_counts() -> None:
    state = state_of(file(0, 5, 100), file(5, 5, 200), end=10)
    assert ages(state, 0, 4, 5, 9) == [100, 100, 200, 200]


def test_where_records_are_gone_the_next_ones_count() -> None:
    state = state_of(file(0, 2, 100), file(8, 2, 300), end=10)
    assert ages(state, 3) == [300], "compaction took 2 to 7"
    trimmed = state_of(file(5, 5, 200), log_start_offset=7, end=10)
    assert ages(trimmed, 0) == [200], "the log begins at 7 now"


def test_a_log_without_a_file_after_the_offset_has_no_age() -> None:
    assert ages(state_of(file(0, 2, 100), end=10), 5) == [None]


def test_more_than_fit_into_one_step_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metrics, "_AT_ONCE", 2)
    state = state_of(*(file(number, 1, 100 + number) for number in range(5)), end=5)
    assert ages(state, *range(5)) == [100, 101, 102, 103, 104]


def test_a_loop_that_is_too_busy_leaves_the_ages_out_and_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_metrics, "_LOOP_WAIT_S", 0.05)
    state = state_of(file(0, 5, 100), end=5)

    async def scrape() -> list[int | None]:
        loop = asyncio.get_running_loop()
        unread = [_Unread(("g", "t", "0"), state, 0, 0)]
        found = loop.run_in_executor(None, lambda: list(_first_timestamps(loop, unread)))
        time.sleep(0.5)  # noqa: ASYNC251 the loop is busy, that is the point
        return await found

    assert asyncio.run(scrape()) == []


def test_a_loop_that_has_ended_leaves_the_ages_out() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    unread = [_Unread(("g", "t", "0"), state_of(file(0, 5, 100), end=5), 0, 0)]
    assert list(_first_timestamps(loop, unread)) == []
