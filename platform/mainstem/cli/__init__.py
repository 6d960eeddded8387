"""The command line: `mainstem NOUN VERB`."""

from mainstem.cli._main import main

__all__ = ["main"]
