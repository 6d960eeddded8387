"""A part of a store that is a store itself: a table sees nothing but its own files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from mainstem.delta_log.store.object_store import ObjectInfo, ObjectStore


class StoreFolder:
    """The files of `store` whose paths begin with `directory`, by the rest of their paths.

    It needs not be there: a store has files, not directories.

    Args:
        directory: Without a slash at either end.
    """

    def __init__(self, store: ObjectStore, directory: str) -> None:
        self._store = store
        self._directory = directory

    @property
    def uri(self) -> str:
        return f"{self._store.uri.rstrip('/')}/{self._directory}"

    @property
    def storage_options(self) -> Mapping[str, str]:
        return self._store.storage_options

    @property
    def is_far(self) -> bool:
        return self._store.is_far

    def read(self, path: str) -> bytes:
        return self._store.read(self._place(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._store.read_range(self._place(path), start, length)

    def open(self, path: str) -> pa.NativeFile:
        return self._store.open(self._place(path))

    def will_open(self, paths: Iterable[str]) -> None:
        self._store.will_open([self._place(path) for path in paths])

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        self._store.put(self._place(path), data)

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        self._store.put_if_absent(self._place(path), data, frees_space=frees_space)

    def make_durable(self, path: str) -> None:
        self._store.make_durable(self._place(path))

    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        return self._store.list_files(self._place(directory), start_after)

    def list_directories(self, directory: str) -> list[str]:
        return self._store.list_directories(self._place(directory))

    def delete(self, path: str) -> None:
        self._store.delete(self._place(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        self._store.delete_all([self._place(path) for path in paths])

    def sweep(self, directory: str, not_after_ms: int) -> int:
        return self._store.sweep(self._place(directory), not_after_ms)

    def _place(self, path: str) -> str:
        return f"{self._directory}/{path}" if path else self._directory
