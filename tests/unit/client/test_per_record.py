"""What runs once a record does the same compiled and in Python."""

from __future__ import annotations

import gc
import inspect
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.client import ConsumerRecord, Producer, RecordMetadata, per_record
from mainstem.client.per_record import plain
from mainstem.client.producer.pieces import RECORD_OVERHEAD_BYTES
from mainstem.testing import FakeGateway

compiled = pytest.importorskip(
    "mainstem.client.per_record._compiled",
    reason="there was no compiler when mainstem was installed",
)

BOTH = pytest.mark.parametrize("module", [plain, compiled], ids=["plain", "compiled"])

#: A producer's buffers are compiled ones, or not: what is compiled takes no others.
BOTH_AS_INSTALLED = pytest.mark.parametrize(
    "module",
    [
        plain,
        pytest.param(
            compiled,
            marks=pytest.mark.skipif(
                not per_record.COMPILED, reason="this run uses what is not compiled"
            ),
        ),
    ],
    ids=["plain", "compiled"],
)
VALUES = st.lists(st.none() | st.binary(max_size=40), max_size=60)


@given(VALUES, st.randoms(use_true_random=False))
def test_a_column_has_the_values_in_the_order_that_is_asked_for(
    values: list[bytes | None], rng: Any
) -> None:
    order = list(range(len(values)))
    rng.shuffle(order)
    for given_order in (None, np.array(order, dtype=np.int64)):
        ours = compiled.binary_column(values, given_order)
        ours.validate(full=True)
        assert ours.equals(plain.binary_column(values, given_order))


@pytest.mark.parametrize(
    "wrong", ["x", 5, bytearray(b"x"), memoryview(b"x")], ids=lambda one: type(one).__name__
)
def test_what_is_no_bytes_is_no_value(wrong: object) -> None:
    with pytest.raises(TypeError):
        compiled.binary_column([b"a", wrong])


@pytest.mark.parametrize("order", [[0], [0, 1, 2], [0, 2], [-1, 0]], ids=str)
def test_an_order_of_other_values_reads_nothing_beside_them(order: list[int]) -> None:
    with pytest.raises(IndexError):
        compiled.binary_column([b"a", b"b"], np.array(order, dtype=np.int64))


@BOTH
def test_an_order_may_name_a_value_twice(module: ModuleType) -> None:
    long = b"x" * 4_000
    values = [long, *([b""] * 63)]
    column = module.binary_column(values, np.zeros(64, dtype=np.int64))
    column.validate(full=True)
    assert column.to_pylist() == [long] * 64
    nulls = module.binary_column([None, b"a"], np.zeros(2, dtype=np.int64))
    assert (nulls.to_pylist(), nulls.null_count) == ([None, None], 2)


APPENDS = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.none() | st.binary(max_size=9),
            "key": st.none() | st.binary(max_size=9),
            "size": st.integers(0, 40),
            "partition": st.sampled_from([-1, 0, 7]),
            "waiter": st.sampled_from([None, print]),
            "timestamp_ms": st.sampled_from([None, 0, 5]),
            "headers": st.sampled_from([None, [], [("a", b"b")]]),
        }
    ),
    max_size=30,
)


@given(APPENDS, st.integers(-1, 300), st.sampled_from([0, 2**62]))
def test_open_records_take_refuse_and_keep_the_same(
    appends: list[dict[str, Any]], limit: int, flush_at_ns: int
) -> None:
    both = plain.OpenRecords(), compiled.OpenRecords()
    for records in both:
        records.limit = limit
        records.flush_at_ns = flush_at_ns
    for one in appends:
        codes = {records.append(**one) for records in both}
        assert len(codes) == 1
    names = ("used", "values", "keys", "explicit", "waiters", "timestamps_ms", "headers")
    for name in names:
        assert getattr(both[0], name) == getattr(both[1], name), name
    times = [records.times_ms() for records in both]
    assert times[0].dtype == times[1].dtype == np.int64
    assert len(times[0]) == len(times[1]) == len(both[0].values)
    if len(times[0]):
        assert abs(int(times[0][-1]) - int(times[1][-1])) < 60_000
        assert [records.appended_ns() // 1_000_000 for records in both] == [
            int(one[-1]) for one in times
        ]
    for records in both:
        records.clear()
        assert (records.used, records.values, len(records.times_ms())) == (0, [], 0)


@BOTH
def test_more_records_than_a_piece_has_are_kept_until_somebody_cuts_it(module: ModuleType) -> None:
    records = module.OpenRecords()
    records.limit = 2**40
    records.flush_at_ns = 2**62
    codes = [records.append(b"%d" % number, None, 1) for number in range(30_000)]
    assert codes == [0] * 8_191 + [1] * (30_000 - 8_191)
    times = records.times_ms()
    assert len(times) == 30_000
    assert bool((times[1:] >= times[:-1]).all())
    assert records.values[29_999] == b"29999"


