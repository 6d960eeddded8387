"""How an idempotent producer numbers its records, and what a refusal tells about them. Pure.

The records of a producer id are counted per topic and partition from 0, without gaps, so that a
gateway knows a batch that it has already. Numbers are given once, when a request is built, and stay
on every retry.

A request that fails for good leaves a gap, behind which the gateway takes nothing. What follows can
only be stored under a new producer id, which starts at 0 again, and giving a record a second number
is a second copy of it if the first one was stored. So a request gets new numbers only when it was
surely not stored; one whose fate is not known is sent again with its old numbers until the gateway
has told it. That answer always comes to one of three: accepted (now or before), refused since its
number does not follow (then it was not stored, and neither was anything after it), or its time is
up, and it is never sent again.

Source: KIP-98 (idempotence), KIP-360 (recovery of a producer id).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from mainstem.client.results import ProducerIdentity
from mainstem.errors import MainstemError

#: The gateway's register of sequences says that the batch is not in the log.
NOT_IN_SEQUENCE: Final = frozenset({"OUT_OF_ORDER_SEQUENCE", "UNKNOWN_PRODUCER_ID"})

#: Refusals that come before a batch gets its offsets: this attempt stored nothing, and will not.
#: After any other, an unknown one included, the batch counts as possibly stored.
NOT_TAKEN: Final = NOT_IN_SEQUENCE | {
    "BACK_PRESSURE",
    "HELD",
    "INVALID_RECORD",
    "INVALID_REQUEST",
    "INVALID_TOPIC",
    "PRODUCER_FENCED",
    "RECORD_TOO_LARGE",
    "REQUEST_TOO_LARGE",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC",
}


class Numbers(NamedTuple):
    """The numbers of one request: the sequence of the first record of each of its ranges."""

    identity: ProducerIdentity
    base_sequences: tuple[int, ...]


class Ranged(Protocol):
    """What is numbered: runs of (partition, row count), in row order."""

    @property
    def ranges(self) -> Sequence[tuple[int, int]]:
        """The runs."""
        ...


@dataclass(slots=True)
class Numbering:
    """The next numbers of one topic under one producer id."""

    identity: ProducerIdentity
    _following: dict[int, int] = field(default_factory=dict)

    @property
    def record_count(self) -> int:
        """How many records have got a number."""
        return sum(self._following.values())

    def number(self, pieces: Sequence[Ranged]) -> Numbers:
        """Gives the records of a request their numbers. Call it in the order of the requests."""
        following = self._following
        bases = []
        for piece in pieces:
            for partition, row_count in piece.ranges:
                base = following.get(partition, 0)
                bases.append(base)
                following[partition] = base + row_count
        return Numbers(self.identity, tuple(bases))


class IdentityKeeper:
    """The producer id that topics start with, and when to ask for another. Times in seconds.

    A topic keeps its id until that has a gap. Whichever topic needs one first makes the producer
    ask; a topic that needs one later takes the same.

    Args:
        asks: False: nobody is asked, as each transaction brings its own.

    Attributes:
        current: The newest; None before the first answer, and while no transaction is open.
        wanted: A topic cannot go on without a newer one.
        asking: A call is under way.
        retry_at: No call before this.
        failures: Calls that failed since the last answer.
    """

    __slots__ = ("_asks", "asking", "current", "failures", "retry_at", "wanted")

    def __init__(self, *, asks: bool = True) -> None:
        self._asks = asks
        self.current: ProducerIdentity | None = None
        self.wanted = False
        self.asking = False
        self.retry_at = 0.0
        self.failures = 0

    def want(self, now: float) -> float:
        """A topic cannot go on without a newer one. When `begin` is to be called; infinite: nobody
        is to be asked."""
        self.wanted = self._asks
        return max(now, self.retry_at) if self._asks else float("inf")

    def begin(self, now: float) -> bool:
        """Whether to call now; if so, a call is under way until `given` or `failed`."""
        if not self.wanted or self.asking or now < self.retry_at:
            return False
        self.asking = True
        return True

    def given(self, identity: ProducerIdentity) -> None:
        """The call was answered."""
        self.current = identity
        self.wanted = False
        self.asking = False
        self.failures = 0

    def failed(self, now: float, wait_s: float) -> None:
        """The call failed; the next one is for as soon as `wait_s` have passed."""
        self.asking = False
        self.failures += 1
        self.retry_at = now + wait_s

    def next_call(self) -> float:
        """When `begin` has something to do; infinite while it has not."""
        return self.retry_at if self.wanted and not self.asking else float("inf")


def taken_in_doubt(error: MainstemError) -> bool:
    """Whether a batch that was refused with `error` may nevertheless be stored."""
    return error.code not in NOT_TAKEN
