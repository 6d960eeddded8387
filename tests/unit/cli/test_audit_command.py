"""`mainstem cluster audit`: which rows it prints, and how."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mainstem.cli.root import cli
from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import AppendedRow, AppendedTable, Appending
from mainstem.ingest_gateway.audit import AuditKind, AuditRow

HOUR_MS = 3_600_000


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["cluster", "audit", *words])


def _rows(*words: str) -> list[dict[str, Any]]:
    answer = _run("--format", "json", *words)
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    now_ms = int(time.time() * 1000)
    rows = [
        AuditRow(
            AuditKind.ACT,
            now_ms - 3 * HOUR_MS,
            principal="User:alice",
            call="DeleteTopic",
            resources=("orders",),
        ),
        AuditRow(
            AuditKind.REFUSAL,
            now_ms - 2 * HOUR_MS,
            principal="User:eve",
            call="Fetch",
            resources=("a\x1b[31m\nb", "c"),
            allowed=False,
            error="TOPIC_AUTHORIZATION_FAILED",
            count=12,
        ),
        AuditRow(
            AuditKind.ACT,
            now_ms - HOUR_MS // 2,
            principal="User:eve",
            call="CreateTopic",
            resources=("new",),
            summary='{"topic":"new"}',
        ),
    ]
    store = LocalStore(tmp_path)
    table = AppendedTable(store, "audit", retention_ms=24 * HOUR_MS)
    for row in rows:
        bounded = row.bounded()
        table.append(Appending([AppendedRow(row.principal, bounded.to_json(), row.time_ms)]))
    store.close()
    return str(tmp_path)


def test_all_rows_are_printed_the_newest_last(warehouse: str) -> None:
    assert [row["call"] for row in _rows("--warehouse", warehouse)] == [
        "DeleteTopic",
        "Fetch",
        "CreateTopic",
    ]


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        (("--since", "1h"), ["CreateTopic"]),
        (("--since", "-150m"), ["Fetch", "CreateTopic"]),
        (("--since", "2001-01-01T00:00:00Z"), ["DeleteTopic", "Fetch", "CreateTopic"]),
        (("--principal", "User:eve"), ["Fetch", "CreateTopic"]),
        (("--principal", "User:EVE"), []),
        (("--call", "DeleteTopic"), ["DeleteTopic"]),
        (("--refused",), ["Fetch"]),
        (("-n", "2"), ["Fetch", "CreateTopic"]),
        (("-n", "0"), ["DeleteTopic", "Fetch", "CreateTopic"]),
        (("--principal", "User:eve", "-n", "1"), ["CreateTopic"]),
    ],
)
def test_only_what_is_asked_for_is_printed(
    warehouse: str, words: tuple[str, ...], calls: list[str]
) -> None:
    assert [row["call"] for row in _rows("--warehouse", warehouse, *words)] == calls


def test_a_name_that_somebody_made_up_does_not_write_on_the_terminal(warehouse: str) -> None:
    answer = _run("--warehouse", warehouse, "--refused")
    assert answer.exit_code == 0
    head, line = answer.stdout.splitlines()
    assert head.split()[:3] == ["TIME", "KIND", "PRINCIPAL"]
    assert "\x1b" not in line
    assert r"a\x1b[31m\nb and 1 more" in line
    assert line.split()[-1] == "12"


def test_wide_has_what_was_asked(warehouse: str) -> None:
    answer = _run("--warehouse", warehouse, "--format", "wide")
    assert '{"topic":"new"}' in answer.stdout


def test_a_warehouse_without_an_audit_has_no_rows_and_gets_no_table(tmp_path: Path) -> None:
    answer = _run("--warehouse", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    assert len(answer.stdout.splitlines()) == 1
    assert not (tmp_path / "system").exists()


@pytest.mark.parametrize("since", ["yesterday", "", "1x", "2999-01-01T00:00:00Z"])
def test_a_time_that_is_none_is_wrong_usage(warehouse: str, since: str) -> None:
    answer = _run("--warehouse", warehouse, "--since", since)
    assert answer.exit_code == 2
    assert "--since" in answer.stderr
