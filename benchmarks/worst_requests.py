"""How long the gateway's event loop stands still for the largest requests that it takes.

Usage: python benchmarks/worst_requests.py [--times 3] [--only NAME]

A gateway runs in this process; another process sends it, one after the other, the request of each
call that has as much of everything as the limits allow, and one that has one more. A probe on the
loop wakes every 2 ms and notes how late it was, and how much processor time the loop's thread took
between two of its steps, which other processes do not change. One JSON line for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import struct
import sys
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa
import uvloop

from mainstem.config import load_gateway_config
from mainstem.ingest_gateway import Gateway
from mainstem.limits import (
    FETCH_PARTITIONS_MAX,
    GROUP_PARTITIONS_MAX,
    METADATA_TOPICS_MAX,
    OFFSETS_PER_COMMIT_MAX,
    PARTITION_COUNT_MAX,
    REQUEST_HEADERS_MAX,
    REQUEST_PLACED_RECORDS_MAX,
    REQUEST_RANGES_MAX,
    REQUEST_RECORDS_MAX,
    SUBSCRIBED_TOPICS_MAX,
    TOPIC_SETTINGS_MAX,
)
from mainstem.protocol.v1 import admin_pb2, groups_pb2, log_pb2

PROBE_S = 0.002

#: Sends what comes on its standard input and answers with a line: the status and the time.
SENDER = """
import struct, sys, time, grpc
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_receive_message_length", -1)])
while head := sys.stdin.buffer.read(8):
    name_bytes, data_bytes = struct.unpack("<II", head)
    name = sys.stdin.buffer.read(name_bytes).decode()
    call = channel.unary_unary(name, request_serializer=None, response_deserializer=None)
    data = sys.stdin.buffer.read(data_bytes)
    began = time.perf_counter()
    try:
        outcome = f"OK, {len(call(data, timeout=120))} bytes"
    except grpc.RpcError as error:
        outcome = error.code().name
    print(f"{time.perf_counter() - began:.3f} {outcome}", flush=True)
