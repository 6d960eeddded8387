"""Offsets by time."""

from __future__ import annotations

import numpy as np
import pytest

from mainstem.delta_log import LocalStore, TableState
from mainstem.delta_log.files import encode_data_file, offset_for_timestamp
from mainstem.delta_log.format import Action, Metadata, Protocol, Register, registers
from mainstem.errors import LogDamagedError
from mainstem.records import records_to_wire_batch


def _table(store: LocalStore, *files: list[int], log_start_offset: int = 0) -> TableState:
    """A table with one partition, whose files hold records of these timestamps."""
    actions: list[Action] = [Protocol(), Metadata("id", 0, {"mainstem.partitions": "1"})]
    offset = 0
    for timestamps in files:
        nothing: list[bytes | None] = [None] * len(timestamps)
        batch = records_to_wire_batch(nothing, nothing, None, np.array(timestamps))
        file, data = encode_data_file(
            0, offset, [batch], timestamp_type=0, compression_type="none", now_ms=0
        )
        store.put(file.path, data)
        actions.append(file)
        offset += len(timestamps)
    actions.append(Register(registers.leo(0), offset))
    actions.append(Register(registers.lso(0), log_start_offset))
    state = TableState(store.uri)
    state.apply(0, actions)
    return state


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [(0, 0), (10, 0), (11, 1), (20, 1), (21, 4), (40, 4), (41, 5), (99, 5), (100, None)],
)
def test_the_first_record_as_late_as_that_also_where_times_are_out_of_order(
    store: LocalStore, timestamp_ms: int, offset: int | None
) -> None:
    state = _table(store, [10, 20], [15, 5], [40, 99, 30])
    assert offset_for_timestamp(store, state, 0, timestamp_ms) == offset


def test_records_before_the_log_start_do_not_count(store: LocalStore) -> None:
    state = _table(store, [90, 10], [20, 80], log_start_offset=1)
    assert offset_for_timestamp(store, state, 0, 50) == 3
    assert offset_for_timestamp(store, state, 0, 85) is None


def test_an_empty_partition_has_no_offset_for_any_time(store: LocalStore) -> None:
    assert offset_for_timestamp(store, _table(store), 0, 0) is None


def test_only_the_file_that_decides_is_read(store: LocalStore) -> None:
    state = _table(store, [10], [20], [30])
    paths = [file.path for file in state.files(0).sorted()]
    store.delete(paths[0])
    store.delete(paths[2])
    assert offset_for_timestamp(store, state, 0, 15) == 1
    with pytest.raises(LogDamagedError, match="is missing"):
        offset_for_timestamp(store, state, 0, 25)
