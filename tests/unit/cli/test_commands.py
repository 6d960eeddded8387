"""The command tree: help, usage errors, lazy imports, and how data is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from mainstem.cli import context
from mainstem.cli.context import Settings, parse_pairs, print_object, print_rows, run_each, say
from mainstem.cli.errors import fail
from mainstem.cli.root import cli
from mainstem.errors import UnknownTopicError
from mainstem.protocol.v1 import admin_pb2
from mainstem.testing import FakeGateway


def commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, click.Context(child, info_name=name, parent=context))


ROOT_CONTEXT = click.Context(cli, info_name="mainstem", **cli.context_settings)
COMMANDS = {path: (command, ctx) for path, command, ctx in commands(cli, ROOT_CONTEXT)}


def test_the_nouns_and_verbs_are_there() -> None:
    topic_verbs = ("create", "list", "describe", "alter-config", "add-partitions", "delete")
    group_verbs = ("list", "describe", "seek", "offset-delete", "delete")
    expected = {
        "mainstem version",
        "mainstem sql",
        "mainstem demo",
        "mainstem topic produce",
        "mainstem bench produce",
        "mainstem bench consume",
        "mainstem bench end-to-end",
        "mainstem topic consume",
        "mainstem topic trim-prefix",
        "mainstem topic redrive",
        "mainstem gateway run",
        "mainstem gateway status",
        "mainstem config list",
        "mainstem config show",
        *(f"mainstem topic {verb}" for verb in topic_verbs),
        *(f"mainstem group {verb}" for verb in group_verbs),
    }
    assert expected <= set(COMMANDS)


@pytest.mark.parametrize("path", sorted(set(COMMANDS) - {"mainstem", "mainstem version"}))
def test_the_help_of_a_command_has_examples_of_that_command(path: str) -> None:
    command, context = COMMANDS[path]
    text = command.get_help(context)
    head, mark, examples = text.rpartition("EXAMPLES\n")
    assert mark, "no EXAMPLES"
    assert path in examples
    assert head.strip()


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_option_and_command_is_documented(path: str) -> None:
    command, _ = COMMANDS[path]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_help_is_printed_without_loading_heavy_modules() -> None:
    heavy = {"pyspark", "pandas", "grpc", "pyarrow", "deltalake", "numpy", "uvloop"}
    code = (
        "import sys\n"
        "from mainstem.cli.root import cli\n"
        "for words in ('', 'topic produce', 'bench produce', 'gateway run', 'group seek'):\n"
        "    cli.main([*words.split(), '--help'], standalone_mode=False)\n"
        f"print(sorted({heavy!r} & set(sys.modules)))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("topic", "crate"), "No such command"),
        (("topic", "create"), "Missing argument"),
        (("topic", "create", "a", "-c", "x"), "not KEY=VALUE"),
        (("topic", "create", "a", "-p", "0"), "not in the range"),
        (("topic", "alter-config", "a"), "say what to change"),
        (("topic", "produce", "a", "-K", ":", "-f", "%v"), "give one of them"),
        (("topic", "produce", "a", "-K", ":", "-k", "x"), "-k gives every record a key"),
        (("topic", "produce", "a", "-f", "%p %v", "-p", "1"), "-p gives every record a partition"),
        (("topic", "produce", "a", "-f", "%k%v"), "nothing stands between"),
        (("topic", "produce", "a", "-H", ":x"), "has no name"),
        (("-X", "linger.ms", "topic", "list"), "not KEY=VALUE"),
        (("bench", "produce", "--mode", "fast"), "is not one of"),
        (("-X", "append.threads=2", "bench", "produce", "-b", "h:1"), "which runs already"),
        (("bench", "consume", "--source", "history", "-b", "h:1"), "does not go with -b"),
        (("bench", "end-to-end", "--rate", "0"), "not in the range"),
        (("bench", "end-to-end", "--value-bytes", "15"), "not in the range"),
        (("group", "seek", "g"), "say where to"),
        (("group", "offset-delete", "g"), "--topics"),
        (("--format", "yaml", "version"), "is not one of"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_the_reason_on_stderr(
    arguments: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())


def test_an_address_that_is_none_is_refused_before_anything_is_tried() -> None:
    result = CliRunner().invoke(cli, ["topic", "list", "-b", "nowhere"])
    assert result.exit_code == 1
    assert "an address is host:port" in result.stderr


ROWS = [["flights " * 20, 6, None], ["a[b]", 12, "x"]]


def test_a_row_in_a_pipe_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(Settings(), ["topic", "count", "long_name"], ROWS, numbers=["count"])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["TOPIC", "COUNT", "LONG", "NAME"]
    assert first == "flights " * 20 + "      6"
    assert second.split() == ["a[b]", "12", "x"]


def test_a_row_as_json_is_an_object_with_types_and_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(Settings(format="json"), ["topic", "count", "long_name"], ROWS)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"topic": "flights " * 20, "count": 6, "long_name": None}
    assert second["topic"] == "a[b]"


def test_a_table_on_a_terminal_keeps_to_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(force_terminal=True, color_system=None, width=40, soft_wrap=True)
    monkeypatch.setattr(context, "out", terminal)
    rows = [*ROWS, [r"\[/b] :fire:", 1, "y"]]
    print_rows(Settings(), ["topic", "count", "long_name"], rows, numbers=["count"])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.rstrip()) <= 40 for line in lines)
    assert r"\[/b] :fire:" in lines[-1]


HOSTILE = "a\nb\x1b[2J\x9b2J\u2028c\t\u3000é"


def test_a_name_that_a_client_chose_neither_ends_a_line_nor_commands_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rows(Settings(), ["group"], [[HOSTILE]])
    print_object(Settings(), {"group": HOSTILE})
    _, row, line = capsys.readouterr().out.split("\n")[:3]
    assert row == r"a\nb\x1b[2J\x9b2J\u2028c\t" + "\u3000é"
    assert line == f"group  {row}"
    print_rows(Settings(format="json"), ["group"], [[HOSTILE]])
    assert json.loads(capsys.readouterr().out) == {"group": HOSTILE}


MARKED = r"User:key: \[bold]x[/] \[/b] [x] C:\\"


def test_names_that_look_like_markup_or_emoji_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say(f"group {MARKED} was moved")
    with pytest.raises(SystemExit):
        fail(MARKED, "CODE")
    assert capsys.readouterr().err.splitlines() == [
        f"group {MARKED} was moved",
        f"error: CODE: {MARKED}",
    ]
    print_object(Settings(), {"group": MARKED})
    print_rows(Settings(), ["group"], [[MARKED]])
    assert capsys.readouterr().out.splitlines() == [f"group  {MARKED}", "GROUP", MARKED]


def test_a_name_in_a_message_neither_ends_a_line_nor_commands_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("member \x1b[2J\x9b2J\u2028: two\nlines")
    assert capsys.readouterr().err == "member \\x1b[2J\\x9b2J\\u2028: two\nlines\n"


def test_a_value_of_sql_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(Settings(), ["plan"], [["a\nb\x1b[2J"]], keep_lines=True)
    assert capsys.readouterr().out == "PLAN\na\nb\\x1b[2J\n"


def test_an_object_for_people_has_its_names_in_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_object(Settings(), {"a": "[x]", "long name": 1})
    assert capsys.readouterr().out.splitlines() == ["a          [x]", "long name  1"]


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("text", ["TOPIC  COUNT  STATUS", "a          1  OK", "b             UNKNOWN_TOPIC: no b"]),
        (
            "json",
            [
                '{"topic": "a", "count": 1, "status": "OK", "message": ""}',
                '{"topic": "b", "count": null, "status": "UNKNOWN_TOPIC", "message": "no b"}',
            ],
        ),
    ],
)
def test_each_target_gets_a_row_and_one_failure_makes_exit_code_1(
    format_: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def count(name: str) -> dict[str, object]:
        if name == "b":
            raise UnknownTopicError("no b")
        return {"count": 1}

    with pytest.raises(SystemExit) as exit_:
        run_each(Settings(format=format_), "topic", ["a", "b"], count, columns=["count"])
    assert exit_.value.code == 1
    assert capsys.readouterr().out.splitlines() == expected


def test_an_interruption_tells_what_was_done_and_what_may_have_been(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def delete(name: str) -> dict[str, object]:
        if name == "b":
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        run_each(Settings(), "topic", ["a", "b", "c"], delete)
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()] == [["TOPIC", "STATUS"], ["a", "OK"]]
    assert told.err == "topic b: no answer yet: it may have been done; 1 more was not begun\n"


NO_TEXT = "b\udcff"  # of the byte 0xff


def test_a_target_that_is_no_text_gets_a_row_and_the_others_theirs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        run_each(
            Settings(),
            "topic",
            ["a", NO_TEXT],
            lambda name: {"count": len(admin_pb2.DeleteTopicRequest(topic=name).topic)},
            columns=["count"],
        )
    _, done, refused = capsys.readouterr().out.splitlines()
    assert done.split() == ["a", "1", "OK"]
    assert refused.startswith(r"b\udcff")
    assert r"INVALID_CONFIG: 'b\udcff' has bytes that are no text in UTF-8" in refused


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "t", "-c", f"cleanup.policy={NO_TEXT}"),
        ("topic", "describe", NO_TEXT),
        ("group", "seek", NO_TEXT, "--to", "start", "--topics", "t", "--dry-run"),
        ("group", "offset-delete", NO_TEXT, "--topics", "t"),
        ("group", "describe", NO_TEXT),
        ("acl", "list", "--topic", NO_TEXT),
        ("acl", "check", "--principal", f"User:{NO_TEXT}", "--topic", "t", "--operation", "read"),
        ("quota", "set", "--user", NO_TEXT, "--groups", "3"),
        ("user", "delete", NO_TEXT, "-y"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_name_that_is_no_text_is_refused_in_words(words: tuple[str, ...]) -> None:
    with FakeGateway({"t": 1}) as gateway:
        result = CliRunner().invoke(cli, [*words, "-b", gateway.address])
    assert result.exit_code == 1
    assert "no text in UTF-8" in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topic", "create", "x", "-p", "99999999999"), "99999999999 is too large for a request"),
        (("topic", "add-partitions", "t", "--total", "99999999999"), "is too large for a request"),
        (("topic", "list", "--timeout", "99999999999d"), "365 days at most"),
        (("topic", "list", "--timeout", "1e300"), "365 days at most"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_number_that_no_request_can_have_is_refused_in_words(
    words: tuple[str, ...], told: str
) -> None:
    with FakeGateway({"t": 1}) as gateway:
        result = CliRunner().invoke(cli, [*words, "-b", gateway.address])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code
    assert told in " ".join(result.output.split())


def test_pairs_keep_what_follows_the_first_equals_sign() -> None:
    assert parse_pairs(["a=b=c", " d = "], "-c") == {"a": "b=c", "d": " "}


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["topics", "list"], "topic"), (["groups"], "group"), (["topic", "creat"], "create")],
)
def test_a_command_that_does_not_exist_is_told_with_the_nearest(
    words: list[str], meant: str
) -> None:
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 2
    assert f"Did you mean '{meant}'?" in answer.stderr


def test_a_configuration_that_cannot_be_read_is_told_in_words(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for file, why in (
        (tmp_path / "missing.toml", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (binary, "codec can't decode"),
    ):
        answer = CliRunner().invoke(cli, ["--config", str(file), "config", "show"])
        assert answer.exit_code == 1
        assert f"cannot read the configuration {file}: " in answer.stderr
        assert why in answer.stderr
        assert "Errno" not in answer.stderr


def _commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """It and all below it, each with its context."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, click.Context(below, context, name, max_content_width=100))


def test_every_help_ends_in_examples_and_begins_with_a_sentence_that_fits_its_line() -> None:
    root = click.Context(cli, info_name="mainstem", max_content_width=100, terminal_width=100)
    for command, place in _commands(cli, root):
        if command.name == "version":
            continue
        text = command.get_help(place)
        *_, last = text.rstrip().split("\n\n")
        assert last.startswith("  EXAMPLES\n"), place.command_path
        assert "RANGE" not in text, place.command_path
        if isinstance(command, click.Group):
            assert "..." not in text.partition("Commands:")[2], place.command_path
