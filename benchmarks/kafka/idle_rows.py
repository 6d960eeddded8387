"""Rows of a thousand quiet topics: what they cost the server, all with one producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.kafka.client import Task
from benchmarks.kafka.client_rows import run_worker
from benchmarks.kafka.row import KAFKA, MAINSTEM, Outcome, Row, Variant
from benchmarks.kafka.systems import Systems

_TOPICS: Final = 1_000
_WARM_UP_S: Final = 15.0
_SECONDS: Final = 60.0
_SECONDS_MIN: Final = 5.0

_VARIANTS: Final = (Variant("mainstem", MAINSTEM), Variant("Kafka, default", KAFKA))


@dataclass(frozen=True, slots=True)
class _Trickle:
    """Records to 1,000 topics of one partition.

    Attributes:
        rate: Records a second over all topics.
    """

    rate: int

    def __call__(self, systems: Systems, variant: Variant, scale: float) -> Outcome:
        """One turn; `--scale` is of its time."""
        topics = _topics(systems, variant.system)
        count = round(self.rate * max(_SECONDS * scale, _SECONDS_MIN))
        task = Task(
            system=variant.system,
            row="trickle",
            address=systems.address(variant.system),
            topic=topics[0],
            partitions=1,
            server_pid=systems.server_pid(variant.system),
            count=count,
            # Each topic has had a record before: the first one opens it.
            warm_up=max(round(self.rate * _WARM_UP_S * min(scale, 1.0)), _TOPICS),
            rate=self.rate,
            config=dict(variant.config),
            topics=topics,
        )
        return run_worker(task, systems.environment)


def _topics(systems: Systems, system: str) -> list[str]:
    """Made once, for all turns."""
    keys = [f"{system} quiet topic {number}" for number in range(_TOPICS)]
    if keys[0] not in systems.filled:
        names = systems.new_topics(system, _TOPICS, partitions=1)
        systems.filled.update(zip(keys, names, strict=True))
    return [systems.filled[key] for key in keys]


ROWS: Final = tuple(
    Row(f"quiet topics, {rate:,}/s", "s", _VARIANTS, _Trickle(rate), lower_is_better=True)
    for rate in (100, 1_000)
)
