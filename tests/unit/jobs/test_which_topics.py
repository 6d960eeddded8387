"""Which directories are topics: unreadable ones, odd names, links, and logs that lack files."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.delta_log import os_faults
from tests.unit.delta_log.os_faults import FaultyOs
from tests.unit.jobs.topic_tables import NOW_MS, appends

from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.delta_log.verify import verify_named
from mainstem.errors import TopicExistsError, UnknownTopicError
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import plan_job, run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.jobs.vacuum_orphans import VacuumOrphans, list_data_files
from pyspark_mainstem._topic_tables import TopicTables

LOG = "_delta_log"


@pytest.fixture
def system() -> Iterator[FaultyOs]:
    with os_faults.installed() as faulty:
        yield faulty


def _fail_below(system: FaultyOs, part: str, number: int) -> None:
    """Every call on a path with that part fails. The tests run as root, who may read all."""

    def hook(_: str, path: object) -> None:
        if part in str(path):
            raise os_faults.failure(number)

    system.before = hook


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM], ids=os_faults.name)
@pytest.mark.parametrize("part", ["topics/backup", "topics/backup/_delta_log/"])
def test_a_directory_that_may_not_be_read_is_no_topic_and_hides_none(
    store: LocalStore,
    system: FaultyOs,
    part: str,
    number: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics = Topics(store)
    topics.create("orders", 1)
    topics.create("backup", 1)
    _fail_below(system, part, number)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert topics.names() == ["orders"]
    assert len(caplog.records) == 1, "it is told once"
    assert "topics/backup" in caplog.text
    assert os.strerror(number) in caplog.text
    os_faults.heal(system)
    assert topics.names() == ["backup", "orders"]


def test_a_directory_that_cannot_be_read_now_is_listed_and_fails_alone(
    store: LocalStore, system: FaultyOs
) -> None:
    """A topic must not seem to be deleted because of a disk that fails for a moment."""
    topics = Topics(store)
    topics.create("orders", 1)
    topics.create("worn", 1)
    _fail_below(system, "topics/worn", errno.EIO)
    assert topics.names() == ["orders", "worn"]
    plans, failed = plan_job(store.uri, Retention())
    assert [plan.topic for plan in plans] == ["orders"]
    assert "Input/output error" in failed["worn"]


def test_a_directory_whose_name_no_topic_can_have_is_not_even_looked_into(
    store: LocalStore, system: FaultyOs, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics(store)
    topics.create("orders", 1)
    for name in ("lost+found", "my old topic", "a" * 250):
        shutil.copytree(f"{store.uri}/topics/orders", f"{store.uri}/topics/{name}")
    _fail_below(system, "lost+found", errno.EACCES)
    assert topics.names() == ["orders"]
    tables = TopicTables(store.uri)
    assert tables.names() == ["orders"]
    tables.close()
    assert not caplog.records


@pytest.mark.parametrize("left", ["commit", "checkpoint"])
def test_a_log_with_any_commit_or_checkpoint_is_a_topic_and_is_not_created_over(
    store: LocalStore, left: str
) -> None:
    """`_last_checkpoint` is optional, and clean-up takes version 0."""
    topics = Topics(store)
    topics.create("t", 1)
    log = Path(store.uri, "topics/t", LOG)
    name = {"commit": "json", "checkpoint": "checkpoint.parquet"}[left]
    (log / "00000000000000000000.json").rename(log / f"00000000000000000012.{name}")
    assert topics.exists("t")
    assert topics.names() == ["t"]
    with pytest.raises(Exception, match="t") as told:
        topics.create("t", 5)
    assert not isinstance(told.value, UnknownTopicError)
    assert not (log / "00000000000000000000.json").exists()


def test_a_topic_whose_log_was_cleaned_is_there_without_the_pointer_to_its_checkpoint(
    store: LocalStore,
) -> None:
    table = appends(Topics(store), "t", 1)
    table.append(0, [b"v"] * 5)
    topics = Topics(store)
    opened = topics.open("t")
    write_checkpoint(opened.store)
    log = Path(store.uri, "topics/t", LOG)
    (log / "_last_checkpoint").unlink()
    (log / "00000000000000000000.json").unlink()
    assert topics.names() == ["t"]
    with pytest.raises(TopicExistsError):
        topics.create("t", 5)
    assert topics.open("t").state.log_end_offset(0) == 5


@pytest.fixture
def linked(store: LocalStore, tmp_path: Path) -> Path:
    """The topic `t` is a link to a directory of another disk, which is returned."""
    table = appends(Topics(store), "t", 2)
    for partition in range(2):
        table.append(partition, [b"v"] * 5)
    target = tmp_path / "big" / "t"
    target.parent.mkdir()
    shutil.move(f"{store.uri}/topics/t", target)
    os.symlink(target, f"{store.uri}/topics/t")
    return target


@pytest.mark.usefixtures("linked")
def test_a_topic_that_is_a_link_is_a_topic_for_all(store: LocalStore) -> None:
    assert Topics(store).names() == ["t"]
    tables = TopicTables(store.uri)
    assert tables.names() == ["t"]
    tables.close()
    assert verify_named(store, "t").ok
    plans, failed = plan_job(store.uri, Retention())
    assert ([plan.topic for plan in plans], failed) == (["t"], {})


def test_deleting_a_topic_that_is_a_link_deletes_the_records_that_it_leads_to(
    store: LocalStore, linked: Path
) -> None:
    topics = Topics(store)
    topics.delete("t")
    assert topics.names() == []
    assert not list(linked.glob("partition=*/*"))
    topics.create("t", 1)
    assert topics.open("t").state.log_end_offset(0) == 0


def test_deleting_a_topic_that_is_a_link_leaves_what_is_not_the_topics(
    store: LocalStore, linked: Path
) -> None:
    (linked / "notes.txt").write_text("mine")
    (linked / "other").mkdir()
    Topics(store).delete("t")
    assert (linked / "notes.txt").read_text() == "mine"
    assert (linked / "other").is_dir()


@pytest.fixture
def linked_partition(store: LocalStore, tmp_path: Path) -> Path:
    """`partition=0` of the topic `t` is a link to a directory of another disk."""
    table = appends(Topics(store), "t", 2)
    for partition in range(2):
        table.append(partition, [b"v"] * 5)
    target = tmp_path / "big" / "zero"
    target.parent.mkdir()
    shutil.move(f"{store.uri}/topics/t/partition=0", target)
    os.symlink(target, f"{store.uri}/topics/t/partition=0")
    return target


def test_a_partition_that_is_a_link_is_looked_into_by_vacuum_and_verify(
    store: LocalStore, linked_partition: Path
) -> None:
    (name,) = os.listdir(linked_partition)
    orphan = linked_partition / f"{0:020d}-{'a' * 32}.parquet"
    shutil.copy(linked_partition / name, orphan)
    bound = StoreFolder(store, "topics/t")
    assert f"partition=0/{orphan.name}" in [file.path for file in list_data_files(bound)]
    assert verify_named(store, "t").notes
    (row,) = run_job(
        store.uri,
        VacuumOrphans(),
        ["t"],
        pool=lambda: InProcessPool(1),
        clock_ms=lambda: NOW_MS * 10,
    )
    assert row.outcome.kind is OutcomeKind.OK
    assert not orphan.exists()
    assert verify_named(store, "t").ok


def test_deleting_a_topic_frees_the_disk_that_a_partition_is_linked_to(
    store: LocalStore, linked_partition: Path
) -> None:
    (linked_partition / "notes.txt").write_text("mine")
    topics = Topics(store)
    topics.delete("t")
    assert topics.names() == []
    assert os.listdir(linked_partition) == ["notes.txt"]


def test_a_link_that_leads_nowhere_is_no_topic_and_stops_no_listing_nor_delete(
    store: LocalStore, tmp_path: Path
) -> None:
    topics = Topics(store)
    topics.create("t", 1)
    os.symlink(tmp_path / "not mounted", f"{store.uri}/topics/gone")
    os.symlink(tmp_path / "not mounted", f"{store.uri}/topics/t/partition=7")
    os.symlink(f"{store.uri}/topics", f"{store.uri}/topics/t/partition=8")
    assert topics.names() == ["t"]
    topics.create("other", 1)
    topics.delete("t")
    assert topics.names() == ["other"]
