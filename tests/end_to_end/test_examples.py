"""Every example in `examples/` runs as its first lines say, against a real gateway."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import pytest

from mainstem.client import AdminClient, Producer
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

TIMEOUT_S = 100
PROTO_ROOT = Path("ingest_gateway/proto")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("examples") / "warehouse") as process:
        yield process


@pytest.fixture
def topic(gateway: GatewayProcess, request: pytest.FixtureRequest) -> str:
    """A new topic of three partitions."""
    name = request.node.name[:200].split("[")[0]
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic(name, 3)
    return str(name)


def run(
    arguments: Sequence[object],
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> list[str]:
    """Runs a program; returns the lines that it printed."""
    answer = subprocess.run(
        [*map(str, arguments)],
        cwd=directory,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout.splitlines()


def record_count(gateway: GatewayProcess, topic: str) -> int:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        described = admin.describe_topic(topic)
    return sum(one.high_watermark for one in described.partitions)


def fill(gateway: GatewayProcess, topic: str) -> None:
    """Four records in partition 0, two in partition 2, over two table commits."""
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number in range(4):
            producer.produce(topic, b"value %d" % number, key="alice", partition=0)
        producer.flush()
        for number in range(2):
            producer.produce(topic, None, key=f"bob {number}", partition=2, timestamp=number + 1)


PARTITION_LINES = [
    "partition 0: 4 records, offsets 0 to 3",
    "partition 2: 2 records, offsets 0 to 1",
]


def test_the_client_example_delivers_by_callback_future_and_batch(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    lines = run([sys.executable, repo_root / "examples/producer.py", gateway.address, topic])
    kinds = [line.partition(":")[0] for line in lines]
    assert kinds.count("callback") == kinds.count("future") == 1, lines
    assert "batch" in kinds
    assert record_count(gateway, topic) == 5


def test_the_stubs_example_produces_with_nothing_but_generated_code(
    gateway: GatewayProcess, topic: str, repo_root: Path, tmp_path: Path
) -> None:
    from grpc_tools import protoc

    status = protoc.main(
        [
            "protoc",
            f"-I{repo_root / PROTO_ROOT}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--python_out={tmp_path}",
            f"--grpc_python_out={tmp_path}",
            "mainstem/v1/log.proto",
        ]
    )
    assert status == 0
    example = repo_root / "examples/python_stubs/produce.py"
    imports = [line for line in example.read_text().splitlines() if "import " in line]
    assert imports == [
        "from __future__ import annotations",
        "import sys",
        "import grpc",
        "from mainstem.v1 import log_pb2, log_pb2_grpc",
    ]
    lines = run(
        [sys.executable, example, gateway.address, topic], environment={"PYTHONPATH": str(tmp_path)}
    )
    assert [line.partition(":")[0] for line in lines] == [
        "alice",
        "bob",
        "carol",
        "in version 2 of the Delta table",
        "batch 0",
        "batch 1",
        "batch 2",
    ]
    assert "bob: partition 0," in "\n".join(lines)
    assert record_count(gateway, topic) == 6


def test_the_node_example_produces_with_the_proto_file_alone(
    gateway: GatewayProcess, topic: str, repo_root: Path, tmp_path: Path
) -> None:
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    assert not missing, f"this test needs {' and '.join(missing)}: install Node.js 18 or newer"
    copy = tmp_path / "node"
    shutil.copytree(
        repo_root / "examples/node", copy, ignore=shutil.ignore_patterns("node_modules")
    )
    run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], copy)
    lines = run(["node", "produce.js", gateway.address, topic, repo_root / PROTO_ROOT], copy)
    assert [line.partition(":")[0] for line in lines] == [
        "alice",
        "bob",
        "in version 2 of the Delta table",
        "batch 0",
        "batch 1",
        "batch 2",
    ]
    assert record_count(gateway, topic) == 5


def test_the_polars_example_reads_the_topic_as_a_table(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    fill(gateway, topic)
    lines = run([sys.executable, repo_root / "examples/read_polars.py", gateway.warehouse, topic])
    assert lines[:2] == PARTITION_LINES
    assert lines[2] == "newest: partition 0, offset 3, key alice, value b'value 3'"


def test_the_duckdb_example_reads_the_topic_as_a_table(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    fill(gateway, topic)
    lines = run([sys.executable, repo_root / "examples/read_duckdb.py", gateway.warehouse, topic])
    assert lines == [
        *PARTITION_LINES,
        "key alice: 4 records",
        "key bob 0: 1 records",
        "key bob 1: 1 records",
    ]


@pytest.mark.spark
@pytest.mark.usefixtures("quick_java")
@pytest.mark.timeout(300)  # it starts a Spark of its own, beside the one of the other tests
def test_the_spark_example_reads_the_topic_as_a_table_and_as_a_stream(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    fill(gateway, topic)
    example = repo_root / "examples/read_spark.py"
    lines = run([sys.executable, example, gateway.warehouse, topic], timeout_s=280)
    assert [line for line in lines if line.startswith(("partition", "streamed"))] == [
        *PARTITION_LINES,
        "streamed 6 records",
    ]
