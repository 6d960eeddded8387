"""Writes the settings' and the command line's pages of docs/reference, and the files in conf/.

A test fails when they are not current.

Usage: python docs/reference/generate.py [OUTPUT_ROOT]   (default: the checkout)
"""

# ruff: noqa: E501 (the text of the pages has lines of its own)

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path

# Before rich and click look at it: help is written for 80 columns, without colours.
os.environ.update(COLUMNS="80", NO_COLOR="1")

import click

from mainstem.cli.config import ConfigScope, bounds, config_scopes
from mainstem.cli.root import cli
from mainstem.client.fates import FATES, ROLES, Fate
from mainstem.config import GATEWAY_KEYS, ConfigKey, format_value
from mainstem.jobs.catalogue import JOBS
from mainstem.jobs.jobs_config import SCHEDULER_KEYS, default_jobs

ROOT = Path(__file__).resolve().parents[2]

_NOTE = "<!-- Written by docs/reference/generate.py: do not edit. -->\n"

_CONFIG_HEAD = """# Settings

Every setting, as `mainstem config list` prints them. Names are Kafka's wherever Kafka has one. An unknown setting is refused with the nearest name, one
of Kafka's that does not exist here with the reason. `mainstem config show` prints what is in force, and where it came from.

A time or a size may have a unit, wherever it is text: `retention.ms=7d`, `commit.interval.max.ms=1.5s`, `retention.bytes=10GiB`. Times: ms, s, m or min, h, d, w, also `1d12h`. Sizes:
B, and KiB, MiB, GiB, TiB of 1,024 or kB, MB, GB, TB of 1,000. They are kept and shown in the setting's own unit. All that is wrong is told in one error.
"""

_FATES_HEAD = """# Settings of Kafka's clients

What becomes of each setting of librdkafka (2.16, and so of confluent-kafka) and of Apache Kafka's producer, consumer and admin
(4.x). It is *used*, under its own name or another; or *accepted*, because it changes nothing here; or *refused*, with what to do.

- One dictionary may be shared: a producer ignores the settings that only consumers have, and the reverse, with one line in the log.
- All that is wrong with a configuration is told in one `ConfigError`. Its fact `names` lists the settings.
- `None` as a value means that the setting is not set.
- What is accepted but may be missed, and a value that is brought into range (`fetch.max.bytes=52428800`, `linger.ms=0.5`), is
  said once in the log (logger `mainstem.client`).
- Any other name that begins with `ssl.` or `sasl.` is refused, also one that is not in the table.
- What our own settings mean: [the producer's](client.md#settings), [the consumer's](consumer.md#settings).

| setting | of | what becomes of it | |
|---|---|---|---|
"""

_GATEWAY_SOURCES = """
Later ones win: the defaults; a TOML file (`--config FILE` or `MAINSTEM_CONFIG`; [conf/gateway.toml](../../conf/gateway.toml) has all of
them); the environment, where `message.max.bytes` is `MAINSTEM_MESSAGE_MAX_BYTES`; `-X message.max.bytes=4194304` and the flags of
`mainstem gateway run`.
"""

