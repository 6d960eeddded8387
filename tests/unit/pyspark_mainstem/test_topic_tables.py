"""The tables of a warehouse over the life of a query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pyspark_mainstem.topic_log import TopicLog

from mainstem.delta_log import LocalStore
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import InvalidConfigError, LogDamagedError, StoreUnavailableError
from pyspark_mainstem._topic_tables import TopicTables


@pytest.fixture
def tables(topic_log: TopicLog) -> Iterator[TopicTables]:
    opened = TopicTables(topic_log.uri)
    yield opened
    opened.close()


def test_a_topic_is_brought_forward_by_its_new_commits(
    topic_log: TopicLog, tables: TopicTables
) -> None:
    topic_log.create("a")
    assert tables.get("b") is None
    first = tables.get("a")
    assert first is not None
    assert first.log_end_offset(0) == 0
    for count in range(1, 4):
        topic_log.count_up("a", 0, 1)
        assert tables.get("a") is first
        assert first.log_end_offset(0) == count
    assert tables.get("a") is first


def test_log_clean_up_that_overtakes_the_reader_is_survived(
    topic_log: TopicLog, tables: TopicTables
) -> None:
    topic_log.create("a")
    state = tables.get("a")
    assert state is not None
    topic_log.count_up("a", 0, 12, file_count=4)
    opened = topic_log.topics.open("a")
    write_checkpoint(opened.store)
    for version in range(opened.state.version):
        opened.store.delete(f"_delta_log/{version:020d}.json")
    after = tables.get("a")
    assert after is not None
    assert after.log_end_offset(0) == 12
    assert len(after.files(0).sorted()) == 4


def test_a_deleted_topic_is_gone_and_one_made_again_is_another(
    topic_log: TopicLog, tables: TopicTables
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 5)
    before = tables.get("a")
    assert before is not None
    topic_log.delete("a")
    assert tables.get("a") is None
    assert tables.get("a") is None
    new_id = topic_log.create("a")
    after = tables.get("a")
    assert after is not None
    assert after.topic_id == new_id != before.topic_id


@pytest.mark.parametrize("commit_count", [0, 3, 20])
def test_a_topic_made_again_between_two_looks_is_another_whatever_its_version(
    topic_log: TopicLog, tables: TopicTables, commit_count: int
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 5, file_count=5)
    assert tables.get("a") is not None
    topic_log.delete("a")
    new_id = topic_log.create("a")
    if commit_count:
        topic_log.count_up("a", 0, commit_count, file_count=commit_count)
    state = tables.get("a")
    assert state is not None
    assert (state.topic_id, state.log_end_offset(0)) == (new_id, commit_count)


def test_a_topic_that_is_deleted_while_it_is_read_is_gone_not_damaged(
    topic_log: TopicLog, tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_log.create("a")
    topic_log.count_up("a", 0, 3, file_count=3)

    def delete_first(store: LocalStore, path: str) -> bytes:
        monkeypatch.undo()
        topic_log.delete("a")
        return store.read(path)

    monkeypatch.setattr(LocalStore, "read", delete_first)
    assert tables.get("a") is None


def test_a_topic_whose_log_is_torn_is_damaged(topic_log: TopicLog, tables: TopicTables) -> None:
    topic_log.create("b")
    (Path(topic_log.topics.uri("b")) / "_delta_log" / f"{0:020d}.json").write_text("torn")
    with pytest.raises(LogDamagedError, match="is damaged"):
        tables.get("b")


def test_reading_leaves_no_trace(topic_log: TopicLog, tmp_path: Path) -> None:
    topic_log.create("a")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    tables = TopicTables(topic_log.uri)
    tables.get("a")
    tables.get("b")
    tables.close()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    with pytest.raises(StoreUnavailableError, match="there is no warehouse at"):
        TopicTables(str(tmp_path / "typo"))
    assert not (tmp_path / "typo").exists()


def test_what_cannot_be_a_topic_is_no_name(topic_log: TopicLog, tables: TopicTables) -> None:
    topic_log.create("a.b")
    (Path(topic_log.uri) / "topics" / "no topic").mkdir()
    assert tables.names() == ["a.b"]


@pytest.mark.usefixtures("no_leaks")
def test_closing_leaves_nothing_open(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "warehouse")
    log.create("a")
    log.count_up("a", 0, 2)
    tables = TopicTables(f"file://{log.uri}")
    assert tables.get("a") is not None
    assert tables.get("b") is None
    log.delete("a")
    assert tables.get("a") is None
    tables.close()
    log.close()


def test_a_store_that_is_not_supported_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfigError, match="is in a store that is not supported"):
        TopicTables("hdfs://name/path")
