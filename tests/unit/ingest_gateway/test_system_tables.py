"""The platform's own tables are mended and kept small by the gateway, as topics are."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.harness import WAIT_S, Client, run, running, until
from tests.unit.ingest_gateway.test_groups import commit, fetch, groups

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.format import LAST_CHECKPOINT, LOG, LogFiles, checkpoint_path
from mainstem.delta_log.topics import SYSTEM, TOPICS
from mainstem.delta_log.upkeep import pointer_fault, write_checkpoint
from mainstem.delta_log.upkeep.log_repair import damaged_checkpoints
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.topics.maintainer import Maintainer
from mainstem.protocol.v1 import log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

TABLES = ("consumer_offsets", "producer_ids")


async def use(client: Client, offset: int) -> int:
    """Has each of the tables written to; returns a producer id."""
    await commit(groups(client), "g", [(0, offset)])
    answer: log_pb2.InitProducerResponse = await client.log.InitProducer(
        log_pb2.InitProducerRequest(), timeout=WAIT_S
    )
    return answer.producer_id


@pytest.mark.fault
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "what", ["the checkpoint is cut", "the checkpoint is gone", "the pointer is ahead"]
)
def test_a_damaged_checkpoint_or_pointer_of_a_system_table_is_mended_and_nothing_is_lost(
    tmp_path: Path, table: str, what: str
) -> None:
    store = LocalStore(tmp_path / SYSTEM / table)

    def is_whole() -> bool:
        files = LogFiles.of(store)
        return pointer_fault(store) is None and not damaged_checkpoints(store, files)

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            first_id = await use(client, 7)
        version = write_checkpoint(store)
        if what == "the checkpoint is cut":
            data = store.read(checkpoint_path(version))
            store.put(checkpoint_path(version), data[: len(data) // 2])
        elif what == "the checkpoint is gone":
            store.delete(checkpoint_path(version))
        else:
            store.put(LAST_CHECKPOINT, b'{"version":99999,"size":5}')
        assert not is_whole()
        async with running(tmp_path) as (_, client):
            assert await fetch(groups(client)) == {("t", 0): 7}
            assert await use(client, 8) != first_id
            await until(is_whole)
            assert DeltaTable(tmp_path / SYSTEM / table).version() >= version
        async with running(tmp_path) as (_, client):
            assert await fetch(groups(client)) == {("t", 0): 8}
        assert load_table(store).version > version

    run(test())
    store.close()


def test_a_topic_with_the_name_of_a_system_table_is_looked_at_once_and_so_is_the_table(
    tmp_path: Path,
) -> None:
    root = LocalStore(tmp_path)
    store = FaultyStore(root)

    async def test() -> None:
        opened = []
        for folder in (TOPICS, SYSTEM):
            topics = Topics(store, folder=folder)
            topics.create("cluster", 1)
            opened.append(topics.open("cluster"))
        maintainer = Maintainer(1_000, GatewayMetrics())
        looks = []
        for _ in range(3):
            store.calls.clear()
            for one in opened:
                maintainer.committed(one)
            await until(lambda: not maintainer._running)
            looks.append({path for call, path in store.calls if call == "list_files"})
        await maintainer.close(10)
        assert looks == [{f"topics/cluster/{LOG}", f"system/cluster/{LOG}"}, set(), set()]

    run(test())
    root.close()
