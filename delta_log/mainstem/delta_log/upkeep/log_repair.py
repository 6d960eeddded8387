"""Mends what readers of a log stumble over and we do not: a damaged newest checkpoint, and a
`_last_checkpoint` that names none. Only for the process that leads a table or maintains it.

A damaged checkpoint is written over, by what the log says it should have said, and never deleted:
another process may have replaced it since it was read, and removed the commit files before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.delta_log.format import (
    LAST_CHECKPOINT,
    NO_POINTER,
    LogFiles,
    check_whole,
    checkpoint_path,
    last_checkpoint_version,
    point_to_newest,
)
from mainstem.delta_log.store import NotFound, ObjectStore
from mainstem.delta_log.table import load_table
from mainstem.delta_log.upkeep.live_table import LiveTable
from mainstem.delta_log.upkeep.maintenance import create_checkpoint
from mainstem.errors import LogDamagedError


@dataclass(frozen=True, slots=True)
class Repair:
    """A file of a log that was mended.

    Attributes:
        file: Inside the table.
        what: What was wrong with it.
    """

    file: str
    what: str


def damaged_checkpoints(store: ObjectStore, files: LogFiles) -> list[tuple[int, LogDamagedError]]:
    """The checkpoints that are newer than the newest one that can be read, newest first."""
    damaged: list[tuple[int, LogDamagedError]] = []
    for version in reversed(files.checkpoints):
        path = checkpoint_path(version)
        try:
            check_whole(store.read(path), f"{store.uri}/{path}")
        except NotFound:
            continue  # log clean-up came in between
        except LogDamagedError as error:
            damaged.append((version, error))
            continue
        break
    return damaged


def pointer_fault(store: ObjectStore) -> str | None:
    """What is wrong with `_last_checkpoint`; None: nothing, or there is none, as Delta allows."""
    named = last_checkpoint_version(store)
    files = LogFiles.of(store)
    if named == NO_POINTER or named in files.checkpoints:
        return None
    if named < 0:
        return f"{LAST_CHECKPOINT} names no version"
    if named != last_checkpoint_version(store):
        return None  # a newer checkpoint was written, and the log cleaned
    if named > files.newest:
        return f"{LAST_CHECKPOINT} names version {named} of a log that ends at {files.newest}"
    return f"{LAST_CHECKPOINT} names {checkpoint_path(named)}, which is not there"


def repair_log(store: ObjectStore) -> list[Repair]:
    """Mends the log of the table at the root of `store`. Blocks.

    Returns:
        What was wrong. Most of the time nothing, for a listing and the reading of one checkpoint.

    Raises:
        LogDamagedError: A checkpoint is damaged or lost and the commit files before it are gone.
            Nothing was changed.
        StoreUnavailableError: The store failed; what is not mended is as it was.
    """
    repairs: list[Repair] = []
    fault = pointer_fault(store)
    if fault is not None:
        load_table(store)  # of a log that is lost, the pointer says how long it was
    for version, damage in reversed(damaged_checkpoints(store, LogFiles.of(store))):
        create_checkpoint(store, LiveTable.of(load_table(store, version)))
        repairs.append(Repair(checkpoint_path(version), damage.message))
    if point_to_newest(store) or fault is not None:
        fault = fault or f"{LAST_CHECKPOINT} did not name the newest checkpoint"
        repairs.append(Repair(LAST_CHECKPOINT, fault))
    return repairs
