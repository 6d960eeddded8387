"""What the tests of the gateway share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import grpc.aio
import pytest
from deltalake import DeltaTable
from tests.descriptors import descriptors_below

# Last in the path, so that nothing of the checkout's root hides an installed module. The tests' own
# helpers (`tests.unit.ingest_gateway.harness`) are imported from there.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.store import StoreFolder


@pytest.fixture(scope="session")
def runtimes_started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What native code keeps for itself is there before anybody looks for leaks.

    gRPC's asyncio support has a thread and sockets for as long as there is any channel, and
    delta-rs has a runtime for the life of the process.
    """
    warehouse = LocalStore(tmp_path_factory.mktemp("warehouse"))
    Topics(warehouse).create("t", 1)
    table = StoreFolder(warehouse, "topics/t")

    DeltaTable(table.uri)  # its runtime stays for the life of the process
    warehouse.close()

    async def start() -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel("127.0.0.1:1")
        await channel.close()
        return channel

    channel = asyncio.run(start())
    yield
    del channel


@pytest.fixture
def nothing_left(
    runtimes_started: None, leak_check: Callable[[], AbstractContextManager[None]], tmp_path: Path
) -> Iterator[None]:
    """Fails the test when it leaves a thread, a file or a directory of a warehouse behind."""
    with leak_check():
        yield
    assert not descriptors_below(tmp_path), "left open"
