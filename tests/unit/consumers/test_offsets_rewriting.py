"""How the offsets table keeps itself small: what it writes for that, and that nothing gets lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.unit.consumers.test_offsets_table import file_count, led, on_disk, run, shown, stored
from tests.unit.delta_log.faults import FaultyStore

from mainstem.consumers.offset_rows import GroupRow, OffsetKey, Row, StoredOffset, offset_row
from mainstem.consumers.offsets_table import NAME, OffsetsTable
from mainstem.delta_log.append import Appender
from mainstem.delta_log.latest import is_due, rewriting
from mainstem.delta_log.latest.rewriting import Rewriter
from mainstem.delta_log.store import LocalStore
from mainstem.delta_log.verify import verify_topic
from mainstem.errors import StoreUnavailableError
from mainstem.limits import OFFSETS_PER_COMMIT_MAX

TOPIC_ID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"


@pytest.fixture(autouse=True)
def without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_REST_FACTOR", 0.0)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes begin at few rows, and go by chunks of few."""
    monkeypatch.setattr(rewriting, "DEAD_ROWS_MIN", 20)
    monkeypatch.setattr(rewriting, "CHUNK_ROWS", 8)
    monkeypatch.setattr(rewriting, "_PAUSE_S_MIN", 0.0)


async def settled(table: OffsetsTable) -> None:
    """Waits until no pass is under way, nor due: the last commit may have come during one."""
    while True:
        table._table._rewriter.consider()
        if table._table._rewriter._task is None or table._table._rewriter._task.done():
            return
        await asyncio.wait({table._table._rewriter._task})


def check_verified(warehouse: Path) -> None:
    store = LocalStore(warehouse / "system" / NAME, create=False)
    report = verify_topic(store, NAME)
    assert report.ok, report.findings
    store.close()


def many(count: int, offset: int) -> Iterator[Sequence[Row]]:
    """Commits of so many partitions of one group."""
    for start in range(0, count, OFFSETS_PER_COMMIT_MAX):
        yield [
            offset_row("orders", StoredOffset("t", TOPIC_ID, number, offset, 3, "", 1_790_000))
            for number in range(start, min(start + OFFSETS_PER_COMMIT_MAX, count))
        ]


@pytest.mark.slow
def test_a_commit_to_a_table_of_many_live_rows_writes_its_own_row_and_no_other(
    tmp_path: Path,
) -> None:
    live = 41_000

    async def test() -> None:
        async with led(tmp_path) as table:
            committed = 0
            for offset, count in enumerate((live, live, 20_000)):
                for rows in many(count, offset):
                    await table.write(rows)
                    committed += len(rows)
            await settled(table)
            state = on_disk(tmp_path)
            assert live <= state.files(0).record_count <= 2 * live + rewriting.DEAD_ROWS_MIN
            assert committed < state.log_end_offset(0) <= 2 * committed
            for number in range(20):
                await table.write([offset_row("orders", stored(number, 9))])
            await settled(table)
            assert on_disk(tmp_path).log_end_offset(0) == state.log_end_offset(0) + 20
            assert len(table.offsets("orders")) == live + 20

    run(test())


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("hot_share", [1.0, 0.5, 0.02])
def test_no_more_rows_are_copied_than_were_written_and_nothing_else_changes(
    tmp_path: Path, rng: random.Random, hot_share: float
) -> None:
    """A row that takes a key away counts as two: itself and the one that it takes."""

    async def test() -> None:
        wanted: dict[str, dict[OffsetKey, StoredOffset]] = {}
        async with led(tmp_path) as table:
            written = 0
            for number in range(100):
                rows = []
                for _ in range(rng.randrange(1, 14)):
                    group = f"g{rng.randrange(3)}"
                    offset = stored(rng.randrange(max(1, int(50 * hot_share))), number)
                    key = OffsetKey(offset.topic_id, offset.partition)
                    if number < 30 or rng.random() < 0.8:
                        rows.append(offset_row(group, offset))
                        wanted.setdefault(group, {})[key] = offset
                        written += 1
                    else:
                        rows.append(Row(group, key, None))
                        wanted.setdefault(group, {}).pop(key, None)
                        written += 2
                await table.write(rows)
            await settled(table)
            assert shown(table) == {group: found for group, found in wanted.items() if found}
            rows_in_log = on_disk(tmp_path).files(0).record_count
            live = sum(map(len, wanted.values()))
            assert not is_due(rows_in_log, live, 0)
        state = on_disk(tmp_path)
        assert state.log_end_offset(0) <= 2 * written
        check_verified(tmp_path)
        async with led(tmp_path) as table:
            assert shown(table) == {group: found for group, found in wanted.items() if found}

    run(test())


