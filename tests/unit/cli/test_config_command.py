"""`mainstem config ...`, and the pages and the file that are made from the same tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstem.cli.root import cli
from mainstem.client import PRODUCER_KEYS
from mainstem.config import GATEWAY_KEYS, TOPIC_KEYS, load_gateway_config
from mainstem.jobs.jobs_config import load_jobs_config

KEYS = {"gateway": GATEWAY_KEYS, "topic": TOPIC_KEYS, "producer": PRODUCER_KEYS}


def invoke(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    result = CliRunner().invoke(cli, arguments, env=variables)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("scope", KEYS)
def test_config_list_prints_every_setting_with_default_unit_and_doc(scope: str) -> None:
    code, output, _ = invoke("--format", "json", "config", "list", scope)
    assert code == 0
    rows = {row["setting"]: row for row in map(json.loads, output.splitlines())}
    assert set(rows) == set(KEYS[scope])
    for name, key in KEYS[scope].items():
        assert rows[name]["scope"] == scope
        assert rows[name]["default"] == key.default
        assert rows[name]["unit"] == key.unit
        assert rows[name]["doc"] == key.doc
        assert rows[name]["choices"] == list(key.choices)


def test_config_list_for_people_names_every_setting_and_keeps_to_the_width() -> None:
    code, output, _ = invoke("config", "list", COLUMNS="80")
    assert code == 0
    for keys in KEYS.values():
        for name, key in keys.items():
            assert f"  {name} = " in output
            assert key.doc.split()[0] in output
    long = [line for line in output.splitlines() if len(line) > 80 and "MAX" not in line]
    assert all(" = " in line for line in long), "only a setting's own line may be longer"


def test_config_list_wide_is_one_line_a_setting() -> None:
    code, output, _ = invoke("--format", "wide", "config", "list", "gateway")
    assert code == 0
    head, *lines = output.splitlines()
    assert head.split() == ["SCOPE", "SETTING", "DEFAULT", "UNIT", "VALUES", "DOC"]
    assert [line.split()[1] for line in lines] == list(GATEWAY_KEYS)


def test_config_show_tells_for_each_value_where_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("num.partitions = 3\n[message.max]\nbytes = 4096\n")
    code, output, _ = invoke(
        *("--config", str(file), "--format", "json", "-X", "log.level=debug", "config", "show"),
        MAINSTEM_MESSAGE_MAX_BYTES="8192",
    )
    assert code == 0
    rows = {row["setting"]: row for row in map(json.loads, output.splitlines())}
    assert set(rows) == set(GATEWAY_KEYS)
    assert (rows["num.partitions"]["value"], rows["num.partitions"]["origin"]) == (3, str(file))
    message = rows["message.max.bytes"]
    assert message == {
        "setting": "message.max.bytes",
        "value": 8192,
        "unit": "bytes",
        "origin": "MAINSTEM_MESSAGE_MAX_BYTES",
    }
    assert (rows["log.level"]["value"], rows["log.level"]["origin"]) == ("debug", "flag")
    assert rows["warehouse"]["origin"] == "default"


def test_config_show_names_kafkas_other_names_and_values_as_they_are_used() -> None:
    flags = ("-X", "queue.buffering.max.ms=0.5", "-X", "message.timeout.ms=0")
    code, output, _ = invoke(*flags, "--format", "json", "config", "show", "producer")
    rows = map(json.loads, output.splitlines())
    found = {row["setting"]: (row["value"], row["origin"]) for row in rows}
    assert code == 0
    assert found["linger.ms"] == (1, "flag")
    assert found["delivery.timeout.ms"] == (2**31 - 1, "flag")
    assert found["request.timeout.ms"] == (30_000, "default")


def test_config_show_producer_has_the_flags_on_top_of_the_defaults() -> None:
    code, output, _ = invoke("-X", "linger.ms=0", "--format", "json", "config", "show", "producer")
    assert code == 0
    rows = {row["setting"]: row for row in map(json.loads, output.splitlines())}
    assert (rows["linger.ms"]["value"], rows["linger.ms"]["origin"]) == (0, "flag")
    assert rows["acks"] == {"setting": "acks", "value": "all", "unit": "", "origin": "default"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-X", "num.partition=3", "config", "show"), "did you mean num.partitions?"),
        (("-X", "num.partitions=0", "config", "show"), "must be at least 1"),
        (("-X", "lingr.ms=0", "config", "show", "producer"), "did you mean linger.ms?"),
        (("--config", "/nonexistent.toml", "config", "show"), "cannot read the configuration"),
    ],
)
def test_config_show_refuses_a_wrong_setting_with_the_reason_and_exit_code_1(
    arguments: tuple[str, ...], message: str
) -> None:
    code, output, errors = invoke(*arguments)
    assert code == 1
    assert output == ""
    assert message in errors


@pytest.mark.parametrize("variable", ["MAINSTEM_BOOTSTRAP_SERVERS", "MAINSTEM_JOBS"])
def test_the_variable_of_an_option_is_no_unknown_setting_of_the_gateway(variable: str) -> None:
    code, _, errors = invoke("config", "show", **{variable: "127.0.0.1:1"})
    assert (code, errors) == (0, "")


def test_config_show_goes_on_and_warns_where_variables_only_look_like_settings() -> None:
    code, output, errors = invoke(
        *("--format", "json", "config", "show"),
        MAINSTEM_PORT="tcp://10.0.0.1:9490",
        MAINSTEM_NUM_PARTITION="3",
    )
    assert code == 0
    assert len(output.splitlines()) == len(GATEWAY_KEYS)
    assert "MAINSTEM_NUM_PARTITIONS?" in errors
    assert "enableServiceLinks: false" in errors
    assert errors.count("warning: ") == 2


def test_the_configuration_that_comes_with_mainstem_loads_and_equals_the_defaults(
    repo_root: Path,
) -> None:
    file = repo_root / "conf" / "gateway.toml"
    loaded = load_gateway_config(file, environment={})
    for name, key in GATEWAY_KEYS.items():
        assert loaded.settings[name].value == key.default, name
        assert loaded.settings[name].origin == str(file), f"{name} is not in the file"


def test_the_times_of_jobs_that_come_with_mainstem_load_and_equal_the_defaults(
    repo_root: Path,
) -> None:
    assert load_jobs_config(repo_root / "conf" / "jobs.toml") == load_jobs_config(None)


@pytest.mark.parametrize(
    "name",
    ["docs/reference/config.md", "docs/reference/cli.md", "conf/gateway.toml", "conf/jobs.toml"],
)
def test_what_is_written_from_the_code_is_current(
    name: str, repo_root: Path, written_pages: Path
) -> None:
    assert (repo_root / name).read_text() == (written_pages / name).read_text(), (
        "run: python docs/reference/generate.py"
    )


@pytest.fixture(scope="module")
def written_pages(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    # In a process of its own: click keeps the names of a help option from whoever asked first.
    subprocess.run(
        [sys.executable, repo_root / "docs/reference/generate.py", directory],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return directory
