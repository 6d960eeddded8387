"""A gateway that paces its commits: fewer of them, none late, and acks=1 waits for none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.ingest_gateway.harness import Client, run, running, table, values
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.protocol.v1 import log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

TOPICS = [f"t{number}" for number in range(8)]


async def _send_to_all(
    client: Client, value: bytes, acks: log_pb2.Acks
) -> list[log_pb2.ProduceResponse]:
    """One request to each, all answered."""
    stream = client.stream()
    for topic in TOPICS:
        await stream.send(values_request(value, topic=topic, acks=acks))
    return await stream.end()


def test_topics_that_wait_for_their_turn_make_one_commit_of_many_requests(tmp_path: Path) -> None:
    rounds = 5

    async def test() -> None:
        async with running(tmp_path, commit_rate=1) as (_, client):
            for topic in TOPICS:
                await client.create(topic)
                await client.produce(values_request(b"first", topic=topic, acks=log_pb2.ACKS_ALL))
            before = sum(table(tmp_path, topic).version for topic in TOPICS)
            for number in range(rounds):
                # Answered while hardly any of them is in its table: acks=1 does not wait for turns.
                answers = await _send_to_all(client, b"%d" % number, log_pb2.ACKS_LEADER)
                assert len(answers) == len(TOPICS)
                assert not any(answer.HasField("error") for answer in answers)
        commits = sum(table(tmp_path, topic).version for topic in TOPICS) - before
        assert len(TOPICS) <= commits < len(TOPICS) * rounds / 2
        sent = [b"first", *(b"%d" % number for number in range(rounds))]
        assert all(values(tmp_path, topic) == {0: sent} for topic in TOPICS)

    run(test())


def test_a_topic_is_not_kept_past_the_maximum_by_those_in_front_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, commit_rate=1, commit_interval_max_ms=100) as (
            gateway,
            client,
        ):
            await client.create("t")
            # By the budget alone they would all have had their turns in a quarter of an hour.
            for _ in range(1_000):
                gateway._topics._appenders._turns.ask(100, lambda: None)
            answer = await client.produce(values_request(b"x", acks=log_pb2.ACKS_ALL))
            assert answer.table_version > 0

    run(test())
