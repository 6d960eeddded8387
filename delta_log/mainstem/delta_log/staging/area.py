"""The place of staged records in a warehouse: objects that are written once, read, and deleted when
nobody needs them any more. Calls block."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from mainstem.delta_log.files import Slice
from mainstem.delta_log.staging.format import StagedCounts, encode_object
from mainstem.delta_log.staging.reading import StagedTopic, read_index
from mainstem.delta_log.store import ObjectInfo, ObjectStore
from mainstem.delta_log.topics import SYSTEM, TRANSACTIONS_TABLE
from mainstem.errors import InvalidRequestError

#: In the table of transactions. Delta's VACUUM leaves directories alone whose names begin with `_`.
DIRECTORY: Final = f"{SYSTEM}/{TRANSACTIONS_TABLE}/_staged"

#: The leader epoch of the table of transactions under which it was written comes first.
_NAME: Final = re.compile(r"([0-9]{1,19})-[0-9a-f]{32}\.staged")


@dataclass(frozen=True, slots=True)
class StagedObject:
    """An object that was written.

    Attributes:
        counts: Records by topic and partition.
        size_bytes: As it is stored.
    """

    name: str
    counts: Mapping[str, StagedCounts]
    size_bytes: int


class StagingArea:
    """The staged records of a warehouse.

    Args:
        store: Of the warehouse.
        epoch: The leader epoch of the table of transactions, for who writes and sweeps.
    """

    def __init__(self, store: ObjectStore, epoch: int = 0) -> None:
        self._store = store
        self._epoch = epoch

    def of_epoch(self, epoch: int) -> StagingArea:
        """The same, for a leader."""
        return StagingArea(self._store, epoch)

    def write(self, records: Mapping[str, Sequence[Slice]]) -> StagedObject:
        """Makes records durable, in one object, which is put together in memory.

        Args:
            records: By topic, in the order in which they came; at least one.

        Raises:
            StoreUnavailableError: The store failed. What it has of the object after all belongs to
                nobody, as `list` shows.
        """
        data, entries = encode_object(records)
        assert entries
        counts: dict[str, dict[int, int]] = {}
        for entry in entries:
            of_topic = counts.setdefault(entry.topic, {})
            of_topic[entry.partition] = of_topic.get(entry.partition, 0) + entry.record_count
        name = f"{self._epoch}-{uuid.uuid4().hex}.staged"
        self._store.put(_path(name), data)
        return StagedObject(name, counts, data.size)

    def read(self, names: Iterable[str], topic: str) -> StagedTopic:
        """What objects have of a topic. Reads their indexes.

        Args:
            names: In the order in which they were written.

        Raises:
            InvalidRequestError: A name is none of an object of staged records.
            LogDamagedError: An object is missing or damaged.
            StoreUnavailableError: The store failed.
        """
        paths = [_path(name) for name in names]
        return StagedTopic(
            self._store,
            [
                (path, entry)
                for path in paths
                for entry in read_index(self._store, path)
                if entry.topic == topic
            ],
        )

    def list(self) -> list[ObjectInfo]:
        """All objects: their names, sizes, and the times at which they were written by the store's
        clock.

        Raises:
            StoreUnavailableError: The store failed.
        """
        return [one for one in self._store.list_files(DIRECTORY) if _NAME.fullmatch(one.name)]

    def sweep(self, needed: Set[str]) -> int:
        """Removes what was written under epochs before this one, but for what is needed. What a
        later leader writes stays, however long its leader before sleeps in the middle of this.

        Returns:
            How many there were.

        Raises:
            StoreUnavailableError: The store failed; some of them may be gone.
        """
        old = [
            one.name
            for one in self.list()
            if int(one.name.partition("-")[0]) < self._epoch and one.name not in needed
        ]
        self.delete(old)
        return len(old)

    def delete(self, names: Iterable[str]) -> None:
        """Removes objects. Those that are not there are no error.

        Raises:
            InvalidRequestError: A name is none of an object of staged records.
            StoreUnavailableError: The store failed; some of them may be gone.
        """
        paths = [_path(name) for name in names]
        if paths:
            self._store.delete_all(paths)


def _path(name: str) -> str:
    """Of an object. Names come from other gateways, too."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequestError(f"{name!r} is not the name of an object of staged records")
    return f"{DIRECTORY}/{name}"
