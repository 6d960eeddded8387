"""Options before and after the command, the environment, and profiles."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mainstem.cli import context
from mainstem.cli.context import Settings, pass_settings
from mainstem.cli.help import ExampleCommand
from mainstem.cli.options import current_settings
from mainstem.cli.root import cli
from mainstem.client import CONSUMER_KEYS


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where profiles are kept; nothing of the user's own has a say."""
    for name in ("FORMAT", "TIMEOUT", "CONFIG", "BOOTSTRAP_SERVERS", "PROFILE"):
        monkeypatch.delenv(f"MAINSTEM_{name}", raising=False)
    place = tmp_path / "config" / "profiles.json"
    monkeypatch.setenv("MAINSTEM_PROFILES", str(place))
    return place


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, str]]:
    """Settings and addresses with which the command `show-settings` was called."""
    calls: list[tuple[Settings, str]] = []

    @click.command("show-settings", cls=ExampleCommand)
    @context.bootstrap_servers
    @pass_settings
    def show_settings(settings: Settings, bootstrap_servers: str) -> None:
        calls.append((settings, bootstrap_servers))
        assert current_settings() == settings

    monkeypatch.setitem(cli.commands, "show-settings", show_settings)
    return calls


def run(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(cli, arguments, env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


GIVEN = ("--format", "json", "--timeout", "2.5", "-X", "a=1", "-X", "b=2", "-v", "-b", "h:1")


@pytest.mark.parametrize("before", range(len(GIVEN) + 1))
def test_an_option_means_the_same_before_and_after_the_command(
    seen: list[tuple[Settings, str]], before: int
) -> None:
    parts = [*GIVEN]
    if before < len(parts) and not parts[before].startswith("-"):
        before -= 1  # a name and its value stay together
    run(*parts[:before], "show-settings", *parts[before:])
    ((settings, servers),) = seen
    assert (settings.format, settings.timeout_s, settings.verbose) == ("json", 2.5, True)
    assert settings.flags == {"a": "1", "b": "2"}
    assert servers == "h:1"


def test_what_stands_after_the_command_wins_over_what_stands_before(
    seen: list[tuple[Settings, str]],
) -> None:
    run(
        *("-b", "before:1", "--format", "wide", "-X", "a=1", "-X", "b=1", "show-settings"),
        *("-b", "after:1", "--format", "json", "-X", "a=2"),
        MAINSTEM_BOOTSTRAP_SERVERS="environment:1",
        MAINSTEM_FORMAT="text",
    )
    ((settings, servers),) = seen
    assert (servers, settings.format) == ("after:1", "json")
    assert settings.flags == {"a": "2", "b": "1"}


def test_options_win_over_the_environment_and_that_over_the_profile(
    seen: list[tuple[Settings, str]], profiles: Path
) -> None:
    run("profile", "create", "far", "-b", "profile:1", "--timeout", "7", "-X", "linger.ms=5")
    assert stat.S_IMODE(profiles.stat().st_mode) == 0o600
    run("show-settings")
    run("--profile", "far", "show-settings")
    run("show-settings", MAINSTEM_PROFILE="far")
    run("profile", "use", "far")
    run("show-settings")
    run("show-settings", MAINSTEM_BOOTSTRAP_SERVERS="environment:1")
    run("show-settings", "-b", "option:1", MAINSTEM_BOOTSTRAP_SERVERS="environment:1")
    assert [servers for _, servers in seen] == [
        "127.0.0.1:9490",
        *("profile:1", "profile:1", "profile:1"),
        *("environment:1", "option:1"),
    ]
    assert [settings.timeout_s for settings, _ in seen] == [30, 7, 7, 7, 7, 7]
    assert seen[1][0].flags == {"linger.ms": "5"}


def test_profiles_are_listed_and_deleted() -> None:
    run("profile", "create", "one", "-b", "h:1")
    run("profile", "create", "two", "-b", "h:2", "--format", "json")
    run("profile", "use", "one")
    rows = [json.loads(line) for line in run("profile", "list", "--format", "json").splitlines()]
    assert [(row["profile"], row["used"], row["bootstrap_servers"]) for row in rows] == [
        *(("one", True, "h:1"), ("two", False, "h:2")),
    ]
    run("profile", "delete", "one")
    assert [line.split()[0] for line in run("profile", "list").splitlines()] == ["PROFILE", "two"]
    run("profile", "use", "two")
    run("profile", "use", "--none")
    assert "*" not in run("profile", "list")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--profile", "nowhere", "version"), "there is no profile 'nowhere'"),
        (("profile", "use", "nowhere"), "mainstem profile create nowhere"),
        (("profile", "use"), "give the name of a profile"),
        (("profile", "delete", "nowhere"), "there is no profile"),
        (("profile", "create", "a/b"), "cannot be a profile's name"),
    ],
)
def test_a_profile_that_is_none_is_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("text", ["{", "[]", '{"profiles": 1}'])
def test_a_file_of_profiles_that_is_damaged_is_told_by_its_path(profiles: Path, text: str) -> None:
    profiles.parent.mkdir()
    profiles.write_text(text)
    result = CliRunner().invoke(cli, ["profile", "list"])
    assert result.exit_code == 2
    assert str(profiles) in result.stderr.replace("\n", "")


def test_a_profile_of_another_version_is_told(profiles: Path) -> None:
    profiles.parent.mkdir()
    profiles.write_text('{"current": "new", "profiles": {"new": {"colour": "red"}}}')
    result = CliRunner().invoke(cli, ["profile", "list"])
    assert result.exit_code == 2
    assert "colour" in result.stderr


def test_version_has_what_a_report_of_a_fault_needs() -> None:
    for arguments in (("--version",), ("version",)):
        names = [line.split()[0] for line in run(*arguments).splitlines()]
        assert names[:4] == ["version", "python", "pyarrow", "grpcio"]
    assert json.loads(run("version", "--format", "json"))["python"]


def test_the_settings_of_a_consumer_are_listed_and_shown() -> None:
    rows = map(json.loads, run("config", "list", "consumer", "--format", "json").splitlines())
    assert {row["setting"] for row in rows} == set(CONSUMER_KEYS)
    shown = run("config", "show", "consumer", "-b", "h:1", "-X", "fetch.min.bytes=5")
    found = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
    assert found["fetch.min.bytes"][0] == "5"
    assert found["bootstrap.servers"] == ["h:1", "flag"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("lingr.ms=5", "there is no setting 'lingr.ms'"),
        ("retention.ms=1000", "retention.ms is a setting of a topic, not of the admin"),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused_by_commands_that_administer(
    given: str, said: str
) -> None:
    result = CliRunner().invoke(cli, ["-X", given, "topic", "create", "t", "-b", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert said in result.stderr


def test_settings_of_producers_and_gateways_do_not_stop_commands_that_administer() -> None:
    flags = {"linger.ms": "5", "message.max.bytes": "4096", "client.id": "me"}
    with click.Context(cli, obj=Settings(flags=flags)):
        context.admin_client("127.0.0.1:1").close()


@pytest.mark.parametrize("before", [True, False])
def test_a_configuration_that_is_not_there_is_told_by_commands_that_need_nothing_of_it(
    tmp_path: Path, before: bool
) -> None:
    given = ["--config", str(tmp_path / "gatewya.toml")]
    words = [*given, "version"] if before else ["version", *given]
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 1
    assert "gatewya.toml: No such file or directory" in answer.stderr
    assert answer.stdout == ""
    answer = CliRunner().invoke(cli, ["version"], env={"MAINSTEM_CONFIG": given[1]})
    assert "gatewya.toml: No such file or directory" in answer.stderr
