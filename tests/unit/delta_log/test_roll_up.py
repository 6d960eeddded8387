"""Which small files are kept, and which become one. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.delta_log.files import LEVELS, KeptFile, KeptFiles, RollUpMemory, choose
from mainstem.delta_log.files.roll_up import _Place
from mainstem.delta_log.format import DataFile

NOW_MS = 1_000_000
AGE_MS = 60_000


def _file(base_offset: int, count: int = 10, *, age_ms: int = 0, partition: int = 0) -> KeptFile:
    return _kept(base_offset, count=count, age_ms=age_ms, partition=partition)


def _kept(
    base_offset: int,
    level: int = 0,
    partition: int = 0,
    size_bytes: int = 976,
    count: int = 10,
    age_ms: int = 0,
) -> KeptFile:
    file = DataFile(
        path=f"partition={partition}/{base_offset}",
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + count - 1,
        record_count=count,
        size_bytes=100,
        timestamp_ms_min=0,
        timestamp_ms_max=0,
        modified_ms=-1,  # the time of day, which says nothing here
    )
    return KeptFile(file, b"x" * size_bytes, level, NOW_MS - age_ms)


def _run(kept: KeptFiles, *gone: int) -> list[int]:
    """The offsets of the next run, at most three files; `gone` are no longer in the table."""
    paths = {f"partition=0/{offset}" for offset in gone}
    found = kept.next_run(lambda path: path not in paths, 3, AGE_MS, NOW_MS)
    return [one.file.base_offset for one in found]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], (0, 0)),
        ([_file(0)], (0, 0)),
        ([_file(0), _file(10)], (0, 0)),
        ([_file(0), _file(10), _file(20)], (0, 3)),
        ([_file(0), _file(10), _file(20), _file(30)], (0, 3)),
        # Nothing can come between any more: two are worth it, one is not.
        ([_file(0), _file(10), _file(30)], (0, 2)),
        ([_file(0), _file(20)], (1, 0)),
        ([_file(0), _file(20), _file(40), _file(50), _file(60)], (2, 3)),
        # Half of the time has passed.
        ([_file(0, age_ms=30_000), _file(10)], (0, 0)),
        ([_file(0, age_ms=30_001), _file(10)], (0, 2)),
        ([_file(0, age_ms=30_001)], (0, 0)),
        # From here on they are compaction's.
        ([_file(0, age_ms=60_001), _file(10), _file(20)], (1, 0)),
        ([_file(0, age_ms=60_001), _file(10, age_ms=60_001)], (2, 0)),
    ],
)
def test_so_many_files_that_follow_each_other_become_one(
    files: list[KeptFile], expected: tuple[int, int]
) -> None:
    assert choose(files, 3, AGE_MS, NOW_MS) == expected


@given(
    steps=st.lists(
        st.one_of(
            st.none(),  # the oldest goes
            st.tuples(st.sampled_from([0, 0, 0, 7]), st.sampled_from([0, 0, 40_000, 70_000])),
        ),
        max_size=40,
    ),
    files_max=st.integers(2, 5),
)
def test_a_place_says_the_same_at_once(steps: list[tuple[int, int] | None], files_max: int) -> None:
    place = _Place()
    offset = 0
    for step in steps:
        if step is not None:
            gap, age_ms = step
            place.append(_file(offset + gap, age_ms=age_ms))
            offset += gap + 10
        elif place.files:
            place.pop()
        files = list(place.files)
        skipped, count = place.choose(files_max, AGE_MS, NOW_MS)
        assert (skipped, count) == choose(files, files_max, AGE_MS, NOW_MS)
        run = files[skipped : skipped + count]
        assert [kept.file.base_offset for kept in run] == [
            run[0].file.base_offset + 10 * index for index in range(count)
        ]


def test_runs_come_partition_by_partition_until_there_are_none() -> None:
    kept = KeptFiles(RollUpMemory(2**20))
    for offset in (0, 10, 20, 30, 40, 50, 60):
        kept.add(_kept(offset))
        kept.add(_kept(offset, partition=1))
    runs = [_run(kept) for _ in range(4)]
    assert runs == [[0, 10, 20], [30, 40, 50]] * 2
    assert kept.has_changed
    assert _run(kept) == []
    assert not kept.has_changed
    kept.add(_kept(70))
    assert _run(kept) == []
    kept.add(_kept(80))
    assert _run(kept) == [60, 70, 80]


def test_files_of_different_levels_do_not_mix_and_the_highest_level_is_not_kept() -> None:
    memory = RollUpMemory(2**20)
    kept = KeptFiles(memory)
    kept.add(_kept(0, level=LEVELS))
    assert memory.used_bytes == 0
    kept.add(_kept(0, level=1))
    kept.add(_kept(10, level=0))
    kept.add(_kept(20, level=0))
    assert _run(kept) == []
    kept.add(_kept(30, level=0))
    assert _run(kept) == [10, 20, 30]


def test_a_run_with_a_file_that_the_table_has_no_more_is_passed_over() -> None:
    memory = RollUpMemory(2**20)
    kept = KeptFiles(memory)
    for offset in (0, 10, 20, 30, 40, 50):
        kept.add(_kept(offset))
    assert _run(kept, 10) == [30, 40, 50]
    assert memory.used_bytes == 3 * 2_000


def test_the_oldest_of_all_topics_make_room_and_those_being_merged_stay() -> None:
    memory = RollUpMemory(5 * 2_000)
    orders, clicks = KeptFiles(memory), KeptFiles(memory)
    for offset in (0, 10, 20):
        orders.add(_kept(offset))
    assert _run(orders) == [0, 10, 20]
    orders.add(_kept(30))
    clicks.add(_kept(0))
    assert memory.used_bytes == memory.limit_bytes
    for offset in (10, 20, 30):
        clicks.add(_kept(offset))
        assert memory.used_bytes == memory.limit_bytes
    orders.add(_kept(40))
    orders.add(_kept(50))
    # The file at 30 went when the others came, so three are never together.
    assert _run(orders) == []
    assert _run(clicks) == []


def test_what_is_let_go_is_counted_no_more() -> None:
    memory = RollUpMemory(2**20)
    kept = KeptFiles(memory)
    for offset in (0, 10, 20, 30):
        kept.add(_kept(offset))
    run = kept.next_run(lambda _: True, 3, AGE_MS, NOW_MS)
    kept.free(run)
    assert memory.used_bytes == 2_000
    for offset in (40, 50):
        kept.add(_kept(offset))
    run = kept.next_run(lambda _: True, 3, AGE_MS, NOW_MS)
    kept.clear()
    assert memory.used_bytes == 0
    kept.free(run)  # a merging that was under way
    assert memory.used_bytes == 0


def test_without_memory_nothing_is_kept() -> None:
    kept = KeptFiles(RollUpMemory(0))
    for offset in (0, 10, 20):
        kept.add(_kept(offset))
    assert _run(kept) == []
