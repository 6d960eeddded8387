"""Background tasks: whatever ends one but its owner is seen, and it starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.harness import Gate, run, running, until

from mainstem.delta_log import LocalStore
from mainstem.delta_log.format import LOG
from mainstem.delta_log.topics import Topics
from mainstem.ingest_gateway import supervised
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.supervised import SupervisedTask, begin_once
from mainstem.ingest_gateway.topics import Maintainer
from mainstem.protocol.v1 import groups_pb2, groups_pb2_grpc


def ends(metrics: GatewayMetrics) -> float:
    labels = {"task": "work"}
    return metrics.registry.get_sample_value("mainstem_background_task_ends_total", labels) or 0.0


@pytest.fixture(autouse=True)
def restarts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "RESTART_AFTER_S", 0.0)


class Panic(BaseException):
    """What delta-rs raises is no Exception either."""


def fails() -> None:
    raise ValueError("what went wrong")


def panics() -> None:
    raise Panic


def is_cancelled() -> None:
    raise asyncio.CancelledError


def returns() -> None:
    pass


@pytest.mark.parametrize("end", [fails, panics, is_cancelled, returns])
def test_work_that_ends_is_logged_and_counted_and_starts_again(end: Callable[[], None]) -> None:
    async def scenario() -> None:
        metrics = GatewayMetrics()
        starts = 0
        again = asyncio.Event()

        async def work() -> None:
            nonlocal starts
            starts += 1
            if starts <= 2:
                await asyncio.sleep(0)
                end()
                return
            again.set()
            await asyncio.Event().wait()

        with structlog.testing.capture_logs() as lines:
            task = SupervisedTask("work", work, metrics, topic="t")
            async with asyncio.timeout(5):
                await again.wait()
            assert not task.done
            await task.stop()
        assert ends(metrics) == 2
        assert [(line["log_level"], line["task"], line["topic"]) for line in lines] == [
            ("error", "work", "t")
        ] * 2
        assert task.done

    asyncio.run(scenario())


def test_a_future_that_somebody_else_cancels_does_not_end_the_work_that_waits_for_it() -> None:
    async def scenario() -> None:
        shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        healed = asyncio.Event()

        async def work() -> None:
            if shared.done():
                healed.set()
                await asyncio.Event().wait()
            await shared

        metrics = GatewayMetrics()
        task = SupervisedTask("work", work, metrics)
        await asyncio.sleep(0)
        shared.cancel()
        async with asyncio.timeout(5):
            await healed.wait()
        assert ends(metrics) == 1
        await task.stop()

    asyncio.run(scenario())


def test_work_that_may_return_does_so_once_and_is_started_again_only_after_a_failure() -> None:
    async def scenario() -> None:
        metrics = GatewayMetrics()
        starts = 0
        returned = asyncio.Event()

        async def work() -> None:
            nonlocal starts
            starts += 1
            if starts == 1:
                fails()
            returned.set()

        task = SupervisedTask("work", work, metrics, returns=True)
        async with asyncio.timeout(5):
            await returned.wait()
        await asyncio.sleep(0.01)
        assert task.done
        assert (starts, ends(metrics)) == (2, 1)
        await task.stop()

    asyncio.run(scenario())


def test_a_task_that_is_stopped_between_two_starts_does_not_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervised, "RESTART_AFTER_S", 0.01)

    async def scenario() -> None:
        starts = 0

        async def work() -> None:
            nonlocal starts
            starts += 1

        task = SupervisedTask("work", work, GatewayMetrics())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await task.stop()
        await asyncio.sleep(0.03)
        assert starts == 1
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_stopping_does_not_wait_for_work_that_does_not_give_way() -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await release.wait()

        task = SupervisedTask("work", work, GatewayMetrics())
        await asyncio.sleep(0)
        with structlog.testing.capture_logs() as lines:
            await task.stop(timeout_s=0.01)
        assert [line["event"] for line in lines] == ["background task does not stop"]
        release.set()

    asyncio.run(scenario())


@pytest.mark.parametrize("end", [fails, panics, is_cancelled])
def test_work_that_is_done_once_and_fails_is_logged_and_counted(end: Callable[[], None]) -> None:
    async def scenario() -> None:
        metrics = GatewayMetrics()

        async def work() -> None:
            end()

        with structlog.testing.capture_logs() as lines:
            task = begin_once("work", work(), metrics, topic="t")
            await asyncio.wait({task})
            await asyncio.sleep(0)
        assert ends(metrics) == 1
        assert [(line["log_level"], line["task"], line["topic"]) for line in lines] == [
            ("error", "work", "t")
        ]

    asyncio.run(scenario())


def test_a_gateway_whose_background_tasks_are_cancelled_starts_them_again(tmp_path: Path) -> None:
    names = {"heartbeat", "recover", "watch groups"}

    def tasks() -> dict[str, asyncio.Task[object]]:
        return {task.get_name(): task for task in asyncio.all_tasks() if task.get_name() in names}

    async def scenario() -> None:
        async with running(tmp_path) as (_, client):
            before = tasks()
            assert set(before) == names
            for task in before.values():
                task.cancel()
            await until(
                lambda: set(tasks()) == names and tasks().items().isdisjoint(before.items())
            )
            await client.create("t")
        assert tasks() == {}

    run(scenario())


def test_work_that_is_finished_is_waited_for_and_does_not_start_again() -> None:
    async def scenario() -> None:
        metrics, may_end, starts = GatewayMetrics(), asyncio.Event(), 0

        async def work() -> None:
            nonlocal starts
            starts += 1
            await may_end.wait()
            fails()

        task = SupervisedTask("work", work, metrics, returns=True)
        await asyncio.sleep(0)
        assert not await task.finish(0.01)
        asyncio.get_running_loop().call_later(0.01, may_end.set)
        with structlog.testing.capture_logs() as lines:
            assert await task.finish(5.0)
            await asyncio.sleep(0.01)
        assert (task.done, starts, ends(metrics)) == (True, 1, 1)
        assert [line["log_level"] for line in lines] == ["error"]

    asyncio.run(scenario())


def task_of(name: str) -> asyncio.Task[Any]:
    """The task that runs a coroutine function of this name."""
    (found,) = [
        one for one in asyncio.all_tasks() if getattr(one.get_coro(), "__name__", "") == name
    ]
    return found


def test_who_looks_after_groups_is_back_when_its_task_was_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, group_metadata_refresh_interval_ms=20) as (gateway, client):
            stub = groups_pb2_grpc.GroupsStub(client.channel)
            beat = groups_pb2.HeartbeatRequest(group="g", member_id="m", topics=["t"])
            await stub.Heartbeat(beat)
            groups = gateway._groups.running
            assert groups is not None
            await until(lambda: groups.members_count == 1)
            task_of("_mind").cancel()
            await stub.Leave(groups_pb2.LeaveRequest(group="g", member_id="m"))
            await until(lambda: groups.members_count == 0)
            labels = {"task": "look after groups"}
            name = "mainstem_background_task_ends_total"
            assert gateway._metrics.registry.get_sample_value(name, labels) == 1

    run(scenario())


def test_upkeep_whose_task_was_cancelled_is_done_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate("list_files", "topics/t")
        root = LocalStore(tmp_path)
        store = FaultyStore(root)
        topics = Topics(store)
        topics.create("t", 1)
        opened = topics.open("t")
        metrics = GatewayMetrics()
        maintainer = Maintainer(1_000, metrics)
        store.before = gate
        maintainer.committed(opened)
        await until(lambda: gate.calls > 0)
        store.calls.clear()
        task_of("_maintain").cancel()
        gate.open()
        await until(lambda: ("list_files", f"topics/t/{LOG}") in store.calls)
        assert await maintainer.close(10)
        name, labels = "mainstem_background_task_ends_total", {"task": "maintain topic"}
        assert metrics.registry.get_sample_value(name, labels) == 1
        root.close()

    run(scenario())
