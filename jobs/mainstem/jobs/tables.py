"""Topics as SQL tables."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mainstem.delta_log.store import ObjectStore, Place, StoreFolder, open_warehouse
from mainstem.delta_log.system import whole_versions
from mainstem.delta_log.table import load_table
from mainstem.delta_log.topics import TOPICS, Topics
from mainstem.errors import LogDamagedError, MainstemError, UnknownTopicError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("mainstem.jobs")

#: Session setting in which the names that are ours are kept: what else is called so is left alone.
_REGISTERED: Final = "spark.mainstem.registeredTopics"

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def register_topics(
    spark: SparkSession,
    warehouse: Place,
    topics: Iterable[str] | None = None,
    *,
    consistent: bool = False,
) -> dict[str, str]:
    """Makes every topic of the warehouse a SQL table: a temporary view of `spark`, read again by
    each query.

    The views show the columns of the topic's Delta table. Register again to see topics that were
    created since, and to lose those that were deleted.

    Spark does not tell `Orders` from `orders`. Where several topics differ in case only, each is
    called `<name in lower case>__<first 8 characters of the topic id>`, and none has the plain
    name.

    Args:
        warehouse: A local path or `file:` URI.
        topics: Only these; the others stay as they are. Default: all.
        consistent: The views stand for the versions of this moment, as near to the newest as can
            be, in which every transaction is in all of these topics or in none. Without it, a
            query over several topics may see a transaction in one of them and not in another yet.
            Register again to see what has come since.

    Returns:
        For each topic the name to use in SQL, in backquotes where SQL needs them.

    Raises:
        StoreUnavailableError: There is no such warehouse; or, with `consistent`, a transaction
            has waited for a topic for 30 seconds.
        UnknownTopicError: One of `topics` does not exist.
        MainstemError: One of `topics` cannot be read. Without `topics` it is left out, with a line
            in the log.
    """
    store = open_warehouse(warehouse)
    try:
        views = TopicViews(spark, store, keep_others=topics is not None)
        wanted = views.existing if topics is None else sorted(set(topics))
        for topic in wanted:
            if topic not in views.existing:
                raise UnknownTopicError(
                    f"there is no topic {topic!r} in the warehouse {store.uri}", topic=topic
                )
        if topics is None:
            left_out = dict(views.register_all())
            for topic, why in left_out.items():
                _log.warning("topic %s is left out: %s", topic, why)
            wanted = [topic for topic in wanted if topic not in left_out]
        else:
            for topic in wanted:
                views.register(topic)
        if consistent:
            views.pin(wanted)
        return {topic: sql_name(views.names[topic]) for topic in wanted if topic in views.names}
    finally:
        store.close()


class TopicViews:
    """The views of a warehouse's topics in one session, each made when it is wanted.

    Args:
        keep_others: Views of other warehouses stay.

    Attributes:
        existing: The topics.
        names: The view of each; none where it cannot be told how it would be called.
        by_view: The topic of each view, which is in lower case here.
    """

    def __init__(
        self, spark: SparkSession, store: ObjectStore, *, keep_others: bool = False
    ) -> None:
        self._spark = spark
        self._store = store
        self._topics = Topics(store)
        self._nameless: dict[str, MainstemError] = {}
        #: The topics of the views that were made.
        self.made: list[str] = []
        self.existing = self._topics.names()
        self.names = _names(store, self.existing, self._nameless)
        self.by_view = {view.lower(): topic for topic, view in self.names.items()}
        self._drop_void(keep_others)

    def register(self, topic: str, version: int | None = None) -> None:
        """Makes the view of a topic, or makes it again.

        Args:
            version: Of the topic's table; None: the newest at each query.

        Raises:
            MainstemError: The topic cannot be read; the code says why.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        if topic in self._nameless:
            raise self._nameless[topic]
        view, uri = self.names[topic], self._topics.uri(topic)
        try:
            self.make_view(topic, view, version)
        except (Py4JJavaError, PySparkException) as error:
            # What is wrong with it is ours to say: Spark's words are of a file.
            load_table(StoreFolder(self._store, f"{TOPICS}/{topic}"))
            raise LogDamagedError(
                f"topic {topic} cannot be read by Spark: {str(error).splitlines()[0]}", topic=topic
            ) from error
        self._note({**_registered(self._spark), view: uri})
        if topic not in self.made:
            self.made.append(topic)

    def topic_id(self, topic: str) -> str | None:
        """The topic's id; None when it was deleted a moment ago."""
        return _topic_id(self._store, topic)

    def pin(self, topics: Iterable[str]) -> None:
        """Makes the views of these topics again, at versions that have whole transactions only.

        Raises:
            MainstemError: See `whole_versions`, and `register`.
        """
        for topic, version in whole_versions(self._store, topics).items():
            self.register(topic, version)

    def make_view(self, topic: str, view: str, version: int | None) -> None:
        """Makes the view itself: the topic's table, as it is or at a version."""
        self._spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {quote(view)} AS "
            f"SELECT * FROM delta.{quote(self._topics.uri(topic))}"
            + ("" if version is None else f" VERSION AS OF {version}")
        )

    def register_all(self) -> list[tuple[str, str]]:
        """Makes all views; returns the topics that cannot be read, and why."""
        failed = []
        for topic in self.existing:
            try:
                self.register(topic)
            except MainstemError as error:
                failed.append((topic, f"{error.code}: {error.message}"))
        return failed

    def _drop_void(self, keep_others: bool) -> None:
        """Drops views that are ours and stand for nothing, or for another warehouse's topics."""
        now = {view: self._topics.uri(topic) for topic, view in self.names.items()}
        kept = {}
        for view, uri in _registered(self._spark).items():
            is_other = not uri.startswith(f"{self._store.uri}/")
            if uri == now.get(view) or (is_other and keep_others and view not in now):
                kept[view] = uri
            else:
                self._spark.catalog.dropTempView(view)
        self._note(kept)

    def _note(self, registered: dict[str, str]) -> None:
        self._spark.conf.set(_REGISTERED, json.dumps(registered))


def sql_name(name: str) -> str:
    """The identifier as it must stand in a statement: in backquotes unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) else quote(name)


def quote(name: str) -> str:
    """The identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def _names(
    store: ObjectStore, topics: Iterable[str], nameless: dict[str, MainstemError]
) -> dict[str, str]:
    """The view of each topic: its own name, or one with the topic id where only case tells it from
    another. Those whose id cannot be read go into `nameless`.
    """
    topics = list(topics)
    same = Counter(topic.lower() for topic in topics)
    names = {}
    for topic in topics:
        if same[topic.lower()] == 1:
            names[topic] = topic
            continue
        try:
            if (topic_id := _topic_id(store, topic)) is not None:
                names[topic] = f"{topic.lower()}__{topic_id[:8]}"
        except MainstemError as error:
            nameless[topic] = error
    return names


def _topic_id(store: ObjectStore, topic: str) -> str | None:
    """The id of the topic; None when it was deleted a moment ago."""
    try:
        return load_table(StoreFolder(store, f"{TOPICS}/{topic}")).topic_id
    except UnknownTopicError:
        return None


def _registered(spark: SparkSession) -> dict[str, str]:
    """The views that earlier calls made in this session, with the table of each."""
    registered: dict[str, str] = json.loads(spark.conf.get(_REGISTERED, "{}") or "{}")
    return registered
