"""Space that is set aside in a warehouse, for the commits that free some when its disk is full.

A commit that deletes a topic, or moves a log start, needs a few kilobytes itself. They are written
into files that have their space already, so that nobody else can be first to take what is released.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from typing import Final

import pyarrow as pa

from mainstem.delta_log.store.disk import (
    DIRECTORY_MODE,
    FILE_MODE,
    TEMPORARY_SUFFIX,
    Disk,
    sync_directory,
    write_all,
)
from mainstem.limits import KIB

#: Files of the reserve, and how large each is: a deletion needs one. What a commit leaves of its
#: last file is free for everybody, so they are small.
_FILE_COUNT: Final = 64
_FILE_BYTES: Final = 8 * KIB


def is_full(error: OSError) -> bool:
    """Whether it says that there is no space, or none for this user."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The reserve in `directory`, which need not be there: then it is empty."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def fill(self) -> None:
        """Takes what is missing from the free space. Raises OSError where there is too little."""
        os.makedirs(self._directory, DIRECTORY_MODE, exist_ok=True)
        names = self._names()
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):  # of a process that was killed
                self._delete(name)
        for number in range(_FILE_COUNT):
            if f"{number}" in names:
                continue
            temporary = os.path.join(self._directory, f"{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
                try:
                    # No zeros: a file system may keep no space for those.
                    write_all(fd, memoryview(os.urandom(_FILE_BYTES)))
                    os.fsync(fd)
                finally:
                    os.close(fd)
                os.rename(temporary, os.path.join(self._directory, f"{number}"))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        sync_directory(self._directory)

    def write(self, disk: Disk, path: str, data: bytes | pa.Buffer) -> None:
        """Makes a file with a synced content on a disk that is full. Raises OSError."""
        if len(data) > _FILE_BYTES:
            self._write_large(disk, path, data)
            return
        taken = self._take()
        if taken is None:
            raise _used_up()
        try:
            fd = os.open(taken, os.O_WRONLY)
            try:
                write_all(fd, memoryview(data))
                os.ftruncate(fd, len(data))
                os.fsync(fd)
            finally:
                os.close(fd)
            disk.take_over(taken, path)
        except OSError:
            # On a file system that never writes in place, or on another one.
            with contextlib.suppress(OSError):
                os.unlink(taken)
            disk.write(path, data)

    def _write_large(self, disk: Disk, path: str, data: bytes | pa.Buffer) -> None:
        """Releases space until the file fits, or there is none: others may be first to take it."""
        while self.release(len(data) // _FILE_BYTES + 1):
            try:
                disk.write(path, data)
            except OSError as error:
                if not is_full(error):
                    raise
            else:
                return
        raise _used_up()

    def release(self, count: int = 1) -> bool:
        """Gives space back, so that a name can be given; whether there was some."""
        taken = [place for _ in range(count) if (place := self._take()) is not None]
        for place in taken:
            with contextlib.suppress(OSError):
                os.unlink(place)
        return bool(taken)

    def _take(self) -> str | None:
        """A file of the reserve that is the caller's from now on."""
        for name in self._names():
            if name.endswith(TEMPORARY_SUFFIX):
                continue
            taken = os.path.join(self._directory, f"{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
            with contextlib.suppress(OSError):  # another process has taken it
                os.rename(os.path.join(self._directory, name), taken)
                return taken
        return None

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._directory))
        except OSError:
            return []

    def _delete(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, name))


def _used_up() -> OSError:
    return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}, and the reserve is used up")
