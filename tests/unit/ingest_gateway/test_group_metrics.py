"""How far behind a group is, as a state of the table says it; and what is left out in time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.harness import run, running
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.client import AdminClient, TopicPartition
from mainstem.consumers.offset_rows import StoredOffset
from mainstem.delta_log import TableState
from mainstem.delta_log.format import DataFile, Metadata, Protocol, Register, registers
from mainstem.ingest_gateway.groups import metrics as group_metrics
from mainstem.ingest_gateway.groups.metrics import _lags_in

EPOCH_START = registers.epoch_start(0, 0)


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


def lags(state: TableState, *offsets: int, topic_id: str = "id") -> list[tuple[int, int | None]]:
    """Records and since when, for groups at these offsets of partition 0."""
    stored = [StoredOffset("t", topic_id, 0, offset) for offset in offsets]
    found = _lags_in(state, [(("g", "t", "0"), one) for one in stored])
    return [(one.records, one.since_ms) for one in found]


def test_the_file_with_the_first_record_that_was_not_read_counts() -> None:
    state = state_of(file(0, 5, 100), file(5, 5, 200), end=10)
    assert lags(state, 0, 4, 5, 9) == [(10, 100), (6, 100), (5, 200), (1, 200)]


def test_lag_is_never_negative_and_at_the_end_there_is_no_age() -> None:
    assert lags(state_of(file(0, 10, 100), end=10), 10) == [(0, None)]


def test_where_records_are_gone_the_next_ones_count() -> None:
    state = state_of(file(0, 2, 100), file(8, 2, 300), end=10)
    assert lags(state, 3) == [(7, 300)], "compaction took 2 to 7"
    trimmed = state_of(file(5, 5, 200), log_start_offset=7, end=10)
    assert lags(trimmed, 0, 8) == [(3, 200), (2, 200)], "the log begins at 7 now"
    assert lags(state_of(file(0, 2, 100), end=10), 5) == [(5, None)], "all of them are gone"


def test_a_log_that_ends_before_a_committed_offset_has_what_its_group_will_read() -> None:
    state = state_of(file(0, 5, 100), file(5, 5, 200), log_start_offset=2, end=10)
    assert lags(state, 11, 2**63 - 1) == [(8, 100), (8, 100)], "begun anew by most groups"
    epochs = [registers.partition_epoch(0), registers.epoch_number(0, 0)]
    epochs_and_starts = [*(Register(name, 9) for name in epochs), Register(EPOCH_START, 6)]
    state.apply(2, epochs_and_starts)
    for offset, lag in ((4, 6), (6, 4), (7, 4), (10, 4), (99, 4)):
        one = StoredOffset("t", "id", 0, offset, leader_epoch=8)
        (found,) = _lags_in(state, [(("g", "t", "0"), one)])
        assert found.records == lag, "what has replaced the records from 6 on is not read yet"


def test_offsets_of_a_topic_of_the_same_name_before_this_one_have_no_lag() -> None:
    assert lags(state_of(file(0, 5, 100), end=5), 1, topic_id="older") == []


def test_a_loop_that_is_too_busy_leaves_lag_out_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_metrics, "_WAIT_S", 0.05)
    monkeypatch.setattr(group_metrics, "_AT_ONCE", 1)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 2)
            await client.produce(values_request(b"a"))
            admin = AdminClient({"bootstrap.servers": gateway.address})
            offsets = [TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)]
            await asyncio.to_thread(admin.alter_consumer_group_offsets, "g", offsets)
            loop = asyncio.get_running_loop()

            async def names(busy_s: float) -> set[str]:
                scrape = loop.run_in_executor(
                    None, lambda: list(gateway._metrics.registry.collect())
                )
                time.sleep(busy_s)  # noqa: ASYNC251 the loop is busy, that is the point
                return {family.name for family in await scrape if family.samples}

            lag, committed = (
                f"mainstem_consumer_group_{name}" for name in ("lag_records", "committed_offset")
            )
            assert {lag, committed} & await names(0.5) == {committed}
            monkeypatch.setattr(group_metrics, "_WAIT_S", 30.0)
            assert {lag, committed} <= await names(0.0)
            admin.close()

    run(test())
