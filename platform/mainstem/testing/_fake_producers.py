"""The gateway's rules for idempotent producers, once more and simply: a reference to test against.

Nothing is shared with the gateway's own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mainstem.errors import (
    MainstemError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from mainstem.limits import IN_FLIGHT_BATCHES_MAX


class FakeRun(NamedTuple):
    """Records of one producer that follow each other in one partition."""

    partition: int
    base_sequence: int
    record_count: int


@dataclass(slots=True)
class _State:
    epoch: int
    expected: int = 0
    #: (base sequence, record count) and base offset, oldest first.
    window: list[tuple[tuple[int, int], int]] = field(default_factory=list)


class FakeProducers:
    """What the producers of one topic have sent."""

    def __init__(self) -> None:
        self._states: dict[tuple[int, int], _State] = {}

    def check(self, producer_id: int, epoch: int, runs: Sequence[FakeRun]) -> list[int] | None:
        """None: all runs are new. Else the base offset of each, -1 where it is forgotten.

        Raises:
            UnknownProducerIdError, OutOfOrderSequenceError, ProducerFencedError: Nothing is taken.
        """
        places = [self._place(producer_id, epoch, run) for run in runs]
        found = [place for place in places if place is not None]
        if found and len(found) < len(places):
            raise AssertionError("a part of the batch is stored, which was stored as a whole")
        return found or None

    def accept(
        self, producer_id: int, epoch: int, runs: Sequence[FakeRun], base_offsets: Sequence[int]
    ) -> None:
        """Notes runs that `check` found new, with their base offsets."""
        for run, base_offset in zip(runs, base_offsets, strict=True):
            key = (producer_id, run.partition)
            state = self._states.get(key)
            if state is None or state.epoch != epoch:
                state = self._states[key] = _State(epoch)
            state.expected = run.base_sequence + run.record_count
            state.window.append(((run.base_sequence, run.record_count), base_offset))
            del state.window[:-IN_FLIGHT_BATCHES_MAX]

    def forget(self) -> None:
        """As if all producers were idle for producer.id.expiration.ms."""
        self._states.clear()

    def _place(self, producer_id: int, epoch: int, run: FakeRun) -> int | None:
        state = self._states.get((producer_id, run.partition))
        if state is None:
            if run.base_sequence:
                raise _refusal(UnknownProducerIdError, producer_id, run, 0)
            return None
        if epoch < state.epoch:
            raise _refusal(ProducerFencedError, producer_id, run, state.expected)
        expected = state.expected if epoch == state.epoch else 0
        if run.base_sequence == expected:
            return None
        if epoch == state.epoch and run.base_sequence + run.record_count <= expected:
            for place, base_offset in state.window:
                if place == (run.base_sequence, run.record_count):
                    return base_offset
            return -1
        raise _refusal(OutOfOrderSequenceError, producer_id, run, expected)


def _refusal(
    error: type[MainstemError], producer_id: int, run: FakeRun, expected: int
) -> MainstemError:
    return error(
        f"producer {producer_id} sent sequence {run.base_sequence} to partition {run.partition}, "
        f"where {expected} comes next",
        partition=run.partition,
        producer_id=producer_id,
        sequence=run.base_sequence,
        expected_sequence=expected,
    )
