"""A second opinion of what is in a table, before anything is deleted because of the first.

The log is read by our own code (`snapshot`) and by delta-rs. What is removed for the one must not
be live for the other.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import weakref
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa

from mainstem.delta_log.format import LOG, registers
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table.state import TableState
from mainstem.errors import LogDamagedError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SHOWN: Final = 3

_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")

_OPEN_ATTEMPTS_MAX: Final = 10
_OPEN_RETRY_DELAY_S: Final = 0.05


def check_replay(store: ObjectStore, state: TableState) -> None:
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


def _disagree(store: ObjectStore, state: TableState, what: str) -> LogDamagedError:
    return LogDamagedError(
        f"our replay of {store.uri} at version {state.version} and that of delta-rs differ in "
        f"{what}; nothing was deleted. Run `mainstem cluster verify`, keep the table as it is, and "
        "report it",
        file=store.uri,
    )


def open_delta_table(store: ObjectStore, version: int | None = None) -> DeltaTable:
    """The table as delta-rs reads it; None: its newest version. Blocks.

    Raises:
        DeltaError: It cannot be read, or that version no longer.
    """
    # While commits go on, a listing of a local directory can have a newer file and lack an older
    # one, which delta-rs takes for a damaged log. The next listing has it.
    from deltalake import DeltaTable  # 80 ms and 60 MB: only for who needs it
    from deltalake.exceptions import DeltaError

    options = dict(store.storage_options) or None
    uri, detour = _uri_for_delta_rs(store)
    try:
        attempt = 1
        while True:
            try:
                table = DeltaTable(uri, version=version, storage_options=options)
                break
            except DeltaError:
                if attempt == _OPEN_ATTEMPTS_MAX:
                    raise
                time.sleep(_OPEN_RETRY_DELAY_S)
                attempt += 1
    except BaseException:
        if detour is not None:
            detour.cleanup()
        raise
    if detour is not None:
        weakref.finalize(table, detour.cleanup)
    return table


def _uri_for_delta_rs(store: ObjectStore) -> tuple[str, tempfile.TemporaryDirectory[str] | None]:
    """Where delta-rs finds the table's log, and a directory that is to be kept as long.

    delta-rs unescapes a local path, and reads `a b` where it is given `a%20b`. It does not see such
    a path if it comes by way of a link to the log, and it needs nothing else of the table.
    """
    if store.storage_options or not _ESCAPE.search(store.uri):
        return store.uri, None
    detour = tempfile.TemporaryDirectory(prefix="mainstem-log-")
    os.symlink(f"{store.uri}/{LOG}", f"{detour.name}/{LOG}")
    return detour.name, detour
