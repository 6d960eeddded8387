"""Consumers that are paused, killed and restarted under load, and their gateway too; then judges.

Three groups read the same topics: one at least once, with every way of reading and committing and
with static members; one that commits batches; and one that keeps its offsets beside its output.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from tests.fault.consumer_process import FENCED
from tests.fault.workload import Judgement, Producers, ProducerSpec, judge

from mainstem.client import AdminClient, Consumer, TopicPartition
from mainstem.errors import MainstemError
from mainstem.testing import (
    GatewayProcess,
    OffsetCommit,
    Operation,
    Output,
    Ownership,
    Read,
    read_history,
    runs_of,
)

TOPICS = {"orders": 4, "clicks": 2}

SESSION_TIMEOUT_MS = 3_000
MAX_POLL_INTERVAL_MS = 8_000

#: A gateway, its members and this process share two cores with other tests.
PATIENCE_S = 120.0

_PROGRAM = Path(__file__).with_name("consumer_process.py")

#: Members commit nothing to this group: the database has the offsets.
SQLITE_GROUP = "exactly-once"

PRODUCERS = (
    ProducerSpec("batches", "all", True, 30, pause_s=0.15),
    ProducerSpec("records", "all", True, 1, pause_s=0.05),
    ProducerSpec("copies", "all", False, 10, pause_s=0.3),
)


@dataclass(frozen=True)
class ConsumerSpec:
    """One member; its processes come one after the other.

    Attributes:
        style: How it reads and commits; see `consumer_process.STYLES`.
        instance_id: Of a static member.
    """

    name: str
    group: str
    style: str
    instance_id: str = ""


CONSUMERS = (
    ConsumerSpec("manual", "at-least-once", "manual"),
    ConsumerSpec("automatic", "at-least-once", "automatic"),
    ConsumerSpec("singly", "at-least-once", "automatic singly"),
    ConsumerSpec("static-manual", "at-least-once", "manual", "static-1"),
    ConsumerSpec("static-batches", "at-least-once", "batches", "static-2"),
    ConsumerSpec("batches-1", "batches", "batches"),
    ConsumerSpec("batches-2", "batches", "batches"),
    ConsumerSpec("sqlite-1", SQLITE_GROUP, "sqlite"),
    ConsumerSpec("sqlite-2", SQLITE_GROUP, "sqlite"),
)


@dataclass(frozen=True)
class ConsumerLoop:
    """The size of a run.

    Attributes:
        seconds: How long faults come.
        pause_s: Between two of them, drawn between the two.
    """

    seconds: float
    pause_s: tuple[float, float] = (0.2, 1.0)


@dataclass(frozen=True)
class ConsumerReport:
    """What a run showed.

    Attributes:
        faults: How often each kind came.
        given, delivered: By group, the records that members were given, and the different ones.
        owned: By group, how often a partition was assigned.
        commits: Offsets whose commit was acknowledged.
    """

    seed: int
    seconds: float
    faults: Mapping[str, int]
    given: Mapping[str, int]
    delivered: Mapping[str, int]
    owned: Mapping[str, int]
    commits: int
    judgement: Judgement

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        lines = [
            f"consumers for {self.seconds:.0f} s, seed {self.seed}",
            f"faults                {faults}",
            f"commits acknowledged  {self.commits:,} offsets",
        ]
        for group, count in sorted(self.given.items()):
            again = count - self.delivered[group]
            lines.append(
                f"{group:<22}{count:,} records given, {again:,} of them again, "
                f"{self.owned[group]:,} assignments"
            )
        return "\n".join([*lines, str(self.judgement)])


def run_consumer_loop(directory: Path, seed: int, size: ConsumerLoop) -> ConsumerReport:
    """Runs the loop in `directory`, which must be empty.

    Args:
        seed: Of the faults and their moments. What the machine makes of them is not repeatable.
    """
    began_at = time.monotonic()
    database = directory / "output.db"
    members = directory / "members"
    members.mkdir()
    with GatewayProcess(directory / "warehouse") as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            for topic, partitions in TOPICS.items():
                admin.create_topic(topic, partitions, {"commit.interval.ms": 25})
        bootstrap = dict.fromkeys((spec.name for spec in PRODUCERS), gateway.address)
        producing = Producers(directory / "producers", PRODUCERS, TOPICS, bootstrap, seed)
        with (
            producing as producers,
            Onlooker(gateway.address) as onlooker,
            Members(members, gateway.address, database) as slots,
        ):
            faults = Faults(gateway, slots, random.Random(seed), began_at)
            producers.wait_until_acknowledged(1, PATIENCE_S)
            faults.run(size)
            producers.check_running()
            producers.stop()
            slots.wait_until_read(gateway.address, database)
            for slot in slots.all:
                slot.stop()
            onlooker.check()
    histories = sorted(members.glob("*.jsonl"))
    outputs = list(_outputs(database))
    judgement = judge(
        directory / "warehouse",
        TOPICS,
        [*producers.histories, *histories],
        [*onlooker.seen, *outputs],
    )
    given: Counter[str] = Counter()
    owned: Counter[str] = Counter()
    different: dict[str, set[tuple[str, int, int]]] = {}
    commits = 0
    for one in read_history(histories):
        if isinstance(one, Read):
            for run in one.runs:
                given[one.group] += run.count
                places = different.setdefault(one.group, set())
                places.update((one.topic, one.partition, run.offset + n) for n in range(run.count))
        elif isinstance(one, Ownership):
            owned[one.group] += one.change == "assigned"
        elif isinstance(one, OffsetCommit):
            commits += 1
    return ConsumerReport(
        seed,
        time.monotonic() - began_at,
        faults.counts,
        given,
        {group: len(places) for group, places in different.items()},
        owned,
        commits,
        judgement,
    )


class Slot:
    """The processes of one member, one after the other."""

    def __init__(self, spec: ConsumerSpec, settings: Mapping[str, object], directory: Path) -> None:
        self.spec = spec
        self.process: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._settings = settings
        self._directory = directory
        self._numbers = itertools.count()
        self._logs: dict[subprocess.Popen[bytes], Path] = {}

    @property
    def runs(self) -> bool:
        """There is a process, and it is not paused."""
        return self.process is not None and not self.paused

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the member's next process; the last one may still run."""
        name = f"{self.spec.name}-{next(self._numbers)}"
        settings = {
            **self._settings,
            "name": name,
            "group": self.spec.group,
            "style": self.spec.style,
            "instance_id": self.spec.instance_id,
            "history": str(self._directory / f"{name}.jsonl"),
        }
        log = self._directory / f"{name}.log"
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stderr=stderr,
            )
        self._logs[self.process] = log
        self.paused = False
        return self.process

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.process is not None and self.paused:
            self.process.send_signal(signal.SIGCONT)
            self.paused = False

    def kill(self) -> None:
        """SIGKILL, whatever it is at."""
        if self.process is not None:
            _end(self.process)
            self.process = None
            self.paused = False

    def close(self) -> None:
        """Kills every process of the member that still runs."""
        for process in self._logs:
            _end(process)

    def stop(self) -> None:
        """Lets it close; raises if it does not, or failed."""
        self.resume()
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            code = self.wait(self.process, PATIENCE_S)
            assert code == 0, f"{self.spec.name} ended with {code}:\n{self.log(self.process)}"
            self.process = None

    def check(self) -> None:
        """Raises if it has ended by itself."""
        if self.process is not None:
            code = self.process.poll()
            assert code is None, f"{self.spec.name} ended with {code}:\n{self.log(self.process)}"

    def wait(self, process: subprocess.Popen[bytes], timeout_s: float) -> int:
        """Its exit code; one that does not end shows where its threads are."""
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            return process.wait(PATIENCE_S)

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return self._logs[process].read_text(errors="replace")


