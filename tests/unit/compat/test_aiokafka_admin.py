"""aiokafka's AIOKafkaAdminClient, against a gateway in memory."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from mainstem.compat.aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from mainstem.compat.aiokafka.errors import (
    IllegalStateError,
    KafkaConnectionError,
    UnsupportedFeatureError,
)
from mainstem.testing import FakeGateway


def test_topics_are_created_grown_described_and_deleted(gateway: FakeGateway) -> None:
    async def main() -> None:
        async with AIOKafkaAdminClient(bootstrap_servers=gateway.address) as admin:
            new = [NewTopic("a", 2, 1, topic_configs={"retention.ms": "1"}), NewTopic("t", 1, 1)]
            made = await admin.create_topics(new)
            assert made.topic_error_codes == [("a", 0), ("t", 36)]
            grown = await admin.create_partitions({"a": NewPartitions(4)})
            assert grown.topic_error_codes == [("a", 0)]
            assert sorted(await admin.list_topics()) == ["a", "one", "t"]
            found, missing = await admin.describe_topics(["a", "none"])
            assert [one["partition"] for one in found["partitions"]] == [0, 1, 2, 3]
            assert missing["error_code"] == 3
            gone = await admin.delete_topics(["a", "none"])
            assert gone.topic_error_codes == [("a", 0), ("none", 3)]
            cluster = await admin.describe_cluster()
            broker = cluster["brokers"][0]
            assert f"{broker['host']}:{broker['port']}" == gateway.address
            assert broker["rack"] == "rack-a"
            with pytest.raises(UnsupportedFeatureError, match="AdminClient"):
                await admin.describe_configs([])

    asyncio.run(main())


def test_a_client_that_is_not_started_or_cannot_reach_a_gateway_says_so(no_leaks: None) -> None:
    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers="127.0.0.1:1", request_timeout_ms=1_000)
        with pytest.raises(IllegalStateError):
            await admin.list_topics()
        with pytest.raises(KafkaConnectionError):
            await admin.start()
        await admin.close()

    asyncio.run(main())


def unclosed() -> list[str]:
    """What a collection of garbage says of clients that nobody closed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    return [str(one.message) for one in caught]


def test_a_block_whose_start_fails_leaves_no_connection_open(no_leaks: None) -> None:
    async def main() -> None:
        with pytest.raises(KafkaConnectionError):
            async with AIOKafkaAdminClient(
                bootstrap_servers="127.0.0.1:1", request_timeout_ms=1_000
            ):
                pass

    asyncio.run(main())
    assert unclosed() == []


def test_a_client_that_is_started_again_goes_on_with_its_connection(gateway: FakeGateway) -> None:
    async def main() -> None:
        async with AIOKafkaAdminClient(bootstrap_servers=gateway.address) as admin:
            await admin.start()
            assert await admin.list_topics() == ["one", "t"]

    asyncio.run(main())
    assert unclosed() == []
