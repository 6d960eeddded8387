"""Readers that ask for much and then stop reading: what the gateway keeps for them is bounded, and
others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest

from mainstem.client import AdminClient, Producer
from mainstem.errors import BackPressureError
from mainstem.protocol import error_from_rpc
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

MIB = 1024 * 1024
DEADLINE_S = 60.0

READERS = 4
FETCHES = 50

#: Of answers that nobody has read, in the gateway. What is asked for is 25 times as much.
QUEUE_BYTES = 8 * MIB

#: The queue, and what answers are made from.
GROWN_BYTES_MAX = QUEUE_BYTES + 64 * MIB

#: Stops itself as soon as its requests are on their way.
READER = """
import os, signal, sys
import grpc
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    grpc.channel_ready_future(channel).result(60)
    log = log_pb2_grpc.LogStub(channel)
    request = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t")])
    calls = [log.Fetch.future(request) for _ in range(int(sys.argv[2]))]
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_readers_that_are_stopped_cost_no_more_than_the_queue_and_hold_up_nobody(
    tmp_path: Path,
) -> None:
    settings = {"fetch.queue.bytes": QUEUE_BYTES, "fetch.max.bytes": 2 * MIB}
    readers: list[subprocess.Popen[bytes]] = []
    with GatewayProcess(tmp_path / "warehouse", settings=settings) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("t", 1)
        with Producer({"bootstrap.servers": gateway.address}) as producer:
            for _ in range(20):
                producer.produce("t", os.urandom(100_000))
        with grpc.insecure_channel(gateway.address) as channel:
            log = log_pb2_grpc.LogStub(channel)
            assert fetched_bytes(log) > MIB
            before = gateway.peak_rss_bytes()
            try:
                for _ in range(READERS):
                    command = [sys.executable, "-c", READER, gateway.address, str(FETCHES)]
                    readers.append(subprocess.Popen(command))
                for reader in readers:
                    os.waitpid(reader.pid, os.WUNTRACED)
                ends_at = time.monotonic() + 2.0
                while time.monotonic() < ends_at:
                    log.Metadata(log_pb2.MetadataRequest(topics=["t"]), timeout=5)
                    try:
                        fetched_bytes(log)
                    except grpc.RpcError as failure:
                        error = error_from_rpc(failure)
                        assert isinstance(error, BackPressureError), error
                        assert error.retry_delay_ms > 0
                assert gateway.peak_rss_bytes() - before < GROWN_BYTES_MAX
            finally:
                for reader in readers:
                    reader.send_signal(signal.SIGKILL)
                    reader.wait()
            read_again(log)


def fetched_bytes(log: log_pb2_grpc.LogStub) -> int:
    request = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t")])
    answer = log.Fetch(request, timeout=DEADLINE_S)
    return sum(one.ByteSize() for one in answer.partitions)


def read_again(log: log_pb2_grpc.LogStub) -> None:
    """Once the connections of the readers are gone, there is room again."""
    ends_at = time.monotonic() + DEADLINE_S
    while True:
        try:
            assert fetched_bytes(log) > MIB
        except grpc.RpcError as failure:
            if not isinstance(error_from_rpc(failure), BackPressureError):
                raise
            if time.monotonic() > ends_at:
                raise TimeoutError("there is no room again") from failure
            time.sleep(0.05)
        else:
            return
