"""`GatewayProcess`: a real gateway that starts, stops, comes back and never outlives its caller."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest

from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc
from mainstem.testing import GatewayProcess, GatewayProcessError

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

WAIT_S = 30.0


def topics(address: str) -> list[str]:
    with grpc.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        answer = stub.ListTopics(admin_pb2.ListTopicsRequest(), timeout=WAIT_S, wait_for_ready=True)
        return [topic.topic for topic in answer.topics]


def create(address: str, topic: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        stub.CreateTopic(
            admin_pb2.CreateTopicRequest(topic=topic), timeout=WAIT_S, wait_for_ready=True
        )


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still lives after {WAIT_S} s"
        time.sleep(0.02)


def test_a_started_gateway_answers_at_its_address_and_ends_with_0_on_sigterm(
    tmp_path: Path,
) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        assert topics(gateway.address) == []
        resident = gateway.rss_bytes()  # first: it still grows
        assert gateway.peak_rss_bytes() >= resident > 1_000_000
        assert gateway.terminate() == 0
        assert "gateway stopped" in gateway.log
        assert gateway.peak_rss_bytes() > 1_000_000, "the peak is known after the end as well"


def test_a_killed_gateway_comes_back_on_the_same_port_with_its_topics(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        address = gateway.address
        create(address, "orders")
        assert gateway.kill() == -9
        gateway.start()
        assert gateway.address == address
        assert topics(address) == ["orders"]
        gateway.restart()
        assert gateway.address == address
        assert topics(address) == ["orders"]


def test_leaving_the_block_leaves_neither_process_nor_open_file_behind(
    no_leaks: None, tmp_path: Path
) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        pid = gateway.pid
    assert not is_alive(pid)


def test_an_exception_in_the_block_stops_the_gateway_too(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "w")
    with pytest.raises(ZeroDivisionError), gateway:
        raise ZeroDivisionError
    assert not is_alive(gateway.pid)


def test_a_gateway_that_refuses_its_settings_is_an_error_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(GatewayProcessError, match=r"(?s)exit code 1.*no setting 'no\.such\.key'"),
        GatewayProcess(tmp_path / "w", settings={"no.such.key": 1}),
    ):
        pytest.fail("it must not start")


def test_variables_of_the_caller_do_not_reach_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSTEM_NUM_PARTITIONS", "not a number")
    with GatewayProcess(tmp_path / "w") as gateway:
        assert topics(gateway.address) == []


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process that its parent died"
)
def test_the_gateway_dies_with_a_caller_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from mainstem.testing import GatewayProcess\n"
        "with GatewayProcess(sys.argv[1]) as gateway:\n"
        "    print(gateway.pid, flush=True); time.sleep(600)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "w")], stdout=subprocess.PIPE, text=True
    )
    with caller:
        assert caller.stdout is not None
        pid = int(caller.stdout.readline())
        assert is_alive(pid)
        os.kill(caller.pid, 9)
        caller.wait(WAIT_S)
        wait_until_gone(pid)
