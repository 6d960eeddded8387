"""The command line as a user runs it: a real gateway, outputs and exit codes, and real processes
where those matter."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from mainstem.cli.root import cli
from mainstem.cli.topic import trim
from mainstem.client import AdminClient, Producer
from mainstem.compat import confluent
from mainstem.testing import GatewayProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

TIMEOUT_S = 90
MAINSTEM = [sys.executable, "-m", "mainstem.cli"]


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@dataclass(frozen=True)
class Shell:
    """Runs commands against one gateway."""

    gateway: GatewayProcess

    @property
    def environment(self) -> dict[str, str]:
        mine = {name: v for name, v in os.environ.items() if not name.startswith("MAINSTEM_")}
        return {**mine, "MAINSTEM_BOOTSTRAP_SERVERS": self.gateway.address}

    def __call__(self, *arguments: str, stdin: bytes | str = b"") -> Answer:
        """Runs a command in this process, which spares it a second of imports."""
        done = CliRunner(env=self.environment).invoke(cli, arguments, input=stdin)
        return Answer(done.exit_code, done.stdout, done.stderr)

    def process(self, *arguments: str, stdin: bytes | str = b"") -> Answer:
        """Runs a command in a process of its own."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [*MAINSTEM, *arguments],
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=self.environment,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*MAINSTEM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The topic's records by partition and offset, read from its table."""
        table = DeltaTable(str(self.gateway.warehouse / "topics" / topic)).to_pyarrow_table()
        columns = ["partition", "offset", "key", "value", "headers", "timestamp"]
        ordered = table.select(columns).sort_by(
            [("partition", "ascending"), ("offset", "ascending")]
        )
        rows: list[dict[str, Any]] = ordered.to_pylist()
        return rows

    def topics(self) -> list[str]:
        with AdminClient({"bootstrap.servers": self.gateway.address}) as admin:
            return [one.topic for one in admin.list_topics()]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("cli") / "warehouse") as process:
        yield process


@pytest.fixture
def shell(gateway: GatewayProcess) -> Shell:
    return Shell(gateway)


@pytest.fixture
def topic(shell: Shell, request: pytest.FixtureRequest) -> str:
    """A new topic of three partitions."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "_", request.node.name)[:200]
    with AdminClient({"bootstrap.servers": shell.gateway.address}) as admin:
        admin.create_topic(name, 3)
    return name


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line of a process's output, or a failure after TIMEOUT_S."""
    assert process.stdout is not None
    line = b""
    deadline = time.monotonic() + TIMEOUT_S
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, left))
        assert ready, f"no line within {TIMEOUT_S} s; so far {line!r}"
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, f"the output ended after {line!r}"
        line += byte
    return line


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The process, which is killed if it still runs after the block."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_topics_are_created_listed_and_described(shell: Shell) -> None:
    made = shell.process("topic", "create", "a.b", "a_b", "-p", "3", "-c", "commit.interval.ms=5")
    assert made.code == 0, made.errors
    assert made.lines == [
        "TOPIC  PARTITIONS  STATUS",
        "a.b             3  OK",
        "a_b             3  OK",
    ]
    listed = shell.process("--format", "json", "topic", "list")
    assert listed.code == 0
    rows = {row["topic"]: row for row in listed.objects}
    assert rows["a.b"]["partitions"] == 3
    assert rows["a.b"]["topic_id"] != rows["a_b"]["topic_id"]
    described = shell("topic", "describe", "a.b")
    assert described.code == 0
    assert re.search(r"^topic +a\.b$", described.output, re.MULTILINE)
    assert re.search(r"^table +\S+/topics/a\.b$", described.output, re.MULTILINE)
    assert re.search(r"^commit\.interval\.ms +5 +ms +set$", described.output, re.MULTILINE)
    assert "retention.ms" not in described.output, "only what was set is shown"
    wide = shell("--format", "wide", "topic", "describe", "a.b")
    assert re.search(
        r"^retention\.ms +604800000 +ms \(7 days\) +default$", wide.output, re.MULTILINE
    )
    (as_object,) = shell("--format", "json", "topic", "describe", "a.b").objects
    assert as_object["status"] == "OK"
    assert [one["high_watermark"] for one in as_object["partitions"]] == [0, 0, 0]
    assert {one["name"]: one["value"] for one in as_object["config"]}["commit.interval.ms"] == "5"