class Members:
    """All members, while the block lasts; leaving it kills those that still run."""

    def __init__(self, directory: Path, bootstrap: str, database: Path) -> None:
        settings = {
            "bootstrap": bootstrap,
            "topics": sorted(TOPICS),
            "database": str(database),
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
        }
        self.all = [Slot(spec, settings, directory) for spec in CONSUMERS]

    def __enter__(self) -> Members:
        try:
            for slot in self.all:
                slot.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self.all:
            slot.close()

    def wait_until_read(self, bootstrap: str, database: Path) -> None:
        """Waits until every group has committed, or stored, all that there is."""
        tps = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
        groups = sorted({slot.spec.group for slot in self.all} - {SQLITE_GROUP})
        ends_at = time.monotonic() + PATIENCE_S
        with Consumer({"bootstrap.servers": bootstrap}) as asking:
            ends = {tp: asking.get_watermark_offsets(tp)[1] for tp in tps}
        behind: dict[str, dict[TopicPartition, int]] = {}
        while True:
            for group in groups:
                behind[group] = _behind(ends, _committed(bootstrap, group, tps))
            behind[SQLITE_GROUP] = _behind(ends, _stored(database, tps))
            if not any(behind.values()):
                return
            for slot in self.all:
                slot.check()
            if time.monotonic() >= ends_at:
                raise AssertionError(f"records were not read: {behind}\n{self._stacks()}")
            time.sleep(0.2)

    def _stacks(self) -> str:
        """Ends all members, and tells where their threads were."""
        found = []
        for slot in self.all:
            process = slot.process
            if process is not None:
                process.send_signal(signal.SIGABRT)
                process.wait(PATIENCE_S)
                found.append(f"--- {slot.spec.name}\n{slot.log(process)}")
        return "\n".join(found)


