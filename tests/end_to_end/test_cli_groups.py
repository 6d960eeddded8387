"""`mainstem group ...` and the group calls of AdminClient, against a real gateway."""

from __future__ import annotations

import json
import logging
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from mainstem.cli.root import cli
from mainstem.client import (
    OFFSET_BEGINNING,
    OFFSET_END,
    AdminClient,
    Consumer,
    ConsumerGroupDescription,
    Producer,
    TopicPartition,
)
from mainstem.errors import (
    GroupNotEmptyError,
    MainstemError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

#: Nothing takes nearly as long.
DEADLINE_S = 30.0

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("groups") / "warehouse") as process:
        yield process


@pytest.fixture
def admin(gateway: GatewayProcess) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": gateway.address}) as client:
        yield client


class Desk:
    """Runs commands, and has a topic of two partitions with ten records each, a second apart."""

    def __init__(self, gateway: GatewayProcess, admin: AdminClient) -> None:
        self.address = gateway.address
        self.admin = admin
        name = uuid.uuid4().hex[:8]
        self.topic, self.group = f"topic-{name}", f"group-{name}"
        self.fill(self.topic)

    def fill(self, topic: str) -> None:
        self.admin.create_topic(topic, 2, {"commit.interval.ms": 0})
        with Producer({"bootstrap.servers": self.address}) as producer:
            for number in range(10):
                for partition in range(2):
                    producer.produce(
                        topic, b"%d" % number, partition=partition, timestamp=T0_MS + 1000 * number
                    )

    def __call__(self, *arguments: str, json: bool = False, stdin: str = "") -> Result:
        before = ["--format", "json"] if json else []
        return CliRunner().invoke(
            cli, [*before, "group", *arguments, "-b", self.address], input=stdin
        )

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        result = self(*arguments, json=True)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    def commit(self, *offsets: int, topic: str = "", group: str = "") -> None:
        """Commits from outside, of partition 0 and following."""
        done = self.admin.alter_consumer_group_offsets(
            group or self.group,
            [TopicPartition(topic or self.topic, number, at) for number, at in enumerate(offsets)],
        )
        assert not any(done.values()), done

    def committed(self, topic: str = "", group: str = "") -> dict[int, int]:
        found = self.admin.list_consumer_group_offsets(group or self.group)
        return {tp.partition: tp.offset for tp in found if tp.topic == (topic or self.topic)}

    @contextmanager
    def member(self, **settings: Any) -> Iterator[Consumer]:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        config = {"bootstrap.servers": self.address, "group.id": self.group, **config}
        with Consumer({"client.id": "worker", "enable.auto.commit": False, **config}) as consumer:
            consumer.subscribe([self.topic])
            consumer.poll(DEADLINE_S)
            yield consumer


@pytest.fixture
def desk(gateway: GatewayProcess, admin: AdminClient) -> Desk:
    return Desk(gateway, admin)


def test_a_group_is_listed_and_described_with_members_offsets_and_lag(desk: Desk) -> None:
    desk.commit(4)
    with desk.member():
        listed = {row["group"]: row for row in desk.rows("list")}
        assert listed[desk.group] == {"group": desk.group, "state": "STABLE", "members": 1}
        (found,) = desk.rows("describe", desk.group)
        assert (found["state"], found["lag_records"], found["status"]) == ("STABLE", 6, "OK")
        (member,) = found["members"]
        assert member["client_id"] == "worker"
        assert [one["partition"] for one in member["assignment"]] == [0, 1]
        first, second = found["partitions"]
        assert (first["committed_offset"], first["log_end_offset"]) == (4, 10)
        assert first["lag_records"] == 6
        assert first["member_id"] == member["member_id"]
        assert (second["committed_offset"], second["lag_records"]) == (None, None)
        text = desk("describe", desk.group)
        assert re.search(
            r"^lag +6 \(1 partition without a committed offset\)$", text.stdout, re.MULTILINE
        )
        row = rf"^{desk.topic} +0 +4 +10 +6 +{member['member_id'][:8]} +worker$"
        assert re.search(row, text.stdout, re.MULTILINE)
        assert re.search(rf"worker +\d+ +{desk.topic} 0-1$", text.stdout, re.MULTILINE)
    assert {row["group"]: row["state"] for row in desk.rows("list")}[desk.group] == "EMPTY"


def test_an_offset_beyond_the_log_is_refused_and_names_both(desk: Desk) -> None:
    tps = [TopicPartition(desk.topic, number, at) for number, at in enumerate([11, 10])]
    done = desk.admin.alter_consumer_group_offsets(desk.group, tps)
    refused = done.pop(tps[0])
    assert isinstance(refused, OffsetOutOfRangeError)
    assert "offset 11" in refused.message
    assert "[0, 10]" in refused.message
    assert (done, desk.committed()) == ({tps[1]: None}, {1: 10})


