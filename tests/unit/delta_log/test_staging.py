"""Staged records: what is read back is what was written, in order, or the damage is named."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.delta_log.appending import batch
from tests.unit.delta_log.faults import FaultyStore, times, unavailable
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log.files import Slice
from mainstem.delta_log.format import ProducerBatch
from mainstem.delta_log.staging import StagedTopic, StagingArea, reading
from mainstem.delta_log.staging import format as staging_format
from mainstem.delta_log.staging.area import DIRECTORY
from mainstem.delta_log.store import LocalStore, MemoryStore, ObjectStore
from mainstem.errors import InvalidRequestError, LogDamagedError, StoreUnavailableError
from mainstem.records import records_to_wire_batch


@pytest.fixture(params=["local", "memory"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    store = LocalStore(tmp_path) if request.param == "local" else MemoryStore()
    yield store
    store.close()


def rows(slices: Sequence[Slice]) -> list[tuple[object, ...]]:
    """Every record, with the kind of its timestamp."""
    return [
        (slice_.partition, slice_.log_append_time, *row.values())
        for slice_ in slices
        for row in slice_.records.to_pylist()
    ]


def read(staged: StagedTopic, partition: int) -> list[list[Slice]]:
    return list(staged.slices(partition))


def odd_records(rng: random.Random, count: int) -> pa.RecordBatch:
    """Null, empty and other keys and values, and headers."""
    some = [None, b"", b"\0\xff", b"x" * 50]
    return records_to_wire_batch(
        [rng.choice(some) for _ in range(count)],
        [rng.choice(some) for _ in range(count)],
        [rng.choice([(), (("a", None), ("a", b""), ("ä", b"1"))]) for _ in range(count)],
        [NOW_MS + number for number in range(count)],
    )


def test_every_record_comes_back_as_it_was_and_in_order_over_several_objects(
    warehouse: ObjectStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_format, "FRAME_BYTES_MAX", 700)
    monkeypatch.setattr(reading, "CHUNK_BYTES", 4_000)
    area = StagingArea(warehouse)
    written: dict[tuple[str, int], list[Slice]] = {}
    objects = []
    for _ in range(4):
        brought: dict[str, list[Slice]] = {}
        for _ in range(60):
            topic, partition = rng.choice("äb"), rng.choice([0, 7])
            kind = rng.choice([None, None, True, False])
            one = Slice(partition, odd_records(rng, rng.choice([1, 2, 40])), None, kind)
            brought.setdefault(topic, []).append(one)
            written.setdefault((topic, partition), []).append(one)
        objects.append(area.write(brought))
        assert objects[-1].counts == {
            topic: {
                partition: sum(s.records.num_rows for s in slices if s.partition == partition)
                for partition in {s.partition for s in slices}
            }
            for topic, slices in brought.items()
        }
    for topic in "äb":
        staged = area.read([one.name for one in objects], topic)
        staged.check()
        for partition in (0, 7):
            wanted = rows(written[topic, partition])
            assert staged.counts[partition] == len(wanted)
            chunks = read(staged, partition)
            assert len(chunks) > 3
            assert [row for chunk in chunks for row in rows(chunk)] == wanted
            assert [rows(chunk) for chunk in read(staged, partition)] == list(map(rows, chunks))
    assert area.read([objects[0].name], "other").counts == {}


def test_a_frame_has_no_more_than_its_bytes_and_a_chunk_a_few_of_them(
    warehouse: ObjectStore,
) -> None:
    area = StagingArea(warehouse)
    large = records_to_wire_batch([None] * 9_000, [bytes(1_000)] * 9_000, None, [NOW_MS] * 9_000)
    written = area.write({"t": [Slice(0, large, ProducerBatch(7, 0, 0))] * 3})
    staged = area.read([written.name], "t")
    entries = reading.read_index(warehouse, f"{DIRECTORY}/{written.name}")
    assert max(one.length for one in entries) < 1.1 * staging_format.FRAME_BYTES_MAX
    chunks = read(staged, 0)
    assert 2 <= len(chunks) < len(entries)
    assert sum(s.records.num_rows for chunk in chunks for s in chunk) == staged.counts[0] == 27_000
    assert all(s.producer is None for chunk in chunks for s in chunk)
    assert staged.size_bytes >= 27_000_000


def test_objects_are_listed_and_deleted_and_odd_names_are_refused(warehouse: ObjectStore) -> None:
    area = StagingArea(warehouse)
    assert area.list() == []
    area.delete([])
    names = [area.write({"t": [Slice(0, batch(number))]}).name for number in range(3)]
    warehouse.put(f"{DIRECTORY}/notes.txt", b"an operator's own")
    assert sorted(one.name for one in area.list()) == sorted(names)
    area.delete([names[0], names[0], names[1]])
    assert [one.name for one in area.list()] == [names[2]]
    for name in ("", "../../topics/t", f"{names[2]}/x", f"x/{names[2]}", "notes.txt", "A" * 32):
        with pytest.raises(InvalidRequestError):
            area.read([name], "t")
        with pytest.raises(InvalidRequestError):
            area.delete([name])


def test_damage_to_any_byte_is_named_and_never_read_as_records(warehouse: ObjectStore) -> None:
    area = StagingArea(warehouse)
    good = area.write({"t": [Slice(0, batch(0))]}).name
    name = area.write({"t": [Slice(0, batch(1, 3)), Slice(1, batch(2))]}).name
    path = f"{DIRECTORY}/{name}"
    whole = warehouse.read(path)

    def judged(data: bytes) -> None:
        warehouse.put(path, data)
        with pytest.raises(LogDamagedError, match=name):
            area.read([good, name], "t").check()

    for at in range(0, len(whole), 1 if isinstance(warehouse, MemoryStore) else 17):
        judged(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    for length in (*range(0, len(whole), 97), len(whole) - 1):
        judged(whole[:length])
    judged(whole[1:])
    judged(whole + b"\0")
    warehouse.put(path, whole)
    area.read([good, name], "t").check()
    staged = area.read([good, name], "t")
    warehouse.delete(path)
    with pytest.raises(LogDamagedError, match=name):
        read(staged, 1)
    with pytest.raises(LogDamagedError, match=name):
        area.read([name], "t")


@pytest.mark.parametrize("call", ["put", "open", "read_range", "list_files", "delete_all"])
def test_a_store_that_fails_is_said_to(tmp_path: Path, call: str) -> None:
    inner = LocalStore(tmp_path)
    area = StagingArea(inner)
    name = area.write({"t": [Slice(0, batch(1))]}).name
    failing = StagingArea(FaultyStore(inner, times(1, call, unavailable(), "_staged")))
    failures = 0
    for work in (
        lambda: failing.write({"t": [Slice(0, batch(1))]}),
        lambda: failing.read([name], "t").check(),
        failing.list,
        lambda: failing.delete(["0-" + "0" * 32 + ".staged"]),
    ):
        try:
            work()
        except StoreUnavailableError:
            failures += 1
    assert failures == 1
    inner.close()


def test_what_an_earlier_leader_left_goes_and_what_a_later_one_writes_stays() -> None:
    area = StagingArea(MemoryStore())
    records = {"t": [Slice(0, batch(1))]}
    old, needed = (area.of_epoch(5).write(records).name for _ in range(2))
    own, later = (area.of_epoch(epoch).write(records).name for epoch in (6, 10))
    assert area.of_epoch(6).sweep({needed}) == 1
    assert {one.name for one in area.list()} == {needed, own, later}
    with pytest.raises(LogDamagedError, match=old):
        area.read([old], "t")