@BOTH
def test_an_append_waits_for_who_has_the_lock_and_none_is_lost(module: ModuleType) -> None:
    records = module.OpenRecords()
    records.limit = 2**40
    taken: list[bytes] = []
    stop = threading.Event()

    def cut() -> None:
        while not stop.is_set() or records.values:
            with records.lock:
                found = list(records.values)
                assert len(found) == len(records.keys) == len(records.times_ms())
                records.clear()
            taken.extend(found)

    def append(of: int) -> None:
        for number in range(3_000):
            records.append(b"%d %d" % (of, number), b"", 1)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        cutter = threading.Thread(target=cut)
        appenders = [threading.Thread(target=append, args=(of,)) for of in range(3)]
        for thread in (cutter, *appenders):
            thread.start()
        for thread in appenders:
            thread.join(60)
        stop.set()
        cutter.join(60)
    finally:
        stop.set()
        sys.setswitchinterval(interval_s)
    assert sorted(taken) == sorted(b"%d %d" % (of, n) for of in range(3) for n in range(3_000))
    for of in range(3):
        mine = [one for one in taken if one.startswith(b"%d " % of)]
        assert mine == [b"%d %d" % (of, n) for n in range(3_000)], "out of order"


ROWS = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20)), max_size=40
)


@given(ROWS, st.integers(0, 5), st.booleans(), st.booleans(), st.integers(0, 41), st.integers(0, 9))
def test_records_of_columns_are_the_same(
    rows: list[tuple[bytes | None, bytes | None]],
    skipped: int,
    typed: bool,
    with_headers: bool,
    start: int,
    wanted: int,
) -> None:
    keys = pa.array([b"before", *(key for key, _ in rows)], type=pa.binary()).slice(1)
    values = pa.array([None] * 3 + [value for _, value in rows], type=pa.binary()).slice(3)
    count = len(rows)
    columns: Any = (
        ConsumerRecord,
        "t",
        3,
        np.arange(skipped, skipped + 2 * count, 2, dtype=np.int64),
        np.arange(2 * count, dtype=np.int64)[::2],  # with a stride
        keys,
        values,
    )
    start = min(start, count)
    stop = min(start + wanted, count)
    ours, theirs = compiled.RecordColumns(*columns), plain.RecordColumns(*columns)
    arguments: Any = (
        start,
        wanted,
        [number % 2 for number in range(start, stop)] if typed else None,
        [(("h", b"x"),)] * (stop - start) if with_headers else None,
    )
    found = ours.take(*arguments)
    assert found == theirs.take(*arguments)
    assert [(one.key, one.value) for one in found] == rows[start:stop]
    assert all(type(record) is ConsumerRecord for record in found)
    assert all(type(one) is int for record in found for one in record[1:5])
    assert not any(gc.is_tracked(record) for record in found), "they take the collector's time"
    assert [hash(record) for record in found] == [hash(record[:]) for record in found]


@BOTH
def test_a_list_that_is_not_as_long_as_its_records_is_refused(module: ModuleType) -> None:
    numbers = np.arange(3, dtype=np.int64)
    binary = pa.array([b"a", b"b", b"c"], type=pa.binary())
    columns = module.RecordColumns(ConsumerRecord, "t", 0, numbers, numbers, binary, binary)
    assert [one.offset for one in columns.take(2, 5, [1], [()])] == [2]
    for short, long in (([0], None), (None, [(), (), ()])):
        with pytest.raises(ValueError, match="not one of each"):
            columns.take(0, 2, short, long)
    for start, count in ((-1, 2), (0, -1)):
        with pytest.raises(ValueError, match="from 0"):
            columns.take(start, count)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 2**62), st.integers(0, 2**62))))
