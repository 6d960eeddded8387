"""Transactions under kills, judged by an independent checker under Jepsen's names.

Clients append to lists in several topics and are killed, as the gateways are; a reader looks at the
topics at versions with whole transactions only. MAINSTEM_TEST_FAULTS=full does it for some minutes;
without it only the checker is put to the test, where it is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fault.adya import INSTALL, check_list_append, find_adya
from tests.fault.list_append import Size, run_list_append
from tests.fault.newest_versions import newest_versions
from tests.length import FULL

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(find_adya() is None, reason=f"the checker is not installed: {INSTALL}"),
]

only_full = pytest.mark.skipif(not FULL, reason="`make test-fault` only")

#: What looks at whole transactions promise; that no look is later than it could be, they do not.
MODEL = "serializable"


def append(key: int, *values: int) -> list[list[Any]]:
    return [["append", key, value] for value in values]


def read(key: int, *values: int) -> list[list[Any]]:
    return [["r", key, list(values)]]


def write(path: Path, transactions: Sequence[tuple[str, list[list[Any]]]]) -> Path:
    """A history of transactions one after the other, each with its outcome."""
    lines = []
    for number, (outcome, value) in enumerate(transactions):
        asked = [[kind, key, None if kind == "r" else one] for kind, key, one in value]
        for at, (type_, what) in enumerate((("invoke", asked), (outcome, value))):
            index = 2 * number + at
            one = {"index": index, "type": type_, "process": number, "value": what, "time": index}
            lines.append(json.dumps(one))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "transactions"),
    [
        (
            "G0",
            [
                ("ok", append(1, 1) + append(2, 1)),
                ("ok", append(1, 2) + append(2, 2)),
                ("ok", read(1, 1, 2) + read(2, 2, 1)),
            ],
        ),
        ("G1a", [("fail", append(1, 1)), ("ok", read(1, 1))]),
        ("G1b", [("ok", append(1, 1, 2)), ("ok", read(1, 1)), ("ok", read(1, 1, 2))]),
        (
            "G1c",
            [
                ("ok", append(1, 1) + read(2, 1)),
                ("ok", append(2, 1) + read(1, 1)),
            ],
        ),
        (
            "G-single-item",
            [
                ("ok", append(1, 1) + append(2, 1)),
                ("ok", read(1, 1) + read(2)),
                ("ok", read(1, 1) + read(2, 1)),
            ],
        ),
        (
            "duplicate-elements",
            [("ok", append(1, 1)), ("ok", read(1, 1, 1))],
        ),
        (
            "incompatible-order",
            [
                ("ok", append(1, 1)),
                ("ok", append(1, 2)),
                ("ok", read(1, 1, 2)),
                ("ok", read(1, 2, 1)),
            ],
        ),
    ],
)
def test_the_checker_names_each_anomaly(
    tmp_path: Path, name: str, transactions: Sequence[tuple[str, list[list[Any]]]]
) -> None:
    verdict = check_list_append(write(tmp_path / "history.jsonl", transactions), MODEL)
    assert verdict.valid is False
    assert name in verdict.anomalies, str(verdict)


def test_the_checker_finds_nothing_in_a_history_without_anomalies(tmp_path: Path) -> None:
    transactions = [
        ("ok", append(1, 1) + append(2, 1)),
        ("fail", append(1, 2)),
        ("info", append(2, 3)),
        ("ok", read(1, 1) + read(2, 1, 3)),
    ]
    verdict = check_list_append(write(tmp_path / "history.jsonl", transactions), MODEL)
    assert verdict.valid is True, str(verdict)


@only_full
@pytest.mark.slow
@pytest.mark.end_to_end
@pytest.mark.timeout(900)
def test_looks_at_whole_transactions_are_serializable_whatever_is_killed(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    history = run_list_append(tmp_path, seed, Size(60))
    report(history)
    path = tmp_path / "history.jsonl"
    history.write(path)
    verdict = check_list_append(path, MODEL)
    report(verdict)
    assert verdict.valid is True, f"{history}\n{verdict}"
    assert history.looks > 50
    assert history.outcomes["ok"] > 200
    assert history.outcomes["fail"]


@only_full
@pytest.mark.slow
@pytest.mark.end_to_end
@pytest.mark.timeout(300)
def test_the_newest_versions_of_all_topics_show_halves_which_the_checker_names(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    history = run_list_append(tmp_path, seed, Size(6), newest_versions)
    history.write(tmp_path / "history.jsonl")
    verdict = check_list_append(tmp_path / "history.jsonl", MODEL)
    report(f"{history}\n{verdict}")
    assert verdict.valid is False, str(verdict)
    assert "G-single-item" in verdict.anomalies
