"""The jobs keep the audit small and young, as they do a topic."""

from __future__ import annotations

from pathlib import Path

from tests.unit.jobs.topic_tables import check_verified

from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import AppendedRow, AppendedTable, Appending
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import SYSTEM_TABLES
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool

DAY_MS = 86_400_000
LONG_AGO_MS = 1_000_000_000_000


def test_the_audit_is_compacted_and_loses_what_is_too_old(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    table = AppendedTable(store, "audit", retention_ms=DAY_MS)
    for number in range(6):
        row = AppendedRow(f"User:{number}", {"n": number}, LONG_AGO_MS + number)
        table.append(Appending([row]))

    def rows() -> list[tuple[str, object, int]]:
        reader = AppendedTable(store, "audit", retention_ms=DAY_MS)
        return [(row.key, row.value["n"], row.time_ms) for row in reader.newest_first()]

    before = rows()
    assert len(before) == 6
    (outcome,) = run_job(store.uri, Compaction(min_age_ms=0), ["system/audit"], pool=InProcessPool)
    assert (outcome.outcome.kind.value, outcome.outcome.after.files) == ("ok", 1)
    assert rows() == before
    # The writer goes on after it.
    table.append(Appending([AppendedRow("User:6", {"n": 6}, 32_000_000_000_000)]))
    check_verified(table.opened.store, "audit")
    (outcome,) = run_job(store.uri, Retention(), ["system/audit"], pool=InProcessPool)
    assert outcome.outcome.kind.value == "ok"
    assert [key for key, _, _ in rows()] == ["User:6"]
    store.close()


def test_the_jobs_for_every_table_know_those_of_the_audit_and_the_quotas() -> None:
    assert {"audit", "quotas"} <= set(SYSTEM_TABLES)
