"""A warehouse in a directory of a local file system.

`put_if_absent` writes a temporary file, syncs it, gives it its final name with `link`, which fails
when the name exists, and syncs the directory. Files are reached through a descriptor of the
warehouse's directory; a write that went into one that has just lost its name, as it was moved away
or another was mounted over it, is not reported as done.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import stat
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

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
    StoreFull,
)
from mainstem.delta_log.store.random_access import open_descriptor, read_at
from mainstem.delta_log.store.reserve import Reserve, is_full
from mainstem.delta_log.store.store_check import check_put_if_absent
from mainstem.errors import StoreUnavailableError

_RESERVE = ".reserve"

#: What only gateways and their jobs may read: with the first, producer ids can be made up, and
#: with the second, passwords be tried.
_PRIVATE = ("system/producer_ids/", "system/users/")

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
        self._reserve = Reserve(str(self._root / _RESERVE))
        self._lock = threading.Lock()
        self._users = 0
        self._failures: Counter[str] = Counter()
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
        except NotADirectoryError as error:
            raise NotFound(f"{_first_file(self._root)} is a file, not a directory") from error
        except FileNotFoundError as error:
            raise NotFound(f"there is no directory {self._root}") from error
        except OSError as error:
            raise _unavailable("open the directory", str(self._root), error) from error
        self._disk = Disk(self._fd, _PRIVATE)

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def storage_options(self) -> Mapping[str, str]:
        return {}

    @property
    def wal_directory(self) -> Path:
        return self._root / "wal"

    @property
    def is_far(self) -> bool:
        return False

    @property
    def failures(self) -> Mapping[str, int]:
        return dict(self._failures)

    @_uses_root
    def free_bytes(self) -> int:
        try:
            status = os.fstatvfs(self._fd)
        except OSError as error:
            raise self._failed("ask for the free space of", "", error) from error
        return status.f_bavail * status.f_frsize

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

    def will_open(self, paths: Iterable[str]) -> None:
        pass  # it is near

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
            self._check_in_place()
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
                self._failures[_name_of(error)] += 1
                raise PutOutcomeUnknown(f"link of {self._root / path} failed: {error}") from error
            finally:
                self._disk.discard(temporary)
            try:
                names.sync(os.path.basename(path))
                # A directory that was moved away can still be written to.
                self._check_in_place()
            except OSError as error:
                self._failures[_name_of(error)] += 1
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
            self._check_in_place()

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

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

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
        except OSError as error:
            raise self._failed("set space aside in", _RESERVE, error) from error

    @_uses_root
    def self_check(self) -> None:
        name = f".check-{uuid.uuid4().hex}"
        try:
            check_put_if_absent(self, name, "link()", "use another file system")
        except PutOutcomeUnknown as error:
            if isinstance(error.__cause__, OSError) and is_full(error.__cause__):
                raise _unavailable("link", str(self._root / name), error.__cause__) from error
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

    def _check_in_place(self) -> None:
        """Raises OSError if the directory has lost its name, or nobody can tell."""
        if not self._has_its_name():
            raise OSError(
                errno.ESTALE, "the directory was moved, or another is mounted over it; put it back"
            )

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
        self._failures[_name_of(error)] += 1
        return _unavailable(what, str(self._root / path), error)


def _first_file(path: Path) -> Path:
    """What stands in the way of a directory of that name."""
    return next((one for one in reversed((path, *path.parents)) if one.is_file()), path)


def _mount_point(path: str) -> str:
    """Where the file system is mounted that has a file."""
    while path != "/" and not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")


def _unavailable(what: str, path: str, error: OSError) -> StoreUnavailableError:
    said = f"the store could not {what} {path}: {error}; nothing was done"
    if error.errno == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        said += (
            f". This process may have {soft} files and connections open: raise that with "
            "`ulimit -n`, or LimitNOFILE of its systemd unit"
        )
    if not is_full(error):
        return StoreUnavailableError(said, path=path, errno=_name_of(error))
    return StoreFull(
        f"{said}. The file system at {_mount_point(path)} is full: delete or trim a topic "
        "(`mainstem topic delete`, `trim-prefix`), or run `mainstem job run retention` and "
        "`vacuum`, for which no gateway has to run",
        path=path,
        errno=_name_of(error),
    )
