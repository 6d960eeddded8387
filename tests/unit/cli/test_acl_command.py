"""`mainstem acl`: kafka-acls' words, at a gateway and in the table of a warehouse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.ingest_gateway.harness import run, running

from mainstem.cli.acl import commands
from mainstem.cli.root import cli

CLUSTER = "kafka-cluster"


def invoke(*args: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["acl", *args], input=text)


def rules(answer: Result) -> list[str]:
    """Each rule that was printed with `--format json`, in few words."""
    assert answer.exit_code == 0, answer.output
    found = []
    for line in answer.stdout.splitlines():
        if not line.startswith("{"):
            continue  # the log of a gateway in this process
        one = json.loads(line)
        pattern = "..." if one["pattern_type"] == "PREFIXED" else ""
        host = "" if one["host"] == "*" else f" from {one['host']}"
        found.append(
            f"{one['permission']} {one['principal']} {one['operation']} "
            f"{one['resource_type']} {one['name']}{pattern}{host}"
        )
    return found


class Table:
    """Commands on the table of a warehouse."""

    def __init__(self, warehouse: Path) -> None:
        self.where = ["--warehouse", str(warehouse), "--format", "json"]

    def create(self, *args: str) -> list[str]:
        return rules(invoke("create", *args, *self.where))

    def there(self, *args: str) -> list[str]:
        return rules(invoke("list", *args, *self.where))

    def delete(self, *args: str) -> list[str]:
        return rules(invoke("delete", *args, *self.where))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_rule_is_added_for_each_principal_resource_and_operation(table: Table) -> None:
    made = table.create(
        *("--allow-principal", "User:alice", "--allow-principal", "User:bob"),
        *("--operation", "Read", "--operation", "write", "--topic", "orders", "--topic", "x"),
    )
    assert made == [
        f"ALLOW User:{user} {operation} TOPIC {topic}"
        for user in ("alice", "bob")
        for topic in ("orders", "x")
        for operation in ("READ", "WRITE")
    ]
    assert sorted(table.there()) == sorted(made)


def test_kafka_acls_words_make_the_rules_that_it_makes(table: Table) -> None:
    assert table.create(
        *("--allow-principal", "User:p", "--producer", "--idempotent"),
        *("--topic", "raw.", "--transactional-id", "tx", "--resource-pattern-type", "prefixed"),
    ) == [
        "ALLOW User:p WRITE TOPIC raw....",
        "ALLOW User:p DESCRIBE TOPIC raw....",
        "ALLOW User:p CREATE TOPIC raw....",
        "ALLOW User:p WRITE TRANSACTIONAL_ID tx...",
        "ALLOW User:p DESCRIBE TRANSACTIONAL_ID tx...",
        f"ALLOW User:p IDEMPOTENT_WRITE CLUSTER {CLUSTER}",
    ]
    assert table.create(
        "--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g"
    ) == [
        "ALLOW User:c READ TOPIC t",
        "ALLOW User:c DESCRIBE TOPIC t",
        "ALLOW User:c READ GROUP g",
    ]
    assert table.create(
        *("--deny-principal", "User:*", "--deny-host", "203.0.113.0/24", "--topic", "*")
    ) == ["DENY User:* ALL TOPIC * from 203.0.113.0/24"]
    assert table.create(
        "--allow-principal", "User:o", "--cluster", "--operation", "DescribeConfigs"
    ) == [f"ALLOW User:o DESCRIBE_CONFIGS CLUSTER {CLUSTER}"]
    assert table.create(
        "--allow-principal", "User:o", "--cluster", "--operation", "cluster_action"
    ) == [f"ALLOW User:o CLUSTER_ACTION CLUSTER {CLUSTER}"]


def test_rules_are_listed_and_removed_by_what_they_have(table: Table) -> None:
    table.create("--allow-principal", "User:a", "--topic", "t", "--operation", "read")
    table.create("--allow-principal", "User:b", "--topic", "t", "--operation", "write")
    table.create(
        *("--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "prefixed")
    )
    matching = ("--topic", "tt", "--resource-pattern-type", "match")
    assert table.there(*matching) == ["ALLOW User:a ALL TOPIC t..."]
    assert len(table.there("--topic", "t")) == 3
    assert table.there("--principal", "User:b") == ["ALLOW User:b WRITE TOPIC t"]
    assert table.delete("--principal", "User:a", "--topic", "t", "-y") == [
        "ALLOW User:a READ TOPIC t"
    ]
    assert table.delete("--principal", "User:b", "--dry-run") == ["ALLOW User:b WRITE TOPIC t"]
    assert len(table.there()) == 2
    assert len(table.delete("--all", "-y")) == 2
    assert table.there() == []


def test_rules_are_removed_after_a_yes_only(table: Table) -> None:
    table.create("--allow-principal", "User:a", "--topic", "t")
    asked = ["delete", "--principal", "User:a", *table.where]
    answer = invoke(*asked, text="n\n")
    assert answer.exit_code == 1
    assert json.loads(answer.stdout)["principal"] == "User:a"
    assert "Remove 1 rules?" in answer.stderr
    assert len(table.there()) == 1
    done = invoke(*asked, text="y\n")
    assert done.exit_code == 0
    assert rules(done) == ["ALLOW User:a ALL TOPIC t"]
    assert "1 rules were removed" in done.stderr
    assert table.there() == []


def test_a_rule_that_is_made_while_the_question_waits_stays(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create("--allow-principal", "User:a", "--topic", "*", "--topic", "u")

    def think_for_long(question: str) -> bool:
        table.create("--deny-principal", "User:a", "--topic", "t")
        return True

    monkeypatch.setattr(commands, "confirm", think_for_long)
    monkeypatch.setattr(commands, "SECURITY_CHANGES_MAX", 1)  # in several requests
    gone = table.delete("--principal", "User:a")
    assert gone == ["ALLOW User:a ALL TOPIC *", "ALLOW User:a ALL TOPIC u"]
    assert table.there() == ["DENY User:a ALL TOPIC t"]


@pytest.mark.parametrize(
    ("args", "exit_code", "reason"),
    [
        (["create", "--topic", "t"], 1, "--allow-principal or --deny-principal"),
        (["create", "--allow-principal", "User:a"], 1, "--topic, --group"),
        (["create", "--allow-principal", "alice", "--topic", "t"], 1, "'alice' is no principal"),
        (["create", "--allow-principal", "User:a", "--consumer", "--topic", "t"], 1, "a --group"),
        (["create", "--allow-principal", "User:a", "--producer"], 1, "needs a --topic"),
        (["create", "--allow-principal", "User:a", "--topic", "t", "--idempotent"], 2, "goes with"),
        (["create", "--topic", "t", "--operation", "fly"], 2, "'fly' is not one of"),
        (["create", "--producer", "--operation", "read"], 2, "no --operation"),
        (["delete", "-y"], 2, "say which rules"),
        (["delete", "-y", "--all", "--topic", "t"], 2, "name nothing with it"),
        (["check", "--principal", "User:a", "--operation", "read"], 2, "name one resource"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_say(
    tmp_path: Path, args: list[str], exit_code: int, reason: str
) -> None:
    answer = invoke(*args, "--warehouse", str(tmp_path))
    assert answer.exit_code == exit_code, answer.output
    assert reason in answer.stderr


def test_what_the_rules_allow_is_told(tmp_path: Path, table: Table) -> None:
    table.create("--allow-principal", "User:a", "--topic", "t", "--operation", "read")

    def allowed(principal: str, operation: str, *more: str) -> bool:
        args = ["--principal", principal, "--operation", operation, "--topic", "t"]
        answer = invoke("check", *args, *table.where, *more)
        assert answer.exit_code == 0, answer.output
        return bool(json.loads(answer.stdout)["allowed"])

    assert allowed("User:a", "read")
    assert allowed("User:a", "describe")
    assert not allowed("User:a", "write")
    assert not allowed("User:b", "read")
    assert allowed("User:b", "read", "-X", "super.users=User:b")


def test_rules_that_are_kept_and_not_in_force_are_said_to_be(table: Table) -> None:
    args = ["create", "--allow-principal", "User:a", "--topic", "t", *table.where]
    assert "1 of 1 rules are new" in invoke(*args).stderr
    assert "not in force" in invoke(*args).stderr
    assert "not in force" not in invoke(*args, "-X", "authorizer=acl").stderr


@pytest.mark.parametrize("authorizer", ["none", "acl"])
def test_a_gateway_is_asked_where_no_warehouse_is_named(tmp_path: Path, authorizer: str) -> None:
    async def test() -> None:
        settings: Any = {"authorizer": authorizer, "super_users": "User:ANONYMOUS"}
        async with running(tmp_path, **settings) as (gateway, _):

            async def at_gateway(*args: str) -> Result:
                return await asyncio.to_thread(
                    invoke, *args, "-b", gateway.address, "--format", "json"
                )

            made = await at_gateway("create", "--allow-principal", "User:a", "--topic", "t")
            assert rules(made) == ["ALLOW User:a ALL TOPIC t"]
            assert ("not in force" in made.stderr) is (authorizer == "none")
            assert rules(await at_gateway("list")) == rules(made)
            check = ["check", "--principal", "User:a", "--operation", "alter", "--topic", "t"]
            assert '"allowed": true' in (await at_gateway(*check)).stdout
            gone = await at_gateway("delete", "--topic", "t", "-y")
            assert rules(gone) == rules(made)
            assert '"allowed": false' in (await at_gateway(*check)).stdout

    run(test())


def test_who_may_not_change_rules_is_told_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, authorizer="acl") as (gateway, _):
            answer = await asyncio.to_thread(
                invoke,
                "create",
                "--allow-principal",
                "User:a",
                "--topic",
                "t",
                "-b",
                gateway.address,
            )
            assert answer.exit_code == 1
            assert "User:ANONYMOUS may not ALTER the cluster" in answer.stderr

    run(test())
