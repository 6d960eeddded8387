"""A stream's progress as a group's offsets, at a real gateway."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from mainstem.client import AdminClient, Consumer, Producer
from mainstem.errors import GroupNotEmptyError, InvalidConfigError
from mainstem.testing import GatewayProcess
from pyspark_mainstem._group_progress import GroupProgress
from pyspark_mainstem._offsets import TopicPartition

WAIT_S = 30
ORDERS = [TopicPartition("orders", number) for number in range(2)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One with the topic `orders`, of 2 partitions with 10 records each."""
    with GatewayProcess(tmp_path_factory.mktemp("warehouse")) as process:
        with AdminClient({"bootstrap.servers": process.address}) as admin:
            admin.create_topic("orders", 2)
        with Producer({"bootstrap.servers": process.address}) as producer:
            for number in range(20):
                producer.produce("orders", b"%d" % number, partition=number % 2)
        yield process


@pytest.fixture
def admin(gateway: GatewayProcess) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": gateway.address}) as client:
        yield client


def _offsets(admin: AdminClient, group: str) -> list[int]:
    found = admin.list_consumer_group_offsets(group)
    return [one.offset for _, one in sorted(found.items(), key=lambda item: item[0].partition)]


def test_the_newest_offsets_are_committed_as_those_of_any_group(
    gateway: GatewayProcess, admin: AdminClient
) -> None:
    progress = GroupProgress({"bootstrap.servers": gateway.address}, "newest")
    progress.start()
    try:
        for offset in range(8):
            progress.reached({ORDERS[0]: offset, ORDERS[1]: 3})
        progress.settle(WAIT_S)
        assert _offsets(admin, "newest") == [7, 3]
        (group,) = admin.describe_consumer_groups(["newest"]).values()
        assert not isinstance(group, Exception)
        assert (group.state, group.members) == ("EMPTY", ())
        progress.reached({ORDERS[0]: 9, ORDERS[1]: 3})
    finally:
        progress.close()
    assert _offsets(admin, "newest") == [9, 3], "what was reached last is committed at the end"


def test_a_group_with_members_is_refused_at_the_start(gateway: GatewayProcess) -> None:
    config = {"bootstrap.servers": gateway.address, "group.id": "lively", "client.id": "reader-1"}
    with Consumer(config) as consumer:
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + WAIT_S
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        progress = GroupProgress({"bootstrap.servers": gateway.address}, "lively")
        try:
            with pytest.raises(GroupNotEmptyError, match=r"1 members \(of clients reader-1\)"):
                progress.start()
        finally:
            progress.close()


def test_a_member_that_comes_later_only_makes_a_warning(
    gateway: GatewayProcess, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    progress = GroupProgress({"bootstrap.servers": gateway.address}, "later")
    progress.start()
    try:
        config = {"bootstrap.servers": gateway.address, "group.id": "later"}
        with Consumer({**config, "enable.auto.commit": False}) as consumer:
            consumer.subscribe(["orders"])
            deadline = time.monotonic() + WAIT_S
            while not consumer.assignment():
                consumer.poll(0.1)
                assert time.monotonic() < deadline
            progress.reached({ORDERS[0]: 5})
            progress.settle(WAIT_S)
            assert "is not committed to the group 'later' for now: group 'later' has 1" in (
                caplog.text
            )
            assert _offsets(admin, "later") == []
        # It has left: the next attempt makes up for it.
        deadline = time.monotonic() + WAIT_S
        while _offsets(admin, "later") != [5]:
            time.sleep(0.05)
            assert time.monotonic() < deadline
        progress.settle(WAIT_S)
    finally:
        progress.close()
    assert "progress is committed to the group 'later' again" in caplog.text


def test_offsets_that_the_gateway_refuses_do_not_hold_back_the_others(
    gateway: GatewayProcess, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    progress = GroupProgress({"bootstrap.servers": gateway.address}, "partly")
    progress.start()
    try:
        progress.reached({ORDERS[0]: 4, TopicPartition("gone", 0): 1})
        progress.settle(WAIT_S)
    finally:
        progress.close()
    assert _offsets(admin, "partly") == [4]
    assert "'gone'" in caplog.text


def test_without_a_gateway_the_stream_starts_and_only_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        progress = GroupProgress(
            {"bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}"}, "alone"
        )
        started = time.monotonic()
        progress.start()
        progress.reached({ORDERS[0]: 1})
        progress.settle(WAIT_S)
        # While commits fail nothing waits for them.
        progress.reached({ORDERS[0]: 2})
        progress.settle(WAIT_S)
        progress.close()
        assert time.monotonic() - started < WAIT_S
    assert "the stream goes on" in caplog.text
    assert caplog.text.count("is not committed") <= 2, "the same words once"


def test_malformed_addresses_are_refused_by_the_name_of_the_option() -> None:
    with pytest.raises(InvalidConfigError, match=r"mainstem.bootstrap.servers: .*'nowhere'"):
        GroupProgress({"bootstrap.servers": "nowhere"}, "g")