def test_places_of_records_are_the_same(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    arguments = (RecordMetadata, "t", columns[:, 0], columns[:, 1], columns[:, 2], 7)
    ours = list(compiled.record_places(*arguments))
    assert ours == list(plain.record_places(*arguments))
    assert [hash(one) for one in ours] == [hash(one[:]) for one in ours]
    assert all(type(one) is RecordMetadata for one in ours)


@BOTH
@pytest.mark.parametrize("column", ["keys", "values", "timestamps"])
def test_columns_of_different_lengths_are_refused(column: str, module: ModuleType) -> None:
    binary = pa.array([b"a", b"b"], type=pa.binary())
    columns: dict[str, Any] = {
        "keys": binary,
        "values": binary,
        "timestamps": np.zeros(2, dtype=np.int64),
    }
    columns[column] = columns[column][:1]
    with pytest.raises(ValueError, match="lengths"):
        module.RecordColumns(ConsumerRecord, "t", 0, np.zeros(2, dtype=np.int64), **columns)


@pytest.mark.parametrize("offsets", [(0, 1, 99), (0, 2, 1), (-4, 0, 1)], ids=str)
def test_a_column_whose_offsets_lead_out_of_its_data_is_refused(
    offsets: tuple[int, int, int],
) -> None:
    batch = pa.record_batch({"x": pa.array([b"a", b"bc"], type=pa.binary())})
    message = batch.serialize().to_pybytes()
    true = struct.pack("<3i", 0, 1, 3)
    assert message.count(true) == 1
    damaged = pa.py_buffer(message.replace(true, struct.pack("<3i", *offsets)))
    lying = pa.ipc.read_record_batch(damaged, batch.schema).column("x")
    honest = batch.column("x")
    numbers = np.zeros(2, dtype=np.int64)
    for keys, values in ((lying, honest), (honest, lying)):
        columns = compiled.RecordColumns(ConsumerRecord, "t", 0, numbers, numbers, keys, values)
        with pytest.raises(ValueError, match="out of its data"):
            columns.take(0, 2)


@pytest.mark.skipif(not per_record.COMPILED, reason="it is the one that is not used now")
def test_produce_looks_as_it_is_documented() -> None:
    assert list(inspect.signature(Producer.produce).parameters)[:4] == [
        "self",
        "topic",
        "value",
        "key",
    ]
    assert "max.block.ms" in (Producer.produce.__doc__ or "")
    assert Producer.produce.__name__ == "produce"


@BOTH_AS_INSTALLED
def test_a_record_counts_for_as_much_memory(module: ModuleType, gateway: FakeGateway) -> None:
    class Counts(Producer):
        produce = module.faster_produce(inspect.unwrap(Producer.produce))

    with Counts({"bootstrap.servers": gateway.address, "linger.ms": 60_000}) as producer:
        producer.produce("one", b"first", b"k")
        producer.produce("one", b"second", None)
        used = producer._topics["one"].used
        assert used == len(b"firstksecond") + 2 * RECORD_OVERHEAD_BYTES


@BOTH_AS_INSTALLED
def test_produce_takes_and_refuses_the_same(module: ModuleType, gateway: FakeGateway) -> None:
    class Places(Producer):
        produce = module.faster_produce(inspect.unwrap(Producer.produce))

    async def coroutine(*_: object) -> None:
        """Nobody would await it."""

    class Listens:
        def __init__(self) -> None:
            self.told: list[object] = []

        def note(self, error: object, _: object) -> None:
            self.told.append(error)

        async def wrong(self, *_: object) -> None:
            """Nobody would await it."""

    listens = Listens()
    with Places({"bootstrap.servers": gateway.address, "linger.ms": 0}) as producer:
        anyhow: Any = producer
        for _ in range(2):
            producer.produce("one", b"v", b"k", on_delivery=listens.note)
            producer.produce("one", value="text", key="k", callback=listens.note)
            producer.produce("one", None, bytearray(b"k"), partition=0, headers={"h": "x"})
            producer.produce("one", b"v", timestamp=5, on_delivery=lambda *_: None)
            for wrong in (coroutine, listens.wrong, 5):
                with pytest.raises(TypeError):
                    anyhow.produce("one", b"v", on_delivery=wrong)
            with pytest.raises(TypeError):
                anyhow.produce("one", 5)
            with pytest.raises(TypeError):
                anyhow.produce("one", b"v", 5)
            with pytest.raises(TypeError):
                anyhow.produce(["one"], b"v")
            with pytest.raises(TypeError):
                anyhow.produce("one", b"v", nonsense=1)
        assert producer.flush() == 0
        assert listens.told == [None] * 4
    with pytest.raises(Exception, match="closed"):
        producer.produce("one", b"v")
    found = gateway.records("one")[0]
    assert [(one.key, one.value) for one in found] == [
        (b"k", b"v"),
        (b"k", b"text"),
        (b"k", None),
        (None, b"v"),
    ] * 2


def test_the_client_works_the_same_without_the_compiled_part(repo_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from mainstem.client import per_record as p; print(p.COMPILED)"],
        env={**os.environ, "MAINSTEM_PURE_PYTHON": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["False"]


@pytest.mark.slow
def test_the_tests_of_both_clients_pass_without_the_compiled_part(
    repo_root: Path, tmp_path: Path
) -> None:
    files = ("test_producer", "test_callbacks", "test_consumer", "test_consumer_fetches")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            f"--basetemp={tmp_path / 'inner'}",
            *(f"tests/unit/client/{name}.py" for name in files),
        ],
        cwd=repo_root,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST")},
            "MAINSTEM_PURE_PYTHON": "1",
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
