"""An `ObjectStore` that fails on demand: the fault is chosen by call; behind it is a real store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pyarrow as pa

from mainstem.delta_log.store import ObjectInfo, ObjectStore, PutOutcomeUnknown, Warehouse
from mainstem.errors import StoreUnavailableError

#: Called with the name of an `ObjectStore` method and the path, before the real call. May raise, or
#: block.
Hook = Callable[[str, str], None]


def nothing(call: str, path: str) -> None:
    """The hook of a healthy store."""


@dataclass
class FaultyStore:
    """Passes every call on to `inner`, through `before` and `after`.

    Attributes:
        before: Runs first: what it raises happens instead of the call.
        after: Runs when the call is done: what it raises hides a success.
        calls: Every call with its path, in order.
    """

    inner: ObjectStore
    before: Hook = nothing
    after: Hook = nothing
    calls: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        return self.inner.storage_options

    @property
    def is_far(self) -> bool:
        return self.inner.is_far

    def read(self, path: str) -> bytes:
        with self._around("read", path):
            return self.inner.read(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with self._around("read_range", path):
            return self.inner.read_range(path, start, length)

    def open(self, path: str) -> pa.NativeFile:
        with self._around("open", path):
            return self.inner.open(path)

    def will_open(self, paths: Iterable[str]) -> None:
        self.inner.will_open(paths)

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._around("put", path):
            self.inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        with self._around("put_if_absent", path):
            self.inner.put_if_absent(path, data, frees_space=frees_space)

    def make_durable(self, path: str) -> None:
        with self._around("make_durable", path):
            self.inner.make_durable(path)

    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        with self._around("list_files", directory):
            return self.inner.list_files(directory, start_after)

    def list_directories(self, directory: str) -> list[str]:
        with self._around("list_directories", directory):
            return self.inner.list_directories(directory)

    def delete(self, path: str) -> None:
        with self._around("delete", path):
            self.inner.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        with self._around("delete_all", " ".join(paths)):
            self.inner.delete_all(paths)

    def sweep(self, directory: str, not_after_ms: int) -> int:
        with self._around("sweep", directory):
            return self.inner.sweep(directory, not_after_ms)

    @property
    def wal_directory(self) -> Path | None:
        return self._warehouse.wal_directory

    @property
    def failures(self) -> Mapping[str, int]:
        return self._warehouse.failures

    def free_bytes(self) -> int | None:
        return self._warehouse.free_bytes()

    def close(self) -> None:
        self._warehouse.close()

    def fill_reserve(self) -> None:
        self._warehouse.fill_reserve()

    def self_check(self) -> None:
        self._warehouse.self_check()

    @property
    def _warehouse(self) -> Warehouse:
        """`inner`, where it is the store of a whole warehouse."""
        return cast(Warehouse, self.inner)

    @contextmanager
    def _around(self, call: str, path: str) -> Iterator[None]:
        with self.lock:
            self.calls.append((call, path))
        self.before(call, path)
        yield
        self.after(call, path)


@dataclass
class LateListing(FaultyStore):
    """Lists a log as a local file system may that is written to meanwhile: a newer commit is
    there, an older one is not.

    Attributes:
        lacks: The version that is missing in the first listing that ought to have it.
    """

    lacks: int = -1

    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        found = super().list_files(directory, start_after)
        left = [info for info in found if info.name != f"{self.lacks:020d}.json"]
        if len(left) < len(found):
            self.lacks = -1
        return left


def times(count: int, call: str, error: BaseException, path_part: str = "") -> Hook:
    """Raises `error` at the first `count` calls of `call` whose path contains `path_part`."""
    left = [count]

    def hook(name: str, path: str) -> None:
        if name == call and path_part in path and left[0] > 0:
            left[0] -= 1
            raise error

    return hook


def unknown() -> PutOutcomeUnknown:
    """What a store says that cannot tell whether its put took place."""
    return PutOutcomeUnknown("injected: the answer was lost")


def unavailable() -> StoreUnavailableError:
    """What a store says that did nothing."""
    return StoreUnavailableError("injected: the store is away")
