"""Pieces of immutable objects on a local disk: what was read from far away need not be read again.

The disk may be full, broken or slow: that costs the cache and nothing else. A piece that is not
what was written is not given. Which pieces there are is known in memory; on the disk each is a file
of its own, which needs no sync, as its checksum tells a torn one. They outlive the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar

from mainstem.delta_log.store.random_access import read_at
from mainstem.errors import InvalidConfigError
from mainstem.limits import MIB

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_A = TypeVar("_A")

#: A piece has no more.
PIECE_BYTES_MAX: Final = 4 * MIB

#: Changes with the form of the files: others are not read.
_MAGIC: Final = b"mstemC1\n"
_CHECKSUM_BYTES: Final = 16
_HEAD_BYTES: Final = len(_MAGIC) + _CHECKSUM_BYTES

#: Each piece takes some 200 bytes of memory, and a file. Small ones are not to take all: there are
#: as many as a cache of megabytes would have, but at least this.
_PIECES_MAX_MIN: Final = 100_000

#: What a disk gives to files.
_PAGE_BYTES: Final = 4096

_FILE_NAME: Final = re.compile(r"[0-9a-f]{32}")
_TEMPORARY_NAME: Final = re.compile(r"[0-9a-f]{32}\.tmp")
_LOCK_NAME: Final = "lock"

#: A disk that takes longer is slow: the store would answer sooner.
_ANSWER_S: Final = 1.0

#: Reads at a time. A disk that hangs holds so many threads, and no reader.
_READERS: Final = 8

#: Pieces that wait to be written; more are dropped.
_WRITING_BYTES_MAX: Final = 32 * MIB

#: After a failure the disk is left alone for so long, twice as long each time in a row.
_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 300.0


class DiskCacheInUse(InvalidConfigError):
    """Another process has the directory."""


class Breaker:
    """Whether something that failed is tried again: by one at a time, after growing pauses. Pure;
    times in seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._closed_until = 0.0
        self._is_tried = False

    @property
    def is_fine(self) -> bool:
        """The last attempt did not fail."""
        return not self._failures

    def may_begin(self, now: float) -> bool:
        """Whether to try; the caller then says `succeeded`, `failed` or `given_up`."""
        if not self._failures:
            return True
        if self._is_tried or now < self._closed_until:
            return False
        self._is_tried = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._is_tried = False

    def given_up(self) -> None:
        """It was not tried after all."""
        self._is_tried = False

    def failed(self, now: float) -> None:
        self._closed_until = now + min(_PAUSE_S * 2.0**self._failures, _PAUSE_S_MAX)
        self._failures = min(self._failures + 1, 30)
        self._is_tried = False


@dataclass(frozen=True, slots=True)
class DiskCacheCounts:
    """What a cache has done since it was made.

    Attributes:
        failures: Of the disk, by the system's name of the error; SLOW: no answer in a second;
            DAMAGED: a piece that was not what was written.
        used_bytes: Of all pieces now.
    """

    hits: int
    misses: int
    failures: dict[str, int]
    used_bytes: int


