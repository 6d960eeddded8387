"""Checks how the records of idempotent producers are numbered in one partition."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.delta_log.format import DataFile, registers
from mainstem.delta_log.table import TableState
from mainstem.delta_log.verify.commits import CommitWalk, Findings


class _Last(NamedTuple):
    sequence: int
    offset: int


class SequenceCheck:
    """The last sequence of each producer in one partition.

    A producer's sequences increase by one with its records' offsets, within an epoch. The data do
    not have the epoch: a new one begins at 0, and the commit that has its first batch names it.
    Where keyed compaction may have taken records between two of a producer's, nothing is known of
    the second one's sequence. Nor is it where the topic was restored between them: its leader did
    not know the producer. Before that, what named the epochs is not there any more.
    """

    def __init__(
        self,
        state: TableState,
        partition: int,
        walk: CommitWalk,
        sequences: Findings,
        registers_: Findings,
    ) -> None:
        self._state = state
        self._partition = partition
        self._walk = walk
        self._sequences = sequences
        self._registers = registers_
        self._cleaned = state.cleaned_offset(partition)
        self._restored = state.restored_offset(partition)
        self._last: dict[int, _Last] = {}

    def take(self, file: DataFile, offsets: npt.NDArray[np.int64], batch: pa.RecordBatch) -> None:
        """The next records of the partition."""
        ids, numbers = batch.column("producer_id"), batch.column("sequence")
        if ids.null_count != numbers.null_count:
            self._sequences.add(
                "SEQUENCE_GAP", f"{file.path} has records with only one of producer id and sequence"
            )
            return
        if ids.null_count == len(ids):
            return
        held = np.flatnonzero(np.asarray(ids.is_valid()))
        owners = np.asarray(ids.fill_null(0))[held]
        sequences = np.asarray(numbers.fill_null(0))[held]
        offsets = offsets[held]
        self._sequences.checked_count += len(held)
        breaks = (np.diff(owners) != 0) | (np.diff(sequences) != 1)
        starts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(held)]
        for start, end in itertools.pairwise(starts):
            self._follow(
                int(owners[start]),
                int(sequences[start]),
                int(offsets[start]),
                _Last(int(sequences[end - 1]), int(offsets[end - 1])),
            )

    def check_registers(self) -> None:
        """Compares what was seen with the registers; one that has expired is none."""
        for producer_id, last in self._last.items():
            name = registers.producer(producer_id, self._partition)
            register = self._state.registers.get(name)
            if register is None or register.value == last.sequence:
                continue
            if not self._may_lack(last.offset):
                self._registers.add(
                    "REGISTER_WRONG",
                    f"{name} is {register.value}; its last record has {last.sequence}",
                )

    def _may_lack(self, offset: int) -> bool:
        """Whether keyed compaction may have taken the record right after this offset."""
        return offset + 1 < self._cleaned

    def _follow(self, producer_id: int, first: int, offset: int, last: _Last) -> None:
        before = self._last.get(producer_id)
        self._last[producer_id] = last
        if before is None or first == before.sequence + 1 or self._may_lack(before.offset):
            return
        if before.offset < self._restored and (first == 0 or offset >= self._restored):
            return
        if first == 0 and self._walk.may_begin_epoch(producer_id, self._partition, offset):
            return
        where = f"sequence {first} of producer {producer_id} at offset {offset} of partition"
        if first <= before.sequence:
            self._sequences.add(
                "SEQUENCE_DUPLICATE",
                f"{where} {self._partition} comes after {before.sequence}, so it is there already",
            )
        else:
            self._sequences.add(
                "SEQUENCE_GAP", f"{where} {self._partition} follows {before.sequence}"
            )
