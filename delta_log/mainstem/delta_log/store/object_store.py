"""What the log asks of the place where its files lie: a directory, or an object storage service.

Paths are relative to the store's root, with `/` between parts. Nothing above this module assumes a
file system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from mainstem.errors import StoreUnavailableError


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One file of a listing: its name inside the listed directory, its size, its time of change."""

    name: str
    size_bytes: int
    modified_ms: int


class AlreadyExists(Exception):
    """`put_if_absent` found something under that name. Nothing was written."""


class NotFound(Exception):
    """There is no file of that name."""


class StoreFull(StoreUnavailableError):
    """There is no space for a file; nothing was done. Reading works, and what frees space."""


class PutOutcomeUnknown(Exception):
    """`put_if_absent` failed where the file may be there, or be there but not yet durable."""


class ObjectStore(Protocol):
    """Durable files by name. Calls block, and may come from several threads at once.

    Every call but the listed exceptions raises StoreUnavailableError when the store fails and
    nothing was done.
    """

    @property
    def uri(self) -> str:
        """The root, as Spark and delta-rs take it."""
        ...

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What delta-rs needs beside the URI."""
        ...

    @property
    def is_far(self) -> bool:
        """Whether a call takes tens of milliseconds, however many are under way at a time: an
        object storage service."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file. Raises NotFound."""
        ...

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """The bytes of the file in [start, start + length); fewer where it ends before.

        Raises NotFound.
        """
        ...

    def open(self, path: str) -> pa.NativeFile:
        """The file for random access. Raises NotFound. The caller closes it.

        A read of it that fails raises OSError, with an `errno` where the store failed and none
        where the file ends early. On a disk and in memory it stays readable when the store is
        closed or the file deleted; in an object storage service only if it is small (else ENOENT).
        """
        ...

    def will_open(self, paths: Iterable[str]) -> None:
        """A hint: these data files will be opened soon, the first ones first. Returns at once, and
        raises nothing; a store that is far away begins to read them."""
        ...

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Writes a new file under a name that nobody else uses; durable when this returns."""
        ...

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        """Writes the file, whole, unless one of that name exists; durable when this returns.

        The primitive that the whole log rests on: of any number of callers in any processes exactly
        one succeeds, and no reader ever sees a part.

        Args:
            frees_space: It leads to something being deleted: where the store is full, it may take
                from what is set aside.

        Raises:
            AlreadyExists: Another was first.
            PutOutcomeUnknown: Read the file back to find out.
        """
        ...

    def make_durable(self, path: str) -> None:
        """Makes a file that can be read also survive a loss of power. Raises NotFound."""
        ...

    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        """The files directly inside `directory` that sort after `start_after`, by name.

        A file that comes or goes meanwhile may be listed or not, whatever else is listed.
        """
        ...

    def list_directories(self, directory: str) -> list[str]:
        """The names of the directories directly inside `directory`, sorted."""
        ...

    def delete(self, path: str) -> None:
        """Removes a file. One that is not there is no error."""
        ...

    def delete_all(self, paths: Sequence[str]) -> None:
        """Removes files, a thousand or so with one request where the store can. Those that are not
        there are no error. Some of them may be gone when it raises."""
        ...

    def sweep(self, directory: str, not_after_ms: int) -> int:
        """Removes what interrupted writes left directly inside `directory` up to that wall clock
        time; returns how many files. A writer that may still be at work is left alone by a time
        that is long ago."""
        ...


class Warehouse(ObjectStore, Protocol):
    """The store of a whole warehouse, which whoever opened it closes.

    What it is called, and so whether it is the one that was here before, says
    `system/warehouse.json`.
    """

    @property
    def wal_directory(self) -> Path | None:
        """Where its gateways have their write-ahead logs, unless they are told otherwise: on a disk
        of this machine. None: there is no such place."""
        ...

    @property
    def failures(self) -> Mapping[str, int]:
        """How often calls failed, by the system's name of the error, such as ENOSPC."""
        ...

    def free_bytes(self) -> int | None:
        """What is free for new files; None: nobody knows.

        Raises:
            StoreUnavailableError: The store cannot be asked.
        """
        ...

    def close(self) -> None:
        """Releases what it holds. Calls that go on end first; later ones raise."""
        ...

    def fill_reserve(self) -> None:
        """Sets space aside for what frees some, or makes good what was used of it.

        Raises:
            StoreUnavailableError: There is too little.
        """
        ...

    def self_check(self) -> None:
        """Tries the primitives out.

        Raises:
            StoreFull: There is no space to try them.
            StoreUnavailableError: One does not hold here; the message says which.
        """
        ...


def is_there(store: ObjectStore, path: str) -> bool:
    """Whether there is a file of that name. Raises StoreUnavailableError."""
    try:
        store.read_range(path, 0, 1)
    except NotFound:
        return False
    return True
