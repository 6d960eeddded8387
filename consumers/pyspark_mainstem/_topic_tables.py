"""The topics' tables as the planner of a query sees them: opened once, then brought forward commit
by commit.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.delta_log import ObjectStore, OpenTopic, TableState, Topics, load_table
from mainstem.delta_log.store import Place, open_warehouse
from mainstem.delta_log.system import whole_versions
from mainstem.errors import UnknownTopicError


class TopicTables:
    """Opens and refreshes the tables of a warehouse. Only reads. Not for several threads."""

    def __init__(self, warehouse: Place) -> None:
        self._root = open_warehouse(warehouse)
        self._topics = Topics(self._root)
        self._tables: dict[str, OpenTopic] = {}

    def names(self) -> list[str]:
        """The names of the topics, sorted. `get` tells for sure: one may just be deleted."""
        return self._topics.names()

    def get(self, topic: str) -> TableState | None:
        """The newest state of the topic; None where there is no such topic.

        A topic that was deleted and made again is another one: compare `topic_id`.

        Raises:
            InvalidTopicError: No topic can have that name.
            UnsupportedTableError, LogDamagedError: The table cannot be read; the message says why.
        """
        table = self._tables.get(topic)
        try:
            if table is not None:
                return table.refresh()
        except UnknownTopicError:
            del self._tables[topic]  # perhaps another topic has the name by now
        try:
            table = self._topics.open(topic)
        except UnknownTopicError:
            return None
        self._tables[topic] = table
        return table.state

    def whole(self, topics: Iterable[str]) -> dict[str, TableState]:
        """The states of topics that `get` found, as near to the newest as can be, in which every
        transaction is in all of them or in none.

        Raises:
            MainstemError: See `whole_versions` and `get`.
        """
        return {
            topic: load_table(self.store(topic), version)
            for topic, version in whole_versions(self._root, topics).items()
        }

    def store(self, topic: str) -> ObjectStore:
        """The store of a topic that `get` found."""
        return self._tables[topic].store

    def close(self) -> None:
        """Closes the warehouse."""
        self._tables.clear()
        self._root.close()
