"""The examples of consumers: several at once, and killed, against a real gateway."""

from __future__ import annotations

import contextlib
import queue
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.length import FULL

from mainstem.client import OFFSET_BEGINNING, AdminClient, Consumer, Producer, TopicPartition
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("examples") / "warehouse") as process:
        yield process


class Program:
    """An example in a process of its own, killed when the block ends."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self._command = [sys.executable, str(path), *arguments]
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)

    def line(self) -> str:
        """The next line; waits for it."""
        return self._lines.get(timeout=DEADLINE_S)

    def lines(self) -> list[str]:
        """What was printed meanwhile."""
        found: list[str] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._lines.get_nowait())
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as pipe:
            for line in pipe:
                self._lines.put(line.rstrip("\n"))


Start = Callable[..., Program]


@pytest.fixture
def start(repo_root: Path, gateway: GatewayProcess) -> Iterator[Start]:
    """Starts an example: its name, the topic, and what else it takes."""
    with contextlib.ExitStack() as stack:

        def start_one(name: str, *arguments: str) -> Program:
            program = Program(repo_root / "examples" / name, gateway.address, *arguments)
            return stack.enter_context(program)

        yield start_one


def create(gateway: GatewayProcess, topic: str, partitions: int = 3) -> None:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic(topic, partitions)


def produce(gateway: GatewayProcess, topic: str, first: int, count: int, step_ms: int = 0) -> None:
    """Values `first` to `first + count - 1`, over three partitions.

    Args:
        step_ms: Number n is from n + 1 steps after 1970; 0: all are from now.
    """
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number in range(first, first + count):
            timestamp = (number + 1) * step_ms if step_ms else None
            producer.produce(topic, b"%d" % number, partition=number % 3, timestamp=timestamp)


def values(lines: list[str]) -> set[int]:
    """The record's values in lines that end with them."""
    return {int(line.rpartition("b'")[2].rstrip("'")) for line in lines}


def test_workers_share_a_queue_and_one_takes_over_from_another_that_is_killed(
    gateway: GatewayProcess, start: Start
) -> None:
    create(gateway, "jobs")
    workers = [start("work_queue.py", "jobs") for _ in range(2)]
    done: list[list[str]] = [[], []]
    deadline = time.monotonic() + DEADLINE_S
    count = 0
    while not (all(done) and values(done[0] + done[1]) == set(range(count))):
        assert time.monotonic() < deadline, done
        if not all(done):
            produce(gateway, "jobs", count, 6)
            count += 6
        time.sleep(0.2)
        for worker, lines in zip(workers, done, strict=True):
            lines += worker.lines()
    workers[0].kill()
    produce(gateway, "jobs", count, 6)
    while not values(done[1]) >= set(range(count, count + 6)):
        done[1].append(workers[1].line())


def test_a_topic_is_transformed_once_whatever_is_killed(
    gateway: GatewayProcess, start: Start
) -> None:
    for topic in ("plain", "loud"):
        create(gateway, topic)
    program = ("exactly_once_transform.py", "plain", "loud")
    wanted: list[set[bytes]] = [set(), set(), set()]
    turns = 5 if FULL else 2
    for turn in range(turns):
        workers = [start(*program, name) for name in ("one", "two")]
        produce(gateway, "plain", turn * 60, 60)
        for number in range(turn * 60, turn * 60 + 60):
            wanted[number % 3].add(b"%d" % number)
        any_line(workers)
        if turn < turns - 1:
            for worker in workers:
                worker.kill()
    found: list[bytes | None] = []
    with Consumer({"bootstrap.servers": gateway.address}) as consumer:
        consumer.assign([TopicPartition("loud", number, OFFSET_BEGINNING) for number in range(3)])
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < 60 * turns:
            assert time.monotonic() < deadline
            found += [record.value for record in consumer.consume(60, 0.2)]
        time.sleep(0.5)
        found += [record.value for record in consumer.consume(60, 0.2)]
    assert sorted(found, key=str) == sorted(set().union(*wanted), key=str)


