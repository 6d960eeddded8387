"""Checkpoints of a topic's table, off the hot path, through delta-rs.

Source: Delta protocol, section "Checkpoints".
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mainstem.delta_log.store import NotFound, Store
from mainstem.delta_log.table.live_table import LiveTable, check_checkpoint
from mainstem.delta_log.table.log_cleanup import clean_log
from mainstem.delta_log.table.snapshot import LAST_CHECKPOINT, LOG, checkpoint_path, load_table
from mainstem.errors import LogDamagedError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")

_OPEN_ATTEMPTS_MAX: Final = 10
_OPEN_RETRY_DELAY_S: Final = 0.05

#: The longest that a dead cycle stays frozen while there are checkpoints. A full collection takes
#: 0.1 s of a gateway that does little, and 0.4 s with 200,000 active files.
THAW_INTERVAL_S: Final = 600.0

#: When `freeze_heap` last took everything back, by the monotonic clock.
_thawed_at = -THAW_INTERVAL_S


def write_checkpoint(store: Store, live: LiveTable | None = None) -> int:
    """Writes a checkpoint, compares it with what it stands for, and removes log files past their
    retention. Blocks, for milliseconds to seconds.

    Args:
        live: What the checkpoint has to say, of a version that is there. None: the newest version,
            replayed for this.

    Returns:
        The version of the checkpoint.

    Raises:
        LogDamagedError: The checkpoint says something else. It is gone, and the log as before.
        Exception: It failed, in delta-rs or in the store; the log is as good as before.
    """
    live = live or LiveTable.of(load_table(store))
    create_checkpoint(store, live)
    clean_log(store, live.log_retention_ms)
    return live.version


def create_checkpoint(store: Store, live: LiveTable) -> None:
    """Writes the checkpoint of `live.version`: durable, and a replay of it gives `live`.

    Raises: As `write_checkpoint`.
    """
    try:
        before = store.read(LAST_CHECKPOINT)
    except NotFound:
        before = None
    open_delta_table(store, live.version).create_checkpoint()
    # delta-rs does not sync. A checkpoint that a loss of power can take must not replace commit
    # files that it cannot. Through `store`, so that nothing is removed where another topic has
    # taken the name.
    store.make_durable(checkpoint_path(live.version))
    store.make_durable(LAST_CHECKPOINT)
    try:
        check_checkpoint(store, live)
    except LogDamagedError:
        # The commit files are all there: without the checkpoint the table is what it was.
        with contextlib.suppress(NotFound):
            store.delete(LAST_CHECKPOINT)
            if before is not None:
                store.put(LAST_CHECKPOINT, before)
            store.delete(checkpoint_path(live.version))
        raise


def freeze_heap(monotonic: Callable[[], float] = time.monotonic) -> None:
    """Takes everything that lives now out of the garbage collector's sight: after a checkpoint.

    A topic keeps an object for each active file: with 60,000 of them a full collection stops every
    append for some 80 ms, and finds nothing, since they hold no cycles. What was frozen is still
    freed by its reference count. A cycle that lives now and dies later is not: so once in a while a
    call takes everything back first, and collects all of it. Other calls look only at what came
    since the last one, so that a thousand topics with their checkpoints cost no more than one.
    """
    global _thawed_at
    now = monotonic()
    if now - _thawed_at >= THAW_INTERVAL_S:
        _thawed_at = now
        gc.unfreeze()
    gc.collect()
    gc.freeze()


def open_delta_table(store: Store, version: int | None = None) -> DeltaTable:
    """The table as delta-rs reads it; None: its newest version. Blocks.

    Raises:
        StoreGone: It was removed.
        DeltaError: It cannot be read, or that version no longer.
    """
    # While commits go on, a listing of a local directory can have a newer file and lack an older
    # one, which delta-rs takes for a damaged log. The next listing has it.
    from deltalake import DeltaTable  # 80 ms and 60 MB: only for who needs it
    from deltalake.exceptions import DeltaError

    options = dict(store.storage_options) or None
    uri, detour = _uri_for_delta_rs(store)
    try:
        for attempt in range(1, _OPEN_ATTEMPTS_MAX + 1):
            try:
                table = DeltaTable(uri, version=version, storage_options=options)
                break
            except DeltaError:
                store.check_bound()
                if attempt == _OPEN_ATTEMPTS_MAX:
                    raise
                time.sleep(_OPEN_RETRY_DELAY_S)
    except BaseException:
        if detour is not None:
            detour.cleanup()
        raise
    if detour is not None:
        weakref.finalize(table, detour.cleanup)
    return table


def _uri_for_delta_rs(store: Store) -> tuple[str, tempfile.TemporaryDirectory[str] | None]:
    """Where delta-rs finds the table's log, and a directory that is to be kept as long.

    delta-rs unescapes a local path, and reads `a b` where it is given `a%20b`. It does not see such
    a path if it comes by way of a link to the log, and it needs nothing else of the table.
    """
    if store.storage_options or not _ESCAPE.search(store.uri):
        return store.uri, None
    detour = tempfile.TemporaryDirectory(prefix="mainstem-log-")
    os.symlink(f"{store.uri}/{LOG}", f"{detour.name}/{LOG}")
    return detour.name, detour
