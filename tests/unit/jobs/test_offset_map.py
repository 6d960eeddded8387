"""The map from keys to their last offsets, against a dict."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mainstem.jobs import offset_map
from mainstem.jobs.offset_map import OffsetMap
from mainstem.limits import MIB

KEYS = st.sampled_from([b"", b"a", b"b", b"ab", None])
BATCHES: st.SearchStrategy[list[list[tuple[bytes | None, bool]]]] = st.lists(
    st.lists(st.tuples(KEYS, st.booleans()), max_size=6), max_size=6
)


def binary(keys: list[bytes | None]) -> pa.Array:
    return pa.array(keys, pa.binary())


def filled(batches: list[list[tuple[bytes | None, bool]]], bytes_max: int = MIB) -> OffsetMap:
    found = OffsetMap(bytes_max)
    offset = 0
    for batch in batches:
        offsets = np.arange(offset, offset + len(batch))
        tombstones = np.array([tombstone for _, tombstone in batch], np.bool_)
        found.put(binary([key for key, _ in batch]), offsets, tombstones)
        offset += len(batch)
    return found


@given(BATCHES)
def test_it_knows_of_each_key_what_a_dict_would(
    batches: list[list[tuple[bytes | None, bool]]],
) -> None:
    rows = [row for batch in batches for row in batch]
    last = {key: offset for offset, (key, _) in enumerate(rows) if key is not None}
    found = filled(batches)
    assert len(found) == len(last)
    assert found.tombstone_count == sum(rows[offset][1] for offset in last.values())
    keys = [*(key for key, _ in rows), b"never"]
    offsets = np.arange(len(keys))
    assert found.superseded(binary(keys), offsets).tolist() == [
        last.get(key, -1) > offset if key is not None else False for offset, key in enumerate(keys)
    ]
    assert found.last_tombstones(binary(keys), offsets).tolist() == [
        last.get(key) == offset and rows[offset][1] if key is not None else False
        for offset, key in enumerate(keys)
    ]


def test_keys_in_several_chunks_are_asked_for_at_once() -> None:
    found = filled([[(b"a", False), (b"b", False), (b"a", True)]])
    keys = pa.chunked_array([binary([b"a", None]), binary([b"a"])])
    assert found.superseded(keys, np.array([0, 1, 2])).tolist() == [True, False, False]


def test_an_empty_map_supersedes_nothing() -> None:
    found = OffsetMap(MIB)
    assert found.superseded(binary([b"a", None]), np.array([0, 1])).tolist() == [False, False]
    assert (len(found), found.tombstone_count, found.full) == (0, 0, False)


def test_it_is_full_when_its_keys_take_more_than_they_may() -> None:
    """Records that repeat keys do not count, however many they are."""
    key_bytes = offset_map.KEY_OVERHEAD_BYTES + 40
    same: list[tuple[bytes | None, bool]] = [
        (b"%020d" % (number % 10), False) for number in range(1_000)
    ]
    assert not filled([same] * 20, bytes_max=20 * key_bytes).full
    others: list[tuple[bytes | None, bool]] = [
        (b"%020d" % number, False) for number in range(1_000)
    ]
    assert filled([others], bytes_max=500 * key_bytes).full


def test_what_waits_to_be_merged_is_bounded_too() -> None:
    found = OffsetMap(MIB)
    for number in range(40):
        keys = binary([b"%010d" % (number * 1_000 + one) for one in range(1_000)])
        found.put(keys, np.arange(number * 1_000, (number + 1) * 1_000), np.zeros(1_000, np.bool_))
        if found.full:
            break
    assert found.full
    assert len(found) < 3 * MIB // offset_map.KEY_OVERHEAD_BYTES
