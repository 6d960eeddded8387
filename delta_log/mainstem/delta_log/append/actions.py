"""The actions that an append puts into a table beside its data files."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.delta_log.table import Action, Batch, DataFile, Register, TableState, registers


def file_actions(files: Sequence[DataFile]) -> list[Action]:
    """The actions that add `files`, and say where their partitions end now."""
    ends = [Register(registers.leo(file.partition), file.last_offset + 1) for file in files]
    return [*files, *ends]


def producer_registers(state: TableState, batches: Sequence[Batch], now_ms: int) -> list[Action]:
    """The last sequence of each idempotent producer in each partition that `batches` are added to.

    Args:
        state: Before they are.
    """
    last = {
        (batch.producer.id, batch.partition): (batch.producer.epoch, batch.last_sequence)
        for batch in batches
        if batch.producer is not None
    }
    found: list[Action] = []
    for key, (epoch, sequence) in last.items():
        found.append(Register(registers.producer(*key), sequence, updated_ms=now_ms))
        name = registers.producer_epoch(*key)
        if epoch or name in state.registers:
            found.append(Register(name, epoch, updated_ms=now_ms))
    return found
