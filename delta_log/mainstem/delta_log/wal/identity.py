"""Whose a write-ahead log is: its own id, and the warehouse whose records it has.

Two logs may have one gateway.id: one was lost, or its volume was not mounted, and a new one was
begun. Each has a register of its own in the topics, so that what one of them has brought into a
table is not taken for what the other one has.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from mainstem.delta_log.wal.place import WalFiles
from mainstem.errors import LogDamagedError

IDENTITY_FILE: Final = "log.json"


@dataclass(frozen=True, slots=True)
class WalIdentity:
    """Empty: the log was begun by a version that knew no such thing."""

    log_id: str = ""
    warehouse_id: str = ""


def read_identity(files: WalFiles) -> WalIdentity:
    """Raises LogDamagedError where the file makes no sense; OSError or StoreUnavailableError where
    it cannot be read."""
    try:
        data = files.read(IDENTITY_FILE)
    except FileNotFoundError:
        return WalIdentity()
    try:
        return WalIdentity(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise LogDamagedError(
            f"{files.uri}/{IDENTITY_FILE} does not say whose write-ahead log it is: {error!r}; "
            "restore it",
            file=IDENTITY_FILE,
        ) from error


def write_identity(files: WalFiles, identity: WalIdentity) -> None:
    """Durable when this returns. Raises OSError, StoreUnavailableError."""
    files.write_whole(IDENTITY_FILE, json.dumps(asdict(identity)).encode())
