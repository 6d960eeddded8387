"""Topics whose store hangs keep neither the threads nor the turns of others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.harness import run, running, soon, until
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.delta_log import LocalStore
from mainstem.delta_log.append import turns
from mainstem.ingest_gateway import store_threads
from mainstem.ingest_gateway.store_threads import StoreThreads

HUNG = ("hung-1", "hung-2", "hung-3")


def test_a_call_that_hangs_lends_its_turn_to_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_threads, "SLOW_S", 0.05)

    async def test() -> None:
        threads, gate = StoreThreads(2, "test"), threading.Event()
        loop = asyncio.get_running_loop()
        hanging = [loop.run_in_executor(threads, gate.wait, 30) for _ in range(3)]
        try:
            assert await soon(loop.run_in_executor(threads, lambda: "others go on"))
            assert not any(one.done() for one in hanging)
        finally:
            gate.set()
        assert await soon(asyncio.gather(*hanging)) == [True, True, True]
        await until(lambda: not threads._running and threads._lent_count == 0)
        threads.shutdown()

    run(test())


def test_no_more_calls_than_there_are_turns_run_while_none_hangs() -> None:
    async def test() -> None:
        threads, lock = StoreThreads(2, "test"), threading.Lock()
        now = most = 0

        def work() -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            threading.Event().wait(0.002)
            with lock:
                now -= 1

        loop = asyncio.get_running_loop()
        await soon(asyncio.gather(*(loop.run_in_executor(threads, work) for _ in range(50))))
        assert most == 2
        threads.shutdown()

    run(test())


def test_a_failure_is_told_and_a_call_that_waits_when_they_are_shut_down_is_cancelled() -> None:
    async def test() -> None:
        threads, gate = StoreThreads(1, "test"), threading.Event()
        loop = asyncio.get_running_loop()
        failing = loop.run_in_executor(threads, lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await soon(failing)
        await until(lambda: not threads._running)
        hanging = loop.run_in_executor(threads, gate.wait, 30)
        waiting = loop.run_in_executor(threads, lambda: None)
        threads.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(asyncio.CancelledError):
            await soon(waiting)
        gate.set()
        assert await soon(hanging)
        with pytest.raises(RuntimeError, match="shutdown"):
            loop.run_in_executor(threads, lambda: None)

    run(test())


def test_topics_whose_store_hangs_hold_up_no_append_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_threads, "SLOW_S", 0.05)
    monkeypatch.setattr(turns, "SLOW_S", 0.05)
    hanging = threading.Event()
    hangs = threading.Event()

    def hang(call: str, path: str) -> None:
        if call.startswith("put") and "topics/hung" in path and hangs.is_set():
            assert hanging.wait(60)

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=hang)
        async with running(store=store, append_threads=2, commit_concurrency=2) as (_, client):
            for topic in (*HUNG, "t", "new"):
                await client.create(topic, commit_interval_ms="1")
            for topic in (*HUNG, "t"):
                await client.produce(values_request(b"v", topic=topic))
            hangs.set()
            waiting = [
                asyncio.create_task(client.produce(values_request(b"v", topic=topic)))
                for topic in HUNG
            ]
            try:
                await soon(client.describe("new"))
                for topic in ("t", "new"):
                    await soon(client.produce(values_request(b"v", topic=topic)))
                assert not any(one.done() for one in waiting)
            finally:
                hanging.set()
            for one in waiting:
                assert (await soon(one)).results[0].base_offset == 1

    run(test())
