"""What one append puts into a table: a data file for each partition, and the actions that go with
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

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


def encode_slices(
    partition: int,
    base_offset: int,
    slices: Sequence[Slice],
    *,
    compression_type: str,
    now_ms: int,
) -> tuple[DataFile, pa.Buffer]:
    """Consecutive slices of a partition as one data file: its action, and its bytes."""
    return encode_data_file(
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


def put_file(store: Store, file: DataFile, data: pa.Buffer, content_bytes_max: int) -> WrittenFile:
    """Makes an encoded data file durable. Blocks.

    Args:
        content_bytes_max: Of a larger file no bytes are returned.

    Raises:
        StoreUnavailableError: The store failed.
    """
    store.put(file.path, data)
    # A copy, because the buffer that it was written into is up to twice as large.
    return WrittenFile(file, data.to_pybytes() if data.size <= content_bytes_max else None)


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
