"""Callbacks of producers that raise, call back, or are coroutines: nothing is lost or torn open."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from mainstem.client import Producer, RecordMetadata
from mainstem.errors import BackPressureError, MainstemError, ProducerClosedError
from mainstem.testing import FakeGateway

MakeProducer = Callable[..., Producer]
Seen = list[tuple[MainstemError | None, int]]


class UserError(Exception):
    """Of the application."""


def failing(error: MainstemError | None, where: RecordMetadata) -> None:
    raise UserError(f"at {where.offset}")


def noting(seen: Seen) -> Callable[[MainstemError | None, RecordMetadata], None]:
    return lambda error, where: seen.append((error, where.offset))


def leave(producer: Producer) -> None:
    with producer:
        pass


def answered(producer: Producer, seen: int) -> None:
    """Waits until so many reports are there to be served."""
    deadline = time.monotonic() + 10
    while producer._engine.report_count < seen:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("end", ["flush", "close", "with"])
def test_one_callback_that_raises_keeps_no_record_and_no_other_report_back(
    gateway: FakeGateway, make_producer: MakeProducer, end: str
) -> None:
    producer = make_producer(linger_ms=0)
    seen: Seen = []
    producer.produce("one", b"first", on_delivery=failing)
    answered(producer, 1)
    for number in range(2_000):
        producer.produce("one", b"%d" % number, on_delivery=noting(seen))
    producer.produce("t", b"nobody asks")
    finish: dict[str, Callable[[], object]] = {
        "flush": producer.flush,
        "close": producer.close,
        "with": lambda: leave(producer),
    }
    with pytest.raises(UserError, match="at 0"):
        finish[end]()
    assert [error for error, _ in seen] == [None] * 2_000
    assert len(producer) == 0
    assert len(gateway.records("one")[0]) == 2_001
    assert sum(map(len, gateway.records("t"))) == 1


def test_the_first_of_many_errors_of_callbacks_is_raised_and_the_others_are_counted_and_logged(
    gateway: FakeGateway, make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer()
    for _ in range(5):
        producer.produce("one", b"", on_delivery=failing)
    with caplog.at_level(logging.ERROR), pytest.raises(UserError, match="at 0") as raised:
        producer.close()
    assert any("4 more" in note for note in raised.value.__notes__)
    assert sum("callback" in record.getMessage() for record in caplog.records) == 4
    producer.close()  # says it once


def test_an_exception_on_its_way_out_of_a_with_block_is_not_replaced_by_that_of_a_callback(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    seen: Seen = []
    producer = make_producer()
    producer.produce("one", b"", on_delivery=failing)
    producer.produce("one", b"", on_delivery=noting(seen))
    with pytest.raises(KeyError, match="of the block"), producer:
        raise KeyError("of the block")
    assert len(seen) == 1


def test_close_reports_what_it_gives_up_though_a_callback_raises(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_produce = lambda request: BackPressureError("full", retry_delay_ms=1)
    producer = make_producer()
    seen: Seen = []
    for number in range(10):
        callback = failing if number % 2 else noting(seen)
        producer.produce("one", b"%d" % number, on_delivery=callback)
    with pytest.raises(UserError):
        producer.close(0.1)
    assert [type(error) for error, _ in seen] == [ProducerClosedError] * 5
    assert len(producer) == 0


def test_an_interrupt_in_a_callback_ends_close_but_leaves_no_thread_and_no_report(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    seen: Seen = []

    def interrupt(error: MainstemError | None, where: RecordMetadata) -> None:
        raise KeyboardInterrupt

    producer.produce("one", b"", on_delivery=interrupt)
    for _ in range(3):
        producer.produce("one", b"", on_delivery=noting(seen))
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert len(seen) == 3
    assert len(producer) == 0
    assert not [t for t in threading.enumerate() if t.name.startswith("mainstem-producer")]


@pytest.mark.parametrize("count", [1, 3_000])
def test_poll_in_a_callback_returns_at_once_and_every_report_is_served_once(
    gateway: FakeGateway, make_producer: MakeProducer, count: int
) -> None:
    producer = make_producer()
    seen: list[int] = []

    def report(error: MainstemError | None, where: RecordMetadata) -> None:
        seen.append(where.offset)
        assert producer.poll(5.0) == 0

    for number in range(count):
        producer.produce("one", b"%d" % number, on_delivery=report)
    assert producer.flush() == 0
    assert seen == list(range(count))


def test_flush_in_a_callback_is_refused_by_name(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    seen: Seen = []
    producer.produce("one", b"", on_delivery=lambda error, where: producer.flush())
    producer.produce("one", b"", on_delivery=noting(seen))
    with pytest.raises(RuntimeError, match=r"flush\(\) was called in a delivery callback"):
        producer.flush()
    assert len(seen) == 1


def test_close_in_a_callback_works(gateway: FakeGateway, make_producer: MakeProducer) -> None:
    producer = make_producer()
    seen: list[int] = []

    def report(error: MainstemError | None, where: RecordMetadata) -> None:
        seen.append(where.offset)
        producer.close()

    for _ in range(3_000):
        producer.produce("one", b"", on_delivery=report)
    producer.flush()
    assert seen == list(range(3_000))
    assert len(producer) == 0
    with pytest.raises(ProducerClosedError):
        producer.produce("one", b"")


def test_a_callback_that_another_thread_serves_does_not_stop_flush_from_waiting_for_it(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    go, begun = threading.Event(), threading.Event()
    done: list[int] = []

    def slow(error: MainstemError | None, where: RecordMetadata) -> None:
        begun.set()
        go.wait(10)
        done.append(where.offset)

    producer.produce("one", b"", on_delivery=slow)
    poller = threading.Thread(target=producer.poll, args=(10.0,))
    poller.start()
    assert begun.wait(10)
    threading.Timer(0.2, go.set).start()
    assert producer.flush() == 0
    assert done == [0]
    poller.join()


async def coroutine(error: MainstemError | None, where: RecordMetadata) -> None:
    """Nobody would await it."""


class CallsCoroutine:
    async def __call__(self, error: MainstemError | None, where: RecordMetadata) -> None:
        """Nobody would await it."""


def test_a_poll_while_another_thread_is_in_the_last_callback_waits_for_the_next_report(
    make_producer: MakeProducer,
) -> None:
    producer = make_producer(linger_ms=0)
    begun, over = threading.Event(), threading.Event()

    def slow(error: MainstemError | None, where: RecordMetadata) -> None:
        begun.set()
        assert over.wait(20)

    producer.produce("one", b"", on_delivery=slow)
    answered(producer, 1)
    served: list[int] = []
    serving = threading.Thread(target=lambda: served.append(producer.poll(20)))
    serving.start()
    assert begun.wait(20)
    assert len(producer) == 0, "its callback has been called"
    seen: Seen = []
    waiting = threading.Thread(target=lambda: served.append(producer.poll(20)))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "there was nothing to serve"
    producer.produce("one", b"", on_delivery=noting(seen))
    waiting.join(20)
    over.set()
    serving.join(20)
    assert served == [1, 1]
    assert seen == [(None, 1)]


def test_threads_that_poll_at_the_same_time_serve_each_report_once(
    make_producer: MakeProducer,
) -> None:
    producer = make_producer(linger_ms=0)
    seen: Seen = []
    for number in range(5_000):
        producer.produce("one", b"%d" % number, on_delivery=noting(seen))
    answered(producer, 5_000)
    served: list[int] = []
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: served.append(producer.poll())) for _ in "1234"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    finally:
        sys.setswitchinterval(interval_s)
    assert sum(served) == 5_000
    assert sorted(offset for _, offset in seen) == list(range(5_000))
    assert len(producer) == 0
    assert producer._engine.memory.used_bytes == 0


@pytest.mark.parametrize("callback", [coroutine, CallsCoroutine()])
@pytest.mark.parametrize("name", ["on_delivery", "callback"])
def test_a_coroutine_function_as_a_callback_is_a_type_error_and_nothing_is_queued(
    gateway: FakeGateway, make_producer: MakeProducer, callback: object, name: str
) -> None:
    producer = make_producer()
    with pytest.raises(TypeError, match=r"coroutine.*AsyncProducer"):
        producer.produce("one", b"", **{name: callback})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"on_delivery is a str"):
        producer.produce("one", b"", **{name: "print"})  # type: ignore[arg-type]
    assert len(producer) == 0


def test_a_callback_that_returns_a_coroutine_is_told_when_it_is_called(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()

    def plain(error: MainstemError | None, where: RecordMetadata) -> object:
        return coroutine(error, where)

    producer.produce("one", b"", on_delivery=plain)
    with pytest.raises(TypeError, match=r"coroutine.*AsyncProducer"):
        producer.flush()


def test_a_program_that_ends_with_reports_unserved_is_not_told_that_stored_records_are_lost(
    gateway: FakeGateway,
) -> None:
    program = f"""
import logging, time
logging.basicConfig()
from mainstem.client import Producer
producer = Producer({{"bootstrap.servers": {gateway.address!r}, "linger.ms": 0}})
for _ in range(10):
    producer.produce("one", b"", on_delivery=lambda error, where: None)
deadline = time.monotonic() + 10
while producer._engine.report_count < 10 and time.monotonic() < deadline:
    time.sleep(0.01)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "lost" not in ended.stderr
    assert "10 delivery reports were never served" in ended.stderr
