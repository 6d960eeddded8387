"""A query from topic to topic; its driver, its Python workers and the gateway are killed in turn:
each record once, in order."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.length import FULL

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.testing import GatewayProcess

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not FULL, reason="a driver takes half a minute to start: make test-fault"),
]

#: In batches of 100 while there are kills: more of them than kills.
RECORDS: Final = 7_000
KEYS: Final = 20
PARTITIONS: Final = 3
#: Of the driver; it is the last of five to be killed each time.
LIVES: Final = 10
BEFORE_THE_DRIVER: Final = ("worker", "gateway", "worker", "gateway")
DEADLINE_S: Final = 240.0


def test_every_process_of_a_query_killed_in_turn_writes_each_record_once_and_in_order(
    tmp_path: Path, rng: random.Random
) -> None:
    kills: Counter[str] = Counter()
    with GatewayProcess(tmp_path / "warehouse") as gateway:
        servers = {"bootstrap.servers": gateway.address}
        with AdminClient(servers) as admin:
            admin.create_topic("in", PARTITIONS)
            admin.create_topic("out", PARTITIONS)
        with Producer(servers) as producer:
            for number in range(RECORDS):
                producer.produce("in", b"%d" % number, b"k%d" % (number % KEYS))
        checkpoint = tmp_path / "checkpoint"
        for _ in range(LIVES):
            with _copying(gateway, checkpoint) as process:
                for victim in (*BEFORE_THE_DRIVER, "driver"):
                    # Somewhere in a batch: between its tasks, the decision, and the checkpoint.
                    _wait_for_batches(checkpoint, process, 1)
                    time.sleep(rng.uniform(0.0, 0.5))
                    assert process.poll() is None, "it survives its workers and the gateway"
                    kills[victim] += 1
                    if victim == "gateway":
                        gateway.kill()
                        gateway.start()
                    elif victim == "worker":
                        _kill_a_worker(process, rng)
        with _copying(gateway, checkpoint, batch_records=RECORDS) as process:
            assert _lines_until(process, "done"), "it ended early, or is slow"
        found = _by_key(gateway.address)
    assert kills == {"worker": 2 * LIVES, "gateway": 2 * LIVES, "driver": LIVES}
    assert {key: sorted(values) for key, values in found.items()} == {
        b"k%d" % key: list(range(key, RECORDS, KEYS)) for key in range(KEYS)
    }, "each once"
    assert found == {key: sorted(values) for key, values in found.items()}, "in order"


@contextlib.contextmanager
def _copying(
    gateway: GatewayProcess, checkpoint: Path, batch_records: int = 100
) -> Iterator[subprocess.Popen[str]]:
    """A driver, which is killed when the block ends, with its Java and its workers."""
    script = str(Path(__file__).with_name("spark_copy_process.py"))
    place = (str(gateway.warehouse), gateway.address, str(checkpoint))
    with (checkpoint.parent / "driver.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, script, *place, str(batch_records)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _kill_a_worker(driver: subprocess.Popen[str], rng: random.Random) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not (workers := _workers(driver.pid)):
        assert driver.poll() is None
        assert time.monotonic() < deadline, "it runs no task"
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # ended by itself just now
        os.kill(rng.choice(workers), signal.SIGKILL)


def _workers(driver: int) -> list[int]:
    """The Python processes of a driver that run tasks."""
    parents, runs = {}, {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            runs[int(file.parent.name)] = file.read_bytes().split(b"\0")
            stat = file.with_name("stat").read_text().rpartition(")")[2].split()
            parents[int(file.parent.name)] = int(stat[1])
    daemons = {
        pid
        for pid, words in runs.items()
        if b"pyspark.daemon" in words and b"pyspark.worker" in words
    }
    return [pid for pid in daemons if parents.get(pid) in daemons and os.getsid(pid) == driver]


def _wait_for_batches(checkpoint: Path, process: subprocess.Popen[str], more: int) -> None:
    """Until so many batches more than before are planned."""
    planned = checkpoint / "offsets"
    before = len(list(planned.glob("[0-9]*")))
    deadline = time.monotonic() + DEADLINE_S
    while len(list(planned.glob("[0-9]*"))) < before + more:
        if process.poll() is not None:
            return  # it has written everything
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lines_until(process: subprocess.Popen[str], word: str) -> bool:
    assert process.stdout is not None
    deadline = time.monotonic() + DEADLINE_S
    while select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
        line = process.stdout.readline()
        if line.strip() == word:
            return True
        if not line:
            return False
    return False


def _by_key(address: str) -> dict[bytes, list[int]]:
    """The numbers of each key in `out`, in the order of the log; each begins with `x`."""
    found: dict[bytes, list[int]] = defaultdict(list)
    with Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("out", number) for number in range(PARTITIONS)])
        last = time.monotonic()
        while time.monotonic() - last < 3.0:
            for record in consumer.consume(1000, timeout=1.0):
                last = time.monotonic()
                assert record.key is not None
                value = record.value
                assert value is not None
                assert value.startswith(b"x")
                found[bytes(record.key)].append(int(value[1:]))
    return dict(found)