_CLI_HEAD = """# Command line

Nouns, then verbs: `mainstem topic create`. `mainstem NOUN VERB --help` prints what is below. `python -m mainstem.cli` is the same as `mainstem`.

## What all commands share

- **Output.** Data goes to stdout, messages to stderr. `--format text` (the default) is for people; `wide` has more columns, and a row is never folded;
  `json` is an object a line, with the same names for the columns in every version. In a pipe a row is always one line.
- **Rows that say how it went.** A command that does something to several targets prints a row for each: `OK`, or `CODE: reason; what to do`. In JSON,
  `status` is `OK` or the code, and `message` has the rest. [All codes](errors.md).
- **Exit codes.** 0: all went well; 1: something failed; 2: wrong usage; 130: interrupted, by Ctrl-C or SIGTERM.
- **Safety.** What destroys something asks first, unless `--no-confirm`. `--dry-run` checks everything and changes nothing.
- **Options.** `--format`, `--timeout`, `-b`, `-X`, `-v` and `--config` may stand before the noun or after the verb, unless the command has an option of that name itself.
  [`mainstem profile`](#mainstem-profile) keeps them under a name.
- **Lost output.** stdout that cannot be written (a full disk) is the error `OUTPUT_FAILED` and exit code 1; what the command has done stays done. When the reader of a pipe
  is gone, as after `| head`, the command ends without a word and with 0. With `--format json`, errors on stderr are objects with `status` and `message`, too.
- **Time.** `--timeout SECONDS` bounds each call to a gateway, and the delivery of each record.
- **Which gateway.** `-b HOST:PORT,...`, or `MAINSTEM_BOOTSTRAP_SERVERS`; the default is 127.0.0.1:9490.
- **Environment.** `MAINSTEM_CONFIG`, `MAINSTEM_FORMAT`, `MAINSTEM_TIMEOUT` and `MAINSTEM_PROFILE` stand for the options of that name. Any other `MAINSTEM_*` is a
  [setting of the gateway](config.md#gateway).

## Completion

Tab completes commands, options, choices, and the names of topics and groups, for which it asks the gateway (`-b`, `MAINSTEM_BOOTSTRAP_SERVERS`
or the profile) for a second at most, once the shell has read the script that mainstem prints. Put the line for your shell where it is read at start:

| shell | file | line |
|---|---|---|
| bash 4.4 or newer | `~/.bashrc` | `eval "$(_MAINSTEM_COMPLETE=bash_source mainstem)"` |
| zsh | `~/.zshrc` | `eval "$(_MAINSTEM_COMPLETE=zsh_source mainstem)"` |
| fish | `~/.config/fish/completions/mainstem.fish` | `_MAINSTEM_COMPLETE=fish_source mainstem \\| source` |

## Commands
"""

_TOML_HEAD = """# The settings of a gateway, each with its default: `mainstem --config conf/gateway.toml gateway run`.
# The environment (MAINSTEM_MESSAGE_MAX_BYTES=...) and flags (-X message.max.bytes=...) win over this file.
# Written by docs/reference/generate.py from the same table that the gateway reads; copy it, then edit the copy.
"""

_SCHEDULER = ConfigScope(
    "scheduler",
    "The section `[scheduler]` of the file for `mainstem job scheduler --jobs FILE`; "
    "[conf/jobs.toml](../../conf/jobs.toml) has all of them, and the times of the jobs.",
    SCHEDULER_KEYS,
)

_JOBS_HEAD = """# What the scheduler runs, and when, each setting with its default: `mainstem job scheduler --jobs conf/jobs.toml`.
# What a file does not name is as it is here. docs/guides/operate.md explains the jobs.
# Written by docs/reference/generate.py from the tables that the scheduler reads; copy it, then edit the copy.

[scheduler]

"""

_JOBS_SPARK = """# Settings of the Spark session, without `spark.` in front, for example:
#   master = "spark://head:7077"
#   executor.memory = "4g"
# Without a master: local[*], in the scheduler's own process.
[spark]

# A section for each job.
#   cron      minute hour day month weekday, in UTC; with six fields the second comes first
#   enabled   false: never
#   topics    names or shell patterns, as ["orders-*", "payments"]; a topic takes part if it matches one. A job that looks
#             after tables of the platform too does so only with "*".
#   options   a section [jobs.NAME.options]: as `mainstem job run NAME -o OPTION=VALUE`, in place of the topics' settings
"""

_JOBS_PIPELINES = """# Pipelines of Spark's, each as `mainstem pipeline run` runs it; `mainstem job status` calls it pipeline.NAME. For example:
#   [pipelines.flights]
#   directory = "/srv/flights_pipeline"
#   cron = "*/5 * * * *"
#   enabled = true
# A run takes what has come since the one before; one that fails is tried again at its next time.
[pipelines]
"""


def config_page() -> str:
    """docs/reference/config.md."""
    sections = [_section(scope) for scope in (*config_scopes().values(), _SCHEDULER)]
    return "\n".join([_NOTE, _CONFIG_HEAD, *sections])


def fates_page() -> str:
    """docs/reference/kafka-settings.md."""
    rows = sorted(FATES, key=lambda row: (row.name, sorted(row.roles, key=ROLES.index)))
    return "\n".join([_NOTE, _FATES_HEAD + "\n".join(map(_fate, rows)), ""])


