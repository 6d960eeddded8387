"""Active files replaced by others in a commit, or just removed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from mainstem.delta_log.format import Action, DataFile, Remove, registers
from mainstem.delta_log.table.state import TableState

#: How far the clocks may be apart of who wrote a file and of who deletes what was left behind.
_CLOCKS_APART_MS: Final = 600_000


class FileSuperseded(Exception):
    """A file that was to be removed is in the table no more, since another writer removed it first;
    or one that was to be added has waited for its commit until vacuum took it.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is in the table no more")
        self.path = path


def is_expired(state: TableState, file: DataFile) -> bool:
    """Whether vacuum may be deleting a file that no version knows yet: it waited for its commit for
    too long.

    Vacuum says in the log up to which time of writing it deletes, before it does. So a writer that
    tries a later version has it in its state, and one that tries an earlier version loses it: a
    writer that slept between its file and its commit cannot bring a file into the table that is
    gone.
    """
    limit_ms = state.register_value(registers.ORPHANED)
    return bool(limit_ms) and file.modified_ms <= limit_ms + _CLOCKS_APART_MS


def replace_files(
    state: TableState,
    removes: Iterable[DataFile],
    adds: Sequence[DataFile] = (),
    *,
    now_ms: int,
    data_change: bool,
) -> list[Action]:
    """The actions that swap active files for others, or just remove them.

    Args:
        now_ms: When the files were removed; their retention counts from then.
        data_change: False only where every record is kept as it was: streams over the table then
            pass over the commit.

    Raises:
        FileSuperseded: One of `removes` is not active in `state`.
    """
    actions: list[Action] = []
    for file in removes:
        if not state.is_active(file.path):
            raise FileSuperseded(file.path)
        actions.append(
            Remove(file.path, file.partition, file.size_bytes, now_ms, data_change=data_change)
        )
    actions += [replace(file, data_change=data_change) for file in adds]
    return actions
