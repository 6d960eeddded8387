"""What is compared: a row has variants, and measures one of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.kafka.systems import Systems

#: Of the systems that are compared.
MAINSTEM: Final = "mainstem"
KAFKA: Final = "kafka"
#: JetStream that syncs each message to the disk before it acknowledges it, and as it comes: it
#: syncs every two minutes.
NATS: Final = "nats"
NATS_UNSYNCED: Final = "nats-unsynced"


@dataclass(slots=True)
class Outcome:
    """What one turn measured.

    Attributes:
        value: In the row's unit.
        client_cpu_s: Processor seconds of all that is the client's: of the measured part only.
        server_cpu_s: The same of the server.
        client_peak_bytes: The most memory that the client's process had resident so far.
        server_peak_bytes: The same of the server.
        more: Further figures by name.
        records: That were measured, so that processor seconds can be told of a million; 0: the row
            has no such figure.
    """

    value: float
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    client_peak_bytes: int = 0
    server_peak_bytes: int = 0
    more: dict[str, float] = field(default_factory=dict)
    records: int = 0


@dataclass(frozen=True, slots=True)
class Variant:
    """How one system does a row.

    Attributes:
        name: As the table says it.
        system: `mainstem`, `kafka`, `nats` or `nats-unsynced`.
        config: Settings of the client beside where the server is.
        topic: Settings of the topic.
        share: Of the row's records that this variant is measured with: less than 1 where each
            takes so long that all of them would take minutes.
        compacted: The topic that it reads was compacted before, by the project's own job.
    """

    name: str
    system: str
    config: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        name: In a few words; `--rows` takes parts of it.
        unit: Of the values: `records/s`, `ms`, `s`, `MB` or `MB/million`.
        variants: Ours first. The ratio is to the best median of Kafka's variants.
        measure: One turn, given the systems, the variant and `--scale`.
        goal: The least ratio that the project wants; None: it is shown without one.
        lower_is_better: Of the values.
    """

    name: str
    unit: str
    variants: tuple[Variant, ...]
    measure: Callable[[Systems, Variant, float], Outcome]
    goal: float | None = None
    lower_is_better: bool = False

    def ratio(self, ours: float, theirs: float) -> float | None:
        """How many times better ours is; None where that says nothing: memory that shrank."""
        over, under = (theirs, ours) if self.lower_is_better else (ours, theirs)
        return over / under if over > 0 and under > 0 else None
