"""Versions of several topics that have whole transactions only.

A transaction of several topics gets into each of them by a commit of its own, so whoever reads the
newest versions may see half of one. The coordinator of transactions publishes, as one row of
`system/transactions`, the versions to read of those topics that transactions have touched lately.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Final

from mainstem.delta_log.files import DataFileMissing, read_data_file
from mainstem.delta_log.format import LOG, LogFiles
from mainstem.delta_log.store import ObjectStore, time_elapsed_s
from mainstem.delta_log.topics import SYSTEM, TOPICS, TRANSACTIONS_TABLE, Topics
from mainstem.errors import StoreUnavailableError, UnknownTopicError

#: Of the row that says which versions to read together.
LOOK_KEY: Final = b'{"look":"topics"}'

#: Stands for the version of a topic that is touched for the first time, by a transaction that is on
#: its way.
UNKNOWN_VERSION: Final = -1

#: A topic that no transaction has touched for so long has no version in the row: its newest one
#: will do. A reader looks at the newest versions and then at the row within less.
PINNED_S: Final = 5.0

_RETRY_S: Final = 0.02

#: A transaction that is on its way for longer waits for a topic whose leader is gone.
_WAIT_S: Final = 30.0

#: Attempts to read the table while its files are replaced.
_READ_ATTEMPTS_MAX: Final = 5


def whole_versions(
    store: ObjectStore,
    topics: Iterable[str],
    *,
    now_s: Callable[[], float] = time_elapsed_s,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, int]:
    """For each topic the version to read, so that every transaction is in all of those or in none.
    Blocks.

    Args:
        store: Of the warehouse.

    Raises:
        UnknownTopicError: There is no such topic.
        StoreUnavailableError: The store failed, or the first transaction of a topic was on its way
            for 30 seconds.
    """
    names = sorted(set(topics))
    began_s = now_s()
    while True:
        looked_s = now_s()
        seen = {name: _newest(store, name) for name in names}
        pins = published_versions(store)
        in_time = now_s() - looked_s < PINNED_S / 2
        waits_for = [name for name in names if pins.get(name) == UNKNOWN_VERSION]
        if in_time and not waits_for:
            return {name: pins.get(name, seen[name]) for name in names}
        if now_s() - began_s >= _WAIT_S:
            why = "the store is too slow"
            if waits_for:
                why = (
                    f"one is on its way into {', '.join(waits_for)}; see "
                    "`mainstem cluster transactions list`"
                )
            raise StoreUnavailableError(
                f"no versions of {', '.join(names)} with whole transactions only were found within "
                f"{_WAIT_S:g} s: {why}"
            )
        sleep(_RETRY_S)


def published_versions(store: ObjectStore) -> dict[str, int]:
    """What the coordinator of transactions has published last, by topic. Blocks.

    Raises:
        StoreUnavailableError: The store failed.
        LogDamagedError: A file of the table is lost.
    """
    tables = Topics(store, folder=SYSTEM)
    for attempt in range(_READ_ATTEMPTS_MAX):
        try:
            opened = tables.open(TRANSACTIONS_TABLE)
        except UnknownTopicError:
            return {}
        try:
            for file in reversed(opened.state.files(0).sorted()):
                batches = read_data_file(
                    opened.store, file, file.base_offset, file.last_offset + 1, ["key", "value"]
                )
                for batch in reversed(list(batches)):
                    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
                    for key, value in zip(reversed(keys), reversed(values), strict=True):
                        if key == LOOK_KEY:
                            found: dict[str, int] = json.loads(value)["pins"]
                            return found
        except DataFileMissing:
            # Its rows may have been written again since, and the file removed.
            if attempt == _READ_ATTEMPTS_MAX - 1:
                raise
        else:
            return {}
    return {}


def _newest(store: ObjectStore, topic: str) -> int:
    newest = LogFiles.of(store, f"{TOPICS}/{topic}/{LOG}").newest
    if newest < 0:
        raise UnknownTopicError(f"there is no topic {topic!r} in {store.uri}", topic=topic)
    return newest
