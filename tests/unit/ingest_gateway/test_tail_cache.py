"""The cache of the newest records: its bound, and that it never has a gap."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from mainstem.delta_log import Slice
from mainstem.delta_log.append import CommittedRecords
from mainstem.ingest_gateway.fetching.arrivals import Arrivals
from mainstem.ingest_gateway.fetching.tail_cache import TailCache
from mainstem.records import records_to_wire_batch


def slice_of(*values: bytes, partition: int = 0) -> Slice:
    count = len(values)
    return Slice(partition, records_to_wire_batch([None] * count, values, None, [1] * count))


def commit(
    base_offset: int, *slices: Slice, topic: str = "t", topic_id: str = "id", partition: int = 0
) -> CommittedRecords:
    return CommittedRecords(topic, topic_id, 1, {partition: (base_offset, slices)})


def cached(cache: TailCache, end: int, topic: str = "t", topic_id: str = "id") -> list[bytes]:
    start = cache.start_offset(topic, topic_id, 0, end)
    runs = cache.runs(topic, topic_id, 0, start, 2**62)
    return [value for run in runs for value in run.batch().column("value").to_pylist()]


def test_runs_have_the_records_of_their_slices_at_their_offsets() -> None:
    cache = TailCache(2**20)
    added = cache.add(commit(7, slice_of(b"a", b"b"), slice_of(b"c")))
    assert added[0] > 3
    (run,) = cache.runs("t", "id", 0, 8, 1)
    assert (run.base_offset, run.end_offset) == (7, 10)
    assert run.batch().column("offset").to_pylist() == [7, 8, 9]
    assert run.batch().column("value").to_pylist() == [b"a", b"b", b"c"]
    assert run.batch() is run.batch()


def test_the_oldest_of_all_topics_goes_first_and_the_bound_holds() -> None:
    cache = TailCache(30_000)
    for number in range(50):
        for topic in ("t", "u"):
            cache.add(commit(number, slice_of(b"%d" % number), topic=topic))
        assert cache.used_bytes <= 30_000
    starts = [cache.start_offset(topic, "id", 0, 50) for topic in ("t", "u")]
    assert max(starts) - min(starts) <= 1
    assert 0 < starts[0] < 50
    assert cached(cache, 50)[-1] == b"49"


def test_a_commit_larger_than_the_cache_leaves_it_empty() -> None:
    cache = TailCache(10_000)
    cache.add(commit(0, slice_of(b"a")))
    cache.add(commit(1, slice_of(b"x" * 20_000)))
    assert cache.used_bytes == 0
    assert cache.start_offset("t", "id", 0, 2) == 2


def test_a_gap_drops_what_was_before_it() -> None:
    cache = TailCache(2**20)
    cache.add(commit(0, slice_of(b"a")))
    cache.add(commit(5, slice_of(b"f")))
    assert cache.start_offset("t", "id", 0, 6) == 5
    assert cached(cache, 6) == [b"f"]


def test_what_ends_before_the_high_watermark_is_not_used() -> None:
    cache = TailCache(2**20)
    cache.add(commit(0, slice_of(b"a")))
    assert cache.start_offset("t", "id", 0, 2) == 2


def test_another_topic_of_the_same_name_shares_nothing() -> None:
    cache = TailCache(2**20)
    cache.add(commit(0, slice_of(b"old")))
    assert cache.start_offset("t", "new", 0, 1) == 1
    assert cache.runs("t", "new", 0, 0, 100) == []
    cache.add(commit(1, slice_of(b"new"), topic_id="new"))
    assert cache.start_offset("t", "id", 0, 1) == 1
    assert cached(cache, 2, topic_id="new") == [b"new"]


def test_a_topic_that_is_forgotten_costs_nothing() -> None:
    cache = TailCache(2**20)
    cache.add(commit(0, slice_of(b"a")))
    cache.forget("t")
    cache.forget("nosuch")
    assert cache.used_bytes == 0
    assert cache.start_offset("t", "id", 0, 1) == 1


@given(
    commits=st.lists(
        st.tuples(st.sampled_from("tu"), st.lists(st.integers(0, 300), min_size=1, max_size=5))
    ),
    limit_bytes=st.integers(0, 20_000),
)
def test_what_is_cached_is_always_the_end_of_the_log(
    commits: list[tuple[str, list[int]]], limit_bytes: int
) -> None:
    cache = TailCache(limit_bytes)
    model: dict[str, list[bytes]] = {"t": [], "u": []}
    for topic, sizes in commits:
        values = [b"x" * size for size in sizes]
        cache.add(commit(len(model[topic]), slice_of(*values), topic=topic))
        model[topic] += values
        assert cache.used_bytes <= limit_bytes
        for name, log in model.items():
            start = cache.start_offset(name, "id", 0, len(log))
            assert cached(cache, len(log), topic=name) == log[start:]


def test_a_commit_of_more_than_there_is_memory_for_wakes_whoever_waits_and_leaves_no_gap() -> None:
    async def test() -> None:
        arrivals = Arrivals(2**20)
        arrivals.committed(commit(0, slice_of(b"a")))
        with arrivals.waiters.waiting([("t", 0)], 2**30, 60.0) as waiter:
            arrivals.committed(CommittedRecords("t", "id", 2, {}))
            assert waiter.woken.done()
        start = arrivals.cache.start_offset("t", "id", 0, 1_001)
        assert start == 1_001, "the offsets from 1 to 1000 are not here"
        arrivals.committed(commit(1_001, slice_of(b"z")))
        assert cached(arrivals.cache, 1_002) == [b"z"]

    asyncio.run(test())
