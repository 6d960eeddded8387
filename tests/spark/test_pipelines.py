"""`mainstem pipeline`: a project, run twice by Spark's own spark-pipelines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import deltalake
import pytest
from click.testing import CliRunner
from tests.length import FULL

from mainstem.cli.demo.data import DemoRecord, read_flights, records
from mainstem.cli.root import cli
from mainstem.client import AdminClient, Producer
from mainstem.testing import GatewayProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("quick_java"),
]

RUNS_MAX = 3

FLIGHTS = list(records(read_flights().slice(0, 1000), "carrier"))


@pytest.mark.fault  # with them, as it is long
@pytest.mark.skipif(not FULL, reason="`make test-fault` only: each run starts a Spark of its own")
def test_the_example_of_a_new_project_writes_each_record_once_in_as_many_runs_as_there_are(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "flights_pipeline"

    def run(*command: str) -> list[str]:
        done = CliRunner().invoke(cli, ["pipeline", *command])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    with GatewayProcess(tmp_path / "warehouse") as gateway:
        servers = {"bootstrap.servers": gateway.address}
        where = ["--warehouse", str(gateway.warehouse), "-b", gateway.address]
        with AdminClient(servers) as admin:
            for name in ("flights", "flights.late", "flights.dlt"):
                admin.create_topic(name, 2)
        run("init", str(directory), *where)
        for part in (FLIGHTS[:600], FLIGHTS[600:]):
            send(servers, part)
            # Spark gives its Python 10 s to start. A busy machine may need a run more: it goes on
            # where the one before has failed.
            for _ in range(RUNS_MAX - 1):
                if CliRunner().invoke(cli, ["pipeline", "run", str(directory)]).exit_code == 0:
                    break
            else:
                assert "Flow late_flights has COMPLETED." in run("run", str(directory))
        late, dead = (values(gateway, f"flights.{name}") for name in ("late", "dlt"))
    expected = [one.value for one in FLIGHTS if is_late(one)]
    assert len(expected) > 20
    assert Counter(late) == Counter(expected), "each once"
    assert Counter(dead) == {b"{": 2}, "each run had one"
    table = deltalake.DeltaTable(directory / "tables" / "delays").to_pyarrow_table()
    assert table.num_rows == len(FLIGHTS)
    places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    assert len(set(places)) == len(FLIGHTS)
    states = [json.loads(line) for line in run("status", str(directory), "--format", "json")]
    assert [one["state"] for one in states].count("completed") == 2


def send(servers: dict[str, str], flights: list[DemoRecord]) -> None:
    with Producer(servers) as producer:
        producer.produce("flights", b"{")
        for one in flights:
            producer.produce("flights", one.value, one.key)


def values(gateway: GatewayProcess, topic: str) -> list[bytes]:
    table = deltalake.DeltaTable(gateway.warehouse / "topics" / topic).to_pyarrow_table()
    found: list[bytes] = table["value"].to_pylist()
    return found


def is_late(one: DemoRecord) -> bool:
    delay = json.loads(one.value)["dep_delay"]
    return delay is not None and delay > 60


def test_a_pipeline_that_makes_no_sense_fails_and_says_why(tmp_path: Path) -> None:
    directory = tmp_path / "wrong"
    started = CliRunner().invoke(cli, ["pipeline", "init", str(directory), "--warehouse", "/x"])
    assert started.exit_code == 0, started.output
    (example,) = (directory / "transformations").iterdir()
    example.write_text(example.read_text().replace('target="late"', 'target="lat"'))
    done = CliRunner().invoke(cli, ["pipeline", "run", str(directory), "--dry-run"])
    assert done.exit_code == 1
    assert "lat" in done.output
    assert CliRunner().invoke(cli, ["pipeline", "status", str(directory)]).exit_code == 1
