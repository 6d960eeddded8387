"""From a time to an offset: file statistics first, then the one data file that decides."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from mainstem.delta_log.files.data_file import read_data_file
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import TableState
from mainstem.records import TABLE_SCHEMA


def offset_for_timestamp(
    store: ObjectStore, state: TableState, partition: int, timestamp_ms: int
) -> int | None:
    """The first readable offset of the partition whose record has this timestamp or a later one;
    None without one.

    Timestamps need not be in order: a record after the answer may well be older. As Kafka's
    `offsetsForTimes`.

    Raises:
        LogDamagedError: The file that decides is missing or damaged.
    """
    start, end = state.log_start_offset(partition), state.log_end_offset(partition)
    files = files_reaching(state, partition, timestamp_ms)
    return first_offset_at(store, files, start, end, timestamp_ms)


def files_reaching(state: TableState, partition: int, timestamp_ms: int) -> list[DataFile]:
    """The files, by base offset, of which one has the first readable record of this time or later,
    if there is such a record. Few of them, so that their number costs nothing."""
    start, end = state.log_start_offset(partition), state.log_end_offset(partition)
    # Statistics are exact, so the first such file has a record that is late enough. Only the log
    # start offset can cut it off, and it cuts no other file.
    return state.files(partition).between(start, end, files_max=2, timestamp_ms_min=timestamp_ms)


def first_offset_at(
    store: ObjectStore, files: Iterable[DataFile], start: int, end: int, timestamp_ms: int
) -> int | None:
    """The same for offsets in [start, end), given the files that have them, by base offset."""
    for file in files:
        if file.timestamp_ms_max < timestamp_ms:
            continue
        for batch in read_data_file(store, file, start, end, ["timestamp"]):
            micros = np.asarray(batch.column("timestamp").view(pa.int64()))
            late_enough = np.flatnonzero(micros >= timestamp_ms * 1000)
            if late_enough.size:
                return int(batch.column("offset")[int(late_enough[0])].as_py())
        # Only where the log start offset cuts off the one record that was late enough.
    return None


assert TABLE_SCHEMA.field("timestamp").type.unit == "us"
