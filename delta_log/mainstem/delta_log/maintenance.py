"""Checkpoints and log clean-up of a topic's table, off the hot path, through delta-rs.

Source: Delta protocol, sections "Checkpoints" and "Metadata Cleanup". delta-rs honours
`delta.logRetentionDuration` to the second and keeps back to the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.delta_log.store import Store


def write_checkpoint(store: Store) -> int:
    """Writes a checkpoint of the newest version and removes log files that are older than the retention.

    Blocks, for milliseconds to seconds.

    Returns:
        The version of the checkpoint.

    Raises:
        deltalake.exceptions.DeltaError: It failed; the log is as good as before. Try again later.
    """
    return _checkpoint_at(store.uri, store.storage_options)


def _checkpoint_at(uri: str, storage_options: Mapping[str, str]) -> int:
    from deltalake import DeltaTable  # 80 ms and 60 MB: only for who needs it

    table = DeltaTable(uri, storage_options=dict(storage_options) or None)
    table.create_checkpoint()
    table.cleanup_metadata()
    return table.version()
