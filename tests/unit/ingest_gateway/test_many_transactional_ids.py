"""A coordinator with many transactional ids looks at some of them at a time."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.ingest_gateway.transactions import term as term_module
from mainstem.ingest_gateway.transactions.entry import Entry
from mainstem.ingest_gateway.transactions.rows import IdRow
from mainstem.ingest_gateway.transactions.term import Term, TransactionRules

NOW_MS = 1_800_000_000_000


def test_each_tick_looks_at_the_next_ids_and_all_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(term_module, "TICK_LOOKS_MAX", 10)
    looked: Counter[str] = Counter()

    def is_idle(entry: Entry) -> bool:
        looked[entry.row.transactional_id] += 1
        return True

    monkeypatch.setattr(Entry, "is_idle", property(is_idle))
    forgotten: list[str] = []
    committing: Any = SimpleNamespace(
        now_ms=lambda: NOW_MS, tick=lambda: None, forget=forgotten.extend
    )
    nothing: Any = None
    used = {f"old{number}": 1 for number in range(15)} | {
        f"new{number}": NOW_MS for number in range(10)
    }
    term = Term(
        [IdRow(name, 1, 0, 60_000, updated_ms=at_ms) for name, at_ms in used.items()],
        committing,
        nothing,
        nothing,
        TransactionRules(),
        nothing,
        lambda _: None,
        lambda: 0.0,
    )
    for count in (10, 20, 25):
        term.tick()
        assert looked.total() == count
    assert looked == Counter(list(used))
    assert sorted(forgotten) == sorted(name for name in used if name.startswith("old"))
    # Those that are left, and each time all of them, as they are no more than one tick looks at.
    for count in (35, 45):
        term.tick()
        assert looked.total() == count
