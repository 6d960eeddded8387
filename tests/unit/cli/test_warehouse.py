"""`--warehouse`: every command understands it in the same way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstem.cli.root import cli

#: Every command that takes a warehouse.
COMMANDS: dict[str, list[str]] = {
    "gateway run": ["gateway", "run", "--listen", "127.0.0.1:0"],
    "cluster verify": ["cluster", "verify"],
    "sql": ["sql", "SELECT 1"],
    "job run": ["job", "run", "compaction"],
    "job run --dry-run": ["job", "run", "compaction", "--dry-run"],
    "job history": ["job", "history"],
    "job status": ["job", "status"],
    "job pause": ["job", "pause", "compaction"],
    "job resume": ["job", "resume", "compaction"],
    "job scheduler": ["job", "scheduler"],
    "topic backup": ["topic", "backup", "t", "copy"],
    "topic restore": ["topic", "restore", "copy"],
    "demo": ["demo"],
}


@pytest.fixture(autouse=True)
def _logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway's settings for logging are for its whole process, and so would be for other tests
    of this one."""
    monkeypatch.setattr("mainstem.ingest_gateway.configure_logging", lambda config: None)


@pytest.mark.parametrize("uri", ["hdfs:/x", "wasb://container/x"])
@pytest.mark.parametrize("command", COMMANDS)
def test_another_store_is_refused_by_every_command_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, uri: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(cli, [*COMMANDS[command], "--warehouse", uri])
    assert answer.exit_code == 1
    assert "INVALID_CONFIG" in answer.stderr
    assert "in a store that is not supported" in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.output
    assert os.listdir() == []


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("gateway run", "demo")]
)
def test_a_file_uri_of_what_is_not_there_is_told_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = (tmp_path / "a typo").as_uri()
    answer = CliRunner().invoke(cli, [*COMMANDS[command], "--warehouse", uri])
    assert answer.exit_code == 1
    assert "there is no warehouse at" in " ".join(answer.stderr.split())
    assert os.listdir() == []


def test_the_write_ahead_log_is_not_put_into_a_directory_that_is_called_as_another_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    words = ["-X", "wal.directory=s3://bucket/wal", "gateway", "run", "--listen", "127.0.0.1:0"]
    answer = CliRunner().invoke(cli, [*words, "--warehouse", "w"])
    assert answer.exit_code == 1
    assert "wal.directory" in answer.stderr
    assert os.listdir() == ["w"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
