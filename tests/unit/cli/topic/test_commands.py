"""`mainstem topic create, list, alter-config, delete` against a gateway in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mainstem.cli import context
from mainstem.cli.root import cli
from mainstem.testing import FakeGateway


class Shell:
    """Runs commands against one gateway."""

    def __init__(self, gateway: FakeGateway) -> None:
        self.gateway = gateway

    def __call__(self, *words: str, typed: str | None = None) -> Result:
        environment = {"MAINSTEM_BOOTSTRAP_SERVERS": self.gateway.address}
        return CliRunner().invoke(cli, words, input=typed, env=environment)

    @property
    def topics(self) -> list[str]:
        answer = self("topic", "list")
        return [line.split()[0] for line in answer.stdout.splitlines()[1:]]


@pytest.fixture
def shell() -> Iterator[Shell]:
    with FakeGateway({"orders": 2, "orders.dlt": 1, "payments": 1}) as gateway:
        yield Shell(gateway)


def test_times_and_sizes_with_units_are_taken_and_shown_back(shell: Shell) -> None:
    created = shell("topic", "create", "t", "-c", "retention.ms=7d", "-c", "retention.bytes=10GiB")
    assert created.exit_code == 0, created.output
    assert created.stderr.splitlines() == [
        "retention.ms = 604800000 ms (7 days)",
        "retention.bytes = 10737418240 bytes (10 GiB)",
    ]
    plain = shell("topic", "alter-config", "t", "--set", "retention.ms=86400000")
    assert (plain.exit_code, plain.stderr) == (0, "")
    altered = shell("topic", "alter-config", "t", "--set", "retention.ms=12h")
    assert altered.stderr == "retention.ms = 43200000 ms (12 hours)\n"
    described = shell("topic", "describe", "t").stdout
    assert "retention.ms     43200000     ms (12 hours)   set" in described
    assert "retention.bytes  10737418240  bytes (10 GiB)  set" in described


def test_every_wrong_setting_is_told_in_one_row(shell: Shell) -> None:
    words = ("--set", "retention.ms=1x", "--set", "comit.bytes=1")
    answer = shell("topic", "alter-config", "orders", *words)
    assert answer.exit_code == 1
    (_, row) = answer.stdout.splitlines()
    assert "2 settings cannot be used: - " in row
    assert "- retention.ms is '1x'" in row
    assert "did you mean commit.bytes?" in row
    pairs = shell("topic", "create", "t", "-c", "a", "-c", "b")
    assert pairs.exit_code == 2
    assert "'a', 'b' are not KEY=VALUE" in pairs.stderr


def test_a_list_has_those_that_fit_a_pattern_or_are_named(shell: Shell) -> None:
    def listed(*words: str) -> list[str]:
        answer = shell("topic", "list", *words)
        assert answer.exit_code == 0, answer.output
        return [line.split()[0] for line in answer.stdout.splitlines()[1:]]

    assert listed() == ["orders", "orders.dlt", "payments"]
    assert listed("ord*") == ["orders", "orders.dlt"]
    assert listed("^ord.*s$", "payments") == ["orders", "payments"]
    assert listed("orders.*") == ["orders.dlt"], "a dot is a dot"
    assert listed("x*") == []
    missing = shell("topic", "list", "ordres")
    assert (missing.exit_code, missing.stderr) == (
        1,
        "error: UNKNOWN_TOPIC: there is no topic 'ordres'\n",
    )
    wrong = shell("topic", "list", "^(")
    assert wrong.exit_code == 2
    assert "'^(' is not a regular expression" in wrong.stderr


def test_topics_that_fit_a_pattern_are_named_before_they_are_deleted(shell: Shell) -> None:
    refused = shell("topic", "delete", "ord*", typed="n\n")
    assert refused.exit_code == 1
    assert "Delete orders, orders.dlt, with all records? [y/N]" in refused.stderr
    assert "nothing was deleted" in refused.stderr
    assert shell.topics == ["orders", "orders.dlt", "payments"]
    nothing = shell("topic", "delete", "x*", "-y")
    assert nothing.exit_code == 2
    assert "no topic fits 'x*'" in nothing.stderr
    done = shell("topic", "delete", "^orders", "-y")
    assert done.exit_code == 0, done.output
    assert shell.topics == ["payments"]


def test_other_commands_take_patterns_too(shell: Shell) -> None:
    altered = shell("topic", "alter-config", "ord*", "--set", "retention.ms=1d")
    assert [line.split()[0] for line in altered.stdout.splitlines()[1:]] == ["orders", "orders.dlt"]
    described = shell("topic", "describe", "ord*", "--format", "json")
    assert [json.loads(line)["topic"] for line in described.stdout.splitlines()] == [
        "orders",
        "orders.dlt",
    ]


def test_a_topic_that_exists_is_no_error_where_that_is_asked_for(shell: Shell) -> None:
    failed = shell("topic", "create", "orders", "new", "-p", "3")
    assert failed.exit_code == 1
    assert "TOPIC_EXISTS" in failed.stdout
    again = shell("topic", "create", "orders", "newer", "-p", "3", "--if-not-exists")
    assert again.exit_code == 0
    assert again.stderr == "topic orders exists already and was left as it is\n"
    assert [line.split() for line in again.stdout.splitlines()[1:]] == [
        ["orders", "2", "OK"],
        ["newer", "3", "OK"],
    ]


def test_a_replication_factor_is_taken_and_said_to_be_of_no_use(shell: Shell) -> None:
    created = shell("topic", "create", "t", "-p", "2", "-r", "3")
    assert created.exit_code == 0
    assert "the replication factor is not used: the store replicates" in created.stderr


def test_records_come_from_several_files_in_order(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1\n2\n3")  # without a line feed at the end
    (tmp_path / "two").write_text("4\n")
    paths = [str(tmp_path / name) for name in ("one", "two")]
    sent = shell("topic", "produce", "payments", paths[0], "-", paths[1], typed="s\n")
    assert (sent.exit_code, sent.stderr) == (0, "5 records to payments\n")
    assert shell.gateway.values("payments") == [[b"1", b"2", b"3", b"s", b"4"]]


def test_a_file_that_is_not_there_is_told_before_anything_is_sent(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text("1\n")
    sent = shell("topic", "produce", "payments", str(tmp_path / "one"), str(tmp_path / "no"))
    assert sent.exit_code == 2
    assert "no' does not exist" in sent.stderr
    assert shell.gateway.values("payments") == [[]]


def test_a_transactional_id_is_not_for_a_command_that_sends_records_one_by_one(
    shell: Shell,
) -> None:
    commands = (
        ("topic", "produce", "payments"),
        ("topic", "redrive", "orders.dlt"),
        ("bench", "produce", "-b", shell.gateway.address),
    )
    for command in commands:
        refused = shell("-X", "transactional.id=x", *command, typed="1\n")
        assert refused.exit_code == 2, refused.output
        assert "transactional.id: this command sends records one by one" in refused.stderr


def test_a_bad_record_is_told_with_its_file_and_number(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "one").write_text('{"value": "1"}\n')
    (tmp_path / "two").write_text('{"value": "2"}\nx\n')
    paths = [str(tmp_path / name) for name in ("one", "two")]
    sent = shell("topic", "produce", "payments", "-f", "json", *paths)
    assert sent.exit_code == 1
    assert f"{paths[1]}: record 2: INVALID_RECORD: 'x' is not JSON" in sent.stderr
    assert "2 records to payments, 1 failed" in sent.stderr


@pytest.mark.parametrize("seconds", ["2.5", "2500ms", "1m"])
def test_a_time_out_has_a_unit_or_is_in_seconds(shell: Shell, seconds: str) -> None:
    assert shell("topic", "list", "--timeout", seconds).exit_code == 0


@pytest.mark.parametrize("seconds", ["0", "-1", "1x", "inf", "nan", "0.5ms"])
def test_a_time_out_that_is_none_is_wrong_usage(shell: Shell, seconds: str) -> None:
    answer = shell("topic", "list", "--timeout", seconds)
    assert answer.exit_code == 2
    assert "is not a time from 1ms on" in " ".join(answer.stderr.split())


def test_an_empty_list_says_on_a_terminal_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with FakeGateway({}) as gateway:
        shell = Shell(gateway)
        assert shell("topic", "list").stderr == ""
        monkeypatch.setattr(type(context.out), "is_terminal", True)
        assert "`mainstem topic create NAME` makes one" in shell("topic", "list").stderr
        assert shell("topic", "list", "x*").stderr == ""
        assert shell("topic", "list", "--format", "json").stderr == ""
        monkeypatch.setenv("MAINSTEM_PROFILES", str(tmp_path / "profiles.json"))
        assert "no profile yet" in shell("profile", "list").stderr
