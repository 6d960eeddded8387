"""A real gateway process: how it starts, how it refuses to, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mainstem.delta_log import LocalStore, load_table, read_data_file
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

WAIT_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


class Producer:
    """A ProduceStream whose answers are collected in a thread: value → offset."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: SimpleQueue[log_pb2.ProduceRequest | None] = SimpleQueue()
        self._sent: dict[int, bytes] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.some_acknowledged = threading.Event()
        self.end: grpc.StatusCode | None = None
        self._call = log_pb2_grpc.LogStub(channel).ProduceStream(iter(self._requests.get, None))
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def send(self, value: bytes) -> None:
        number = len(self._sent) + 1
        self._sent[number] = value
        records = log_pb2.Records(records=[log_pb2.Record(value=value, partition=0)])
        self._requests.put(
            log_pb2.ProduceRequest(topic="t", correlation_id=number, records=records)
        )

    def close(self) -> None:
        self._requests.put(None)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the stream never ended"

    def _read(self) -> None:
        try:
            for answer in self._call:
                if not answer.HasField("error"):
                    value = self._sent[answer.correlation_id]
                    self.acknowledged[value] = answer.results[0].base_offset
                    self.some_acknowledged.set()
            self.end = grpc.StatusCode.OK
        except grpc.RpcError:
            self.end = self._call.code()


@contextmanager
def producing(gateway: GatewayProcess) -> Iterator[Producer]:
    with grpc.insecure_channel(gateway.address) as channel:
        producer = Producer(channel)
        try:
            yield producer
        finally:
            producer.close()


def create(gateway: GatewayProcess, **config: str) -> None:
    with grpc.insecure_channel(gateway.address) as channel:
        admin_pb2_grpc.AdminStub(channel).CreateTopic(
            admin_pb2.CreateTopicRequest(
                topic="t", config={name.replace("_", "."): value for name, value in config.items()}
            ),
            timeout=WAIT_S,
            wait_for_ready=True,
        )


def stored(warehouse: Path) -> list[bytes]:
    """The values of topic t, partition 0; asserts that offsets are dense."""
    store = LocalStore(warehouse / "topics" / "t", create=False)
    try:
        values: list[bytes] = []
        offsets: list[int] = []
        for file in load_table(store).files(0).sorted():
            for batch in read_data_file(store, file, 0, 2**62, ["value"]):
                offsets += batch.column("offset").to_pylist()
                values += batch.column("value").to_pylist()
        assert offsets == list(range(len(offsets)))
        return values
    finally:
        store.close()


