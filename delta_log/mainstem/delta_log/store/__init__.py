"""Where the files of a warehouse lie: what the log asks of a store, and the stores there are.

`object_store` says what a table needs (`ObjectStore`) and what a whole warehouse has beside
(`Warehouse`). Another kind of store is a class beside `local`, a branch in `warehouse_uri`, and an
entry in `STORES` of `tests/unit/delta_log/test_store_contract.py`, whose tests it passes. A table
gets a `StoreFolder` of whichever it is.
"""

from mainstem.delta_log.store.disk import Disk, make_directory
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
from mainstem.delta_log.store.random_access import read_at
from mainstem.delta_log.store.warehouse_uri import LocalDirectory, open_warehouse, parse_warehouse

__all__ = [
    "AlreadyExists",
    "Disk",
    "LocalDirectory",
    "LocalStore",
    "MemoryStore",
    "NotFound",
    "ObjectInfo",
    "ObjectStore",
    "PutOutcomeUnknown",
    "StoreFolder",
    "StoreFull",
    "Warehouse",
    "is_there",
    "make_directory",
    "open_warehouse",
    "parse_warehouse",
    "read_at",
]
