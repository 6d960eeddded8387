"""Ranges over the holes of keyed compaction: fine below the partition's register, damage above."""

from __future__ import annotations

import pytest
from tests.unit.jobs.keyed_logs import EAGER, run
from tests.unit.jobs.topic_tables import NOW_MS
from tests.unit.pyspark_mainstem.topic_log import Record, TopicLog

from mainstem.delta_log import TableState
from mainstem.delta_log.format import DataFile, Metadata, Protocol, Register, registers
from mainstem.errors import LogDamagedError
from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._range_plan import plan_range
from pyspark_mainstem._range_reader import read_range


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


def test_a_range_whose_files_were_compacted_and_vacuumed_is_read_from_those_that_took_their_place(
    topic_log: TopicLog,
) -> None:
    topic_log.topics.create("t", 1, {**EAGER, "delete.retention.ms": 0})
    for start in range(0, 12, 3):
        rows = [Record(b"%d" % offset, b"%d" % (offset % 2)) for offset in range(start, start + 3)]
        topic_log.append("t", (0, rows))
    topic_log.append("t", (0, [Record(None, b"1")]))
    opened = topic_log.topics.open("t")
    plan = plan_range(opened.state, OffsetRange(TopicPartition("t", 0), 2, 13))
    old = list(opened.state.files(0).sorted())
    run(topic_log.topics, NOW_MS)
    for file in old:
        opened.store.delete(file.path)
    found = [row for batch in read_range(plan, ["offset", "value"]) for row in batch.to_pylist()]
    assert found == [{"offset": 10, "value": b"10"}]
