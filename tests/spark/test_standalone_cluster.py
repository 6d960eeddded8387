"""Jobs as plain Spark applications on a real cluster: executors are processes of their own, which
share nothing with the driver but the warehouse.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import deltalake
import pyspark
import pytest
from tests.length import FULL
from tests.s3_server import S3Server
from tests.unit.jobs.topic_tables import Appends, all_records, appends, check_verified, file_count

import mainstem.jobs.run_job
from mainstem.client import AdminClient, Producer
from mainstem.config import StoreSettings
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.store import open_warehouse, parse_warehouse
from mainstem.jobs.catalogue import JOBS
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.end_to_end]

SPARK_HOME: Final = Path(pyspark.__file__).parent
DEADLINE_S: Final = 300.0 if FULL else 100.0

#: A cluster of two hosts, as Spark sees it, has a second address of this machine.
SECOND_HOST: Final = "127.0.0.2"
STOP_S: Final = 20.0
OLD_MS: Final = 1_700_000_000_000

#: JVMs that live for seconds.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Runs one job after another in one application, as `run_job.py` does one; then our source reads a
#: topic with the options of the same file.
ALL_JOBS: Final = """
import json, sys, tomllib
from mainstem.jobs.run_job import main
from pyspark.sql import SparkSession
warehouse, config, *jobs = sys.argv[1:]
codes = [main([job, "--warehouse", warehouse, "--config", config]) for job in jobs]
with open(config, "rb") as file:
    options = {name: str(value) for name, value in tomllib.load(file).items()}
frame = SparkSession.builder.getOrCreate().read.format("mainstem").options(
    **options, **{"mainstem.warehouse": warehouse, "subscribe": "accounts"}
).load()
print(json.dumps({"values": sorted(bytes(row.value).decode() for row in frame.collect())}))
sys.exit(any(codes))
"""


@dataclass
class Cluster:
    """A master and two workers with one core each."""

    directory: Path
    url: str = ""

    def submit(self, *application: str, **conf: str) -> list[dict[str, Any]]:
        """Runs an application; returns the objects that it printed."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.ui.enabled": "false",
            # Not before both executors are there.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "90s",
            **conf,
        }
        options = [f"--conf={name}={value}" for name, value in settings.items()]
        done = subprocess.run(
            [SPARK_HOME / "bin/spark-submit", "--master", self.url, *options, *application],
            cwd=self.directory,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def busy_executors(self) -> list[int]:
        """How many tasks each executor of the last application ran."""
        newest = max(self.directory.glob("worker-*/app-*"), key=lambda path: path.name).name
        logs = sorted(self.directory.glob(f"worker-*/{newest}/*/stderr"))
        return [log.read_text().count("Finished task") for log in logs]


def environment() -> dict[str, str]:
    # No PYTHONPATH: executors find mainstem because it is installed where their Python is.
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("AWS_")
    }
    return kept | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster on loopback, for the module."""
    directory = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as processes:

        def start(role: str, name: str, host: str, *arguments: str) -> Path:
            log = directory / f"{name}.log"
            with log.open("wb") as out:
                process = subprocess.Popen(
                    [
                        SPARK_HOME / "bin/spark-class",
                        f"org.apache.spark.deploy.{role.lower()}.{role}",
                        *("--host", host, "--port", "0", "--webui-port", "0"),
                        *arguments,
                    ],
                    env=environment(),
                    stdout=out,
                    stderr=out,
                )
            processes.callback(stop, process)
            return log

        master = start("Master", "master", "127.0.0.1")
        url = wait_for(master, r"Starting Spark master at (spark://\S+)")
        for name, host in (("worker-1", "127.0.0.1"), ("worker-2", second_host())):
            options = ["--cores", "1", "--memory", "600M", "--work-dir", str(directory / name)]
            start("Worker", name, host, *options, url)
        for name in ("worker-1", "worker-2"):
            wait_for(directory / f"{name}.log", r"(Successfully registered with master)")
        yield Cluster(directory, url)


def second_host() -> str:
    """Of the second worker, where this machine has two addresses for itself."""
    with socket.socket() as probe:
        try:
            probe.bind((SECOND_HOST, 0))
        except OSError:
            return "127.0.0.1"
    return SECOND_HOST


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process; a worker ends its executors with it."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(log: Path, pattern: str) -> str:
    """The first group of the pattern, once it is in the log."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        text = log.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found[1]
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