def test_lag_counts_what_can_be_read(desk: Desk) -> None:
    desk.commit(1, 9)
    desk.admin.delete_records(desk.topic, {0: 7, 1: 8})
    (found,) = desk.rows("describe", desk.group)
    assert [one["lag_records"] for one in found["partitions"]] == [3, 1]


def test_a_topic_that_was_put_back_from_an_older_copy_is_told_and_nothing_is_skipped(
    tmp_path: Path,
) -> None:
    topic = tmp_path / "warehouse" / "topics" / "t"
    with GatewayProcess(tmp_path / "warehouse") as gateway:
        servers = {"bootstrap.servers": gateway.address}

        def produce(what: str, count: int) -> None:
            with Producer(servers) as producer:
                for number in range(count):
                    producer.produce("t", f"{what} {number}".encode())

        def read(count: int) -> list[bytes | None]:
            group = {"group.id": "g", "auto.offset.reset": "earliest"}
            with Consumer({**servers, **group}) as consumer:
                consumer.subscribe(["t"])
                return [one.value for one in consumer.consume(count, DEADLINE_S)]

        with AdminClient(servers) as admin:
            admin.create_topic("t", 1)
            produce("kept", 9)
            gateway.terminate()
            shutil.copytree(topic, tmp_path / "copy")
            gateway.start()
            produce("lost", 1)
            assert len(read(10)) == 10
            gateway.terminate()
            shutil.rmtree(topic)
            shutil.copytree(tmp_path / "copy", topic)
            gateway.start()
            produce("new", 3)
            result = CliRunner().invoke(cli, ["group", "describe", "g", "-b", gateway.address])
            assert re.search(r"^lag +3$", result.output, re.MULTILINE)
            assert "t-0 was put back from an older copy" in result.output
        assert read(3) == [b"new 0", b"new 1", b"new 2"]


def test_a_group_that_is_not_there_is_told_and_the_others_are_described(desk: Desk) -> None:
    desk.commit(1)
    result = desk("describe", "nobody", desk.group, json=True)
    assert result.exit_code == 1
    missing, found = map(json.loads, result.stdout.splitlines())
    assert (missing["group"], missing["status"]) == ("nobody", "UNKNOWN_GROUP")
    assert found["status"] == "OK"


def test_what_a_group_has_committed_is_shown_also_of_a_log_that_cannot_be_read_now(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.commit(4, 5)
    list_offsets = AdminClient.list_offsets

    def fail_for_one(
        admin: AdminClient, queries: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int | MainstemError]:
        found = list_offsets(admin, queries, timeout)
        return {**found, TopicPartition(desk.topic, 1): StoreUnavailableError("the disk is away")}

    monkeypatch.setattr(AdminClient, "list_offsets", fail_for_one)
    result = desk("describe", desk.group, json=True)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["status"], found["lag_records"]) == ("STORE_UNAVAILABLE", 6)
    broken = found["partitions"][1]
    assert (broken["committed_offset"], broken["log_end_offset"]) == (5, None)
    text = desk("describe", desk.group)
    assert re.search(rf"^{desk.topic} +1 +5 +- +-$", text.stdout, re.MULTILINE)
    assert "the disk is away" in text.stderr


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("start", {0: 0, 1: 0}),
        ("end", {0: 10, 1: 10}),
        ("7", {0: 7, 1: 7}),
        ("-3", {0: 7, 1: 7}),
        (f"@{T0_MS + 5500}", {0: 6, 1: 6}),
        ("@2023-11-14T22:13:25Z", {0: 5, 1: 5}),
        ("PT1H", {0: 10, 1: 10}),
        ("P99999D", {0: 0, 1: 0}),
        ("4000", {0: 10, 1: 10}),
    ],
)
def test_offsets_go_where_to_says_in_all_partitions_of_the_groups_topics(
    desk: Desk, to: str, expected: dict[int, int]
) -> None:
    desk.commit(3)
    result = desk("seek", desk.group, "--to", to, "--no-confirm")
    assert result.exit_code == 0, result.output
    assert desk.committed() == expected


def test_a_dry_run_shows_the_plan_and_moves_nothing(desk: Desk) -> None:
    desk.commit(3, 8)
    result = desk("seek", desk.group, "--to", "99", "--dry-run")
    assert result.exit_code == 0
    assert re.search(
        rf"^{desk.topic} +0 +3 +10 +\+7 +99 is past the end$", result.stdout, re.MULTILINE
    )
    assert "dry run" in result.stderr
    assert desk.committed() == {0: 3, 1: 8}


