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
    ends: dict[int, int] = {}
    for file in files:
        ends[file.partition] = max(ends.get(file.partition, 0), file.last_offset + 1)
    return [*files, *(Register(registers.leo(one), end) for one, end in ends.items())]


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
    """In which leader epoch the last record of each partition was accepted, and where each epoch
    began that is a new one there: a leader commits what the logs of leaders before it have together
    with what it has accepted. Of many the newest count.

    Args:
        state: Before the records are added.
        epochs: By partition: (leader epoch, base offset) of what is added, in offset order.
    """
    found: list[Action] = []
    for partition, added in epochs.items():
        name = registers.partition_epoch(partition)
        before = state.register_value(name)
        starts: dict[int, int] = {}
        for epoch, start_offset in added:
            if epoch > before:
                starts.setdefault(epoch, start_offset)
        if not starts:
            continue
        found.append(Register(name, max(starts)))
        oldest = sorted(
            range(registers.EPOCH_SLOTS),
            key=lambda slot: state.register_value(registers.epoch_number(partition, slot)),
        )
        newest = sorted(starts)[-registers.EPOCH_SLOTS :]
        for slot, epoch in zip(oldest, newest, strict=False):
            found += [
                Register(registers.epoch_number(partition, slot), epoch),
                Register(registers.epoch_start(partition, slot), starts[epoch]),
            ]
    return found
