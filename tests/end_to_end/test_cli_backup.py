"""`mainstem topic backup` and `restore` beside a gateway to which others write."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mainstem.cli.root import cli
from mainstem.client import Producer
from mainstem.testing import GatewayProcess


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words, catch_exceptions=False)


@pytest.mark.fault
def test_a_backup_under_load_has_what_was_acknowledged_and_the_gateway_serves_the_restored_topic(
    tmp_path: Path,
) -> None:
    warehouse, copy = str(tmp_path / "warehouse"), str(tmp_path / "copy of orders")
    with GatewayProcess(warehouse) as gateway:
        servers = gateway.address
        place = ("--warehouse", warehouse)
        assert run("topic", "create", "orders", "-p", "2", "-b", servers).exit_code == 0
        stop, acknowledged = threading.Event(), []

        def write() -> None:
            with Producer({"bootstrap.servers": servers, "linger.ms": 0}) as producer:
                number = 0
                while not stop.is_set():
                    sent = producer.send("orders", b"%d" % number, b"k", headers=[("h", b"")])
                    acknowledged.append(sent.result(20).offset)
                    number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while len(acknowledged) < 5:
                stop.wait(0.02)
            before = len(acknowledged)
            made = run("topic", "backup", "orders", copy, *place, "--format", "json")
        finally:
            stop.set()
            writer.join()
        assert made.exit_code == 0, made.output
        count = json.loads(made.stdout)["records"]
        assert count >= before

        checked = run("topic", "restore", copy, "--as", "again", "--dry-run", *place)
        assert checked.exit_code == 0, checked.output
        taken = run("topic", "restore", copy, *place)
        assert taken.exit_code == 1
        assert "TOPIC_EXISTS" in taken.stderr
        restored = run("topic", "restore", copy, "--as", "again", *place)
        assert restored.exit_code == 0, restored.output
        lines = run("topic", "consume", "again", "-e", "-b", servers, "--format", "json")
        found = [json.loads(line) for line in lines.stdout.splitlines()]
        assert [int(one["value"]) for one in found] == list(range(count))
        assert [one["offset"] for one in found] == acknowledged[:count]
        more = CliRunner().invoke(cli, ["topic", "produce", "again", "-b", servers], input="x\n")
        assert more.exit_code == 0, more.output
    verified = run("cluster", "verify", "-T", "again", *place)
    assert verified.exit_code == 0, verified.output


def test_records_that_retention_will_remove_are_told(tmp_path: Path) -> None:
    warehouse, copy = str(tmp_path / "warehouse"), str(tmp_path / "copy")
    with GatewayProcess(warehouse) as gateway:
        servers = gateway.address
        run("topic", "create", "orders", "-p", "1", "-b", servers)
        with Producer({"bootstrap.servers": servers}) as producer:
            producer.send("orders", b"old", timestamp=1_000).result(20)
    assert run("topic", "backup", "orders", copy, "--warehouse", warehouse).exit_code == 0
    restored = run("topic", "restore", copy, "--as", "again", "--warehouse", warehouse)
    assert "some records are older" in restored.stderr
    kept = run(
        *("topic", "restore", copy, "--as", "kept", "--warehouse", warehouse),
        *("-c", "retention.ms=-1"),
    )
    assert kept.exit_code == 0
    assert "older" not in kept.stderr


def test_a_bad_place_is_refused_in_words_and_nothing_is_made(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with GatewayProcess(warehouse) as gateway:
        run("topic", "create", "orders", "-p", "1", "-b", gateway.address)
    (tmp_path / "file").write_text("mine")
    place = ("--warehouse", str(warehouse))
    for directory, message in (
        (tmp_path / "file", "is a file, not a directory"),
        (warehouse / "topics" / "copy", "is inside the warehouse"),
        (warehouse, "is inside the warehouse"),
        ("hdfs:/copy", "in a store that is not supported"),
    ):
        answer = run("topic", "backup", "orders", str(directory), *place)
        assert answer.exit_code == 1
        assert message in answer.stderr
    missing = run("topic", "backup", "ordres", str(tmp_path / "copy"), *place)
    assert (missing.exit_code, missing.stderr) == (
        1,
        "error: UNKNOWN_TOPIC: there is no topic 'ordres'\n",
    )
    assert not (tmp_path / "copy").exists()
    nothing = run("topic", "restore", str(tmp_path / "copy"), *place)
    assert "there is no directory" in nothing.stderr
