"""`mainstem cluster transactions ...`, against a real gateway and producers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mainstem.cli.root import cli
from mainstem.client import AdminClient, Producer
from mainstem.errors import TransactionAbortedError
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("transactions") / "warehouse") as process:
        with AdminClient({"bootstrap.servers": process.address}) as admin:
            admin.create_topic("orders", 1)
            admin.create_topic("audit", 1)
        yield process


def run(gateway: GatewayProcess, *arguments: str) -> Result:
    command = ["--format", "json", "cluster", "transactions", *arguments, "-b", gateway.address]
    return CliRunner().invoke(cli, command, catch_exceptions=False)


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def producer(gateway: GatewayProcess, name: str) -> Producer:
    found = Producer(
        {"bootstrap.servers": gateway.address, "transactional.id": name, "client.id": f"c-{name}"}
    )
    found.init_transactions()
    found.begin_transaction()
    found.produce("orders", b"1")
    found.produce("audit", b"2")
    return found


def test_a_prepared_transaction_is_found_and_completed_by_its_token(
    gateway: GatewayProcess,
) -> None:
    with producer(gateway, "prepared") as one:
        token = one.prepare_transaction()
    (listed,) = rows(run(gateway, "list", "--state", "prepared"))
    assert (listed["transactional_id"], listed["state"], listed["records"]) == (
        "prepared",
        "PREPARED",
        2,
    )
    (described,) = rows(run(gateway, "describe", "prepared"))
    assert (described["topics"], described["token"]) == ("audit,orders", token)
    assert described["client_id"] == "c-prepared"
    places = rows(run(gateway, "complete", token))
    assert [(one["topic"], one["base_offset"], one["records"]) for one in places] == [
        ("audit", 0, 1),
        ("orders", 0, 1),
    ]
    refused = run(gateway, "complete", "--abort", token)
    assert refused.exit_code == 1
    assert "INVALID_TXN_STATE" in refused.stderr
    assert rows(run(gateway, "list")) == []


def test_an_open_transaction_is_aborted_and_its_producer_goes_on(gateway: GatewayProcess) -> None:
    with producer(gateway, "open") as one:
        one.flush()
        assert [row["state"] for row in rows(run(gateway, "list"))] == ["OPEN"]
        assert run(gateway, "abort", "open").exit_code == 0
        with pytest.raises(TransactionAbortedError, match="operator"):
            one.commit_transaction()
        one.abort_transaction()
        with one.transaction():
            one.produce("orders", b"next")
    again = run(gateway, "abort", "open")
    assert again.exit_code == 1
    assert "no transaction of 'open' is open or prepared" in again.stderr
    unknown = run(gateway, "describe", "nobody")
    assert unknown.exit_code == 1
    assert "UNKNOWN_PRODUCER_ID" in unknown.stderr