def test_two_topics_and_a_database_change_together_whatever_is_killed(
    gateway: GatewayProcess, start: Start, tmp_path: Path
) -> None:
    for topic in ("bought", "billed"):
        create(gateway, topic, 1)
    program = ("two_phase_sqlite.py", "bought", "billed", str(tmp_path / "shop.db"))
    rng = random.Random(7)
    for _ in range(20 if FULL else 1):
        shop = start(*program)
        shop.line()
        time.sleep(rng.uniform(0, 0.3))
        shop.kill()
    older = start(*program)
    older.line()
    newer = start(*program)
    newer.line()
    assert older.process.wait(DEADLINE_S) == 1  # fenced, on one side or the other
    newer.process.send_signal(signal.SIGSTOP)
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db", timeout=60)) as database:
        orders = [number for (number,) in database.execute("SELECT number FROM orders ORDER BY 1")]
    found: dict[str, list[int]] = {"bought": [], "billed": []}
    with Consumer({"bootstrap.servers": gateway.address}) as consumer:
        for topic, numbers in found.items():
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + DEADLINE_S
            while len(numbers) < len(orders) - 1:
                assert time.monotonic() < deadline
                for record in consumer.consume(1_000, 0.2):
                    assert record.value is not None
                    numbers.append(int(record.value))
    # The last order may be decided and not completed.
    for numbers in found.values():
        assert numbers in (orders, orders[:-1])


def test_every_listener_gets_every_record(gateway: GatewayProcess, start: Start) -> None:
    create(gateway, "news")
    listeners = [start("broadcast.py", "news", name) for name in ("one", "two")]
    assert [listener.line() for listener in listeners] == ["one listens", "two listens"]
    # Where each begins is known when its first record is there.
    heard: list[set[int]] = [set(), set()]
    deadline = time.monotonic() + DEADLINE_S
    count = 0
    while not all({number % 3 for number in one} == {0, 1, 2} for one in heard):
        assert time.monotonic() < deadline, heard
        produce(gateway, "news", count, 3)
        count += 3
        time.sleep(0.2)
        for listener, one in zip(listeners, heard, strict=True):
            one |= values(listener.lines())
    produce(gateway, "news", count, 9)
    for listener, one in zip(listeners, heard, strict=True):
        while not one >= set(range(count, count + 9)):
            one |= values([listener.line()])
        assert one == set(range(min(one), count + 9))


def test_a_replay_gives_what_came_at_or_after_a_time_and_ends(
    gateway: GatewayProcess, repo_root: Path
) -> None:
    create(gateway, "past")
    produce(gateway, "past", 0, 30, step_ms=1_000)

    def replay(since: str) -> set[int]:
        example = repo_root / "examples" / "replay.py"
        command = [sys.executable, str(example), gateway.address, "past", since]
        printed = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=DEADLINE_S
        )
        return values(printed.stdout.splitlines())

    assert replay("1970-01-01T00:00:11+00:00") == set(range(10, 30))
    assert replay("1970-01-01T01:00:29.500+01:00") == {29}
    assert replay("2100-01-01T00:00:00+00:00") == set()


def test_when_the_leader_is_killed_another_one_leads_with_a_higher_epoch(
    gateway: GatewayProcess, start: Start
) -> None:
    create(gateway, "scheduler", 1)
    candidates = [start("leader_election.py", "scheduler") for _ in range(3)]
    for candidate in candidates:
        assert candidate.line().endswith("stands by")
    epochs: list[int] = []
    while candidates:
        leader, said = first_word(candidates)
        pid, _, epoch = said.partition(" leads, epoch ")
        assert pid == str(leader.process.pid)
        epochs.append(int(epoch))
        leader.kill()
        assert leader.lines() == []
        candidates.remove(leader)
        assert all(other.process.poll() is None for other in candidates)
    assert epochs == sorted(set(epochs))


def any_line(programs: list[Program]) -> None:
    """Waits until one of them says something."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(program.lines() for program in programs):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def first_word(programs: list[Program]) -> tuple[Program, str]:
    """The first of them that says something; all others are silent."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        said = [(program, line) for program in programs for line in program.lines()]
        if said:
            (only,) = said
            return only
        assert time.monotonic() < deadline, "nobody leads"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "example", ["work_queue", "broadcast", "exactly_once_sqlite", "leader_election"]
)
def test_an_example_without_end_ends_quietly_at_ctrl_c(
    gateway: GatewayProcess, start: Start, tmp_path: Path, example: str
) -> None:
    topic = f"ends-{example}"
    create(gateway, topic)
    produce(gateway, topic, 0, 3)
    more = {"broadcast": ["one"], "exactly_once_sqlite": [str(tmp_path / "db")]}.get(example, [])
    program = start(f"{example}.py", topic, *more)
    program.line()
    program.process.send_signal(signal.SIGINT)
    assert program.process.wait(DEADLINE_S) == 0
    assert "Traceback" not in "".join(program.lines())
