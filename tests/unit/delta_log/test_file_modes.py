"""Who may read what a gateway makes: the rights of the files of a warehouse."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.harness import run, running
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.protocol.v1 import log_pb2


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """What is not taken away by it has to be left out on purpose."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_the_group_may_read_tables_and_nobody_but_the_owner_what_is_secret(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (_, client):
            await client.create("t", commit_interval_ms="60000")
            await client.produce(values_request(b"in the table"))
            logged = values_request(b"in the log")
            logged.acks = log_pb2.ACKS_LEADER
            await client.produce(logged)
            found = {
                path.relative_to(tmp_path / "w"): path.stat().st_mode & 0o777
                for path in (tmp_path / "w").rglob("*")
            }
            files = {
                path: mode for path, mode in found.items() if (tmp_path / "w" / path).is_file()
            }
            secret = {
                path: mode
                for path, mode in files.items()
                if path.parts[0] == "wal" or path.parts[:2] == ("system", "producer_ids")
            }
            assert any(path.suffix == ".wal" for path in secret)
            assert set(secret.values()) == {0o600}
            assert {mode for path, mode in files.items() if path not in secret} == {0o640}
            assert {mode for path, mode in found.items() if path not in files} == {0o750}

    run(test())
