"""A table of latest rows, as another user than the offsets table has it: rows by their places."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mainstem.delta_log.append import ByteBudget, TransactionMark
from mainstem.delta_log.latest import LatestTable, RowsByPlace, TableKind, rewriting
from mainstem.delta_log.store import LocalStore
from mainstem.delta_log.topics import SYSTEM
from mainstem.delta_log.verify import verify_topic
from mainstem.errors import TransactionAbortedError


@dataclass(frozen=True)
class Word:
    """A row of the test's table; without a meaning it takes the word away."""

    word: str
    meaning: str | None

    @property
    def place(self) -> str:
        return self.word

    @property
    def takes_away(self) -> bool:
        return self.meaning is None

    def encode(self) -> tuple[bytes, bytes | None]:
        return self.word.encode(), None if self.meaning is None else self.meaning.encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes | None) -> Word:
        return cls(key.decode(), None if value is None else value.decode())


WORDS = TableKind("words", {"commit.interval.ms": "0"}, Word.decode, 2**20)


@asynccontextmanager
async def led(warehouse: Path) -> AsyncIterator[tuple[LatestTable[Word], dict[str, Word]]]:
    """The table, led by this test, and the rows that it shows."""
    store = LocalStore(warehouse)
    with ThreadPoolExecutor(4) as pool:
        view: RowsByPlace[Word] = RowsByPlace()
        table = await LatestTable.lead(
            store, pool, WORDS, view, budget=ByteBudget(2**24), kept_ms=86_400_000
        )
        try:
            yield table, view.rows
        finally:
            await table.close(10.0)
            store.close()


def test_the_latest_row_of_each_key_shows_whatever_was_rewritten_meanwhile(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "_REST_FACTOR", 0.0)
    monkeypatch.setattr(rewriting, "DEAD_ROWS_MIN", 10)
    monkeypatch.setattr(rewriting, "CHUNK_ROWS", 4)
    monkeypatch.setattr(rewriting, "_PAUSE_S_MIN", 0.0)
    wanted: dict[str, str] = {}

    def shown(rows: dict[str, Word]) -> dict[str, str | None]:
        return {word: row.meaning for word, row in rows.items()}

    async def test() -> None:
        for _ in range(3):
            async with led(tmp_path) as (table, rows):
                assert shown(rows) == wanted
                writes = []
                for number in range(60):
                    word = f"w{rng.randrange(12)}"
                    if rng.random() < 0.2:
                        writes.append(table.write([Word(word, None)]))
                        wanted.pop(word, None)
                    else:
                        writes.append(table.write([Word(word, "?"), Word(word, f"m{number}")]))
                        wanted[word] = f"m{number}"
                    if rng.random() < 0.3:
                        await writes[-1]
                await asyncio.gather(*writes, table.rewrite())
                assert shown(rows) == wanted

    asyncio.run(test())
    store = LocalStore(tmp_path / SYSTEM / "words", create=False)
    report = verify_topic(store, "words")
    store.close()
    assert report.ok, report.findings


def test_rows_of_a_transaction_are_written_once_and_do_not_undo_what_came_after(
    tmp_path: Path,
) -> None:
    mark = TransactionMark("bank", 2)
    rows_of_it = [Word("a", "1"), Word("b", None)]

    async def test() -> None:
        async with led(tmp_path) as (table, rows):
            await table.write([Word("b", "0")])
            first = table.write(rows_of_it, mark)
            pending = table.write(rows_of_it, mark)
            later = table.write([Word("a", "2"), Word("b", "2")])
            await asyncio.gather(first, pending, later)
            end = table._appender.log_end_offset(0)
            await table.write(rows_of_it, mark)
            assert table._appender.log_end_offset(0) == end == 5
            assert {word: row.meaning for word, row in rows.items()} == {"a": "2", "b": "2"}
            await table.rewrite()
        async with led(tmp_path) as (table, rows):
            await table.write(rows_of_it, mark)
            assert {word: row.meaning for word, row in rows.items()} == {"a": "2", "b": "2"}
            await table.write([Word("c", "3")], TransactionMark("bank", 4))
            with pytest.raises(TransactionAbortedError):
                table.write(rows_of_it, mark)
            assert rows["c"].meaning == "3"

    asyncio.run(test())
