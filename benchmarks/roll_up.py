"""How many files does a topic have under a steady trickle, and what does roll-up cost?

A gateway in a process of its own with its default settings, a topic of 12 partitions, and a
producer that sends records to each partition 20 times a second, so that each of the ten commits a
second has a file for each partition. Reports over time, and in the end as JSON: live data files,
commits, memory and CPU time of the gateway, and how long acknowledgements took. Then proves the
table.

Usage: python benchmarks/roll_up.py [--seconds 600] [--partitions 12] [--records 1]
       [--record-bytes 350] [--roll-up-files 32] [--directory DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from mainstem.client import AdminClient, Producer
from mainstem.delta_log import LocalStore
from mainstem.delta_log.verify import verify_named
from mainstem.testing import GatewayProcess

TOPIC = "trickle"
SENDS_PER_S = 20
REPORT_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--records", type=int, default=1, help="to a partition at a time")
    parser.add_argument("--record-bytes", type=int, default=350)
    parser.add_argument("--roll-up-files", type=int, default=32, help="0: no roll-up")
    parser.add_argument("--directory", help="where the warehouse is made; default: a temporary one")
    parser.add_argument("--json", help="where to write the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        figures = measure(folder, options)
    print(json.dumps(figures))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


def measure(folder: str, options: argparse.Namespace) -> dict[str, Any]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        metrics = f"127.0.0.1:{one.getsockname()[1]}"
    metrics_url = f"http://{metrics}/metrics"
    acks: list[float] = []
    errors: list[BaseException] = []
    rows: list[dict[str, float]] = []
    with GatewayProcess(folder, settings={"metrics.listeners": metrics}) as gateway:
        config = {"bootstrap.servers": gateway.address}
        with AdminClient(config) as admin:
            topic_config = {"rollup.files": options.roll_up_files}
            admin.create_topic(TOPIC, options.partitions, topic_config)
        with Producer({**config, "linger.ms": 0}) as producer:
            started = reported = time.monotonic()
            cpu_before = cpu_s(gateway.pid)
            turn = 0
            while (now := time.monotonic()) < started + options.seconds:
                if now < started + turn / SENDS_PER_S:
                    producer.poll(min(started + turn / SENDS_PER_S - now, 0.05))
                    continue
                turn += 1
                send(producer, options, acks, errors)
                if now - reported >= REPORT_S:
                    reported = now
                    row = look(metrics_url, gateway.pid, now - started)
                    rows.append(row)
                    print(row, file=sys.stderr)
            producer.flush()
            elapsed = time.monotonic() - started
            cpu = cpu_s(gateway.pid) - cpu_before
        last = look(metrics_url, gateway.pid, elapsed)
        peak_rss = gateway.peak_rss_bytes()
    assert not errors, errors[0]
    report = verify_named(LocalStore(folder), TOPIC)
    assert report.ok, report.findings
    assert report.record_count == len(acks)
    p50, p99, p999 = np.percentile(np.array(acks) * 1000, [50, 99, 99.9])
    log = Path(folder, "topics", TOPIC, "_delta_log")
    checkpoints = [path.stat().st_size for path in log.glob("*.checkpoint.parquet")]
    return {
        "seconds": round(elapsed, 1),
        "partitions": options.partitions,
        "rollup.files": options.roll_up_files,
        "records": len(acks),
        "live_files": int(last["files"]),
        "commits": int(last["commits"]),
        "rolled_up_files": int(last["rolled_up"]),
        "cpu_share_of_a_core": round(cpu / elapsed, 3),
        "peak_rss_mb": round(peak_rss / 2**20),
        "ack_p50_ms": round(float(p50), 2),
        "ack_p99_ms": round(float(p99), 2),
        "ack_p999_ms": round(float(p999), 2),
        "checkpoint_bytes_max": max(checkpoints, default=0),
        "over_time": rows,
    }


def send(
    producer: Producer,
    options: argparse.Namespace,
    acks: list[float],
    errors: list[BaseException],
) -> None:
    """Some records to each partition; how long each took goes to `acks`."""
    sent_at = time.perf_counter()

    def done(error: BaseException | None, _: object) -> None:
        if error is not None:
            errors.append(error)
        acks.append(time.perf_counter() - sent_at)

    for partition in range(options.partitions):
        for _ in range(options.records):
            text = "".join(random.choices("abcdefgh ", k=max(options.record_bytes - 60, 1)))
            value = json.dumps({"id": random.getrandbits(40), "at": time.time(), "text": text})
            producer.produce(TOPIC, value.encode(), partition=partition, on_delivery=done)


def look(url: str, pid: int, elapsed: float) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()

    def value(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    return {
        "s": round(elapsed, 1),
        "files": value(f'mainstem_table_files{{topic="{TOPIC}"}}'),
        "commits": value('mainstem_table_commits_total{outcome="committed"}'),
        "rolled_up": value('mainstem_rolled_up_files_total{outcome="committed"}'),
        "kept_kb": value("mainstem_roll_up_bytes") // 1024,
        "rss_mb": rss_bytes(pid) // 2**20,
    }


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