def test_seek_asks_first_and_takes_no_for_an_answer(desk: Desk) -> None:
    desk.commit(3, 0)
    refused = desk("seek", desk.group, "--to", "start", stdin="n\n")
    assert refused.exit_code == 1
    assert "Move 1 offset of group" in refused.stderr
    assert desk.committed() == {0: 3, 1: 0}
    assert desk("seek", desk.group, "--to", "start").exit_code == 2, "nobody is there to ask"
    assert desk("seek", desk.group, "--to", "start", stdin="y\n").exit_code == 0
    assert desk.committed() == {0: 0, 1: 0}


def test_a_group_with_members_is_not_moved_and_the_dry_run_says_so(desk: Desk) -> None:
    desk.commit(3, 3)
    with desk.member():
        for more in (["--no-confirm"], ["--dry-run"]):
            result = desk("seek", desk.group, "--to", "start", *more)
            assert result.exit_code == 1
            assert "GROUP_NOT_EMPTY" in result.stderr
            assert "1 member (worker)" in result.stderr
        with pytest.raises(GroupNotEmptyError):
            desk.commit(0, 0)
        for verb in (["delete", desk.group], ["offset-delete", desk.group, "--topics", desk.topic]):
            for more in (["--no-confirm"], ["--dry-run"]):
                result = desk(*verb, *more)
                assert result.exit_code == 1
                assert "GROUP_NOT_EMPTY" in result.output
    assert desk.committed() == {0: 3, 1: 3}


@pytest.mark.parametrize("name", ["", "\u00fc" * 128], ids=["empty", "256 bytes"])
def test_a_name_that_no_group_may_have_is_refused_by_the_dry_run_too(desk: Desk, name: str) -> None:
    words = ("seek", name, "--to", "start", "--topics", desk.topic)
    told, done = (desk(*words, more) for more in ("--dry-run", "--no-confirm"))
    assert (told.exit_code, done.exit_code) == (1, 1)
    assert "must have 1 to 255 bytes" in done.stderr
    assert done.stderr in told.stderr


def test_topics_and_partitions_limit_what_is_moved_and_a_new_group_is_made(desk: Desk) -> None:
    other = desk.topic + "-other"
    desk.fill(other)
    desk.commit(3, 3)
    desk.commit(4, 4, topic=other)
    moved = desk("seek", desk.group, "--to", "end", "--topics", other, "-p", "1", "--no-confirm")
    assert moved.exit_code == 0, moved.output
    assert desk.committed() == {0: 3, 1: 3}
    assert desk.committed(other) == {0: 4, 1: 10}
    nothing = desk("seek", "new-" + desk.group, "--to", "5", "--no-confirm")
    assert nothing.exit_code == 1
    assert "--topics" in nothing.stderr
    rows = desk.rows(
        "seek", "new-" + desk.group, "--to", "5", "--topics", desk.topic, "--no-confirm"
    )
    assert [(row["before"], row["after"], row["status"]) for row in rows] == [(None, 5, "OK")] * 2
    assert desk.committed(group="new-" + desk.group) == {0: 5, 1: 5}


def test_what_describe_printed_and_what_another_group_has_can_be_taken_over(
    desk: Desk, tmp_path: Path
) -> None:
    desk.commit(3, 8)
    saved = tmp_path / "saved.json"
    saved.write_text(desk("describe", desk.group, json=True).stdout)
    desk.commit(0, 0)
    assert desk("seek", desk.group, "--to-file", str(saved), "--no-confirm").exit_code == 0
    assert desk.committed() == {0: 3, 1: 8}
    copy = "copy-" + desk.group
    assert desk("seek", copy, "--to-group", desk.group, "-p", "1", "--no-confirm").exit_code == 0
    assert desk.committed(group=copy) == {1: 8}
    nobody = desk("seek", copy, "--to-group", "nobody", "--no-confirm")
    assert nobody.exit_code == 1
    assert "nobody has committed nothing" in nobody.stderr


@pytest.mark.parametrize(
    ("text", "code"), [("nowhere 0 1\n", "UNKNOWN_TOPIC"), ("{topic} 2 1\n", "UNKNOWN_PARTITION")]
)
def test_a_file_that_names_what_does_not_exist_moves_nothing(
    desk: Desk, tmp_path: Path, text: str, code: str
) -> None:
    desk.commit(3, 3)
    path = tmp_path / "offsets.tsv"
    path.write_text(f"{desk.topic} 0 1\n" + text.format(topic=desk.topic))
    result = desk("seek", desk.group, "--to-file", str(path), "--no-confirm")
    assert result.exit_code == 1
    assert code in result.stderr
    assert desk.committed() == {0: 3, 1: 3}


