"""The consumer as a member of a group: the real coordinator behind an in-memory gateway."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.polling import DEADLINE_S, poll_until

from mainstem.client import OFFSET_INVALID, Consumer, TopicPartition
from mainstem.errors import (
    BackPressureError,
    ConfigError,
    GatewayUnavailableError,
    InstanceFencedError,
    LogTruncatedError,
    MainstemError,
    UnknownMemberError,
)
from mainstem.protocol.v1 import groups_pb2, log_pb2
from mainstem.testing._fake_fetch import FakeLogGateway

ONE = TopicPartition("one", 0)

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 4, "one": 1}) as running:
        yield running


@pytest.fixture
def make(gateway: FakeLogGateway) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make_one(**settings: object) -> Consumer:
        on_commit = {n: settings.pop(n) for n in ("on_commit",) if n in settings}
        config = {name.replace("_", "."): value for name, value in settings.items()} | on_commit
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


class Log:
    """What the callbacks of a consumer were told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def subscribe(self, consumer: Consumer, *topics: str) -> None:
        def note(what: str) -> Any:
            return lambda _, tps: self.events.append((what, sorted(tp.partition for tp in tps)))

        consumer.subscribe(list(topics), note("assign"), note("revoke"), note("lost"))


def counts(*consumers: Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def committed(gateway: FakeLogGateway, topic: str = "one", partition: int = 0) -> int:
    return gateway.groups.offsets.get(("g", topic, partition), -1)


def test_two_members_share_the_partitions_and_only_those_that_move_are_revoked(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    first, second = make(), make()
    log, other = Log(), Log()
    log.subscribe(first, "t")
    poll_until(lambda: counts(first) == [4], first)
    other.subscribe(second, "t")
    poll_until(lambda: counts(first, second) == [2, 2], first, second)
    assert log.events[0] == ("assign", [0, 1, 2, 3])
    moved = sorted(tp.partition for tp in second.assignment())
    assert log.events[1:] == [("revoke", moved)]
    assert other.events == [("assign", moved)]
    second.close()
    assert other.events[1:] == [("revoke", moved)]
    poll_until(lambda: counts(first) == [4], first)
    assert log.events[2:] == [("assign", moved)]


def test_a_partition_that_moves_goes_on_after_the_last_record_that_was_handed_out(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    for partition in range(4):
        gateway.append("t", partition, [b"%d" % number for number in range(50)])
    first, second = make(), make()
    first.subscribe(["t"])
    found = first.consume(120, DEADLINE_S)
    second.subscribe(["t"])
    everything = 200
    found += poll_until(
        lambda: counts(first, second) == [2, 2],
        first,
        second,
    )
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < everything and time.monotonic() < deadline:
        found += first.consume(50, 0.01) + second.consume(50, 0.01)
    places = [(record.partition, record.offset) for record in found]
    assert sorted(places) == [(p, o) for p in range(4) for o in range(50)]


def test_an_extra_member_is_idle_and_takes_over(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    first, second = make(), make()
    first.subscribe(["one"])
    poll_until(lambda: counts(first) == [1], first)
    second.subscribe(["one"])
    poll_until(lambda: len(gateway.groups.heartbeats) > 6, first, second)
    assert counts(first, second) == [1, 0]
    first.close()
    poll_until(lambda: counts(second) == [1], second)


def test_a_pattern_takes_the_topics_that_match(gateway: FakeLogGateway, make: MakeConsumer) -> None:
    consumer = make()
    consumer.subscribe("^o.*")
    poll_until(lambda: consumer.assignment() == [ONE], consumer)


def test_automatic_commits_never_pass_what_the_latest_poll_gave(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(10)])
    consumer = make(auto_commit_interval_ms=1)
    consumer.subscribe(["one"])
    given = 0
    while given < 10:
        if consumer.poll(DEADLINE_S) is not None:
            given += 1
        time.sleep(0.002)
        assert committed(gateway) <= given - 1
    poll_until(lambda: committed(gateway) == 10, consumer)


def test_an_exception_in_the_block_leaves_the_latest_records_to_be_read_again(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(10)])
    with contextlib.suppress(ZeroDivisionError), make() as consumer:
        consumer.subscribe(["one"])
        for _ in range(4):
            consumer.poll(DEADLINE_S)
        raise ZeroDivisionError
    assert committed(gateway) == 3
    with contextlib.suppress(ZeroDivisionError), make() as consumer:
        consumer.subscribe(["one"])
        assert [r.offset for r in consumer.consume(2, DEADLINE_S)] == [3, 4]
        consumer.consume(3, DEADLINE_S)
        raise ZeroDivisionError
    assert committed(gateway) == 5
    with contextlib.suppress(ZeroDivisionError), make() as consumer:
        consumer.subscribe(["one"])
        assert sum(b.num_rows for b in consumer.poll_batch(DEADLINE_S, 2).values()) == 2
        consumer.poll_batch(DEADLINE_S, 2)
        raise ZeroDivisionError
    assert committed(gateway) == 7


def test_close_commits_all_that_was_handed_out(gateway: FakeLogGateway, make: MakeConsumer) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(10)])
    with make() as consumer:
        consumer.subscribe(["one"])
        assert len(consumer.consume(4, DEADLINE_S)) == 4
    assert committed(gateway) == 4
    assert len(gateway.groups.leaves) == 1


