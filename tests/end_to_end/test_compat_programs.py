"""Programs that were written for other clients run with only their import changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.client import AdminClient
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end]

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("compat") / "warehouse") as process:
        yield process


@pytest.fixture
def topic(gateway: GatewayProcess, request: pytest.FixtureRequest) -> str:
    """A new topic of three partitions."""
    name = str(request.node.name)[:200]
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic(name, 3)
    return name


def run(repo_root: Path, program: str, *arguments: str, text: str = "") -> list[str]:
    """Runs one of the examples; returns the lines that it printed."""
    answer = subprocess.run(
        [sys.executable, f"examples/{program}", *arguments],
        cwd=repo_root,
        env=dict(os.environ),
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout.splitlines()


def test_confluents_producer_and_consumer_move_each_message_once_and_rewind(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    lines = "".join(f"line {number}\n" for number in range(500))
    program = "from_confluent_kafka/producer.py"
    told = run(repo_root, program, gateway.address, topic, text=lines)
    assert len(told) == 500
    assert all(line.startswith(f"{topic} [") for line in told)
    program = "from_confluent_kafka/consumer.py"
    read = run(repo_root, program, gateway.address, topic, topic)
    assert sorted(read) == sorted(f"b'{n}' b'line {n}'" for n in range(500))
    assert run(repo_root, program, gateway.address, topic, topic) == []
    assert sorted(run(repo_root, program, gateway.address, topic, topic, "--rewind")) == sorted(
        read
    )


def test_confluents_administration_makes_changes_and_describes_a_topic(
    gateway: GatewayProcess, repo_root: Path
) -> None:
    program = "from_confluent_kafka/admin.py"
    told = run(repo_root, program, gateway.address, "made-by-admin")
    assert told[:3] == [
        "created made-by-admin",
        "retention.ms is 3600000",
        "made-by-admin has 4 partitions",
    ]


def test_aiokafkas_producer_and_consumer_move_each_record_once(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    told = run(repo_root, "from_aiokafka/producer.py", gateway.address, topic, "200")
    assert told[0].startswith(f"{topic} [")
    assert told[1:] == ["200 records", "10 more in partition 2"]
    program = "from_aiokafka/consumer.py"
    read = run(repo_root, program, gateway.address, topic, topic, "210")
    assert sorted(read) == sorted([*(f"{n} {n}" for n in range(200)), *["batch -1"] * 10])


def test_the_programs_of_the_guide_run_as_they_are_written(
    gateway: GatewayProcess, repo_root: Path, tmp_path: Path
) -> None:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic("orders", 3)
    guide = (repo_root / "docs/guides/coming-from-kafka.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(programs) == 3
    for number, program in enumerate(programs):
        path = tmp_path / f"{number}.py"
        path.write_text(program.replace("127.0.0.1:9490", gateway.address))
        answer = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert len(answer.stdout.splitlines()) == 10
