"""The entry point: explains a missing extra instead of failing on its import."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; the console script `mainstem`."""
    try:
        from mainstem.cli._commands import cli
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("mainstem"):
            raise
        sys.exit(
            f"the command line needs the package {error.name}, which the client alone does not install: "
            "pip install 'mainstem[gateway]'"
        )
    cli.main(prog_name="mainstem")