def test_tables_that_cannot_be_read_are_named_with_their_codes_and_good_topics_work(
    shell: Shell, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics = shell.gateway.warehouse / "topics"
    write_deltalake(topics / "mine", pa.table({"x": [1, 2]}))
    (topics / "torn" / "_delta_log").mkdir(parents=True)
    (topics / "torn" / "_delta_log" / f"{0:020}.json").write_text('{"commitInfo":{"mainstem":{}')
    foreign = {path: path.read_bytes() for path in (topics / "mine").rglob("*") if path.is_file()}
    try:
        told = shell("topic", "list")
        assert told.code == 1
        assert "topic torn cannot be read: LOG_DAMAGED: the commit file" in told.errors
        assert "topic mine cannot be read: UNSUPPORTED_TABLE: the table" in told.errors
        rows = map(json.loads, shell("--format", "json", "topic", "list").output.splitlines())
        status = {row["topic"]: row["status"] for row in rows}
        assert {name: status[name] for name in (topic, "mine", "torn")} == {
            topic: "OK",
            "mine": "UNSUPPORTED_TABLE",
            "torn": "LOG_DAMAGED",
        }
        with Producer({"bootstrap.servers": shell.gateway.address}) as producer:
            assert topic in producer.list_topics()
            producer.produce(topic, b"x")
        assert "topic mine is left out: UNSUPPORTED_TABLE" in caplog.text
        there = confluent.AdminClient({"bootstrap.servers": shell.gateway.address}).list_topics()
        assert there.topics["torn"].error is not None
        assert there.topics[topic].error is None
        refused = shell("topic", "delete", "mine", "--no-confirm")
        assert (refused.code, "UNSUPPORTED_TABLE" in refused.output + refused.errors) == (1, True)
        assert foreign == {
            path: path.read_bytes() for path in (topics / "mine").rglob("*") if path.is_file()
        }
        assert shell("topic", "delete", "torn", "--no-confirm").code == 0
    finally:
        shutil.rmtree(topics / "mine")
        shutil.rmtree(topics / "torn")


def test_one_topic_that_fails_is_a_row_and_exit_code_1_and_the_others_are_made(
    shell: Shell,
) -> None:
    answer = shell("--format", "json", "topic", "create", "good-1", "bad/name", "good-2")
    assert answer.code == 1
    assert [row["status"] for row in answer.objects] == ["OK", "INVALID_TOPIC", "OK"]
    assert "'/'" in answer.objects[1]["message"]
    again = shell("topic", "create", "good-1")
    assert again.code == 1
    assert "TOPIC_EXISTS: " in again.output
    refused = shell("topic", "create", "good-3", "-c", "retention.mss=5")
    assert refused.code == 1
    assert "did you mean retention.ms?" in refused.output
    assert "good-3" not in shell.topics()


def test_a_dry_run_of_create_checks_and_makes_nothing(shell: Shell) -> None:
    answer = shell("topic", "create", "dry", "--dry-run", "-p", "2")
    assert answer.code == 0
    assert answer.lines[1].split() == ["dry", "2", "OK"]
    assert "dry run" in answer.errors
    assert "dry" not in shell.topics()


def test_settings_are_set_and_reset_and_partitions_are_added(shell: Shell, topic: str) -> None:
    assert shell("topic", "alter-config", topic, "--set", "retention.ms=5").code == 0
    (described,) = shell("--format", "json", "topic", "describe", topic).objects
    values = {one["name"]: one for one in described["config"]}
    assert (values["retention.ms"]["value"], values["retention.ms"]["is_default"]) == ("5", False)
    assert shell("topic", "alter-config", topic, "--reset", "retention.ms").code == 0
    assert shell("topic", "add-partitions", topic, "--total", "5").code == 0
    (described,) = shell("--format", "json", "topic", "describe", topic).objects
    values = {one["name"]: one for one in described["config"]}
    assert values["retention.ms"]["is_default"]
    assert len(described["partitions"]) == 5
    fewer = shell("topic", "add-partitions", topic, "--total", "4")
    assert fewer.code == 1
    assert "INVALID_CONFIG: " in fewer.output


def test_delete_asks_first_and_takes_no_for_an_answer(shell: Shell, topic: str) -> None:
    shell("topic", "produce", topic, stdin="a\nb\n")
    looked = shell("--format", "json", "topic", "delete", topic, "--dry-run")
    assert (looked.code, looked.objects[0]["records"]) == (0, 2)
    refused = shell("topic", "delete", topic, stdin="n\n")
    assert (refused.code, refused.output) == (1, "")
    assert "nothing was deleted" in refused.errors
    nobody = shell("topic", "delete", topic)
    assert nobody.code == 2
    assert "--no-confirm" in nobody.errors
    assert topic in shell.topics()
    deleted = shell("topic", "delete", topic, stdin="y\n")
    assert deleted.code == 0
    assert topic not in shell.topics()


def test_delete_without_confirmation_reports_each_topic(shell: Shell, topic: str) -> None:
    answer = shell("topic", "delete", topic, "no-such-topic", "--no-confirm")
    assert answer.code == 1
    assert answer.lines[1].split() == [topic, "OK"]
    assert re.match(r"no-such-topic +UNKNOWN_TOPIC: there is no topic", answer.lines[2])


def test_a_prefix_is_trimmed_after_a_dry_run_and_a_yes(shell: Shell, topic: str) -> None:
    shell("topic", "produce", topic, "-p", "0", stdin="a\nb\nc\nd\n")
    shell("topic", "produce", topic, "-p", "1", stdin="x\n")

    def starts() -> list[int]:
        (described,) = shell("--format", "json", "topic", "describe", topic).objects
        return [one["log_start_offset"] for one in described["partitions"][:2]]

    looked = shell("--format", "json", "topic", "trim-prefix", topic, "--to", "-1", "--dry-run")
    assert [one["records"] for one in looked.objects[:2]] == [3, 0]
    assert "dry run" in looked.errors
    refused = shell("topic", "trim-prefix", topic, "--to", "3", "-p", "0", stdin="n\n")
    assert refused.code == 1
    assert "nothing was removed" in refused.errors
    assert starts() == [0, 0]
    beyond = shell("topic", "trim-prefix", topic, "--to", "2", "-p", "0", "-p", "1", "--no-confirm")
    assert beyond.code == 1
    assert "OFFSET_OUT_OF_RANGE" in beyond.errors
    assert starts() == [0, 0]
    done = shell("topic", "trim-prefix", topic, "--to", "3", "-p", "0", stdin="y\n")
    assert done.code == 0
    assert starts() == [3, 0]
    read = shell("topic", "consume", topic, "-p", "0", "-o", "start", "-e", "-f", "%o=%v\\n")
    assert read.lines == ["3=d"]
    for time_, what in (
        ("@2100-01-01T00:00:00Z", "2100-01-01T00:00:00.000Z, which is in the future"),
        (f"@{time.time_ns()}", "nanoseconds since 1970"),
        (f"@{time.time_ns() // 1000}", "microseconds since 1970"),
    ):
        refused = shell("topic", "trim-prefix", topic, "--to", time_, "--no-confirm")
        assert refused.code == 2
        assert what in " ".join(refused.errors.split())
    assert starts() == [3, 0]
    early = shell("topic", "trim-prefix", topic, "--to", f"@{int(time.time()) - 3600}", "--dry-run")
    assert early.code == 0
    assert all(row.split()[-1] == "0" for row in early.lines[1:]), "seconds are not milliseconds"
    late = shell("topic", "trim-prefix", topic, "--to", "PT0S", "--no-confirm")
    assert late.code == 0
    assert starts() == [4, 1]
    assert shell("topic", "trim-prefix", topic, "--to", "start").code == 2
    missing = shell("topic", "trim-prefix", topic, "--to", "end", "-p", "99")
    assert "UNKNOWN_PARTITION" in missing.errors


def test_records_that_come_while_a_trim_asks_stay(
    shell: Shell, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("topic", "produce", topic, "-p", "0", stdin="a\nb\n")
    questions: list[str] = []

    def think_for_long(question: str) -> bool:
        questions.append(question)
        shell("topic", "produce", topic, "-p", "0", stdin="c\nd\n")
        return True

    monkeypatch.setattr(trim, "confirm", think_for_long)
    assert shell("topic", "trim-prefix", topic, "--to", "end", "-p", "0").code == 0
    assert questions == [f"Remove 2 records from the front of {topic}?"]
    read = shell("topic", "consume", topic, "-p", "0", "-o", "start", "-e", "-f", "%o=%v\\n")
    assert read.lines == ["2=c", "3=d"]


def test_each_line_of_stdin_is_a_record(shell: Shell, topic: str) -> None:
    answer = shell.process("topic", "produce", topic, "-p", "1", stdin="one\n\ntwo words\nlast")
    assert (answer.code, answer.output) == (0, "")
    assert answer.errors == f"4 records to {topic}\n"
    rows = shell.rows(topic)
    assert [row["value"] for row in rows] == [b"one", b"", b"two words", b"last"]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert all(row["key"] is None and row["partition"] == 1 for row in rows)


def test_keys_headers_and_null_values_arrive_as_they_were_given(shell: Shell, topic: str) -> None:
    first = shell(
        *(
            "topic",
            "produce",
            topic,
            "-K",
            ":",
            "-Z",
            "-p",
            "0",
            "-H",
            "h:1",
            "-H",
            "h:",
            "-H",
            "n",
        ),
        stdin="a:1\n:2\nb:\nno key\n",
    )
    assert first.code == 0, first.errors
    rows = shell.rows(topic)
    assert [(row["key"], row["value"]) for row in rows] == [
        (b"a", b"1"),
        (b"", b"2"),
        (b"b", None),
        (None, b"no key"),
    ]
    headers = [(one["key"], one["value"]) for one in rows[0]["headers"]]
    assert headers == [("h", b"1"), ("h", b""), ("n", None)]


def test_a_format_gives_each_record_its_timestamp_partition_key_and_headers(
    shell: Shell, topic: str
) -> None:
    answer = shell(
        *("topic", "produce", topic, "-f", r"%T %p %h %k\t%v\0"),
        stdin=b"1000 2 a:1,b:2 key one\tvalue\n1\x002000 0  k\t\xff\0",
    )
    assert answer.code == 0, answer.errors
    low, high = shell.rows(topic)
    assert (low["partition"], low["key"], low["value"]) == (0, b"k", b"\xff")
    assert low["timestamp"].timestamp() == 2.0
    assert not low["headers"]
    assert (high["partition"], high["key"], high["value"]) == (2, b"key one", b"value\n1")
    assert [one["key"] for one in high["headers"]] == ["a", "b"]


def test_verbose_prints_where_each_record_went(shell: Shell, topic: str) -> None:
    answer = shell("topic", "produce", topic, "-v", "-p", "2", "-k", "k", stdin="a\nb\n")
    assert answer.code == 0
    pattern = r"partition 2  offset {}  timestamp \d{{13}}  table version \d+"
    for offset, line in enumerate(answer.lines):
        assert re.fullmatch(pattern.format(offset), line)
    values = ("--format", "json", "topic", "produce", topic, "-f", "%v")
    as_json = shell(*values, "-v", "-p", "2", stdin="c\n")
    (where,) = as_json.objects
    assert (where["topic"], where["partition"], where["offset"]) == (topic, 2, 2)
    summary = shell(*values, stdin="d\ne\n")
    assert summary.objects == [{"topic": topic, "delivered": 2, "failed": 0}]


def test_a_dump_as_json_is_restored_with_all_that_a_record_has(shell: Shell, topic: str) -> None:
    shell(
        "topic",
        "produce",
        topic,
        "-f",
        r"%T|%p|%h|%k|%v\n",
        stdin=b"7|2|a:b|k\xff|\xfe\0\n8|0||k|\n",
    )
    shell("topic", "produce", topic, "-K", ":", "-Z", "-p", "1", "-H", "n", stdin="grün:\nno key\n")
    dump = shell("topic", "consume", topic, "-e", "--format", "json")
    assert dump.code == 0, dump.errors
    with AdminClient({"bootstrap.servers": shell.gateway.address}) as admin:
        admin.create_topic("restored", 3)
    restored = shell("topic", "produce", "restored", "--format", "json", stdin=dump.output)
    assert (restored.code, restored.objects[0]["delivered"]) == (0, 4), restored.errors
    assert shell.rows("restored") == shell.rows(topic)
    refused = shell("topic", "produce", "restored", "--format", "json", stdin='{"id": 1}\n')
    assert refused.code == 1
    assert 'an object with "value"' in " ".join(refused.errors.split())


def test_an_input_that_would_be_one_record_as_a_whole_is_refused(shell: Shell, topic: str) -> None:
    for format_ in ("%v{json}", "%v;"):
        answer = shell("topic", "produce", topic, "-f", format_, stdin="a\nb\nc\n")
        assert answer.code in (1, 2)
    assert "would be one record" in " ".join(answer.errors.split())
    assert shell.rows(topic) == []


def test_places_that_do_not_exist_are_errors_and_ranges_end(shell: Shell, topic: str) -> None:
    shell("topic", "produce", topic, "-p", "0", stdin="a\nb\nc\nd\n")
    consume = ("topic", "consume", topic, "-p", "0")
    beyond = shell(*consume, "-o", "99999", "-n", "1")
    assert (beyond.code, beyond.output) == (1, "")
    assert "OFFSET_OUT_OF_RANGE" in beyond.errors
    assert "begins at 0 and ends at 4" in beyond.errors
    assert shell(*consume, "-o", "99999", "--reset", "start", "-n", "1").lines == ["a"]
    assert shell(*consume, "-o", "99999", "--reset", "end", "-e").lines == []
    assert shell(*consume, "-o", "1:3").lines == ["b", "c"]
    assert shell(*consume, "-o", "-2:end").lines == ["c", "d"]
    assert shell(*consume, "-o", "@-1h:end").lines == ["a", "b", "c", "d"]
    assert shell(*consume, "-o", "@-2h:@-1h").lines == []


def test_several_topics_are_read_at_once(shell: Shell, topic: str) -> None:
    with AdminClient({"bootstrap.servers": shell.gateway.address}) as admin:
        admin.create_topic(f"{topic}-2", 1)
    shell("topic", "produce", topic, "-p", "0", stdin="a\n")
    shell("topic", "produce", f"{topic}-2", stdin="b\n")
    for group in ((), ("-g", topic)):
        answer = shell("topic", "consume", topic, f"{topic}-2", "-e", "-f", "%t=%v", *group)
        assert sorted(answer.lines) == [f"{topic}-2=b", f"{topic}=a"]


def test_a_group_that_has_nothing_to_read_ends_with_a_sentence(shell: Shell, topic: str) -> None:
    missing = shell("topic", "consume", "no-such-topic", "-g", "waits-1", "-e")
    assert missing.code == 1
    assert "UNKNOWN_TOPIC: there is no topic 'no-such-topic'" in missing.errors
    pattern = shell("topic", "consume", "^nothing-matches", "-g", "waits-2", "-e")
    assert (pattern.code, pattern.output) == (0, "")
    assert pattern.errors == "nothing to read: no topic fits ^nothing-matches\n"
    with AdminClient({"bootstrap.servers": shell.gateway.address}) as admin:
        admin.create_topic(f"{topic}-single", 1)
    shell("topic", "produce", f"{topic}-single", stdin="a\n")
    with ended(shell.start("topic", "consume", f"{topic}-single", "-g", "waits-3")) as owner:
        read_line(owner)
        other = shell("topic", "consume", f"{topic}-single", "-g", "waits-3", "-e")
    assert (other.code, other.output) == (0, "")
    assert "1 other member of group waits-3 has all partitions" in other.errors


def test_records_that_fail_are_reported_and_the_others_delivered(shell: Shell, topic: str) -> None:
    answer = shell.process(
        "topic", "produce", topic, "-f", "%p %v", stdin="0 a\nnonsense\n9 b\n0 c\n"
    )
    assert answer.code == 1
    assert "record 2: INVALID_RECORD: 'nonsense' does not fit the format '%p %v'" in answer.errors
    assert "record 3: UNKNOWN_PARTITION: " in answer.errors
    assert f"2 records to {topic}, 2 failed" in answer.errors
    assert [row["value"] for row in shell.rows(topic)] == [b"a", b"c"]


def test_a_record_that_the_gateway_refuses_is_a_failure(shell: Shell, topic: str) -> None:
    answer = shell("topic", "produce", topic, stdin=b"x" * 1_100_000 + b"\n")
    assert answer.code == 1
    assert "RECORD_TOO_LARGE" in answer.errors
    assert shell.rows(topic) == []


def test_producing_to_an_unknown_topic_fails_before_reading(shell: Shell) -> None:
    answer = shell("topic", "produce", "no-such-topic", stdin="a\n")
    assert answer.code == 1
    assert "UNKNOWN_TOPIC: there is no topic 'no-such-topic'" in answer.errors


def test_unacknowledged_records_count_as_delivered_without_an_offset(
    shell: Shell, topic: str
) -> None:
    answer = shell("topic", "produce", topic, "--acks", "0", "-v", "-p", "0", stdin="a\n")
    assert answer.code == 0, answer.errors
    assert answer.lines == ["partition 0  sent, not acknowledged (acks=0)"]


def test_more_than_the_producer_buffers_goes_through(shell: Shell, topic: str) -> None:
    data = "\n".join(map(str, range(100_000)))
    answer = shell("-X", "buffer.memory=200000", "topic", "produce", topic, "-p", "0", stdin=data)
    assert answer.code == 0, answer.errors
    rows = shell.rows(topic)
    assert [row["value"] for row in rows] == data.encode().split(b"\n")


def test_a_record_is_sent_while_the_input_stays_open(shell: Shell, topic: str) -> None:
    with ended(shell.start("topic", "produce", topic, "-v", "-p", "0")) as process:
        assert process.stdin is not None
        for offset in range(2):
            process.stdin.write(b"a\n")
            process.stdin.flush()
            assert f"offset {offset} " in read_line(process).decode()
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_130_and_what_was_read_is_delivered(
    shell: Shell, topic: str, number: signal.Signals
) -> None:
    with ended(shell.start("topic", "produce", topic, "-v", "-p", "0")) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        read_line(process)
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    assert [row["value"] for row in shell.rows(topic)] == [b"a"]


def test_a_consumer_that_is_told_to_end_leaves_its_group(shell: Shell, topic: str) -> None:
    shell("topic", "produce", topic, "-p", "0", stdin=b"a\n")
    with ended(shell.start("topic", "consume", topic, "-g", "leavers")) as process:
        read_line(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 130
    groups = shell("--format", "json", "group", "list").objects
    assert {one["group"]: one["members"] for one in groups}["leavers"] == 0


def test_status_of_a_gateway_that_serves_is_ok(shell: Shell) -> None:
    (row,) = shell("--format", "json", "gateway", "status").objects
    assert row["address"] == shell.gateway.address
    assert row["status"] == "OK"
    assert row["warehouse"].endswith(str(shell.gateway.warehouse))


def test_status_of_a_gateway_that_is_not_there_is_a_row_and_exit_code_1(
    shell: Shell, unused_address: str
) -> None:
    answer = shell("gateway", "status", "-b", f"{shell.gateway.address},{unused_address}")
    assert answer.code == 1
    assert answer.lines[1].endswith("OK")
    assert f"GATEWAY_UNAVAILABLE: nothing answers at {unused_address}" in answer.lines[2]


@pytest.mark.parametrize("command", ["topic list", "topic describe x", "topic produce x"])
def test_a_gateway_that_is_not_there_is_one_sentence_and_exit_code_1(
    shell: Shell, unused_address: str, command: str
) -> None:
    answer = shell("--timeout", "1", *command.split(), "-b", unused_address, stdin="a\n")
    assert answer.code == 1
    assert answer.output == ""
    assert "GATEWAY_UNAVAILABLE: " in answer.errors
    assert "Traceback" not in answer.errors
    assert len(answer.errors.splitlines()) == 1


def test_gateway_run_prints_its_address_and_nothing_else_to_stdout(
    shell: Shell, tmp_path: Path
) -> None:
    arguments = ("gateway", "run", "--warehouse", str(tmp_path / "w"), "--listen", "127.0.0.1:0")
    with ended(shell.start(*arguments)) as process:
        line = read_line(process).decode()
        assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+\n", line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""


def test_a_gateway_does_without_pandas_which_takes_half_a_second_to_import(
    shell: Shell, tmp_path: Path
) -> None:
    importlib.import_module("pandas")  # it is installed here
    arguments = ("gateway", "run", "--warehouse", str(tmp_path / "w"), "--listen", "127.0.0.1:0")
    with ended(shell.start(*arguments)) as process:
        read_line(process)
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert "pyarrow" in mapped
        assert "pandas" not in mapped
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("chosen", ["", "system"])
def test_a_gateway_takes_the_frugal_memory_pool_unless_another_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    variable = "ARROW_DEFAULT_MEMORY_POOL"
    if chosen:
        monkeypatch.setenv(variable, chosen)
    else:
        monkeypatch.delenv(variable, raising=False)
    is_known = sys.platform == "linux" and platform.machine() == "x86_64"
    usual = "jemalloc" if is_known else pa.default_memory_pool().backend_name
    with GatewayProcess(tmp_path / "w") as gateway:
        log = re.sub(r"\x1b\[[0-9;]*m", "", gateway.log)
    assert f"memory_pool={chosen or usual}" in log


@pytest.mark.parametrize(
    ("mode", "records", "warm_up"), [("record", 5_500, 1_000), ("batch", 2_500, 0), ("sync", 20, 3)]
)
def test_the_benchmark_prints_one_object_with_its_figures_and_settings(
    shell: Shell, tmp_path: Path, mode: str, records: int, warm_up: int
) -> None:
    answer = shell(
        *("--format", "json", "bench", "produce", "--mode", mode, "--directory", str(tmp_path)),
        *("--records", str(records), "--warm-up", str(warm_up), "--batch-rows", "1000"),
    )
    assert answer.code == 0, answer.errors
    (result,) = answer.objects
    assert list(result) == [
        "records_per_second",
        "megabytes_per_second",
        "ack_ms",
        "gateway_peak_rss_bytes",
        "settings",
    ]
    assert result["records_per_second"] > 0
    ack = result["ack_ms"]
    assert 0 < ack["p50"] <= ack["p95"] <= ack["p99"] <= ack["max"]
    assert result["gateway_peak_rss_bytes"] > 1_000_000
    settings = result["settings"]
    assert (settings["mode"], settings["records"], settings["warm_up"]) == (mode, records, warm_up)
    assert (settings["key_bytes"], settings["value_bytes"]) == (16, 100)
    assert list(tmp_path.iterdir()) == [], "its warehouse is removed"


def test_the_benchmark_of_a_running_gateway_leaves_no_topic_behind(shell: Shell) -> None:
    before = shell.topics()
    answer = shell(
        *("-X", "linger.ms=1", "bench", "produce", "-b", shell.gateway.address),
        *("--records", "2000", "--warm-up", "0", "--acks", "0", "--key-bytes", "0"),
    )
    assert answer.code == 0, answer.errors
    assert re.search(r"^linger\.ms +1$", answer.output, re.MULTILINE)
    assert re.search(r"^ack ms +p50 \S+  p95 \S+  p99 \S+  max \S+$", answer.output, re.MULTILINE)
    assert shell.topics() == before


def test_sql_over_a_topic_prints_a_table_or_json(
    spark: SparkSession, shell: Shell, topic: str
) -> None:
    # In this process, which has a Spark session already: starting one takes many seconds.
    shell("topic", "produce", topic, "-K", ":", "-p", "0", stdin="a:1\na:2\nb\n")
    statement = (
        f"SELECT CAST(key AS STRING) AS k, count(*) AS n, max(offset) FROM `{topic}` "
        "GROUP BY k ORDER BY n DESC"
    )
    sql = ("sql", "--warehouse", str(shell.gateway.warehouse))
    answer = CliRunner().invoke(cli, [*sql, statement])
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.splitlines() == [
        "k     n  max(offset)",
        "a     2            1",
        "NULL  1            2",
    ]
    limited = CliRunner().invoke(
        cli, ["--format", "json", *sql, "--limit", "1", "-"], input=statement
    )
    assert [json.loads(line) for line in limited.stdout.splitlines()] == [
        {"k": "a", "n": 2, "max(offset)": 1}
    ]
    assert "more than 1 rows" in limited.stderr
    refused = CliRunner().invoke(cli, [*sql, "SELECT * FROM nowhere"])
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "nowhere" in refused.stderr


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address of this machine at which nobody listens, and cannot while the test runs."""
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"
