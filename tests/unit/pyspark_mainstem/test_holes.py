"""Ranges over the holes of keyed compaction: fine below the partition's register, damage above."""

from __future__ import annotations

import pytest

from mainstem.delta_log import TableState, registers
from mainstem.delta_log.actions import DataFile, Metadata, Protocol, Register
from mainstem.errors import LogDamagedError
from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._range_plan import plan_range


def state(cleaned: int, *held: tuple[int, int, int], **config: str) -> TableState:
    """Files of (base offset, last offset, record count); the partition ends at offset 20."""
    found = TableState("table")
    properties = {f"mainstem.{name.replace('_', '.')}": value for name, value in config.items()}
    found.apply(
        0,
        [
            Protocol(),
            Metadata("id", 0, {"mainstem.partitions": "1", **properties}),
            Register(registers.leo(0), 20),
            Register(registers.cleaned(0), cleaned),
            *(DataFile(f"f{base}", 0, base, last, count, 1, 0, 0, 0) for base, last, count in held),
        ],
    )
    return found


def parts(table: TableState, start: int, end: int) -> list[tuple[int, bool]]:
    plan = plan_range(table, OffsetRange(TopicPartition("t", 0), start, end))
    return [(part.base_offset, part.dense) for part in plan.files]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_holes_below_the_register_are_gone_over_whatever_the_policy_is_now(policy: str) -> None:
    table = state(14, (3, 5, 2), (9, 9, 1), (14, 19, 6), cleanup_policy=policy)
    assert parts(table, 0, 20) == [(3, False), (9, True), (14, True)]
    assert parts(table, 0, 3) == []
    assert parts(table, 6, 9) == []
    assert parts(table, 10, 14) == []
    assert parts(table, 9, 12) == [(9, True)]


def test_the_end_of_a_partition_may_be_a_hole() -> None:
    assert parts(state(20, (3, 5, 3)), 4, 20) == [(3, True)]
    assert parts(state(20), 0, 20) == []


@pytest.mark.parametrize(
    ("table", "missing"),
    [
        (state(13, (3, 5, 2), (9, 9, 1), (14, 19, 6), cleanup_policy="compact"), 13),
        (state(4, (5, 19, 15)), 4),
        (state(19, (0, 17, 9)), 19),
        (state(0, (0, 5, 6), (7, 19, 13)), 6),
    ],
)
def test_a_hole_that_reaches_above_it_is_damage(table: TableState, missing: int) -> None:
    with pytest.raises(LogDamagedError, match=f"offset {missing} .* is in no data file"):
        parts(table, 0, 20)
