"""From a time to an offset: file statistics first, then the one data file that decides."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from mainstem.delta_log.files.data_file import read_data_file
from mainstem.delta_log.store import Store
from mainstem.delta_log.table import DataFile, TableState
from mainstem.records import TABLE_SCHEMA


def offset_for_timestamp(
    store: Store, state: TableState, partition: int, timestamp_ms: int
) -> int | None:
    """The first readable offset of the partition whose record has this timestamp or a later one;
    None without one.

    Timestamps need not be in order: a record after the answer may well be older. As Kafka's
    `offsetsForTimes`.

    Raises:
        LogDamagedError: The file that decides is missing or damaged.
    """
    start, end = state.log_start_offset(partition), state.log_end_offset(partition)
    return first_offset_at(
        store, state.files(partition).between(start, end), start, end, timestamp_ms
    )


def first_offset_at(
    store: Store, files: Iterable[DataFile], start: int, end: int, timestamp_ms: int
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
