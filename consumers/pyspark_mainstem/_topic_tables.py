"""The topics' tables as the planner of a query sees them: opened once, then brought forward commit
by commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.delta_log import Store, TableState, load_table, refresh_table
from mainstem.delta_log.store import NotFound, open_store
from mainstem.delta_log.table import TOPICS, commit_path
from mainstem.errors import InvalidTopicError, LogDamagedError, UnknownTopicError
from mainstem.records import check_topic_name


@dataclass(slots=True)
class _Table:
    store: Store
    state: TableState
    #: The commit file of `state.version`: while it reads the same, the table is the same.
    newest_commit: bytes | None


class TopicTables:
    """Opens and refreshes the tables of a warehouse. Only reads: a deleted topic's remains are left
    alone.

    Not for several threads.
    """

    def __init__(self, warehouse: str) -> None:
        self._root = open_store(warehouse)
        self._tables: dict[str, _Table] = {}

    def names(self) -> list[str]:
        """What may be a topic: the directory names that can be topic names, sorted. `get` tells for
        sure.
        """
        found = []
        for name in self._root.list_directories(TOPICS):
            try:
                found.append(check_topic_name(name))
            except InvalidTopicError:
                continue
        return found

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
        if table is not None and not _is_unchanged(table):
            self._forget(topic)
            table = None
        try:
            if table is None:
                table = self._open(topic)
                if table is None:
                    return None
            else:
                version = table.state.version
                table.state = refresh_table(table.store, table.state)
                if table.state.version != version:
                    table.newest_commit = _newest_commit(table.store, table.state)
        except UnknownTopicError:
            self._forget(topic)
            return None
        if table.state.deleted:
            self._forget(topic)
            return None
        return table.state

    def _open(self, topic: str) -> _Table | None:
        try:
            store = self._root.bind(f"{TOPICS}/{check_topic_name(topic)}")
        except NotFound:
            return None
        try:
            state = load_table(store)
            table = _Table(store, state, _newest_commit(store, state))
        except BaseException:
            store.close()
            raise
        self._tables[topic] = table
        return table

    def _forget(self, topic: str) -> None:
        table = self._tables.pop(topic, None)
        if table is not None:
            table.store.close()


def _is_unchanged(table: _Table) -> bool:
    """Whether the log that `table.state` was read from is still the one in its place.

    A bound store of a directory that was removed finds no next commit, which alone looks like a
    quiet topic.
    """
    return (
        table.newest_commit is not None
        and _newest_commit(table.store, table.state) == table.newest_commit
    )


def _newest_commit(store: Store, state: TableState) -> bytes | None:
    try:
        return store.read(commit_path(state.version))
    except NotFound:
        return None
