"""Checkpoints and log clean-up of a topic's table, off the hot path, through delta-rs.

Source: Delta protocol, sections "Checkpoints" and "Metadata Cleanup". delta-rs honours
`delta.logRetentionDuration` to the second and keeps back to the last checkpoint.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Final

from mainstem.delta_log.snapshot import LAST_CHECKPOINT, checkpoint_path
from mainstem.delta_log.store import Store

if TYPE_CHECKING:
    from deltalake import DeltaTable

_OPEN_ATTEMPTS_MAX: Final = 10
_OPEN_RETRY_DELAY_S: Final = 0.05


def write_checkpoint(store: Store) -> int:
    """Writes a checkpoint of the newest version and removes log files past their retention.

    Blocks, for milliseconds to seconds.

    Returns:
        The version of the checkpoint.

    Raises:
        Exception: It failed, in delta-rs or in the store; the log is as good as before.
    """
    table = _open(store)
    version = table.version()
    table.create_checkpoint()
    # delta-rs does not sync. A checkpoint that a loss of power can take must not replace commit
    # files that it cannot. Through `store`, so that nothing is removed where another topic has
    # taken the name.
    store.make_durable(checkpoint_path(version))
    store.make_durable(LAST_CHECKPOINT)
    table.cleanup_metadata()
    return version


def freeze_heap() -> None:
    """Takes everything that lives now out of the garbage collector's sight: after a checkpoint.

    A topic keeps an object for each active file: with 60,000 of them a full collection stops every
    append for some 80 ms, and finds nothing, since they hold no cycles. What was frozen is still
    freed by its reference count. The collection before looks only at what came since the last call.
    """
    gc.collect()
    gc.freeze()


def _open(store: Store) -> DeltaTable:
    # While commits go on, a listing of a local directory can have a newer file and lack an older
    # one, which delta-rs takes for a damaged log. The next listing has it.
    from deltalake import DeltaTable  # 80 ms and 60 MB: only for who needs it
    from deltalake.exceptions import DeltaError

    for _ in range(_OPEN_ATTEMPTS_MAX - 1):
        try:
            return DeltaTable(store.uri, storage_options=dict(store.storage_options) or None)
        except DeltaError:
            store.check_bound()
            time.sleep(_OPEN_RETRY_DELAY_S)
    return DeltaTable(store.uri, storage_options=dict(store.storage_options) or None)
