"""`mainstem user`, writing the table of a warehouse itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mainstem.cli.root import cli
from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import open_users
from mainstem.security import new_credential


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def run(
    warehouse: Path, *arguments: str, password: str | None = None, typed: str | None = None
) -> Result:
    environment = {"MAINSTEM_USER_PASSWORD": password, "MAINSTEM_PROFILES": f"{warehouse}.json"}
    return CliRunner().invoke(
        cli,
        ["user", *arguments, "--warehouse", str(warehouse)],
        env=environment,
        input=typed,
    )


def has_password(warehouse: Path, name: str, password: str) -> bool:
    store = LocalStore(warehouse)
    try:
        users = open_users(store).read()
    finally:
        store.close()
    return all(
        new_credential(password, one.mechanism, one.iterations, one.salt) == one
        for one in users[name].credentials.values()
    )


def test_the_first_user_of_a_new_warehouse_is_made_listed_changed_and_deleted(
    warehouse: Path,
) -> None:
    made = run(warehouse, "create", "alice", "--iterations", "4096", password="secret")
    assert made.exit_code == 0, made.output
    more = run(warehouse, "create", "alice", "--mechanism", "scram-sha-256", password="secret")
    assert more.exit_code == 0, more.output
    listed = run(warehouse, "list", "--format", "json")
    assert [json.loads(line) for line in listed.stdout.splitlines()] == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    assert has_password(warehouse, "alice", "secret")
    changed = run(warehouse, "passwd", "alice", password="other")
    assert changed.exit_code == 0, changed.output
    assert has_password(warehouse, "alice", "other")
    assert run(warehouse, "list", "--format", "json").stdout == listed.stdout
    deleted = run(warehouse, "delete", "alice", "nobody", "-y", "--format", "json")
    assert deleted.exit_code == 1
    rows = [json.loads(line) for line in deleted.stdout.splitlines()]
    assert [row["status"] for row in rows] == ["OK", "INVALID_CONFIG"]
    assert run(warehouse, "list", "--format", "json").stdout == ""


def test_a_password_is_asked_for_twice_and_not_shown(warehouse: Path) -> None:
    made = run(warehouse, "create", "alice", typed="secret one\nsecret one\n")
    assert made.exit_code == 0, made.output
    assert "secret one" not in made.output
    assert has_password(warehouse, "alice", "secret one")
    unlike = run(warehouse, "passwd", "alice", typed="one thing\nanother\n")
    assert unlike.exit_code != 0
    nothing = run(warehouse, "passwd", "alice", typed="\n\n")
    assert nothing.exit_code == 1
    assert "empty" in nothing.output
    assert has_password(warehouse, "alice", "secret one")


def test_without_an_answer_a_password_is_not_interrupted_but_wrong_usage(warehouse: Path) -> None:
    unanswered = run(warehouse, "create", "alice", typed="only once\n")
    assert unanswered.exit_code == 2
    assert "use --password-file or MAINSTEM_USER_PASSWORD" in " ".join(unanswered.stderr.split())


@pytest.mark.parametrize(
    ("data", "words"), [(b"", "empty"), (b"\nsecond\n", "empty"), (b"\xff\xfe\n", "UTF-8")]
)
def test_a_password_file_without_one_is_refused(
    warehouse: Path, tmp_path: Path, data: bytes, words: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(data)
    refused = run(warehouse, "create", "alice", "--password-file", str(file))
    assert refused.exit_code == 1
    assert words in refused.output
    file.write_bytes(b"from the file\r\nrest")
    made = run(warehouse, "create", "alice", "--password-file", str(file), password="not this")
    assert made.exit_code == 0, made.output
    assert has_password(warehouse, "alice", "from the file")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 250, " a"])
def test_a_name_that_cannot_be_is_refused_before_a_password_is_asked_for(
    warehouse: Path, name: str
) -> None:
    refused = run(warehouse, "create", name)
    assert refused.exit_code == 1
    assert "user's name" in refused.output
    assert "Password" not in refused.output


def test_who_is_there_is_not_created_again_and_who_is_not_has_no_password_to_change(
    warehouse: Path,
) -> None:
    assert run(warehouse, "create", "alice", password="secret").exit_code == 0
    again = run(warehouse, "create", "alice", password="other")
    assert again.exit_code == 1
    assert "passwd" in again.output
    assert has_password(warehouse, "alice", "secret")
    for arguments in (("bob",), ("alice", "--mechanism", "SCRAM-SHA-256")):
        missing = run(warehouse, "passwd", *arguments, password="other")
        assert missing.exit_code == 1
        assert "mainstem user create" in missing.output


def test_a_warehouse_that_is_not_there_is_not_made_by_looking_at_it(warehouse: Path) -> None:
    for arguments in (("list",), ("delete", "alice", "-y"), ("passwd", "alice")):
        missing = run(warehouse, *arguments, password="x")
        assert missing.exit_code == 1, missing.output
        assert not warehouse.exists()


def test_profiles_and_listings_do_not_show_a_password(tmp_path: Path) -> None:
    environment = {"MAINSTEM_PROFILES": str(tmp_path / "profiles.json")}
    options = [
        "-Xsasl.password=hunter2",
        "-Xsasl.username=alice",
        "-Xsasl.mechanism=SCRAM-SHA-512",
        "-Xsecurity.protocol=sasl_ssl",
    ]
    for arguments in (
        [*options, "profile", "create", "secure"],
        ["profile", "list"],
        ["profile", "list", "--format", "json"],
        ["--profile", "secure", "config", "show", "producer"],
        ["--profile", "secure", "config", "show", "consumer", "--format", "json"],
    ):
        found = CliRunner().invoke(cli, arguments, env=environment)
        assert found.exit_code == 0, found.output
        assert "hunter2" not in found.output, arguments
    assert (tmp_path / "profiles.json").stat().st_mode & 0o077 == 0


def test_a_no_deletes_nobody_and_is_no_success(warehouse: Path) -> None:
    run(warehouse, "create", "alice", password="secret")
    answer = run(warehouse, "delete", "alice", typed="n\n")
    assert answer.exit_code == 1
    assert "nothing was deleted" in answer.stderr
    assert has_password(warehouse, "alice", "secret")
