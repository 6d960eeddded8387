"""How many fetches a consumer has under way, and what each asks for."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

import pytest
from tests.unit.client.waiting import wait_until

from mainstem.client import Consumer, TopicPartition
from mainstem.errors import BackPressureError, MainstemError
from mainstem.protocol.v1 import log_pb2
from mainstem.testing._fake_fetch import FakeLogGateway

DEADLINE_S = 20.0
PARTITIONS = 4

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": PARTITIONS}) as running:
        yield running


@pytest.fixture
def make(gateway: FakeLogGateway) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make_one(**settings: object) -> Consumer:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(
            Consumer({"bootstrap.servers": gateway.address, "retry.backoff.ms": 5, **config})
        )
        made[-1].assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
        return made[-1]

    yield make_one
    for consumer in made:
        consumer.close()


def fill(gateway: FakeLogGateway, count: int) -> None:
    for partition in range(PARTITIONS):
        gateway.append("t", partition, [b"%d" % number for number in range(count)])


def read_all(consumer: Consumer, count: int) -> None:
    """Reads `count` records of each partition; each comes once, in order."""
    read: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}
    deadline = time.monotonic() + DEADLINE_S
    while sum(map(len, read.values())) < count * PARTITIONS:
        assert time.monotonic() < deadline, {number: len(got) for number, got in read.items()}
        for record in consumer.consume(100, 1.0):
            read[record.partition].append(record.value)
    wanted = [b"%d" % number for number in range(count)]
    assert read == dict.fromkeys(read, wanted)


def check_followed(gateway: FakeLogGateway, consumer: Consumer, partitions: Iterable[int]) -> None:
    """What is added to each partition now comes, one after the other."""
    for partition in partitions:
        gateway.append("t", partition, [b"late"])
        record = consumer.poll(DEADLINE_S)
        assert record is not None
        assert (record.partition, record.value) == (partition, b"late")


class Meeting:
    """Holds each fetch for a while, until another one is there; `together` has both requests.

    Once three pairs have met, no fetch is held any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._inside: list[log_pb2.FetchRequest] = []
        self.together: list[list[log_pb2.FetchRequest]] = []

    def __call__(self, request: log_pb2.FetchRequest) -> MainstemError | None:
        with self._lock:
            self._inside.append(request)
            if len(self._inside) > 1:
                self.together.append(list(self._inside))
                self._lock.notify_all()
            elif len(self.together) < 3:
                self._lock.wait(0.2)
            self._inside.remove(request)
        return None


def partitions_of(request: log_pb2.FetchRequest) -> set[int]:
    return {one.partition for one in request.partitions}


