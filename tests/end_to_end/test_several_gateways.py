"""Several gateways, each a real process, on one warehouse."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import grpc
import pytest
from deltalake import DeltaTable

from mainstem.client import AdminClient, Consumer, Producer, RecordMetadata, TopicPartition
from mainstem.errors import NotLeaderError
from mainstem.protocol import error_from_rpc
from mainstem.protocol.v1 import groups_pb2, groups_pb2_grpc
from mainstem.testing import GatewayProcess

TOPICS = ("a", "b", "c")
RECORDS_EACH = 200

SETTINGS = {"gateway.heartbeat.interval.ms": 200, "gateway.session.timeout.ms": 1000}
DEADLINE_S = 60.0


@pytest.mark.end_to_end
@pytest.mark.timeout(180)
def test_three_gateways_that_start_at_once_share_the_topics_and_one_follows_one_that_is_killed(
    tmp_path: Path,
) -> None:
    gateways = [GatewayProcess(tmp_path / "w", settings=SETTINGS) for _ in range(3)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(gateways[0])
        for gateway in gateways[1:]:
            stack.enter_context(gateway)
        addresses = [gateway.address for gateway in gateways]
        with AdminClient({"bootstrap.servers": addresses[0]}) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, 2)
        sent: list[tuple[str, bytes, Future[RecordMetadata]]] = []
        lock = threading.Lock()

        def produce(name: int) -> None:
            # Each begins at another gateway, and all three at once ask for all three topics.
            servers = ",".join(addresses[name:] + addresses[:name])
            with Producer({"bootstrap.servers": servers, "linger.ms": 1}) as producer:
                for number in range(RECORDS_EACH):
                    for topic in TOPICS:
                        value = b"%d %d" % (name, number)
                        future = producer.send(topic, value, partition=name % 2)
                        with lock:
                            sent.append((topic, value, future))
                    if name == 0 and number == RECORDS_EACH // 2:
                        producer.flush(60)
                        with AdminClient({"bootstrap.servers": addresses[2]}) as one:
                            leaders = {one.describe_topic(topic).leader for topic in TOPICS}
                        assert leaders <= set(addresses)
                        killed = addresses.index(leaders.pop())
                        gateways[killed].kill()

        threads = [threading.Thread(target=produce, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive()
    for topic in TOPICS:
        table = DeltaTable(str(tmp_path / "w" / "topics" / topic)).to_pyarrow_table()
        rows = table.select(["partition", "offset", "value"]).to_pylist()
        places = {(row["partition"], row["offset"]): row["value"] for row in rows}
        assert len(places) == len(rows) == len({row["value"] for row in rows})
        for _, value, future in (one for one in sent if one[0] == topic):
            answered = future.result(timeout=0)
            assert places[answered.partition, answered.offset] == value
        assert len(rows) == 3 * RECORDS_EACH


@pytest.mark.end_to_end
@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_clients_that_were_told_of_one_gateway_go_on_with_another_when_it_is_killed_or_hangs(
    tmp_path: Path, how: signal.Signals
) -> None:
    # The settings of the clients are the defaults: request.timeout.ms is half a minute.
    with (
        GatewayProcess(tmp_path / "w", settings=SETTINGS) as first,
        GatewayProcess(tmp_path / "w", settings=SETTINGS) as second,
    ):
        wait_for(lambda: len(gateways_of(first.address)) == 2)
        servers = {"bootstrap.servers": first.address}
        group = {"group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 6_000}
        with (
            AdminClient(servers) as admin,
            Producer(servers) as producer,
            Consumer(servers) as assigned,
            Consumer(servers | group) as member,
        ):
            admin.create_topic("t", 1)
            admin.describe_cluster()
            producer.send("t", b"before").result(DEADLINE_S)
            assigned.assign([TopicPartition("t", 0, 0)])
            member.subscribe(["t"])
            for consumer in (assigned, member):
                assert value_of(consumer) == b"before"
            os.kill(first.pid, how)
            began_at = time.monotonic()
            try:
                sent = producer.send("t", b"after")
                for consumer in (assigned, member):
                    while (value := value_of(consumer)) == b"before":
                        pass  # a member that had to join again, and had not committed
                    assert value == b"after"
                assert sent.result(DEADLINE_S).offset == 1
                assert [one.topic for one in admin.list_topics()] == ["t"]
                assert admin.describe_topic("t").leader == second.address
                member.commit()
            finally:
                if how == signal.SIGSTOP:
                    os.kill(first.pid, signal.SIGCONT)
            # Far from request.timeout.ms, and yet enough for a busy machine.
            assert time.monotonic() - began_at < 25


def gateways_of(address: str) -> list[str]:
    with AdminClient({"bootstrap.servers": address}) as admin:
        return [one.address for one in admin.describe_cluster().gateways]


def value_of(consumer: Consumer) -> bytes | None:
    record = consumer.poll(DEADLINE_S)
    assert record is not None
    return record.value


@pytest.mark.end_to_end
@pytest.mark.timeout(180)
def test_what_acks_1_promised_by_a_killed_gateway_is_committed_by_the_one_that_takes_its_topic(
    tmp_path: Path,
) -> None:
    first, second = (
        GatewayProcess(tmp_path, settings={**SETTINGS, "gateway.id": name})
        for name in ("first", "second")
    )
    with first, second:
        second.kill()
        with AdminClient({"bootstrap.servers": first.address}) as admin:
            admin.create_topic("t", 1, {"commit.interval.ms": 5_000})
        config = {"bootstrap.servers": first.address, "enable.idempotence": False, "acks": "1"}
        with Producer(config) as producer:
            producer.produce("t", b"in the table")  # the topic was idle, so it commits at once
            producer.flush()
            wait_for(lambda: rows_of(tmp_path, "t") == [b"in the table"])
            for number in range(20):
                producer.produce("t", b"%d" % number, b"k")
            assert producer.flush() == 0
        first.kill()
        second.start()
        with Producer({"bootstrap.servers": second.address}) as producer:
            producer.send("t", b"of the second").result(DEADLINE_S)
        promised = [b"%d" % number for number in range(20)]
        assert rows_of(tmp_path, "t") == [b"in the table", *promised, b"of the second"]
        first.start()
        assert "are not in the table" not in first.log
        assert rows_of(tmp_path, "t") == [b"in the table", *promised, b"of the second"]


def rows_of(warehouse: Path, topic: str) -> list[bytes]:
    """The values of a topic's only partition, by offset."""
    table = DeltaTable(str(warehouse / "topics" / topic)).to_pyarrow_table()
    return [row["value"] for row in table.sort_by("offset").to_pylist()]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def coordinator_of(gateway: GatewayProcess) -> str:
    """The address of the gateway that coordinates the groups, as this gateway says."""
    with grpc.insecure_channel(gateway.address) as channel:
        try:
            groups_pb2_grpc.GroupsStub(channel).ListGroups(
                groups_pb2.ListGroupsRequest(), timeout=DEADLINE_S
            )
        except grpc.RpcError as failure:
            error = error_from_rpc(failure)
            assert isinstance(error, NotLeaderError), error
            return error.facts["leader"]
    return gateway.address


