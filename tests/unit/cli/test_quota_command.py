"""`mainstem quota`: against a gateway of the test's own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.ingest_gateway.harness import run, running

from mainstem.cli.root import cli


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["quota", *words])


def _objects(answer: Result) -> list[dict[str, Any]]:
    """The gateway of the same process writes its log there, too."""
    lines = [line for line in answer.stdout.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def test_quotas_are_set_listed_and_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, _):

            async def quota(*words: str) -> Result:
                words = (*words, "-b", gateway.address, "--format", "json")
                return await asyncio.to_thread(_run, *words)

            made = await quota(
                "set", "--user", "alice", "--producer-byte-rate", "1MiB", "--request-rate", "2.5"
            )
            assert made.exit_code == 0, made.output
            for words in (
                ("--user", "User:bob", "--client-id", "c,\n:ü", "--consumer-byte-rate", "1000"),
                ("--default-user", "--default-client", "--connections", "3"),
            ):
                assert (await quota("set", *words)).exit_code == 0
            rows = _objects(await quota("list"))
            assert [(row["principal"], row["client_id"]) for row in rows] == [
                ("<default>", "<default>"),
                ("User:alice", ""),
                ("User:bob", "c,\n:ü"),
            ]
            assert rows[1] == {
                "principal": "User:alice",
                "client_id": "",
                "producer_byte_rate": 1_048_576,
                "consumer_byte_rate": None,
                "request_rate": 2.5,
                "connections": None,
                "open_transactions": None,
                "groups": None,
                "controller_mutation_rate": None,
            }
            gone = await quota("remove", "--user", "alice", "--quota", "request-rate")
            assert gone.exit_code == 0
            assert _objects(await quota("list"))[1]["request_rate"] is None
            assert (await quota("remove", "--user", "alice")).exit_code == 0
            again = await quota("remove", "--user", "alice")
            assert (again.exit_code, "nothing was changed" in again.stderr) == (0, True)
            assert len(_objects(await quota("list"))) == 2
            wrong = await quota("set", "--user", "alice", "--request-rate", "nan")
            assert wrong.exit_code == 1
            assert "INVALID_CONFIG" in wrong.stderr or "must be more than 0" in wrong.stderr

    run(test())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "--user", "a"), "say what to set"),
        (("set", "--request-rate", "1"), "say whom the quota is for"),
        (("set", "--user", "a", "--default-user", "--request-rate", "1"), "not both"),
        (("set", "--client-id", "a", "--default-client", "--request-rate", "1"), "not both"),
        (("set", "--user", "", "--request-rate", "1"), "nobody's"),
        (("set", "--user", "a", "--producer-byte-rate", "fast"), "not a number of bytes"),
        (("set", "--user", "a", "--request-rate", "fast"), "not a valid"),
        (("remove", "--user", "a", "--quota", "topics"), "is not one of"),
        (("remove",), "say whom the quota is for"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(words: tuple[str, ...], message: str) -> None:
    answer = _run(*words)
    assert answer.exit_code == 2
    assert message in " ".join(answer.stderr.split())
