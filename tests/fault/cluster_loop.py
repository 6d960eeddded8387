"""Three real gateways on one warehouse that are killed, frozen, cut off from the store, drained and
restarted under load, at times two at once; then judges."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fault.consumer_members import PATIENCE_S, ConsumerSpec, Members
from tests.fault.consumer_onlooker import Onlooker, unread
from tests.fault.workload import Follower, Judgement, Producers, ProducerSpec, judge, tally
from tests.s3_server import S3Server
from tests.slow_s3 import S3_FAULT_RATE, SlowS3, slow_s3

from mainstem.client import AdminClient, TopicPartition
from mainstem.delta_log.store import Place
from mainstem.testing import GatewayProcess, Read, read_history

TOPICS = {f"topic-{number}": 1 + number % 2 for number in range(12)}

PARTITIONS = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]

#: Every level of acks. What is sent has to be read by every group: the pauses bound it.
PRODUCERS = (
    ProducerSpec("idempotent-batches", "all", True, 30, pause_s=0.2),
    ProducerSpec("idempotent-records", "all", True, 1, pause_s=0.1),
    ProducerSpec("plain-batches", "all", False, 20, pause_s=0.3),
    ProducerSpec("leader-batches", "1", False, 30, pause_s=0.2),
    ProducerSpec("leader-records", "1", False, 1, pause_s=0.1),
    ProducerSpec("none-batches", "0", False, 10, pause_s=0.5),
)

#: Of some topics the log has all batches at once, and is what durable readers are given.
ALL_IN_WAL = frozenset([*TOPICS][::3])

CONSUMERS = (
    ConsumerSpec("manual", "committed", "manual"),
    ConsumerSpec("automatic", "committed", "automatic"),
    ConsumerSpec("batches", "committed", "batches"),
    ConsumerSpec("durable-manual", "durable", "manual", visibility="durable"),
    ConsumerSpec("durable-batches", "durable", "batches", visibility="durable"),
    ConsumerSpec("durable-alone", "durable-alone", "automatic", visibility="durable"),
)

#: Enough for a short run.
FEW_PRODUCERS = tuple(spec for spec in PRODUCERS if not spec.name.startswith("plain"))
FEW_CONSUMERS = tuple(spec for spec in CONSUMERS if spec.name.startswith(("manual", "durable-")))[
    :3
]

GATEWAY_COUNT = 3

HEARTBEAT_MS, SESSION_MS = 200, 1_000
SETTINGS: Mapping[str, object] = {
    "gateway.heartbeat.interval.ms": HEARTBEAT_MS,
    "gateway.session.timeout.ms": SESSION_MS,
    "placement.delay.ms": 500,
    "checkpoint.interval.commits": 50,
}


@dataclass(frozen=True)
class ClusterLoop:
    """The size of a run.

    Attributes:
        seconds: How long faults come; each kind comes at least once.
        pause_s: Between two of them, drawn between the two.
        two_at_once: How likely it is that a second gateway goes while the first one is away.
    """

    seconds: float
    pause_s: tuple[float, float] = (0.5, 2.0)
    two_at_once: float = 0.25
    producers: Sequence[ProducerSpec] = PRODUCERS
    consumers: Sequence[ConsumerSpec] = CONSUMERS


@dataclass(frozen=True)
class ClusterReport:
    """What a run showed.

    Attributes:
        faults: How often each kind came.
        given: By group, the records that its members were given.
        handed_over_count: How often a gateway gave a topic to another.
    """

    seed: int
    seconds: float
    faults: Mapping[str, int]
    given: Mapping[str, int]
    handed_over_count: int
    judgement: Judgement

    def __str__(self) -> str:
        return (
            f"{GATEWAY_COUNT} gateways, {len(TOPICS)} topics, {self.seconds:.0f} s, "
            f"seed {self.seed}\n"
            f"faults                {tally(self.faults)}\n"
            f"topics handed over    {self.handed_over_count:,}\n"
            f"given to groups       {tally(self.given)}\n"
            f"{self.judgement}"
        )


class Cluster:
    """The gateways of a warehouse, and how each is cut off from it.

    Attributes:
        warehouse: Where readers find it, whatever becomes of the gateways.
        cut_off: Cuts the gateway of a number off while the block lasts.
        session_ms: After so long without a heartbeat its topics are taken over.
        read_wait_s: How long groups have to read to the end.
    """

    def __init__(
        self,
        warehouse: Place,
        gateways: Sequence[GatewayProcess],
        cut_off: Callable[[int], contextlib.AbstractContextManager[None]],
        session_ms: int,
        read_wait_s: float = 60.0,
    ) -> None:
        self.warehouse = warehouse
        self.gateways = gateways
        self.cut_off = cut_off
        self.session_ms = session_ms
        self.read_wait_s = read_wait_s

    @property
    def bootstrap(self) -> str:
        """All of them: one is there always."""
        return ",".join(one.address for one in self.gateways)


@contextlib.contextmanager
def on_a_disk(directory: Path) -> Iterator[Cluster]:
    """Gateways on a directory. Each has a link to it, which is taken away to cut it off: as on a
    volume that is not mounted any more, what is open still works, and no path leads there."""
    warehouse = directory / "warehouse"
    warehouse.mkdir()
    links = [directory / f"gateway-{number}" for number in range(GATEWAY_COUNT)]
    with contextlib.ExitStack() as stack:
        gateways = []
        for number, link in enumerate(links):
            link.symlink_to(warehouse)
            settings = {**SETTINGS, "gateway.id": f"g{number}"}
            gateways.append(stack.enter_context(GatewayProcess(link, settings=settings)))

        @contextlib.contextmanager
        def cut_off(number: int) -> Iterator[None]:
            away = links[number].with_suffix(".away")
            links[number].rename(away)
            try:
                yield
            finally:
                away.rename(links[number])

        yield Cluster(warehouse, gateways, cut_off, SESSION_MS)


#: A heartbeat is a put, and three lists.
S3_HEARTBEAT_MS, S3_SESSION_MS = 500, 3_000


@contextlib.contextmanager
def on_s3(directory: Path, server: S3Server, seed: int) -> Iterator[Cluster]:
    """Gateways on a bucket, each behind a proxy of its own that is slow, gives errors and loses
    answers, and lets nothing through where it is cut off. The environment has to say how the server
    itself is reached."""
    warehouse = f"s3://{server.make_bucket()}/lake"
    with contextlib.ExitStack() as stack:
        gateways: list[GatewayProcess] = []
        proxies: list[SlowS3] = []
        for number in range(GATEWAY_COUNT):
            proxies.append(stack.enter_context(slow_s3(server.url, S3_FAULT_RATE, seed + number)))
            settings = {
                **SETTINGS,
                "gateway.id": f"g{number}",
                "gateway.heartbeat.interval.ms": S3_HEARTBEAT_MS,
                "gateway.session.timeout.ms": S3_SESSION_MS,
                "store.endpoint": proxies[-1].url,
            }
            gateways.append(
                stack.enter_context(
                    GatewayProcess(warehouse, settings=settings, start_timeout_s=PATIENCE_S)
                )
            )
        yield Cluster(
            warehouse, gateways, lambda number: proxies[number].cut_off(), S3_SESSION_MS, 180.0
        )


class Faults:
    """Takes gateways away, and brings them back."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._dice = dice
        self._kinds: dict[str, Callable[[int], contextlib.AbstractContextManager[None]]] = {
            "killed": self._killed,
            "frozen": self._frozen,
            "restarted": self._restarted,
            "drained": self._drained,
            "cut off": cluster.cut_off,
        }
        self._bag: list[str] = []

    def run(self, size: ClusterLoop, check: Callable[[], None]) -> None:
        """Faults for so long; then all gateways are there.

        Args:
            check: Raises if something else has ended.
        """
        ends_at = time.monotonic() + size.seconds
        while time.monotonic() < ends_at or len(self.counts) < len(self._kinds):
            numbers = self._dice.sample(range(GATEWAY_COUNT), 2)
            count = 2 if self._dice.random() < size.two_at_once else 1
            with contextlib.ExitStack() as stack:
                for number in numbers[:count]:
                    kind = self._draw()
                    stack.enter_context(self._kinds[kind](number))
                    self.counts[kind] += 1
                    # Shorter than a session at times, and far longer.
                    time.sleep(self._dice.uniform(0.3, 3.0) * self._cluster.session_ms / 1000)
            check()
            for gateway in self._cluster.gateways:
                assert gateway.is_running, f"a gateway ended by itself:\n{gateway.log}"
            time.sleep(self._dice.uniform(*size.pause_s))

    def _draw(self) -> str:
        if not self._bag:
            self._bag = [*self._kinds]
            self._dice.shuffle(self._bag)
        return self._bag.pop()

    @contextlib.contextmanager
    def _killed(self, number: int) -> Iterator[None]:
        gateway = self._cluster.gateways[number]
        assert gateway.kill() == -9, f"a gateway ended by itself:\n{gateway.log}"
        try:
            yield
        finally:
            gateway.start()

    @contextlib.contextmanager
    def _frozen(self, number: int) -> Iterator[None]:
        gateway = self._cluster.gateways[number]
        os.kill(gateway.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(gateway.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def _restarted(self, number: int) -> Iterator[None]:
        with self._drained(number):
            pass
        yield

    @contextlib.contextmanager
    def _drained(self, number: int) -> Iterator[None]:
        gateway = self._cluster.gateways[number]
        assert gateway.terminate() == 0, gateway.log
        try:
            yield
        finally:
            gateway.start()


def run_cluster_loop(
    directory: Path,
    seed: int,
    size: ClusterLoop,
    made: Callable[[Path], contextlib.AbstractContextManager[Cluster]] = on_a_disk,
) -> ClusterReport:
    """Runs the loop in `directory`, which must be empty.

    Args:
        seed: Of the faults and their moments. What the machine makes of them is not repeatable.
        made: Starts the gateways.
    """
    began_at = time.monotonic()
    histories = directory / "members"
    histories.mkdir()
    database = directory / "output.db"
    groups = sorted({spec.group for spec in size.consumers})
    with made(directory) as cluster:
        gateways = cluster.gateways
        with AdminClient({"bootstrap.servers": cluster.bootstrap}) as admin:
            for topic, partitions in TOPICS.items():
                config = {"wal.records": "all"} if topic in ALL_IN_WAL else {}
                admin.create_topic(topic, partitions, config)
        # They know one gateway to begin with, and go on with the others when it is away.
        bootstrap = {
            spec.name: gateways[number % GATEWAY_COUNT].address
            for number, spec in enumerate(size.producers)
        }
        with Follower(cluster.warehouse, TOPICS) as follower:
            with (
                Producers(
                    directory / "producers", size.producers, TOPICS, bootstrap, seed
                ) as producers,
                Onlooker(cluster.warehouse, cluster.bootstrap, groups, PARTITIONS) as onlooker,
                Members(
                    size.consumers, TOPICS, histories, gateways[0].address, database
                ) as members,
            ):
                producers.wait_until_acknowledged(1, PATIENCE_S)

                def check() -> None:
                    producers.check_running()
                    for slot in members.all:
                        slot.check()

                faults = Faults(cluster, random.Random(seed))
                faults.run(size, check)
                producers.stop()
                left = unread(
                    members, groups, PARTITIONS, cluster.bootstrap, database, cluster.read_wait_s
                )
                if left:
                    logs = "\n".join(f"--- {one.address}\n{one.log[-10_000:]}" for one in gateways)
                    raise AssertionError(
                        f"records were not read: {left}\n{members.stacks()}\n{logs}"
                    )
                for slot in members.all:
                    slot.stop()
            onlooker.check()
            handed_over = sum(one.log.count("topic handed over") for one in gateways)
            for gateway in gateways:
                assert gateway.terminate() == 0, gateway.log
            time.sleep(1.0)  # the follower reads what came last
        follower.check()
        members_histories = sorted(histories.glob("*.jsonl"))
        judgement = judge(
            cluster.warehouse,
            TOPICS,
            [*producers.histories, *members_histories],
            [*onlooker.seen, *follower.reads],
        )
    given: Counter[str] = Counter()
    for one in read_history(members_histories):
        if isinstance(one, Read):
            given[one.group] += sum(run.count for run in one.runs)
    seconds = time.monotonic() - began_at
    return ClusterReport(seed, seconds, faults.counts, given, handed_over, judgement)
