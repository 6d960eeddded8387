"""Callbacks of consumers that call back, raise, or are coroutines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.polling import poll_until

from mainstem.client import Consumer, TopicPartition
from mainstem.errors import ConsumerClosedError
from mainstem.testing._fake_fetch import FakeLogGateway

MakeConsumer = Callable[..., Consumer]


class UserError(Exception):
    """Of the application."""


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 4, "one": 1}) as running:
        running.append("one", 0, [b"%d" % number for number in range(20)])
        yield running


@pytest.fixture
def make(gateway: FakeLogGateway) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make_one(**settings: object) -> Consumer:
        config = {
            name if name == "on_commit" else name.replace("_", "."): value
            for name, value in settings.items()
        }
        base = {
            "bootstrap.servers": gateway.address,
            "retry.backoff.ms": 5,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
        made.append(Consumer({**base, **config}))
        return made[-1]

    yield make_one
    for consumer in made:
        consumer.close()


def members(gateway: FakeLogGateway) -> int:
    group = gateway.groups.coordinator.groups.get("g")
    return 0 if group is None else len(group.members)


def heart_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "mainstem-heartbeat"]


@pytest.mark.parametrize("call", ["close", "unsubscribe"])
@pytest.mark.parametrize("begun_by", ["close", "unsubscribe"])
def test_on_revoke_may_close_or_unsubscribe_and_is_called_once(
    gateway: FakeLogGateway, make: MakeConsumer, call: str, begun_by: str
) -> None:
    consumer = make()
    calls: list[list[TopicPartition]] = []

    def on_revoke(one: Consumer, gone: list[TopicPartition]) -> None:
        calls.append(gone)
        one.commit(asynchronous=False)
        getattr(one, call)()

    consumer.subscribe(["one"], on_revoke=on_revoke)
    assert consumer.poll(10) is not None
    getattr(consumer, begun_by)()
    assert [[tp.partition for tp in gone] for gone in calls] == [[0]]
    assert members(gateway) == 0
    assert gateway.groups.offsets["g", "one", 0] == 1
    if "close" in (call, begun_by):
        assert not heart_threads()
        with pytest.raises(ConsumerClosedError):
            consumer.poll(0)


def test_close_in_on_revoke_of_a_rebalance_gives_everything_up_once(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    first, second = make(), make()
    calls: list[list[int]] = []

    def on_revoke(one: Consumer, gone: list[TopicPartition]) -> None:
        calls.append(sorted(tp.partition for tp in gone))
        one.close()

    first.subscribe(["t"], on_revoke=on_revoke)
    poll_until(lambda: len(first.assignment()) == 4, first)
    second.subscribe(["t"])
    poll_until(lambda: calls != [], second, first)
    assert sorted(one for gone in calls for one in gone) == [0, 1, 2, 3], "each is revoked once"
    poll_until(lambda: len(second.assignment()) == 4, second)
    with pytest.raises(ConsumerClosedError):
        first.poll(0)


def test_on_revoke_may_subscribe_to_something_else(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe(["one"], on_revoke=lambda one, _: one.subscribe(["t"]))
    assert consumer.poll(10) is not None
    consumer.unsubscribe()
    poll_until(lambda: {tp.topic for tp in consumer.assignment()} == {"t"}, consumer)


@pytest.mark.parametrize("begun_by", ["close", "unsubscribe"])
def test_a_poll_in_on_revoke_hands_out_nothing_of_what_goes_and_does_not_wait(
    gateway: FakeLogGateway, make: MakeConsumer, begun_by: str
) -> None:
    consumer = make()
    found: list[Any] = []

    def on_revoke(one: Consumer, gone: list[TopicPartition]) -> None:
        found.append(one.poll(None))
        found.append(one.consume(5))
        found.append(one.poll_batch(30.0))

    consumer.subscribe(["one"], on_revoke=on_revoke)
    assert consumer.poll(10) is not None
    getattr(consumer, begun_by)()
    assert found == [None, [], {}]
    assert gateway.groups.offsets["g", "one", 0] == 1


def test_what_on_revoke_raises_comes_out_of_close_which_has_done_all_the_rest(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    told: list[object] = []

    def on_commit(error: object, offsets: list[TopicPartition]) -> None:
        if offsets[0].offset == 1:
            told.append(error)
            raise UserError("second")

    def on_revoke(one: Consumer, gone: list[TopicPartition]) -> None:
        raise UserError("first")

    consumer = make(on_commit=on_commit)
    consumer.subscribe(["one"], on_revoke=on_revoke)
    assert consumer.poll(10) is not None
    with pytest.raises(UserError, match="first"):
        consumer.close()
    assert told == [None], "the last commit was told"
    assert members(gateway) == 0
    assert gateway.groups.offsets["g", "one", 0] == 1
    assert not heart_threads()


def test_on_commit_is_told_of_asynchronous_commits_that_end_in_close(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    told: list[tuple[object, int]] = []
    consumer = make(
        enable_auto_commit=False, on_commit=lambda error, tps: told.append((error, tps[0].offset))
    )
    consumer.subscribe(["one"])
    assert consumer.poll(10) is not None
    consumer.commit(asynchronous=True)
    consumer.close()
    assert told == [(None, 1)]


def test_on_commit_is_told_of_automatic_commits(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    told: list[tuple[object, int]] = []
    consumer = make(
        auto_commit_interval_ms=10,
        on_commit=lambda error, tps: told.append((error, tps[0].offset)),
    )
    consumer.subscribe(["one"])
    assert len(consumer.consume(20, 10)) == 20
    poll_until(lambda: told != [], consumer)
    assert told[0][0] is None
    consumer.close()
    assert told[-1] == (None, 20)


def test_on_commit_may_call_the_consumer_and_is_called_once_for_each_commit(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    told: list[int] = []

    def on_commit(error: object, offsets: list[TopicPartition]) -> None:
        told.append(offsets[0].offset)
        if len(told) < 3:
            consumer.poll(0)
        else:
            consumer.close()

    consumer = make(enable_auto_commit=False, on_commit=on_commit)
    consumer.assign([TopicPartition("one", 0)])
    assert consumer.poll(10) is not None
    for offset in range(5):
        consumer.commit(offsets=[TopicPartition("one", 0, offset)])
    poll_until(lambda: len(told) >= 3, consumer)
    assert told == [0, 1, 2, 3, 4]


async def coroutine(*_: object) -> None:
    """Nobody would await it."""


def test_coroutine_functions_are_refused_by_name(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    for name in ("on_assign", "on_revoke", "on_lost"):
        with pytest.raises(TypeError, match=f"{name}.*coroutine.*AsyncConsumer"):
            consumer.subscribe(["one"], **{name: coroutine})
    with pytest.raises(TypeError, match=r"on_commit.*coroutine.*AsyncConsumer"):
        make(on_commit=coroutine)
    with pytest.raises(TypeError, match="on_assign is a int"):
        consumer.subscribe(["one"], on_assign=1)  # type: ignore[arg-type]


def test_a_callback_that_returns_a_coroutine_is_told(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    def on_assign(one: Consumer, added: list[TopicPartition]) -> object:
        return coroutine(one, added)

    consumer = make()
    consumer.subscribe(["one"], on_assign=on_assign)
    with pytest.raises(TypeError, match=r"coroutine.*AsyncConsumer"):
        poll_until(lambda: False, consumer)