def test_rewriting_leaves_one_file_and_changes_no_offset_while_commits_go_on(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            for n in range(20):
                await table.write([offset_row("g", stored(n % 3, n))])
            await table.write([Row("g", OffsetKey("id", 2), None), Row("g", None, GroupRow(3))])
            assert file_count(tmp_path) == 21
            pending = [table.write([offset_row("h", stored(0, n))]) for n in range(5)]
            under_way = asyncio.ensure_future(table.rewrite())
            await asyncio.sleep(0)
            after = table.write([offset_row("g", stored(0, 50))])
            await asyncio.gather(under_way, after, *pending)
            assert file_count(tmp_path) <= 3
            await table.write([offset_row("g", stored(1, 51))])
            before = shown(table)
        async with led(tmp_path) as table:
            assert shown(table) == before
            assert table.group("g") == GroupRow(3)
            assert {key.partition: one.offset for key, one in before["g"].items()} == {0: 50, 1: 51}
            assert before["h"][OffsetKey("id", 0)].offset == 4
        check_verified(tmp_path)

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
                patch.setattr(Appender, "change", crash)
                with pytest.raises(StoreUnavailableError):
                    await table.rewrite()
        async with led(tmp_path) as table:
            assert shown(table) == before
            await table.rewrite()
        async with led(tmp_path) as table:
            assert shown(table) == before
        assert file_count(tmp_path) == 1

    run(test())


def test_a_row_is_removed_only_when_the_commit_that_superseded_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the copy of the first row is committed the second row is superseded, by a commit that
    never becomes durable."""
    monkeypatch.setattr(rewriting, "CHUNK_ROWS", 1)
    armed = failing = False
    loop: asyncio.AbstractEventLoop
    table: OffsetsTable
    superseding: list[asyncio.Future[None]] = []

    def before(call: str, path: str) -> None:
        if failing and call == "put" and path.startswith("system/consumer_offsets/partition="):
            raise StoreUnavailableError("the disk is full")

    def after(call: str, path: str) -> None:
        nonlocal failing
        if armed and not failing and call == "put":
            failing = True
            loop.call_soon_threadsafe(
                lambda: superseding.append(table.write([offset_row("g", stored(1, 2))]))
            )

    async def test() -> None:
        nonlocal armed, failing, loop, table
        loop = asyncio.get_running_loop()
        store = FaultyStore(LocalStore(tmp_path), before, after)
        async with led(tmp_path, store, close_s=0.0) as table:
            for partition in range(3):
                await table.write([offset_row("g", stored(partition, 1))])
            armed = True
            under_way = asyncio.ensure_future(table.rewrite())
            await asyncio.sleep(0.5)
            assert [write.done() for write in superseding] == [False]
            under_way.cancel()
        armed = failing = False
        async with led(tmp_path) as again:
            found = {key.partition: one.offset for key, one in again.offsets("g").items()}
            assert found == {0: 1, 1: 1, 2: 1}

    run(test())


@pytest.mark.usefixtures("eager")
def test_a_pass_that_failed_is_tried_again_later_and_not_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "_PAUSE_S_MIN", 1.0)
    attempts, now = 0, 0.0
    real = Rewriter._remove_before

    async def fail_twice(rewriter: Rewriter[Row], first_offset: int) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise StoreUnavailableError("the store is away")
        await real(rewriter, first_offset)

    monkeypatch.setattr(Rewriter, "_remove_before", fail_twice)

    async def test() -> None:
        nonlocal now
        async with led(tmp_path) as table:
            monkeypatch.setattr(table._table._rewriter, "_monotonic", lambda: now)
            for n in range(40):
                await table.write([offset_row("g", stored(0, n))])
            await settled(table)
            assert attempts == 1, "each commit has tried it again"
            for later, attempts_wanted in ((1.9, 1), (2.1, 2), (6.0, 2)):
                now = later
                await table.write([offset_row("g", stored(0, 99))])
                await settled(table)
                assert attempts == attempts_wanted
            now = 6.2
            await table.write([offset_row("g", stored(0, 100))])
            await settled(table)
            assert table.offsets("g")[OffsetKey("id", 0)].offset == 100
            assert on_disk(tmp_path).files(0).record_count < 30
        check_verified(tmp_path)

    run(test())


def test_small_commits_do_not_leave_a_file_each(tmp_path: Path) -> None:
    async def test() -> None:
        async with led(tmp_path) as table:
            for n in range(100):
                await table.write([offset_row("g", stored(n % 7, n))])
            assert file_count(tmp_path) < 80
            before = shown(table)
        async with led(tmp_path) as table:
            assert shown(table) == before

    run(test())


def test_files_that_were_removed_are_deleted_when_nobody_can_still_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "_REMOVED_KEPT_S", 0.2)

    def stored_files() -> set[str]:
        return {path.name for path in tmp_path.rglob("*.parquet") if "checkpoint" not in path.name}

    async def test() -> None:
        async with led(tmp_path) as table:
            for n in range(5):
                await table.write([offset_row("g", stored(0, n))])
            old = stored_files()
            await table.rewrite()
            await table.write([offset_row("g", stored(0, 5))])
            await settled(table)
            assert old <= stored_files(), "a reader may be a version behind"
            await asyncio.sleep(0.25)
            await table.write([offset_row("g", stored(0, 6))])
            await settled(table)
            assert not old & stored_files()

    run(test())


def test_a_pass_is_due_when_it_takes_away_more_than_it_copies_or_files_have_come_together() -> None:
    assert not is_due(100_000, 100_000, 60)
    assert not is_due(209_999, 100_000, 60)
    assert is_due(210_000, 100_000, 60)
    assert not is_due(9_999, 0, 1)
    assert is_due(10_000, 0, 1)
    assert not is_due(1_010, 1_000, 1_999)
    assert is_due(3_000, 1_000, 2_000)
    assert not is_due(1_000_000, 1_000_000, 2_000), "the copies of a pass are in files too"
