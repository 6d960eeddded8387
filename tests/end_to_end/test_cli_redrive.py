"""`mainstem topic redrive` against a real gateway, also killed in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from mainstem.cli.root import cli
from mainstem.client import AdminClient, Producer, TopicPartition
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

DEADLINE_S = 60.0

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("redrive") / "warehouse") as process:
        yield process


class Desk:
    """A topic of two partitions and its dead letters."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.letters = self.topic + ".dlt"
        self.group = self.letters + ".redrive"
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            # Commits wait in the topic, so that a run of many batches can be met in the middle.
            admin.create_topic(self.topic, 2, {"commit.interval.ms": 100})
            admin.create_topic(self.letters, 2, {"commit.interval.ms": 0})

    def add(self, count: int, *, first: int = 0, at_ms: int = NOW_MS, origin: str = "") -> None:
        """Dead letters with the values `first` and following, in turn in both partitions."""
        with Producer({"bootstrap.servers": self.gateway.address}) as producer:
            for number in range(first, first + count):
                facts = {
                    "topic": origin or self.topic,
                    "partition": number % 2,
                    "offset": number,
                    "timestamp": at_ms,
                    "exception": "ValueError",
                    "reason": f"no good: {number}",
                    "attempts": 3,
                }
                headers = [(f"dlt-{name}", str(fact).encode()) for name, fact in facts.items()]
                value = b"%d" % number
                producer.produce(self.letters, value, b"k", partition=number % 2, headers=headers)

    def arguments(self, *more: str) -> list[str]:
        return ["topic", "redrive", self.letters, "-b", self.gateway.address, *more]

    def __call__(self, *more: str, json: bool = False) -> Result:
        before = ["--format", "json"] if json else []
        return CliRunner().invoke(cli, [*before, *self.arguments(*more)])

    def start(self, *before: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mainstem.cli", *before, *self.arguments()]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def values(self, topic: str = "") -> Counter[int]:
        """How often each value is in the topic."""
        table = DeltaTable(str(self.gateway.warehouse / "topics" / (topic or self.topic)))
        return Counter(int(value) for value in table.to_pyarrow_table()["value"].to_pylist())

    def wait_for_records(self) -> None:
        """Until something was put back."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.values():
            assert time.monotonic() < deadline, "nothing came"

    def committed(self) -> int:
        with AdminClient({"bootstrap.servers": self.gateway.address}) as admin:
            found: dict[TopicPartition, object] = dict(
                admin.list_consumer_group_offsets(self.group)
            )
        return sum(tp.offset for tp in found)


@pytest.fixture
def desk(gateway: GatewayProcess) -> Desk:
    return Desk(gateway)


def test_everything_goes_back_once_and_only_what_is_new_the_next_time(desk: Desk) -> None:
    desk.add(20)
    result = desk(json=True)
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"topic": desk.topic, "records": 20}
    ]
    assert desk.values() == Counter(range(20))
    again = desk()
    assert (again.exit_code, again.stdout) == (0, "")
    assert "nothing to put back" in again.stderr
    desk.add(3, first=20)
    assert desk().exit_code == 0
    assert desk.values() == Counter(range(23))


def test_a_dry_run_says_what_would_go_where_and_why_it_failed(desk: Desk) -> None:
    desk.add(3)
    desk.add(1, first=3, origin="gone")
    result = desk("--dry-run", json=True)
    assert result.exit_code == 0, result.output
    rows = {row["topic"]: row for row in map(json.loads, result.stdout.splitlines())}
    row = rows[desk.topic]
    assert (row["records"], row["status"], row["exception"]) == (3, "OK", "ValueError")
    assert row["reason"].startswith("no good: ")
    assert rows["gone"]["status"] == "UNKNOWN_TOPIC"
    assert desk.values() == Counter()
    assert desk.committed() == 0


def test_n_ends_it_and_the_next_run_goes_on(desk: Desk) -> None:
    desk.add(10)
    assert desk("-n", "4").exit_code == 0
    assert desk.values().total() == 4
    assert desk.committed() == 4
    assert desk("-n", "100").exit_code == 0
    assert desk.values() == Counter(range(10))


def test_what_cannot_go_back_stops_it_and_to_another_topic_all_can(desk: Desk) -> None:
    desk.add(4)
    desk.add(2, first=4, origin="gone")
    failed = desk()
    assert failed.exit_code == 1
    assert "UNKNOWN_TOPIC" in failed.stderr
    assert set(desk.values()) <= set(range(4))
    assert desk.committed() == desk.values().total()
    assert desk("--to", desk.topic).exit_code == 0
    assert desk.values() == Counter(range(6))


def test_a_record_that_its_topic_would_remove_at_once_is_refused_unless_now_is_said(
    desk: Desk,
) -> None:
    desk.add(2, at_ms=1_000)
    refused = desk()
    assert refused.exit_code == 1
    assert "retention.ms" in refused.stderr
    assert desk.values() == Counter()
    assert desk("--now").exit_code == 0
    assert desk.values() == Counter(range(2))


@pytest.mark.parametrize(
    "config",
    [
        {"message.timestamp.type": "LogAppendTime"},
        {"retention.ms": -1},
        {"cleanup.policy": "compact"},
    ],
)
def test_an_old_record_goes_back_where_its_time_does_not_make_it_go(
    desk: Desk, config: dict[str, object]
) -> None:
    with AdminClient({"bootstrap.servers": desk.gateway.address}) as admin:
        admin.alter_config(desk.topic, config)
    desk.add(2, at_ms=1_000)
    result = desk()
    assert result.exit_code == 0, result.output
    assert desk.values() == Counter(range(2))


def test_ctrl_c_ends_it_after_what_is_on_its_way_and_nothing_comes_twice(desk: Desk) -> None:
    desk.add(8_000)
    process = desk.start()
    desk.wait_for_records()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    assert b"the next run goes on here" in errors
    put_back = desk.values()
    assert 0 < put_back.total() == desk.committed() < 8_000
    assert str(put_back.total()).encode() in output
    assert desk().exit_code == 0
    assert desk.values() == Counter(range(8_000))


def test_a_run_that_was_killed_loses_nothing_and_repeats_one_batch_at_most(desk: Desk) -> None:
    desk.add(8_000)
    # The next run waits for the end of its session.
    process = desk.start("-X", "session.timeout.ms=3000")
    desk.wait_for_records()
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    assert desk.values().total() < 8_000
    result = desk()
    assert result.exit_code == 0, result.output
    found = desk.values()
    assert set(found) == set(range(8_000))
    assert found.total() - 8_000 <= 500


def test_two_runs_at_once_share_the_work_and_nothing_comes_twice(desk: Desk) -> None:
    desk.add(8_000)
    first = desk.start()
    desk.wait_for_records()
    second = desk.start()
    for process in (first, second):
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
    assert desk.values() == Counter(range(8_000))


def test_what_means_nothing_is_wrong_usage_and_a_topic_that_is_not_there_is_told(
    desk: Desk,
) -> None:
    assert desk("--to", desk.letters).exit_code == 2
    missing = CliRunner().invoke(
        cli, ["topic", "redrive", "nothing.dlt", "-b", desk.gateway.address]
    )
    assert missing.exit_code == 1
    assert "UNKNOWN_TOPIC" in missing.stderr