def cli_page() -> str:
    """docs/reference/cli.md."""
    context = click.Context(cli, info_name="mainstem", **cli.context_settings)
    return "\n".join([_NOTE, _CLI_HEAD, *_commands(context)])


def gateway_toml() -> str:
    """conf/gateway.toml."""
    return "\n".join([_TOML_HEAD, *map(_toml_setting, GATEWAY_KEYS.values())])


def jobs_toml() -> str:
    """conf/jobs.toml."""
    blocks = [_JOBS_HEAD + "\n".join(map(_toml_setting, SCHEDULER_KEYS.values())), _JOBS_SPARK]
    for name, job in default_jobs().items():
        kind = JOBS[name]
        comment = _comment(kind.summary)
        if kind.options:
            comment += "\n" + _comment(f"Options: {', '.join(kind.options)}.")
        blocks.append(f'[jobs.{name}]\n{comment}\ncron = "{job.cron.text}"\n')
    blocks.append(_JOBS_PIPELINES)
    return "\n".join(blocks)


def generate(output_root: Path) -> list[Path]:
    """Writes all of them below `output_root`."""
    written = {
        "docs/reference/config.md": config_page(),
        "docs/reference/cli.md": cli_page(),
        "docs/reference/kafka-settings.md": fates_page(),
        "conf/gateway.toml": gateway_toml(),
        "conf/jobs.toml": jobs_toml(),
    }
    paths = []
    for name, text in written.items():
        path = output_root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(path)
    return paths


def _section(scope: ConfigScope) -> str:
    where = (
        _GATEWAY_SOURCES if scope.name == "gateway" else f"\nGiven by {_first_lower(scope.where)}\n"
    )
    lines = [
        f"## {scope.name.capitalize()}",
        where,
        "| setting | default | values | |",
        "|---|---|---|---|",
    ]
    for key in scope.keys.values():
        default = f"`{format_value(key.default)}`" if key.default != "" else "empty"
        unit = f" {key.unit}" if key.unit else ""
        lines.append(
            f"| `{key.name}` | {default}{unit} | {bounds(key) or 'text'} | {_cell(key.doc)} |"
        )
    return "\n".join([*lines, ""])


def _fate(row: Fate) -> str:
    roles = "all" if len(row.roles) == len(ROLES) else ", ".join(r for r in ROLES if r in row.roles)
    what, notes = row.fate, [row.text]
    if row.fate == "used" and row.target not in ("", row.name):
        what = f"used as `{row.target}`"
    elif row.values:
        what = f"accepted: {', '.join(f'`{value}`' for value in row.values if value)}"
        notes.append(f"any other value is refused: {row.otherwise}")
    if row.yields:
        notes.append(f"`{row.target}` wins where both are set")
    if row.first:
        notes.append("the first of several counts")
    notes += [f"`{word}` is `{ours}`" for word, ours in row.words.items()]
    notes += [f"`{word}` is refused: {why}" for word, why in row.refuses.items()]
    return f"| `{row.name}` | {roles} | {what} | {_cell('; '.join(filter(None, notes)))} |"


def _commands(context: click.Context) -> list[str]:
    command = context.command
    found = [f"### `{context.command_path}`\n\n```\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += _commands(click.Context(child, info_name=name, parent=context))
    return found


def _toml_setting(key: ConfigKey) -> str:
    facts = ", ".join(filter(None, [key.unit, bounds(key)]))
    text = f"{key.doc} ({facts})" if facts else key.doc
    return f"{_comment(text)}\n{key.name} = {_toml_value(key)}\n"


def _comment(text: str) -> str:
    return textwrap.fill(text, 110, initial_indent="# ", subsequent_indent="# ")


def _toml_value(key: ConfigKey) -> str:
    return f'"{key.default}"' if isinstance(key.default, str) else format_value(key.default)


def _first_lower(text: str) -> str:
    return (
        text[0].lower() + text[1:]
        if not text[1].isupper() and not text.startswith("Producer")
        else text
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes the pages that are made from the code.")
    parser.add_argument("output_root", nargs="?", type=Path, default=ROOT)
    for written_path in generate(parser.parse_args().output_root):
        print(written_path)
