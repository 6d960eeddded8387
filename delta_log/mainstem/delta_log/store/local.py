"""A `Store` in a directory of a local file system.

`put_if_absent` writes a temporary file, syncs it, gives it its final name with `link`, which fails
when the name exists, and syncs the directory. Files are reached through a descriptor of the root
directory, so that a store that is bound to a removed directory cannot write into a new one of the
same name; and a write that went into a directory that has just lost its name is reported as
StoreGone, never as done.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa

from mainstem.delta_log.store.object_store import (
    AlreadyExists,
    NotFound,
    ObjectInfo,
    PutOutcomeUnknown,
    StoreGone,
)
from mainstem.delta_log.store.random_access import open_descriptor, read_at
from mainstem.errors import StoreUnavailableError

_TRASH = ".trash"
_LOCK = ".remove-lock"

P = ParamSpec("P")
R = TypeVar("R")


def _uses_root(
    method: Callable[Concatenate[LocalStore, P], R],
) -> Callable[Concatenate[LocalStore, P], R]:
    """Keeps the root's descriptor open until the call is done.

    `close` may come from another thread in the middle of a call. A number that was closed and given
    out again would lead the rest of the call into a directory that belongs to somebody else.
    """

    @functools.wraps(method)
    def held(self: LocalStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._enter()
        try:
            return method(self, *args, **kwargs)
        finally:
            self._leave()

    return held


class LocalStore:
    """Files below `root`, which is created if it is not there.

    Args:
        root: A directory on a file system with hard links and a working fsync.
        create: False: raise NotFound where the directory does not exist.
    """

    def __init__(self, root: str | os.PathLike[str], *, create: bool = True) -> None:
        self._root = Path(root).absolute()
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        #: Directories whose own names are known to be durable, up to the root.
        self._named_durably: set[str] = set()
        try:
            if create:
                make_directory(str(self._root))
            self._fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
            self._identity = _identity(os.stat(self._fd))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"there is no directory {self._root}") from error
        except OSError as error:
            raise _unavailable("open the directory", str(self._root), error) from error

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def storage_options(self) -> Mapping[str, str]:
        return {}

    @_uses_root
    def read(self, path: str) -> bytes:
        with self._reading(path):
            fd = os.open(path, os.O_RDONLY, dir_fd=self._fd)
            with open(fd, "rb") as file:
                return file.read()

    @_uses_root
    def read_range(self, path: str, start: int, length: int) -> bytes:
        with self._reading(path):
            fd = os.open(path, os.O_RDONLY, dir_fd=self._fd)
            try:
                return read_at(fd, start, length)
            finally:
                os.close(fd)

    @_uses_root
    def open(self, path: str) -> pa.NativeFile:
        with self._reading(path):
            return open_descriptor(os.open(path, os.O_RDONLY, dir_fd=self._fd))

    @_uses_root
    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        try:
            self._write(path, data, os.O_TRUNC)
            self._sync_directory(os.path.dirname(path))
        except OSError as error:
            raise self._failed("write", path, error) from error
        self._check_not_gone(path)

    @_uses_root
    def put_if_absent(self, path: str, data: bytes) -> None:
        directory = os.path.dirname(path)
        temporary = os.path.join(directory, f".{uuid.uuid4().hex}.tmp")
        try:
            self._write(temporary, data, os.O_EXCL)
        except OSError as error:
            raise self._failed("write", path, error) from error
        try:
            os.link(
                temporary, path, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False
            )
        except FileExistsError as error:
            raise AlreadyExists(path) from error
        except FileNotFoundError as error:
            raise self._failed("link", path, error) from error
        except OSError as error:
            raise PutOutcomeUnknown(f"link of {self._root / path} failed: {error}") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._fd)
        try:
            self._sync_directory(directory)
        except OSError as error:
            raise PutOutcomeUnknown(
                f"sync of the directory of {self._root / path} failed: {error}"
            ) from error
        # A removed directory can still be written to for as long as its files are being deleted.
        self._check_not_gone(path)

    @_uses_root
    def make_durable(self, path: str) -> None:
        with self._reading(path):
            fd = os.open(path, os.O_RDONLY, dir_fd=self._fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            self._sync_directory(os.path.dirname(path))

    @_uses_root
    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        found = []
        for name, status in self._entries(directory):
            if name > start_after and stat.S_ISREG(status.st_mode) and not name.endswith(".tmp"):
                found.append(ObjectInfo(name, status.st_size, status.st_mtime_ns // 1_000_000))
        found.sort(key=lambda info: info.name)
        return found

    @_uses_root
    def list_directories(self, directory: str) -> list[str]:
        return sorted(
            name for name, status in self._entries(directory) if stat.S_ISDIR(status.st_mode)
        )

    @_uses_root
    def delete(self, path: str) -> None:
        try:
            os.unlink(path, dir_fd=self._fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failed("delete", path, error) from error

    @_uses_root
    def sweep(self, directory: str, not_after_ms: int) -> int:
        count = 0
        for name, status in list(self._entries(directory)):
            if not name.endswith(".tmp") or status.st_mtime_ns // 1_000_000 > not_after_ms:
                continue
            with contextlib.suppress(OSError):  # the next sweep may have more luck
                os.unlink(os.path.join(directory, name), dir_fd=self._fd)
                count += 1
        return count

    @_uses_root
    def remove_directory(self, path: str, bound: Self) -> bool:
        # Between a check of the name and the rename another process may remove the directory, and
        # make a new one under its name. All removals of a root take turns, so the name cannot
        # change hands in between.
        trash = f"{_TRASH}/{uuid.uuid4().hex}"
        try:
            self._make_directory(_TRASH)
            with self._removing():
                if not bound._is(path, self):
                    return False
                os.rename(path, trash, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            self._sync_directory(os.path.dirname(path))
            self._sync_directory(_TRASH)
        except OSError as error:
            raise self._failed("remove the directory", path, error) from error
        # What interrupted removals left goes too. The directory of the trash stays: others may be
        # using it.
        for name in self.list_directories(_TRASH):
            shutil.rmtree(self._root / _TRASH / name, ignore_errors=True)
        return True

    @_uses_root
    def bind(self, directory: str, *, create: bool = False) -> Self:
        if create:
            try:
                self._make_directory(directory)
            except FileNotFoundError as error:
                self.check_bound()
                # Made, and removed by somebody else before its name was synced.
                raise NotFound(f"the directory {self._root / directory} was removed") from error
            except OSError as error:
                raise self._failed("make the directory", directory, error) from error
        return type(self)(self._root / directory, create=False)

    @_uses_root
    def check_bound(self) -> None:
        if not self._has_its_name():
            raise self._gone("")

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = self._users == 0
        if idle:
            os.close(self._fd)

    @_uses_root
    def self_check(self) -> None:
        name = f".check-{uuid.uuid4().hex}"
        try:
            self.put_if_absent(name, b"first")
            try:
                self.put_if_absent(name, b"second")
            except AlreadyExists:
                pass
            else:
                raise StoreUnavailableError(
                    f"{self._root} cannot hold a log: link() replaced an existing file; "
                    "use another file system"
                )
            if self.read(name) != b"first":
                raise StoreUnavailableError(
                    f"{self._root} cannot hold a log: a file changed under its reader"
                )
        except PutOutcomeUnknown as error:
            raise StoreUnavailableError(
                f"{self._root} cannot hold a log: {error}; "
                "use a file system with hard links and fsync"
            ) from error
        finally:
            self.delete(name)

    # -- helpers ---------------------------------------------------------------------------------

    def _enter(self) -> None:
        with self._lock:
            if self._closed:
                raise StoreUnavailableError(
                    f"the store {self._root} is closed; nothing was done", path=str(self._root)
                )
            self._users += 1

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            os.close(self._fd)

    def _has_its_name(self) -> bool:
        """Whether the directory that was opened is still the one of that name."""
        try:
            return _identity(os.stat(self._root)) == self._identity
        except OSError:
            return False

    def _is(self, path: str, parent: Self) -> bool:
        """Whether the directory that was opened is the one that `parent` now has at `path`."""
        assert not self._closed
        try:
            return _identity(os.stat(path, dir_fd=parent._fd)) == self._identity
        except FileNotFoundError:
            return False

    def _check_not_gone(self, path: str) -> None:
        if not self._has_its_name():
            raise self._gone(path)

    def _gone(self, path: str) -> StoreGone:
        return StoreGone(f"the directory {self._root} was removed while it was in use", path=path)

    @contextlib.contextmanager
    def _removing(self) -> Iterator[None]:
        """One removal at a time, of all processes; the lock goes with the process."""
        fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT, 0o644, dir_fd=self._fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _write(self, path: str, data: bytes | pa.Buffer, how: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | how
        try:
            fd = os.open(path, flags, 0o644, dir_fd=self._fd)
        except FileNotFoundError:
            self._make_directory(os.path.dirname(path))
            fd = os.open(path, flags, 0o644, dir_fd=self._fd)
        try:
            view = memoryview(data)
            while view.nbytes:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path, dir_fd=self._fd)
            raise
        finally:
            os.close(fd)

    def _make_directory(self, directory: str) -> None:
        """Makes it and what is missing above it, durably."""
        if os.stat(self._fd).st_nlink == 0:
            raise FileNotFoundError(
                errno.ENOENT, "the store's directory was removed", str(self._root)
            )
        parent = ""
        for part in filter(None, directory.split("/")):
            child = os.path.join(parent, part)
            try:
                os.mkdir(child, 0o755, dir_fd=self._fd)
                self._named_durably.discard(child)
            except FileExistsError:
                pass
            parent = child
        self._sync_directory(directory)

    def _sync_directory(self, directory: str) -> None:
        """Makes the names in `directory` durable, and once also those on the way to it.

        Whoever made a directory may have crashed before its name was durable: finding it there is
        not enough.
        """
        self._sync_one(directory)
        if directory and directory not in self._named_durably:
            self._sync_directory(os.path.dirname(directory))
            self._named_durably.add(directory)

    def _sync_one(self, directory: str) -> None:
        if not directory:
            os.fsync(self._fd)
            return
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _entries(self, directory: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            fd = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._fd)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._failed("list", directory, error) from error
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.name, entry.stat(follow_symlinks=False)
        except OSError as error:
            raise self._failed("list", directory, error) from error
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"there is no file {self._root / path}") from error
        except OSError as error:
            raise self._failed("read", path, error) from error

    def _failed(self, what: str, path: str, error: OSError) -> StoreUnavailableError:
        """StoreGone if the directory has lost its name, else StoreUnavailableError."""
        if not self._has_its_name():
            return self._gone(path)
        return _unavailable(what, str(self._root / path), error)


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Which file or directory it is, whatever its name."""
    return status.st_dev, status.st_ino


def make_directory(path: str) -> None:
    """Makes a directory and what is missing above it; all that was made is durable then.

    The name of the directory itself is made durable even if it is there already: whoever made it
    may have crashed before it was.
    """
    parent = os.path.dirname(path)
    if not os.path.isdir(path):
        if not os.path.isdir(parent):
            make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o777)
    elif not os.access(parent, os.R_OK):
        return  # made by somebody else, for us
    sync_directory(parent)


def sync_directory(path: str) -> None:
    """Makes the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(what: str, path: str, error: OSError) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the store could not {what} {path}: {error}; nothing was done", path=path
    )
