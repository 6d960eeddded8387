"""`mainstem cluster` against a real gateway, and on the tables that it left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mainstem.client import Producer
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

WAIT_S = 60.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainstem.cli", "--format", "json", "cluster", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)


def rows(answer: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_a_gateway_is_listed_healthy_and_its_tables_are_proven(tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    with (
        GatewayProcess(warehouse, settings={"auto.create.topics.enable": True}) as gateway,
        Producer({"bootstrap.servers": gateway.address}) as producer,
    ):
        for number in range(100):
            producer.produce("orders", b"%d" % number)
        producer.flush()
        (listed,) = rows(run("info", "-b", gateway.address))
        assert (listed["address"], listed["topics_led"]) == (gateway.address, 1)
        (described,) = rows(run("describe", "-b", gateway.address))
        assert (described["state"], described["topics_led"]) == ("live", 1)
        assert rows(run("rebalance", "-b", gateway.address, "--dry-run")) == []
        (healthy,) = rows(run("health", "-b", gateway.address))
        assert (healthy["address"], healthy["status"]) == (gateway.address, "OK")
        # While the gateway leads the topic, and after it has ended.
        during = rows(run("verify", "--warehouse", str(warehouse)))
    after = rows(run("verify", "--warehouse", str(warehouse), "-T", "orders"))
    for found in (during, after):
        assert {row["status"] for row in found} == {"OK"}
        assert {row["check"]: row["checked"] for row in found}["offsets"] == 100


def test_a_cluster_that_nobody_serves_is_an_error(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "w") as gateway:
        gateway.kill()
        for verb in ("info", "health", "describe", "rebalance"):
            answer = run(verb, "-b", gateway.address)
            assert answer.returncode == 1
            assert "GATEWAY_UNAVAILABLE" in answer.stderr
