"""Commands that take the global options too, and whose help ends in examples."""

from __future__ import annotations

import inspect
from typing import Any

import click

from mainstem.cli.options import add_global_options

_MARK = "\b\nEXAMPLES\n"


class ExampleCommand(click.Command):
    """A command whose docstring ends in a block `EXAMPLES`, which its help prints last."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _move_examples(self)
        _name_numbers(self)
        add_global_options(self)


class ExampleGroup(click.Group):
    """A group like that; so are its commands, unless they say otherwise."""

    command_class = ExampleCommand

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _move_examples(self)
        add_global_options(self)


def _move_examples(command: click.Command) -> None:
    text = inspect.cleandoc(command.help or "")
    before, mark, examples = text.partition(_MARK)
    if mark:
        command.help = before.rstrip()
        command.epilog = mark + examples


def _name_numbers(command: click.Command) -> None:
    """`-n N` instead of `-n INTEGER RANGE`."""
    for parameter in command.params:
        if isinstance(parameter.type, (click.types.IntRange, click.types.FloatRange)):
            parameter.metavar = parameter.metavar or "N"
