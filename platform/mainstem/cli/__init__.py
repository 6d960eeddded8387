"""The command line: `mainstem NOUN VERB`."""

from mainstem.cli.entry import main

__all__ = ["main"]
