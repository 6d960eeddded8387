"""Backups of topics: what comes back, while others write, after crashes, and from bad copies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.s3_server import S3Server
from tests.unit.delta_log.appending import lead, run
from tests.unit.delta_log.faults import FaultyStore, Hook, nothing
from tests.unit.delta_log.full_disk import fill, small_disk
from tests.unit.delta_log.tables import NOW_MS, append, commit

from mainstem.config import TopicConfig
from mainstem.delta_log import LocalStore, OpenTopic, Slice, Topics, load_table, read_data_file
from mainstem.delta_log.backup import (
    MANIFEST,
    Manifest,
    back_up,
    check_backup,
    read_manifest,
    restore,
)
from mainstem.delta_log.backup.manifest import _checksum
from mainstem.delta_log.format import DataFile, ProducerBatch, Register, registers
from mainstem.delta_log.store import MemoryStore, PutOutcomeUnknown, StoreFolder, StoreFull
from mainstem.delta_log.store.cloud import CloudStore
from mainstem.delta_log.table import TableCommit, commit_beside_leader, replace_files
from mainstem.delta_log.verify import verify_named
from mainstem.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    LogDamagedError,
    MainstemError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedTableError,
)
from mainstem.records import records_to_wire_batch


class Crash(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[LocalStore]:
    """Where the backup goes."""
    with contextlib.closing(LocalStore(tmp_path / "copy")) as opened:
        yield opened


@pytest.fixture
def orders(topics: Topics) -> OpenTopic:
    """A topic of three partitions, the last one empty; the first one is trimmed inside a file."""
    topics.create("orders", 3, {"retention.ms": 86_400_000, "commit.interval.ms": 0})
    opened = topics.open("orders")
    for partition in (0, 1, 0, 0):
        append(opened.store, opened.state, partition)
    start = Register(registers.lso(0), 2)
    commit_beside_leader(opened, lambda _: TableCommit.of("TRIM", [start], timestamp_ms=NOW_MS))
    return opened


def rows(topics: Topics, topic: str) -> list[list[dict[str, Any]]]:
    """All that can be read of each partition."""
    opened = topics.open(topic)
    state = opened.state
    return [
        [
            row
            for file in state.files(number).sorted()
            for batch in read_data_file(opened.store, file, state.log_start_offset(number), 2**62)
            for row in batch.to_pylist()
        ]
        for number in range(state.partition_count)
    ]


def ends(topics: Topics, topic: str) -> list[tuple[int, int, int]]:
    state = topics.open(topic).state
    return [
        (state.log_start_offset(one), state.log_end_offset(one), state.cleaned_offset(one))
        for one in range(state.partition_count)
    ]


def fails_at(number: int, error: BaseException) -> Hook:
    """The hook that raises at the call of that number."""
    left = [number]

    def hook(call: str, path: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise error

    return hook


def test_a_restored_topic_has_the_records_offsets_and_settings_of_the_backup(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    made = back_up(topics, "orders", target)
    assert made.table_version == orders.state.version
    restored = restore(topics, store, target, "again")
    assert (restored.topic, restored.record_count, restored.file_count) == ("again", 12, 4)
    assert rows(topics, "again") == rows(topics, "orders")
    assert ends(topics, "again") == ends(topics, "orders") == [(2, 9, 0), (0, 3, 0), (0, 0, 0)]
    again = topics.open("again").state
    assert again.config == orders.state.config
    assert again.topic_id != orders.state.topic_id
    assert again.metadata is not None
    assert again.metadata.name == "again"
    assert again.version == 0
    report = verify_named(store, "again")
    assert report.ok, report.findings


def test_a_restored_topic_is_appended_to_behind_its_records(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    back_up(topics, "orders", target)
    restore(topics, store, target, "again")
    opened = topics.open("again")
    for partition in (0, 2):
        append(opened.store, opened.state, partition)
    assert [row["offset"] for row in rows(topics, "again")[0]] == list(range(2, 12))
    assert [row["offset"] for row in rows(topics, "again")[2]] == [0, 1, 2]
    assert verify_named(store, "again").ok


def test_null_and_empty_headers_and_who_sent_a_record_come_back(
    topics: Topics, store: LocalStore, target: LocalStore, pool: ThreadPoolExecutor
) -> None:
    topics.create("t", 1, {"commit.interval.ms": 0})
    batch = records_to_wire_batch(
        [None, b"", b"k"],
        [b"", None, b"v" * 300_000],
        [[], [("h", None), ("h", b"")], [("é", b"\xff")]],
        [0, NOW_MS, NOW_MS + 1],
    )

    async def write() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([Slice(0, batch, ProducerBatch(7, 0, 0))], 1)
        await appender.close(10)

    run(write)
    back_up(topics, "t", target)
    restore(topics, store, target, "again")
    assert rows(topics, "again") == rows(topics, "t")
    (found,) = rows(topics, "again")
    assert [(row["key"], row["sequence"]) for row in found] == [(None, 0), (b"", 1), (b"k", 2)]


def test_the_same_producer_begins_again_in_a_restored_topic_and_verify_finds_no_fault(
    topics: Topics, store: LocalStore, target: LocalStore, pool: ThreadPoolExecutor
) -> None:
    topics.create("t", 1, {"commit.interval.ms": 0})
    batch = records_to_wire_batch([None], [b"v"], None, [NOW_MS])

    async def write(topic: str) -> None:
        appender = await lead(topics.open(topic), pool)
        for sequence in range(3):
            await appender.submit([Slice(0, batch, ProducerBatch(7, 0, sequence))], 1)
        await appender.close(10)

    run(lambda: write("t"))
    back_up(topics, "t", target)
    restore(topics, store, target, "again")
    run(lambda: write("again"))
    (found,) = rows(topics, "again")
    assert [row["sequence"] for row in found] == [0, 1, 2, 0, 1, 2]
    report = verify_named(store, "again")
    assert report.ok, report.findings


def test_holes_of_keyed_compaction_and_its_registers_come_back(
    topics: Topics, store: LocalStore, target: LocalStore
) -> None:
    topics.create("t", 1, {"cleanup.policy": "compact"})
    opened = topics.open("t")
    files = [append(opened.store, opened.state, 0) for _ in range(3)]
    kept = {
        registers.cleaned(0): 9,
        registers.tombstones_end(0, 0): 6,
        registers.tombstones_expiry(0, 0): NOW_MS,
    }

    def compact(state: Any) -> TableCommit:
        gone = replace_files(state, files[1:2], now_ms=NOW_MS, data_change=True)
        numbers = [Register(name, value) for name, value in kept.items()]
        return TableCommit.of("COMPACT", [*gone, *numbers], timestamp_ms=NOW_MS)

    commit_beside_leader(opened, compact)
    back_up(topics, "t", target)
    restore(topics, store, target, "again")
    assert [row["offset"] for row in rows(topics, "again")[0]] == [0, 1, 2, 6, 7, 8]
    state = topics.open("again").state
    assert {name: state.register_value(name) for name in kept} == kept
    assert verify_named(store, "again").ok


def test_a_topic_without_records_comes_back(
    topics: Topics, store: LocalStore, target: LocalStore
) -> None:
    topics.create("t", 2)
    assert back_up(topics, "t", target).file_count == 0
    restore(topics, store, target, "again")
    assert ends(topics, "again") == [(0, 0, 0), (0, 0, 0)]


def test_a_topic_whose_records_all_went_keeps_its_offsets(
    topics: Topics, store: LocalStore, target: LocalStore
) -> None:
    topics.create("t", 1)
    opened = topics.open("t")
    files = [append(opened.store, opened.state, 0)]

    def retain(state: Any) -> TableCommit:
        gone = replace_files(state, files, now_ms=NOW_MS, data_change=True)
        return TableCommit.of("RETAIN", [*gone, Register(registers.lso(0), 3)], timestamp_ms=NOW_MS)

    commit_beside_leader(opened, retain)
    back_up(topics, "t", target)
    restore(topics, store, target, "again")
    assert ends(topics, "again") == [(3, 3, 0)]
    assert verify_named(store, "again").ok


def test_a_deleted_topic_comes_back_under_its_name(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    before = rows(topics, "orders")
    back_up(topics, "orders", target)
    topics.delete("orders")
    restore(topics, store, target)
    assert rows(topics, "orders") == before
    report = verify_named(store, "orders")
    assert report.ok, report.findings
    topics.delete("orders")
    restore(topics, store, target)
    assert rows(topics, "orders") == before
    assert verify_named(store, "orders").ok


def test_settings_given_win_over_those_of_the_backup(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    back_up(topics, "orders", target)
    restore(topics, store, target, "again", {"retention.ms": -1})
    expected = TopicConfig.parse({"retention.ms": -1, "commit.interval.ms": 0})
    assert topics.open("again").state.config == expected
    with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
        restore(topics, store, target, "other", {"retention.ms": "soon"})


def test_a_backup_has_one_version_although_others_write_and_vacuum_takes_files(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    taken: list[DataFile] = []

    def swap(call: str, path: str) -> None:
        if call != "put" or not path.endswith(".parquet") or taken:
            return
        writer = topics.open("orders")
        append(writer.store, writer.state, 2)
        # Retention removes the newest file of partition 0, and vacuum takes it right away.
        taken.append(writer.state.files(0).sorted()[-1])
        gone = replace_files(writer.state, taken, now_ms=NOW_MS, data_change=True)
        commit(writer.store, writer.state.version + 1, gone, "RETAIN")
        writer.store.delete(taken[0].path)

    made = back_up(topics, "orders", FaultyStore(target, after=swap))
    assert made.table_version == orders.state.version + 2
    assert [one.record_count for one in made.partitions] == [6, 3, 3]
    assert read_manifest(target) == made
    assert check_backup(topics, store, target, "again").record_count == made.record_count


def test_a_topic_that_is_deleted_meanwhile_gives_no_backup(
    topics: Topics, target: LocalStore, orders: OpenTopic
) -> None:
    def delete(call: str, path: str) -> None:
        if call == "put" and path.endswith(".parquet") and topics.exists("orders"):
            topics.delete("orders")
            topics.create("orders", 3)

    with pytest.raises(UnknownTopicError, match="deleted"):
        back_up(topics, "orders", FaultyStore(target, after=delete))
    assert MANIFEST not in [info.name for info in target.list_files("")]


def test_an_interrupted_backup_is_none_and_the_next_run_goes_on(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    number, puts = 0, 0
    while True:
        number += 1
        faulty = FaultyStore(target, after=fails_at(number, Crash()))
        try:
            back_up(topics, "orders", faulty)
            break
        except Crash:
            puts += sum(call == "put" and "/" in path for call, path in faulty.calls)
        if MANIFEST in [info.name for info in target.list_files("")]:
            break
        with pytest.raises(InvalidRequestError, match="did not finish"):
            restore(topics, store, target, "again")
    assert puts == 4, "what was copied is not copied again"
    assert read_manifest(target).record_count == 12
    restore(topics, store, target, "again")
    assert rows(topics, "again") == rows(topics, "orders")


def test_what_an_interrupted_backup_has_torn_is_copied_again(
    topics: Topics, target: LocalStore, orders: OpenTopic, tmp_path: Path
) -> None:
    with pytest.raises(Crash):
        back_up(topics, "orders", FaultyStore(target, before=fails_at(12, Crash())))
    (torn, *_) = sorted((tmp_path / "copy").glob("partition=*/*"))
    torn.write_bytes(torn.read_bytes()[:100])
    back_up(topics, "orders", target)
    assert read_manifest(target).record_count == 12
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [
        "manifest.json",
        "partition=0",
        "partition=1",
    ]


def test_a_directory_with_something_else_is_refused(
    topics: Topics, target: LocalStore, orders: OpenTopic
) -> None:
    target.put("notes.txt", b"mine")
    with pytest.raises(InvalidRequestError, match="is not empty"):
        back_up(topics, "orders", target)
    assert target.read("notes.txt") == b"mine"


def test_a_backup_is_never_written_over(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    made = back_up(topics, "orders", target)
    topics.create("other", 1)
    for topic in ("orders", "other"):
        with pytest.raises(InvalidRequestError, match="has a backup already"):
            back_up(topics, topic, target)
    assert read_manifest(target) == made
    assert check_backup(topics, store, target, "again").record_count == made.record_count


def test_an_unfinished_backup_of_another_topic_is_refused(
    topics: Topics, target: LocalStore, orders: OpenTopic
) -> None:
    with pytest.raises(Crash):
        back_up(topics, "orders", FaultyStore(target, before=fails_at(8, Crash())))
    topics.create("other", 1)
    with pytest.raises(InvalidRequestError, match="unfinished backup of topic 'orders'"):
        back_up(topics, "other", target)


def test_a_damaged_topic_gives_no_backup(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    file = orders.state.files(1).sorted()[0]
    path = Path(store.uri, "topics/orders", file.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamagedError, match=file.path):
        back_up(topics, "orders", target)
    path.unlink()
    with pytest.raises(LogDamagedError, match="is missing"):
        back_up(topics, "orders", target)


def test_an_interrupted_restore_leaves_a_whole_topic_or_none(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    back_up(topics, "orders", target)
    number = 0
    while True:
        number += 1
        faulty = FaultyStore(store, before=fails_at(number, Crash()))
        try:
            restore(Topics(faulty), faulty, target, f"again{number}")
        except Crash:
            if topics.exists(f"again{number}"):  # right after the commit
                assert rows(topics, f"again{number}") == rows(topics, "orders")
            continue
        break
    assert number > 10
    assert rows(topics, f"again{number}") == rows(topics, "orders")


@pytest.mark.parametrize("answer", ["lost", "failed"])
def test_a_restore_whose_answers_fail_is_whole_or_nothing(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic, answer: str
) -> None:
    back_up(topics, "orders", target)
    number, refused = 0, 0
    while True:
        number += 1
        hook = fails_at(number, StoreUnavailableError("the disk is gone"))

        def lose(call: str, path: str, hook: Hook = hook) -> None:
            try:
                hook(call, path)
            except StoreUnavailableError as error:
                raise (PutOutcomeUnknown(path) if call == "put_if_absent" else error) from None

        faulty = FaultyStore(store, *((nothing, lose) if answer == "lost" else (hook, nothing)))
        name = f"again{number}"
        try:
            restore(Topics(faulty), faulty, target, name)
        except (StoreUnavailableError, OutcomeUnknownError):
            refused += 1
        if topics.exists(name):
            assert rows(topics, name) == rows(topics, "orders")
            assert verify_named(store, name).ok
        if len(faulty.calls) < number:
            break
    assert refused > 5


def test_a_restore_that_is_refused_takes_its_files_away(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    back_up(topics, "orders", target)
    hook = fails_at(9, StoreUnavailableError("the disk is gone"))
    faulty = FaultyStore(store, before=hook)
    with pytest.raises(StoreUnavailableError):
        restore(Topics(faulty), faulty, target, "again")
    assert ("delete", "topics/again") in {
        (call, path.partition("/partition=")[0]) for call, path in faulty.calls
    }
    again = StoreFolder(store, "topics/again")
    assert [info for one in again.list_directories("") for info in again.list_files(one)] == []


def test_a_topic_that_exists_is_not_touched_by_a_restore(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    back_up(topics, "orders", target)
    version = orders.state.version
    with pytest.raises(TopicExistsError, match="'orders' exists already"):
        restore(topics, store, target)
    assert topics.open("orders").state.version == version


@pytest.mark.parametrize("deleted_again", [False, True])
@pytest.mark.parametrize("was_there", [False, True])
def test_a_topic_that_is_created_during_a_restore_wins(
    topics: Topics,
    store: LocalStore,
    target: LocalStore,
    orders: OpenTopic,
    deleted_again: bool,
    was_there: bool,
) -> None:
    back_up(topics, "orders", target)
    if was_there:
        topics.create("again", 1)
        topics.delete("again")
    done: list[str] = []

    def create(call: str, path: str) -> None:
        if call == "put" and path.endswith(".parquet") and not done:
            done.append(path)
            topics.create("again", 1)
            if deleted_again:
                topics.delete("again")

    faulty = FaultyStore(store, after=create)
    expected = StoreUnavailableError if deleted_again else TopicExistsError
    with pytest.raises(expected):
        restore(Topics(faulty), faulty, target, "again")
    assert topics.exists("again") is not deleted_again
    if not deleted_again:
        assert verify_named(store, "again").ok
        assert topics.open("again").state.file_count == 0


@pytest.mark.parametrize("by", ["a commit", "the files"])
def test_a_restore_beside_who_still_buries_the_old_topic_is_refused(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic, by: str
) -> None:
    back_up(topics, "orders", target)
    topics.delete("orders")
    old = StoreFolder(store, "topics/orders")
    done: list[str] = []

    def bury(call: str, path: str) -> None:
        if call == "put" and path.endswith(".parquet") and not done:
            done.append(path)
            if by == "a commit":
                version = load_table(old).version + 1
                commit(old, version, [Register(registers.DELETED, 1)], "DELETE TOPIC")
            else:
                store.delete(path)

    faulty = FaultyStore(store, after=bury)
    with pytest.raises(StoreUnavailableError, match="meanwhile; nothing was done, try again"):
        restore(Topics(faulty), faulty, target)
    with pytest.raises(UnknownTopicError):
        topics.open("orders")
    restore(topics, store, target)
    assert verify_named(store, "orders").ok


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [(_cut, "is damaged"), (_flip, "is damaged"), (Path.unlink, "is missing")],
    ids=["cut", "flipped", "missing"],
)
def test_a_backup_with_a_bad_file_is_refused_by_name(
    topics: Topics,
    store: LocalStore,
    target: LocalStore,
    orders: OpenTopic,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    made = back_up(topics, "orders", target)
    path = made.partitions[1].files[0].path
    damage(Path(target.uri, path))
    for use in (check_backup, restore):
        with pytest.raises(LogDamagedError, match=f"{path}.*{message}"):
            use(topics, store, target, "again")
    assert not topics.exists("again")


def _edited(**changes: Any) -> Callable[[Path], None]:
    """Changes the manifest and leaves its checksum as it was."""

    def edit(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (_cut, None, ""),  # the line feed at the end
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), LogDamagedError, "is torn"),
        (lambda path: path.write_bytes(b""), LogDamagedError, "is torn"),
        (lambda path: path.write_bytes(b"[" * 100_000), LogDamagedError, "is torn"),
        (lambda path: path.write_bytes(b"[1]"), LogDamagedError, "is torn"),
        (lambda path: path.write_bytes(b"\xff\xfe"), LogDamagedError, "is torn"),
        (_edited(topic="x"), LogDamagedError, "it was changed"),
        (_edited(partitions=[]), LogDamagedError, "it was changed"),
        (_edited(backup_version=2), UnsupportedTableError, "reads 1 and older"),
        (_edited(backup_version="1"), UnsupportedTableError, "reads 1 and older"),
        (Path.unlink, InvalidRequestError, "has no manifest.json"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(
    topics: Topics,
    store: LocalStore,
    target: LocalStore,
    orders: OpenTopic,
    damage: Callable[[Path], None],
    error: type[MainstemError] | None,
    message: str,
) -> None:
    back_up(topics, "orders", target)
    damage(Path(target.uri, MANIFEST))
    if error is None:
        restore(topics, store, target, "again")
        return
    with pytest.raises(error, match=message):
        restore(topics, store, target, "again")
    assert not topics.exists("again")


@pytest.mark.parametrize(
    "path", ["../../partition=0/x.parquet", "partition=1/x.parquet", "/etc/passwd", ""]
)
def test_a_manifest_with_paths_that_lead_elsewhere_is_refused(
    topics: Topics, target: LocalStore, orders: OpenTopic, path: str
) -> None:
    made = back_up(topics, "orders", target)
    text = made.encoded().decode().replace(made.partitions[0].files[0].path, path)
    body = json.loads(text)
    body.pop("checksum")
    for partition in body["partitions"]:
        partition.pop("partition")
        partition.pop("record_count")
    # As somebody would write it who computes the checksum, too.
    evil = json.dumps(body | {"checksum": _checksum(body)}).encode()
    with pytest.raises(LogDamagedError, match="is not a data file of partition 0"):
        Manifest.decode(evil, MANIFEST)


def test_a_check_says_what_a_restore_would(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    back_up(topics, "orders", target)
    with pytest.raises(TopicExistsError):
        check_backup(topics, store, target)
    with pytest.raises(InvalidTopicError):
        check_backup(topics, store, target, "..")
    with pytest.raises(InvalidConfigError):
        check_backup(topics, store, target, "again", {"retention.ms": "soon"})
    assert check_backup(topics, store, target, "again").topic == "again"
    assert topics.names() == ["orders"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "ö", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused_before_anything_is_copied(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic, name: str
) -> None:
    back_up(topics, "orders", target)
    faulty = FaultyStore(store)
    if name:
        with pytest.raises(InvalidTopicError):
            restore(Topics(faulty), faulty, target, name)
    else:  # as it was
        with pytest.raises(TopicExistsError):
            restore(Topics(faulty), faulty, target, name)
    assert not [path for call, path in faulty.calls if call.startswith("put")]


def test_a_target_that_is_too_small_is_refused_before_it_is_filled(
    topics: Topics, target: LocalStore, orders: OpenTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStore, "free_bytes", lambda _: 100)
    with pytest.raises(StoreUnavailableError, match=r"has 100 bytes free; the backup needs \d+"):
        back_up(topics, "orders", target)
    assert target.list_directories("") == []


def test_a_target_that_becomes_full_is_named_and_the_next_run_goes_on(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    def fill(call: str, path: str) -> None:
        if call == "put" and path.startswith("partition=1/"):
            raise StoreFull("no space; delete or trim a topic")

    with pytest.raises(StoreUnavailableError, match="is full; make space there") as error:
        back_up(topics, "orders", FaultyStore(target, before=fill))
    assert "trim a topic" not in error.value.message
    back_up(topics, "orders", target)
    restore(topics, store, target, "again")
    assert rows(topics, "again") == rows(topics, "orders")


@pytest.mark.fault
def test_a_disk_that_is_full_gives_no_backup_and_no_topic(
    topics: Topics, store: LocalStore, orders: OpenTopic, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk"))
        target = stack.enter_context(contextlib.closing(LocalStore(disk / "copy")))
        ballast = fill(disk)
        with pytest.raises(StoreUnavailableError):
            back_up(topics, "orders", target)
        ballast.unlink()
        back_up(topics, "orders", target)
        check_backup(topics, store, target, "again")
        small = stack.enter_context(contextlib.closing(LocalStore(disk / "warehouse")))
        fill(disk)
        with pytest.raises(StoreUnavailableError, match="bytes free"):
            restore(Topics(small), small, target)
        assert Topics(small).names() == []


_KILLED = """
import sys, time
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.backup import back_up, restore
warehouse, copy, what = sys.argv[1:]
store, target = LocalStore(warehouse), LocalStore(copy)
def slow(done_bytes, all_bytes):
    print("copied", flush=True)
    time.sleep(0.05)
