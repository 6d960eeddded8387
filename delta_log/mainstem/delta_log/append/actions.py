"""The actions that an append puts into a table beside its data files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mainstem.delta_log.format import Action, Batch, DataFile, Register, registers
from mainstem.delta_log.table import TableState

#: Before the first one.
_NO_SEQUENCE: Final = -1


def file_actions(files: Sequence[DataFile]) -> list[Action]:
    """The actions that add `files`, and say where their partitions end now."""
    ends = [Register(registers.leo(file.partition), file.last_offset + 1) for file in files]
    return [*files, *ends]


def producer_registers(batches: Sequence[Batch], now_ms: int) -> list[Register]:
    """The last sequence of each idempotent producer in each partition that `batches` are added to,
    and its epoch. All with one time: an epoch with another is of an earlier time of the producer.
    """
    last = {
        (batch.producer.id, batch.partition): (batch.producer.epoch, batch.last_sequence)
        for batch in batches
        if batch.producer is not None
    }
    found: list[Register] = []
    for key, (epoch, sequence) in last.items():
        found.append(Register(registers.producer(*key), sequence, updated_ms=now_ms))
        if epoch:
            found.append(Register(registers.producer_epoch(*key), epoch, updated_ms=now_ms))
    return found


def forgotten_registers(producers: Iterable[tuple[int, int, bool]]) -> list[Register]:
    """What takes the registers of forgotten producers out of the table.

    Args:
        producers: Producer id, partition, and whether its epoch was written down.
    """
    names: list[str] = []
    for producer_id, partition, has_epoch in producers:
        names.append(registers.producer(producer_id, partition))
        if has_epoch:
            names.append(registers.producer_epoch(producer_id, partition))
    return [Register(name, _NO_SEQUENCE, updated_ms=registers.FORGOTTEN_MS) for name in names]


def partition_epochs(
    state: TableState, epochs: Mapping[int, Sequence[tuple[int, int]]]
) -> list[Action]:
    """In which leader epoch the last record of each partition was accepted, and where that epoch
    began, for the partitions where it is a new one.

    Args:
        state: Before the records are added.
        epochs: By partition: (leader epoch, base offset) of what is added, in offset order.
    """
    found: list[Action] = []
    for partition, added in epochs.items():
        name = registers.partition_epoch(partition)
        before = state.register_value(name)
        new = [one for one in added if one[0] > before]
        if not new:
            continue
        epoch, start_offset = new[-1][0], new[0][1]
        _, slot = min(
            (state.register_value(registers.epoch_number(partition, slot)), slot)
            for slot in range(registers.EPOCH_SLOTS)
        )
        found += [
            Register(name, epoch),
            Register(registers.epoch_number(partition, slot), epoch),
            Register(registers.epoch_start(partition, slot), start_offset),
        ]
    return found
