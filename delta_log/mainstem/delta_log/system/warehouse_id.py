"""Which warehouse a directory is: an id that is made once, and moves and is copied with it.

A directory that is there says little: the volume that belongs under it may not be mounted.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Final

from mainstem.delta_log.store import AlreadyExists, NotFound, ObjectStore, PutOutcomeUnknown
from mainstem.errors import LogDamagedError, StoreUnavailableError

WAREHOUSE_FILE: Final = "system/warehouse.json"

_ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.1


def read_warehouse_id(store: ObjectStore) -> str:
    """The id of the warehouse in `store`; empty if it has none. Blocks.

    Raises:
        LogDamagedError: The file that has it does not make sense.
        StoreUnavailableError: The store failed.
    """
    try:
        data = store.read(WAREHOUSE_FILE)
    except NotFound:
        return ""
    try:
        return str(json.loads(data)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise LogDamagedError(
            f"{store.uri}/{WAREHOUSE_FILE} does not name the warehouse: {error!r}; restore it",
            file=WAREHOUSE_FILE,
        ) from error


def make_warehouse_id(store: ObjectStore) -> str:
    """The id of the warehouse, durable; made if it has none. Of several callers one makes it.

    Raises: As `read_warehouse_id`.
    """
    mine = json.dumps({"id": str(uuid.uuid4())}).encode()
    for attempt in range(_ATTEMPTS_MAX):
        if attempt:
            time.sleep(_PAUSE_S)
        try:
            store.put_if_absent(WAREHOUSE_FILE, mine)
        except AlreadyExists:
            store.make_durable(WAREHOUSE_FILE)
        except PutOutcomeUnknown:
            continue
        return read_warehouse_id(store)
    raise StoreUnavailableError(
        f"the store could not say whether it has {store.uri}/{WAREHOUSE_FILE}; try again"
    )
