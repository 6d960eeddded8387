"""The names of the log's registers: Delta `txn` actions, which change atomically with the data.

| register | value |
|---|---|
| `mainstem/leo/<partition>` | the next offset; survives the retention of all files; never expires |
| `mainstem/lso/<partition>` | the first readable offset |
| `mainstem/epoch` | the leader epoch: a writer that sees a higher one than its own stops |
| `mainstem/deleted` | 1: the topic was deleted, whatever is left of its directory |
"""

from __future__ import annotations

from typing import Final

EPOCH: Final = "mainstem/epoch"
DELETED: Final = "mainstem/deleted"
_LEO: Final = "mainstem/leo/"
_LSO: Final = "mainstem/lso/"


def leo(partition: int) -> str:
    """The register of a partition's log end offset."""
    return f"{_LEO}{partition}"


def lso(partition: int) -> str:
    """The register of a partition's log start offset."""
    return f"{_LSO}{partition}"