def test_a_consumer_that_is_behind_has_two_fetches_under_way_of_different_partitions(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    fill(gateway, 400)
    gateway.on_fetch = meeting = Meeting()
    consumer = make(max_partition_fetch_bytes=1000)

    read_all(consumer, 400)

    assert len(meeting.together) >= 2
    for one, other in meeting.together:
        assert not partitions_of(one) & partitions_of(other)


def test_one_fetch_waits_for_all_partitions_at_the_end_of_the_log(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    fill(gateway, 400)
    # A partition that only the end of this wait brought back would come too late for the test.
    consumer = make(max_partition_fetch_bytes=1000, fetch_max_wait_ms=60_000)
    read_all(consumer, 400)

    deadline = time.monotonic() + DEADLINE_S
    while len(gateway.fetches[-1].partitions) < PARTITIONS:
        assert time.monotonic() < deadline
        time.sleep(0.002)

    check_followed(gateway, consumer, range(PARTITIONS))


def test_partitions_that_caught_up_in_the_second_fetch_are_followed_by_the_first(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    for partition, count in enumerate([60, 800, 60, 800]):
        gateway.append("t", partition, [b"x"] * count)
    # The first fetch waits for 0 and 2 long before the second has read 1 and 3.
    consumer = make(max_partition_fetch_bytes=1000, fetch_max_wait_ms=60_000)
    read = 0
    while read < 2 * 860:
        records = consumer.consume(20, DEADLINE_S)
        assert records
        read += len(records)

    check_followed(gateway, consumer, (1, 3))


def test_what_both_fetches_may_bring_fits_into_the_buffer(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    for partition in range(PARTITIONS):
        gateway.append("t", partition, [b"x" * 1000] * 200)
    gateway.on_fetch = meeting = Meeting()
    consumer = make(queued_max_messages_kbytes=64)
    buffered = consumer._partitions.buffered
    read = most = 0
    while read < 200 * PARTITIONS:
        records = consumer.consume(10, DEADLINE_S)
        assert records
        read += len(records)
        most = max(most, buffered.get(gateway.address, 0))

    assert meeting.together
    for both in meeting.together:
        assert sum(request.max_bytes for request in both) <= 64 * 1024
    assert most <= 68 * 1024


def test_fetch_min_bytes_counts_all_partitions_so_one_fetch_asks_for_all(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    fill(gateway, 400)
    consumer = make(max_partition_fetch_bytes=1000, fetch_min_bytes=2, fetch_max_wait_ms=100)

    read_all(consumer, 400)

    assert gateway.in_flight_max == 1
    assert {len(request.partitions) for request in gateway.fetches} == {PARTITIONS}


def test_fetches_that_fail_now_and_then_lose_and_repeat_nothing(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    fill(gateway, 400)
    turn = 0

    def every_third(request: log_pb2.FetchRequest) -> MainstemError | None:
        nonlocal turn
        turn += 1
        return None if turn % 3 else BackPressureError("busy", retry_delay_ms=1)

    gateway.on_fetch = every_third
    read_all(make(max_partition_fetch_bytes=1000), 400)


def test_seeking_while_both_fetches_are_under_way_goes_on_at_the_new_place(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    fill(gateway, 400)
    consumer = make(max_partition_fetch_bytes=1000)
    for _ in range(20):
        assert consumer.consume(10, DEADLINE_S)
        for partition in range(PARTITIONS):
            consumer.seek(TopicPartition("t", partition, 0))

    read_all(consumer, 400)


def test_an_interrupted_consume_gives_back_what_it_had(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    """Of several partitions; the records are there before the call waits for more."""
    gateway.append("t", 0, [b"a", b"b", b"c"])
    gateway.append("t", 1, [b"d"])
    consumer = make(group_id="g")
    first = consumer.poll(DEADLINE_S)
    assert first is not None
    wait_until(lambda: len(consumer._partitions.chunks) == 1)
    interrupt = threading.Timer(0.3, _thread.interrupt_main)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(10, DEADLINE_S)
    interrupt.join()
    rest = consumer.consume(3, DEADLINE_S)
    assert sorted(record.value or b"" for record in (first, *rest)) == [b"a", b"b", b"c", b"d"]
    committed = consumer.commit(asynchronous=False) or []
    assert [tp.offset for tp in sorted(committed, key=lambda tp: tp.partition)] == [3, 1, 0, 0]


def interrupt_after(module: str, caller: str, called: str) -> Callable[[], None]:
    """Interrupts this thread once, where a signal would: as `caller` goes on after that call."""

    def look(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        name = getattr(argument, "__name__", "")
        found = (code.co_filename.rsplit("/", 1)[-1], code.co_name, name)
        if event == "c_return" and found == (f"{module}.py", caller, called):
            sys.setprofile(None)
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(look)
    return lambda: sys.setprofile(before)


@pytest.mark.parametrize("call", ["poll", "consume", "poll_batch"])
@pytest.mark.parametrize(
    "place",
    [
        ("partitions", "pop", "popleft"),
        ("partitions", "is_current", "get"),
        ("reader", "load", "len"),
        ("reader", "_take_rows", "setdefault"),
    ],
    ids=".".join,
)
def test_a_call_that_is_interrupted_at_any_moment_neither_skips_nor_repeats_a_record(
    place: tuple[str, str, str], call: str, gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    count = 30
    for first in range(0, count, 10):
        for partition in range(PARTITIONS):
            gateway.append("t", partition, [b"%d" % (first + number) for number in range(10)])
    consumer = make()
    wait_until(lambda: len(consumer._partitions.chunks) >= PARTITIONS)
    read: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}

    def take() -> None:
        if call == "poll":
            found = [consumer.poll(1.0)]
        elif call == "consume":
            found = [*consumer.consume(7, 1.0)]
        else:
            batches = consumer.poll_batch(1.0, 7)
            for tp, batch in batches.items():
                read[tp.partition] += batch.column("value").to_pylist()
            return
        for record in found:
            if record is not None:
                read[record.partition].append(record.value)

    stop = interrupt_after(*place)
    try:
        for _ in range(15):
            take()
    except KeyboardInterrupt:
        pass
    finally:
        stop()
    wanted = [b"%d" % number for number in range(count)]
    deadline = time.monotonic() + DEADLINE_S
    while sum(map(len, read.values())) < count * PARTITIONS and time.monotonic() < deadline:
        take()
    assert read == dict.fromkeys(read, wanted)
    assert not consumer.consume(1, 0.01)
    assert not any(consumer._partitions.buffered.values())
    assert not any(one.queued for one in consumer._partitions.assigned.values())
