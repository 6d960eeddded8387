"""The entry point: explains a missing extra, and sets exit codes."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Runs the command line; the console script `mainstem`."""
    try:
        import click

        from mainstem.cli._commands import cli
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("mainstem"):
            raise
        sys.exit(
            f"the command line needs the package {error.name}, which the client alone does not "
            "install: pip install 'mainstem[gateway]'"
        )
    # A command that is told to end leaves its group and delivers what it has, as after Ctrl-C.
    # Services replace this by their own way to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(cli.main(prog_name="mainstem", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)  # the reader of our output has seen enough
