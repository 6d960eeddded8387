"""Where a group goes on, from what it has committed and what the log has."""

from __future__ import annotations

import pytest

from mainstem.consumers.offset_rows import StoredOffset
from mainstem.consumers.progress import next_offset, truncated_to
from mainstem.delta_log import TableState
from mainstem.delta_log.format import Register, registers


def log(*, settled: int) -> TableState:
    """It ends at 10, and has its last records from epoch 5."""
    state = TableState("t")
    state.apply(
        0,
        [
            Register(registers.leo(0), 10),
            Register(registers.partition_epoch(0), 5),
            Register(registers.epoch_number(0, 0), 5),
            Register(registers.epoch_start(0, 0), 4),
            Register(registers.SETTLED, settled),
        ],
    )
    return state


def committed(offset: int, epoch: int) -> StoredOffset:
    return StoredOffset("t", "id", 0, offset, epoch)


def test_a_group_ahead_of_the_table_lost_nothing_as_long_as_a_write_ahead_log_may_have_it() -> None:
    for epoch in (5, 7):
        ahead = committed(12, epoch)
        assert truncated_to(log(settled=5), ahead, None) is None, "led elsewhere, or by nobody"
        assert truncated_to(log(settled=5), ahead, 12) is None, "its leader has accepted it"
        assert truncated_to(log(settled=5), ahead, 11) == 10, "its leader has not"
        assert truncated_to(log(settled=8), ahead, None) == 10, "a later leader has found nothing"
        assert next_offset(log(settled=5), ahead) == 10, "it has no lag"


def test_a_group_that_read_another_log_is_told_where_that_began_whoever_leads() -> None:
    other = committed(9, 3)
    for accepted_end in (None, 10, 20):
        assert truncated_to(log(settled=5), other, accepted_end) == 4


@pytest.mark.parametrize("epoch", [-1, 0])
def test_an_offset_beyond_the_end_that_nobody_has_read_is_all_lag(epoch: int) -> None:
    assert truncated_to(log(settled=8), committed(12, epoch), None) is None
    assert next_offset(log(settled=8), committed(12, epoch)) == 0
