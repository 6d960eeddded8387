"""Checkpoints of a topic's table, off the hot path.

Source: Delta protocol, section "Checkpoints".
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

from mainstem.delta_log.format import (
    LOG,
    LogFiles,
    checkpoint_path,
    newest_whole_checkpoint,
    point_to_newest,
    put_whole,
)
from mainstem.delta_log.store import STEADY_CLOCK, NotFound, ObjectStore
from mainstem.delta_log.table import load_table
from mainstem.delta_log.upkeep.checkpoint_build import build_checkpoint
from mainstem.delta_log.upkeep.live_table import LiveTable, check_checkpoint, compare_checkpoint
from mainstem.delta_log.upkeep.log_cleanup import clean_log
from mainstem.errors import LogDamagedError

#: The longest that a dead cycle stays frozen while there are checkpoints. A full collection takes
#: 0.1 s of a gateway.
THAW_INTERVAL_S: Final = 600.0

#: When `freeze_heap` last took everything back, by the monotonic clock.
_thawed_at = -THAW_INTERVAL_S


def write_checkpoint(store: ObjectStore, live: LiveTable | None = None) -> int:
    """Writes a checkpoint, compared with what it stands for, and removes log files past their
    retention. Blocks, for milliseconds to seconds.

    Args:
        live: What the checkpoint has to say, of a version that is there. None: the newest version,
            replayed for this.

    Returns:
        The version of the newest checkpoint: that one, or a later one by another process, which has
        cleaned the log since.

    Raises: As `create_checkpoint`.
    """
    live = live or LiveTable.of(load_table(store))
    version = create_checkpoint(store, live)
    # Of a topic that has this log now, the retention may be another one.
    clean_log(store, live.log_retention_ms, version_max=live.version)
    return version


def create_checkpoint(store: ObjectStore, live: LiveTable) -> int:
    """Writes the checkpoint of `live.version`, made of the log and compared with `live`; durable,
    whole or not at all. Then `_last_checkpoint`.

    Returns:
        As `write_checkpoint`.

    Raises:
        LogDamagedError: A file of the log is lost or damaged, or the log says something else than
            `live`. Nothing was written.
        StoreUnavailableError: The store failed. The log is as good as before.
    """
    path = checkpoint_path(live.version)
    if not _is_there(store, live):
        try:
            data = build_checkpoint(store, live.version, STEADY_CLOCK)
        except NotFound as error:
            return _newer_checkpoint(store, live, error)
        compare_checkpoint(data, f"{store.uri}/{path}", live)
        put_whole(store, path, data)
        # Never taken back: another process may have written the same version in other bytes, and
        # have cleaned the log behind it since.
        try:
            compare_checkpoint(store.read(path), f"{store.uri}/{path}", live)
        except NotFound:
            return _newer_checkpoint(store, live)
        except LogDamagedError:
            store.put(path, data)
    point_to_newest(store, live.version)
    return live.version


def _newer_checkpoint(store: ObjectStore, live: LiveTable, why: Exception | None = None) -> int:
    """The checkpoint behind which another process has cleaned the log while this one slept.

    Raises:
        LogDamagedError: There is none: a file is lost.
    """
    newest = newest_whole_checkpoint(store, LogFiles.of(store))
    if newest >= live.version:
        return newest
    raise LogDamagedError(
        f"the log {store.uri}/{LOG} cannot be read up to version {live.version}: "
        f"{why or 'the checkpoint is gone'}; no checkpoint was written",
        file=f"{store.uri}/{LOG}",
    ) from why


def _is_there(store: ObjectStore, live: LiveTable) -> bool:
    """Whether there is a checkpoint of that version already, which says the same."""
    try:
        check_checkpoint(store, live)
    except LogDamagedError:
        return False  # missing, most of the time
    return True


def freeze_heap(monotonic: Callable[[], float] = time.monotonic) -> None:
    """Takes everything that lives now out of the garbage collector's sight: after a checkpoint.

    A program of this size has 100,000 objects of its own, and a topic one for each of its newest
    files and registers: a full collection stops every append for some 10 ms and more, and finds
    nothing, since they hold no cycles. What was frozen is still
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