def test_without_automatic_commits_nothing_is_committed_until_somebody_does(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a", b"b", b"c"])
    consumer = make(enable_auto_commit=False)
    consumer.subscribe(["one"])
    record = consumer.poll(DEADLINE_S)
    assert record is not None
    consumer.poll(DEADLINE_S)
    assert gateway.groups.commits == []
    assert consumer.committed([ONE])[0].offset == OFFSET_INVALID
    assert consumer.commit(record, asynchronous=False) == [ONE]
    assert committed(gateway) == 1
    done = consumer.commit(asynchronous=False)
    assert done is not None
    assert [tp.offset for tp in done] == [2]
    wanted = [TopicPartition("one", 0, 1, "mine")]
    consumer.commit(offsets=wanted, asynchronous=False)
    told = consumer.committed([ONE])[0]
    assert (told.offset, told.metadata) == (1, "mine")
    consumer.close()
    assert committed(gateway) == 1


def test_asynchronous_commits_take_effect_in_order_and_tell_their_end_in_poll(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    ends: list[tuple[MainstemError | None, int]] = []
    failures: list[MainstemError | None] = [BackPressureError("busy"), BackPressureError("busy")]
    gateway.groups.on_commit = lambda _: failures.pop() if failures else None
    consumer = make(
        enable_auto_commit=False, on_commit=lambda e, tps: ends.append((e, tps[0].offset))
    )
    consumer.subscribe(["one"])
    poll_until(lambda: counts(consumer) == [1], consumer)
    for offset in range(1, 6):
        consumer.commit(offsets=[TopicPartition("one", 0, offset)])
    assert ends == []
    poll_until(lambda: len(ends) == 5, consumer)
    assert ends == [(None, offset) for offset in range(1, 6)]
    stored = [commit.offsets[0].offset for commit in gateway.groups.commits]
    assert stored == [1, 1, 1, 2, 3, 4, 5]
    # One that is sent again keeps its number.
    assert [commit.sequence for commit in gateway.groups.commits] == [1, 1, 1, 2, 3, 4, 5]


def test_a_commit_of_more_partitions_than_one_request_may_have_goes_in_several(
    gateway: FakeLogGateway, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.client.consumer.group_commits.OFFSETS_PER_COMMIT_MAX", 2)
    consumer = make(enable_auto_commit=False)
    consumer.subscribe(["one", "t"])
    poll_until(lambda: counts(consumer) == [5], consumer)
    wanted = [TopicPartition("t", partition, 1) for partition in (0, 1)]
    wanted.append(TopicPartition("one", 0, 3))
    refused: list[MainstemError] = [BackPressureError("busy")]

    def refuse_the_second_once(request: groups_pb2.CommitOffsetsRequest) -> MainstemError | None:
        return refused.pop() if refused and len(request.offsets) == 1 else None

    gateway.groups.on_commit = refuse_the_second_once
    consumer.commit(offsets=wanted, asynchronous=False)
    assert committed(gateway, "t", 1) == 1
    assert committed(gateway) == 3
    assert [len(request.offsets) for request in gateway.groups.commits] == [2, 1, 2, 1]
    # All with one number: none of them counts as a copy that came late.
    assert {request.sequence for request in gateway.groups.commits} == {1}


def test_commits_that_a_coordinator_does_not_take_are_refused_when_too_many_wait(
    gateway: FakeLogGateway, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.client.consumer.group_commits.COMMITS_WAITING_MAX", 3)
    ends: list[MainstemError | None] = []
    release = threading.Event()

    def wait(_: object) -> None:
        release.wait(DEADLINE_S)

    gateway.groups.on_commit = wait
    consumer = make(enable_auto_commit=False, on_commit=lambda e, _: ends.append(e))
    consumer.subscribe(["one"])
    poll_until(lambda: counts(consumer) == [1], consumer)
    for offset in range(1, 9):
        consumer.commit(offsets=[TopicPartition("one", 0, offset)])
    poll_until(lambda: ends, consumer)
    assert all(isinstance(end, GatewayUnavailableError) for end in ends)
    refused = len(ends)
    assert refused in (4, 5), "one may be under way already"
    release.set()
    poll_until(lambda: len(ends) == 8, consumer)
    assert ends[refused:] == [None] * (8 - refused)


def test_only_stored_offsets_are_committed_when_the_application_stores_them(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a", b"b", b"c"])
    consumer = make(enable_auto_offset_store=False)
    consumer.subscribe(["one"])
    records = consumer.consume(3, DEADLINE_S)
    consumer.store_offsets(records[0])
    consumer.close()
    assert committed(gateway) == 1
    with pytest.raises(ConfigError, match="store"):
        make().store_offsets(records[0])


def test_latest_is_committed_when_it_is_chosen_so_a_restart_does_not_choose_again(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"old"])
    consumer = make(auto_offset_reset="latest")
    consumer.subscribe(["one"])
    poll_until(lambda: committed(gateway) == 1, consumer)
    consumer.close()
    gateway.append("one", 0, [b"between"])
    again = make(auto_offset_reset="latest")
    again.subscribe(["one"])
    record = again.poll(DEADLINE_S)
    assert record is not None
    assert record.value == b"between"


def test_members_that_the_coordinator_forgot_join_again_and_lose_no_record(
    gateway: FakeLogGateway, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.append("one", 0, [b"a", b"b"])
    consumer = make()
    log = Log()
    log.subscribe(consumer, "one")
    assert len(consumer.consume(2, DEADLINE_S)) == 2
    consumer.commit(asynchronous=False)
    with caplog.at_level(logging.CRITICAL):
        gateway.stop()
        gateway.append("one", 0, [b"c"])
        gateway.start()
        record = consumer.poll(DEADLINE_S)
        assert record is not None
        assert record.value == b"c"
        poll_until(lambda: len(log.events) == 3, consumer)
    assert log.events == [("assign", [0]), ("lost", [0]), ("assign", [0])]


def test_a_commit_of_a_membership_that_ended_is_refused_and_changes_nothing(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make(enable_auto_commit=False, heartbeat_interval_ms=10_000)
    consumer.subscribe(["one"])
    poll_until(lambda: counts(consumer) == [1], consumer)
    member, _ = consumer._engine._group.identity()  # type: ignore[union-attr]
    gateway.groups.coordinator.leave("g", member)
    with pytest.raises(UnknownMemberError):
        consumer.commit(offsets=[TopicPartition("one", 0, 5)], asynchronous=False)
    assert committed(gateway) == -1


def join_again(gateway: FakeLogGateway, consumer: Consumer) -> None:
    """The group forgets the member, which joins again; its application was not told yet."""
    known, _ = consumer._engine._group.identity()  # type: ignore[union-attr]
    gateway.groups.restart()
    deadline = time.monotonic() + DEADLINE_S
    while consumer._engine._group.identity()[0] in (known, ""):  # type: ignore[union-attr]
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("auto_commit", [False, True])
def test_what_was_read_before_a_membership_ended_is_not_committed_in_the_next_one(
    gateway: FakeLogGateway,
    make: MakeConsumer,
    caplog: pytest.LogCaptureFixture,
    auto_commit: bool,
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(9)])
    consumer = make(enable_auto_commit=auto_commit, auto_commit_interval_ms=1)
    consumer.subscribe(["one"])
    assert len(consumer.consume(2, DEADLINE_S)) == 2
    deadline = time.monotonic() + DEADLINE_S
    while auto_commit and committed(gateway) != 0:  # where it began
        assert time.monotonic() < deadline
        time.sleep(0.005)
    before = len(gateway.groups.commits)
    with caplog.at_level(logging.CRITICAL):
        join_again(gateway, consumer)
        # Meanwhile another had the partition, and got further.
        gateway.groups.offsets["g", "one", 0] = 7
        if not auto_commit:
            for offsets in (None, [TopicPartition("one", 0, 2)]):
                with pytest.raises(UnknownMemberError):
                    consumer.commit(offsets=offsets, asynchronous=False)
        found = poll_until(lambda: counts(consumer) == [1], consumer)
        while len(found) < 2:
            found += consumer.consume(1, 1.0)
    assert [record.offset for record in found] == [7, 8]
    consumer.close()
    assert committed(gateway) == (9 if auto_commit else 7)
    assert all(commit.offsets[0].offset >= 7 for commit in gateway.groups.commits[before:])


def test_a_commit_while_the_loss_is_told_is_refused_and_a_callback_that_fails_loses_nothing(
    gateway: FakeLogGateway, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(9)])
    refused: list[MainstemError] = []

    def commit(consumer: Consumer, _: object) -> None:
        try:
            consumer.commit(asynchronous=False)
        except UnknownMemberError as error:
            refused.append(error)
            raise

    consumer = make(enable_auto_commit=False)
    consumer.subscribe(["one"], on_revoke=commit)
    assert len(consumer.consume(2, DEADLINE_S)) == 2
    with caplog.at_level(logging.CRITICAL):
        join_again(gateway, consumer)
        gateway.groups.offsets["g", "one", 0] = 7
        with pytest.raises(UnknownMemberError):
            poll_until(lambda: refused, consumer)
        assert counts(consumer) == [0]
        assert [record.offset for record in consumer.consume(2, DEADLINE_S)] == [7, 8]
    assert committed(gateway) == 7


def test_a_member_that_was_put_out_does_not_commit_from_outside_an_empty_group(
    gateway: FakeLogGateway, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = make(enable_auto_commit=False, max_poll_interval_ms=200)
    consumer.subscribe(["one"])
    poll_until(lambda: counts(consumer) == [1], consumer)
    deadline = time.monotonic() + DEADLINE_S
    with caplog.at_level(logging.CRITICAL):
        while not gateway.groups.leaves:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        with pytest.raises(UnknownMemberError):
            consumer.commit(offsets=[TopicPartition("one", 0, 5)], asynchronous=False)
    assert committed(gateway) == -1


def test_a_member_that_does_not_poll_leaves_and_joins_again_when_it_does(
    gateway: FakeLogGateway, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    sleeper, other = make(max_poll_interval_ms=300), make()
    log = Log()
    log.subscribe(sleeper, "one")
    poll_until(lambda: counts(sleeper) == [1], sleeper)
    other.subscribe(["one"])
    with caplog.at_level(logging.CRITICAL):
        poll_until(lambda: counts(other) == [1], other)
        poll_until(lambda: ("lost", [0]) in log.events, sleeper)
    other.close()
    poll_until(lambda: counts(sleeper) == [1], sleeper)


def test_a_second_process_with_the_same_instance_id_leaves_exactly_one(
    gateway: FakeLogGateway, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (make(group_instance_id="i") for _ in range(2))
    first.subscribe(["one"])
    poll_until(lambda: counts(first) == [1], first)
    second.subscribe(["one"])
    fenced: list[Consumer] = []
    deadline = time.monotonic() + DEADLINE_S
    with caplog.at_level(logging.CRITICAL):
        while not fenced and time.monotonic() < deadline:
            for consumer in (first, second):
                try:
                    consumer.poll(0.01)
                except InstanceFencedError:
                    fenced.append(consumer)
    assert len(fenced) == 1
    (left,) = {first, second} - set(fenced)
    poll_until(lambda: counts(left) == [1], left)
    assert counts(*fenced) == [0]


def test_a_static_member_keeps_its_place_while_it_is_away(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    first, other = make(group_instance_id="i"), make()
    first.subscribe(["t"])
    poll_until(lambda: counts(first) == [4], first)
    other.subscribe(["t"])
    poll_until(lambda: counts(first, other) == [2, 2], first, other)
    place = first.assignment()
    first.close()
    assert gateway.groups.leaves[-1].keep_place
    again = make(group_instance_id="i")
    again.subscribe(["t"])
    poll_until(lambda: counts(again) == [2], again, other)
    assert again.assignment() == place
    assert counts(other) == [2]


def test_on_assign_may_say_where_to_begin(gateway: FakeLogGateway, make: MakeConsumer) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(5)])
    consumer = make()
    consumer.subscribe(["one"], on_assign=lambda c, _: c.seek(TopicPartition("one", 0, 3)))
    record = consumer.poll(DEADLINE_S)
    assert record is not None
    assert record.offset == 3


def test_on_revoke_may_commit_and_unsubscribe_gives_everything_back(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a", b"b"])
    consumer = make(enable_auto_commit=False)
    consumer.subscribe(["one"], on_revoke=lambda c, _: c.commit(asynchronous=False))
    assert len(consumer.consume(2, DEADLINE_S)) == 2
    consumer.unsubscribe()
    assert committed(gateway) == 2
    assert consumer.assignment() == []
    assert consumer.poll(0.01) is None
    consumer.subscribe(["one"])
    poll_until(lambda: counts(consumer) == [1], consumer)


def test_assign_begins_at_the_committed_offset_and_commits_from_outside_the_group(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(5)])
    gateway.groups.offsets["g", "one", 0] = 2
    consumer = make()
    consumer.assign([ONE])
    assert [r.offset for r in consumer.consume(2, DEADLINE_S)] == [2, 3]
    consumer.close()
    assert committed(gateway) == 4
    assert gateway.groups.commits[-1].member_epoch == -1


def test_subscribe_and_assign_do_not_mix(make: MakeConsumer) -> None:
    consumer = make()
    consumer.subscribe(["one"])
    with pytest.raises(RuntimeError, match="subscription"):
        consumer.assign([ONE])
    other = make()
    other.assign([ONE])
    with pytest.raises(RuntimeError, match="assign"):
        other.subscribe(["one"])
    with pytest.raises(ValueError, match="pattern"):
        consumer.subscribe(["^a", "b"])


def truncate(gateway: FakeLogGateway, cut: int, *, epoch: int) -> None:
    """The log is put back from an older copy, and has other records from `cut` on."""
    before = gateway.leader_epoch

    def refused(asked: log_pb2.FetchPartition) -> MainstemError | None:
        if asked.leader_epoch == before and asked.offset > cut:
            return LogTruncatedError("put back from an older copy", truncated_to=cut)
        return None

    gateway.partition_error = refused
    gateway.leader_epoch = epoch


def test_offsets_are_committed_with_the_epoch_in_which_they_were_read_if_they_were(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.leader_epoch = 7
    gateway.append("one", 0, [b"%d" % n for n in range(10)])
    consumer = make(enable_auto_commit=False)
    consumer.subscribe(["one"])
    found = consumer.consume(5, DEADLINE_S)
    epochs = gateway.groups.leader_epochs
    consumer.commit(asynchronous=False)
    assert (committed(gateway), epochs["g", "one", 0]) == (5, 7)
    consumer.commit(found[1], asynchronous=False)
    assert (committed(gateway), epochs["g", "one", 0]) == (2, 7)
    consumer.commit(offsets=[TopicPartition("one", 0, 6)], asynchronous=False)
    assert (committed(gateway), epochs["g", "one", 0]) == (6, -1), "nobody has read that far"
    consumer.seek(TopicPartition("one", 0, 4))
    consumer.commit(asynchronous=False)
    assert (committed(gateway), epochs["g", "one", 0]) == (4, -1)


@pytest.mark.parametrize("is_live", [True, False])
def test_a_group_whose_log_was_put_back_from_a_copy_is_told_and_reads_what_is_there_since(
    gateway: FakeLogGateway,
    make: MakeConsumer,
    caplog: pytest.LogCaptureFixture,
    *,
    is_live: bool,
) -> None:
    gateway.append("one", 0, [b"old %d" % n for n in range(10)])
    consumer = make()
    consumer.subscribe(["one"])
    assert len(consumer.consume(10, DEADLINE_S)) == 10
    if not is_live:
        consumer.close()
    del gateway.topics["one"].records[0][8:]
    truncate(gateway, 8, epoch=9)
    gateway.append("one", 0, [b"new %d" % n for n in range(8, 12)])
    if not is_live:
        consumer = make()
        consumer.subscribe(["one"])
    found = consumer.consume(4, DEADLINE_S)
    assert [(record.offset, record.value) for record in found] == [
        (n, b"new %d" % n) for n in range(8, 12)
    ]
    told = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert ["one-0 goes on at offset 8" in one.getMessage() for one in told] == [True]
    consumer.close()
    assert (committed(gateway), gateway.groups.leader_epochs["g", "one", 0]) == (12, 9)


def test_without_a_reset_a_log_that_was_put_back_from_a_copy_is_an_error(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"old %d" % n for n in range(10)])
    consumer = make(auto_offset_reset="none")
    consumer.assign([TopicPartition("one", 0, 0)])
    assert len(consumer.consume(10, DEADLINE_S)) == 10
    truncate(gateway, 8, epoch=9)
    with pytest.raises(LogTruncatedError) as told:
        consumer.poll(DEADLINE_S)
    consumer.seek(TopicPartition("one", 0, int(told.value.facts["truncated_to"])))
    assert [record.offset for record in consumer.consume(2, DEADLINE_S)] == [8, 9]


def partitions_of(
    consumer: Consumer, count: int, without: frozenset[int] | set[int] = frozenset()
) -> set[int]:
    """The first partitions that records come from, beside those that are known."""
    deadline = time.monotonic() + DEADLINE_S
    found: set[int] = set()
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found |= {record.partition for record in consumer.consume(1, 0.05)} - without
    return found


@pytest.mark.parametrize("how", ["restart", "forgotten", "asleep", "made again"])
def test_a_paused_partition_that_comes_back_is_paused_until_resume(
    gateway: FakeLogGateway, make: MakeConsumer, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    consumer, log = make(max_poll_interval_ms=300 if how == "asleep" else 60_000), Log()
    log.subscribe(consumer, "t")
    poll_until(lambda: counts(consumer) == [4], consumer)
    consumer.pause([TopicPartition("t", 0), TopicPartition("t", 1)])
    log.events.clear()
    with caplog.at_level(logging.CRITICAL):
        match how:
            case "restart":
                gateway.stop()
                gateway.start()
            case "forgotten":
                gateway.groups.restart()
            case "asleep":
                time.sleep(0.5)
            case "made again":
                gateway.recreate("t", 4)
        poll_until(lambda: len(log.events) > 1 and counts(consumer) == [4], consumer)
        for partition in range(4):
            gateway.append("t", partition, [b"v"])
        assert partitions_of(consumer, 2) == {2, 3}
        assert {record.partition for record in consumer.consume(1, 0.2)} <= {2, 3}
        consumer.resume([TopicPartition("t", 0), TopicPartition("t", 1)])
        assert partitions_of(consumer, 2, without={2, 3}) == {0, 1}


def assert_soon(event: threading.Event) -> None:
    assert event.wait(DEADLINE_S)


@pytest.mark.parametrize("change", ["resume", "unsubscribe"])
def test_resume_and_a_new_subscription_count_while_a_paused_partition_is_lost(
    gateway: FakeLogGateway,
    make: MakeConsumer,
    caplog: pytest.LogCaptureFixture,
    change: str,
) -> None:
    consumer, log, may_join = make(), Log(), threading.Event()
    log.subscribe(consumer, "one")
    poll_until(lambda: counts(consumer) == [1], consumer)
    consumer.pause([ONE])
    gateway.groups.before_heartbeat = lambda beat: (
        None if beat.member_epoch else assert_soon(may_join)
    )
    with caplog.at_level(logging.CRITICAL):
        gateway.groups.restart()
        poll_until(lambda: ("lost", [0]) in log.events, consumer)
    if change == "resume":
        consumer.resume([ONE])
        may_join.set()
    else:
        may_join.set()
        consumer.unsubscribe()
        consumer.subscribe(["one"])
    gateway.append("one", 0, [b"v"])
    assert len(consumer.consume(1, DEADLINE_S)) == 1


def test_what_was_given_up_to_another_member_comes_back_unpaused(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    first, second = make(), make()
    first.subscribe(["t"])
    poll_until(lambda: counts(first) == [4], first)
    first.pause(first.assignment())
    second.subscribe(["t"])
    poll_until(lambda: counts(first, second) == [2, 2], first, second)
    second.close()
    poll_until(lambda: counts(first) == [4], first)
    for partition in range(4):
        gateway.append("t", partition, [b"v"])
    assert len({record.partition for record in first.consume(2, DEADLINE_S)}) == 2
    assert first.consume(1, 0.2) == []
