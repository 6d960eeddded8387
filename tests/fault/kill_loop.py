"""Kills a real gateway again and again, at random moments, under real producers; then judges."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fault.workload import PRODUCERS, Follower, Judgement, Producers, ProducerSpec, judge

from mainstem.client import AdminClient
from mainstem.delta_log.store import Place
from mainstem.testing import GatewayProcess

#: Topics with their partitions.
TOPICS = {"orders": 4, "clicks": 1, "audit": 2}

#: Of one topic the log is cleaned up all the time, so that kills fall into that too.
LOG_RETENTION: Mapping[str, str] = {"audit": "interval 3 seconds"}

#: Checkpoints come often enough for kills to fall into them.
GATEWAY_SETTINGS: dict[str, object] = {"checkpoint.interval.commits": 40}


@dataclass(frozen=True)
class KillLoop:
    """The size of a run.

    Attributes:
        kill_count: How often the gateway is killed.
        record_count: Acknowledged records that there must be at the end; the loop goes on without
            kills until there are.
        life_s: A gateway lives that long, from the moment when it listens: drawn between the two.
            One in five is killed within 0.2 s instead, while it recovers.
    """

    kill_count: int
    record_count: int
    life_s: tuple[float, float] = (0.4, 1.6)
    producers: Sequence[ProducerSpec] = PRODUCERS
    record_timeout_s: float = 600.0


@dataclass(frozen=True)
class KillReport:
    """What a run showed."""

    kill_count: int
    seed: int
    seconds: float
    judgement: Judgement

    def __str__(self) -> str:
        head = f"{self.kill_count} kills in {self.seconds:.0f} s, seed {self.seed}"
        return f"{head}\n{self.judgement}"


def run_kill_loop(
    directory: Path,
    seed: int,
    size: KillLoop,
    gateway_class: Callable[..., GatewayProcess] = GatewayProcess,
    *,
    place: Place | None = None,
    settings: Mapping[str, object] = GATEWAY_SETTINGS,
) -> KillReport:
    """Runs the loop in `directory`, which must be empty.

    Args:
        place: The warehouse, if it is not in the directory.
        seed: Of the moments of the kills and of what the producers send. What the machine makes of
            them is not repeatable.
    """
    dice = random.Random(seed)
    began_at = time.monotonic()
    warehouse = place or directory / "warehouse"
    with gateway_class(warehouse, settings=settings) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            for topic, partitions in TOPICS.items():
                config = {
                    "commit.interval.ms": 25,
                    "rollup.files": 3,  # many in a short life
                    "delta.logRetentionDuration": LOG_RETENTION.get(topic, "interval 1 hours"),
                }
                admin.create_topic(topic, partitions, config)
        bootstrap = dict.fromkeys((spec.name for spec in size.producers), gateway.address)
        with (
            Producers(
                directory / "producers", size.producers, TOPICS, bootstrap, seed
            ) as producers,
            Follower(warehouse, TOPICS) as follower,
        ):
            producers.wait_until_acknowledged(1, 30)
            for _ in range(size.kill_count):
                time.sleep(dice.uniform(*((0, 0.2) if dice.random() < 0.2 else size.life_s)))
                assert gateway.kill() == -9, f"the gateway ended by itself:\n{gateway.log}"
                producers.check_running()
                gateway.start()
            producers.wait_until_acknowledged(size.record_count, size.record_timeout_s)
            producers.stop()
            time.sleep(1.0)  # the follower reads what came last
            assert gateway.terminate() == 0
    follower.check()
    judgement = judge(warehouse, TOPICS, producers.histories, follower.reads)
    seconds = time.monotonic() - began_at
    return KillReport(size.kill_count, seed, seconds, judgement)
