"""The files of a write-ahead log, on the gateway's own disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mainstem.delta_log.store import Disk, make_directory, read_at
from mainstem.delta_log.wal.place import WalInUse, WalLost, WalSealed, WalSegments
from mainstem.delta_log.wal.segments import Segments, WalFile, is_segment
from mainstem.errors import StoreUnavailableError

_LOCK: Final = ".lock"

#: In the lock file: the log is sealed by who follows. It is an owner like any other to a version
#: that does not know the word: the log is not its own any more.
_SEAL: Final = b"sealed "

#: What is read of the lock file: an id, a host, and a process.
_OWNER_BYTES_MAX: Final = 1_000

#: What our interrupted writes leave. What other people keep in the directory is theirs.
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp|.+\.orphans\.tmp")

#: A link is followed by nobody, and something like a pipe holds nobody up.
_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK


class _LogDirectory:
    """What the directory of a log is to its owner, and to who has sealed it."""

    def __init__(self, directory: str | os.PathLike[str], *, durable: bool) -> None:
        self._directory = str(Path(directory).absolute())
        self._durable = durable
        self._fd = self._lock = -1

    @property
    def uri(self) -> str:
        return self._directory

    def _open(self, lock_flags: int) -> None:
        self._fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        self._disk = Disk(self._fd, ("",))
        self._lock = self._disk.open(_LOCK, lock_flags | _SAFELY)

    def _write_owner(self, owner: bytes) -> None:
        # Over what is there: that needs no room on a disk that is full.
        os.pwrite(self._lock, owner, 0)
        os.ftruncate(self._lock, len(owner))
        # Or a network file system might bring it to its server later, over the name of another.
        os.fsync(self._lock)

    def _owner_now(self) -> bytes:
        """What the lock file says, for all who come by its path.

        Raises:
            WalLost: Another directory is there by now: a copy, for example.
            OSError: It cannot be read, or is not there now. Once it is there again, it says whether
                somebody has been at it meanwhile.
        """
        # By its path, and opened each time: a network file system then asks its server.
        try:
            fd = os.open(os.path.join(self._directory, _LOCK), os.O_RDONLY | _SAFELY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise OSError(
                errno.ENOENT, "its directory is not there: moved, removed, or not mounted"
            ) from error
        try:
            if not os.path.samestat(os.fstat(fd), os.fstat(self._lock)):
                raise WalLost("another directory is in the place of its own")
            return read_at(fd, 0, _OWNER_BYTES_MAX)
        finally:
            os.close(fd)

    def names(self) -> list[str]:
        return sorted(
            name
            for name in os.listdir(self._fd)
            if name != _LOCK and not _TEMPORARY.fullmatch(name)
        )

    def read(self, name: str) -> bytes:
        fd = self._disk.open(name, os.O_RDONLY | _SAFELY)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a file", name)
            return read_at(fd, 0, status.st_size + 1)
        finally:
            os.close(fd)

    def create(self, name: str) -> WalFile:
        with contextlib.ExitStack() as stack:
            names = stack.enter_context(self._disk.names("")) if self._durable else None
            fd = self._disk.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
            try:
                if names is not None:
                    names.sync()
            except BaseException:
                os.close(fd)
                self._disk.discard(name)
                raise
        return _LocalWalFile(fd, durable=self._durable)

    def write_whole(self, name: str, data: bytes) -> None:
        with self._disk.names("") as names:
            self._disk.replace(name, data)
            names.sync(name)

    def cut(self, name: str, size_bytes: int) -> None:
        # Durably in any case: a torn frame must not come back in a segment that is not the last.
        fd = self._disk.open(name, os.O_WRONLY | _SAFELY)
        try:
            _cut(fd, size_bytes)
        finally:
            os.close(fd)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def close(self) -> None:
        """Lets another process have the directory."""
        for fd in (self._lock, self._fd):
            if fd >= 0:
                os.close(fd)
        self._lock = self._fd = -1


class LocalWalFiles(_LogDirectory):
    """The log of this gateway in a local directory, made if need be, for one process at a time.

    A lock keeps other processes out. Where it does not, as on some network file systems, the last
    one to come has written its name into the lock file: the others find that in `check_owned`. So
    does the owner of a log that somebody has sealed (`SealedWalFiles`).

    Args:
        durable: False: leave it to the operating system when to write segments
            (`durability = os`).

    Raises:
        StoreUnavailableError: The directory cannot be used.
        WalInUse: Another process has it.
    """

    def __init__(self, directory: str | os.PathLike[str], *, durable: bool = True) -> None:
        super().__init__(directory, durable=durable)
        self._owner = _new_owner()
        try:
            make_directory(self._directory)
            self._open(os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write_owner(self._owner)
            for name in os.listdir(self._fd):
                if _TEMPORARY.fullmatch(name):
                    self._disk.discard(name)
        except BlockingIOError as error:
            owner = self._owner_found()
            self.close()
            raise WalInUse(
                f"the write-ahead log {self._directory} belongs to another gateway, which "
                f"is running{owner}; give this one another gateway.id",
                directory=self._directory,
            ) from error
        except (OSError, ValueError) as error:
            self.close()
            raise StoreUnavailableError(
                f"the write-ahead log {self._directory} cannot be used: {error}",
                directory=self._directory,
            ) from error

    @property
    def is_own(self) -> bool:
        return True

    def segments(self, segment_bytes: int) -> WalSegments:
        return Segments(self, segment_bytes)

    def check_owned(self) -> None:
        """Raises WalLost if the directory is not this log's any more, WalSealed if its owner may go
        on with it, OSError if nobody knows, since it is not there."""
        found = self._owner_now()
        if found.startswith(_SEAL):
            raise WalSealed(f"another gateway has sealed it{_owner_text(found)}")
        if found != self._owner:
            raise WalLost(f"another gateway has taken it{_owner_text(found)}")

    def own_again(self) -> None:
        """Goes on with a log that was sealed. What was not checked before the seal counts as not
        written."""
        self._owner = _new_owner()
        self._write_owner(self._owner)
        self.check_owned()

    def _owner_found(self) -> str:
        with contextlib.suppress(OSError):
            return _owner_text(read_at(self._lock, 0, _OWNER_BYTES_MAX))
        return ""


class SealedWalFiles(_LogDirectory):
    """The directory of another gateway's log, which is sealed when this is made: what its owner did
    not check before counts as not written, and is acknowledged to nobody. So what is read
    afterwards is all that there is. The owner may be alive, and go on behind the seal: `is_sealed`.

    Args:
        gateway_id: Who seals it, for messages.

    Raises:
        FileNotFoundError: There is no such directory.
        OSError: It cannot be sealed.
    """

    def __init__(self, directory: str | os.PathLike[str], gateway_id: str) -> None:
        super().__init__(directory, durable=True)
        self._seal = _SEAL + _new_owner() + gateway_id.encode()
        try:
            self._open(os.O_RDWR | os.O_CREAT)
            self._write_owner(self._seal)
        except BaseException:
            self.close()
            raise

    @property
    def is_own(self) -> bool:
        return False

    def segments(self, segment_bytes: int) -> WalSegments:
        return Segments(self, segment_bytes)

    @property
    def is_sealed(self) -> bool:
        """Whether nobody has written anything that counts since."""
        try:
            return self._owner_now() == self._seal
        except (OSError, WalLost):
            return False

    def delete_segments(self, names: Sequence[str]) -> bool:
        """Not where the owner runs on this machine, or has gone on with the log."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            if not self.is_sealed:
                return False
            for name in names:
                self.delete(name)
            return True
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def check_owned(self) -> None:
        raise WalLost("it is another gateway's")

    def own_again(self) -> None:
        raise WalLost("it is another gateway's")


