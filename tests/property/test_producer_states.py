"""The producers' states against a model that remembers every batch for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mainstem.delta_log.append import PlacedBatch, ProducerMemory, ProducerStates
from mainstem.delta_log.format import Batch, ProducerBatch
from mainstem.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from mainstem.limits import IN_FLIGHT_BATCHES_MAX

EXPIRATION_MS = 100
NO_LIMIT = 2**60
PRODUCERS = st.integers(1, 2)
PARTITIONS = st.integers(0, 1)


@dataclass
class _Sent:
    """A batch that was accepted, its token while it is pending, and the commit that has it."""

    batch: Batch
    token: int | None
    version: int = -1
    is_forgotten: bool = False

    @property
    def first(self) -> int:
        assert self.batch.producer is not None
        return self.batch.producer.base_sequence


@dataclass
class _Model:
    """A producer in a partition: all batches of its epoch."""

    epoch: int
    used_ms: int
    #: The number of the commit after which nothing was under way.
    silent_since: int = 0
    sent: list[_Sent] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        return self.sent[-1].batch.last_sequence + 1 if self.sent else 0

    @property
    def is_pending(self) -> bool:
        return any(one.token is not None for one in self.sent)

    def remembered(self) -> list[_Sent]:
        """Those that are answered with their offsets: all that wait, and the last five others."""
        pending = [one for one in self.sent if one.token is not None]
        done = [one for one in self.sent if one.token is None and not one.is_forgotten]
        return done[-IN_FLIGHT_BATCHES_MAX:] + pending


class Producers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = ProducerMemory(NO_LIMIT)
        self.states: ProducerStates[int] = ProducerStates(EXPIRATION_MS, self.memory)
        self.states.begin(0)
        self.commits = 0
        self.model: dict[tuple[int, int], _Model] = {}
        self.now_ms = 0
        self.offsets = [0, 0]
        self.tokens = 0
        self.version = 0
        #: Accepted, in order, across all: what the appender's queue holds.
        self.queue: list[tuple[tuple[int, int], _Sent]] = []

    def _known(self, key: tuple[int, int]) -> _Model | None:
        known = self.model.get(key)
        if known is None or known.is_pending:
            return known
        return None if self.now_ms - known.used_ms >= EXPIRATION_MS else known

    @rule(
        producer_id=PRODUCERS,
        partition=PARTITIONS,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        back=st.integers(-2, 12),
        count=st.integers(1, 3),
    )
    def send(
        self, producer_id: int, partition: int, epoch_step: int, back: int, count: int
    ) -> None:
        """Sends the next batch (`back` 0), an earlier one, or one that leaves a gap."""
        key = (producer_id, partition)
        known = self._known(key)
        epoch = max((known.epoch if known else 0) + epoch_step, 0)
        next_sequence = known.next_sequence if known and epoch == known.epoch else 0
        sequence = max(next_sequence - back, 0)
        by = ProducerBatch(producer_id, epoch, sequence)

        def check() -> tuple[Batch, int | None, int] | None:
            seen = self.states.check(by, partition, count, self.now_ms, "t")
            return None if seen is None else (seen.batch, seen.token, seen.table_version)

        if known is None and sequence != 0:
            with pytest.raises(UnknownProducerIdError):
                check()
        elif known is not None and epoch < known.epoch:
            with pytest.raises(ProducerFencedError):
                check()
        elif sequence == next_sequence:
            assert check() is None
            self._accept(key, by, count)
        elif sequence + count <= next_sequence:
            assert known is not None
            self._check_repeated(known, by, count, check())
        else:
            with pytest.raises(OutOfOrderSequenceError) as caught:
                check()
            assert caught.value.facts["expected_sequence"] == str(next_sequence)

    def _accept(self, key: tuple[int, int], by: ProducerBatch, count: int) -> None:
        batch = Batch(key[1], self.offsets[key[1]], count, by)
        self.offsets[key[1]] += count
        self.tokens += 1
        self.states.accept(batch, self.tokens, self.now_ms)
        known = self._known(key)
        if known is None or known.epoch < by.epoch:
            known = self.model[key] = _Model(by.epoch, self.now_ms)
        known.used_ms = self.now_ms
        sent = _Sent(batch, self.tokens)
        known.sent.append(sent)
        self.queue.append((key, sent))

    def _check_repeated(
        self,
        known: _Model,
        by: ProducerBatch,
        count: int,
        answer: tuple[Batch, int | None, int] | None,
    ) -> None:
        assert answer is not None
        batch, token, version = answer
        last = by.base_sequence + count - 1
        covering = [
            one
            for one in known.sent
            if one.first <= last and one.batch.last_sequence >= by.base_sequence
        ]
        # Never told to be in the table before all of it is.
        waits = [one.token for one in covering if one.token is not None]
        assert token == (waits[-1] if waits else None)
        if len(covering) == 1 and covering[0] in known.remembered():
            offset = covering[0].batch.base_offset + by.base_sequence - covering[0].first
            assert (batch.base_offset, batch.record_count) == (offset, count)
            assert version == covering[0].version
        elif len(covering) == 1:
            assert (batch.base_offset, version) == (-1, -1)

    @precondition(lambda self: self.queue)
    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        self.version += 1
        taken, self.queue = self.queue[:count], self.queue[count:]
        self.states.committed([sent.batch for _, sent in taken], self.version)
        for key, sent in taken:
            sent.token = None
            sent.version = self.version
            self.commits += 1
            if key in self.model and not self.model[key].is_pending:
                self.model[key].silent_since = self.commits

    @rule(ms=st.integers(1, EXPIRATION_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def expire(self) -> None:
        gone = [key for key in self.model if self._known(key) is None]
        self.states.expire(self.now_ms)
        self._check_forgotten(gone)

    @rule(room=st.booleans())
    def memory_gets_short(self, room: bool) -> None:
        """The one that has been silent for longest goes, and never one with a batch under way."""
        idle = [key for key, known in self.model.items() if not known.is_pending]
        gone = sorted(idle, key=lambda key: self.model[key].silent_since)[: 0 if room else 1]
        self.memory.limit_bytes = self.memory.used_bytes - (not room)
        self.memory.make_room(self.now_ms)
        self.memory.limit_bytes = NO_LIMIT
        self._check_forgotten(gone)

    def _check_forgotten(self, gone: list[tuple[int, int]]) -> None:
        found = [(one[0], one[1]) for one in self.states.take_forgotten(100)]
        assert sorted(found) == sorted(gone)
        for key in gone:
            del self.model[key]
        assert len(self.states) == len(self.model)
        assert self.memory.used_bytes == self.states.size_bytes
        is_busy = any(known.is_pending for known in self.model.values())
        assert (self.memory.busy_bytes > 0) == is_busy

    @precondition(lambda self: not self.queue)
    @rule(commits=st.integers(0, 8))
    def restart(self, commits: int) -> None:
        """Only registers and the batches of the last few commits are left."""
        self.states.end()
        assert self.memory.used_bytes == self.memory.busy_bytes == 0
        self.states = ProducerStates(EXPIRATION_MS, self.memory)
        in_order = sorted(self.model.items(), key=lambda item: item[1].silent_since)
        for (producer_id, partition), known in in_order:
            for one in known.sent:
                one.is_forgotten |= one.version <= self.version - commits
            assert known.sent[-1].version >= 0
            known.used_ms = self.now_ms  # its whole time again
            self.states.restore(
                producer_id,
                partition,
                known.epoch,
                known.next_sequence - 1,
                self.now_ms,
                [
                    PlacedBatch(
                        one.first, one.batch.record_count, one.batch.base_offset, one.version
                    )
                    for one in reversed(known.sent)
                    if not one.is_forgotten
                ],
            )
        self.states.begin(self.now_ms)


TestProducers = Producers.TestCase
