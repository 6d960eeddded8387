"""How fast does a gateway give records to readers, and what do idle long polls cost?

Starts a gateway in a process of its own, produces records of 16 + 100 random bytes to six
partitions, and reads them all, with generated stubs and one request at a time, each for all
partitions: from the tail (memory), then from history (the data files). Each is read once before it
is measured, three times: by the clock, and by the CPU time that the gateway takes, which tells a
gateway that is slow from a machine that is busy with something else. A reader that only counts rows
stands for a client that does more. Then it opens long polls and measures the gateway's memory and
CPU time while nothing happens.

Usage: python benchmarks/fetch.py [--records N] [--fetch-bytes N] [--partition-bytes N] [--polls N]
                                  [--poll-ms N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence

import grpc
import grpc.aio
import numpy as np
import pyarrow as pa

from mainstem.limits import MIB
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from mainstem.testing import GatewayProcess

PARTITIONS = 6
BATCH = 24_000
VALUE_BYTES = 100
KEY_BYTES = 16
TOPIC = "fetch"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def batch_request(rng: np.random.Generator) -> log_pb2.ProduceRequest:
    """`BATCH` records, the same number for each partition."""

    def column(size: int) -> pa.Array:
        offsets = np.arange(0, (BATCH + 1) * size, size, dtype=np.int32)
        data = rng.bytes(BATCH * size)
        return pa.Array.from_buffers(
            pa.binary(), BATCH, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    batch = pa.record_batch({"key": column(KEY_BYTES), "value": column(VALUE_BYTES)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    share = BATCH // PARTITIONS
    ranges = [
        log_pb2.PartitionRange(partition=partition, first_row=partition * share, row_count=share)
        for partition in range(PARTITIONS)
    ]
    return log_pb2.ProduceRequest(
        topic=TOPIC,
        arrow=log_pb2.ArrowRecords(ipc_stream=sink.getvalue().to_pybytes(), ranges=ranges),
    )


def produce(stub: log_pb2_grpc.LogStub, records: int) -> int:
    """Produces about so many records; returns how many."""
    rng = np.random.default_rng(1)
    pending = []
    count = 0
    while count < records:
        pending.append(stub.Produce.future(batch_request(rng), timeout=60))
        count += BATCH
        if len(pending) > 4:
            pending.pop(0).result()
    for call in pending:
        call.result()
    return count


def read_all(
    stub: log_pb2_grpc.LogStub,
    records: int,
    fetch_bytes: int,
    partition_bytes: int,
    columns: Sequence[str] = (),
) -> float:
    """Reads the topic from its start; returns the seconds it took."""
    offsets = [0] * PARTITIONS
    order = list(range(PARTITIONS))
    count = 0
    started = time.perf_counter()
    while count < records:
        answer = stub.Fetch(
            log_pb2.FetchRequest(
                partitions=[
                    log_pb2.FetchPartition(
                        topic=TOPIC,
                        partition=partition,
                        offset=offsets[partition],
                        max_bytes=partition_bytes,
                    )
                    for partition in order
                ],
                min_bytes=1,
                max_wait_ms=500,
                max_bytes=fetch_bytes,
                columns=columns,
            ),
            timeout=60,
        )
        for found in answer.partitions:
            assert not found.error.code, found.error
            if found.arrow:
                offsets[found.partition] = found.next_offset
                with pa.ipc.open_stream(found.arrow) as reader:
                    count += sum(batch.num_rows for batch in reader)
        order = order[1:] + order[:1]
    took = time.perf_counter() - started
    assert count == records, (count, records)
    return took


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def idle_polls(gateway: GatewayProcess, count: int, poll_ms: int) -> dict[str, float]:
    """What so many readers cost that wait at the end of the log, ten to a connection."""
    channels = [
        grpc.aio.insecure_channel(
            gateway.address, options=[("grpc.use_local_subchannel_pool", 1), *OPTIONS]
        )
        for _ in range(max(count // 10, 1))
    ]
    stubs = [log_pb2_grpc.LogStub(channel) for channel in channels]
    ends = await stubs[0].ListOffsets(
        log_pb2.ListOffsetsRequest(
            queries=[
                log_pb2.OffsetQuery(topic=TOPIC, partition=partition, latest=True)
                for partition in range(PARTITIONS)
            ]
        )
    )
    request = log_pb2.FetchRequest(
        partitions=[
            log_pb2.FetchPartition(topic=TOPIC, partition=end.partition, offset=end.offset)
            for end in ends.answers
        ],
        min_bytes=1,
        max_wait_ms=poll_ms,
    )
    before = gateway.rss_bytes()

    async def poll(stub: log_pb2_grpc.LogStub) -> None:
        while True:
            await stub.Fetch(request, timeout=120)

    tasks = [asyncio.create_task(poll(stubs[index % len(stubs)])) for index in range(count)]
    await asyncio.sleep(2)
    started, cpu = time.monotonic(), cpu_seconds(gateway.pid)
    await asyncio.sleep(10)
    cores = (cpu_seconds(gateway.pid) - cpu) / (time.monotonic() - started)
    after = gateway.rss_bytes()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in channels:
        await channel.close()
    return {
        "polls": count,
        "poll_ms": poll_ms,
        "cores": round(cores, 3),
        "rss_mib_before": before // MIB,
        "rss_mib": after // MIB,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", help="where to make the warehouse")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--fetch-bytes", type=int, default=50 * MIB, help="of an answer")
    parser.add_argument("--partition-bytes", type=int, default=MIB, help="of a partition in it")
    parser.add_argument("--polls", type=int, default=1_000)
    parser.add_argument("--poll-ms", type=int, default=30_000)
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="fetch-") as root:
        settings = {"fetch.cache.bytes": 2 * 200 * arguments.records}
        with GatewayProcess(root, settings=settings) as gateway:
            with grpc.insecure_channel(gateway.address, options=OPTIONS) as channel:
                admin_pb2_grpc.AdminStub(channel).CreateTopic(
                    admin_pb2.CreateTopicRequest(topic=TOPIC, partition_count=PARTITIONS)
                )
                stub = log_pb2_grpc.LogStub(channel)
                count = produce(stub, arguments.records)
                sizes = (count, arguments.fetch_bytes, arguments.partition_bytes)

                def rates(*columns: str) -> dict[str, list[int]]:
                    found: dict[str, list[int]] = {"per_s": [], "per_gateway_cpu_s": []}
                    read_all(stub, *sizes, columns)
                    for _ in range(3):
                        cpu = cpu_seconds(gateway.pid)
                        found["per_s"].append(round(count / read_all(stub, *sizes, columns)))
                        spent = max(cpu_seconds(gateway.pid) - cpu, 0.01)
                        found["per_gateway_cpu_s"].append(round(count / spent))
                    return found

                figures["records"] = count
                figures["tail"] = rates()
                gateway.restart()  # nothing is cached
                figures["history"] = rates()
                figures["history_offsets_only"] = rates("offset")
                stub.Produce(batch_request(np.random.default_rng(2)), timeout=60)  # leads again
            gateway.restart()
            with grpc.insecure_channel(gateway.address, options=OPTIONS) as channel:
                log_pb2_grpc.LogStub(channel).Produce(
                    batch_request(np.random.default_rng(2)), timeout=60
                )
            figures["idle"] = asyncio.run(idle_polls(gateway, arguments.polls, arguments.poll_ms))
            figures["gateway_peak_rss_mib"] = gateway.peak_rss_bytes() // MIB
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
