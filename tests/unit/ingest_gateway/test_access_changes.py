"""Rules that change while a producer and a consumer run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ingest_gateway.harness import WAIT_S, run, running, values

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import AclsChange, AclsTable
from mainstem.errors import MainstemError, TopicAuthorizationError
from mainstem.security import ANONYMOUS, acl_binding_of, acl_filter_of

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.slow]

#: A change is in force within a second; the machine may be busy.
FORCE_S = 5.0


class Rules:
    """What everybody may do, changed in the table, as by another gateway."""

    def __init__(self, warehouse: Path) -> None:
        self._store = LocalStore(warehouse)
        self._table = AclsTable(self._store)

    def allow(self, operation: str, kind: str, name: str) -> None:
        rule = acl_binding_of(kind, name, "LITERAL", str(ANONYMOUS), "*", operation, "ALLOW")
        self._table.update(AclsChange(added=[rule]))

    def forbid(self, operation: str, name: str) -> None:
        asked = acl_filter_of(name=name, operation=operation)
        self._table.update(AclsChange(removed=[asked]))

    def close(self) -> None:
        self._store.close()


class Sending:
    """A thread that sends numbers, one after the other.

    Attributes:
        told: What became of each, in the order of the reports: a number, and why it failed.
    """

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 1})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.told: list[tuple[int, str]] = []
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            self._send(number)
            number += 1
            self._producer.poll(0.002)
        self._producer.close(WAIT_S)

    def _send(self, number: int) -> None:
        def told(error: MainstemError | None, _: object) -> None:
            self.told.append((number, "" if error is None else error.code))

        self._producer.produce(self._topic, b"%d" % number, on_delivery=told)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def wait_until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> float:
    """Waits until the condition holds; returns after how many seconds."""
    began_at = time.monotonic()
    while not condition():
        assert time.monotonic() - began_at < timeout_s, "in vain"
        time.sleep(0.005)
    return time.monotonic() - began_at


def at_gateway(warehouse: Path, work: Callable[[str], None]) -> None:
    """Does something that waits, beside a gateway with access control lists."""

    async def test() -> None:
        settings: Any = {"authorizer": "acl"}
        async with running(warehouse, **settings) as (gateway, _):
            await asyncio.to_thread(work, gateway.address)

    run(test())


def test_no_acknowledged_record_is_lost_and_none_is_taken_that_may_not_be(tmp_path: Path) -> None:
    taken: list[tuple[int, ...]] = []

    def work(address: str) -> None:
        rules = Rules(tmp_path)
        for operation in ("WRITE", "CREATE", "DESCRIBE"):
            rules.allow(operation, "TOPIC", "t")
        with AdminClient({"bootstrap.servers": address}) as admin:
            wait_until(lambda: created(admin), FORCE_S)
        sending = Sending(address, "t")
        try:
            for _ in range(3):
                seen = len(sending.told)
                wait_until(lambda seen=seen: len(sending.told) > seen + 50)  # type: ignore[misc]
                assert sending.told[-1][1] == ""
                rules.forbid("WRITE", "t")
                wait_until(lambda: sending.told[-1][1] != "", FORCE_S)
                seen = len(sending.told)
                wait_until(lambda seen=seen: len(sending.told) > seen + 50)  # type: ignore[misc]
                # After a batch that was refused it asks for another producer id, in vain as well.
                assert {code for _, code in sending.told[seen:]} <= {
                    "TOPIC_AUTHORIZATION_FAILED",
                    "CLUSTER_AUTHORIZATION_FAILED",
                }
                rules.allow("WRITE", "TOPIC", "t")
                wait_until(lambda: sending.told[-1][1] == "", FORCE_S)
        finally:
            sending.stop()
            rules.close()
        acknowledged = tuple(number for number, code in sending.told if not code)
        taken.append(acknowledged)

    at_gateway(tmp_path, work)
    found = [int(value or b"") for value in values(tmp_path, "t")[0]]
    assert found == list(taken[0])


def created(admin: Any) -> bool:
    try:
        admin.create_topic("t")
    except TopicAuthorizationError:
        return False
    return True


def test_a_consumer_stops_where_its_rule_goes_and_goes_on_there_when_it_is_back(
    tmp_path: Path,
) -> None:
    def work(address: str) -> None:
        rules = Rules(tmp_path)
        for operation in ("WRITE", "CREATE", "READ"):
            rules.allow(operation, "TOPIC", "t")
        rules.allow("READ", "GROUP", "g")
        with AdminClient({"bootstrap.servers": address}) as admin:
            wait_until(lambda: created(admin), FORCE_S)
        sending = Sending(address, "t")
        config = {
            "bootstrap.servers": address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
        read: list[int] = []

        def poll(consumer: Consumer) -> str:
            try:
                record = consumer.poll(0.5)
            except TopicAuthorizationError as error:
                return error.code
            if record is not None:
                assert record.value is not None
                read.append(int(record.value))
            return ""

        try:
            with Consumer(config) as consumer:
                consumer.subscribe(["t"])
                wait_until(lambda: poll(consumer) == "" and len(read) > 50)
                rules.forbid("READ", "t")
                wait_until(lambda: poll(consumer) != "", FORCE_S)
                wait_until(lambda: poll(consumer) != "", FORCE_S)  # and again
                rules.allow("READ", "TOPIC", "t")
                seen = len(read)

                def goes_on() -> bool:
                    poll(consumer)
                    return len(read) > seen + 50

                wait_until(goes_on)
        finally:
            sending.stop()
            rules.close()
        assert read == list(range(len(read))), "nothing is missing, and nothing came twice"

    at_gateway(tmp_path, work)


def test_a_consumer_that_may_not_even_see_its_topic_is_told_so_and_reads_once_it_may(
    tmp_path: Path,
) -> None:
    def work(address: str) -> None:
        rules = Rules(tmp_path)
        for operation in ("WRITE", "CREATE"):
            rules.allow(operation, "TOPIC", "t")
        with AdminClient({"bootstrap.servers": address}) as admin:
            wait_until(lambda: created(admin), FORCE_S)
        sending = Sending(address, "t")
        wait_until(lambda: len(sending.told) > 10)
        sending.stop()
        for operation in ("WRITE", "CREATE"):
            rules.forbid(operation, "t")
        config = {
            "bootstrap.servers": address,
            "topic.metadata.propagation.max.ms": 0,
            "metadata.max.age.ms": 100,
        }
        told: list[str] = []

        def poll(consumer: Consumer) -> bool:
            try:
                return consumer.poll(0.5) is not None
            except MainstemError as error:
                told.append(error.code)
                return False

        partition = TopicPartition("t", 0, 0)
        try:
            with Consumer(config) as consumer:
                wait_until(lambda: hidden(consumer, partition), FORCE_S)
                consumer.assign([partition])
                for _ in range(2):  # with no rule, and after it is taken back
                    wait_until(lambda: poll(consumer) is False and len(told) > 2)
                    assert set(told) == {"TOPIC_AUTHORIZATION_FAILED"}
                    told.clear()
                    rules.allow("READ", "TOPIC", "t")
                    wait_until(lambda: poll(consumer))
                    rules.forbid("READ", "t")
                    wait_until(lambda: hidden(consumer, partition), FORCE_S)
                    consumer.seek(partition)
                    told.clear()
        finally:
            rules.close()

    at_gateway(tmp_path, work)


def hidden(consumer: Consumer, partition: TopicPartition) -> bool:
    try:
        consumer.get_watermark_offsets(partition)
    except TopicAuthorizationError:
        return True
    return False
