"""The entry point: explains a missing extra, tells of output that was lost, sets exit codes."""

from __future__ import annotations

import signal
import sys

from mainstem.cli.output import OutputError, discard_output, open_standard_streams
from mainstem.errors import missing_extra

#: What a shell expects of a process that SIGINT ended.
EXIT_INTERRUPTED = 130


def main() -> None:
    """Runs the command line; the console script `mainstem`."""
    open_standard_streams()
    # A command that is told to end leaves its group and delivers what it has, as after Ctrl-C.
    # Services replace this by their own way to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code: int | str = 0
    try:
        code = _run()
        sys.stdout.flush()
    except OutputError as error:
        discard_output()
        if not error.reader_is_gone:
            from mainstem.cli.errors import say_error

            say_error("OUTPUT_FAILED", f"{error}; what was done before stays done")
            code = code or 1
    except KeyboardInterrupt:
        discard_output()
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _run() -> int | str:
    """The exit code, or a last message of exit code 1.

    Raises:
        OutputError: stdout did not take all.
    """
    try:
        return _run_command()
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        return f"error: {missing}"


def _run_command() -> int | str:
    import click

    from mainstem.cli.errors import show_usage_error
    from mainstem.cli.root import cli

    try:
        found = cli.main(prog_name="mainstem", standalone_mode=False)
    except click.ClickException as error:
        show_usage_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except SystemExit as error:
        return error.code or 0
    return found if isinstance(found, int) else 0
