"""Another gateway takes a topic over: it seals the log of the one before, and has all of it. On a
disk and in an object store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import unavailable
from tests.unit.delta_log.wal_places import DirectoryLogs, Logs, ObjectLogs

from mainstem.delta_log import Appender, CommittedRecords, Slice, Topics
from mainstem.delta_log.append import gateways_before, hand_over
from mainstem.delta_log.format import Batch, registers
from mainstem.delta_log.wal import (
    LocalWalFiles,
    OtherLogs,
    SealedWalFiles,
    Wal,
    WalRequest,
    WalSealed,
)
from mainstem.delta_log.wal import log as wal_log
from mainstem.errors import FencedError, LogDamagedError, MainstemError


@dataclass
class Gateway:
    """One of several on a warehouse, each with its log.

    Attributes:
        store_away: Its commits fail, until it is set to False.
        shown: (partition, offset, value) of what was given to readers before a commit had it.
    """

    gateway_id: str
    topics: Topics
    logs: Logs
    store_away: bool = False
    shown: list[tuple[int, int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = self.logs.open(self.gateway_id)
        self.wal = Wal(self.files, self.gateway_id)
        self.wal.belong_to("warehouse")
        self.others = OtherLogs([self.logs.place], self.gateway_id, "warehouse")

    async def lead(self) -> Appender:
        opened = faulty(self.topics.open("t"), self._fail)
        self.appender = await lead(
            opened,
            asyncio.get_running_loop()._default_executor,  # type: ignore[attr-defined,unused-ignore]
            wal=self.wal,
            other_logs=self.others.of,
            on_durable=self._show,
        )
        return self.appender

    async def send(self, number: int, partition: int = 0) -> int:
        """With acks=1; returns the table version that answered it, -1 if the log did."""
        done = self.appender.submit([Slice(partition, batch(number))], 1, write_ahead=True)
        return (await asyncio.wait_for(done, 10)).table_version

    async def settled(self) -> None:
        while self.appender.queued_bytes:  # noqa: ASYNC110 - the appender has no event for it
            await asyncio.sleep(0.001)

    async def die(self) -> None:
        """Is gone without a goodbye; what it has accepted fails."""
        if hasattr(self, "appender"):
            await self.appender.close(0)
        await self.others.close()
        await self.wal.close()
        self.files.close()

    def _fail(self, call: str, path: str) -> None:
        if self.store_away and call == "put":
            raise unavailable()

    def _show(self, records: CommittedRecords) -> None:
        for partition, (offset, slices) in records.partitions.items():
            for one in slices:
                for value in one.records.column("value").to_pylist():
                    self.shown.append((partition, offset, value))
                    offset += 1


@dataclass
class Cluster:
    topics: Topics
    logs: Logs

    @asynccontextmanager
    async def gateways(self, *ids: str) -> AsyncIterator[list[Gateway]]:
        from concurrent.futures import ThreadPoolExecutor

        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
        found = [Gateway(one, self.topics, self.logs) for one in ids]
        try:
            yield found
        finally:
            for one in found:
                await one.die()


@pytest.fixture(params=["directory", "objects"])
def cluster(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Cluster:
    monkeypatch.setattr(wal_log, "RETRY_S", 0.001)
    create(topics)
    logs = DirectoryLogs(tmp_path / "wal") if request.param == "directory" else ObjectLogs()
    return Cluster(topics, logs)


def test_a_gateway_that_takes_over_has_all_that_the_one_before_acknowledged_at_its_offsets(
    cluster: Cluster, topics: Topics
) -> None:
    async def work() -> None:
        async with cluster.gateways("a", "b") as (a, b):
            await a.lead()
            assert await a.send(0) >= -1
            await a.settled()
            a.store_away = True
            for number in range(1, 5):
                assert await a.send(number) == -1
            assert a.shown[-4:] == [(0, n, b"%d" % n) for n in range(1, 5)]
            await b.lead()
            assert b.appender.log_end_offset(0) == 5
            await b.send(5)
            await b.settled()
            assert values(topics, 0) == [(n, b"%d" % n) for n in range(6)]
            # Who was frozen meanwhile acknowledges and shows nothing more.
            late = a.appender.submit([Slice(0, batch(9))], 1, write_ahead=True)
            a.store_away = False
            with pytest.raises(FencedError):
                await late
            assert b"9" not in [value for _, _, value in a.shown]

    run(work)
    assert values(topics, 0) == [(n, b"%d" % n) for n in range(6)]


def test_what_nobody_has_committed_yet_is_found_by_who_comes_after_the_next(
    cluster: Cluster, topics: Topics
) -> None:
    async def work() -> None:
        async with cluster.gateways("a", "b", "c") as (a, b, c):
            await a.lead()
            a.store_away = True
            assert await a.send(0) == -1
            await b.lead()
            b.store_away = True  # its claim has landed, and nothing else does
            await c.lead()
            await c.settled()
            assert values(topics, 0) == [(0, b"0")]
            assert gateways_before(topics.open("t").state) == ["c"], "nothing is left of the others"

    run(work)


def test_what_was_taken_over_is_committed_before_anything_is_acknowledged_behind_it(
    cluster: Cluster, topics: Topics
) -> None:
    """Its log may still lose what its owner had not checked when it was sealed."""

    async def work() -> None:
        async with cluster.gateways("a", "b") as (a, b):
            await a.lead()
            a.store_away = True
            assert await a.send(0) == -1
            await b.lead()
            b.store_away = True
            done = b.appender.submit([Slice(0, batch(1))], 1, write_ahead=True)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(done), 0.1)
            assert b.shown == []
            b.store_away = False
            assert (await done).table_version > 0  # by its commit
            b.store_away = True
            assert await b.send(2) == -1
            assert b.shown == [(0, 2, b"2")]

    run(work)


def test_a_gateway_whose_log_was_sealed_goes_on_with_the_topics_that_it_kept(
    cluster: Cluster, topics: Topics
) -> None:
    """What it acknowledges afterwards is found as well by who takes those over."""

    async def work() -> None:
        async with cluster.gateways("a", "b") as (a, b):
            await a.lead()
            a.store_away = True
            assert await a.send(0) == -1
            await b.others.of(["a"])  # for another topic
            a.store_away = False
            await a.send(1)  # finds the seal, and waits for its commit
            for _ in range(1000):
                if a.wal.generation:
                    break
                await asyncio.sleep(0.002)
            await a.send(2)  # confirms that it still leads
            await a.settled()
            a.store_away = True
            assert await a.send(3) == -1
            assert (0, 3, b"3") in a.shown
            await b.lead()
            await b.settled()
            assert values(topics, 0) == [(n, b"%d" % n) for n in range(4)]

    run(work)


def test_a_gateway_that_goes_on_behind_a_seal_acknowledges_nothing_before_it_knows_that_it_leads(
    cluster: Cluster, topics: Topics
) -> None:
    async def work() -> None:
        async with cluster.gateways("a", "b") as (a, b):
            await a.lead()
            await a.send(0)
            await a.settled()
            await b.lead()
            a.store_away = True
            late = [a.appender.submit([Slice(0, batch(8))], 1, write_ahead=True)]
            for _ in range(1000):
                if a.wal.generation:
                    break
                await asyncio.sleep(0.002)
            late.append(a.appender.submit([Slice(0, batch(9))], 1, write_ahead=True))
            await asyncio.wait(late, timeout=0.1)
            assert not any(one.done() for one in late)
            assert a.shown in ([], [(0, 0, b"0")])
            a.store_away = False
            for one in late:
                with pytest.raises(MainstemError):
                    await one

    run(work)


def test_a_damaged_log_of_another_keeps_the_topic_from_being_led_and_says_where(
    cluster: Cluster,
) -> None:
    async def work() -> None:
        async with cluster.gateways("a", "b") as (a, b):
            await a.lead()
            a.store_away = True
            assert await a.send(0) == -1
            assert await a.send(1) == -1
            name = a.wal.segment_names[0]
            if isinstance(cluster.logs, DirectoryLogs):
                segment = cluster.logs.directory / "a" / name
                segment.write_bytes(_damaged(segment.read_bytes()))
            else:
                assert isinstance(cluster.logs, ObjectLogs)
                path = f"wal/a/{name}"
                cluster.logs.store.put(path, _damaged(cluster.logs.store.read(path)))
            with pytest.raises(LogDamagedError, match=r"a/.*\.wal is damaged at byte"):
                await b.lead()

    run(work)


def test_a_topic_that_was_handed_over_with_all_in_its_table_leaves_the_log_of_its_leader_alone(
    cluster: Cluster, topics: Topics
) -> None:
    """Other topics use it. One of which something is left has it sealed as ever."""

    async def work() -> None:
        async with cluster.gateways("a", "b") as (a, b):
            appender = await a.lead()
            await a.send(0)
            await a.settled()
            await appender.close(10)
            assert appender.is_settled
            assert hand_over(topics.open("t"), appender.epoch, 7, is_settled=True)
            assert gateways_before(topics.open("t").state) == []
            await b.lead()
            assert gateways_before(topics.open("t").state) == ["b"]
            number = a.wal.take_number()
            await a.wal.append(number, WalRequest("u", "u-id", 1, *_one_batch(), 10))
            b.store_away = True
            assert await b.send(1) == -1
            await b.appender.close(0)
            assert not b.appender.is_settled

    run(work)


def _one_batch() -> tuple[tuple[Slice, ...], tuple[Batch, ...]]:
    return (Slice(0, batch(9), None, False),), (Batch(0, 9, 1),)


def _damaged(data: bytes) -> bytes:
    at = data.index(b"MSW1") + 40
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_seal_is_found_at_the_next_check_and_is_not_one_any_more_when_its_owner_goes_on(
    tmp_path: Path,
) -> None:
    files = LocalWalFiles(tmp_path / "a")
    files.check_owned()
    sealed = SealedWalFiles(tmp_path / "a", "b")
    assert sealed.is_sealed
    with pytest.raises(WalSealed, match="sealed it"):
        files.check_owned()
    sealed.delete_segments([])  # its owner runs: nothing happens
    files.own_again()
    files.check_owned()
    assert not sealed.is_sealed
    sealed.close()
    files.close()
    with pytest.raises(FileNotFoundError):
        SealedWalFiles(tmp_path / "none", "b")
    assert not (tmp_path / "none").exists()


def test_who_led_since_the_topic_was_settled_is_looked_at(topics: Topics) -> None:
    from mainstem.delta_log import TableState
    from mainstem.delta_log.format import Register

    def left(**values: int) -> list[str]:
        state = TableState("t")
        found = [Register(registers.led(name), value) for name, value in values.items()]
        state.begin(1, [Register(registers.wal("old", "x"), 5), *found])
        return gateways_before(state)

    assert left(a=3, b=4) == ["a", "b", "old"]
    state = TableState("t")
    state.begin(
        1,
        [
            Register(registers.wal("old", "x"), 5),
            Register(registers.led("a"), 3),
            Register(registers.led("b"), 4),
            Register(registers.SETTLED, 4),
        ],
    )
    assert gateways_before(state) == ["b"]
