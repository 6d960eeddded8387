"""Files of orphans: acknowledged records that can no longer get into their topic's table.

Each has the format of a segment. An entry that is in one is an orphan for good, whatever the table
looks like later: so a file counts from when it is durable, and is never written to again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from mainstem.delta_log.wal.format import (
    WalRequest,
    decode_entry,
    decode_segment,
    encode_entry,
    encode_frame,
)
from mainstem.delta_log.wal.place import WalFiles

#: A name that has more behind it counts as well: an operator may have marked a file as dealt with.
_SUFFIX: Final = ".orphans"

#: One batch of an entry: entry number, partition, base offset.
Part = tuple[int, int, int]


class OrphanFiles:
    """The files of orphans beside one write-ahead log. Calls block."""

    def __init__(self, files: WalFiles) -> None:
        self._files = files

    def kept(self, topic_id: str, numbers: set[int]) -> set[Part]:
        """What the files have of a topic's entries of these numbers; durable when this returns.

        Raises:
            LogDamagedError, OSError: A file cannot be read, or not be made durable.
        """
        kept: set[Part] = set()
        for name in self._names(topic_id):
            data = self._files.read(name)
            found = {
                (number, batch.partition, batch.base_offset)
                for frame in decode_segment(data, self._path(name), is_last=False)
                for number, entry in frame.entries
                if number in numbers
                for batch in decode_entry(entry).batches
            }
            if found:
                # Who wrote it may have crashed before its name was durable, or been told that it
                # is not, and a second sync would believe anything.
                self._files.write_whole(name, data)
            kept |= found
        return kept

    def keep(self, topic_id: str, orphans: Sequence[tuple[int, WalRequest]]) -> str:
        """Keeps entries that no file has yet; returns the path of the file, which is durable.

        Raises:
            OSError: It cannot be written. Nothing is kept.
        """
        names = self._names(topic_id)
        number = orphans[0][0]
        while any(name.startswith(_stem(topic_id, number)) for name in names):
            number += 1
        name = _stem(topic_id, number) + _SUFFIX
        frames = [encode_frame([(one, encode_entry(request))]) for one, request in orphans]
        self._files.write_whole(name, b"".join(frames))
        return self._path(name)

    def _names(self, topic_id: str) -> list[str]:
        prefix = f"{topic_id}-"
        return [name for name in self._files.names() if name.startswith(prefix) and _SUFFIX in name]

    def _path(self, name: str) -> str:
        return os.path.join(self._files.uri, name)


def _stem(topic_id: str, number: int) -> str:
    return f"{topic_id}-{number:020d}"