class Faults:
    """Draws what happens to whom, and does it."""

    def __init__(
        self, gateway: GatewayProcess, members: Members, dice: random.Random, began_at: float
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._gateway = gateway
        self._members = members
        self._dice = dice
        self._began_at = began_at
        #: When, a number that breaks ties, and what is then to be done.
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "short pauses": (3, self._pause_shortly),
            "long pauses": (3, self._pause_for_long),
            "kills": (4, self._kill),
            "restarts": (2, self._restart),
            "twins": (1, self._start_twin),
            "gateway kills": (1, self._kill_gateway),
            "gateway restarts": (1, self._restart_gateway),
        }

    def run(self, size: ConsumerLoop) -> None:
        """Faults for so long, each kind at least once; then all goes on undisturbed."""
        # Every run has each kind; what comes beyond that is drawn.
        first = list(self._kinds)
        self._dice.shuffle(first)
        ends_at = time.monotonic() + size.seconds
        while first or time.monotonic() < ends_at:
            self._wait(self._dice.uniform(*size.pause_s))
            weights = [weight for weight, _ in self._kinds.values()]
            kind = first.pop() if first else self._dice.choices(list(self._kinds), weights)[0]
            self._kinds[kind][1]()
            self.counts[kind] += 1
            for slot in self._members.all:
                slot.check()
        while self._later:
            self._wait(0.1)

    def _wait(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            if now >= ends_at:
                return
            time.sleep(min(0.02, ends_at - now))

    def _after(self, seconds: float, do: Callable[[], object]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), do))

    def _draw(self, *, static: bool = False) -> Slot:
        """A member that runs."""
        while True:
            found = [s for s in self._members.all if s.runs and (s.spec.instance_id or not static)]
            if found:
                return self._dice.choice(found)
            self._wait(0.1)

    def _pause_shortly(self) -> None:
        self._pause(self._dice.uniform(0.1, 1.5))

    def _pause_for_long(self) -> None:
        """Beyond its session, and at times beyond the interval of polls."""
        longest_s = 1.3 * MAX_POLL_INTERVAL_MS / 1000
        self._pause(self._dice.uniform(1.3 * SESSION_TIMEOUT_MS / 1000, longest_s))

    def _pause(self, seconds: float) -> None:
        slot = self._draw()
        slot.pause()
        self._after(seconds, slot.resume)

    def _kill(self) -> None:
        slot = self._draw()
        slot.kill()
        self._after(self._dice.choice([0.0, 0.0, 1.0, 4.0]), slot.start)

    def _restart(self) -> None:
        slot = self._draw()
        slot.stop()
        self._after(self._dice.choice([0.0, 0.0, 2.0]), slot.start)

    def _start_twin(self) -> None:
        """A second process with one instance id: exactly one of the two has to stop."""
        slot = self._draw(static=True)
        assert slot.process is not None
        twins = [slot.process, slot.start()]
        ends_at = time.monotonic() + PATIENCE_S
        while all(twin.poll() is None for twin in twins):
            assert time.monotonic() < ends_at, f"two have the instance id: {slot.log(twins[0])}"
            self._wait(0.05)
        (fenced,) = [twin for twin in twins if twin.poll() is not None]
        assert fenced.returncode == FENCED, f"{fenced.returncode}: {slot.log(fenced)}"
        twins.remove(fenced)
        _end(fenced)
        slot.process = twins[0]

    def _kill_gateway(self) -> None:
        assert self._gateway.kill() == -9, f"the gateway ended by itself:\n{self._gateway.log}"
        self._wait(self._dice.choice([0.0, 0.5, 2.0]))
        self._gateway.start()

    def _restart_gateway(self) -> None:
        assert self._gateway.terminate() == 0, self._gateway.log
        self._gateway.start()


class Onlooker:
    """Asks for the committed offsets of every group again and again, in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: list[OffsetCommit] = []
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="onlooker")

    def __enter__(self) -> Onlooker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def check(self) -> None:
        """Raises what went wrong."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        tps = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
        groups = sorted({spec.group for spec in CONSUMERS} - {SQLITE_GROUP})
        try:
            while not self._stopped.wait(0.3):
                for group in groups:
                    began_ms = _now_ms()
                    with contextlib.suppress(MainstemError):  # there is no gateway now
                        for tp, offset in _committed(self._bootstrap, group, tps).items():
                            self._see(group, tp, offset, began_ms)
        except BaseException as error:
            self._failure = error

    def _see(self, group: str, tp: TopicPartition, offset: int, began_ms: int) -> None:
        self.seen.append(
            OffsetCommit(
                "onlooker", group, tp.topic, tp.partition, max(offset, -1), began_ms, _now_ms()
            )
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(PATIENCE_S)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _committed(bootstrap: str, group: str, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
    config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    with Consumer(config) as asking:
        return {tp: tp.offset for tp in asking.committed(tps, 5.0)}


def _behind(
    ends: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {tp: offsets.get(tp, 0) for tp, end in ends.items() if end and offsets.get(tp) != end}


def _stored(database: Path, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
    with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection:
        rows = connection.execute("SELECT topic, partition, next_offset FROM progress").fetchall()
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}


def _outputs(database: Path) -> Iterator[Operation]:
    """What the database has, in the order in which it was stored."""
    query = "SELECT offset, key, value FROM record WHERE topic = ? AND partition = ? ORDER BY rowid"
    with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection:
        for topic, count in TOPICS.items():
            for partition in range(count):
                rows = connection.execute(query, (topic, partition)).fetchall()
                runs = runs_of(
                    [row[0] for row in rows],
                    pa.array([row[1] for row in rows], pa.binary()),
                    [int(row[2]) for row in rows],
                )
                yield Output(SQLITE_GROUP, topic, partition, runs)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