print("ready", flush=True)
if what == "backup":
    back_up(Topics(store), "orders", target, on_copied=slow)
else:
    restore(Topics(store), store, target, "again", on_read=slow)
print("done", flush=True)
"""


@pytest.mark.fault
@pytest.mark.parametrize("what", ["backup", "restore"])
def test_kill_9_in_the_middle_leaves_nothing_half_done(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic, what: str
) -> None:
    if what == "restore":
        back_up(topics, "orders", target)
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, store.uri, target.uri, what],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["ready\n", "copied\n", "copied\n"]
        os.kill(process.pid, signal.SIGKILL)
        assert "done" not in process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    assert not topics.exists("again")
    if what == "backup":
        with pytest.raises(InvalidRequestError, match="did not finish"):
            restore(topics, store, target, "again")
        back_up(topics, "orders", target)
    restore(topics, store, target, "again")
    assert rows(topics, "again") == rows(topics, "orders")
    assert verify_named(store, "again").ok


def test_a_backup_goes_between_stores_of_different_kinds(topics: Topics, orders: OpenTopic) -> None:
    memory, copy = MemoryStore(), MemoryStore()
    with pytest.raises(Crash):
        back_up(topics, "orders", FaultyStore(copy, before=fails_at(12, Crash())))
    back_up(topics, "orders", copy)
    restore(Topics(memory), memory, copy)
    assert rows(Topics(memory), "orders") == rows(topics, "orders")
    assert "unfinished.json" not in [info.name for info in copy.list_files("")]


def test_progress_ends_at_all_bytes(
    topics: Topics, store: LocalStore, target: LocalStore, orders: OpenTopic
) -> None:
    told: list[tuple[int, int]] = []
    made = back_up(topics, "orders", target, on_copied=lambda *bytes_: told.append(bytes_))
    assert told[-1] == (made.size_bytes, made.size_bytes)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    told.clear()
    restore(topics, store, target, "again", on_read=lambda *bytes_: told.append(bytes_))
    assert told[-1] == (made.size_bytes, made.size_bytes)
    assert made.taken_ms <= time.time() * 1000


@pytest.mark.slow
def test_a_backup_lies_in_an_object_storage_service_and_comes_back_from_there(
    topics: Topics,
    store: LocalStore,
    orders: OpenTopic,
    s3_server: S3Server,
) -> None:
    url = f"s3://{s3_server.make_bucket()}/copies/orders"
    options = {name.lower(): value for name, value in s3_server.options.items()}
    with contextlib.closing(CloudStore(url, options)) as copy:
        back_up(topics, "orders", copy)
        restore(topics, store, copy, "again")
        with pytest.raises(InvalidRequestError, match="has a backup already"):
            back_up(topics, "orders", copy)
    assert rows(topics, "again") == rows(topics, "orders")
