"""`_last_checkpoint`, which tells readers where to begin. It is a hint and decides nothing here:
what is in the log is found by listing it.

But other readers of the table believe it: with one that names a checkpoint that is not there, or is
damaged, delta-rs and those who build on it cannot open the table. So it is kept right, and it is
made of what is there each time. A process that slept on its way to write it looks again afterwards:
then it does not go back for long, whichever process was last.

Source: Delta protocol, section "Last Checkpoint File".
"""

from __future__ import annotations

import json
from typing import Final

from mainstem.delta_log.format.checkpoint_file import check_whole, open_checkpoint
from mainstem.delta_log.format.log_files import LAST_CHECKPOINT, LogFiles, checkpoint_path
from mainstem.delta_log.store import AlreadyExists, NotFound, ObjectStore, PutOutcomeUnknown
from mainstem.errors import LogDamagedError, StoreUnavailableError

#: How often a pointer is written while others write newer checkpoints, which are minutes apart.
_ATTEMPTS_MAX: Final = 5

#: There is no pointer.
NO_POINTER: Final = -1

#: There is one that names no version.
TORN_POINTER: Final = -2


def last_checkpoint_version(store: ObjectStore) -> int:
    """The version that `_last_checkpoint` names; less than 0: `NO_POINTER` or `TORN_POINTER`.
    Cheap: one small file."""
    try:
        data = store.read(LAST_CHECKPOINT)
    except NotFound:
        return NO_POINTER
    try:
        version = json.loads(data)["version"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return TORN_POINTER
    return version if type(version) is int and version >= 0 else TORN_POINTER


def point_to_newest(store: ObjectStore, whole_version: int = -1) -> bool:
    """Makes `_last_checkpoint` name the newest checkpoint that can be read. Blocks.

    Where none can, it goes.

    Args:
        whole_version: Of a checkpoint that was read just now, or written.

    Returns:
        Whether it named another one, or none, before.

    Raises:
        StoreUnavailableError: The store failed; the pointer is the old one or a right one.
    """
    changed = False
    for _ in range(_ATTEMPTS_MAX):
        said = last_checkpoint_version(store)
        # Listed afterwards: a checkpoint is there before a pointer to it is.
        newest = newest_whole_checkpoint(store, LogFiles.of(store), whole_version)
        if said == newest:
            break
        changed = True
        if newest < 0:
            store.delete(LAST_CHECKPOINT)
        else:
            _put_pointer(store, newest)
            whole_version = newest
    return changed


def newest_whole_checkpoint(store: ObjectStore, files: LogFiles, whole_version: int = -1) -> int:
    """The version of the newest checkpoint of a listing that can be read; `NO_POINTER`: none.

    Args:
        whole_version: See `point_to_newest`.
    """
    for version in reversed(files.checkpoints):
        if version == whole_version:
            return version
        path = checkpoint_path(version)
        try:
            check_whole(store.read(path), f"{store.uri}/{path}")
        except (NotFound, LogDamagedError):
            continue
        return version
    return NO_POINTER


def put_whole(store: ObjectStore, path: str, data: bytes) -> None:
    """Writes a file, or replaces it: in one step, and durable when this returns.

    Raises:
        StoreUnavailableError: The store failed; the file is the old one or the new one.
    """
    try:
        store.put_if_absent(path, data)
    except AlreadyExists:
        store.put(path, data)
    except PutOutcomeUnknown as error:
        raise StoreUnavailableError(
            f"the store cannot say whether {store.uri}/{path} is durable: {error}", path=path
        ) from error


def _put_pointer(store: ObjectStore, version: int) -> None:
    with open_checkpoint(store, version) as parquet:
        actions = parquet.metadata.num_rows
    put_whole(store, LAST_CHECKPOINT, b'{"version":%d,"size":%d}\n' % (version, actions))