@pytest.mark.fault  # with them, as it is long and the next one runs the same program
@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
def test_a_job_is_a_plain_application_whose_tasks_run_on_every_executor(
    cluster: Cluster, tmp_path: Path, rng: random.Random
) -> None:
    store = LocalStore(tmp_path / "warehouse")
    orders = appends(Topics(store), "orders")
    for number in range(40):  # 12 MB that do not compress: several shares
        orders.append(number % 2, [rng.randbytes(3_000) for _ in range(100)], modified_ms=OLD_MS)
    before = all_records(orders.opened.store)

    program = str(mainstem.jobs.run_job.__file__)
    rows = cluster.submit(program, "compaction", "--warehouse", store.uri)

    outcomes = {row["topic"]: row["outcome"] for row in rows}
    assert outcomes["orders"] == "ok"
    assert file_count(orders.opened.store) == 2
    assert all_records(orders.opened.store) == before
    check_verified(orders.opened.store, "orders")
    busy = cluster.busy_executors()
    assert len(busy) == 2, "an executor for each worker"
    assert all(busy), f"one of them did nothing: {busy}"
    store.close()


def test_every_job_and_the_source_work_on_s3_where_the_driver_alone_was_told_how_to_reach_it(
    cluster: Cluster, tmp_path: Path, s3_server: S3Server
) -> None:
    settings = {
        "store.endpoint": s3_server.url,
        "store.access.key.id": "test",
        "store.secret.access.key": "test",
        "store.region": "us-east-1",
    }
    config = tmp_path / "gateway.toml"
    config.write_text("".join(f'"{name}" = "{value}"\n' for name, value in settings.items()))
    place = parse_warehouse(
        f"s3://{s3_server.make_bucket()}/lake", settings=StoreSettings.parse(settings)
    )
    store = open_warehouse(place, create=True)
    accounts = appends(Topics(store), "accounts", 1, cleanup_policy="compact")
    orders = appends(Topics(store), "orders", 1, retention_ms=1)
    for number in range(5):
        keys = [b"key-%d" % (number * 2 + index) for index in range(4)]
        write(accounts, keys, b"value-%d" % number)
        write(orders, keys, b"value-%d" % number)

    program = tmp_path / "all_jobs.py"
    program.write_text(ALL_JOBS)
    *rows, read = cluster.submit(str(program), store.uri, str(config), *JOBS)

    assert {row["job"] for row in rows} == JOBS.keys()
    assert {row["outcome"] for row in rows} <= {"ok", "nothing"}
    assert {(r["job"], r["topic"]) for r in rows if r["outcome"] == "ok"} >= {
        ("compaction", "orders"),
        ("keyed-compaction", "accounts"),
        ("retention", "orders"),
    }
    (survivors,) = all_records(accounts.opened.store).values()
    # Each append repeats two keys of the one before, at higher offsets.
    last = {b"key-%d" % key: min(key // 2, 4) for key in range(12)}
    assert {one.key: one.value for one in survivors} == {
        key: b"value-%d" % number for key, number in last.items()
    }
    assert read == {"values": sorted((one.value or b"").decode() for one in survivors)}
    assert all_records(orders.opened.store) == {0: []}
    for name, one in (("accounts", accounts), ("orders", orders)):
        check_verified(one.opened.store, name)
    store.close()


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.skipif(
    second_host() != SECOND_HOST, reason="Spark runs a task twice at a time on two hosts only"
)
def test_a_task_that_runs_twice_at_a_time_writes_its_records_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    with GatewayProcess(tmp_path / "warehouse") as gateway:
        servers = {"bootstrap.servers": gateway.address}
        with AdminClient(servers) as admin, Producer(servers) as producer:
            for topic in ("in", "out"):
                admin.create_topic(topic, 4)
            for number in range(400):
                producer.produce("in", b"%d" % number, partition=number % 4)
        program = Path(__file__).parents[1] / "fault" / "speculative_process.py"
        speculation = {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.minTaskRuntime": "500ms",
            "spark.speculation.quantile": "0.5",
        }
        place = (str(gateway.warehouse), gateway.address, str(attempts))
        cluster.submit(str(program), *place, **speculation)
        table = deltalake.DeltaTable(gateway.warehouse / "topics" / "out").to_pyarrow_table()
        with AdminClient(servers) as admin:
            left = [one.state for one in admin.list_transactions()]
    seen = {one.name for one in attempts.glob("0-*")}
    assert seen >= {"0-0", "0-1", "0-1.passed"}, "no second attempt ran beside the first"
    assert sorted(table["value"].to_pylist()) == sorted(b"%d" % number for number in range(400))
    assert "prepared" not in [state.lower() for state in left]


def write(one: Appends, keys: list[bytes], value: bytes) -> None:
    one.append(
        0,
        [value] * len(keys),
        keys=keys,
        timestamps_ms=[OLD_MS] * len(keys),
        modified_ms=OLD_MS,
    )
