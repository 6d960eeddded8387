"""The files of a write-ahead log, on the gateway's own disk. A protocol, so that tests can lose power."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Protocol

from mainstem.errors import StoreUnavailableError


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
        """A new file with all its content, durable when this returns."""
        ...

    def cut(self, name: str, size_bytes: int) -> None:
        """Cuts a file to its first `size_bytes`, durably."""
        ...

    def delete(self, name: str) -> None: ...


class LocalWalFiles:
    """A local directory, made if need be, for one process at a time.

    Args:
        durable: False: leave it to the operating system when to write (`durability = os`).

    Raises:
        StoreUnavailableError: The directory cannot be used.
        WalInUse: Another process has it.
    """

    def __init__(self, directory: str | os.PathLike[str], *, durable: bool = True) -> None:
        self._directory = Path(directory).absolute()
        self._durable = durable
        self._lock = -1
        try:
            if not self._directory.is_dir():
                self._directory.mkdir(parents=True, exist_ok=True)
                self._sync_directory(self._directory.parent)
            self._lock = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        return str(self._directory)

    def names(self) -> list[str]:
        return sorted(path.name for path in self._directory.iterdir() if path.name != ".lock")

    def read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()

    def create(self, name: str) -> WalFile:
        fd = os.open(
            self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
        )
        try:
            self._sync_directory(self._directory)
        except OSError:
            os.close(fd)
            raise
        return _LocalWalFile(fd, durable=self._durable)

    def write_whole(self, name: str, data: bytes) -> None:
        file = self.create(name)
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()

    def cut(self, name: str, size_bytes: int) -> None:
        with open(self._directory / name, "r+b") as file:
            file.truncate(size_bytes)
            if self._durable:
                os.fsync(file.fileno())

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._directory / name).unlink()

    def close(self) -> None:
        """Lets another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _sync_directory(self, directory: Path) -> None:
        if not self._durable:
            return
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


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
