"""No bit of a topic's files flips unseen: `flipped_bits`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.fault.flipped_bits import FlippedBits
from tests.length import FULL

from mainstem.delta_log.files import data_file_reader

pytestmark = [pytest.mark.fault, pytest.mark.slow]

#: Bytes of each file in the short version, beside the first and the last ones.
SAMPLED = 2

#: How many bits of each byte in the full version.
BITS = 2


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[FlippedBits]:
    made = FlippedBits(tmp_path / "warehouse")
    yield made
    made.close()


def test_some_flipped_bits_of_every_file_are_told_and_never_served(
    topic: FlippedBits, rng: random.Random
) -> None:
    wrong = []
    for path in topic.files():
        size = path.stat().st_size
        places = {0, size - 1, *(rng.randrange(size) for _ in range(SAMPLED))}
        wrong += [found for byte in places if (found := topic.flip(path, byte, rng.randrange(8)))]
    assert wrong == []


def test_the_harness_catches_a_reader_that_compares_nothing(
    topic: FlippedBits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        data_file_reader.DataFileReader, "_open", lambda reader: pq.ParquetFile(reader._source)
    )
    path = next(path for path in topic.files() if b"amount=1000 EUR" in path.read_bytes())
    assert path.parent.name == "partition=0"
    found = topic.flip(path, path.read_bytes().index(b"1000"), 3)
    assert "the Spark source of partition 0, a fetch of partition 0" in found
    assert found.endswith("served something else")


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(10_000)
def test_a_flipped_bit_of_every_byte_of_every_file_is_told_and_never_served(
    topic: FlippedBits, rng: random.Random, report: Callable[[object], None]
) -> None:
    count = 0
    for path in topic.files():
        wrong = []
        for byte in range(path.stat().st_size):
            for bit in rng.sample(range(8), BITS):
                count += 1
                if found := topic.flip(path, byte, bit, everybody=False):
                    wrong.append(found)
        report(f"{path.name}: {len(wrong)} flipped bits unseen or served, of {count} so far")
        assert wrong == []
