"""The topics' tables as the planner of a query sees them: opened once, then brought forward commit
by commit.
"""

from __future__ import annotations

from mainstem.delta_log import OpenTopic, Store, TableState, Topics, load_table
from mainstem.delta_log.store import NotFound, open_warehouse
from mainstem.delta_log.table import TOPICS
from mainstem.errors import LogDamagedError, UnknownTopicError
from mainstem.records import check_topic_name


class TopicTables:
    """Opens and refreshes the tables of a warehouse. Only reads: a deleted topic's remains are left
    alone.

    Not for several threads.
    """

    def __init__(self, warehouse: str) -> None:
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
        try:
            return self._look(topic)
        except LogDamagedError:
            # A delete takes the files away one by one: what it has begun with looks damaged.
            self._forget(topic)
            return self._look(topic)

    def store(self, topic: str) -> Store:
        """The store of a topic that `get` found."""
        return self._tables[topic].store

    def close(self) -> None:
        """Closes what is open."""
        for topic in list(self._tables):
            self._forget(topic)
        self._root.close()

    def _look(self, topic: str) -> TableState | None:
        table = self._tables.get(topic)
        if table is not None:
            try:
                return table.refresh()
            except UnknownTopicError:
                self._forget(topic)  # perhaps another topic has the name by now
        table = self._open(topic)
        return None if table is None else table.state

    def _open(self, topic: str) -> OpenTopic | None:
        try:
            store = self._root.bind(f"{TOPICS}/{check_topic_name(topic)}")
        except NotFound:
            return None
        try:
            state = load_table(store)
        except UnknownTopicError:
            store.close()
            return None
        except BaseException:
            store.close()
            raise
        if state.deleted:
            store.close()
            return None
        table = self._tables[topic] = OpenTopic(topic, store, state)
        return table

    def _forget(self, topic: str) -> None:
        table = self._tables.pop(topic, None)
        if table is not None:
            table.close()
