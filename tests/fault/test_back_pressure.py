"""A store that stalls: memory stays bounded, others go on, and what was accepted lands once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.fault.stalling_gateway import STALLED_TOPIC
from tests.length import FULL

from mainstem.delta_log import LocalStore, Topics, read_data_file
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

MIB = 1024 * 1024
CLIENTS = 50
QUEUE_BYTES = 24 * MIB
#: A bound of the queue plus this is what the gateway may use while the store stalls.
MEMORY_ABOVE_QUEUES_BYTES = 200 * MIB
CALL_DEADLINE_S = 10.0
CHECKPOINT_COMMITS = 20


@dataclass
class Outcomes:
    """What the clients saw."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    acknowledged: set[bytes] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    without_delay: int = 0


@pytest.mark.end_to_end
@pytest.mark.fault
@pytest.mark.timeout(240)
def test_a_store_that_stalls_costs_bounded_memory_and_nothing_that_was_accepted(
    tmp_path: Path,
) -> None:
    _stall_and_judge(tmp_path, stall_s=4.0)


@pytest.mark.fault
@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(600)
def test_a_store_that_stalls_for_thirty_seconds_costs_no_more(tmp_path: Path) -> None:
    _stall_and_judge(tmp_path, stall_s=30.0)


def _stall_and_judge(tmp_path: Path, stall_s: float) -> None:
    stall = tmp_path / "stall"
    warehouse = tmp_path / "warehouse"
    with _gateway(warehouse, stall) as (address, pid), grpc.insecure_channel(address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for topic in (STALLED_TOPIC, "other"):
            admin.CreateTopic(admin_pb2.CreateTopicRequest(topic=topic, partition_count=2))
            log_pb2_grpc.LogStub(channel).Produce(
                _request(topic, b"first"), timeout=CALL_DEADLINE_S
            )
        _warm_up(channel, warehouse)
        before_bytes = _peak_bytes(pid)
        outcomes = Outcomes()
        stall.touch()
        over = threading.Event()
        clients = [
            threading.Thread(target=_push, args=(address, number, over, outcomes), daemon=True)
            for number in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            others = _use_the_rest(channel, stall_s, outcomes)
            used_bytes = _peak_bytes(pid) - before_bytes
        finally:
            stall.unlink()
            over.set()
        for client in clients:
            client.join(timeout=120)
            assert not client.is_alive()
    stored = _values(warehouse, STALLED_TOPIC)
    assert max(Counter(stored).values()) == 1
    assert outcomes.acknowledged <= set(stored)
    assert set(stored) <= outcomes.acknowledged | {b"first"}
    assert others > 0
    assert sorted(_values(warehouse, "other")) == sorted(
        [b"first", *(b"other %d" % number for number in range(others))]
    )
    assert outcomes.acknowledged
    assert set(outcomes.reasons) == {"BACK_PRESSURE"}
    assert outcomes.without_delay == 0
    print(
        f"memory above the start: {used_bytes / MIB:.0f} MiB; {outcomes.reasons}; {others} others"
    )
    assert used_bytes < QUEUE_BYTES + MEMORY_ABOVE_QUEUES_BYTES


def _warm_up(channel: grpc.Channel, warehouse: Path) -> None:
    """Has the gateway write a checkpoint: the first one loads delta-rs, some 60 MB."""
    admin_pb2_grpc.AdminStub(channel).CreateTopic(
        admin_pb2.CreateTopicRequest(topic="warm", partition_count=1)
    )
    for _ in range(CHECKPOINT_COMMITS):
        log_pb2_grpc.LogStub(channel).Produce(_request("warm", b"up"), timeout=CALL_DEADLINE_S)
    ends_at = time.monotonic() + 60
    while not list((warehouse / "topics/warm/_delta_log").glob("_last_checkpoint")):
        assert time.monotonic() < ends_at, "no checkpoint came"
        time.sleep(0.05)


def _use_the_rest(channel: grpc.Channel, stall_s: float, outcomes: Outcomes) -> int:
    """Asks for health and metadata, and produces to another topic, meanwhile; how often."""
    log = log_pb2_grpc.LogStub(channel)
    health = health_pb2_grpc.HealthStub(channel)
    ends_at = time.monotonic() + stall_s
    others = 0
    while time.monotonic() < ends_at or not outcomes.reasons["BACK_PRESSURE"]:
        assert time.monotonic() < ends_at + 60, "the queue never filled"
        answer = health.Check(  # type: ignore[attr-defined]
            health_pb2.HealthCheckRequest(), timeout=CALL_DEADLINE_S
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        log.Metadata(log_pb2.MetadataRequest(topics=["other"]), timeout=CALL_DEADLINE_S)
        log.Produce(_request("other", b"other %d" % others), timeout=CALL_DEADLINE_S)
        others += 1
    return others


def _push(address: str, number: int, over: threading.Event, outcomes: Outcomes) -> None:
    """Sends batches of 1 MiB one by one; what is refused is sent again, after the delay."""
    with grpc.insecure_channel(address) as channel:
        log = log_pb2_grpc.LogStub(channel)
        batch = 0
        request = None
        while not over.is_set():
            value = b"%d %d" % (number, batch)
            request = request or _request(STALLED_TOPIC, value, padding=MIB)
            try:
                log.Produce(request, timeout=180)
            except grpc.RpcError as failure:
                reason, delay_s = _reason(failure)
                with outcomes.lock:
                    outcomes.reasons[reason] += 1
                    outcomes.without_delay += delay_s <= 0
                # Ten times longer than the gateway asks: fifty clients share two cores with it.
                over.wait(10 * delay_s or 1.0)
            else:
                request = None
                with outcomes.lock:
                    outcomes.acknowledged.add(value)
                batch += 1


def _reason(failure: grpc.RpcError) -> tuple[str, float]:
    from mainstem.protocol import error_from_rpc

    error = error_from_rpc(failure)
    return error.code, error.retry_delay_ms / 1000


def _request(topic: str, value: bytes, padding: int = 0) -> log_pb2.ProduceRequest:
    """A record with `value`, and one of `padding` bytes less a little so that it is no larger than
    the default limit."""
    values = [value, os.urandom(padding - 1024)] if padding else [value]
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    ranges = [log_pb2.PartitionRange(partition=0, first_row=0, row_count=len(values))]
    arrow = log_pb2.ArrowRecords(ipc_stream=sink.getvalue().to_pybytes(), ranges=ranges)
    return log_pb2.ProduceRequest(topic=topic, arrow=arrow)


def _values(warehouse: Path, topic: str) -> list[bytes]:
    """The values of a topic but the padding."""
    opened = Topics(LocalStore(warehouse)).open(topic)
    found = []
    for file in opened.state.files(0).sorted():
        for batch in read_data_file(opened.store, file, 0, 1 << 60, ["value"]):
            found += [value for value in batch.column("value").to_pylist() if len(value) < 1024]
    return found


@contextmanager
def _gateway(warehouse: Path, stall: Path) -> Iterator[tuple[str, int]]:
    program = Path(__file__).with_name("stalling_gateway.py")
    command = [sys.executable, str(program), str(warehouse), str(stall)]
    command += [f"topic.queue.bytes={QUEUE_BYTES}", "drain.timeout.ms=60000"]
    command += [f"checkpoint.interval.commits={CHECKPOINT_COMMITS}"]
    log_file = warehouse.with_suffix(".log")
    with open(log_file, "wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("listening on "), log_file.read_text()
        yield line.removeprefix("listening on ").strip(), process.pid
        process.terminate()
        assert process.wait(timeout=90) == 0, log_file.read_text()
    finally:
        stall.unlink(missing_ok=True)
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell VmHWM")
