"""Where the files of a warehouse lie: what the log asks of a store, and the stores there are.

`object_store` says what a table needs (`ObjectStore`) and what a whole warehouse has beside
(`Warehouse`). Another kind of store is a class beside `local` and `cloud`, a branch in
`warehouse_uri`, and an entry in `STORES` of `tests/unit/delta_log/test_store_contract.py`, whose
tests it passes. A table gets a `StoreFolder` of whichever it is.

`clocks` has what time it is, for the ages of files.
"""

from mainstem.delta_log.store.at_once import at_once
from mainstem.delta_log.store.clocks import (
    STEADY_CLOCK,
    LogClock,
    SteadyClock,
    clock_lead_ms,
    time_elapsed_ms,
    time_elapsed_s,
    wall_clock_ms,
)
from mainstem.delta_log.store.cloud import CloudStore
from mainstem.delta_log.store.cloud_access import cloud_access
from mainstem.delta_log.store.disk import Disk, make_directory
from mainstem.delta_log.store.disk_cache import DiskCache, DiskCacheInUse
from mainstem.delta_log.store.folder import StoreFolder
from mainstem.delta_log.store.local import LocalStore
from mainstem.delta_log.store.memory import MemoryStore
from mainstem.delta_log.store.object_store import (
    AlreadyExists,
    NotFound,
    ObjectInfo,
    ObjectStore,
    PutOutcomeUnknown,
    StoreFull,
    Warehouse,
    is_there,
)
from mainstem.delta_log.store.random_access import RandomAccessFile, read_at
from mainstem.delta_log.store.read_ahead import read_ahead
from mainstem.delta_log.store.store_check import CheckedPromise, StoreCheck
from mainstem.delta_log.store.warehouse_uri import (
    CloudPrefix,
    LocalDirectory,
    Place,
    open_warehouse,
    parse_local_directory,
    parse_warehouse,
)

__all__ = [
    "STEADY_CLOCK",
    "AlreadyExists",
    "CheckedPromise",
    "CloudPrefix",
    "CloudStore",
    "Disk",
    "DiskCache",
    "DiskCacheInUse",
    "LocalDirectory",
    "LocalStore",
    "LogClock",
    "MemoryStore",
    "NotFound",
    "ObjectInfo",
    "ObjectStore",
    "Place",
    "PutOutcomeUnknown",
    "RandomAccessFile",
    "SteadyClock",
    "StoreCheck",
    "StoreFolder",
    "StoreFull",
    "Warehouse",
    "at_once",
    "clock_lead_ms",
    "cloud_access",
    "is_there",
    "make_directory",
    "open_warehouse",
    "parse_local_directory",
    "parse_warehouse",
    "read_ahead",
    "read_at",
    "time_elapsed_ms",
    "time_elapsed_s",
    "wall_clock_ms",
]