class DiskCache:
    """Pieces of bytes by name, those that were not used for longest going first. From any thread.

    A name stands for the same bytes for ever.

    Args:
        directory: Made if it is not there. What else is in it is left alone.
        bytes_max: Of all files together.
        clock: Monotonic seconds.

    Raises:
        DiskCacheInUse: Another process has it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        bytes_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = os.path.abspath(directory)
        self._bytes_max = bytes_max
        self._pieces_max = max(bytes_max // MIB, _PIECES_MAX_MIN)
        self._clock = clock
        self._lock = threading.Lock()
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._used_bytes = 0
        self._writing_bytes = 0
        self._reading = Breaker()
        self._writing = Breaker()
        self._is_ready = False
        self._closed = False
        self._hits = self._misses = 0
        self._failures: Counter[str] = Counter()
        self._lock_fd: int | None = None
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="disk-cache-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="disk-cache-write")
        beginning = self._writer.submit(self._write, None)
        with contextlib.suppress(TimeoutError):
            try:
                beginning.result(_ANSWER_S)
            except DiskCacheInUse:
                self.close()
                raise

    @property
    def counts(self) -> DiskCacheCounts:
        with self._lock:
            return DiskCacheCounts(self._hits, self._misses, dict(self._failures), self._used_bytes)

    def get(self, name: str) -> bytes | None:
        """The piece; None: it is not here, or cannot be read in time."""
        key = _key(name)
        with self._lock:
            found = (
                self._is_ready
                and key in self._sizes
                and not self._closed
                and self._reading.may_begin(self._clock())
            )
            if not found:
                self._misses += 1
                return None
            self._sizes.move_to_end(key)
        data = self._read_in_time(key)
        with self._lock:
            if data is None:
                self._misses += 1
            else:
                self._hits += 1
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keeps a piece, a little later; if the disk is not too slow for it."""
        assert len(data) <= PIECE_BYTES_MAX
        key = _key(name)
        with self._lock:
            if self._closed or key in self._sizes:
                return
            if self._writing_bytes + len(data) > _WRITING_BYTES_MAX:
                return
            if not self._writing.may_begin(self._clock()):
                return
            self._writing_bytes += len(data)
            self._writer.submit(self._write, (key, data))

    def flush(self, timeout_s: float = 10.0) -> None:
        """Waits until what was put is written. For tests."""
        self._writer.submit(lambda: None).result(timeout_s)

    def close(self) -> None:
        """Nothing more begins; another process may have the directory. What hangs is not waited
        for."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._sizes.clear()
            self._used_bytes = 0
            unlocked = self._writer.submit(self._unlock)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):
            unlocked.result(_ANSWER_S)

    # -- reading ---------------------------------------------------------------------------------

    def _read_in_time(self, key: bytes) -> bytes | None:
        try:
            future = self._readers.submit(self._read, key)
        except RuntimeError:  # closed meanwhile
            return None
        try:
            data = _result(future, _ANSWER_S)
        except FileNotFoundError:
            with self._lock:
                self._reading.given_up()
            self._in_writer(self._forget_missing, key)
            return None
        except OSError as error:
            self._failed(self._reading, "read", error)
            return None
        with self._lock:
            if not self._reading.is_fine:
                log.info("the cache in %s can be read again", self._directory)
            self._reading.succeeded()
        if data is None:
            self._damaged(key)
        return data

    def _read(self, key: bytes) -> bytes | None:
        """The piece; None: it is not what was written."""
        fd = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            content = read_at(fd, 0, _HEAD_BYTES + PIECE_BYTES_MAX)
        finally:
            os.close(fd)
        data = content[_HEAD_BYTES:]
        return data if content[:_HEAD_BYTES] == _head(key, data) else None

    def _damaged(self, key: bytes) -> None:
        self._forget(key)
        with self._lock:
            self._failures["DAMAGED"] += 1
        log.warning(
            "%s is not what was written, and is not used: the disk, or somebody, has changed it",
            self._path(key),
        )
        self._in_writer(self._discard, self._path(key))

    def _forget_missing(self, key: bytes) -> None:
        """Somebody may have cleared the directory; or the piece was evicted, and is there again."""
        if not os.path.lexists(self._path(key)):
            self._forget(key)

    def _in_writer(self, call: Callable[[_A], None], argument: _A) -> None:
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._writer.submit(call, argument)

    def _forget(self, key: bytes) -> None:
        with self._lock:
            self._used_bytes -= self._sizes.pop(key, 0)

    # -- writing, in one thread ------------------------------------------------------------------

    def _write(self, piece: tuple[bytes, bytes] | None) -> None:
        """Writes a piece, when the directory is ready; None: makes it ready."""
        try:
            if not self._is_ready:
                self._prepare()
            if piece is not None and not self._closed:
                self._write_piece(*piece)
        except DiskCacheInUse as error:
            if piece is None:
                raise
            self._failed(self._writing, "be used", OSError(errno.EBUSY, error.message))
        except OSError as error:
            self._failed(self._writing, "be written", error)
        else:
            with self._lock:
                if not self._writing.is_fine:
                    log.info("the cache in %s can be written again", self._directory)
                self._writing.succeeded()
        finally:
            if piece is not None:
                with self._lock:
                    self._writing_bytes -= len(piece[1])

    def _write_piece(self, key: bytes, data: bytes) -> None:
        size = _on_disk(_HEAD_BYTES + len(data))
        with self._lock:
            if key in self._sizes or size > self._bytes_max:
                return
        self._make_room(size, 1)
        path = self._path(key)
        temporary = f"{path}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            fd = os.open(temporary, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd = os.open(temporary, flags, 0o600)
        try:
            with open(fd, "wb", buffering=0) as file:
                for part in (_head(key, data), data):
                    left = memoryview(part)
                    while left:
                        left = left[file.write(left) :]
            os.rename(temporary, path)
        except OSError:
            self._discard(temporary)
            raise
        with self._lock:
            if not self._closed:
                self._sizes[key] = size
                self._used_bytes += size

    def _make_room(self, size: int, count: int) -> None:
        while True:
            with self._lock:
                fits = self._used_bytes + size <= self._bytes_max
                if (fits and len(self._sizes) + count <= self._pieces_max) or not self._sizes:
                    return
                key = next(iter(self._sizes))
            # Its bytes count until it is gone.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(key))
            self._forget(key)

    def _prepare(self) -> None:
        """Takes the directory, and what an earlier process has left in it."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._take_lock()
        found: list[tuple[float, bytes, int]] = []
        for number in range(256):
            try:
                entries = list(os.scandir(os.path.join(self._directory, f"{number:02x}")))
            except FileNotFoundError:
                continue
            for entry in entries:
                if _TEMPORARY_NAME.fullmatch(entry.name):
                    os.unlink(entry.path)
                elif _FILE_NAME.fullmatch(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    size = _on_disk(status.st_size)
                    found.append((status.st_mtime, bytes.fromhex(entry.name), size))
        with self._lock:
            self._sizes.clear()
            self._sizes.update((key, size) for _, key, size in sorted(found))
            self._used_bytes = sum(self._sizes.values())
        self._make_room(0, 0)
        with self._lock:
            self._is_ready = not self._closed

    def _take_lock(self) -> None:
        if self._lock_fd is not None:
            return
        path = os.path.join(self._directory, _LOCK_NAME)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as error:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise DiskCacheInUse(
                f"the cache in {self._directory} is used by another gateway, process {owner}; "
                "give each gateway a fetch.cache.directory of its own",
                name="fetch.cache.directory",
                value=self._directory,
            ) from error
        except BaseException:
            os.close(fd)
            raise
        self._lock_fd = fd

    def _unlock(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _discard(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)

    # -- helpers ---------------------------------------------------------------------------------

    def _failed(self, breaker: Breaker, what: str, error: OSError) -> None:
        reason = "SLOW" if isinstance(error, TimeoutError) else _name_of(error)
        with self._lock:
            first = breaker.is_fine
            breaker.failed(self._clock())
            self._failures[reason] += 1
        if first:
            log.warning(
                "the cache in %s cannot %s (%s), and is left alone for a while; reads go to the "
                "store: %s", self._directory, what, reason, error,
            )  # fmt: skip

    def _path(self, key: bytes) -> str:
        name = key.hex()
        return os.path.join(self._directory, name[:2], name)


def _key(name: str) -> bytes:
    return blake2b(name.encode(errors="surrogateescape"), digest_size=16).digest()


def _head(key: bytes, data: bytes) -> bytes:
    """What is in front of a piece. A file that was given another name is none of that name."""
    return _MAGIC + blake2b(data, digest_size=_CHECKSUM_BYTES, key=key).digest()


def _on_disk(size: int) -> int:
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "OTHER")


def _result(future: Future[_T], timeout_s: float) -> _T:
    """Raises TimeoutError where there is no result in time."""
    try:
        return future.result(timeout_s)
    except TimeoutError:
        if future.cancel() or not future.done():
            raise TimeoutError(f"no answer within {timeout_s:.0f} s") from None
        return future.result()