@pytest.mark.parametrize(
    "arguments",
    [
        ["seek", "g"],
        ["seek", "g", "--to", "start", "--to-group", "h"],
        ["seek", "g", "--to", "sometimes"],
        ["seek", "g", "--to-file", "/nowhere"],
        ["offset-delete", "g"],
        ["delete"],
    ],
)
def test_what_means_nothing_is_wrong_usage(desk: Desk, arguments: list[str]) -> None:
    assert desk(*arguments).exit_code == 2


def test_offsets_are_deleted_after_a_question_and_only_those_that_were_named(desk: Desk) -> None:
    desk.commit(3, 8)
    arguments = ["offset-delete", desk.group, "--topics", desk.topic, "-p", "0"]
    (row,) = desk.rows(*arguments, "--dry-run")
    assert row == {"topic": desk.topic, "partition": 0, "offset": 3}
    assert desk(*arguments, stdin="n\n").exit_code == 1
    assert desk.committed() == {0: 3, 1: 8}
    assert desk(*arguments, stdin="y\n").exit_code == 0
    assert desk.committed() == {1: 8}
    again = desk(*arguments, "--no-confirm")
    assert again.exit_code == 1
    assert "has committed nothing" in again.stderr


def test_groups_are_deleted_and_each_that_is_not_is_a_row(desk: Desk) -> None:
    desk.commit(3)
    (row,) = desk.rows("delete", desk.group, "--dry-run")
    assert (row["offsets"], row["status"]) == (1, "OK")
    assert desk("delete", desk.group, stdin="n\n").exit_code == 1
    result = desk("delete", desk.group, "nobody", "--no-confirm", json=True)
    assert result.exit_code == 1
    statuses = [json.loads(line)["status"] for line in result.stdout.splitlines()]
    assert statuses == ["OK", "UNKNOWN_GROUP"]
    assert desk.group not in {one.group_id for one in desk.admin.list_consumer_groups()}


def test_the_admin_client_answers_for_each_target(desk: Desk, admin: AdminClient) -> None:
    topic, group = desk.topic, desk.group
    good, bad = TopicPartition(topic, 0, 5), TopicPartition(topic, 7, 5)
    done = admin.alter_consumer_group_offsets(group, [bad, good])
    assert isinstance(done[bad], UnknownPartitionError)
    assert done[good] is None
    assert desk.committed() == {0: 5}
    with pytest.raises(ValueError, match="negative"):
        admin.alter_consumer_group_offsets(group, [TopicPartition(topic, 0, OFFSET_END)])
    with pytest.raises(UnknownTopicError):
        admin.list_consumer_group_offsets(group, [TopicPartition("nowhere", 0)])
    assert admin.list_consumer_group_offsets(group, [TopicPartition(topic, 1)]) == {}
    assert admin.list_consumer_group_offsets(group, []) == {}
    described = admin.describe_consumer_groups([group, "nobody"])
    assert isinstance(described["nobody"], UnknownGroupError)
    found = described[group]
    assert isinstance(found, ConsumerGroupDescription)
    assert [(one.partition, one.offset) for one in found.offsets] == [(0, 5)]
    assert admin.delete_consumer_group_offsets(group, [good]) == {good: None}
    assert isinstance(admin.delete_consumer_groups([group])[group], UnknownGroupError)


def test_offsets_are_listed_by_place_and_time(desk: Desk, admin: AdminClient) -> None:
    tps = [TopicPartition(desk.topic, number) for number in range(2)]
    asked = {tps[0]: OFFSET_BEGINNING, tps[1]: OFFSET_END}
    assert admin.list_offsets(asked) == {tps[0]: 0, tps[1]: 10}
    asked = {tps[0]: T0_MS + 2000, tps[1]: T0_MS + 99_000}
    assert admin.list_offsets(asked) == {tps[0]: 2, tps[1]: OFFSET_END}
    nowhere = TopicPartition("nowhere", 0)
    assert isinstance(admin.list_offsets({nowhere: 0})[nowhere], UnknownTopicError)


def test_groups_are_offered_where_one_is_typed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", "")  # which this sets, for good
    desk.commit(3)
    words = ShellComplete(cli, {}, "mainstem", "_MAINSTEM_COMPLETE")
    try:
        for command in (["group", "describe"], ["group", "seek"], ["topic", "consume", "t", "-g"]):
            found = words.get_completions(["-b", desk.address, *command], desk.group[:-1])
            assert [item.value for item in found] == [desk.group]
    finally:
        logging.disable(logging.NOTSET)
