"""ListOffsets: the ends of a partition, and the first offset at or after a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.ingest_gateway.fetching import commit
from tests.unit.ingest_gateway.harness import WAIT_S, Client, refused, run, running, table
from tests.unit.ingest_gateway.payloads import records_request, values_request

from mainstem.delta_log.format import Register, registers
from mainstem.protocol.v1 import log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")


def query(topic: str = "t", partition: int = 0, **at: Any) -> log_pb2.OffsetQuery:
    return log_pb2.OffsetQuery(topic=topic, partition=partition, **at)


async def ask(client: Client, *queries: log_pb2.OffsetQuery) -> list[log_pb2.OffsetAnswer]:
    request = log_pb2.ListOffsetsRequest(queries=queries)
    answer = await client.log.ListOffsets(request, timeout=WAIT_S)
    asked = [(one.topic, one.partition) for one in queries]
    assert [(one.topic, one.partition) for one in answer.answers] == asked
    return list(answer.answers)


def at_times(*times_ms: int) -> log_pb2.ProduceRequest:
    return records_request(
        *(log_pb2.Record(value=b"v", timestamp_ms=time_ms, partition=0) for time_ms in times_ms)
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_a_time_gives_the_first_offset_at_or_after_it_whatever_order_times_are_in(
    tmp_path: Path, restarted: bool
) -> None:
    times = [50, 10, 70, 20, 70, 30, 90, 40]

    async def test() -> None:
        async def check(client: Client) -> None:
            asked = [0, 10, 11, 50, 51, 70, 71, 90, 91]
            found = await ask(client, *(query(timestamp_ms=time_ms) for time_ms in asked))
            expected = [
                next((offset for offset, time in enumerate(times) if time >= time_ms), -1)
                for time_ms in asked
            ]
            assert [one.offset for one in found] == expected
            assert not any(one.error.code for one in found)

        async with running(tmp_path) as (_, client):
            await client.create("t")
            for start in (0, 3, 5):  # three files
                end = {0: 3, 3: 5, 5: 8}[start]
                await client.produce(at_times(*times[start:end]))
            assert table(tmp_path, "t").file_count == 3
            if not restarted:
                await check(client)
        if restarted:
            async with running(tmp_path) as (_, client):
                await check(client)

    run(test())


def test_the_ends_are_the_log_start_offset_and_the_high_watermark(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            topic_id = await client.create("t", 2)
            await client.produce(at_times(5, 3, 4))
        commit(tmp_path, "t", Register(registers.lso(0), 1))
        async with running(tmp_path) as (_, client):
            found = await ask(
                client,
                query(earliest=True),
                query(latest=True),
                query(timestamp_ms=5),
                query(timestamp_ms=4),
                query(partition=1, earliest=True),
                query(partition=1, latest=True),
                query(partition=1, timestamp_ms=0),
            )
            # The one record as late as 5 is below the log start offset.
            assert [one.offset for one in found] == [1, 3, -1, 2, 0, 0, -1]
            assert {one.topic_id for one in found} == {topic_id}

    run(test())


def test_each_query_that_cannot_be_answered_has_its_own_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            found = await ask(
                client,
                query("nosuch", latest=True),
                query(partition=7, latest=True),
                query(),
                query("../t", latest=True),
                query(latest=True),
            )
            codes = [one.error.code for one in found]
            expected = ["UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "INVALID_RECORD", "INVALID_TOPIC", ""]
            assert codes == expected
            assert [one.offset for one in found] == [-1, -1, -1, -1, 1]

    run(test())


def test_a_lost_data_file_is_the_error_of_its_query(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            (file,) = table(tmp_path, "t").files(0).sorted()
            (tmp_path / "topics" / "t" / file.path).unlink()
            found = await ask(client, query(timestamp_ms=0), query(earliest=True))
            assert [one.error.code for one in found] == ["LOG_DAMAGED", ""]

    run(test())


def test_a_request_of_too_many_queries_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path) as (_, client),
            refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_TOO_LARGE"),
        ):
            await ask(client, *[query(latest=True)] * 10_001)

    run(test())
