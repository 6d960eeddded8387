"""The files of a write-ahead log, on the gateway's own disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Protocol

from mainstem.delta_log.store import make_directory, sync_directory
from mainstem.errors import StoreUnavailableError

_LOCK = ".lock"
_TEMPORARY_SUFFIX = ".tmp"


class WalFile(Protocol):
    """A segment that is being written."""

    def append(self, data: bytes) -> None:
        """Writes at the end. Not yet durable."""
        ...

    def sync(self) -> None:
        """Makes what was appended durable."""
        ...

    def close(self) -> None: ...


class WalFiles(Protocol):
    """The directory of one write-ahead log. Every call blocks; failures are OSError."""

    @property
    def uri(self) -> str:
        """Where it is, for messages."""
        ...

    def names(self) -> list[str]:
        """The names of its files, sorted."""
        ...

    def read(self, name: str) -> bytes: ...

    def create(self, name: str) -> WalFile:
        """A new file, whose name is durable when this returns."""
        ...

    def write_whole(self, name: str, data: bytes) -> None:
        """A new file: there with all its content, and durable when this returns, or not at all."""
        ...

    def cut(self, name: str, size_bytes: int) -> None:
        """Cuts a file to its first `size_bytes`, durably."""
        ...

    def delete(self, name: str) -> None:
        """Removes a file. It may be there again after a loss of power."""
        ...


class LocalWalFiles:
    """A local directory, made if need be, for one process at a time.

    Args:
        durable: False: leave it to the operating system when to write (`durability = os`).

    Raises:
        StoreUnavailableError: The directory cannot be used.
        WalInUse: Another process has it.
    """

    def __init__(self, directory: str | os.PathLike[str], *, durable: bool = True) -> None:
        self._directory = str(Path(directory).absolute())
        self._durable = durable
        self._lock = -1
        try:
            make_directory(self._directory)
            self._lock = os.open(self._path(_LOCK), os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(self._directory):
                if name.endswith(_TEMPORARY_SUFFIX):  # of a write that was interrupted
                    os.unlink(self._path(name))
        except BlockingIOError as error:
            self.close()
            raise WalInUse(
                f"the write-ahead log {self._directory} belongs to a gateway that runs; "
                "give this one another gateway.id",
                directory=self._directory,
            ) from error
        except OSError as error:
            self.close()
            raise StoreUnavailableError(
                f"the write-ahead log {self._directory} cannot be used: {error}",
                directory=self._directory,
            ) from error

    @property
    def uri(self) -> str:
        return self._directory

    def names(self) -> list[str]:
        return sorted(
            name
            for name in os.listdir(self._directory)
            if name != _LOCK and not name.endswith(_TEMPORARY_SUFFIX)
        )

    def read(self, name: str) -> bytes:
        fd = os.open(self._path(name), os.O_RDONLY)
        with open(fd, "rb") as file:
            return file.read()

    def create(self, name: str) -> WalFile:
        fd = self._open_new(name)
        try:
            self._sync_directory()
        except BaseException:
            os.close(fd)
            raise
        return _LocalWalFile(fd, durable=self._durable)

    def write_whole(self, name: str, data: bytes) -> None:
        temporary = f"{name}{_TEMPORARY_SUFFIX}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(temporary))
        file = _LocalWalFile(self._open_new(temporary), durable=self._durable)
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()
        os.rename(self._path(temporary), self._path(name))
        self._sync_directory()

    def cut(self, name: str, size_bytes: int) -> None:
        # Durably in any case: a torn frame must not come back in a segment that is not the last.
        fd = os.open(self._path(name), os.O_WRONLY)
        try:
            os.ftruncate(fd, size_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def close(self) -> None:
        """Lets another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _open_new(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        return os.open(self._path(name), flags, 0o644)

    def _sync_directory(self) -> None:
        if self._durable:
            sync_directory(self._directory)


class WalInUse(StoreUnavailableError):
    """Another process has the write-ahead log."""


class _LocalWalFile:
    def __init__(self, fd: int, *, durable: bool) -> None:
        self._fd = fd
        self._durable = durable

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view.nbytes:
            view = view[os.write(self._fd, view) :]

    def sync(self) -> None:
        if self._durable:
            os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
