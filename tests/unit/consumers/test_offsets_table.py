"""The offsets table on disk: what is acknowledged is there, whatever happens to the table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.consumers import offsets_table
from mainstem.consumers.offsets_table import (
    GroupRow,
    OffsetKey,
    OffsetsTable,
    Row,
    StoredOffset,
    expired,
    offset_row,
)
from mainstem.delta_log import ByteBudget, LocalStore, load_table
from mainstem.errors import FencedError, StoreUnavailableError

WAIT_S = 30.0
DAY_MS = 86_400_000


@asynccontextmanager
async def led(warehouse: Path) -> AsyncIterator[OffsetsTable]:
    """The table, led by this test."""
    store = LocalStore(warehouse)
    pool = ThreadPoolExecutor(4)
    try:
        table = await OffsetsTable.lead(store, pool, budget=ByteBudget(2**24))
        try:
            yield table
        finally:
            await table.close(WAIT_S)
    finally:
        pool.shutdown()
        store.close()


def run(test: Any) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await test

    asyncio.run(with_deadline())


def stored(partition: int, offset: int, topic_id: str = "id", at_ms: int = 0) -> StoredOffset:
    return StoredOffset("t", topic_id, partition, offset, 3, 'mëta"data', at_ms)


def file_count(warehouse: Path) -> int:
    store = LocalStore(warehouse / "system" / "consumer_offsets", create=False)
    try:
        return load_table(store).file_count
    finally:
        store.close()


def shown(table: OffsetsTable) -> dict[str, dict[OffsetKey, StoredOffset]]:
    return {name: dict(table.offsets(name)) for name in table.groups if table.offsets(name)}


@given(
    st.builds(
        Row,
        st.text(),
        st.builds(OffsetKey, st.text(), st.integers(0, 9)),
        st.none() | st.builds(StoredOffset, st.text(), st.text(), st.integers(0, 9), st.integers()),
    )
    | st.builds(Row, st.text(), st.none(), st.none() | st.builds(GroupRow, st.integers()))
)
@settings(max_examples=50)
def test_a_row_comes_back_from_its_json_as_it_was(row: Row) -> None:
    assert Row.decode(*row.encode()) == row


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


def test_rewriting_leaves_one_file_and_changes_no_offset_while_commits_go_on(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            for n in range(20):
                await table.write([offset_row("g", stored(n % 3, n))])
            await table.write([Row("g", OffsetKey("id", 2), None)])
            assert file_count(tmp_path) == 21
            pending = [table.write([offset_row("h", stored(0, n))]) for n in range(5)]
            rewriting = asyncio.ensure_future(table.rewrite())
            await asyncio.sleep(0)  # it has its rows: what comes now is after them
            after = table.write([offset_row("g", stored(0, 50))])
            await asyncio.gather(rewriting, after, *pending)
            assert file_count(tmp_path) <= 3
            await table.write([offset_row("g", stored(1, 51))])
            before = shown(table)
        async with led(tmp_path) as table:
            assert shown(table) == before
            assert {key.partition: one.offset for key, one in before["g"].items()} == {0: 50, 1: 51}
            assert before["h"][OffsetKey("id", 0)].offset == 4

    run(test())


def test_a_crash_between_the_copies_and_the_removal_loses_nothing_and_brings_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise StoreUnavailableError("crashed")

    async def test() -> None:
        async with led(tmp_path) as table:
            await table.write([offset_row("g", stored(0, 1)), offset_row("g", stored(1, 2))])
            await table.write([Row("g", OffsetKey("id", 1), None)])
            before = shown(table)
            with monkeypatch.context() as patch:
                patch.setattr(OffsetsTable, "_remove", crash)
                with pytest.raises(StoreUnavailableError):
                    await table.rewrite()
        async with led(tmp_path) as table:
            assert shown(table) == before
            await table.rewrite()
        async with led(tmp_path) as table:
            assert shown(table) == before
        assert file_count(tmp_path) == 1

    run(test())


def test_the_table_rewrites_itself_when_most_of_its_rows_are_superseded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_table, "REWRITE_FILES_MIN", 10)

    async def test() -> None:
        async with led(tmp_path) as table:
            for n in range(60):
                await table.write([offset_row("g", stored(0, n))])
            assert file_count(tmp_path) < 30
            assert table.offsets("g")[OffsetKey("id", 0)].offset == 59

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
