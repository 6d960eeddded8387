"""Consumers that are paused, killed and restarted under load, and their gateway too; then judges.

Three groups read the same topics: one at least once, with every way of reading and committing and
with static members; one that commits batches; and one that keeps its offsets beside its output.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fault.consumer_members import (
    MAX_POLL_INTERVAL_MS,
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    ConsumerSpec,
    Members,
    Slot,
    end,
)
from tests.fault.consumer_onlooker import SQLITE_GROUP, Onlooker, outputs, unread
from tests.fault.consumer_process import FENCED
from tests.fault.workload import Judgement, Producers, ProducerSpec, judge, tally

from mainstem.client import AdminClient, TopicPartition
from mainstem.testing import GatewayProcess, OffsetCommit, Ownership, Read, read_history

TOPICS = {"orders": 4, "clicks": 2}

PARTITIONS = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]

PRODUCERS = (
    ProducerSpec("batches", "all", True, 30, pause_s=0.15),
    ProducerSpec("records", "all", True, 1, pause_s=0.05),
    ProducerSpec("copies", "all", False, 10, pause_s=0.3),
)


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


#: Kinds of faults, and how likely each is.
FAULTS = {
    "short pauses": 3,
    "long pauses": 3,
    "kills": 4,
    "restarts": 2,
    "twins": 1,
    "gateway kills": 1,
    "gateway restarts": 1,
}


#: How long code that is broken on purpose gets to read to the end.
BROKEN_PATIENCE_S = 15.0


@dataclass(frozen=True)
class ConsumerLoop:
    """The size of a run.

    Attributes:
        seconds: How long faults come.
        pause_s: Between two of them, drawn between the two.
        kinds: Of faults.
        reads_all: Every group must get to the end once the faults are over. Code that is broken on
            purpose may keep it from that: an offset that went back behind the last commit stays.
    """

    seconds: float
    pause_s: tuple[float, float] = (0.2, 1.0)
    kinds: tuple[str, ...] = tuple(FAULTS)
    consumers: tuple[ConsumerSpec, ...] = CONSUMERS
    reads_all: bool = True


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
        lines = [
            f"consumers for {self.seconds:.0f} s, seed {self.seed}",
            f"faults                {tally(self.faults)}",
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
    warehouse = directory / "warehouse"
    database = directory / "output.db"
    histories = directory / "members"
    histories.mkdir()
    groups = sorted({spec.group for spec in size.consumers})
    with GatewayProcess(warehouse) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            for topic, partitions in TOPICS.items():
                admin.create_topic(topic, partitions, {"commit.interval.ms": 25})
        bootstrap = dict.fromkeys((spec.name for spec in PRODUCERS), gateway.address)
        committing = [group for group in groups if group != SQLITE_GROUP]
        with (
            Producers(directory / "producers", PRODUCERS, TOPICS, bootstrap, seed) as producers,
            Onlooker(warehouse, gateway.address, committing, PARTITIONS) as onlooker,
            Members(size.consumers, TOPICS, histories, gateway.address, database) as members,
        ):
            faults = Faults(gateway, members, random.Random(seed))
            producers.wait_until_acknowledged(1, PATIENCE_S)
            faults.run(size)
            producers.check_running()
            producers.stop()
            patience_s = PATIENCE_S if size.reads_all else BROKEN_PATIENCE_S
            left = unread(members, groups, PARTITIONS, gateway.address, database, patience_s)
            if left and size.reads_all:
                raise AssertionError(f"records were not read: {left}\n{members.stacks()}")
            for slot in members.all:
                slot.stop()
            onlooker.check()
    output = outputs(database, SQLITE_GROUP, PARTITIONS) if SQLITE_GROUP in groups else ()
    members_histories = sorted(histories.glob("*.jsonl"))
    judgement = judge(
        warehouse, TOPICS, [*producers.histories, *members_histories], [*onlooker.seen, *output]
    )
    seconds = time.monotonic() - began_at
    return _report(seed, seconds, faults.counts, members_histories, judgement)


def _report(
    seed: int,
    seconds: float,
    faults: Mapping[str, int],
    histories: Sequence[Path],
    judgement: Judgement,
) -> ConsumerReport:
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
    delivered = {group: len(places) for group, places in different.items()}
    return ConsumerReport(seed, seconds, faults, given, delivered, owned, commits, judgement)


class Faults:
    """Draws what happens to whom, and does it."""

    def __init__(self, gateway: GatewayProcess, members: Members, dice: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._gateway = gateway
        self._members = members
        self._dice = dice
        #: When, a number that breaks ties, and what is then to be done.
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._do: dict[str, Callable[[], None]] = {
            "short pauses": self._pause_shortly,
            "long pauses": self._pause_for_long,
            "kills": self._kill,
            "restarts": self._restart,
            "twins": self._start_twin,
            "gateway kills": self._kill_gateway,
            "gateway restarts": self._restart_gateway,
        }

    def run(self, size: ConsumerLoop) -> None:
        """Faults for so long, each kind at least once; then all goes on undisturbed."""
        weights = [FAULTS[kind] for kind in size.kinds]
        first = list(size.kinds)
        self._dice.shuffle(first)
        ends_at = time.monotonic() + size.seconds
        while first or time.monotonic() < ends_at:
            self._wait(self._dice.uniform(*size.pause_s))
            kind = first.pop() if first else self._dice.choices(size.kinds, weights)[0]
            self._do[kind]()
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
        slot.stop(self._wait)
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
        end(fenced)
        slot.process = twins[0]

    def _kill_gateway(self) -> None:
        assert self._gateway.kill() == -9, f"the gateway ended by itself:\n{self._gateway.log}"
        self._wait(self._dice.choice([0.0, 0.5, 2.0]))
        self._gateway.start()

    def _restart_gateway(self) -> None:
        assert self._gateway.terminate() == 0, self._gateway.log
        self._gateway.start()