def produce_and_read(gateway: GatewayProcess, consumer: Consumer, first: int) -> list[int]:
    """Thirty records, ten to each partition; returns what was read until all were there."""
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number in range(first, first + 30):
            producer.produce("t", b"%d" % number, partition=number % 3)
    found: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while not set(range(first, first + 30)) <= set(found):
        assert time.monotonic() < deadline, found
        found += [int(record.value or b"") for record in consumer.consume(100, 0.1)]
    return found


@pytest.mark.end_to_end
@pytest.mark.timeout(180)
def test_a_consumer_finds_the_coordinator_elsewhere_and_keeps_its_offsets_when_that_is_killed(
    tmp_path: Path,
) -> None:
    tps = [TopicPartition("t", number) for number in range(3)]
    with (
        GatewayProcess(tmp_path / "w", settings=SETTINGS) as first,
        GatewayProcess(tmp_path / "w", settings=SETTINGS) as second,
    ):
        with AdminClient({"bootstrap.servers": second.address}) as admin:
            admin.create_topic("t", 3)
        assert coordinator_of(first) == first.address, "the gateway that is asked first"
        assert coordinator_of(second) == first.address
        config = {
            "bootstrap.servers": second.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 3_000,
            "retry.backoff.ms": 50,
        }
        with Consumer(config) as consumer:
            consumer.subscribe(["t"])
            assert sorted(produce_and_read(second, consumer, 0)) == list(range(30))
            consumer.commit(asynchronous=False)
            member = consumer.consumer_group_metadata()
            first.kill()
            # Nothing that was committed comes again, though the new coordinator knows no member.
            assert sorted(set(produce_and_read(second, consumer, 30))) == list(range(30, 60))
            assert [tp.offset for tp in consumer.committed(tps, DEADLINE_S)] == [10, 10, 10]
            deadline = time.monotonic() + DEADLINE_S
            while consumer.consumer_group_metadata().member_epoch <= member.member_epoch:
                assert time.monotonic() < deadline
                consumer.poll(0.05)
            assert coordinator_of(second) == second.address
        with Consumer(config) as consumer:
            consumer.subscribe(["t"])
            assert sorted(produce_and_read(second, consumer, 60)) == list(range(30, 90))
            consumer.commit(asynchronous=False)
            assert [tp.offset for tp in consumer.committed(tps, DEADLINE_S)] == [30, 30, 30]