"""


def requests(topic_id: str) -> Iterator[tuple[str, str, bytes]]:
    """What it is, the call, and the request."""

    def both(name: str, call: str, at_most: int, make: object) -> Iterator[tuple[str, str, bytes]]:
        for count in (at_most, at_most + 1):
            yield f"{name} {count}", call, make(count).SerializeToString()  # type: ignore[operator]

    log, groups, admin = (f"/mainstem.v1.{name}/" for name in ("Log", "Groups", "Admin"))
    yield from both(
        "plain records",
        log + "Produce",
        REQUEST_PLACED_RECORDS_MAX,
        lambda count: log_pb2.ProduceRequest(
            topic="t",
            records=log_pb2.Records(
                records=[log_pb2.Record(key=b"%d" % n, value=b"v" * 100) for n in range(count)]
            ),
        ),
    )
    yield from both(
        "headers",
        log + "Produce",
        REQUEST_HEADERS_MAX,
        lambda count: log_pb2.ProduceRequest(
            topic="t",
            records=log_pb2.Records(
                records=[log_pb2.Record(headers=[log_pb2.Header(key="h", value=b"v")] * count)]
            ),
        ),
    )
    for codec in (None, "zstd"):
        yield (
            f"arrow records {REQUEST_RECORDS_MAX} {codec}",
            log + "Produce",
            arrow(REQUEST_RECORDS_MAX, codec).SerializeToString(),
        )
    yield (
        "arrow ranges",
        log + "Produce",
        arrow(REQUEST_RANGES_MAX, None, ranges=REQUEST_RANGES_MAX).SerializeToString(),
    )
    yield (
        "arrow placed",
        log + "Produce",
        arrow(REQUEST_PLACED_RECORDS_MAX, None, ranges=0).SerializeToString(),
    )
    yield from both(
        "fetch partitions",
        log + "Fetch",
        FETCH_PARTITIONS_MAX,
        lambda count: log_pb2.FetchRequest(
            partitions=[
                log_pb2.FetchPartition(topic="wide", partition=n % PARTITION_COUNT_MAX)
                for n in range(count)
            ],
            max_wait_ms=200,
            min_bytes=1,
        ),
    )
    yield from both(
        "fetch topics",
        log + "Fetch",
        FETCH_PARTITIONS_MAX,
        lambda count: log_pb2.FetchRequest(
            partitions=[log_pb2.FetchPartition(topic=f"no-{n}") for n in range(count)]
        ),
    )
    yield from both(
        "offset queries",
        log + "ListOffsets",
        FETCH_PARTITIONS_MAX,
        lambda count: log_pb2.ListOffsetsRequest(
            queries=[
                log_pb2.OffsetQuery(topic="wide", partition=n % PARTITION_COUNT_MAX, timestamp_ms=1)
                for n in range(count)
            ]
        ),
    )
    yield from both(
        "metadata names",
        log + "Metadata",
        METADATA_TOPICS_MAX,
        lambda count: log_pb2.MetadataRequest(topics=[f"{n:x}" for n in range(count)]),
    )
    yield from both(
        "heartbeat owned",
        groups + "Heartbeat",
        GROUP_PARTITIONS_MAX,
        lambda count: groups_pb2.HeartbeatRequest(
            group="g",
            topics=["wide"],
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            owned=[
                groups_pb2.TopicPartitions(topic="wide", topic_id=topic_id, partitions=range(count))
            ],
        ),
    )
    yield from both(
        "heartbeat topics",
        groups + "Heartbeat",
        SUBSCRIBED_TOPICS_MAX,
        lambda count: groups_pb2.HeartbeatRequest(
            group="h",
            topics=[f"{n:x}" for n in range(count)],
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        ),
    )
    yield from both(
        "commit offsets",
        groups + "CommitOffsets",
        OFFSETS_PER_COMMIT_MAX,
        lambda count: groups_pb2.CommitOffsetsRequest(
            group="o",
            member_epoch=-1,
            offsets=[
                groups_pb2.CommittedOffset(
                    topic="wide", partition=n % PARTITION_COUNT_MAX, offset=1, metadata="m" * 20
                )
                for n in range(count)
            ],
        ),
    )
    yield from both(
        "fetch offsets",
        groups + "FetchOffsets",
        GROUP_PARTITIONS_MAX,
        lambda count: groups_pb2.FetchOffsetsRequest(
            group="o",
            partitions=[
                groups_pb2.TopicPartitions(topic="wide", topic_id=topic_id, partitions=range(count))
            ],
        ),
    )
    yield "all offsets", groups + "FetchOffsets", b"\x0a\x01o"
    yield "describe group", groups + "DescribeGroup", b"\x0a\x01g"
    yield "describe topic", admin + "DescribeTopic", b"\x0a\x04wide"
    yield from both(
        "trim",
        admin + "TrimPrefix",
        PARTITION_COUNT_MAX,
        lambda count: admin_pb2.TrimPrefixRequest(
            topic="wide", partitions=[admin_pb2.PartitionTrim(partition=n) for n in range(count)]
        ),
    )
    yield from both(
        "settings",
        admin + "AlterTopicConfig",
        TOPIC_SETTINGS_MAX,
        lambda count: admin_pb2.AlterTopicConfigRequest(
            topic="t", reset=[f"{n}" for n in range(count)]
        ),
    )
    yield "a million fields", groups + "DescribeGroup", b"\xf8\x07\x01" * 1_000_000
    yield (
        "a million empty records",
        log + "Produce",
        (
            log_pb2.ProduceRequest(
                topic="t", records=log_pb2.Records(records=[log_pb2.Record()] * 1_000_000)
            ).SerializeToString()
        ),
    )


def arrow(rows: int, codec: str | None, ranges: int = 1) -> log_pb2.ProduceRequest:
    """A request of empty values."""
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b""] * rows, pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(batch)
    return log_pb2.ProduceRequest(
        topic="wide",
        arrow=log_pb2.ArrowRecords(
            ipc_stream=sink.getvalue().to_pybytes(),
            ranges=[
                log_pb2.PartitionRange(
                    partition=n, first_row=n * rows // ranges, row_count=rows // ranges
                )
                for n in range(ranges)
            ],
        ),
    )


async def measure(times: int, only: str) -> None:
    late_s, busy_s = [0.0], [0.0]

    async def probe() -> None:
        while True:
            due, began_s = time.perf_counter() + PROBE_S, time.thread_time()
            await asyncio.sleep(PROBE_S)
            late_s[0] = max(late_s[0], time.perf_counter() - due)
            busy_s[0] = max(busy_s[0], time.thread_time() - began_s)

    with tempfile.TemporaryDirectory() as folder:
        flags = {"warehouse": folder, "listeners": "127.0.0.1:0", "log.level": "error"}
        gateway = Gateway(load_gateway_config(environment={}, flags=flags))
        address = await gateway.start()
        sender = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SENDER,
            address,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        to_sender, answers = sender.stdin, sender.stdout
        assert to_sender is not None
        assert answers is not None

        async def send(call: str, data: bytes) -> str:
            to_sender.write(struct.pack("<II", len(call), len(data)) + call.encode() + data)
            await to_sender.drain()
            return (await answers.readline()).decode().strip()

        topic_id = ""
        for topic, partitions in (("t", 1), ("wide", PARTITION_COUNT_MAX)):
            request = admin_pb2.CreateTopicRequest(topic=topic, partition_count=partitions)
            await send("/mainstem.v1.Admin/CreateTopic", request.SerializeToString())
        probing = asyncio.create_task(probe())
        for name, call, data in requests(topic_id):
            if only not in name:
                continue
            gc.collect()
            worst, busy = [], []
            for _ in range(times):
                await asyncio.sleep(0.3)
                late_s[0] = busy_s[0] = 0.0
                answer = await send(call, data)
                worst.append(late_s[0])
                busy.append(busy_s[0])
            took, outcome = answer.split(maxsplit=1)
            found = {
                "request": name,
                "bytes": len(data),
                "outcome": outcome,
                "took_s": float(took),
                "stall_ms": [round(one * 1000, 1) for one in worst],
                "busy_ms": [round(one * 1000, 1) for one in busy],
            }
            print(json.dumps(found), flush=True)
        probing.cancel()
        to_sender.close()
        await sender.wait()
        await gateway.drain()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    uvloop.run(measure(options.times, options.only))


if __name__ == "__main__":
    main()
