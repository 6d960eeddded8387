"""A table that is open: its store and the newest state that is known of it."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.delta_log.store import Store
from mainstem.delta_log.table.state import TableState


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """A topic that exists: a store bound to its directory (close it) and the table's state."""

    topic: str
    store: Store
    state: TableState
