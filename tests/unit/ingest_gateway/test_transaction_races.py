"""Transactions against what may come at the same moment: jobs and administrators at their topics,
another producer with the same id, and the end of their time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.ingest_gateway.fetching import fetch
from tests.unit.ingest_gateway.harness import Client, run, running, soon, values
from tests.unit.ingest_gateway.payloads import values_request
from tests.unit.ingest_gateway.test_groups import fetch as committed
from tests.unit.ingest_gateway.test_groups import groups
from tests.unit.ingest_gateway.transacting import Transacting

from mainstem.ingest_gateway.transactions import coordination
from mainstem.ingest_gateway.transactions.opened import OpenTransaction
from mainstem.ingest_gateway.transactions.staging import Staging
from mainstem.ingest_gateway.transactions.term import Term
from mainstem.ingest_gateway.transactions.topic_appends import TopicAppends
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.protocol import error_from_rpc


async def run_on_a(warehouse: Path, job: Any) -> None:
    (row,) = await asyncio.to_thread(run_job, warehouse, job, ["a"], pool=InProcessPool)
    assert row.outcome.kind is OutcomeKind.OK, row


async def do_to_a(what: str, warehouse: Path, client: Client) -> None:
    """Something that a transaction may meet on its way into the topic."""
    if what == "compacted":
        await run_on_a(warehouse, Compaction(min_age_ms=0))
    elif what == "retained":
        await run_on_a(warehouse, Retention())
    else:
        await client.delete("a")
    if what == "created again":
        await client.create("a")


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("what", ["compacted", "retained", "deleted", "created again"])
def test_a_decided_transaction_gets_into_whatever_is_left_of_its_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, restarted: bool
) -> None:
    """Which is: into a topic that is the one that its records were sent to."""

    async def test() -> None:
        reached, goes_on = asyncio.Event(), asyncio.Event()
        append = TopicAppends.append

        async def waiting(self: TopicAppends, *arguments: Any) -> Any:
            reached.set()
            await goes_on.wait()
            return await append(self, *arguments)

        monkeypatch.setattr(TopicAppends, "append", waiting)
        async with running(tmp_path, drain_timeout_ms=1_000) as (_, client):
            await client.create("a", retention_bytes="1", rollup_files="0")
            await client.create("b")
            for _ in range(4):
                await client.produce(values_request(b"before", topic="a"))
            producer = await Transacting(client).init()
            await producer.begin()
            for topic in ("a", "b"):
                await producer.send(topic, b"1")
            await producer.offsets("g", [("a", 0, 4)])
            ending = asyncio.create_task(producer.end())
            await soon(reached.wait())
            if not restarted:
                await do_to_a(what, tmp_path, client)
                goes_on.set()
                await check(client, await soon(ending))
        if restarted:
            await asyncio.wait({ending})
            assert ending.cancelled() or isinstance(ending.exception(), grpc.RpcError)
            reached.clear()
            async with running(tmp_path) as (_, client):
                producer.at(client)
                await soon(committed(groups(client)))  # it coordinates from here on
                await soon(reached.wait())
                await do_to_a(what, tmp_path, client)
                goes_on.set()
                await check(client, await producer.end())

        assert values(tmp_path, "b") == {0: [b"1"]}

    async def check(client: Client, placed: dict[tuple[str, int], tuple[int, int]]) -> None:
        assert placed["b", 0] == (0, 1)
        again = await Transacting(client, "next").init()
        if what == "deleted":
            assert placed["a", 0] == (-1, 1)
            return
        await again.begin()
        await again.send("a", b"2")
        await again.end()
        start = 0 if what == "created again" else 4
        expected = [b"2"] if what == "created again" else [b"1", b"2"]
        assert placed["a", 0] == (-1 if what == "created again" else 4, 1)
        (found,) = await fetch(client, ("a", 0, start), format=2)
        assert [one.value for one in found.records] == expected

    run(test())


async def end_of(producer: Transacting) -> str:
    """The code of the error with which it ends; empty: it is committed."""
    try:
        await producer.end()
    except grpc.aio.AioRpcError as error:
        return error_from_rpc(error).code
    return ""


@pytest.mark.slow
def test_of_two_live_producers_with_one_id_only_whole_transactions_of_either_get_in(
    tmp_path: Path,
) -> None:
    committed_values: list[bytes] = []
    codes: set[str] = set()

    async def work(client: Client, name: int) -> None:
        dice = random.Random(name)
        producer: Transacting | None = None
        for number in range(40):
            value = b"%d-%d" % (name, number)
            try:
                if producer is None:
                    producer = await Transacting(client).init()
                await producer.begin()
                for topic in ("a", "b"):
                    await producer.send(topic, value)
                    await asyncio.sleep(dice.choice((0, 0, 0.002)))
            except grpc.aio.AioRpcError as error:
                codes.add(error_from_rpc(error).code)
                producer = None
                await asyncio.sleep(dice.random() * 0.02)
                continue
            code = await end_of(producer)
            codes.add(code)
            if code:
                producer = None
            else:
                committed_values.append(value)

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for topic in ("a", "b"):
                await client.create(topic)
            await asyncio.gather(work(client, 1), work(client, 2))
        for topic in ("a", "b"):
            found = [one or b"" for one in values(tmp_path, topic)[0]]
            assert sorted(found) == sorted(committed_values)
            for name in (b"1", b"2"):
                own = [int(one.split(b"-")[1]) for one in found if one.startswith(name)]
                assert own == sorted(own)
        assert "" in codes
        assert "PRODUCER_FENCED" in codes
        assert codes <= {
            "",
            "PRODUCER_FENCED",
            "TRANSACTION_ABORTED",
            "INVALID_TXN_STATE",
            "CONCURRENT_TRANSACTIONS",
        }, codes

    run(test())


@pytest.mark.slow
def test_a_commit_that_races_the_end_of_its_time_is_whole_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout_ms = 40
    dice = random.Random(7)
    write = Staging.write

    async def slow(self: Staging, opened: Any) -> None:
        """So that some time out on their way: too late."""
        await asyncio.sleep(dice.choice((0, 0.02, 0.05)))
        await write(self, opened)

    aborted: set[int] = set()
    abort = Term.abort

    def noted(self: Term, entry: Any, opened: OpenTransaction, failure: Any) -> None:
        aborted.add(opened.ref.number)
        abort(self, entry, opened, failure)

    monkeypatch.setattr(coordination, "TICK_S", 0.002)
    monkeypatch.setattr(Staging, "write", slow)
    monkeypatch.setattr(Term, "abort", noted)

    async def test() -> Sequence[str]:
        codes: list[str] = []
        expected: list[bytes] = []
        async with running(tmp_path) as (_, client):
            for topic in ("a", "b"):
                await client.create(topic)
            producer = await Transacting(client).init(timeout_ms=timeout_ms)
            for number in range(40):
                await producer.begin()
                value = b"%d" % number
                try:
                    for topic in ("a", "b"):
                        await producer.send(topic, value)
                    await asyncio.sleep(dice.uniform(0, timeout_ms / 800))
                    code = await end_of(producer)
                except grpc.aio.AioRpcError as error:
                    code = error_from_rpc(error).code
                codes.append(code)
                if code:
                    await producer.end(commit=False)
                else:
                    expected.append(value)
                assert bool(code) == (producer.number in aborted)
        for topic in ("a", "b"):
            assert values(tmp_path, topic) == {0: expected}
        return codes

    codes = run(test())
    assert set(codes) == {"", "TRANSACTION_TIMED_OUT"}, codes
