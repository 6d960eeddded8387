"""The places where write-ahead logs lie, for tests that hold in each."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mainstem.delta_log.store import MemoryStore
from mainstem.delta_log.wal import (
    LocalWalFiles,
    LocalWals,
    ObjectWalFiles,
    ObjectWals,
    WalFiles,
    WalPlace,
)


class Logs(Protocol):
    """The logs of several gateways."""

    place: WalPlace

    def open(self, gateway_id: str) -> WalFiles:
        """A gateway's own log, as its start opens it."""
        ...


class DirectoryLogs:
    """On a disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.place: WalPlace = LocalWals(directory)

    def open(self, gateway_id: str) -> WalFiles:
        return LocalWalFiles(self.directory / gateway_id)


class ObjectLogs:
    """In an object store."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.place: WalPlace = ObjectWals(self.store)

    def open(self, gateway_id: str) -> WalFiles:
        return ObjectWalFiles(self.store, gateway_id)
