"""`mainstem store check`: rows, sentences, exit codes, and nothing that stays behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.faulty_http import Faults, faulty_proxy
from tests.s3_server import S3Server

from mainstem.cli.root import cli
from mainstem.delta_log.store import CloudStore, LocalStore

PROMISES = ["put", "condition", "race", "lost answer", "reads", "ranges", "list", "delete"]


def test_a_directory_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"x")
    answer = CliRunner().invoke(cli, ["store", "check", str(tmp_path), "--format", "json"])
    assert answer.exit_code == 0, answer.output
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [row["promise"] for row in rows] == PROMISES
    assert {row["status"] for row in rows} == {"OK"}
    assert os.listdir(tmp_path) == ["mine"]


def test_the_gateways_warehouse_is_checked_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSTEM_WAREHOUSE", str(tmp_path))
    answer = CliRunner().invoke(cli, ["store", "check", "--writers", "2"])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.count("  OK") == len(PROMISES)


def test_a_directory_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    answer = CliRunner().invoke(cli, ["store", "check", str(tmp_path / "none")])
    assert answer.exit_code == 1
    assert "there is no directory at" in answer.stderr
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("writers", ["1", "65", "x"])
def test_a_number_of_writers_that_makes_no_sense_is_wrong_usage(writers: str) -> None:
    assert CliRunner().invoke(cli, ["store", "check", "--writers", writers]).exit_code == 2


@pytest.mark.parametrize("call", [0, 1, 9, 40, 60])
def test_an_interrupted_check_cleans_up_and_ends_as_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    put_if_absent = LocalStore.put_if_absent
    calls: list[str] = []

    def interrupted(self: LocalStore, path: str, data: bytes, *, frees_space: bool = False) -> None:
        calls.append(path)
        put_if_absent(self, path, data)
        if len(calls) > call:
            raise KeyboardInterrupt

    monkeypatch.setattr(LocalStore, "put_if_absent", interrupted)
    answer = CliRunner().invoke(cli, ["store", "check", str(tmp_path), "--writers", "8"])
    assert answer.exit_code == 130
    assert len(calls) > call
    assert not os.listdir(tmp_path)


def test_a_service_that_does_not_see_the_condition_is_told_in_a_sentence(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    bucket = s3_server.make_bucket()
    for name, value in s3_server.options.items():
        monkeypatch.setenv(name, value)
    with faulty_proxy(s3_server.url, faults) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        words = ["store", "check", f"s3://{bucket}/lake", "--format", "json", "--writers", "4"]
        assert CliRunner().invoke(cli, words).exit_code == 0
        faults.dropped_headers = {"if-none-match"}
        answer = CliRunner().invoke(cli, words)
        assert answer.exit_code == 1
        rows = {row["promise"]: row for row in map(json.loads, answer.stdout.splitlines())}
        wrong = [name for name in PROMISES if rows[name]["status"] != "OK"]
        assert wrong == ["condition", "race", "lost answer"]
        assert "use a service with conditional puts" in rows["condition"]["message"]
        faults.refusals = {"DELETE": 403, "POST": 403}
        answer = CliRunner().invoke(cli, words)
        assert answer.exit_code == 1
        assert "could not be deleted: delete them by hand" in " ".join(answer.stderr.split())
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    store = CloudStore(f"s3://{bucket}/lake")
    assert len(store.list_directories("")) == 1
    store.close()


def test_a_bucket_that_is_not_there_is_one_row(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.options.items():
        monkeypatch.setenv(name, value)
    answer = CliRunner().invoke(cli, ["store", "check", "s3://no-such-bucket/lake"])
    assert answer.exit_code == 1
    (row,) = answer.stdout.splitlines()[1:]
    assert "NoSuchBucket" in row
    assert not answer.stderr


def test_settings_reach_the_store_and_a_secret_is_shown_by_no_command(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = "never-to-be-seen"
    for name in s3_server.options:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MAINSTEM_STORE_SECRET_ACCESS_KEY", secret)
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'store.access.key.id = "{secret}-id"\nstore.session.token = "{secret}"\n'
        f'store.endpoint = "{s3_server.url}"\n'
    )
    uri = f"s3://{s3_server.make_bucket()}/lake"
    seen = ""
    for words, code in (
        (["store", "check", uri, "--writers", "2"], 0),
        (["store", "check", "s3://no-such-bucket/x"], 1),
        (["store", "check", "gs://bucket/x"], 1),
        (["config", "show"], 0),
        (["config", "show", "--format", "json"], 0),
        (["config", "list", "gateway"], 0),
        (["cluster", "verify", "--warehouse", uri], 1),
        (["-X", f"store.profile={uri}", "config", "show"], 1),
        (["-X", "store.endpoint=x", "config", "show"], 1),
    ):
        answer = CliRunner().invoke(cli, ["--config", str(file), *words])
        assert answer.exit_code == code, answer.output
        seen += answer.output + repr(answer.exception)
    assert "store.secret.access.key" in seen
    assert "********" in seen
    assert secret not in seen
