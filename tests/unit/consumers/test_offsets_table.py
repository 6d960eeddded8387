"""The offsets table on disk: what is acknowledged is there, whatever happens to the table."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.delta_log.faults import FaultyStore

from mainstem.consumers.offset_rows import (
    GroupRow,
    OffsetKey,
    Row,
    StoredOffset,
    expired,
    offset_row,
)
from mainstem.consumers.offsets_table import OffsetsTable
from mainstem.delta_log.append import ByteBudget
from mainstem.delta_log.store import LocalStore, ObjectStore
from mainstem.delta_log.table import TableState, load_table
from mainstem.errors import FencedError, MainstemError

WAIT_S = 30.0
DAY_MS = 86_400_000


@asynccontextmanager
async def led(
    warehouse: Path, store: ObjectStore | None = None, close_s: float = WAIT_S
) -> AsyncIterator[OffsetsTable]:
    """The table, led by this test."""
    store = store or LocalStore(warehouse)
    pool = ThreadPoolExecutor(4)
    try:
        table = await OffsetsTable.lead(store, pool, budget=ByteBudget(2**24))
        try:
            yield table
        finally:
            await table.close(close_s)
    finally:
        pool.shutdown()


def run(test: Any) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await test

    asyncio.run(with_deadline())


def stored(partition: int, offset: int, topic_id: str = "id", at_ms: int = 0) -> StoredOffset:
    return StoredOffset("t", topic_id, partition, offset, 3, 'mëta"data', at_ms)


def on_disk(warehouse: Path) -> TableState:
    """The table as another process finds it."""
    store = LocalStore(warehouse / "system" / "consumer_offsets", create=False)
    try:
        return load_table(store)
    finally:
        store.close()


def file_count(warehouse: Path) -> int:
    return on_disk(warehouse).file_count


def shown(table: OffsetsTable) -> dict[str, dict[OffsetKey, StoredOffset]]:
    return {name: dict(table.offsets(name)) for name in table.groups if table.offsets(name)}


OFFSETS = st.builds(StoredOffset, st.text(), st.text(), st.integers(0, 9), st.integers())


@given(
    st.builds(offset_row, st.text(), OFFSETS)
    | st.builds(Row, st.text(), st.builds(OffsetKey, st.text(), st.integers(0, 9)), st.none())
    | st.builds(Row, st.text(), st.none(), st.none() | st.builds(GroupRow, st.integers()))
)
@settings(max_examples=50)
def test_a_row_comes_back_from_its_json_as_it_was(row: Row) -> None:
    assert Row.decode(*row.encode()) == row


@given(st.text(), OFFSETS, st.builds(GroupRow, st.integers(), st.none() | st.integers()))
@settings(max_examples=50)
def test_a_row_has_the_bytes_that_json_gives_it(
    group: str, offset: StoredOffset, own: GroupRow
) -> None:
    """Keys are compared by their bytes, also with those that older versions wrote."""

    def dumped(**body: object) -> bytes:
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    key = dumped(group=group, topic_id=offset.topic_id, partition=offset.partition)
    assert offset_row(group, offset).encode() == (key, dumped(group=group, **asdict(offset)))
    assert Row(group, None, own).encode() == (
        dumped(group=group),
        dumped(group=group, **asdict(own)),
    )


def test_the_latest_row_of_a_key_wins_also_after_the_table_is_opened_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            await table.write([offset_row("g", stored(0, 1)), offset_row("g", stored(1, 1))])
            await table.write([offset_row("g", stored(0, 2)), Row("g", None, GroupRow(7, 9))])
            await table.write([offset_row("h", stored(0, 5))])
            await table.write([Row("h", OffsetKey("id", 0), None)])
            before = shown(table)
            assert before["g"][OffsetKey("id", 0)] == stored(0, 2)
            assert "h" not in before
        async with led(tmp_path) as table:
            assert shown(table) == before
            assert table.group("g") == GroupRow(7, 9)
            assert table.groups == {"g"}

    run(test())


def test_what_is_accepted_shows_only_when_it_is_durable_and_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            writes = [table.write([offset_row("g", stored(0, n))]) for n in range(100)]
            assert table.offsets("g") == {}
            await table.flushed("g")
            assert all(one.done() for one in writes)
            assert table.offsets("g")[OffsetKey("id", 0)].offset == 99
            assert file_count(tmp_path) < 10, "commits that wait together share a table commit"

    run(test())


def test_a_caller_that_gives_up_waiting_takes_its_commit_from_nobody_else(tmp_path: Path) -> None:
    held = threading.Event()

    def hold(call: str, path: str) -> None:
        if call == "put_if_absent" and path.startswith("system/consumer_offsets/_delta_log/"):
            held.wait(WAIT_S)

    async def test() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: faults.append(about))
        held.set()
        async with led(tmp_path, FaultyStore(LocalStore(tmp_path), before=hold)) as table:
            held.clear()
            write = table.write([offset_row("g", stored(0, 1))])
            other = asyncio.ensure_future(table.flushed("g"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(write, 0.05)
            late = asyncio.ensure_future(table.flushed("g"))
            await asyncio.sleep(0)
            held.set()
            await asyncio.gather(other, late)
            assert table.offsets("g")[OffsetKey("id", 0)].offset == 1
            await table.write([offset_row("g", stored(0, 2))])
        assert faults == []

    run(test())


def test_whoever_led_the_table_before_cannot_store_an_offset_any_more(tmp_path: Path) -> None:
    async def test() -> None:
        async with led(tmp_path) as old:
            await old.write([offset_row("g", stored(0, 1))])
            async with led(tmp_path) as new:
                with pytest.raises(FencedError):
                    await old.write([offset_row("g", stored(0, 9))])
                assert old.failure is not None
                assert new.offsets("g")[OffsetKey("id", 0)].offset == 1
                await new.write([offset_row("g", stored(0, 2))])
        async with led(tmp_path) as again:
            assert again.offsets("g")[OffsetKey("id", 0)].offset == 2

    run(test())


def test_whoever_holds_a_group_back_is_waited_for_and_its_offsets_after_that(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            await table.write([offset_row("g", stored(0, 1))])
            releases = [table.hold("g"), table.hold("g")]
            readers = [asyncio.ensure_future(table.flushed("g")) for _ in range(2)]
            await table.flushed("h")
            for release in releases:
                await asyncio.sleep(0.02)
                assert not readers[1].done()
                readers[0].cancel()  # one that gives up lets nobody else through
                table.write([offset_row("g", stored(0, 2))])
                release()
                release()
            await readers[1]
            assert table.offsets("g")[OffsetKey("id", 0)].offset == 2
            await table.flushed("g")

    run(test())


@pytest.mark.parametrize("how", ["close", "hand over", "lost"])
def test_nobody_waits_for_one_who_will_not_let_go_of_a_group_any_more(
    tmp_path: Path, how: str
) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            release = table.hold("g")
            waiting = asyncio.ensure_future(table.flushed("g"))
            await asyncio.sleep(0)
            if how == "close":
                await table.close(WAIT_S)
            elif how == "hand over":
                assert await table.hand_over(WAIT_S, 7)
            else:
                async with led(tmp_path):
                    with pytest.raises(FencedError):
                        await table.write([offset_row("g", stored(0, 9))])
            with pytest.raises(MainstemError):
                await waiting
            release()
            with pytest.raises(MainstemError):
                table.hold("g")

    run(test())


@pytest.mark.parametrize("days", [1, 400, -1])
def test_a_clock_that_is_set_makes_no_group_older_than_it_is_by_more_than_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    real_ns = time.time_ns

    async def test() -> None:
        began_ms = time.time_ns() // 10**6
        async with led(tmp_path) as table:
            assert abs(table.now_ms() - began_ms) < 60_000
            monkeypatch.setattr(time, "time_ns", lambda: real_ns() + days * DAY_MS * 10**6)
            assert abs(table.now_ms() - began_ms) < 60_000
            await table.write([offset_row("g", stored(0, 1, at_ms=table.now_ms()))])
        for _ in range(2):  # another coordinator, which has this clock from its beginning
            async with led(tmp_path) as table:
                assert -60_000 < table.now_ms() - began_ms < DAY_MS + 60_000
                assert table.offsets("g")[OffsetKey("id", 0)].offset == 1

    run(test())


def test_retention_counts_from_when_the_group_became_empty_or_from_a_later_commit() -> None:
    offsets = [stored(0, 1, at_ms=0), stored(1, 1, at_ms=900)]

    def gone(row: GroupRow | None, now_ms: int, *, has_members: bool = False) -> list[int]:
        found = expired(row, offsets, has_members=has_members, now_ms=now_ms, retention_ms=1_000)
        return [one.partition for one in found]

    assert gone(GroupRow(1, 500), 1_499) == []
    assert gone(GroupRow(1, 500), 1_500) == [0]
    assert gone(GroupRow(1, 500), 1_900) == [0, 1]
    assert gone(GroupRow(1, 500), 9_999, has_members=True) == []
    assert gone(GroupRow(1, None), 9_999) == [], "it is not written yet since when it is empty"
    assert gone(None, 1_000) == [0], "a group that never had members"
