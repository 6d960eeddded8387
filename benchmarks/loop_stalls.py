"""How long the gateway's event loop stalls while every call of the store takes 300 ms.

Usage: python benchmarks/loop_stalls.py [--seconds 15] [--call-ms 300] [--clients 10]

A gateway runs in this process on a store whose writes sleep; clients in processes of their own
produce batches of 1 MiB to topics of their own. A probe on the loop wakes every 5 ms and notes how
late it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import uvloop

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.unit.delta_log.faults import FaultyStore

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore
from mainstem.ingest_gateway import Gateway

PROBE_S = 0.005

CLIENT = """
import os, sys, time
from mainstem.client import AdminClient, Producer
config = {"bootstrap.servers": sys.argv[1]}
topic = f"topic-{sys.argv[2]}"
with AdminClient(config) as admin:
    admin.create_topic(topic, 3)
values = [os.urandom(1000) for _ in range(1000)]
ends_at = time.monotonic() + float(sys.argv[3])
with Producer(config) as producer:
    while time.monotonic() < ends_at:
        for value in values:
            producer.produce(topic, value)
        time.sleep(0.05)
"""


async def measure(seconds: float, call_ms: float, clients: int) -> dict[str, float]:
    def slow(call: str, path: str) -> None:
        if call.startswith("put"):
            time.sleep(call_ms / 1000)

    late_ms: list[float] = []

    async def probe() -> None:
        while True:
            due = time.perf_counter() + PROBE_S
            await asyncio.sleep(PROBE_S)
            late_ms.append((time.perf_counter() - due) * 1000)

    with tempfile.TemporaryDirectory() as folder:
        flags = {"warehouse": folder, "listeners": "127.0.0.1:0"}
        config = load_gateway_config(environment={}, flags=flags)
        gateway = Gateway(config, FaultyStore(LocalStore(folder), before=slow))
        address = await gateway.start()
        probing = asyncio.create_task(probe())
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                CLIENT,
                address,
                str(number),
                str(seconds),
                stdout=subprocess.DEVNULL,
            )
            for number in range(clients)
        ]
        for process in processes:
            await process.wait()
        probing.cancel()
        await gateway.drain()
    p50, p99 = np.percentile(late_ms, [50, 99])
    return {
        "seconds": seconds,
        "call_ms": call_ms,
        "clients": clients,
        "probes": len(late_ms),
        "late_p50_ms": round(float(p50), 2),
        "late_p99_ms": round(float(p99), 2),
        "late_max_ms": round(max(late_ms), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--call-ms", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args()
    print(json.dumps(uvloop.run(measure(options.seconds, options.call_ms, options.clients))))


if __name__ == "__main__":
    main()
