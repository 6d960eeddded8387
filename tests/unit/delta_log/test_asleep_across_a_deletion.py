"""Writers that sleep while their topic is deleted and created again, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.delta_log.appending import batch, create, lead, run, values
from tests.unit.delta_log.test_store_contract import STORES

from mainstem.delta_log import Slice, TableState, Topics
from mainstem.delta_log.format import Register
from mainstem.delta_log.store import Warehouse
from mainstem.delta_log.table import TableCommit, commit_beside_leader
from mainstem.errors import MainstemError, UnknownTopicError


@pytest.fixture(params=STORES)
def topics(request: pytest.FixtureRequest) -> Iterator[Topics]:
    store: Warehouse = STORES[request.param](request)
    yield Topics(store)
    store.close()


@pytest.mark.parametrize("records_between", [0, 1, 5])
def test_a_leader_that_slept_never_writes_into_the_topic_that_has_the_name_now(
    topics: Topics, records_between: int
) -> None:
    """At the same version, before and after the versions that the new topic has."""

    async def work() -> None:
        create(topics)
        with ThreadPoolExecutor(2) as pool:
            asleep = await lead(topics.open("t"), pool)
            for number in range(3):
                await asleep.submit([Slice(0, batch(number))], 10)
            topics.delete("t")
            create(topics)
            successor = await lead(topics.open("t"), pool)
            for number in range(records_between):
                await successor.submit([Slice(0, batch(100 + number))], 10)
            with pytest.raises(MainstemError) as told:
                await asleep.submit([Slice(0, batch(666))], 10)
            assert isinstance(told.value, UnknownTopicError) or told.value.retriable
            await successor.submit([Slice(0, batch(200))], 10)
            await asyncio.gather(asleep.close(5), successor.close(5))
        expected = [b"%d" % (100 + number) for number in range(records_between)] + [b"200"]
        assert values(topics, 0) == list(enumerate(expected))

    run(work)


def test_a_change_that_slept_never_lands_in_the_topic_that_has_the_name_now(
    topics: Topics,
) -> None:
    create(topics)
    asleep = topics.open("t")
    topics.delete("t")
    create(topics)

    def build(_: TableState) -> TableCommit:
        return TableCommit.of("CHANGE", [Register("mainstem/leo/0", 99)], timestamp_ms=1)

    with pytest.raises(UnknownTopicError):
        commit_beside_leader(asleep, build)
    again = topics.open("t")
    assert again.state.log_end_offset(0) == 0
