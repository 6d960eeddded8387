"""A warehouse in the memory of this process: for tests, with the contract of every other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from mainstem.delta_log.store.object_store import (
    AlreadyExists,
    NotFound,
    ObjectInfo,
)
from mainstem.errors import StoreUnavailableError


@dataclass(slots=True)
class _File:
    data: bytes
    modified_ms: int


@dataclass(eq=False, slots=True)
class _Directory:
    files: dict[str, _File] = field(default_factory=dict)
    directories: dict[str, _Directory] = field(default_factory=dict)


class MemoryStore:
    """An empty store.

    Args:
        uri: What it is called.
    """

    def __init__(self, uri: str = "memory://") -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._root = _Directory()
        self._closed = False

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        return {}

    @property
    def wal_directory(self) -> None:
        return None

    @property
    def is_far(self) -> bool:
        return False

    @property
    def failures(self) -> Mapping[str, int]:
        return {}

    def free_bytes(self) -> None:
        return None

    def read(self, path: str) -> bytes:
        with self._using():
            return self._file(path).data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        assert start >= 0
        assert length >= 0
        return self.read(path)[start : start + length]

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def will_open(self, paths: Iterable[str]) -> None:
        pass  # it is near

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._using():
            directory, name = self._parent_of(path, create=True)
            directory.files[name] = _File(bytes(data), _now_ms())

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        with self._using():
            directory, name = self._parent_of(path, create=True)
            if name in directory.files:
                raise AlreadyExists(path)
            directory.files[name] = _File(bytes(data), _now_ms())

    def make_durable(self, path: str) -> None:
        with self._using():
            self._file(path)

    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        with self._using():
            found = self._directory(directory)
            files = {} if found is None else found.files
            return [
                ObjectInfo(name, len(files[name].data), files[name].modified_ms)
                for name in sorted(files)
                if name > start_after
            ]

    def list_directories(self, directory: str) -> list[str]:
        with self._using():
            found = self._directory(directory)
            return [] if found is None else sorted(found.directories)

    def delete(self, path: str) -> None:
        with self._using():
            try:
                directory, name = self._parent_of(path)
            except NotFound:
                return
            directory.files.pop(name, None)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def sweep(self, directory: str, not_after_ms: int) -> int:
        with self._using():
            return 0  # nothing is interrupted here

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def fill_reserve(self) -> None:
        pass  # what is in memory has no disk to fill

    def self_check(self) -> None:
        with self._using():
            pass

    # -- helpers ---------------------------------------------------------------------------------

    def _using(self) -> threading.Lock:
        if self._closed:
            raise StoreUnavailableError(
                f"the store {self._uri} is closed; nothing was done", path=self._uri
            )
        return self._lock

    def _directory(self, path: str, *, create: bool = False) -> _Directory | None:
        found = self._root
        for part in filter(None, path.split("/")):
            if part in found.files:
                return None
            child = found.directories.get(part)
            if child is None:
                if not create:
                    return None
                child = found.directories[part] = _Directory()
            found = child
        return found

    def _parent_of(self, path: str, *, create: bool = False) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        directory = self._directory(above, create=create)
        if directory is None:
            raise NotFound(f"there is no directory {self._uri}/{above}")
        return directory, name

    def _file(self, path: str) -> _File:
        directory, name = self._parent_of(path)
        file = directory.files.get(name)
        if file is None:
            raise NotFound(f"there is no file {self._uri}/{path}")
        return file


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
