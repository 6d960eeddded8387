"""`mainstem job`: what it prints and how it ends. None of these has work for Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

sys.path.append(str(Path(__file__).resolve().parents[3]))

from tests.unit.jobs.topic_tables import appends

from mainstem.cli.root import cli
from mainstem.delta_log import LocalStore, Topics
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.run_job import main
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool

#: Long ago: files of that time are old enough for compaction.
OLD_MS = 1_500_000_000_000


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """Two topics, `busy` with eight small files and `idle` with none."""
    store = LocalStore(tmp_path / "warehouse")
    topics = Topics(store)
    topics.create("idle", 1)
    table = appends(topics, "busy", 2)
    for n in range(8):
        table.append(n % 2, [b"v"] * 5, modified_ms=OLD_MS)
    store.close()
    return str(tmp_path / "warehouse")


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def test_jobs_are_listed_with_their_options() -> None:
    text = _run("job", "list")
    assert text.stdout.splitlines()[0].split() == ["JOB", "SUMMARY"]
    bodies = [
        json.loads(line)
        for line in _run("--format", "json", "job", "list").stdout.split("\n")
        if line
    ]
    compaction = next(body for body in bodies if body["job"] == "compaction")
    assert compaction["options"]["compaction.target.bytes"] == 128 * 1024 * 1024


def test_a_dry_run_prints_the_plan_and_changes_nothing(warehouse: str) -> None:
    words = ("job", "run", "compaction", "--warehouse", warehouse, "--dry-run")
    for _ in range(2):
        answer = _run("--format", "json", *words)
        assert answer.exit_code == 0
        bodies = [json.loads(line) for line in answer.stdout.splitlines()]
        assert [
            (body["topic"], body["partition"], body["files"], body["records"]) for body in bodies
        ] == [
            ("busy", 0, 4, 20),
            ("busy", 1, 4, 20),
        ]
    assert "1 of 2 tables have nothing to do" in _run(*words).stderr


def test_a_run_with_nothing_to_do_needs_no_spark_and_says_so(warehouse: str) -> None:
    answer = _run("job", "run", "compaction", "--warehouse", warehouse, "-T", "idle")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert "1 of 1 tables had nothing to do" in answer.stderr
    assert "Spark" not in answer.stderr


def test_a_topic_that_is_not_there_is_a_row_and_exit_code_1(warehouse: str) -> None:
    words = ("job", "run", "compaction", "--warehouse", warehouse, "-T", "nix")
    answer = _run("--format", "json", *words)
    assert answer.exit_code == 1
    body = json.loads(answer.stdout)
    assert (body["topic"], body["outcome"]) == ("nix", "failed")
    assert body["error"].startswith("UNKNOWN_TOPIC: there is no topic 'nix'")
    assert _run(*words, "--dry-run").exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compation",), "there is no job 'compation'; did you mean compaction?"),
        (("compaction", "-o", "compaction.min.age=5"), "did you mean compaction.min.age.ms?"),
        (("compaction", "-o", "compaction.min.age.ms=x"), "must be a whole number (ms)"),
        (("compaction", "-o", "foo=1"), "no setting 'foo'; there are compaction."),
    ],
)
def test_a_job_or_option_that_does_not_exist_is_wrong_usage(
    words: tuple[str, ...], message: str
) -> None:
    answer = _run("job", "run", *words)
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert main([*words, "--warehouse", "nowhere"]) == 2


def test_the_history_has_what_was_done(warehouse: str) -> None:
    run_job(warehouse, Compaction(), pool=InProcessPool)
    words = ("job", "history", "--warehouse", warehouse)
    bodies = [json.loads(line) for line in _run("--format", "json", *words).stdout.splitlines()]
    assert [(body["topic"], body["outcome"], body["files_before"]) for body in bodies] == [
        ("busy", "ok", 8)
    ]
    assert _run("--format", "json", *words, "--job", "vacuum").stdout == ""
    head, row = _run("--format", "wide", *words).stdout.splitlines()
    assert head.split()[:3] == ["STARTED", "SECONDS", "JOB"]
    assert "busy" in row


def test_a_warehouse_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    for words in (("run", "compaction"), ("history",)):
        answer = _run("job", *words, "--warehouse", nowhere)
        assert answer.exit_code == 1
        assert f"there is no warehouse at {nowhere}" in answer.stderr


def test_the_application_for_spark_submit_prints_the_same_plan(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compaction", "--warehouse", warehouse, "--dry-run", "-T", "busy"]) == 0
    bodies = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(body["partition"], body["files"]) for body in bodies] == [(0, 4), (1, 4)]
    assert main(["compaction", "--warehouse", warehouse, "-T", "idle"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "nothing"