def run_gateway(*arguments: str, warehouse: Path, listen: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainstem.cli", *arguments, "gateway", "run"]
    return subprocess.run(
        [*command, "--warehouse", str(warehouse), "--listen", listen],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def test_sigterm_under_load_commits_and_answers_what_was_accepted_and_exits_0(
    tmp_path: Path,
) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        create(gateway, commit_interval_ms="20")
        with producing(gateway) as producer:
            for number in range(400):
                producer.send(b"before %d" % number)
            assert producer.some_acknowledged.wait(WAIT_S)
            os.kill(gateway.pid, signal.SIGTERM)
            for number in range(400):
                producer.send(b"after %d" % number)
            assert gateway.terminate() == 0
        assert producer.end == grpc.StatusCode.OK
        assert producer.acknowledged
    values = stored(tmp_path / "w")
    assert len(values) == len(set(values))
    assert {value: values.index(value) for value in producer.acknowledged} == producer.acknowledged
    assert set(values) == set(producer.acknowledged), "what was accepted was answered"


def test_sigterm_does_not_wait_for_streams_that_are_idle_or_for_health_watchers(
    tmp_path: Path,
) -> None:
    ten_minutes = {"drain.timeout.ms": 600_000}
    with GatewayProcess(tmp_path / "w", settings=ten_minutes) as gateway:
        create(gateway)
        with grpc.insecure_channel(gateway.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watching = stub.Watch(health_pb2.HealthCheckRequest())  # type: ignore[attr-defined]
            statuses = iter(watching)
            assert next(statuses).status == health_pb2.HealthCheckResponse.SERVING
            with producing(gateway) as producer:
                producer.send(b"v")
                assert producer.some_acknowledged.wait(WAIT_S)
                assert gateway.terminate(WAIT_S) == 0
            assert next(statuses).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watching.cancel()


def test_a_killed_gateway_has_kept_what_it_acknowledged_once_and_in_order(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        create(gateway, commit_interval_ms="5")
        acknowledged: dict[bytes, int] = {}
        for life in range(3):
            with producing(gateway) as producer:
                for number in range(300):
                    producer.send(b"%d.%03d" % (life, number))
                assert producer.some_acknowledged.wait(WAIT_S)
                gateway.kill()
            acknowledged |= producer.acknowledged
            gateway.start()
        with producing(gateway) as producer:
            producer.send(b"last")
        acknowledged |= producer.acknowledged
    values = stored(tmp_path / "w")
    assert values == sorted(values), "each life's records are in the order in which they were sent"
    assert len(values) == len(set(values))
    assert {value: values.index(value) for value in acknowledged} == acknowledged
    assert b"last" in acknowledged


def test_sighup_reloads_the_log_level_and_says_what_needs_a_restart(tmp_path: Path) -> None:
    settings, log = tmp_path / "gateway.toml", tmp_path / "log"
    settings.write_text('log.level = "warning"\n')
    command = [sys.executable, "-m", "mainstem.cli", "--config", str(settings), "gateway", "run"]
    command += ["--warehouse", str(tmp_path / "w"), "--listen", "127.0.0.1:0"]

    def said(words: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while words not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            assert "gateway ready" not in log.read_text(), "a line of level info"
            settings.write_text('log.level = "info"\nfetch.threads = 7\n')
            process.send_signal(signal.SIGHUP)
            said("settings reloaded")
            assert "fetch.threads" in log.read_text(), "it needs a restart"
            with grpc.insecure_channel(address) as channel:
                stub = admin_pb2_grpc.AdminStub(channel)
                stub.CreateTopic(admin_pb2.CreateTopicRequest(topic="t"), timeout=WAIT_S)
            said("topic created")
            settings.write_text("log.level = loud\n")
            process.send_signal(signal.SIGHUP)
            said("settings not reloaded")
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
            assert "gateway stopped" in log.read_text()
        finally:
            process.kill()


def test_a_store_call_that_hangs_cannot_keep_a_gateway_alive(tmp_path: Path) -> None:
    code = """
import asyncio, sys, threading
sys.path[:0] = [sys.argv[2]]
from tests.unit.delta_log.faults import FaultyStore
from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore
from mainstem.ingest_gateway import serve

def hang(call, path):
    if call == "put" and "topics/" in path:
        print("hangs", flush=True)
        threading.Event().wait()

flags = {"listeners": "127.0.0.1:0", "drain.timeout.ms": 500}
store = FaultyStore(LocalStore(sys.argv[1]), before=hang)
config = load_gateway_config(environment={}, flags=flags)
asyncio.run(serve(config, lambda address: print(address, flush=True), store))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "w"), str(ROOT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            lines = (line.strip() for line in process.stdout)
            address = next(line for line in lines if line.startswith("127.0.0.1:"))
            with grpc.insecure_channel(address) as channel:
                admin_pb2_grpc.AdminStub(channel).CreateTopic(
                    admin_pb2.CreateTopicRequest(topic="t"), timeout=WAIT_S
                )
                producer = Producer(channel)
                producer.send(b"v")
                assert next(line for line in lines if line == "hangs")
                process.send_signal(signal.SIGTERM)
                assert process.wait(WAIT_S) == 1
                producer.close()
                assert not producer.acknowledged
        finally:
            process.kill()


def test_sigterms_until_the_very_end_change_nothing(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        create(gateway)
        while gateway.is_running:
            os.kill(gateway.pid, signal.SIGTERM)
        assert gateway.terminate() == 0


def test_a_second_sigterm_while_draining_changes_nothing(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        create(gateway)
        with producing(gateway) as producer:
            for number in range(200):
                producer.send(b"%d" % number)
            assert producer.some_acknowledged.wait(WAIT_S)
            for _ in range(2):
                os.kill(gateway.pid, signal.SIGTERM)
            assert gateway.terminate() == 0
    assert set(stored(tmp_path / "w")) == set(producer.acknowledged)


@pytest.mark.parametrize("setting", ["listeners", "metrics.listeners"])
def test_a_port_in_use_ends_the_start_with_one_sentence_and_exit_code_1(
    tmp_path: Path, setting: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        if setting == "listeners":
            done = run_gateway(warehouse=tmp_path / "w", listen=address)
        else:
            flag = f"-X{setting}={address}"
            done = run_gateway(flag, warehouse=tmp_path / "w", listen="127.0.0.1:0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [address in line for line in done.stderr.splitlines()] == [True], done.stderr


def test_a_host_that_is_not_this_machine_ends_the_start_with_one_sentence(tmp_path: Path) -> None:
    done = run_gateway(warehouse=tmp_path / "w", listen="192.0.2.1:9490")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "cannot listen on 192.0.2.1:9490: " in line


@pytest.mark.parametrize("kind", ["a file", "below a file", "a place that nobody can write to"])
def test_a_warehouse_that_cannot_be_ends_the_start_with_one_sentence_and_exit_code_1(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "file").write_text("x")
    places = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "w",
        # Root may write anywhere else.
        "a place that nobody can write to": Path("/proc/warehouse"),
    }
    done = run_gateway(warehouse=places[kind], listen="127.0.0.1:0")
    assert done.returncode == 1
    assert [str(places[kind]) in line for line in done.stderr.splitlines()] == [True], done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_java_machine_is_started_and_spark_is_not_even_imported(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "w", settings={"checkpoint.interval.commits": 1}) as gateway:
        create(gateway)
        with producing(gateway) as producer:
            for number in range(20):
                producer.send(b"%d" % number)
        assert len(producer.acknowledged) == 20
        maps = Path(f"/proc/{gateway.pid}/maps").read_text()
        assert "libjvm" not in maps
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children")
        assert children.read_text() == ""
    code = (
        "import sys, mainstem.ingest_gateway, mainstem.ingest_gateway.server, deltalake\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'py4j')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
