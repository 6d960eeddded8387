"""`read_payload`: what a request's records become, and how each kind of mistake is refused."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.ingest_gateway.payloads import (
    arrow_request,
    batch_of,
    ipc,
    records_request,
    stream_request,
)

from mainstem.config import TopicConfig
from mainstem.errors import (
    InvalidRecordError,
    RecordTooLargeError,
    RequestTooLargeError,
    UnknownPartitionError,
)
from mainstem.ingest_gateway.payloads import payload as payload_module
from mainstem.ingest_gateway.payloads.payload import Payload, PayloadRules, read_payload
from mainstem.ingest_gateway.payloads.placement import STICKY_BYTES, StickyPlacement
from mainstem.protocol.v1 import log_pb2
from mainstem.records import WIRE_SCHEMA, partition_for_key

NOW_MS = 1_700_000_000_000
MIB = 1024 * 1024


def rules(partition_count: int = 4, **options: Any) -> PayloadRules:
    return PayloadRules(
        topic="t",
        partition_count=partition_count,
        config=TopicConfig.parse(options.pop("config", {})),
        message_bytes_max=options.pop("message_bytes_max", MIB),
        request_bytes_max=options.pop("request_bytes_max", 16 * MIB),
    )


def read(
    request: log_pb2.ProduceRequest, its_rules: PayloadRules | None = None, seed: int = 1
) -> Payload:
    placement = StickyPlacement(random.Random(seed))
    return read_payload(request, its_rules or rules(), placement, NOW_MS)


def rows(payload: Payload, column: str = "value") -> list[tuple[int, list[Any]]]:
    return [
        (slice_.partition, slice_.records.column(column).to_pylist()) for slice_ in payload.slices
    ]


def timestamps_ms(payload: Payload) -> list[int]:
    return [
        value
        for slice_ in payload.slices
        for value in slice_.records.column("timestamp").cast(pa.int64()).to_pylist()
    ]


# -- Arrow: ranges


def test_ranges_run_over_the_record_batches_of_the_stream() -> None:
    request = arrow_request(
        batch_of(value=[b"a", b"b"]),
        batch_of(value=[]),
        batch_of(value=[b"c"]),
        batch_of(value=[b"d", b"e", b"f"]),
        ranges=[(2, 0, 1), (0, 1, 3), (3, 4, 2)],
    )
    payload = read(request)
    assert rows(payload) == [
        (2, [b"a"]),
        (0, [b"b"]),
        (0, [b"c"]),
        (0, [b"d"]),
        (3, [b"e", b"f"]),
    ]
    assert (payload.record_count, payload.record_bytes, payload.placed) == (6, 6, None)
    assert all(slice_.records.schema == WIRE_SCHEMA for slice_ in payload.slices)


def test_a_partition_may_have_several_ranges_and_keeps_their_order() -> None:
    request = arrow_request(
        batch_of(value=[b"a", b"b", b"c"]), ranges=[(1, 0, 1), (0, 1, 1), (1, 2, 1)]
    )
    assert rows(read(request)) == [(1, [b"a"]), (0, [b"b"]), (1, [b"c"])]


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 0, 1)],
        [(0, 0, 2), (0, 2, 2)],
        [(0, 0, 4)],
        [(0, 0, 2), (0, 1, 2)],
        [(0, 0, 1), (0, 2, 1)],
        [(0, 1, 2)],
        [(0, 0, 0), (0, 0, 3)],
        [(0, 0, -1)],
        [(0, 0, 3), (0, 3, 0)],
        [(0, -3, 3)],
        [(0, 0, 2**63 - 1)],
        [(0, 0, 2), (0, 2, 2**63 - 1)],
    ],
)
def test_ranges_that_do_not_cover_every_row_once_are_refused(
    ranges: list[tuple[int, int, int]],
) -> None:
    with pytest.raises(InvalidRecordError, match="the ranges"):
        read(arrow_request(batch_of(value=[b"a", b"b", b"c"]), ranges=ranges))


@pytest.mark.parametrize("partition", [-1, 4, 2**31 - 1, -(2**31)])
def test_a_range_with_a_partition_that_the_topic_lacks_is_refused_by_number(partition: int) -> None:
    with pytest.raises(UnknownPartitionError, match=f"no partition {partition};") as caught:
        read(arrow_request(batch_of(value=[b"a"]), ranges=[(partition, 0, 1)]))
    assert caught.value.facts == {
        "topic": "t",
        "partition": str(partition),
        "partition_count": "4",
    }


def test_thousands_of_tiny_ranges_or_batches_become_one_slice_for_each_partition() -> None:
    count = 3_000
    values = [b"%d" % row for row in range(count)]
    ranges = [(row % 3, row, 1) for row in range(count)]
    by_range = read(arrow_request(batch_of(value=values), ranges=ranges))
    tiny = [batch_of(value=[value]) for value in values]
    by_batch = read(arrow_request(*tiny, ranges=ranges))
    for payload in (by_range, by_batch):
        assert rows(payload) == [(p, values[p::3]) for p in range(3)]
        assert payload.placed is None


# -- Arrow: schema


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.large_binary()])
def test_strings_and_large_types_are_taken_as_their_bytes(type_: pa.DataType) -> None:
    values = ["ä", None, "", "x" * 40]
    column = pa.array(values, pa.string()).cast(type_)
    payload = read(arrow_request(batch_of(key=column, value=column), ranges=[(0, 0, 4)]))
    expected = [None if value is None else value.encode() for value in values]
    assert rows(payload, "value") == rows(payload, "key") == [(0, expected)]


def test_null_and_empty_stay_different_for_keys_values_and_header_values() -> None:
    headers = pa.array(
        [None, [], [{"key": "k", "value": None}, {"key": "k", "value": b""}]],
        WIRE_SCHEMA.field("headers").type,
    )
    batch = batch_of(key=[None, b"", b"k"], value=[b"", None, b"v"], headers=headers)
    payload = read(arrow_request(batch, ranges=[(0, 0, 3)]))
    records = payload.slices[0].records
    assert records.column("key").to_pylist() == [None, b"", b"k"]
    assert records.column("value").to_pylist() == [b"", None, b"v"]
    assert records.column("headers").to_pylist()[2] == [
        {"key": "k", "value": None},
        {"key": "k", "value": b""},
    ]


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
def test_views_are_refused_because_their_bytes_cannot_be_bounded(type_: pa.DataType) -> None:
    view = pa.array([b"v"], type_)
    entries = pa.StructArray.from_arrays([pa.array(["k"]), view], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), entries)
    for batch in (batch_of(value=view), batch_of(value=[b"v"], headers=headers)):
        with pytest.raises(InvalidRecordError, match="cast it to binary or string"):
            read(arrow_request(batch))


def test_a_column_of_type_null_is_a_column_of_nulls() -> None:
    payload = read(arrow_request(batch_of(key=pa.nulls(2), value=pa.nulls(2)), ranges=[(0, 0, 2)]))
    assert rows(payload) == [(0, [None, None])]


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (batch_of(key=[b"k"]), "no column 'value'"),
        (batch_of(value=pa.array([1], pa.int64())), "int64"),
        (batch_of(value=[b"v"], key=pa.array([1.5])), "double"),
        (batch_of(value=[b"v"], offset=pa.array([0])), "'offset'"),
        (batch_of(value=[b"v"], headers=[b"x"]), "'headers'"),
        (batch_of(value=[b"v"], timestamp=pa.array(["2013"])), "'timestamp'"),
        (batch_of(value=pa.array([b"v"]).dictionary_encode()), "dictionary"),
        (
            pa.RecordBatch.from_arrays([pa.array([b"v"]), pa.array([b"w"])], ["value", "value"]),
            "twice",
        ),
    ],
)
def test_a_wrong_schema_is_refused_by_column(batch: pa.RecordBatch, what: str) -> None:
    with pytest.raises(InvalidRecordError, match=what):
        read(arrow_request(batch))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_streams_are_read(compression: str) -> None:
    values = [b"x" * 1000, None, b"y" * 1000]
    payload = read(
        arrow_request(batch_of(value=values), ranges=[(0, 0, 3)], compression=compression)
    )
    assert rows(payload) == [(0, values)]


# -- Arrow: what is not well formed


@pytest.mark.parametrize("stream", [b"", b"x", b"\xff" * 64, b"ARROW1\0\0" * 8, b"\0" * 4096])
def test_garbage_is_refused_with_a_clear_error(stream: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        read(stream_request(stream))


def test_a_truncated_stream_is_refused_or_ends_at_a_message() -> None:
    whole = ipc([batch_of(key=[b"k1"], value=[b"v1"]), batch_of(key=[b"k2"], value=[b"v2"])])
    outcomes: set[int | str] = set()
    for length in range(len(whole)):
        try:
            outcomes.add(read(stream_request(whole[:length])).record_count)
        except InvalidRecordError as error:
            outcomes.add(error.code)
    assert outcomes == {"INVALID_RECORD", 1, 2}


def test_any_bytes_give_an_error_or_a_result_and_never_end_the_process(seed: int) -> None:
    script = Path(__file__).with_name("fuzz_payload.py")
    done = subprocess.run(
        [sys.executable, script, str(seed)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, f"seed {seed}: {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_stream_that_would_unpack_to_too_much_is_refused_before_it_is_unpacked(
    compression: str,
) -> None:
    request = arrow_request(batch_of(value=[b"\0" * 1000] * 64_000), compression=compression)
    assert request.ByteSize() < 2 * MIB
    pool = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(counting)
    try:
        with pytest.raises(RequestTooLargeError, match=r"socket\.request\.max\.bytes") as caught:
            read(request, rules(request_bytes_max=2 * MIB))
    finally:
        pa.set_memory_pool(pool)
    assert caught.value.facts["limit_bytes"] == str(2 * MIB)
    assert counting.max_memory() < MIB


def test_rows_that_take_no_bytes_on_the_way_are_counted_before_they_take_memory() -> None:
    bomb = batch_of(value=pa.nulls(2**31 - 1))
    assert arrow_request(bomb).ByteSize() < 1_000
    with pytest.raises(RequestTooLargeError, match="500000 records"):
        read(arrow_request(bomb))


def test_headers_that_take_no_bytes_on_the_way_are_counted_before_they_take_memory() -> None:
    entries = pa.StructArray.from_arrays([pa.nulls(2**30)] * 2, ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 2**30], pa.int32()), entries)
    request = arrow_request(batch_of(value=[b"v"], headers=headers))
    with pytest.raises(RequestTooLargeError):
        read(request)


def test_an_offsets_buffer_with_bytes_too_many_is_read_as_far_as_it_counts() -> None:
    stream = ipc([batch_of(key=[b"a", b"b"], value=[b"a", b"b"])])
    twelve, thirteen = (size.to_bytes(8, "little") for size in (12, 13))
    assert twelve in stream
    payload = read(stream_request(stream.replace(twelve, thirteen)))
    assert payload.record_bytes == 4


def test_buffers_that_no_record_uses_count_for_the_queue() -> None:
    data = pa.py_buffer(b"\0" * MIB)
    offsets = pa.py_buffer(np.array([0, 1], dtype=np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    sink = pa.BufferOutputStream()
    batch = batch_of(value=value)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes() + b"\0" * MIB
    payload = read(stream_request(stream))
    assert payload.record_bytes == 1
    assert payload.queue_bytes >= MIB


# -- sizes and timestamps


def test_a_record_that_is_too_large_is_named_by_index_size_and_limit() -> None:
    batches = [batch_of(value=[b"v", b"v"]), batch_of(value=[b"v", b"v" * 101, b"v" * 200])]
    limited = rules(config={"max.message.bytes": 100})
    with pytest.raises(RecordTooLargeError, match="record 3 has 101 bytes") as caught:
        read(arrow_request(*batches, ranges=[(0, 0, 5)]), limited)
    assert caught.value.facts == {
        "topic": "t",
        "record_index": "3",
        "record_bytes": "101",
        "limit_bytes": "100",
    }


def test_key_value_and_headers_count_together_and_the_smaller_limit_holds() -> None:
    record = log_pb2.Record(
        key=b"k" * 40, value=b"v" * 40, headers=[log_pb2.Header(key="h", value=b"w" * 11)]
    )
    for limited in (rules(message_bytes_max=99), rules(config={"max.message.bytes": 99})):
        with pytest.raises(RecordTooLargeError, match="record 0 has 100 bytes"):
            read(records_request(record), limited)
    assert read(records_request(record), rules(message_bytes_max=100)).record_bytes == 100


@pytest.mark.parametrize(
    "timestamp_ms", [-1, NOW_MS + 3_600_001, NOW_MS * 1_000, 2**63 - 1, -(2**63)]
)
def test_a_timestamp_out_of_range_is_refused_with_its_index(timestamp_ms: int) -> None:
    plain = records_request(
        log_pb2.Record(value=b"v"), log_pb2.Record(value=b"v", timestamp_ms=timestamp_ms)
    )
    column = pa.array([NOW_MS, timestamp_ms], pa.int64()).view(pa.timestamp("ms", tz="UTC"))
    for request in (plain, arrow_request(batch_of(value=[b"v", b"v"], timestamp=column))):
        with pytest.raises(InvalidRecordError, match=f"record 1 has the timestamp {timestamp_ms}"):
            read(request)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_record_without_key_is_refused_with_its_index_where_keys_are_compacted(
    policy: str,
) -> None:
    compacted = rules(config={"cleanup.policy": policy})
    keyed = batch_of(key=[b"", b"b"], value=[b"1", b"2"])
    keyless = batch_of(key=[b"c", None], value=[None, b"4"])
    for request in (
        arrow_request(keyed, keyless, ranges=[(0, 0, 4)]),
        records_request(
            log_pb2.Record(key=b"a"), log_pb2.Record(key=b""), *[log_pb2.Record(value=b"4")] * 2
        ),
    ):
        with pytest.raises(
            InvalidRecordError, match=r"has no key; topic 't' is compacted"
        ) as caught:
            read(request, compacted)
        assert caught.value.facts["record_index"] in ("2", "3")
        assert read(request).record_count == 4
    with pytest.raises(InvalidRecordError, match="record 0 has no key"):
        read(arrow_request(batch_of(value=[b"1"]), ranges=[(0, 0, 1)]), compacted)
    assert read(arrow_request(keyed, ranges=[(0, 0, 2)]), compacted).record_count == 2


def test_a_missing_timestamp_is_now_and_a_given_one_is_kept() -> None:
    plain = records_request(
        log_pb2.Record(value=b"v", timestamp_ms=0, partition=0), log_pb2.Record(partition=0)
    )
    assert timestamps_ms(read(plain)) == [0, NOW_MS]
    column = pa.array([None, 5], pa.timestamp("ms", tz="UTC"))
    request = arrow_request(batch_of(value=[b"v", b"v"], timestamp=column), ranges=[(0, 0, 2)])
    assert timestamps_ms(read(request)) == [NOW_MS, 5]


def test_log_append_time_replaces_every_timestamp_even_one_out_of_range() -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    request = records_request(log_pb2.Record(value=b"v", timestamp_ms=-7), log_pb2.Record())
    assert timestamps_ms(read(request, rules(1, config=config))) == [NOW_MS, NOW_MS]


# -- plain records and placement


def test_plain_records_go_where_they_say_or_by_key_and_the_positions_follow_the_request() -> None:
    records = [
        log_pb2.Record(key=b"foobar", value=b"0"),
        log_pb2.Record(key=b"foobar", value=b"1", partition=1),
        log_pb2.Record(key=b"", value=b"2"),
        log_pb2.Record(key=b"foobar", value=b"3"),
        log_pb2.Record(key=b"21", value=b"4"),
    ]
    payload = read(records_request(*records))
    expected = [
        partition_for_key(b"foobar", 4),
        1,
        partition_for_key(b"", 4),
        partition_for_key(b"foobar", 4),
        partition_for_key(b"21", 4),
    ]
    assert payload.placed is not None
    assert payload.placed.tolist() == expected
    for partition, values in rows(payload):
        assert values == [b"%d" % i for i, place in enumerate(expected) if place == partition]


def test_records_without_key_stay_on_one_partition_until_it_has_had_its_bytes() -> None:
    placement = StickyPlacement(random.Random(3))
    request = records_request(*(log_pb2.Record(value=b"v" * 1000) for _ in range(4)))
    places = []
    for _ in range(40):
        placed = read_payload(request, rules(), placement, NOW_MS).placed
        assert placed is not None
        assert len(set(placed.tolist())) == 1, "one request goes to one partition"
        places.append(int(placed[0]))
    runs = [1]
    for before, after in pairwise(places):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(runs[:-1]) == {-(-STICKY_BYTES // 4000)}
    assert len(set(places)) > 1


def test_one_partition_and_fewer_partitions_than_before_are_placed_too() -> None:
    placement = StickyPlacement(random.Random(3))
    request = records_request(log_pb2.Record(value=b"v"))
    for count in (5, 1, 2):
        placed = read_payload(request, rules(count), placement, NOW_MS).placed
        assert placed is not None
        assert 0 <= placed[0] < count


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_plain_record_with_a_partition_that_the_topic_lacks_is_refused(partition: int) -> None:
    with pytest.raises(UnknownPartitionError, match=f"no partition {partition};"):
        read(records_request(log_pb2.Record(value=b"v", partition=partition)))


@pytest.mark.parametrize(
    "request_",
    [
        records_request(),
        arrow_request(batch_of(value=[])),
        arrow_request(batch_of(value=[]), batch_of(value=[])),
    ],
)
def test_a_request_without_records_is_refused(request_: log_pb2.ProduceRequest) -> None:
    with pytest.raises(InvalidRecordError, match="no records"):
        read(request_)


def test_more_records_than_a_request_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_module, "REQUEST_RECORDS_MAX", 3)
    with pytest.raises(RequestTooLargeError, match="more than 3 records"):
        read(arrow_request(batch_of(value=[b"v"] * 2), batch_of(value=[b"v"] * 2)))


def test_more_records_than_a_gateway_places_are_refused_and_need_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payload_module, "REQUEST_PLACED_RECORDS_MAX", 3)
    plain = records_request(*(log_pb2.Record() for _ in range(4)))
    arrow = arrow_request(batch_of(value=[b"v"] * 4))
    for request in (plain, arrow):
        with pytest.raises(RequestTooLargeError, match="4 records for the gateway to place, and 3"):
            read(request)
    assert read(arrow_request(batch_of(value=[b"v"] * 4), ranges=[(0, 0, 4)])).record_count == 4


@pytest.mark.parametrize(
    "request_",
    [
        records_request(*(log_pb2.Record() for _ in range(101))),
        arrow_request(batch_of(value=[b"v" * 1000] * 100)),
        arrow_request(batch_of(value=[b"0" * 1000] * 100), compression="zstd"),
        arrow_request(*[batch_of(value=[b"v"])] * 101),
        arrow_request(batch_of(value=[b"v"] * 501), ranges=[(0, row, 1) for row in range(501)]),
    ],
    ids=["records", "bytes", "unpacked bytes", "batches", "ranges"],
)
def test_a_payload_that_takes_long_is_not_read_on_the_loop(
    request_: log_pb2.ProduceRequest,
) -> None:
    placement = StickyPlacement(random.Random(1))
    with pytest.raises(payload_module.NotInlineError):
        read_payload(request_, rules(), placement, NOW_MS, inline=True)
    assert read(request_).record_count > 0
    small = records_request(*(log_pb2.Record() for _ in range(100)))
    assert read_payload(small, rules(), placement, NOW_MS, inline=True).record_count == 100
