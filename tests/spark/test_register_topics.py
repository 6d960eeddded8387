"""Topics as SQL tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.unit.pyspark_mainstem.topic_log import TopicLog

from mainstem.errors import StoreUnavailableError, UnknownTopicError
from mainstem.jobs import register_topics


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own, so that no test sees the views of another."""
    own = spark.newSession()
    yield own
    for table in own.catalog.listTables():
        own.catalog.dropTempView(table.name)
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]


def _count(session: SparkSession, name: str) -> int:
    (row,) = session.sql(f"SELECT count(*) AS n FROM {name}").collect()
    found: int = row.n
    return found


def test_every_topic_is_a_table_whatever_its_name(
    session: SparkSession, topic_log: TopicLog
) -> None:
    for topic in ("orders", "a.b", "a_b", "a-b", "2024", "select"):
        topic_log.create(topic)
    topic_log.count_up("a.b", 0, 3)
    names = register_topics(session, topic_log.uri)
    assert names == {
        "orders": "orders",
        "a.b": "`a.b`",
        "a_b": "a_b",
        "a-b": "`a-b`",
        "2024": "`2024`",
        "select": "select",
    }
    assert {topic: _count(session, name) for topic, name in names.items()} == {
        **dict.fromkeys(names, 0),
        "a.b": 3,
    }
    assert session.table(names["a.b"]).count() == 3


def test_a_query_sees_what_was_appended_since_the_last_one(
    session: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("orders", 2)
    register_topics(session, topic_log.uri)
    for count in range(1, 4):
        topic_log.count_up("orders", 1, 2)
        assert _count(session, "orders") == 2 * count


def test_topics_that_differ_in_case_only_get_names_with_their_ids(
    session: SparkSession, topic_log: TopicLog
) -> None:
    ids = {topic: topic_log.create(topic) for topic in ("Orders", "orders", "Other")}
    topic_log.count_up("Orders", 0, 2)
    topic_log.count_up("orders", 0, 3)
    names = register_topics(session, topic_log.uri)
    assert names == {
        "Orders": f"orders__{ids['Orders'][:8]}",
        "orders": f"orders__{ids['orders'][:8]}",
        "Other": "Other",
    }
    assert _count(session, names["Orders"]) == 2
    assert _count(session, names["orders"]) == 3
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        _count(session, "orders")


def test_the_plain_name_goes_when_it_becomes_ambiguous_and_comes_back(
    session: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("orders")
    assert register_topics(session, topic_log.uri) == {"orders": "orders"}
    topic_log.create("ORDERS")
    both = register_topics(session, topic_log.uri)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        _count(session, "orders")
    topic_log.delete("orders")
    assert register_topics(session, topic_log.uri) == {"ORDERS": "ORDERS"}
    assert _count(session, "orders") == 0
    for name in both.values():
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            _count(session, name)


@pytest.mark.parametrize("query_between", [True, False])
def test_a_topic_deleted_and_created_again_serves_nothing_old(
    session: SparkSession, topic_log: TopicLog, query_between: bool
) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 6, file_count=6)
    register_topics(session, topic_log.uri)
    assert _count(session, "orders") == 6
    for new_count in (2, 20):
        topic_log.delete("orders")
        if query_between:
            assert _count(session, "orders") == 0
        topic_log.create("orders")
        topic_log.count_up("orders", 0, new_count, file_count=new_count)
        assert _count(session, "orders") == new_count
        register_topics(session, topic_log.uri)
        assert _count(session, "orders") == new_count


def test_a_deleted_topic_loses_its_table_and_other_views_stay(
    session: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("orders")
    topic_log.create("other")
    session.range(3).createOrReplaceTempView("mine")
    register_topics(session, topic_log.uri)
    topic_log.delete("orders")
    assert register_topics(session, topic_log.uri) == {"other": "other"}
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        _count(session, "orders")
    assert _count(session, "mine") == 3


def test_some_topics_only(session: SparkSession, topic_log: TopicLog) -> None:
    topic_log.create("a")
    topic_log.create("b")
    assert register_topics(session, topic_log.uri, ["a"]) == {"a": "a"}
    assert register_topics(session, topic_log.uri, ["b"]) == {"b": "b"}
    assert _count(session, "a") == _count(session, "b") == 0
    with pytest.raises(UnknownTopicError, match="there is no topic 'c'"):
        register_topics(session, topic_log.uri, ["c"])


def test_a_warehouse_that_is_not_there_is_an_error(session: SparkSession) -> None:
    with pytest.raises(StoreUnavailableError, match="there is no warehouse"):
        register_topics(session, "/no/such/place")


def test_a_warehouse_with_an_odd_name_is_the_same_one_for_spark(
    session: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "~" / " a%20b#c?d:e " / "grün [x] {y,z} *`'\"$HOME;&="
    log = TopicLog(place)
    try:
        log.create("orders")
        log.count_up("orders", 0, 3)
        for uri in (str(place), place.as_uri()):
            names = register_topics(session, uri)
            assert _count(session, names["orders"]) == 3
            source = session.read.format("mainstem").option("mainstem.warehouse", uri)
            assert source.option("subscribe", "orders").load().count() == 3
    finally:
        log.close()
