"""Topics as SQL tables."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mainstem.delta_log.store import ObjectStore, StoreFolder, open_warehouse
from mainstem.delta_log.table import load_table
from mainstem.delta_log.topics import TOPICS, Topics
from mainstem.errors import UnknownTopicError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Session setting in which the names that are ours are kept: what else is called so is left alone.
_REGISTERED: Final = "spark.mainstem.registeredTopics"

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def register_topics(
    spark: SparkSession,
    warehouse: str | os.PathLike[str],
    topics: Iterable[str] | None = None,
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

    Returns:
        For each topic the name to use in SQL, in backquotes where SQL needs them.

    Raises:
        StoreUnavailableError: There is no such warehouse.
        UnknownTopicError: One of `topics` does not exist.
    """
    store = open_warehouse(warehouse)
    try:
        known = Topics(store)
        existing = known.names()
        wanted = existing if topics is None else sorted(set(topics))
        for topic in wanted:
            if topic not in existing:
                raise UnknownTopicError(
                    f"there is no topic {topic!r} in the warehouse {store.uri}", topic=topic
                )
        names = _names(store, existing)
        before = _registered(spark)
        now = {
            view: known.uri(topic)
            for topic, view in names.items()
            if topic in wanted or view in before
        }
        for view, uri in before.items():
            if uri != now.get(view) and (topics is None or uri.startswith(f"{store.uri}/")):
                spark.catalog.dropTempView(view)
        for topic in wanted:
            view = names[topic]
            spark.sql(
                f"CREATE OR REPLACE TEMPORARY VIEW {quote(view)} AS "
                f"SELECT * FROM delta.{quote(known.uri(topic))}"
            )
        spark.conf.set(_REGISTERED, json.dumps(now))
        return {topic: sql_name(names[topic]) for topic in wanted}
    finally:
        store.close()


def sql_name(name: str) -> str:
    """The identifier as it must stand in a statement: in backquotes unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) else quote(name)


def quote(name: str) -> str:
    """The identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def _names(store: ObjectStore, topics: Iterable[str]) -> dict[str, str]:
    """The view of each topic: its own name, or one with the topic id where only case tells it from
    another.
    """
    topics = list(topics)
    same = Counter(topic.lower() for topic in topics)
    names = {}
    for topic in topics:
        if same[topic.lower()] == 1:
            names[topic] = topic
        elif (topic_id := _topic_id(store, topic)) is not None:
            names[topic] = f"{topic.lower()}__{topic_id[:8]}"
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
