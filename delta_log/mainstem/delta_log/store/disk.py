"""Files and names that survive a loss of power, in a directory and below it. Raises OSError.

**A sync that failed is not trusted when it is repeated.** After an error the kernel may have
dropped what it could not write, and tells of it once: the next sync, through whichever descriptor,
reports success. So a file whose sync failed is written again under a new name, and a name whose
sync failed is given again, to a fresh copy, before it counts as durable.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import uuid
from typing import Final, Self

import pyarrow as pa

from mainstem.delta_log.store.random_access import read_at
from mainstem.limits import MIB

#: How files are called that have no name of their own yet, or no more.
TEMPORARY_SUFFIX: Final = ".tmp"

#: Which file or directory it is, whatever its name.
Identity = tuple[int, int]


def identity(status: os.stat_result) -> Identity:
    """The identity of what a stat is about."""
    return status.st_dev, status.st_ino


class _FailedSyncs:
    """The syncs of directories that failed in this process, by whichever store.

    The kernel tells of an error once, so those who sync the same directory have to tell each other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Identity, int] = {}
        self._doubtful: dict[Identity, set[str]] = {}

    def count(self, directory: Identity) -> int:
        with self._lock:
            return self._counts.get(directory, 0)

    def doubtful(self, directory: Identity) -> list[str]:
        """The names of files that were put there and may not be durable."""
        with self._lock:
            return sorted(self._doubtful.get(directory, ()))

    def failed(self, directory: Identity, name: str | None) -> None:
        with self._lock:
            self._counts[directory] = self._counts.get(directory, 0) + 1
            if name is not None:
                self._doubtful.setdefault(directory, set()).add(name)

    def settled(self, directory: Identity, count: int, names: list[str]) -> bool:
        """Takes `names` for durable, unless a sync failed after the count was `count`."""
        with self._lock:
            if self._counts.get(directory, 0) != count:
                return False
            self._doubtful.get(directory, set()).difference_update(names)
            return True


_failed_syncs = _FailedSyncs()


#: The modes of what is made: the group may read, and nobody else. The umask may take more away.
FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750

#: Of what is for the owner alone.
_PRIVATE_MODE: Final = 0o600


