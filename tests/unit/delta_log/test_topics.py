"""Topics: created, listed, changed and deleted by several at once, and after interruptions."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from tests.unit.delta_log.faults import FaultyStore, Hook, times, unavailable, unknown
from tests.unit.delta_log.tables import append, commit

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.format import Metadata, Register, commit_path, registers
from mainstem.delta_log.table import TableCommit, commit_beside_leader
from mainstem.delta_log.topics import added_partitions, altered_config
from mainstem.delta_log.topics.deletion import DELETED_HINT, deleted_hint
from mainstem.delta_log.upkeep import clean_log, write_checkpoint
from mainstem.delta_log.verify import verify_named
from mainstem.errors import (
    InvalidConfigError,
    InvalidTopicError,
    MainstemError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedTableError,
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


def test_deleting_what_does_not_exist_is_an_unknown_topic(topics: Topics) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic 't'"):
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
                    topics.open("t")
            except MainstemError as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=work) for work in (churn, churn, churn, look)]
    for thread in threads:
        thread.start()
    stop.wait(1.5)
    give_up_s = time.monotonic() + 30
    while len(created_ids) <= 5 and time.monotonic() < give_up_s:  # a busy machine
        stop.wait(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(created_ids) == len(set(created_ids)) > 5
    left = set(created_ids) - set(deleted_ids)
    assert len(left) == len(topics.names())
    for name in topics.names():
        opened = topics.open(name)
        assert {opened.state.topic_id} == left


def test_directories_are_looked_into_several_at_a_time(store: LocalStore) -> None:
    for number in range(4):
        Topics(store).create(f"t{number}", 1)
    together = threading.Barrier(4)

    def wait_for_the_others(call: str, path: str) -> None:
        if call == "read" and path.endswith(DELETED_HINT):
            together.wait(30)  # one after the other, the first would wait in vain

    found = Topics(FaultyStore(store, before=wait_for_the_others)).names()
    assert found == ["t0", "t1", "t2", "t3"]


def _with_end(table: Path) -> None:
    """As Spark writes it: each line of a commit file has an end."""
    first = table / commit_path(0)
    first.write_bytes(first.read_bytes().rstrip() + b"\n")


def _behind_a_checkpoint(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    (table / commit_path(0)).unlink()


@pytest.mark.parametrize("change", [lambda _: None, _with_end, _behind_a_checkpoint])
def test_a_table_of_another_writer_is_told_as_one_and_is_not_deleted(
    topics: Topics, change: Callable[[Path], None]
) -> None:
    place = Path(topics.uri("mine"))
    write_deltalake(
        place,
        pa.table({"x": [1, 2], "day": ["a", "b"]}),
        partition_by=["day"],
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    change(place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for call in (topics.open, topics.delete, lambda name: topics.create(name, 1)):
        with pytest.raises(UnsupportedTableError, match="mine is not a mainstem topic"):
            call("mine")
    assert before == {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


class Crash(BaseException):
    """The process is killed at a call of the store."""


def _fail_at(number: int, error: BaseException, calls: list[str]) -> Hook:
    def hook(call: str, path: str) -> None:
        calls.append(f"{call} {path}")
        if len(calls) == number:
            raise error

    return hook


@pytest.mark.fault
@pytest.mark.parametrize(
    ("error", "when", "finish"),
    [
        (Crash(), "before", "create"),
        (Crash(), "before", "delete"),
        (Crash(), "after", "create"),
        (unavailable(), "before", "delete"),
        (unavailable(), "after", "create"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, BaseException) else one,
)
def test_a_delete_that_fails_at_any_call_is_finished_by_the_next(
    topics: Topics, store: LocalStore, error: BaseException, when: str, finish: str
) -> None:
    """Killed there, or the store fails before the call is done or after it."""
    number = 0
    while True:
        number += 1
        first = topics.create("t", 2).id
        opened = topics.open("t")
        append(opened.store, opened.state, 1)
        calls: list[str] = []
        fault = _fail_at(number, error, calls)
        failing = FaultyStore(store, fault) if when == "before" else FaultyStore(store, after=fault)
        with contextlib.suppress(Crash, MainstemError):
            Topics(failing).delete("t")
        if finish == "create":
            try:
                second = topics.create("t", 7).id
            except TopicExistsError:  # it was not marked yet
                assert topics.delete("t") == first
                second = topics.create("t", 7).id
            again = topics.open("t")
            assert (again.state.topic_id, again.state.partition_count) == (second, 7)
            assert again.state.file_count == 0
            assert verify_named(store, "t").ok
            topics.delete("t")
        else:
            with contextlib.suppress(UnknownTopicError):  # all of it was done
                assert topics.delete("t") == first
        assert topics.names() == [], calls[-1]
        assert _data_files(store) == [], calls[-1]
        if len(calls) < number:
            break
    assert number > 15


@pytest.mark.fault
@pytest.mark.parametrize("at", ["list_files", "delete", "put_if_absent", "put"])
def test_a_delete_that_sleeps_at_any_call_leaves_a_topic_alone_that_was_made_meanwhile(
    topics: Topics, store: LocalStore, at: str
) -> None:
    number = 0
    woken = True
    while woken:
        number += 1
        woken = False
        topics.create("t", 2)
        opened = topics.open("t")
        append(opened.store, opened.state, 1)
        left = number

        def sleep(call: str, path: str) -> None:
            nonlocal left, woken
            left -= call == at
            if left or woken:
                return
            woken = True
            if "t" in topics.names():
                with contextlib.suppress(UnknownTopicError):
                    topics.delete("t")
            topics.create("t", 9)
            made = topics.open("t")
            for _ in range(3):
                append(made.store, made.state, 5)

        with contextlib.suppress(UnknownTopicError):
            Topics(FaultyStore(store, sleep)).delete("t")
        if woken and topics.names():
            report = verify_named(store, "t")
            assert report.ok, report.findings
            again = topics.open("t")
            assert again.state.partition_count == 9
            assert again.state.file_count == 3
            topics.delete("t")
        assert topics.names() == []
    assert number > 1


@pytest.mark.fault
def test_whoever_finishes_a_deletion_leaves_a_topic_alone_that_was_made_meanwhile(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 1)
    with pytest.raises(Crash):
        Topics(FaultyStore(store, times(1, "put_if_absent", Crash(), "checkpoint"))).delete("t")
    assert topics.half_deleted() == ["t"]
    made = topics.create("t", 9).id
    topics.finish_deletion("t")
    assert topics.open("t").state.topic_id == made
    assert topics.half_deleted() == []


@pytest.mark.fault
def test_a_delete_of_a_damaged_topic_leaves_one_alone_that_was_made_meanwhile(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 1)
    Path(topics.uri("t"), commit_path(0)).write_bytes(b"{torn")
    made: list[str] = []

    def overtake(call: str, path: str) -> None:
        if call == "list_directories" and path == "topics/t" and not made:
            made.append("")
            topics.delete("t")
            made[0] = topics.create("t", 9).id

    with pytest.raises(StoreUnavailableError, match="delete it again"):
        Topics(FaultyStore(store, overtake)).delete("t")
    assert topics.open("t").state.topic_id == made[0]


@pytest.mark.fault
def test_a_look_that_sleeps_does_not_take_a_topic_for_deleted_that_was_made_meanwhile(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 1)
    topics.delete("t")
    looks: list[str] = []

    def overtake(call: str, path: str) -> None:
        looks.extend([path] * (call == "read_range"))
        if len(looks) == 2 and not topics.names():
            topics.create("t", 9)
            made = topics.open("t")
            append(made.store, made.state, 5)
            write_checkpoint(made.store)
            clean_log(made.store, 0)

    assert deleted_hint(FaultyStore(store, overtake), "topics/t") is None
    assert topics.names() == ["t"]


@pytest.mark.fault
@pytest.mark.parametrize("is_buried", [False, True])
def test_a_check_of_a_name_that_was_deleted_writes_nothing(
    topics: Topics, store: LocalStore, is_buried: bool
) -> None:
    topics.create("t", 1)
    opened = topics.open("t")
    append(opened.store, opened.state, 0)
    if is_buried:
        topics.delete("t")
    else:
        with pytest.raises(Crash):
            Topics(FaultyStore(store, times(1, "delete", Crash()))).delete("t")
    watched = FaultyStore(store)
    Topics(watched).create("t", 3, validate_only=True)
    assert not {call for call, _ in watched.calls} & {"put", "put_if_absent", "delete", "sweep"}
    Topics(watched).create("t", 3)
    assert topics.open("t").state.file_count == 0


def _data_files(store: LocalStore) -> list[str]:
    return [str(path) for path in Path(store.uri, "topics").glob("*/partition=*/*.parquet")]


def test_the_log_of_a_deleted_topic_is_a_checkpoint_and_no_records(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 2)
    opened = topics.open("t")
    for _ in range(30):
        append(opened.store, opened.state, 1)
    topics.delete("t")
    log = Path(store.uri, "topics/t/_delta_log")
    # 30 appends, the mark, one commit that takes the files out.
    assert sorted(path.name for path in log.iterdir()) == [
        "00000000000000000032.checkpoint.parquet",
        "00000000000000000032.json",
        "_deleted",
        "_last_checkpoint",
    ]
    assert _data_files(store) == []
    assert DeltaTable(topics.uri("t")).to_pyarrow_table().num_rows == 0
    topics.create("t", 1)
    again = topics.open("t")
    assert again.state.version == 33
    append(again.store, again.state, 0)
    assert DeltaTable(topics.uri("t")).to_pyarrow_table().num_rows == 3


def test_a_topic_that_was_created_again_remembers_nothing_of_the_old_one(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 4)
    opened = topics.open("t")
    append(opened.store, opened.state, 3)
    names = [
        registers.lso(3),
        registers.cleaned(3),
        registers.VACUUMED,
        registers.ORPHANED,
        registers.producer(7, 3),
        registers.producer_epoch(7, 3),
        registers.partition_epoch(3),
        "mainstem/wal/gateway/log",
    ]
    commit(opened.store, 2, [Register(name, 1) for name in names])
    topics.delete("t")
    topics.create("t", 4)
    for _ in range(2):  # from the commits, and from a checkpoint
        again = topics.open("t")
        assert set(again.state.registers) == {registers.EPOCH}
        write_checkpoint(again.store)
    assert verify_named(store, "t").ok


def test_a_damaged_topic_is_deleted_and_created_again_behind_the_damage(
    topics: Topics, store: LocalStore
) -> None:
    topics.create("t", 2)
    opened = topics.open("t")
    for _ in range(3):
        append(opened.store, opened.state, 1)
    Path(opened.store.uri, commit_path(2)).write_bytes(b"{torn")
    assert topics.delete("t") == opened.state.topic_id
    assert topics.names() == []
    assert topics.other_directories() == []
    assert _data_files(store) == []
    with pytest.raises(UnknownTopicError):
        opened.refresh()
    with pytest.raises(UnknownTopicError):
        topics.delete("t")
    topics.create("t", 3)
    again = topics.open("t")
    append(again.store, again.state, 2)
    assert verify_named(store, "t").ok
    assert DeltaTable(topics.uri("t")).to_pyarrow_table().num_rows == 3


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


def test_settings_are_changed_and_put_back_and_everything_else_stays(topics: Topics) -> None:
    first = topics.create("t", 3, {"retention.ms": 5, "commit.bytes": 77})
    opened = topics.open("t")
    metadata = altered_config(opened.state, {"compression.type": "none"}, ["retention.ms"])
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
    assert DeltaTable(topics.uri("t")).metadata().configuration == expected


def test_partitions_are_added_and_never_taken_away(topics: Topics) -> None:
    topics.create("t", 3, {"retention.ms": 5})
    opened = topics.open("t")
    for count in (3, 2, 0, 10_001):
        with pytest.raises(InvalidConfigError):
            added_partitions(opened.state, count)
    _change(topics, [added_partitions(opened.state, 10_000)])
    opened = topics.open("t")
    assert opened.state.partition_count == 10_000
    assert opened.state.config.overrides == {"retention.ms": 5}


def test_a_wrong_change_is_refused_before_anything_is_written(topics: Topics) -> None:
    topics.create("t", 3)
    opened = topics.open("t")
    with pytest.raises(InvalidConfigError, match=r"did you mean retention\.ms"):
        altered_config(opened.state, {"retention.mss": 1}, [])
    assert load_table(opened.store).version == 0


def test_whether_a_topic_exists_does_not_cost_more_with_the_length_of_its_log(
    topics: Topics, store: LocalStore
) -> None:
    """`names` asks for every topic of the warehouse."""
    topics.create("t", 1)
    watched = FaultyStore(store)
    assert Topics(watched).names() == ["t"]
    assert ("list_files", "topics/t/_delta_log") not in watched.calls
