"""murmur2: Kafka's vectors, and the column against the scalar."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mainstem.records import (
    _murmur2,
    murmur2,
    murmur2_column,
    partition_for_key,
    partitions_for_keys,
)

VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.fixture(autouse=True, params=["few keys", "a column"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys are hashed one by one."""
    if request.param == "a column":
        monkeypatch.setattr(_murmur2, "_FEW_KEYS_MAX", -1)


@pytest.mark.parametrize(("key", "expected"), VECTORS)
def test_a_key_hashes_as_in_kafkas_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_a_column_hashes_as_kafkas_java_client_does() -> None:
    hashes = murmur2_column(pa.array([key for key, _ in VECTORS], pa.binary()))
    assert hashes.astype("int32").tolist() == [expected for _, expected in VECTORS]


@pytest.mark.parametrize("length_max", [0, 1, 3, 4, 16, 600])
def test_a_column_of_keys_of_any_length_hashes_as_each_key_does(
    length_max: int, rng: random.Random
) -> None:
    keys = [rng.randbytes(rng.randint(0, length_max)) for _ in range(300)]
    assert murmur2_column(pa.array(keys, pa.binary())).tolist() == [
        murmur2(key) & 0xFFFFFFFF for key in keys
    ]


def test_keys_around_the_length_where_the_algorithm_changes_hash_the_same(
    rng: random.Random,
) -> None:
    keys = [rng.randbytes(length) for length in (511, 512, 513, 0, 1, 514, 5_000, 2)]
    assert murmur2_column(pa.array(keys, pa.binary())).tolist() == [
        murmur2(key) & 0xFFFFFFFF for key in keys
    ]


def test_a_slice_of_a_column_hashes_its_own_keys(rng: random.Random) -> None:
    keys = [rng.randbytes(rng.randint(0, 20)) for _ in range(100)]
    column = pa.array(keys, pa.binary()).slice(37, 20)
    assert murmur2_column(column).tolist() == [murmur2(key) & 0xFFFFFFFF for key in keys[37:57]]
    assert murmur2_column(column.slice(5, 0)).tolist() == []


def test_a_null_hashes_as_empty_whatever_bytes_lie_under_it() -> None:
    """Arrow says nothing about the bytes of a null, and other libraries leave something there."""
    data = pa.array([b"abc", b"junk", b"21"], pa.binary())
    valid = pa.py_buffer(bytes([0b101]))
    column = pa.Array.from_buffers(pa.binary(), 3, [valid, *data.buffers()[1:]])
    assert column.to_pylist() == [b"abc", None, b"21"]
    expected = [murmur2(key) & 0xFFFFFFFF for key in (b"abc", b"", b"21")]
    assert murmur2_column(column).tolist() == expected
    assert murmur2_column(pa.nulls(2, pa.binary())).tolist() == [murmur2(b"") & 0xFFFFFFFF] * 2


def test_a_column_of_large_offsets_is_refused_rather_than_misread() -> None:
    with pytest.raises(TypeError, match="large_binary"):
        murmur2_column(pa.array([b"abc"], pa.large_binary()))


@pytest.mark.parametrize("count", [1, 2, 6, 7, 10_000])
def test_partitions_are_the_positive_hash_modulo_their_number(
    count: int, rng: random.Random
) -> None:
    keys = [key for key, _ in VECTORS] + [rng.randbytes(9) for _ in range(200)]
    expected = [(murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert [partition_for_key(key, count) for key in keys] == expected
    assert partitions_for_keys(pa.array(keys, pa.binary()), count).tolist() == expected
