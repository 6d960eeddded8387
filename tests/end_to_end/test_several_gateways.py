"""Three gateways, each a real process, on one warehouse."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from deltalake import DeltaTable

from mainstem.client import AdminClient, Producer, RecordMetadata
from mainstem.testing import GatewayProcess

TOPICS = ("a", "b", "c")
RECORDS_EACH = 200


@pytest.mark.end_to_end
@pytest.mark.timeout(180)
def test_three_gateways_that_start_at_once_share_the_topics_and_one_follows_one_that_is_killed(
    tmp_path: Path,
) -> None:
    settings = {"gateway.heartbeat.interval.ms": 200, "gateway.session.timeout.ms": 1000}
    gateways = [GatewayProcess(tmp_path / "w", settings=settings) for _ in range(3)]
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
