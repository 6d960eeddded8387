"""The Admin service and metadata over gRPC: topics come, change and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pyarrow.parquet as pq
import pytest
import structlog
from tests.unit.delta_log.faults import FaultyStore, times, unavailable
from tests.unit.ingest_gateway.harness import (
    Client,
    Gate,
    refused,
    run,
    running,
    soon,
    table,
    until,
    values,
)
from tests.unit.ingest_gateway.payloads import values_request
from tests.unit.jobs.topic_tables import appends

from mainstem.client import AdminClient
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.topics import topics as topics_module
from mainstem.ingest_gateway.topics import followed_topics
from mainstem.protocol.v1 import admin_pb2, groups_pb2, groups_pb2_grpc, log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

NOT_FOUND = grpc.StatusCode.NOT_FOUND
INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def alter(client: Client, topic: str, **fields: Any) -> int:
    answer: admin_pb2.AlterTopicConfigResponse = await client.admin.AlterTopicConfig(
        admin_pb2.AlterTopicConfigRequest(topic=topic, **fields)
    )
    return answer.table_version


async def listed(client: Client) -> dict[str, tuple[str, int]]:
    answer = await client.admin.ListTopics(admin_pb2.ListTopicsRequest())
    return {topic.topic: (topic.topic_id, topic.partition_count) for topic in answer.topics}


async def metadata(
    client: Client, *topics: str, may_create: bool = False
) -> dict[str, log_pb2.TopicMetadata]:
    answer = await client.log.Metadata(
        log_pb2.MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)
    )
    return {topic.topic: topic for topic in answer.topics}


def config_of(description: admin_pb2.DescribeTopicResponse) -> dict[str, tuple[str, bool]]:
    return {entry.name: (entry.value, entry.is_default) for entry in description.config}


def test_a_topic_is_created_listed_described_and_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            topic_id = await client.create("t", 3, retention_ms="60000")
            assert await listed(client) == {"t": (topic_id, 3)}
            found = await client.describe("t")
            assert (found.topic, found.topic_id, found.table_version) == ("t", topic_id, 0)
            assert found.leader == gateway.address
            assert found.table_uri == str(tmp_path / "topics" / "t")
            assert [partition.high_watermark for partition in found.partitions] == [0, 0, 0]
            assert config_of(found)["retention.ms"] == ("60000", False)
            assert config_of(found)["compression.type"] == ("zstd", True)
            assert all(entry.doc for entry in found.config)
            deleted = await client.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="t"))
            assert deleted.topic_id == topic_id
            assert await listed(client) == {}
            assert not list((tmp_path / "topics" / "t").glob("partition=*/*"))

    run(test())


def test_a_description_tells_committed_from_accepted_offsets_and_counts_files(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/t/partition=1")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("t", 2)
            await client.produce(values_request(b"a", b"b", partition=1))
            store.before = gate
            pending = asyncio.ensure_future(client.produce(values_request(b"c", partition=1)))
            await until(lambda: gate.calls > 0)
            found = await client.describe("t")
            one = found.partitions[1]
            assert (one.log_start_offset, one.high_watermark, one.log_end_offset) == (0, 2, 3)
            assert (one.file_count, found.partitions[0].file_count) == (1, 0)
            assert one.size_bytes > 0
            assert found.leader_epoch == table(tmp_path, "t").epoch > 0
            gate.open()
            await soon(pending)

    run(test())


def test_validate_only_checks_everything_and_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            request = admin_pb2.CreateTopicRequest(topic="t", partition_count=3, validate_only=True)
            answer = await client.admin.CreateTopic(request)
            assert (answer.topic_id, answer.partition_count) == ("", 3)
            assert await listed(client) == {}
            await client.create("t")
            async with refused(grpc.StatusCode.ALREADY_EXISTS, "TOPIC_EXISTS"):
                await client.admin.CreateTopic(request)
            version = await alter(client, "t", set={"compression.type": "lz4"}, validate_only=True)
            async with refused(INVALID, "INVALID_CONFIG"):
                await alter(client, "t", set={"compression.type": "rar"}, validate_only=True)
            found = await client.describe("t")
            assert found.table_version == version == 0
            assert config_of(found)["compression.type"] == ("zstd", True)

    run(test())


@pytest.mark.parametrize(
    ("request_", "reason", "message"),
    [
        ({"topic": ""}, "INVALID_TOPIC", "it is empty"),
        ({"topic": ".."}, "INVALID_TOPIC", "directory"),
        ({"topic": "a/b"}, "INVALID_TOPIC", "'/'"),
        ({"topic": "a" * 250}, "INVALID_TOPIC", "250 characters"),
        ({"topic": "t", "partition_count": -1}, "INVALID_CONFIG", "not -1"),
        ({"topic": "t", "partition_count": 10_001}, "INVALID_CONFIG", "1 to 10000"),
        ({"topic": "t", "config": {"retention.mss": "1"}}, "INVALID_CONFIG", "retention.ms"),
        ({"topic": "t", "config": {"segment.bytes": "1"}}, "INVALID_CONFIG", "no segments"),
        ({"topic": "t", "config": {"retention.ms": "soon"}}, "INVALID_CONFIG", "whole number"),
        ({"topic": "t", "config": {"max.message.bytes": "2000000"}}, "INVALID_CONFIG", "1048576"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_rule(
    tmp_path: Path, request_: dict[str, Any], reason: str, message: str
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            async with refused(INVALID, reason) as facts:
                await client.admin.CreateTopic(admin_pb2.CreateTopicRequest(**request_))
            assert message in facts["message"]
            assert await listed(client) == {}

    run(test())


def test_every_call_about_a_topic_that_does_not_exist_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for call in (
                client.describe("nosuch"),
                client.delete("nosuch"),
                alter(client, "nosuch", set={"retention.ms": "1"}),
                alter(client, "nosuch", validate_only=True),
                client.admin.AddPartitions(
                    admin_pb2.AddPartitionsRequest(topic="nosuch", partition_count=2)
                ),
            ):
                async with refused(NOT_FOUND, "UNKNOWN_TOPIC") as facts:
                    await call
                assert facts["topic"] == "nosuch"
            found = await metadata(client, "nosuch", "no/such")
            assert found["nosuch"].error.code == "UNKNOWN_TOPIC"
            assert found["no/such"].error.code == "INVALID_TOPIC"

    run(test())


def test_names_that_look_alike_are_different_topics_and_the_longest_name_works(
    tmp_path: Path,
) -> None:
    names = ["a.b", "a_b", "a-b", "Orders", "orders", "x" * 249]

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for name in names:
                await client.create(name)
            for name in names:
                await client.produce(values_request(name.encode(), topic=name))
            assert sorted(await listed(client)) == sorted(names)
            for name in names:
                assert values(tmp_path, name) == {0: [name.encode()]}
                await client.delete(name)
            assert await listed(client) == {}

    run(test())


def test_auto_creation_is_off_unless_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                await client.produce(values_request(b"v"))
            assert (await metadata(client, "t"))["t"].error.code == "UNKNOWN_TOPIC"
            assert await listed(client) == {}

    run(test())


def test_auto_creation_makes_topics_for_produce_and_producers_metadata_but_not_for_bad_requests(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"auto_create_topics_enable": True, "num_partitions": 3}
        async with running(tmp_path, **settings) as (_, client):
            calls = [client.produce(values_request(b"%d" % n)) for n in range(5)]
            await asyncio.gather(*calls)
            found = await metadata(client, "u", may_create=True)
            assert found["u"].partition_count == 3
            for request, reason in (
                (log_pb2.ProduceRequest(topic="bad"), "INVALID_RECORD"),
                (values_request(b"v", topic="bad", acks=9), "INVALID_RECORD"),
                (values_request(b"v", topic="b/ad"), "INVALID_TOPIC"),
            ):
                async with refused(INVALID, reason):
                    await client.produce(request)
            with pytest.raises(grpc.aio.AioRpcError):
                await client.describe("described")
            assert {name: count for name, (_, count) in (await listed(client)).items()} == {
                "t": 3,
                "u": 3,
            }

    run(test())
    assert sorted(values(tmp_path, "t")[0], key=str) == [b"%d" % n for n in range(5)]


def test_who_does_not_produce_creates_no_topic_however_it_names_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable=True) as (_, client):
            assert (await metadata(client, "typo"))["typo"].error.code == "UNKNOWN_TOPIC"
            asks = client.log.ListOffsets(
                log_pb2.ListOffsetsRequest(
                    queries=[log_pb2.OffsetQuery(topic="typo", partition=0, latest=True)]
                )
            )
            assert (await asks).answers[0].error.code == "UNKNOWN_TOPIC"
            group = groups_pb2_grpc.GroupsStub(client.channel)
            await group.Heartbeat(groups_pb2.HeartbeatRequest(group="g", topics=["typo"]))
            async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                await alter(client, "typo", set={"retention.ms": "1000"})
            async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                await client.admin.AddPartitions(
                    admin_pb2.AddPartitionsRequest(topic="typo", partition_count=3)
                )
            async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                await client.admin.TrimPrefix(
                    admin_pb2.TrimPrefixRequest(
                        topic="typo", partitions=[admin_pb2.PartitionTrim(partition=0, offset=1)]
                    )
                )
            assert await listed(client) == {}

    run(test())


def test_reserved_names_are_refused_with_the_reason_and_a_topic_that_has_one_stays_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable=True) as (_, client):
            for name in ("__consumer_offsets", "__transaction_state", "__mine", "system"):
                async with refused(INVALID, "INVALID_TOPIC"):
                    await client.create(name)
                async with refused(INVALID, "INVALID_TOPIC"):
                    await client.produce(values_request(b"v", topic=name))
            for name in ("_mine", "systems", "System"):
                await client.create(name)
            with monkeypatch.context() as patched:
                patched.setattr(topics_module, "check_new_topic_name", str)
                await client.create("__old")
            await client.produce(values_request(b"v", topic="__old"))
            assert (await metadata(client, "__old"))["__old"].partition_count == 1
            await client.delete("__old")

    run(test())


@pytest.mark.parametrize("listing", [metadata, listed])
def test_a_listing_does_not_bring_back_a_topic_that_is_deleted_meanwhile(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listing: Callable[[Client], Coroutine[Any, Any, dict[str, Any]]],
) -> None:
    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable=True) as (gateway, client):
            await client.create("t")
            names = gateway._topics.names
            found_it, go_on = asyncio.Event(), asyncio.Event()

            async def slow_names() -> list[str]:
                found = await names()
                found_it.set()
                await go_on.wait()
                return found

            monkeypatch.setattr(gateway._topics, "names", slow_names)
            found = asyncio.ensure_future(listing(client))
            await soon(found_it.wait())
            await client.delete("t")
            go_on.set()
            assert await soon(found) == {}
            assert not list((tmp_path / "topics" / "t").glob("partition=*/*"))

    run(test())


def test_a_topic_that_was_deleted_and_created_again_has_a_new_id_and_nothing_of_the_old(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            first = await client.create("t", 2)
            for _ in range(3):
                await client.produce(values_request(b"old", partition=1))
            await client.delete("t")
            second = await client.create("t")
            assert second != first
            assert (await metadata(client, "t"))["t"].topic_id == second
            assert (await client.produce(values_request(b"new"))).results[0].base_offset == 0
            async with refused(NOT_FOUND, "UNKNOWN_PARTITION"):
                await client.produce(values_request(b"v", partition=1))

    run(test())
    assert values(tmp_path, "t") == {0: [b"new"]}


def test_deleting_and_creating_while_others_produce_never_mixes_the_two(tmp_path: Path) -> None:
    """Each value names the topic id that its producer had been told last."""

    async def test() -> tuple[str, list[bytes | None]]:
        async with running(tmp_path) as (_, client):
            current = await client.create("t", commit_interval_ms="0")
            stop = asyncio.Event()

            async def produce_on() -> None:
                stream = client.stream()
                resume = False
                while not stop.is_set():
                    before = current
                    await stream.send(values_request(before.encode(), resume=resume))
                    error = (await stream.answer()).error
                    resume = error.retriable
                    assert error.code in ("", "UNKNOWN_TOPIC", "SHUTTING_DOWN", "HELD"), error
                await stream.end()

            producers = [asyncio.ensure_future(produce_on()) for _ in range(3)]
            for _ in range(6):
                target = table(tmp_path, "t").version + 3
                await until(lambda target=target: table(tmp_path, "t").version >= target)  # type: ignore[misc]
                old = current
                await client.delete("t")
                current = await client.create("t", commit_interval_ms="0")
                assert current != old
            stop.set()
            await asyncio.gather(*producers)
            return current, values(tmp_path, "t").get(0, [])

    # A request that is on its way when the name changes hands may land in the new topic, as with
    # any log: one of each producer.
    current, records = run(test())
    assert sum(record != current.encode() for record in records) <= 3


def test_a_batch_that_was_accepted_before_a_delete_is_committed_and_answered(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store) as (_, client):
            await client.create("t")
            stream = client.stream()
            await stream.send(values_request(b"before"))
            await until(lambda: gate.calls > 0)
            deleting = asyncio.ensure_future(client.delete("t"))
            await client.serving()
            await stream.send(values_request(b"after"))
            gate.open()
            await soon(deleting)
            before, after = await stream.answer(), await stream.answer()
            assert before.results[0].base_offset == 0
            assert after.error.code in ("UNKNOWN_TOPIC", "SHUTTING_DOWN") or not after.error.code
            assert await stream.end() == []
            async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                await client.produce(values_request(b"late"))

    run(test())


def _is_buried(topic: Path) -> bool:
    hint = topic / "_delta_log" / "_deleted"
    return hint.exists() and json.loads(hint.read_bytes())["buried"]


def test_a_delete_that_a_killed_gateway_has_begun_is_finished_by_the_next(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    store = LocalStore(tmp_path)
    opened = appends(Topics(store), "t", 1)
    opened.append(0, [b"v"])
    with pytest.raises(Killed):
        Topics(FaultyStore(store, times(1, "delete", Killed(), "partition="))).delete("t")
    assert list((tmp_path / "topics" / "t").glob("partition=*/*"))

    async def test() -> None:
        async with running(tmp_path):
            await until(lambda: _is_buried(tmp_path / "topics" / "t"))

    run(test())
    assert not list((tmp_path / "topics" / "t").glob("partition=*/*"))
    store.close()


def test_a_delete_whose_caller_goes_away_is_finished(tmp_path: Path) -> None:
    gate = Gate("put_if_absent", "topics/t/")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            store.before = gate
            deleting = asyncio.ensure_future(client.delete("t"))
            await until(lambda: gate.calls > 0)
            deleting.cancel()
            await asyncio.gather(deleting, return_exceptions=True)
            await client.serving()
            gate.open()
            await until(lambda: _is_buried(tmp_path / "topics" / "t"))
            async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                await client.produce(values_request(b"v"))

    run(test())


def test_a_topic_that_somebody_else_deleted_is_unknown_to_producers_and_descriptions(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for topic in ("led", "described"):
                await client.create(topic)
            await client.produce(values_request(b"v", topic="led"))
            await client.describe("described")
            store = LocalStore(tmp_path)
            for topic in ("led", "described"):
                Topics(store).delete(topic)
            store.close()
            for _ in range(2):
                async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                    await client.produce(values_request(b"v", topic="led"))
            for topic in ("led", "described"):
                async with refused(NOT_FOUND, "UNKNOWN_TOPIC"):
                    await client.describe(topic)
            await client.create("led")
            answer = await client.produce(values_request(b"new", topic="led"))
            assert answer.results[0].base_offset == 0

    run(test())


def test_added_partitions_are_seen_by_metadata_and_taken_by_producers_at_once(
    tmp_path: Path,
) -> None:
    async def add(client: Client, partition_count: int) -> None:
        await client.admin.AddPartitions(
            admin_pb2.AddPartitionsRequest(topic="t", partition_count=partition_count)
        )

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            stream = client.stream()
            await stream.send(values_request(b"a", partition=3))
            assert (await stream.answer()).error.code == "UNKNOWN_PARTITION"
            await add(client, 4)
            assert (await metadata(client, "t"))["t"].partition_count == 4
            await stream.send(values_request(b"b", partition=3))
            assert (await stream.answer()).results[0].base_offset == 0
            for count in (4, 3, 0, 10_001):
                async with refused(INVALID, "INVALID_CONFIG"):
                    await add(client, count)
            await stream.end()

    run(test())
    assert values(tmp_path, "t") == {3: [b"b"]}


def test_an_altered_compression_holds_from_the_next_file_on_and_reset_takes_it_back(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"1" * 5000))
            version = await alter(client, "t", set={"compression.type": "lz4"})
            assert (await client.describe("t")).table_version == version
            await client.produce(values_request(b"2" * 5000))
            await alter(client, "t", reset=["compression.type"])
            await client.produce(values_request(b"3" * 5000))
            for wrong in ({"set": {"compresion.type": "lz4"}}, {"reset": ["compresion.type"]}):
                async with refused(INVALID, "INVALID_CONFIG") as facts:
                    await alter(client, "t", **wrong)
                assert "compression.type" in facts["message"]

    run(test())
    files = sorted((tmp_path / "topics" / "t" / "partition=0").glob("*.parquet"))
    groups = [pq.read_metadata(file).row_group(0) for file in files]
    codecs = [
        group.column(number).compression
        for group in groups
        for number in range(group.num_columns)
        if group.column(number).path_in_schema == "value"
    ]
    assert codecs == ["ZSTD", "LZ4", "ZSTD"]


def test_a_limit_that_is_lowered_holds_for_the_next_record(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"v" * 100))
            await alter(client, "t", set={"max.message.bytes": "99"})
            async with refused(INVALID, "RECORD_TOO_LARGE") as facts:
                await client.produce(values_request(b"v" * 100))
            assert facts["limit_bytes"] == "99"

    run(test())


def test_a_change_that_the_store_delays_is_answered_and_loses_no_batch(tmp_path: Path) -> None:
    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"0"))
            store.before = times(2, "put_if_absent", unavailable(), "topics/t/")
            changing = asyncio.ensure_future(alter(client, "t", set={"retention.ms": "1"}))
            await asyncio.gather(changing, client.produce(values_request(b"1")))

    run(test())
    assert values(tmp_path, "t") == {0: [b"0", b"1"]}


def test_a_listing_keeps_a_bounded_number_of_topics_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_topics, "DESCRIBED_MAX", 3)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            names = [f"t{number}" for number in range(8)]
            for name in names:
                await client.create(name)
            await client.produce(values_request(b"v", topic="t0"))
            assert sorted(await listed(client)) == names
            kept = gateway._topics._memory._topics
            assert "t0" in kept
            assert len(kept) == 1 + 3
            await asyncio.gather(*(client.describe(name) for name in names * 3))
            assert len(gateway._topics._memory._topics) <= 1 + 3
            await client.produce(values_request(b"v", topic="t3"))

    run(test())


def test_the_cluster_tells_its_warehouse_and_its_gateway(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, gateway_id="g1") as (gateway, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            found = await client.admin.DescribeCluster(admin_pb2.DescribeClusterRequest())
            assert found.warehouse_uri == str(tmp_path)
            assert found.version
            (one,) = found.gateways
            assert (one.gateway_id, one.address, one.topics_led) == ("g1", gateway.address, 1)

    run(test())


def test_the_log_says_who_created_changed_and_deleted_a_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, _):

            def work() -> None:
                servers = {"bootstrap.servers": gateway.address, "client.id": "ops of-anna"}
                with AdminClient(servers) as admin:
                    admin.create_topic("t", 1)
                    admin.alter_config("t", {"retention.ms": "60000"})
                    admin.add_partitions("t", 2)
                    admin.delete_records("t", {0: 0})
                    admin.delete_topic("t")

            with structlog.testing.capture_logs() as lines:
                await asyncio.to_thread(work)
        told = {line["event"]: line for line in lines if "peer" in line}
        assert set(told) == {
            "topic created",
            "settings changed",
            "partitions added",
            "topic trimmed",
            "topic deleted",
        }
        for line in told.values():
            assert line["topic"] == "t"
            assert line["client_id"] == "ops of-anna"
            assert "127.0.0.1" in line["peer"]

    run(test())
