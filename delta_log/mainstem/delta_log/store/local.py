"""A `Store` in a directory of a local file system.

`put_if_absent` writes a temporary file, syncs it, gives it its final name with `link`, which fails
when the name exists, and syncs the directory. Files are reached through a descriptor of the root
directory, so that a store that is bound to a removed directory cannot write into a new one of the
same name; and a write that went into a directory that has just lost its name is reported as
StoreGone, never as done.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa

from mainstem.delta_log.store.disk import (
    TEMPORARY_SUFFIX,
    Disk,
    Names,
    identity,
    make_directory,
)
from mainstem.delta_log.store.object_store import (
    AlreadyExists,
    NotFound,
    ObjectInfo,
    PutOutcomeUnknown,
    StoreGone,
)
from mainstem.delta_log.store.random_access import open_descriptor, read_at
from mainstem.delta_log.store.reserve import Reserve, is_full
from mainstem.errors import StoreUnavailableError

_TRASH = ".trash"
_LOCK = ".remove-lock"
_RESERVE = ".reserve"

#: What a table's directory has, for those that lie where a link leads to.
_LOG = "_delta_log"
_PARTITION = re.compile(r"partition=\d+")
_DATA_FILE = re.compile(r"\.(parquet|tmp)$")

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
        reserve: Of the warehouse that `root` lies in. Default: its own.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        create: bool = True,
        reserve: Reserve | None = None,
    ) -> None:
        self._root = Path(root).absolute()
        self._reserve = reserve or Reserve(str(self._root / _RESERVE))
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        try:
            if create:
                make_directory(str(self._root))
            self._fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._identity = identity(os.fstat(self._fd))
            except BaseException:
                os.close(self._fd)
                raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"there is no directory {self._root}") from error
        except OSError as error:
            raise _unavailable("open the directory", str(self._root), error) from error
        self._disk = Disk(self._fd)

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def storage_options(self) -> Mapping[str, str]:
        return {}

    @_uses_root
    def read(self, path: str) -> bytes:
        with self._reading(path):
            fd = self._disk.open(path)
            try:
                # One more than there is: the end, as it is now, is where nothing comes.
                return read_at(fd, 0, os.fstat(fd).st_size + 1)
            finally:
                os.close(fd)

    @_uses_root
    def read_range(self, path: str, start: int, length: int) -> bytes:
        with self._reading(path):
            fd = self._disk.open(path)
            try:
                return read_at(fd, start, length)
            finally:
                os.close(fd)

    @_uses_root
    def open(self, path: str) -> pa.NativeFile:
        with self._reading(path):
            return open_descriptor(self._disk.open(path))

    @_uses_root
    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        is_new = False
        try:
            with self._names_of(path) as names:
                try:
                    self._disk.write(path, data)
                    is_new = True
                except FileExistsError:
                    self._disk.replace(path, data)
                names.sync()
            self._check_not_gone(path)
        except OSError as error:
            if is_new:
                self._disk.discard(path)
            raise self._failed("write", path, error) from error

    @_uses_root
    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        temporary = self._disk.temporary_path(path)
        try:
            try:
                self._disk.write(temporary, data)
            except OSError as error:
                if not (frees_space and is_full(error)):
                    raise
                self._reserve.write(self._disk, temporary, data)
            names = self._disk.names(os.path.dirname(path))
        except OSError as error:
            self._disk.discard(temporary)
            raise self._failed("write", path, error) from error
        with names:
            try:
                try:
                    self._disk.link(temporary, path)
                except OSError as error:
                    # The directory itself may have to grow for the name.
                    if not (frees_space and is_full(error) and self._reserve.release()):
                        raise
                    self._disk.link(temporary, path)
            except FileExistsError as error:
                raise AlreadyExists(path) from error
            except FileNotFoundError as error:
                raise self._failed("link", path, error) from error
            except OSError as error:
                names.doubt(os.path.basename(path))
                raise PutOutcomeUnknown(f"link of {self._root / path} failed: {error}") from error
            finally:
                self._disk.discard(temporary)
            try:
                names.sync(os.path.basename(path))
                # A removed directory can still be written to while its files are being deleted.
                self._check_not_gone(path)
            except OSError as error:
                raise PutOutcomeUnknown(
                    f"{self._root / path} may be lost with the next loss of power: {error}"
                ) from error

    @_uses_root
    def make_durable(self, path: str) -> None:
        name = os.path.basename(path)
        with self._reading(path), self._disk.names(os.path.dirname(path)) as names:
            fd = self._disk.open(path)
            try:
                if not names.is_doubtful(name):
                    os.fsync(fd)
            except OSError:
                names.doubt(name)
                raise
            finally:
                os.close(fd)
            names.sync(name)

    @_uses_root
    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        found = []
        for name, status in self._entries(directory):
            if (
                name > start_after
                and stat.S_ISREG(status.st_mode)
                and not name.endswith(TEMPORARY_SUFFIX)
            ):
                found.append(ObjectInfo(name, status.st_size, status.st_mtime_ns // 1_000_000))
        found.sort(key=lambda info: info.name)
        return found

    @_uses_root
    def list_directories(self, directory: str) -> list[str]:
        return sorted(
            name
            for name, status in self._entries(directory)
            if stat.S_ISDIR(status.st_mode)
            or (stat.S_ISLNK(status.st_mode) and self._leads_to_directory(directory, name))
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
            if (
                not name.endswith(TEMPORARY_SUFFIX)
                or status.st_mtime_ns // 1_000_000 > not_after_ms
            ):
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
            self._disk.make_directory(_TRASH)
            with self._removing():
                if not bound._is(path, self):
                    return False
                os.rename(path, trash, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError as error:
            raise self._failed("remove the directory", path, error) from error
        # It is gone. Should it come back with a loss of power, its log says that it was deleted.
        for changed in (os.path.dirname(path), _TRASH):
            with contextlib.suppress(OSError), self._disk.names(changed) as names:
                names.sync()
        # What interrupted removals left goes too. The directory of the trash stays: others may be
        # using it.
        with contextlib.suppress(StoreUnavailableError):
            for name, _ in list(self._entries(_TRASH)):
                _remove_table(str(self._root / _TRASH / name))
        return True

    @_uses_root
    def bind(self, directory: str, *, create: bool = False) -> Self:
        if create:
            try:
                self._disk.make_directory(directory)
            except FileNotFoundError as error:
                self.check_bound()
                # Made, and removed by somebody else before its name was synced.
                raise NotFound(f"the directory {self._root / directory} was removed") from error
            except OSError as error:
                raise self._failed("make the directory", directory, error) from error
        return type(self)(self._root / directory, create=False, reserve=self._reserve)

    @_uses_root
    def check_bound(self) -> None:
        try:
            self._check_not_gone("")
        except OSError as error:
            raise _unavailable("look for", str(self._root), error) from error

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = self._users == 0
        if idle:
            os.close(self._fd)

    @_uses_root
    def fill_reserve(self) -> None:
        try:
            self._reserve.fill()
            # A removal must not need space for these.
            self._disk.make_directory(_TRASH)
            with self._removing():
                pass
        except OSError as error:
            raise self._failed("set space aside in", _RESERVE, error) from error

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
        """Whether the directory that was opened is still the one of that name.

        Raises:
            OSError: Nobody can tell. A look that fails is no proof.
        """
        try:
            return identity(os.stat(self._root)) == self._identity
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _is(self, path: str, parent: Self) -> bool:
        """Whether the directory that was opened is the one that `parent` now has at `path`."""
        assert not self._closed
        try:
            return identity(os.stat(path, dir_fd=parent._fd)) == self._identity
        except FileNotFoundError:
            return False

    def _check_not_gone(self, path: str) -> None:
        """Raises StoreGone if the directory has lost its name, OSError if nobody can tell."""
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

    def _names_of(self, path: str) -> Names:
        """The names of the directory that `path` lies in, which is made if need be."""
        directory = os.path.dirname(path)
        try:
            return self._disk.names(directory)
        except FileNotFoundError:
            self._disk.make_directory(directory)
            return self._disk.names(directory)

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

    def _leads_to_directory(self, directory: str, name: str) -> bool:
        """Whether a link leads to a directory; not if it leads nowhere now."""
        try:
            status = os.stat(os.path.join(directory, name), dir_fd=self._fd)
        except OSError:
            return False
        return stat.S_ISDIR(status.st_mode)

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
        with contextlib.suppress(OSError):
            if not self._has_its_name():
                return self._gone(path)
        return _unavailable(what, str(self._root / path), error)


def _remove_table(path: str) -> None:
    """Removes a table's directory as well as it can be done, and the data where links lead to.

    An operator who keeps a topic, or one of its partitions, on another disk wants that disk freed.
    What does not look like a part of the table is left alone there.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            inner = os.path.join(path, name)
            if os.path.islink(inner) and _PARTITION.fullmatch(name):
                _remove_linked(inner, _DATA_FILE)
            elif os.path.islink(path) and (name == _LOG or _PARTITION.fullmatch(name)):
                shutil.rmtree(inner, ignore_errors=True)
    if os.path.islink(path):
        _remove_linked(path, None)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _remove_linked(link: str, files: re.Pattern[str] | None) -> None:
    """Removes a link, its files of that name where it leads to, and that directory if it is empty
    then."""
    target = os.path.realpath(link)
    with contextlib.suppress(OSError):
        for name in os.listdir(target) if files is not None else ():
            if files is not None and files.search(name):
                os.unlink(os.path.join(target, name))
        os.rmdir(target)
    with contextlib.suppress(OSError):
        os.unlink(link)


def _mount_point(path: str) -> str:
    """Where the file system is mounted that has a file."""
    while path != "/" and not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _unavailable(what: str, path: str, error: OSError) -> StoreUnavailableError:
    hint = ""
    if is_full(error):
        hint = (
            f". The file system at {_mount_point(path)} is full: delete or trim a topic (`mainstem "
            "topic delete`, `trim-prefix`), or run `mainstem job run retention` and `vacuum`, for "
            "which no gateway has to run"
        )
    return StoreUnavailableError(
        f"the store could not {what} {path}: {error}; nothing was done{hint}", path=path
    )
