"""A second opinion of what is in a table, before anything is deleted because of the first.

The log is read by our own code (`snapshot`) and by delta-rs. What is removed for the one must not
be live for the other.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from mainstem.delta_log.store import Store
from mainstem.delta_log.table import registers
from mainstem.delta_log.table.maintenance import open_delta_table
from mainstem.delta_log.table.state import TableState
from mainstem.errors import LogDamagedError

_SHOWN: Final = 3


def check_replay(store: Store, state: TableState) -> None:
    """Has delta-rs replay the log up to `state.version`, and compares. Blocks, for some 10 ms and
    3 us a live file.

    Raises:
        LogDamagedError: The two do not have the same live files, or not the same log start and end
            offsets.
    """
    table = open_delta_table(store, state.version)
    adds = pa.table(table.get_add_actions())
    theirs = {unquote(path) for path in adds.column("path").to_pylist()}
    ours = {file.path for file in state}
    if theirs != ours:
        only = [f"{path} only here" for path in sorted(ours - theirs)[:_SHOWN]]
        only += [f"{path} only there" for path in sorted(theirs - ours)[:_SHOWN]]
        raise _disagree(store, state, f"{len(ours)} and {len(theirs)} files: {', '.join(only)}")
    for partition in range(state.partition_count):
        for name in (registers.leo(partition), registers.lso(partition)):
            there = table.transaction_version(name)
            if (there or 0) != state.register_value(name):
                raise _disagree(store, state, f"{name}: {state.register_value(name)} and {there}")


def _disagree(store: Store, state: TableState, what: str) -> LogDamagedError:
    return LogDamagedError(
        f"our replay of {store.uri} at version {state.version} and that of delta-rs differ in "
        f"{what}; nothing was deleted. Run `mainstem cluster verify`, keep the table as it is, and "
        "report it",
        file=store.uri,
    )
