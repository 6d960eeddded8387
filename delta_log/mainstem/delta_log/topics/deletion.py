"""How a topic is deleted, and created again: in its own log, which goes on for ever.

A mark ends the topic: whoever still has it open loses its next commit to the mark and stops. Then
its data files go, commits take them out of the table, so that SQL by its path finds it empty, and
the log shrinks to one checkpoint. A topic that is created under the name goes on in that log under
a new id. So a writer that slept through all of that finds its version taken, or history, on every
kind of store: no name of a log is ever given twice.

Each step can be done again by anybody, also while another process does the same.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mainstem.delta_log.format import (
    LOG,
    Action,
    DataFile,
    LogFiles,
    Metadata,
    Protocol,
    Register,
    checkpoint_of,
    checkpoint_path,
    commit_path,
    point_to_newest,
    put_whole,
    registers,
)
from mainstem.delta_log.store import (
    AlreadyExists,
    NotFound,
    ObjectStore,
    PutOutcomeUnknown,
    StoreFull,
    is_there,
)
from mainstem.delta_log.table import (
    BESIDE_LEADER,
    FORMAT,
    FORMAT_PROPERTY,
    PARTITIONS_PROPERTY,
    OpenTopic,
    TableCommit,
    TableState,
    commit_beside_leader,
    commit_under,
    load_table,
    read_commit,
    replace_files,
)
from mainstem.delta_log.upkeep import LiveTable, clean_log, create_checkpoint
from mainstem.errors import LogDamagedError, StoreUnavailableError

log = logging.getLogger(__name__)

#: Says as which version a topic was deleted, so that listings need not read its log.
DELETED_HINT: Final = f"{LOG}/_deleted"

_OPERATION: Final = "DELETE TOPIC"

#: Files that one commit takes out of the table.
_REMOVES_MAX: Final = 10_000

#: Attempts to end a topic whose log cannot be read, beside a writer that goes on with it.
_ATTEMPTS_MAX: Final = 5

_PARTITION: Final = re.compile(r"partition=\d+")


def mark_deleted(opened: OpenTopic, now_ms: int) -> None:
    """Commits the end of the topic. Blocks.

    Raises:
        UnknownTopicError: It was deleted already, or another has its name now.
        MainstemError: As `commit_beside_leader`.
    """
    commit_beside_leader(opened, lambda _: _mark(now_ms))


def bury(opened: OpenTopic, now_ms: int) -> None:
    """Removes what a topic that is marked as deleted has. Blocks, 50 us and more for each file.

    Raises:
        UnknownTopicError: It is done, and another topic has the name now.
        MainstemError: The store failed, or the log is damaged. It can be done again.
    """
    assert opened.state.deleted
    store = opened.store
    files = _data_files(store)
    # Only what was there while the log still ended here: what comes to be later is a successor's.
    opened.refresh()
    _hint_early(opened)
    for path in files:
        store.delete(path)
    while opened.state.file_count:
        if commit_under(opened, lambda state: _removal(state, now_ms), BESIDE_LEADER) is not None:
            _hint_early(opened)
    try:
        create_checkpoint(store, LiveTable.of(opened.state))
        _shrink_log(store, opened.state.version)
    except StoreFull as error:
        # Others took at once what the files gave back. What can be had is free, and the topic gone.
        log.info("the log of a deleted topic is made smaller another time: %s", error.message)


def end_unusable(store: ObjectStore, topic: str, now_ms: int) -> str | None:
    """Marks and buries a topic whose log cannot be read. Blocks.

    The log goes on behind the damage, with a checkpoint of a table without records.

    Returns:
        The topic's id, empty if it cannot be read; None: it can be, and nothing was done.

    Raises:
        StoreUnavailableError: The store failed, or a writer that goes on behind the damage was
            always first. It can be done again.
    """
    for _ in range(_ATTEMPTS_MAX):
        files = _data_files(store)
        version = LogFiles.of(store).newest + 1
        try:
            load_table(store)
        except LogDamagedError:
            pass  # still: so the files are not those of a successor
        else:
            return None
        topic_id = _readable_id(store)
        actions: list[Action] = [
            Protocol(),
            Metadata(
                topic_id or str(uuid.uuid4()),
                now_ms,
                {FORMAT_PROPERTY: str(FORMAT), PARTITIONS_PROPERTY: "1"},
                name=topic,
            ),
            Register(registers.DELETED, 1),
        ]
        commit = TableCommit.of(_OPERATION, actions, timestamp_ms=now_ms)
        try:
            store.put_if_absent(commit_path(version), commit.encoded(), frees_space=True)
        except AlreadyExists:
            continue
        except PutOutcomeUnknown as error:
            raise StoreUnavailableError(
                f"the store cannot say whether topic {topic!r} was deleted: {error}; delete it "
                "again",
                topic=topic,
            ) from error
        for path in files:
            store.delete(path)
        put_whole(store, checkpoint_path(version), checkpoint_of(actions))
        point_to_newest(store, version)
        _shrink_log(store, version)
        return topic_id
    raise StoreUnavailableError(
        f"topic {topic!r} cannot be read, and {_ATTEMPTS_MAX} attempts to end it were lost to a "
        "writer that goes on behind the damage; delete it again",
        topic=topic,
    )


def first_actions(
    state: TableState, metadata: Metadata, contents: Sequence[DataFile | Register] = ()
) -> list[Action]:
    """What a new topic's first commit says, in a log of its own or in that of a deleted one.

    Args:
        contents: The records that it begins with: their files and registers.
    """
    assert not state.file_count
    actions: list[Action] = [Protocol(), metadata]
    if state.version >= 0:
        kept = {registers.EPOCH, *(one.name for one in contents if isinstance(one, Register))}
        actions += [
            Register(name, 0, registers.FORGOTTEN_MS)
            for name in state.registers
            if name not in kept
        ]
        actions.append(Register(registers.EPOCH, state.epoch + 1))
    return [*actions, *contents]


@dataclass(frozen=True, slots=True)
class DeletedHint:
    """What a hint says of the topic that is deleted now.

    Attributes:
        version: The log's newest.
        is_buried: There is nothing left to remove.
    """

    version: int
    is_buried: bool


def deleted_hint(store: ObjectStore, directory: str) -> DeletedHint | None:
    """What is known of the deletion of the topic in the directory, without reading its log; None:
    it may be there, or be deleted a moment ago. Three small reads, one where none was ever deleted.

    Raises:
        StoreUnavailableError: The store failed.
    """
    try:
        said = json.loads(store.read(f"{directory}/{DELETED_HINT}"))
        hint = DeletedHint(int(said["version"]), bool(said["buried"]))
    except NotFound:
        return None
    except (ValueError, LookupError, TypeError):
        return None
    # The next version first. Log clean-up goes by ascending version: where the next one is missing
    # because it was cleaned, this one is missing by then as well.
    if is_there(store, f"{directory}/{commit_path(hint.version + 1)}"):
        return None
    return hint if is_there(store, f"{directory}/{commit_path(hint.version)}") else None


def _mark(now_ms: int) -> TableCommit:
    return TableCommit.of(
        _OPERATION,
        [Register(registers.DELETED, 1)],
        timestamp_ms=now_ms,
        survives_appends=True,
        frees_space=True,
    )


def _removal(state: TableState, now_ms: int) -> TableCommit | None:
    files = list(islice(state, _REMOVES_MAX))
    if not files:
        return None
    removes = replace_files(state, files, now_ms=now_ms, data_change=True)
    return TableCommit.of(_OPERATION, removes, timestamp_ms=now_ms, frees_space=True)


def _data_files(store: ObjectStore) -> list[str]:
    """The paths of all data files, whether the table has them or not."""
    return [
        f"{directory}/{info.name}"
        for directory in store.list_directories("")
        if _PARTITION.fullmatch(directory)
        for info in store.list_files(directory)
        if info.name.endswith(".parquet")
    ]


def _shrink_log(store: ObjectStore, version: int) -> None:
    """Leaves the checkpoint of a version, and what came after it."""
    clean_log(store, 0, version_max=version)
    _put_hint(store, DeletedHint(version, is_buried=True))


def _hint_early(opened: OpenTopic) -> None:
    """Listings leave the topic out while it is being buried, too, where the store has the space."""
    with contextlib.suppress(StoreUnavailableError):
        _put_hint(opened.store, DeletedHint(opened.state.version, is_buried=False))


def _put_hint(store: ObjectStore, hint: DeletedHint) -> None:
    body = {"version": hint.version, "buried": hint.is_buried}
    store.put(DELETED_HINT, json.dumps(body).encode())


def _readable_id(store: ObjectStore) -> str:
    with contextlib.suppress(NotFound, LogDamagedError):
        return next((one.id for one in read_commit(store, 0) if isinstance(one, Metadata)), "")
    return ""