class LocalWals:
    """A directory with one for each gateway."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def seal(self, gateway_id: str, sealer_id: str) -> SealedWalFiles | None:
        try:
            return SealedWalFiles(self._directory / gateway_id, sealer_id)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def with_segments(self, but: set[str]) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        found: list[str] = []
        for name in names:
            if name in but or name.startswith("."):
                continue
            with contextlib.suppress(OSError):  # another one has removed it, or it is a file
                if any(map(is_segment, os.listdir(self._directory / name))):
                    found.append(name)
        return found


def _new_owner() -> bytes:
    return f"{uuid.uuid4().hex} {socket.gethostname()} {os.getpid()}\n".encode()


def _owner_text(found: bytes) -> str:
    """For messages: who has written its name into the lock file."""
    parts = found.removeprefix(_SEAL).decode(errors="replace").split()
    return f" (process {parts[2]} on {parts[1]})" if len(parts) >= 3 else ""


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
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the segment was removed while it was in use")

    def cut(self, size_bytes: int) -> None:
        _cut(self._fd, size_bytes)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _cut(fd: int, size_bytes: int) -> None:
    # In two steps, so that there is something new to sync: after a sync that failed another one may
    # say yes to what was dropped.
    os.ftruncate(fd, size_bytes + 1)
    os.ftruncate(fd, size_bytes)
    os.fsync(fd)
