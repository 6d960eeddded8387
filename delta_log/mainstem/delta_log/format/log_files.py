"""The names of a log's files, and what a listing says of them.

Source: Delta protocol, sections "Delta Log Entries", "Checkpoints" and "Last Checkpoint File".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mainstem.delta_log.store import ObjectInfo, ObjectStore

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")

#: Whatever else belongs to one version: checkpoints in parts or of other kinds, checksums.
_OF_VERSION: Final = re.compile(
    r"(\d{20})\.(?:checkpoint\.(?:\d{10}\.\d{10}\.|[0-9a-f-]{36}\.)?(?:parquet|json)|crc)"
)

#: What delta-rs and the object store library leave of a write that was interrupted.
_STAGED: Final = re.compile(r".*#\d+")


def commit_path(version: int) -> str:
    """The path of a version's commit file inside its table."""
    return f"{LOG}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """The path of a version's checkpoint inside its table."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a log, as a listing has them.

    While commits go on, a listing may have a newer file and lack an older one.

    Attributes:
        commits: The commit file of each version, in order.
        checkpoints: The versions with a checkpoint in one file, the only kind that is used, in
            order.
        others: The names of the files of each version that are not its commit file.
        staged: Left by writes that were interrupted, or of writes that go on.
    """

    commits: Mapping[int, ObjectInfo]
    checkpoints: tuple[int, ...] = ()
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    staged: tuple[ObjectInfo, ...] = ()

    @classmethod
    def of(cls, store: ObjectStore, log: str = LOG) -> LogFiles:
        """Lists a log: that of the table at the root of `store`."""
        commits: dict[int, ObjectInfo] = {}
        checkpoints: list[int] = []
        others: dict[int, tuple[str, ...]] = {}
        staged: list[ObjectInfo] = []
        for info in store.list_files(log):
            if match := _COMMIT.fullmatch(info.name):
                commits[int(match[1])] = info
            elif match := _OF_VERSION.fullmatch(info.name):
                version = int(match[1])
                others[version] = (*others.get(version, ()), info.name)
                if _CHECKPOINT.fullmatch(info.name):
                    checkpoints.append(version)
            elif _STAGED.fullmatch(info.name):
                staged.append(info)
        return cls(commits, tuple(checkpoints), others, tuple(staged))

    @property
    def newest(self) -> int:
        """The newest version that there is a commit file or a checkpoint of; -1: none."""
        return max([*self.commits, *self.checkpoints], default=-1)
