"""A gateway ends at any step of a commit: the next one finds all of the transaction, or nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.harness import WAIT_S, Client, run, running, soon, values
from tests.unit.ingest_gateway.payloads import values_request
from tests.unit.ingest_gateway.test_groups import fetch as committed
from tests.unit.ingest_gateway.test_groups import groups
from tests.unit.ingest_gateway.transacting import Transacting, complete

from mainstem.delta_log import LocalStore
from mainstem.errors import StoreUnavailableError

#: What changes something in the store.
_CHANGES: Final = ("put", "put_if_absent", "make_durable", "delete", "delete_all")

#: Others take over soon from a gateway that is gone, and it does not wait for its store.
_FAST: Final[Any] = {
    "gateway.heartbeat.interval.ms": 100,
    "gateway.session.timeout.ms": 300,
    "drain.timeout.ms": 1_000,
}

#: All steps with MAINSTEM_TEST_FAULTS=full, some of them otherwise.
_FULL: Final = os.environ.get("MAINSTEM_TEST_FAULTS") == "full"


class Power:
    """Fails at a change of the store, before it or after, and then always: the machine is off.

    Attributes:
        left: Changes until then; None: never.
        is_off: It has happened.
    """

    def __init__(self, *, after: bool) -> None:
        self.left: int | None = None
        self.is_off = threading.Event()
        self._after = after
        self._lock = threading.Lock()

    def before(self, call: str, path: str) -> None:
        if self.is_off.is_set():
            raise StoreUnavailableError("the machine is off")
        if not self._after:
            self._count(call, path)

    def after(self, call: str, path: str) -> None:
        if self._after:
            self._count(call, path)
        if self.is_off.is_set():
            raise StoreUnavailableError("the machine is off")

    def _count(self, call: str, path: str) -> None:
        if call not in _CHANGES or "/_gateways/" in path or self.left is None:
            return
        with self._lock:
            self.left -= 1
            if self.left < 0:
                self.is_off.set()
                raise StoreUnavailableError("the machine goes off")


async def ended(producer: Transacting, *, commit: bool = True) -> bool | None:
    """How the transaction has ended, for its producer; None: it does not know."""
    try:
        await producer.end(commit=commit)
    except grpc.aio.AioRpcError as error:
        return False if "is aborted" in (error.details() or "") else None
    return True


async def until_ended(producer: Transacting) -> bool:
    async with asyncio.timeout(WAIT_S):
        while (found := await ended(producer)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("topics", [["a"], ["a", "b"]])
def test_a_gateway_that_ends_at_any_step_of_a_commit_leaves_all_of_it_or_nothing(
    tmp_path: Path, topics: list[str], after: bool
) -> None:
    """One topic: its commit decides. Two and offsets: a row does."""

    async def crash(place: Path, step: int) -> bool:
        """Whether the transaction was still on its way at that step."""
        power = Power(after=after)
        store = FaultyStore(LocalStore(place), power.before, power.after)
        async with running(store=store, **_FAST) as (_, client):
            for topic in ("a", "b"):
                await client.create(topic, 2)
                await client.produce(values_request(b"before", topic=topic))
            producer = await Transacting(client).init()
            await send(producer, b"1")
            await producer.end()
            await send(producer, b"2")
            power.left = step
            ending = asyncio.create_task(ended(producer))
            off = asyncio.create_task(asyncio.to_thread(power.is_off.wait, WAIT_S))
            await asyncio.wait({ending, off}, return_when=asyncio.FIRST_COMPLETED)
            was_off = power.is_off.is_set()
            first = ending.result() if ending.done() else None
            power.is_off.set()
            ending.cancel()
            await soon(off)
        async with running(place, **_FAST) as (_, client):
            producer.at(client)
            found = await until_ended(producer)
            assert first is None or first == found, "it was told otherwise before"
            offsets = await committed(groups(client))
            await check(client, place, found, offsets)
            await send(producer, b"3")
            await producer.end()
            for topic in topics:
                assert values(place, topic)[0][-1] == b"3"
        return was_off

    async def send(producer: Transacting, value: bytes) -> None:
        await producer.begin()
        for topic in topics:
            await producer.send(topic, value)
            await producer.send(topic, value, partition=1)
        if len(topics) > 1:
            await producer.offsets("g", [("a", 0, int(value))])

    async def check(
        client: Client, place: Path, found: bool, offsets: dict[tuple[str, int], int]
    ) -> None:
        expected = [b"1", b"2"] if found else [b"1"]
        for topic in topics:
            assert values(place, topic) == {0: [b"before", *expected], 1: expected}
        if len(topics) > 1:
            assert offsets == {("a", 0): 2 if found else 1}

    step, stride = 0, 1 if _FULL else 4
    while run(crash(tmp_path / str(step), step)):
        step += stride
    assert step, "the commit changes nothing in the store"


@pytest.mark.slow
@pytest.mark.parametrize("commit", [False, True])
def test_a_gateway_that_ends_at_any_step_of_the_two_phases_leaves_what_the_token_says(
    tmp_path: Path, commit: bool
) -> None:
    async def crash(place: Path, step: int) -> bool:
        power = Power(after=bool(step % 2))
        store = FaultyStore(LocalStore(place), power.before, power.after)
        async with running(store=store, **_FAST) as (_, client):
            for topic in ("a", "b"):
                await client.create(topic)
            producer = await Transacting(client).init()
            await producer.begin()
            for topic in ("a", "b"):
                await producer.send(topic, b"1")
            token = await producer.prepare()
            power.left = step // 2
            completing = asyncio.create_task(complete(client, token, commit=commit))
            off = asyncio.create_task(asyncio.to_thread(power.is_off.wait, WAIT_S))
            await asyncio.wait({completing, off}, return_when=asyncio.FIRST_COMPLETED)
            was_off = power.is_off.is_set()
            power.is_off.set()
            completing.cancel()
            await soon(off)
        async with running(place, **_FAST) as (_, client):
            await complete(client, token, commit=commit)
            for topic in ("a", "b"):
                assert values(place, topic) == ({0: [b"1"]} if commit else {})
        return was_off

    step, stride = 0, 1 if _FULL else 3
    while run(crash(tmp_path / str(step), step)):
        step += stride
