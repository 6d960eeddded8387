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
from pathlib import Path

import uvloop

# The requests are those of the test that asserts a bound for each.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.unit.ingest_gateway.worst_requests import SET_UP, TOPICS, worst_requests

from mainstem.config import load_gateway_config
from mainstem.ingest_gateway import Gateway
from mainstem.protocol.v1 import admin_pb2

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

        for topic, partitions in TOPICS.items():
            request = admin_pb2.CreateTopicRequest(topic=topic, partition_count=partitions)
            await send("/mainstem.v1.Admin/CreateTopic", request.SerializeToString())
        for first in SET_UP:
            await send(first.call, first.data)
        probing = asyncio.create_task(probe())
        for worst_request in worst_requests():
            name, call, data = worst_request.name, worst_request.call, worst_request.data
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
