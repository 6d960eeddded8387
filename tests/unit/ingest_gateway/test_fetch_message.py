"""The bytes of an answer, as protobuf and Arrow read them."""

from __future__ import annotations

import sys
from types import FrameType

import pyarrow as pa
import pytest

from mainstem.ingest_gateway.fetching.columns import schema_of
from mainstem.ingest_gateway.fetching.message import FetchMessage
from mainstem.protocol.v1 import log_pb2

COLUMNS = ("offset", "value")


def batch_of(first: int, rows: int, value_bytes: int = 3) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array(range(first, first + rows), pa.int64()),
            pa.array([b"%0*d" % (value_bytes, row) for row in range(rows)], pa.binary()),
        ],
        schema=schema_of(COLUMNS),
    )


def head_of(partition: int) -> log_pb2.FetchedPartition:
    head = log_pb2.FetchedPartition(
        topic="flights", partition=partition, topic_id="id", high_watermark=2**40, next_offset=7
    )
    if partition % 2:
        head.error.code = "UNKNOWN_TOPIC"
    return head


@pytest.mark.parametrize(
    "batch_rows",
    [
        [[]],
        [[1]],
        [[], [3, 4], []],
        [[5_000, 2_048, 1], [2_047, 1, 10_000]],
        [[1]] * 300,
    ],
)
def test_a_message_has_every_partition_with_its_records_in_order(
    batch_rows: list[list[int]],
) -> None:
    message = FetchMessage(schema_of(COLUMNS))
    wanted = []
    for partition, counts in enumerate(batch_rows):
        batches = [batch_of(sum(counts[:index]), rows) for index, rows in enumerate(counts)]
        message.add(head_of(partition), batches)
        wanted.append(batches)

    answer = log_pb2.FetchResponse.FromString(message.serialised())

    assert len(answer.partitions) == len(wanted)
    for partition, (fetched, batches) in enumerate(zip(answer.partitions, wanted, strict=True)):
        assert bool(fetched.arrow) == bool(batches)
        if batches:
            table = pa.ipc.open_stream(fetched.arrow).read_all()
            assert table.equals(pa.Table.from_batches(batches))
        fetched.ClearField("arrow")
        assert fetched == head_of(partition)


def test_small_batches_are_joined_and_large_ones_stay() -> None:
    message = FetchMessage(schema_of(COLUMNS))
    message.add(head_of(0), [batch_of(0, 10), batch_of(10, 10), batch_of(20, 5_000)])

    (fetched,) = log_pb2.FetchResponse.FromString(message.serialised()).partitions

    assert [batch.num_rows for batch in pa.ipc.open_stream(fetched.arrow)] == [20, 5_000]


def test_whoever_keeps_the_frames_of_a_call_that_writes_a_message_does_not_spoil_it() -> None:
    """As a sampling profiler in the process does, and the traceback of an error."""
    message = FetchMessage(schema_of(COLUMNS))
    message.add(head_of(0), [batch_of(0, 3)])
    wanted = message.serialised()
    frames: list[FrameType] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: frames.append(frame))
    try:
        written = message.serialised()
    finally:
        sys.setprofile(before)
    assert frames
    assert written == wanted
