"""The write-ahead log of a gateway, and the warehouse that it belongs to."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.harness import Client, run, running, until
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore, OpenTopic, Slice, Topics
from mainstem.delta_log.format import Batch, Register, registers
from mainstem.delta_log.system import WAREHOUSE_FILE, make_warehouse_id, read_warehouse_id
from mainstem.delta_log.table import TableCommit, commit_beside_leader
from mainstem.delta_log.wal import LocalWalFiles, Wal, WalRequest
from mainstem.errors import InvalidConfigError, StoreUnavailableError
from mainstem.ingest_gateway.server import Gateway
from mainstem.ingest_gateway.topics import recovery
from mainstem.protocol.v1 import log_pb2
from mainstem.records import records_to_wire_batch

pytestmark = pytest.mark.fault


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "RECOVER_AGAIN_S", 0.02)


class Site:
    """A warehouse on a volume, and write-ahead logs on another one."""

    def __init__(self, directory: Path) -> None:
        self.warehouse = directory / "mount" / "warehouse"
        self.logs = directory / "logs"
        self._aside = directory / "aside"

    def unmount(self, path: Path) -> None:
        """An empty directory is there instead."""
        os.rename(path, self._aside)
        path.mkdir()

    def mount(self, path: Path) -> None:
        shutil.rmtree(path)
        os.rename(self._aside, path)

    async def start(self) -> None:
        """A gateway starts, and ends."""
        async with self.running():
            pass

    def running(self) -> AbstractAsyncContextManager[tuple[Gateway, Client]]:
        return running(self.warehouse, wal_directory=str(self.logs), gateway_id="g")

    async def acknowledge(self, topic: str = "t", value: bytes = b"v") -> None:
        """A gateway acknowledges a record with acks=1 and is gone before its commit."""
        store = LocalStore(self.warehouse)
        topics = Topics(store)
        if topic not in topics.names():
            topics.create(topic, 1)
        opened = topics.open(topic)
        epoch = opened.state.epoch + 1
        _commit(opened, Register(registers.EPOCH, epoch))
        state = opened.state
        files = LocalWalFiles(self.logs / "g")
        wal = Wal(files, "g")
        if not wal.warehouse_id:
            wal.belong_to(make_warehouse_id(store))
        records = records_to_wire_batch([None], [value], None, [1_000])
        batches = (Batch(0, state.log_end_offset(0), 1),)
        entry = WalRequest(
            topic, state.topic_id, epoch, (Slice(0, records, None, False),), batches, 10
        )
        await wal.append(wal.take_number(), entry)
        files.close()
        await wal.close()
        store.close()

    def logged(self) -> int:
        return len(list(self.logs.glob("g/*.wal")))

    def ends_at(self, topic: str = "t") -> int:
        store = LocalStore(self.warehouse)
        opened = Topics(store).open(topic)
        end = opened.state.log_end_offset(0)
        store.close()
        return end


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_gateway_whose_warehouse_is_not_mounted_yet_does_not_start_and_gives_nothing_up(
    site: Site,
) -> None:
    async def test() -> None:
        await site.acknowledge()
        site.unmount(site.warehouse)
        with pytest.raises(StoreUnavailableError) as caught:
            await site.start()
        for part in ("belongs to warehouse", "1 acknowledged requests", "is none", "mount"):
            assert part in caught.value.message
        assert site.logged() == 1
        site.mount(site.warehouse)
        await site.start()
        assert site.ends_at() == 1
        assert site.logged() == 0

    run(test())


def test_a_log_of_another_warehouse_is_refused_also_when_it_is_empty(site: Site) -> None:
    """A warehouse that was begun under the mount point would hide behind the real one."""

    async def test() -> None:
        await site.start()
        site.unmount(site.warehouse)
        with pytest.raises(StoreUnavailableError, match="is none, as it has no system/warehouse"):
            await site.start()
        store = LocalStore(site.warehouse)
        make_warehouse_id(store)
        store.close()
        with pytest.raises(StoreUnavailableError, match="is warehouse "):
            await site.start()
        shutil.rmtree(site.logs)
        await site.start()

    run(test())


def test_a_warehouse_that_was_moved_with_its_identity_is_the_same(site: Site) -> None:
    async def test() -> None:
        await site.acknowledge()
        moved = site.warehouse.parent / "moved"
        os.rename(site.warehouse, moved)
        site.warehouse = moved
        await site.start()
        assert site.ends_at() == 1

    run(test())


def test_a_log_from_before_warehouses_had_names_is_taken_over_where_its_topic_is(
    site: Site,
) -> None:
    async def test() -> None:
        await site.acknowledge("gone")
        await site.acknowledge("t")
        os.unlink(site.logs / "g" / "log.json")
        os.unlink(site.warehouse / WAREHOUSE_FILE)
        shutil.rmtree(site.warehouse / "topics" / "gone")
        site.unmount(site.warehouse)
        with pytest.raises(StoreUnavailableError, match="does not say to which warehouse"):
            await site.start()
        assert not (site.warehouse / WAREHOUSE_FILE).exists()
        site.mount(site.warehouse)
        await site.start()
        assert site.ends_at() == 1
        found = json.loads((site.logs / "g" / "log.json").read_bytes())
        assert (
            found["warehouse_id"]
            == json.loads((site.warehouse / WAREHOUSE_FILE).read_bytes())["id"]
        )
        assert site.logged() == 1, "what has no topic is kept"

    run(test())


def test_a_topic_that_is_not_found_is_waited_for_and_gets_its_records_when_it_is_there(
    site: Site,
) -> None:
    async def test() -> None:
        await site.acknowledge()
        topic = site.warehouse / "topics" / "t"
        aside = site.warehouse / "aside"
        os.rename(topic, aside)
        for _ in range(2):
            await site.start()
            assert site.logged() == 1
        async with site.running() as (gateway, _):
            assert gateway._metrics.wal_waiting._value.get() == 1
            assert not topic.exists(), "nobody creates it for that"
            os.rename(aside, topic)
            await until(lambda: gateway._metrics.wal_waiting._value.get() == 0)
        assert site.ends_at() == 1
        assert site.logged() == 0

    run(test())


def test_records_of_a_topic_whose_directory_is_not_there_are_kept(site: Site) -> None:
    async def test() -> None:
        await site.acknowledge()
        topic = site.warehouse / "topics" / "t"
        topic.rename(site.warehouse / "aside")
        await site.start()
        assert site.logged() == 1, "that it is not there is no proof"
        (site.warehouse / "aside").rename(topic)
        await site.start()
        assert site.logged() == 0
        assert site.ends_at() == 1

    run(test())


@pytest.mark.parametrize("created_again", [False, True])
def test_records_of_a_topic_that_was_deleted_while_no_gateway_ran_are_given_up(
    site: Site, *, created_again: bool
) -> None:
    async def test() -> None:
        await site.acknowledge()
        topics = Topics(LocalStore(site.warehouse))
        topics.delete("t")
        if created_again:
            topics.create("t", 1)
        await site.start()
        assert site.logged() == 0
        assert topics.names() == ["t"] * created_again
        if created_again:
            assert site.ends_at() == 0

    run(test())


def test_a_topic_that_is_deleted_while_it_is_led_takes_its_records_along(site: Site) -> None:
    async def test() -> None:
        async with site.running() as (gateway, client):
            wal = gateway._topics._wal
            assert wal is not None
            await client.create("t", commit_interval_ms="60000")
            await client.produce(values_request(b"a"))
            await client.produce(_leader(values_request(b"b")))
            assert len(wal.topics()) == 1
            await client.delete("t")
            assert wal.topics() == []

    run(test())


def test_the_commit_that_marks_a_topic_as_deleted_is_proof_for_its_leader(site: Site) -> None:
    def mark() -> None:
        store = LocalStore(site.warehouse)
        opened = Topics(store).open("t")
        _commit(opened, Register(registers.DELETED, 1))
        store.close()

    async def test() -> None:
        async with site.running() as (gateway, client):
            wal = gateway._topics._wal
            assert wal is not None
            await client.create("t", commit_interval_ms="300")
            await client.produce(values_request(b"a"))
            await client.produce(_leader(values_request(b"b")))
            await asyncio.to_thread(mark)
            assert len(wal.topics()) == 1
            await until(lambda: wal.topics() == [])

    run(test())


def test_a_warehouse_that_vanishes_under_a_gateway_costs_no_acknowledged_record(
    site: Site,
) -> None:
    async def test() -> None:
        async with site.running() as (gateway, client):
            await client.create("t", commit_interval_ms="200")
            await client.produce(values_request(b"a"))
            await client.produce(_leader(values_request(b"b")))
            site.unmount(site.warehouse)
            await asyncio.sleep(0.6)
            assert site.logged() == 1
            site.mount(site.warehouse)
            wal = gateway._topics._wal
            assert wal is not None
            await until(lambda: wal.topics() == [])
        assert site.ends_at() == 2

    run(test())


def test_a_log_whose_volume_was_not_mounted_for_a_while_has_lost_nothing(site: Site) -> None:
    """Another log was begun under the same gateway.id, and its numbers are higher."""

    async def test() -> None:
        await site.acknowledge("t", b"old")
        await site.acknowledge("u", b"old")
        site.unmount(site.logs)
        async with site.running() as (_, client):
            await client.produce(_leader(values_request(b"new", topic="u")))
        site.mount(site.logs)
        await site.start()
        assert site.ends_at("t") == 1
        assert site.ends_at("u") == 1
        assert len(list(site.logs.glob("g/*.orphans"))) == 1
        assert site.logged() == 0

    run(test())


def test_a_gateway_that_could_not_renew_its_lease_waits_for_the_commit_with_acks_1(
    site: Site,
) -> None:
    async def test() -> None:
        async with site.running() as (gateway, client):
            cluster = gateway._topics._cluster
            await client.create("t", commit_interval_ms="60000")
            await client.produce(values_request(b"a"))
            await client.produce(_leader(values_request(b"b")))
            cluster._beat_made_at -= 10_000.0
            waits = asyncio.ensure_future(client.produce(_leader(values_request(b"c"))))
            await asyncio.sleep(0.1)
            assert not waits.done()
            await cluster.renew()
            again = asyncio.ensure_future(client.produce(_leader(values_request(b"d"))))
            await asyncio.sleep(0.1)
            assert not again.done()
            await gateway._topics.drain(10)
            await asyncio.gather(waits, again)
        assert site.ends_at() == 4

    run(test())


def test_an_id_is_made_once_and_a_file_that_makes_no_sense_is_told(site: Site) -> None:
    store = LocalStore(site.warehouse)
    assert read_warehouse_id(store) == ""
    made = make_warehouse_id(store)
    assert made == make_warehouse_id(store) == read_warehouse_id(store)
    (site.warehouse / WAREHOUSE_FILE).write_bytes(b"{")
    with pytest.raises(Exception, match="does not name the warehouse"):
        read_warehouse_id(store)
    store.close()


@pytest.mark.parametrize("name", ["a/b", ".a", "a\nb", "a\0b"])
def test_a_gateway_id_that_can_be_no_directory_is_refused(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        flags = {"warehouse": str(tmp_path), "listeners": "127.0.0.1:0", "gateway.id": name}
        with pytest.raises(InvalidConfigError, match=r"gateway\.id is"):
            await Gateway(load_gateway_config(environment={}, flags=flags)).start()

    run(test())


def _commit(opened: OpenTopic, register: Register) -> None:
    commit_beside_leader(opened, lambda _: TableCommit.of("SET", [register], timestamp_ms=1))


def _leader(request: log_pb2.ProduceRequest) -> log_pb2.ProduceRequest:
    request.acks = log_pb2.ACKS_LEADER
    return request
