"""Records that are acknowledged already, with acks=1, do not hurry into the table: where each table
commit has a price, a topic that trickles makes one of many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.delta_log.appending import batch, create, lead, run, values
from tests.unit.delta_log.power_loss import InlineExecutor

from mainstem.delta_log import Appender, Slice, Topics
from mainstem.delta_log.append import CommitTurns
from mainstem.delta_log.append.queue import ByteBudget
from mainstem.delta_log.format import ProducerBatch
from mainstem.delta_log.wal import LocalWalFiles, Wal

BUDGET_BYTES = 1_000


class Line:
    """A topic whose commits have no turn while nobody waits for them."""

    def __init__(self, topics: Topics, directory: Path) -> None:
        create(topics, commit_interval_ms=1_000)
        self.topics = topics
        self.directory = directory

    def run(self, work: Callable[[Appender, Wal, CommitTurns], Awaitable[None]]) -> None:
        async def life() -> None:
            files = LocalWalFiles(self.directory)
            wal = Wal(files, "g")
            turns = CommitTurns(
                0,
                1,
                2_500,
                unawaited_rate=1,
                unawaited_interval_max_ms=600_000,
                monotonic=lambda: 0.0,
            )
            turns.ask(1_000, lambda: None, is_awaited=False)  # has what there is of the budget
            appender = await lead(
                self.topics.open("t"),
                InlineExecutor(),
                wal=wal,
                turns=turns,
                budget=ByteBudget(BUDGET_BYTES),
            )
            # The first commit of a leader waits for nobody's turn: it may have recovered something.
            await appender.submit([Slice(0, batch(0))], 1)
            try:
                await work(appender, wal, turns)
                await appender.close(10)
                await wal.close()
            finally:
                files.close()

        run(life)


@pytest.fixture
def line(topics: Topics, tmp_path: Path) -> Line:
    return Line(topics, tmp_path / "wal")


async def early(appender: Appender, first: int, **options: int) -> None:
    """A record with acks=1, until it is acknowledged."""
    answer = appender.submit([Slice(0, batch(first))], options.get("size", 1), write_ahead=True)
    assert (await answer).table_version == -1


async def in_line(turns: CommitTurns) -> None:
    """The topic waits for its turn."""
    while not turns.waiting_count:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)


def test_what_is_acknowledged_waits_and_goes_in_one_commit_with_the_next_that_is_awaited(
    line: Line,
) -> None:
    async def work(appender: Appender, wal: Wal, turns: CommitTurns) -> None:
        version = appender.state.version
        for number in range(1, 6):
            await early(appender, number)
        await in_line(turns)
        assert appender.state.version == version
        assert appender.oldest_waiting_s == 0.0, "nobody waits for it"
        done = await appender.submit([Slice(1, batch(9))], 1)
        assert done.table_version == version + 1
        assert appender.state.log_end_offset(0) == 6

    line.run(work)
    assert [offset for offset, _ in values(line.topics, 0)] == list(range(6))


def test_a_sender_whose_record_the_write_ahead_log_cannot_take_does_not_wait_for_a_turn(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(appender: Appender, wal: Wal, turns: CommitTurns) -> None:
        await early(appender, 1)
        await in_line(turns)

        def fails(_: int) -> None:
            raise OSError(5, "I/O error")

        monkeypatch.setattr("mainstem.delta_log.wal.files.os.fdatasync", fails)
        answer = await appender.submit([Slice(0, batch(2))], 1, write_ahead=True)
        assert answer.table_version > 0

    line.run(work)


def test_a_retry_that_wants_acks_all_hurries_the_batch_that_was_acknowledged(line: Line) -> None:
    async def work(appender: Appender, wal: Wal, turns: CommitTurns) -> None:
        one = [Slice(0, batch(1), ProducerBatch(7, 0, 0))]
        assert (await appender.submit(one, 1, write_ahead=True)).table_version == -1
        await in_line(turns)
        assert (await appender.submit(one, 1)).table_version > 0

    line.run(work)


def test_where_memory_is_short_what_waits_is_committed(line: Line) -> None:
    async def work(appender: Appender, wal: Wal, turns: CommitTurns) -> None:
        version = appender.state.version
        await early(appender, 1, size=BUDGET_BYTES // 2)
        await in_line(turns)
        assert appender.state.version == version
        appender.submit([Slice(0, batch(2))], 1, write_ahead=True)
        async with asyncio.timeout(30):
            while appender.queued_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    line.run(work)


def test_a_topic_that_closes_commits_what_waits(line: Line) -> None:
    async def work(appender: Appender, wal: Wal, turns: CommitTurns) -> None:
        await early(appender, 1)
        await in_line(turns)

    line.run(work)
    assert [offset for offset, _ in values(line.topics, 0)] == [0, 1]
