"""Reading objects before somebody asks: each request of an object storage service takes tens of
milliseconds, and many can be under way at a time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from mainstem.limits import MIB

#: Requests that nobody waits for yet, under way at a time.
_THREADS: Final = 32

#: Hints that wait for a thread; more are dropped.
_WAITING_MAX: Final = 256

#: The ends of objects that were opened, or soon will be: what a Parquet file is opened with, and
#: most commits' small files altogether.
_ENDS_BYTES_MAX: Final = 64 * MIB

#: Parts of large objects that were asked for ahead, of all open files.
_AHEAD_BYTES_MAX: Final = 128 * MIB

_T = TypeVar("_T")

#: The size of an object, and its last bytes.
ObjectEnd = tuple[int, bytes]


class CloudReader:
    """Requests ahead, and the ends of objects that were read. From several threads.

    What is kept is of data files, whose names are given once: an object that was deleted, or whose
    topic was deleted and created again, is another name.

    Args:
        read_end: Reads the end of an object. Raises what `ObjectStore.open` raises.
    """

    def __init__(self, read_end: Callable[[str], ObjectEnd]) -> None:
        self._read_end = read_end
        #: Futures call back, also in the thread that has just made or cancelled them.
        self._lock = threading.RLock()
        self._ends: OrderedDict[str, ObjectEnd] = OrderedDict()
        self._ends_bytes = 0
        self._pending: dict[str, Future[ObjectEnd]] = {}
        self._ahead_bytes = 0
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def will_open(self, paths: Iterable[str]) -> None:
        """Begins to read the ends of objects that will be opened soon, the first ones first."""
        with self._lock:
            for path in paths:
                if path in self._ends or path in self._pending or not is_data_file(path):
                    continue
                if len(self._pending) >= _WAITING_MAX:
                    return
                future = self._submit(partial(self._read_end, path))
                if future is None:
                    return
                self._pending[path] = future
                future.add_done_callback(partial(self._done, path))

    def open(self, path: str) -> ObjectEnd:
        """The size and the end of an object, from what is here if it is.

        Raises: As `read_end`.
        """
        if not is_data_file(path):
            return self._read_end(path)
        with self._lock:
            kept = self._ends.get(path)
            if kept is not None:
                self._ends.move_to_end(path)
                return kept
            pending = self._pending.get(path)
            # One that has not begun would wait for others.
            if pending is not None and pending.cancel():
                pending = None
        if pending is not None:
            try:
                return pending.result()
            except CancelledError:
                pass  # closed meanwhile, which the next call says
        end = self._read_end(path)
        self._keep(path, end)
        return end

    def forget(self, path: str) -> None:
        """The object was deleted, or written again."""
        with self._lock:
            self._pending.pop(path, None)
            end = self._ends.pop(path, None)
            if end is not None:
                self._ends_bytes -= len(end[1])

    def ahead(self, length: int, read: Callable[[], bytes]) -> Future[bytes] | None:
        """Begins to read so many bytes; None: there is no room for them now."""
        with self._lock:
            if self._ahead_bytes + length > _AHEAD_BYTES_MAX:
                return None
            future = self._submit(read)
            if future is not None:
                self._ahead_bytes += length
            return future

    def taken(self, length: int) -> None:
        """What was asked for ahead was taken, or is not wanted any more."""
        with self._lock:
            self._ahead_bytes -= length

    def close(self) -> None:
        """Nothing more begins. What was begun ends by itself, as soon as its request does."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
            self._ends.clear()
            self._ends_bytes = 0
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, read: Callable[[], _T]) -> Future[_T] | None:
        """Under the lock."""
        if self._closed:
            return None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="store-ahead")
        try:
            return self._pool.submit(read)
        except RuntimeError:  # the interpreter ends
            return None

    def _done(self, path: str, done: Future[ObjectEnd]) -> None:
        """Keeps what a hint has read, unless the object was written or deleted meanwhile. One that
        failed is asked for again by the one who opens it."""
        with self._lock:
            wanted = self._pending.pop(path, None) is done
        if wanted and not done.cancelled() and done.exception() is None:
            self._keep(path, done.result())

    def _keep(self, path: str, end: ObjectEnd) -> None:
        with self._lock:
            if self._closed or path in self._ends:
                return
            self._ends[path] = end
            self._ends_bytes += len(end[1])
            while self._ends_bytes > _ENDS_BYTES_MAX:
                _, (_, dropped) = self._ends.popitem(last=False)
                self._ends_bytes -= len(dropped)


def is_data_file(path: str) -> bool:
    """Whether its name is given once: that of a data file is, those of a log's files are not."""
    return path.endswith(".parquet") and "_delta_log/" not in path