class Disk:
    """The directory that `fd` is open on. Paths are relative to it. `fd` stays the caller's.

    Args:
        private: How the paths of files begin that are for their owner alone.
    """

    def __init__(self, fd: int, private: tuple[str, ...] = ()) -> None:
        self._fd = fd
        self._private = private
        #: Directories whose own names are known to be durable, up to the root.
        self._named_durably: set[str] = set()

    def open(self, path: str, flags: int = os.O_RDONLY) -> int:
        mode = _PRIVATE_MODE if path.startswith(self._private) else FILE_MODE
        return os.open(path, flags, mode, dir_fd=self._fd)

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        """Makes a file with a synced content; directories as they are needed.

        Leaves nothing where it fails. Raises FileExistsError.
        """
        try:
            fd = self._open_new(path)
        except FileNotFoundError:
            self.make_directory(os.path.dirname(path))
            fd = self._open_new(path)
        try:
            try:
                write_all(fd, memoryview(data))
                os.fsync(fd)
            finally:
                os.close(fd)
        except BaseException:
            self.discard(path)
            raise

    def replace(self, path: str, data: bytes | pa.Buffer) -> None:
        """Gives the name to a new file with a synced content, in one step."""
        temporary = self.temporary_path(path)
        self.write(temporary, data)
        self._rename_over(temporary, path)

    def copy(self, path: str) -> None:
        """Gives the name to a fresh copy of the file, with a synced content and the same age."""
        temporary = self.temporary_path(path)
        source = self.open(path)
        try:
            status = os.fstat(source)
            target = self._open_new(temporary)
            try:
                try:
                    for start in range(0, status.st_size, MIB):
                        write_all(target, memoryview(read_at(source, start, MIB)))
                    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
                    os.fsync(target)
                finally:
                    os.close(target)
            except BaseException:
                self.discard(temporary)
                raise
        finally:
            os.close(source)
        self._rename_over(temporary, path)

    def link(self, path: str, new_path: str) -> None:
        """A second name for a file. Raises FileExistsError."""
        os.link(path, new_path, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def take_over(self, source: str, path: str) -> None:
        """Moves a file from elsewhere, an absolute path on the same file system, to `path`."""
        os.rename(source, path, dst_dir_fd=self._fd)

    def discard(self, path: str) -> None:
        """Removes a file that nobody needs, as well as it can be done."""
        for _ in range(2):
            try:
                os.unlink(path, dir_fd=self._fd)
            except FileNotFoundError:
                return
            except OSError:
                continue  # once more, then it is left to a sweep
            return

    def names(self, directory: str) -> Names:
        """To be taken before a name in the directory is given, so that it can be made durable."""
        return Names(self, directory)

    def make_directory(self, directory: str) -> None:
        """Makes it and what is missing above it; all names are durable then."""
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the store's directory was removed")
        parent = ""
        for part in filter(None, directory.split("/")):
            child = os.path.join(parent, part)
            with self.names(parent) as names:
                try:
                    os.mkdir(child, DIRECTORY_MODE, dir_fd=self._fd)
                    self._named_durably.discard(child)
                    is_new = True
                except FileExistsError:
                    is_new = False
                try:
                    self.name_durably(child, names)
                except OSError:
                    if is_new:  # so that it is made, and named, once more
                        with contextlib.suppress(OSError):
                            os.rmdir(child, dir_fd=self._fd)
                    raise
            parent = child

    def name_durably(self, directory: str, names: Names | None = None) -> None:
        """Makes the directory's own name durable, and those above it, once.

        The process that made it may have crashed before it was: finding it there is not enough.
        """
        if not directory or directory in self._named_durably:
            return
        if names is not None:
            names.sync()
        else:
            with self.names(os.path.dirname(directory)) as above:
                above.sync()
        self._named_durably.add(directory)

    @staticmethod
    def temporary_path(path: str) -> str:
        """A path beside `path` that nobody else uses, and that listings leave out."""
        return os.path.join(os.path.dirname(path), f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")

    def _open_new(self, path: str) -> int:
        try:
            return self.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:
            self.discard(path)  # on a network file system it may have been made nonetheless
            raise

    def _rename_over(self, temporary: str, path: str) -> None:
        try:
            os.rename(temporary, path, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            self.discard(temporary)
            raise


class Names:
    """The names in a directory, from before one of them is given until it is durable. Close it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._fd = disk.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._identity = identity(os.fstat(self._fd))
        except BaseException:
            os.close(self._fd)
            raise
        self._failed_before = _failed_syncs.count(self._identity)

    def is_doubtful(self, name: str) -> bool:
        """Whether an earlier sync of this name failed."""
        return name in _failed_syncs.doubtful(self._identity)

    def doubt(self, name: str) -> None:
        """The name may be there, and may not be durable."""
        _failed_syncs.failed(self._identity, name)

    def sync(self, name: str | None = None) -> None:
        """Makes the names durable that were given since this was taken, and those before.

        Args:
            name: The file that is to be named again should this fail. None: the caller does not
                leave it there.
        """
        try:
            again = self._name_again()
            os.fsync(self._fd)
            if not _failed_syncs.settled(self._identity, self._failed_before, again):
                # That one has been told of what the kernel dropped; ours may have been among it.
                raise OSError(errno.EIO, "another sync of the directory failed meanwhile")
        except OSError:
            _failed_syncs.failed(self._identity, name)
            raise
        self._disk.name_durably(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def _name_again(self) -> list[str]:
        names = _failed_syncs.doubtful(self._identity)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._disk.copy(os.path.join(self._directory, name))
        return names


def make_directory(path: str) -> None:
    """Makes a directory and what is missing above it; all that was made is durable then.

    The name of the directory itself is made durable even if it is there already: the process that
    made it may have crashed before it was.
    """
    parent = os.path.dirname(path)
    is_new = False
    if not os.path.isdir(path):
        if not os.path.isdir(parent):
            make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, DIRECTORY_MODE)
            is_new = True
    elif not os.access(parent, os.R_OK):
        return  # made by somebody else, for us
    try:
        sync_directory(parent)
    except OSError:
        if is_new:  # so that it is made, and named, once more
            with contextlib.suppress(OSError):
                os.rmdir(path)
        raise


def sync_directory(path: str) -> None:
    """Makes the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, view: memoryview) -> None:
    """Writes all of it where the descriptor is."""
    while view.nbytes:
        view = view[os.write(fd, view) :]
