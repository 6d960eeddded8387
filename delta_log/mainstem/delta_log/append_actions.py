"""What one append puts into a table: a data file for each partition, and the actions that go with
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mainstem.delta_log import registers
from mainstem.delta_log.actions import Action, Batch, DataFile, Register
from mainstem.delta_log.append_queue import Slice
from mainstem.delta_log.data_file import CREATE_TIME, LOG_APPEND_TIME, encode_data_file
from mainstem.delta_log.store import Store
from mainstem.delta_log.table_state import TableState


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that is in the store.

    Attributes:
        content: Its bytes; None: there are too many to keep them.
    """

    file: DataFile
    content: bytes | None


def write_slices(
    store: Store,
    partition: int,
    base_offset: int,
    slices: Sequence[Slice],
    *,
    compression_type: str,
    now_ms: int,
    content_bytes_max: int,
) -> WrittenFile:
    """Writes consecutive slices of a partition as one data file. Blocks.

    Args:
        content_bytes_max: Of a larger file no bytes are returned.

    Raises:
        StoreUnavailableError: The store failed.
    """
    file, data = encode_data_file(
        partition,
        base_offset,
        [slice_.records for slice_ in slices],
        producers=[slice_.producer for slice_ in slices],
        timestamp_type=[
            LOG_APPEND_TIME if slice_.log_append_time else CREATE_TIME for slice_ in slices
        ],
        compression_type=compression_type,
        now_ms=now_ms,
    )
    store.put(file.path, data)
    # A copy, because the buffer that it was written into is up to twice as large.
    return WrittenFile(file, data.to_pybytes() if data.size <= content_bytes_max else None)


def append_actions(
    state: TableState, files: Sequence[DataFile], batches: Sequence[Batch], now_ms: int
) -> list[Action]:
    """The actions that add `files`, which hold `batches`, to the table of `state`."""
    actions: list[Action] = [*files]
    actions += [Register(registers.leo(file.partition), file.last_offset + 1) for file in files]
    return actions + _producer_registers(state, batches, now_ms)


def _producer_registers(state: TableState, batches: Sequence[Batch], now_ms: int) -> list[Action]:
    """The last sequence of each idempotent producer in each partition that a commit adds to."""
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
