"""Ctrl-C while a producer is called: no lock stays taken, and no record is lost on its way."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from mainstem.client import Producer, RecordMetadata
from mainstem.client.interrupts import held_back
from mainstem.client.per_record import plain
from mainstem.errors import MainstemError
from mainstem.testing import FakeGateway

MakeProducer = Callable[..., Producer]


@pytest.fixture(autouse=True)
def handler_of_python() -> Iterator[None]:
    """A Spark session of this process has one of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Places:
    """Sends this process a SIGINT at one of the places where Python looks for signals.

    Args:
        number: Of the place, from 1.
    """

    def __init__(self, number: int) -> None:
        self.left = number

    def look(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or "/tests/" in code.co_filename:
            return
        if code.co_name == "<genexpr>":
            return  # as it is dropped, what it raises goes nowhere
        # Inside of Condition.wait, but where it sleeps, Python has no answer to an interrupt.
        if not code.co_filename.endswith("/threading.py") or code.co_name == "__enter__":
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


def interrupted(number: int, call: Callable[[], object]) -> bool:
    """Whether the call ended with an interrupt, of that place."""
    before = sys.getprofile()
    sys.setprofile(Places(number).look)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


def test_an_interrupted_produce_leaves_a_producer_that_works(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=0)
    told: list[int] = []

    def note(error: MainstemError | None, where: RecordMetadata) -> None:
        assert error is None
        told.append(where.offset)

    producer.produce("one", b"first", on_delivery=note)
    assert producer.flush(20) == 0
    done = interrupt_count = 0
    for number in range(1, 120):
        if interrupted(number, lambda: producer.produce("one", b"v", on_delivery=note)):
            interrupt_count += 1
        else:
            done += 1
        if not number % 10:
            assert producer.flush(20) == 0
    assert interrupt_count > 20
    assert producer.flush(20) == 0
    stored = len(gateway.records("one")[0])
    assert 1 + done <= stored <= 1 + done + interrupt_count
    assert told == list(range(stored))
    producer.flush(20)
    topic = producer._topics["one"]
    assert producer._engine.memory.used_bytes == topic.reserved


@pytest.mark.parametrize("call", ["poll", "flush"])
def test_an_interrupted_wait_leaves_a_producer_that_works(
    gateway: FakeGateway, make_producer: MakeProducer, call: str
) -> None:
    producer = make_producer(linger_ms=0)
    for number in range(1, 60):
        producer.produce("one", b"v", on_delivery=lambda *_: None)
        if call == "flush":
            interrupted(number, producer.flush)
        else:
            interrupted(number, lambda: producer.poll(0.01))
        assert not producer._engine.reports._serving
        assert producer.flush(20) == 0


def test_records_are_whole_or_not_there_after_an_interrupt() -> None:
    records = plain.OpenRecords()
    records.limit = 2**40
    more: Any = {"partition": 3, "waiter": print, "timestamp_ms": 5, "headers": [("h", None)]}
    for number in range(1, 20):
        before = len(records.values)
        interrupted(number, lambda: records.append(b"v", b"k", 20, **more))
        count = len(records.values)
        assert before <= count <= before + 1
        assert len(records.keys) == len(records.times_ms()) == count
        assert records.used == 20 * count
        for some in (records.explicit, records.waiters, records.timestamps_ms, records.headers):
            assert list(some) == list(range(count))


def test_an_interrupt_comes_after_what_holds_it_back() -> None:
    steps: list[str] = []

    def run() -> None:
        with held_back():
            with held_back():
                signal.raise_signal(signal.SIGINT)
                steps.append("inner")
            steps.append("outer")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert steps == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_applications_own_handler_is_called_after_it_and_stays() -> None:
    calls: list[int] = []

    def handler(number: int, _: FrameType | None) -> None:
        calls.append(number)

    signal.signal(signal.SIGINT, handler)
    with held_back():
        signal.raise_signal(signal.SIGINT)
        assert calls == []
    assert calls == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handler
