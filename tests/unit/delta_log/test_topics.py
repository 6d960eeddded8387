"""Topics: created, listed, changed and deleted by several at once, and after interruptions."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from tests.unit.delta_log.faults import FaultyStore, times, unavailable, unknown
from tests.unit.delta_log.tables import append, commit

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.table import (
    Metadata,
    Register,
    TableCommit,
    added_partitions,
    altered_config,
    commit_beside_leader,
    registers,
)
from mainstem.errors import (
    InvalidConfigError,
    InvalidTopicError,
    MainstemError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)


def test_a_new_topic_is_there_with_its_settings_and_empty(topics: Topics) -> None:
    metadata = topics.create("t", 6, {"retention.ms": "5", "compression.type": "lz4"})
    opened = topics.open("t")
    assert opened.topic == "t"
    assert opened.state.topic_id == metadata.id
    assert opened.state.partition_count == 6
    assert opened.state.config.overrides == {"retention.ms": 5, "compression.type": "lz4"}
    assert opened.state.version == 0
    assert opened.state.file_count == 0
    opened.store.close()
    assert topics.names() == ["t"]
    assert topics.exists("t")


def test_delta_rs_reads_a_new_topic_and_refuses_to_write_to_it(topics: Topics) -> None:
    topics.create("t", 2)
    table = DeltaTable(topics.uri("t"))
    assert table.metadata().name == "t"
    assert table.metadata().partition_columns == ["partition"]
    assert [field.name for field in table.schema().fields] == [
        "partition",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
        "producer_id",
        "sequence",
    ]
    with pytest.raises(DeltaError, match="mainstemLog"):
        table.delete()


def test_names_that_look_alike_are_four_topics(topics: Topics) -> None:
    names = ["Orders", "a.b", "a_b", "orders"]
    ids = {name: topics.create(name, 1).id for name in names}
    assert topics.names() == names
    assert len(set(ids.values())) == 4
    topics.delete("a.b")
    assert topics.names() == ["Orders", "a_b", "orders"]
    for name in topics.names():
        opened = topics.open(name)
        assert opened.state.topic_id == ids[name]
        opened.store.close()


@pytest.mark.parametrize("name", ["t" * 249, "...", "-", "_", ".hidden"])
def test_a_topic_of_any_name_within_the_rule_is_created_and_deleted(
    topics: Topics, name: str
) -> None:
    topics.create(name, 1)
    assert topics.names() == [name]
    topics.delete(name)
    assert topics.names() == []
    with pytest.raises(UnknownTopicError):
        topics.open(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "t" * 250, "ü"])
def test_a_name_outside_the_rule_is_refused_by_every_call(topics: Topics, name: str) -> None:
    for call in (topics.open, topics.delete, topics.exists, lambda name: topics.create(name, 1)):
        with pytest.raises(InvalidTopicError):
            call(name)


def test_a_topic_that_exists_is_not_created_again(topics: Topics) -> None:
    first = topics.create("t", 1)
    for validate_only in (False, True):
        with pytest.raises(TopicExistsError):
            topics.create("t", 2, validate_only=validate_only)
    opened = topics.open("t")
    assert (opened.state.topic_id, opened.state.partition_count) == (first.id, 1)
    opened.store.close()


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_a_number_of_partitions_out_of_range_is_refused(topics: Topics, count: int) -> None:
    with pytest.raises(InvalidConfigError, match=f"1 to 10000 partitions, not {count}"):
        topics.create("t", count)
    assert topics.names() == []


def test_a_check_only_writes_nothing(topics: Topics, store: LocalStore) -> None:
    metadata = topics.create("t", 3, {"retention.ms": 1}, validate_only=True)
    assert metadata.configuration["mainstem.partitions"] == "3"
    with pytest.raises(InvalidConfigError):
        topics.create("t", 3, {"retention.mss": 1}, validate_only=True)
    assert os.listdir(store.uri) == []


def test_of_many_that_create_one_topic_exactly_one_succeeds(topics: Topics) -> None:
    def create(number: int) -> str:
        try:
            return topics.create("t", number + 1).id
        except TopicExistsError:
            return ""

    for _ in range(10):
        with ThreadPoolExecutor(8) as pool:
            ids = [id_ for id_ in pool.map(create, range(8)) if id_]
        assert len(ids) == 1
        opened = topics.open("t")
        assert opened.state.topic_id == ids[0]
        opened.store.close()
        assert topics.delete("t") == ids[0]


def test_a_topic_that_is_deleted_and_created_again_is_another_topic(topics: Topics) -> None:
    first = topics.create("t", 4).id
    old = topics.open("t")
    append(old.store, old.state, 2)
    assert topics.delete("t") == first
    assert topics.names() == []
    assert topics.create("t", 1).id != first
    new = topics.open("t")
    assert (new.state.partition_count, new.state.file_count) == (1, 0)
    assert new.state.log_end_offset(2) == 0
    for opened in (old, new):
        opened.store.close()


def test_deleting_what_does_not_exist_is_an_unknown_topic(topics: Topics) -> None:
    with pytest.raises(UnknownTopicError, match=r"auto\.create\.topics\.enable"):
        topics.delete("t")
    topics.create("t", 1)
    topics.delete("t")
    with pytest.raises(UnknownTopicError):
        topics.delete("t")


def test_of_many_that_delete_one_topic_at_once_at_least_one_succeeds(topics: Topics) -> None:
    def delete(_: int) -> str:
        try:
            return topics.delete("t")
        except UnknownTopicError:
            return ""

    for _ in range(10):
        topic_id = topics.create("t", 1).id
        with ThreadPoolExecutor(6) as pool:
            answers = set(pool.map(delete, range(6)))
        assert topic_id in answers
        assert answers <= {topic_id, ""}
        assert topics.names() == []


def test_creating_deleting_and_opening_at_once_never_harms_a_topic_that_was_not_meant(
    topics: Topics,
) -> None:
    """A delete by the id that was seen must not take away a topic with another id."""
    stop = threading.Event()
    wrong: list[str] = []
    deleted_ids: list[str] = []
    created_ids: list[str] = []

    def churn() -> None:
        while not stop.is_set():
            try:
                created_ids.append(topics.create("t", 1).id)
            except TopicExistsError:
                pass
            except MainstemError as error:
                wrong.append(repr(error))
            with contextlib.suppress(UnknownTopicError):
                deleted_ids.append(topics.delete("t"))

    def look() -> None:
        while not stop.is_set():
            try:
                with contextlib.suppress(UnknownTopicError):
                    topics.open("t").store.close()
            except MainstemError as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=work) for work in (churn, churn, churn, look)]
    for thread in threads:
        thread.start()
    stop.wait(1.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(created_ids) == len(set(created_ids)) > 20
    left = set(created_ids) - set(deleted_ids)
    assert len(left) == len(topics.names())
    for name in topics.names():
        opened = topics.open(name)
        assert {opened.state.topic_id} == left
        opened.store.close()


@pytest.mark.fault
def test_a_delete_that_was_interrupted_after_its_mark_is_finished_by_the_next_that_looks(
    topics: Topics, store: LocalStore
) -> None:
    class Crash(Exception):
        pass

    crashing = Topics(FaultyStore(store, times(1, "remove_directory", Crash())))
    for finish in ("open", "create", "delete"):
        topics.create("t", 1)
        crashing = Topics(FaultyStore(store, times(1, "remove_directory", Crash())))
        with pytest.raises(Crash):
            crashing.delete("t")
        if finish == "create":
            topics.create("t", 7)
            opened = topics.open("t")
            assert opened.state.partition_count == 7
            opened.store.close()
            topics.delete("t")
        else:
            with pytest.raises(UnknownTopicError):
                getattr(topics, finish)("t")
        assert topics.names() == []


@pytest.mark.fault
def test_an_open_that_finishes_a_delete_leaves_a_topic_alone_that_was_made_meanwhile(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 1)
    opened = topics.open("t")
    commit(opened.store, 1, [Register(registers.DELETED, 1)])

    def overtake(call: str, path: str) -> None:
        if call == "remove_directory" and not made:
            made.append("")
            assert isinstance(opened.store, LocalStore)
            assert store.remove_directory("topics/t", opened.store)
            made.append(topics.create("t", 9).id)

    made: list[str] = []
    with pytest.raises(UnknownTopicError):
        Topics(FaultyStore(store, overtake)).open("t")
    opened.store.close()
    again = topics.open("t")
    assert again.state.topic_id == made[1]
    again.store.close()


@pytest.mark.fault
def test_a_delete_leaves_a_topic_alone_that_was_made_after_it_was_finished_by_another(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 1)
    made: list[str] = []

    def overtake(call: str, path: str) -> None:
        if call == "remove_directory" and not made:
            with pytest.raises(UnknownTopicError):
                topics.open("t")  # finishes the delete, as any reader does
            made.append(topics.create("t", 9).id)

    Topics(FaultyStore(store, overtake)).delete("t")
    again = topics.open("t")
    assert again.state.topic_id == made[0]
    again.store.close()


@pytest.mark.fault
def test_a_create_that_crashed_before_its_commit_leaves_no_topic_and_no_obstacle(
    topics: Topics, store: LocalStore
) -> None:
    class Crash(Exception):
        pass

    crashing = Topics(FaultyStore(store, times(1, "put_if_absent", Crash())))
    with pytest.raises(Crash):
        crashing.create("t", 1)
    assert topics.names() == []
    assert not topics.exists("t")
    with pytest.raises(UnknownTopicError):
        topics.open("t")
    topics.create("t", 2)
    assert topics.names() == ["t"]


@pytest.mark.fault
def test_a_create_whose_answer_was_lost_succeeds_with_its_own_id(
    topics: Topics, store: LocalStore
) -> None:
    faulty = Topics(FaultyStore(store, after=times(1, "put_if_absent", unknown())))
    metadata = faulty.create("t", 1)
    opened = topics.open("t")
    assert opened.state.topic_id == metadata.id
    opened.store.close()


@pytest.mark.fault
def test_a_create_that_nobody_knows_of_says_so(store: LocalStore) -> None:
    faulty = Topics(FaultyStore(store, times(99, "put_if_absent", unknown())))
    with pytest.raises(OutcomeUnknownError, match="became version 0 of topic"):
        faulty.create("t", 1)
    broken = Topics(FaultyStore(store, times(1, "put_if_absent", unavailable())))
    with pytest.raises(StoreUnavailableError):
        broken.create("t", 1)


def test_what_is_no_topic_is_not_listed(topics: Topics, store: LocalStore) -> None:
    store.put("topics/file", b"")
    store.put("topics/no-log/x", b"")
    Path(store.uri, "topics/empty/_delta_log").mkdir(parents=True)
    topics.create("t", 1)
    assert topics.names() == ["t"]
    for name in ("file", "no-log", "empty"):
        with pytest.raises(UnknownTopicError):
            topics.open(name)


def _change(topics: Topics, metadata: Sequence[Metadata]) -> None:
    opened = topics.open("t")
    one = TableCommit.of("CHANGE", metadata, timestamp_ms=1)
    landed = commit_beside_leader(opened, lambda _: one)
    assert landed is not None
    assert landed.attempts == 1
    opened.store.close()


def test_settings_are_changed_and_put_back_and_everything_else_stays(topics: Topics) -> None:
    first = topics.create("t", 3, {"retention.ms": 5, "commit.bytes": 77})
    opened = topics.open("t")
    metadata = altered_config(opened.state, {"compression.type": "none"}, ["retention.ms"])
    opened.store.close()
    _change(topics, [metadata])
    opened = topics.open("t")
    assert opened.state.config.overrides == {"commit.bytes": 77, "compression.type": "none"}
    assert opened.state.metadata is not None
    expected = dict(first.configuration)
    del expected["mainstem.retention.ms"]
    expected["mainstem.compression.type"] = "none"
    assert opened.state.metadata.configuration == expected
    assert (opened.state.topic_id, opened.state.metadata.name) == (first.id, "t")
    assert opened.state.metadata.schema_string == first.schema_string
    assert opened.state.partition_count == 3
    opened.store.close()
    assert DeltaTable(topics.uri("t")).metadata().configuration == expected


def test_partitions_are_added_and_never_taken_away(topics: Topics) -> None:
    topics.create("t", 3, {"retention.ms": 5})
    opened = topics.open("t")
    for count in (3, 2, 0, 10_001):
        with pytest.raises(InvalidConfigError):
            added_partitions(opened.state, count)
    _change(topics, [added_partitions(opened.state, 10_000)])
    opened.store.close()
    opened = topics.open("t")
    assert opened.state.partition_count == 10_000
    assert opened.state.config.overrides == {"retention.ms": 5}
    opened.store.close()


def test_a_wrong_change_is_refused_before_anything_is_written(topics: Topics) -> None:
    topics.create("t", 3)
    opened = topics.open("t")
    with pytest.raises(InvalidConfigError, match=r"did you mean retention\.ms"):
        altered_config(opened.state, {"retention.mss": 1}, [])
    assert load_table(opened.store).version == 0
    opened.store.close()


def test_whether_a_topic_exists_does_not_cost_more_with_the_length_of_its_log(
    topics: Topics, store: LocalStore
) -> None:
    """`names` asks for every topic of the warehouse."""
    topics.create("t", 1)
    watched = FaultyStore(store)
    assert Topics(watched).names() == ["t"]
    assert ("list_files", "topics/t/_delta_log") not in watched.calls
