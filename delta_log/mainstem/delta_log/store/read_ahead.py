"""Reading many small files in their order, several at a time where the store is far away."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final

from mainstem.delta_log.store.object_store import ObjectStore

#: Reads that are under way at a time: a second for a thousand files that take 60 ms each.
_READERS: Final = 64

#: Files that are read one after the other first, and how long one may take for that to go on: a
#: local disk answers sooner than another thread begins.
_ALONE: Final = 8
_ALONE_S_MAX: Final = 0.002


def read_ahead(store: ObjectStore, paths: Iterable[str]) -> Generator[bytes]:
    """The files, in this order. Close it when you want no more of them.

    Raises: As `ObjectStore.read`, where the file would have come.
    """
    left = iter(paths)
    taken_s = 0.0
    for path in islice(left, _ALONE):
        began_at = time.perf_counter()
        data = store.read(path)
        taken_s += time.perf_counter() - began_at
        yield data
    if taken_s <= _ALONE * _ALONE_S_MAX:
        for path in left:
            yield store.read(path)
        return
    readers = ThreadPoolExecutor(_READERS, thread_name_prefix="read-ahead")
    try:
        pending: deque[Future[bytes]] = deque(
            readers.submit(store.read, path) for path in islice(left, _READERS)
        )
        while pending:
            data = pending.popleft().result()
            pending.extend(readers.submit(store.read, path) for path in islice(left, 1))
            yield data
    finally:
        readers.shutdown(cancel_futures=True)
