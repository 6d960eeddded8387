"""Whether a table still is at a version that was seen, without opening it.

Three small files are asked for by name and nothing is listed, so a look costs the same on an object
store as anywhere, and however long the log is:

- The commit file of the next version. Where it is there, the table has gone on.
- The beginning of the version's own commit file, which has the commit's id. It is another one, or
  is not there, where the warehouse was put back from a copy, and where log clean-up has passed the
  version.
- `_last_checkpoint`. Clean-up removes nothing before there is a newer checkpoint, and whoever
  writes one moves the pointer. So a commit file that a writer which slept has put back, in a log
  that was cleaned far beyond it, is not taken for the newest; and a checkpoint that is new is seen,
  although it is no commit.

The next version first: clean-up goes by ascending version, so where the next one is missing because
it was cleaned, the version itself is missing by then as well.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Self

from mainstem.delta_log.format import LAST_CHECKPOINT, commit_path
from mainstem.delta_log.store import NotFound, ObjectStore, is_there
from mainstem.delta_log.table.committer import HEAD_BYTES

_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class VersionMark:
    """What tells one version of one table from every other.

    Attributes:
        digest: Of the beginning of its commit file, and of `_last_checkpoint`.
    """

    version: int
    digest: bytes

    @classmethod
    def of(cls, store: ObjectStore, version: int) -> Self | None:
        """The mark of a version of the table at the root of `store`. Blocks.

        Returns:
            None: its commit file is not there, so nothing can be said.

        Raises:
            StoreUnavailableError: The store failed.
        """
        try:
            head = store.read_range(commit_path(version), 0, HEAD_BYTES)
        except NotFound:
            return None
        try:
            pointer = b"\x01" + store.read(LAST_CHECKPOINT)
        except NotFound:
            pointer = b""
        digest = hashlib.blake2b(head, digest_size=_DIGEST_BYTES)
        digest.update(b"%d" % len(head) + pointer)
        return cls(version, digest.digest())

    def is_newest(self, store: ObjectStore) -> bool:
        """Whether the table at the root of `store` is the same one, still at this version, and has
        no other checkpoint. Blocks.

        Raises:
            StoreUnavailableError: The store failed.
        """
        if is_there(store, commit_path(self.version + 1)):
            return False
        return VersionMark.of(store, self.version) == self
