"""The Transactions service over gRPC, against a gateway and the tables on disk."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.fetching import fetch
from tests.unit.ingest_gateway.harness import (
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
from tests.unit.ingest_gateway.test_groups import Member, groups
from tests.unit.ingest_gateway.test_groups import fetch as committed
from tests.unit.ingest_gateway.transacting import (
    Transacting,
    complete,
    complete_several,
    listed,
    transactions,
)

from mainstem.delta_log import LocalStore, load_table, read_data_file
from mainstem.delta_log.format import registers
from mainstem.ingest_gateway.transactions import term as term_module
from mainstem.ingest_gateway.transactions.committing import Committing
from mainstem.ingest_gateway.transactions.coordination import TICK_S
from mainstem.ingest_gateway.transactions.topic_appends import TopicAppends
from mainstem.protocol.v1 import transactions_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def state(warehouse: Path) -> dict[str, Any]:
    """The newest row of each transactional id, as it lies on the disk; "" is the look."""
    store = LocalStore(warehouse / "system" / "transactions", create=False)
    try:
        found: dict[str, Any] = {}
        for file in load_table(store).files(0).sorted():
            for batch in read_data_file(store, file, 0, 2**62, ["key", "value"]):
                for key, value in zip(*(batch.column(n) for n in ("key", "value")), strict=True):
                    name = json.loads(key.as_py()).get("transactional_id", "")
                    found[name] = None if value.as_py() is None else json.loads(value.as_py())
        return found
    finally:
        store.close()


def commits(warehouse: Path) -> int:
    """Of the table of transactions."""
    return len(list((warehouse / "system" / "transactions" / "_delta_log").glob("*.json")))


def staged(warehouse: Path) -> list[Path]:
    """Staged objects that are there."""
    found = (warehouse / "system").glob("transactions/_staged/**/*")
    return [one for one in found if one.is_file()]


# -- commit and abort ----------


def test_records_of_two_topics_and_offsets_are_there_together_or_not_at_all(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a", 2)
            await client.create("b")
            await client.produce(values_request(b"before", topic="a"))
            producer = await Transacting(client).init()
            await producer.begin()
            answer = await producer.send("a", b"1", b"2")
            assert [(one.partition, one.base_offset) for one in answer.results] == [(0, -1)]
            await producer.send("a", b"3", partition=1)
            await producer.send("b", b"4")
            await producer.offsets("g", [("a", 0, 1)])
            assert values(tmp_path, "a") == {0: [b"before"]}, "an open transaction is in the log"
            assert await committed(groups(client)) == {}

            assert await producer.end() == {("a", 0): (1, 2), ("a", 1): (0, 1), ("b", 0): (0, 1)}
            assert values(tmp_path, "a") == {0: [b"before", b"1", b"2"], 1: [b"3"]}
            assert values(tmp_path, "b") == {0: [b"4"]}
            assert await committed(groups(client)) == {("a", 0): 1}

            await producer.begin()
            await producer.send("a", b"no")
            await producer.send("b", b"no")
            await producer.offsets("g", [("a", 0, 3)])
            assert await producer.end(commit=False) == {}
            await client.produce(values_request(b"after", topic="a"))
            assert values(tmp_path, "a") == {0: [b"before", b"1", b"2", b"after"], 1: [b"3"]}
            assert await committed(groups(client)) == {("a", 0): 1}
        assert values(tmp_path, "b") == {0: [b"4"]}
        assert not staged(tmp_path)

    run(test())


def test_a_transaction_of_one_topic_is_one_commit_and_no_row(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a", 2)
            producer = await Transacting(client).init()
            for number in range(2):  # the first says where such transactions may be
                await producer.begin()
                await producer.send("a", b"%d" % number)
                await producer.end()
            rows, version = commits(tmp_path), table(tmp_path, "a").version
            await producer.begin()
            await producer.send("a", b"2")
            await producer.send("a", b"3", partition=1)
            assert await producer.end() == {("a", 0): (2, 1), ("a", 1): (0, 1)}
            assert commits(tmp_path) == rows
            assert table(tmp_path, "a").version == version + 1
        mark = table(tmp_path, "a").register_value(registers.transaction("i"))
        assert mark > 0

    run(test())


def test_an_empty_transaction_costs_no_commit(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            producer = await Transacting(client).init()
            before = commits(tmp_path)
            for commit in (True, False):
                await producer.begin()
                assert await producer.end(commit=commit) == {}
            assert commits(tmp_path) == before

    run(test())


def test_an_end_that_is_sent_again_is_answered_as_the_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"1")
            assert await producer.end() == await producer.end() == {("a", 0): (0, 1)}
            async with refused(PRECONDITION, "INVALID_TXN_STATE") as facts:
                await producer.end(commit=False)
            assert "committed" in facts["message"]
            await producer.begin()
            await producer.send("a", b"no")
            assert await producer.end(commit=False) == await producer.end(commit=False) == {}
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await producer.end()
            assert values(tmp_path, "a") == {0: [b"1"]}

    run(test())


def test_a_batch_that_is_sent_again_counts_once_and_a_gap_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            first, second, third = (producer.request("a", [b"%d" % n]) for n in range(3))
            for request in (first, first):
                await client.produce(request)
            async with refused(PRECONDITION, "OUT_OF_ORDER_SEQUENCE") as facts:
                await client.produce(third)
            assert facts["expected_sequence"] == "1"
            for request in (second, first, third, second):
                await client.produce(request)
            assert await producer.end() == {("a", 0): (0, 3)}
            assert values(tmp_path, "a") == {0: [b"0", b"1", b"2"]}

    run(test())


def test_a_producer_is_told_where_the_coordinator_is_reached(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, advertised_listeners="gateway.test:9490") as (gateway, client):
            producer = await Transacting(client).init()
            assert producer.coordinator == gateway.address == "gateway.test:9490"

    run(test())


@pytest.mark.parametrize("how", ["commit", "prepare"])
def test_a_transaction_of_which_records_are_missing_is_aborted(tmp_path: Path, how: str) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"1", b"2")
            end = producer.end if how == "commit" else producer.prepare
            async with refused(PRECONDITION, "TRANSACTION_ABORTED") as facts:
                await end(record_count=3)
            assert "3 records, and 2 have come" in facts["message"]
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await producer.end(record_count=2)
            for count, sent in ((0, []), (2, [b"3", b"4"])):
                await producer.begin()
                if sent:
                    await producer.send("a", *sent)
                for _ in range(2):  # a repeat is answered as the first
                    await producer.end(record_count=count)
            assert values(tmp_path, "a") == {0: [b"3", b"4"]}

    run(test())


def test_what_is_sent_outside_of_a_transaction_is_refused_and_creates_no_topic(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable=True) as (_, client):
            producer = await Transacting(client).init()
            producer.number = 1
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await producer.send("new", b"1")
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await producer.end()
            assert await producer.end(commit=False) == {}
            assert not (tmp_path / "topics" / "new").exists()
            await producer.begin()
            await producer.send("new", b"1")
            assert await producer.end() == {("new", 0): (0, 1)}

    run(test())


# -- who may ----------


def test_a_new_producer_fences_the_old_one_whose_transaction_is_aborted(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            old = await Transacting(client).init()
            await old.begin()
            await old.send("a", b"old")
            new = await Transacting(client).init()
            assert (new.producer_id, new.producer_epoch) == (
                old.producer_id,
                old.producer_epoch + 1,
            )
            for call in (old.send("a", b"late"), old.end(), old.begin(), old.prepare()):
                async with refused(PRECONDITION, "PRODUCER_FENCED"):
                    await call
            await new.begin()
            await new.send("a", b"new")
            await new.end()
            assert values(tmp_path, "a") == {0: [b"new"]}

    run(test())


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_goes_on(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init(timeout_ms=1)
            await producer.begin()
            async with asyncio.timeout(30):
                while await listed(client):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            for call in (producer.send("a", b"late"), producer.end()):
                async with refused(PRECONDITION, "TRANSACTION_TIMED_OUT") as facts:
                    await call
                assert "transaction.timeout.ms (1 ms)" in facts["message"]
            assert await producer.end(commit=False) == {}
            await producer.init()
            await producer.begin()
            await producer.send("a", b"in time")
            await producer.end()
            assert values(tmp_path, "a") == {0: [b"in time"]}

    run(test())


def test_offsets_of_a_member_that_lost_its_partitions_are_refused_with_the_transaction(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.create("out")
            await client.produce(values_request(b"1", b"2"))
            first, second = Member(client), Member(client)
            await first.beat()
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("out", b"no")
            await producer.offsets("g", [("t", 0, 1)], first.member_id, first.epoch)
            await first.leave()
            await second.beat()
            async with refused(PRECONDITION, "TRANSACTION_ABORTED") as facts:
                await producer.end()
            assert facts["cause"] == "UNKNOWN_MEMBER"
            await producer.begin()
            await producer.send("out", b"no")
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await producer.offsets("g", [("t", 0, 1)], first.member_id, first.epoch)
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await producer.end()
            assert await committed(groups(client)) == {}
            assert values(tmp_path, "out") == {}

    run(test())


# -- another coordinator ----------


def test_an_open_transaction_ends_with_its_coordinator(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"lost")
        async with running(tmp_path) as (_, client):
            producer.at(client)
            for call in (producer.send("a", b"late"), producer.end()):
                async with refused(PRECONDITION, "TRANSACTION_ABORTED") as facts:
                    await call
                assert "moved" in facts["message"]
            await producer.begin()
            await producer.send("a", b"next")
            assert await producer.end() == {("a", 0): (0, 1)}
        assert values(tmp_path, "a") == {0: [b"next"]}

    run(test())


@pytest.mark.parametrize("topics", [["a"], ["a", "b"]])
def test_a_commit_whose_answer_was_lost_is_answered_by_the_next_coordinator(
    tmp_path: Path, topics: list[str]
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            producer = await Transacting(client).init()
            for topic in topics:
                await client.create(topic)
            await producer.begin()
            for topic in topics:
                await producer.send(topic, b"1")
            await producer.end()
        async with running(tmp_path) as (_, client):
            producer.at(client)
            await producer.end()
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await producer.end(commit=False)
            await producer.begin()
            await producer.send("a", b"2")
            await producer.end()
        assert values(tmp_path, "a") == {0: [b"1", b"2"]}

    run(test())


def test_what_is_decided_is_ended_by_the_next_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        reached = asyncio.Event()

        async def stopped(*_: object) -> Any:
            reached.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            async with running(tmp_path) as (_, client):
                await client.create("a")
                await client.create("b")
                patch.setattr(TopicAppends, "append", stopped)
                producer = await Transacting(client).init()
                await producer.begin()
                await producer.send("a", b"1")
                await producer.send("b", b"2")
                await producer.offsets("g", [("a", 0, 0)])
                ending = asyncio.create_task(producer.end())
                await reached.wait()
        with pytest.raises(asyncio.CancelledError):
            await ending  # with its channel
        assert values(tmp_path, "a") == {}
        assert state(tmp_path)["i"]["state"] == "COMMITTING"
        async with running(tmp_path) as (_, client):
            producer.at(client)
            assert await committed(groups(client)) == {("a", 0): 0}
            assert await producer.end() == {("a", 0): (0, 1), ("b", 0): (0, 1)}
            await until(lambda: state(tmp_path)["i"]["state"] == "COMMITTED")
            await until(lambda: not staged(tmp_path))
        assert values(tmp_path, "a") == {0: [b"1"]}
        assert values(tmp_path, "b") == {0: [b"2"]}

    run(test())


def test_a_topic_that_another_gateway_leads_gets_its_part_from_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, first), running(tmp_path) as (_, second):
            await first.create("a")
            await first.create("b")
            await first.produce(values_request(b"first leads", topic="a"))
            await second.produce(values_request(b"second leads", topic="b"))
            producer = await Transacting(first).init()
            async with refused(PRECONDITION, "NOT_LEADER"):
                await Transacting(second, "other").init()
            for number in (b"1", b"2"):
                await producer.begin()
                await producer.send("a", number)
                await producer.send("b", number)
                await producer.end()
            await producer.begin()
            await producer.send("b", b"alone")
            assert await producer.end() == {("b", 0): (3, 1)}
            assert [one.value for one in (await fetch(second, ("b", 0, 0), format=2))[0].records][
                1:
            ] == [b"1", b"2", b"alone"]
        assert values(tmp_path, "a") == {0: [b"first leads", b"1", b"2"]}

    run(test())


def test_a_topic_that_cannot_be_appended_to_holds_up_no_reader_of_the_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        reached, goes_on = asyncio.Event(), asyncio.Event()
        append = TopicAppends.append

        async def waiting(self: TopicAppends, *arguments: Any) -> Any:
            reached.set()
            await goes_on.wait()
            return await append(self, *arguments)

        monkeypatch.setattr(TopicAppends, "append", waiting)
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"1")
            await producer.offsets("g", [("a", 0, 0)])
            ending = asyncio.create_task(producer.end())
            await reached.wait()
            async with asyncio.timeout(30):
                assert await committed(groups(client)) == {("a", 0): 0}
            async with refused(grpc.StatusCode.ABORTED, "CONCURRENT_TRANSACTIONS"):
                await producer.begin()
            goes_on.set()
            assert await ending == {("a", 0): (0, 1)}

    run(test())


# -- two phases ----------


def test_a_prepared_transaction_outlives_everybody_and_is_completed_by_its_token(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            await client.create("b")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"1")
            await producer.send("b", b"2")
            token = await producer.prepare()
            assert await producer.prepare() == token
            await client.produce(values_request(b"others go on", topic="a"))
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await producer.end()
        async with running(tmp_path) as (_, client):
            again = await Transacting(client).init()
            assert again.prepared_token == token
            async with refused(PRECONDITION, "INVALID_TXN_STATE") as facts:
                await again.begin()
            assert facts["token"] == token
            assert await complete(client, token) == {("a", 0): (1, 1), ("b", 0): (0, 1)}
            again.number = 0
            await again.begin()
            await again.send("a", b"next")
            await again.end()
            await complete(client, token)
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await complete(client, token, commit=False)
        assert values(tmp_path, "a") == {0: [b"others go on", b"1", b"next"]}
        assert not staged(tmp_path)

    run(test())


@pytest.mark.parametrize("waits_for", ["_staged", "_delta_log"])
def test_a_prepare_whose_caller_goes_away_is_finished(tmp_path: Path, waits_for: str) -> None:
    """Were it given up as its row is written, the transaction would be prepared and open: to end
    what is open, as its time does, would delete what is prepared."""
    gate = Gate("put" if waits_for == "_staged" else "put_if_absent", "system/transactions")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"1")
            store.before = gate
            preparing = asyncio.ensure_future(producer.prepare())
            await until(lambda: gate.calls > 0)
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
            await client.serving()
            gate.open()
            token = await producer.prepare()
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await producer.send("a", b"2")
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await producer.begin()
            assert await complete(client, token) == {("a", 0): (0, 1)}
        assert values(tmp_path, "a") == {0: [b"1"]}
        store.close()

    run(test())


def test_a_prepared_transaction_that_is_aborted_leaves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"no")
            token = await producer.prepare()
            assert await listed(client) == {"i": "PREPARED"}
            for _ in range(2):
                assert await complete(client, token, commit=False) == {}
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await complete(client, token)
            await producer.begin()
            await producer.offsets("g", [("a", 0, 0)])
            async with refused(PRECONDITION, "INVALID_TXN_STATE") as facts:
                await producer.prepare()
            assert "offsets" in facts["message"]
            await producer.end(commit=False)
            await until(lambda: not staged(tmp_path))
        assert values(tmp_path, "a") == {}

    run(test())


def test_a_prepared_transaction_whose_time_is_over_is_aborted(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"no")
            token = await producer.prepare(timeout_ms=1)
            async with asyncio.timeout(30):
                while await listed(client):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            async with refused(PRECONDITION, "TRANSACTION_ABORTED"):
                await complete(client, token)

    run(test())


def test_an_operator_aborts_what_is_open_and_completes_what_is_prepared(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            producer = await Transacting(client).init()
            await producer.begin()
            await producer.send("a", b"no")
            by_name = transactions_pb2.CompleteTransactionRequest
            stub = transactions(client)
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await stub.CompleteTransaction(by_name(transactional_id="i", commit=True))
            await stub.CompleteTransaction(by_name(transactional_id="i"))
            async with refused(PRECONDITION, "TRANSACTION_ABORTED") as facts:
                await producer.end()
            assert "operator" in facts["message"]
            await producer.begin()
            await producer.send("a", b"yes")
            await producer.prepare()
            described = await stub.DescribeTransaction(
                transactions_pb2.DescribeTransactionRequest(transactional_id="i")
            )
            assert (described.state, described.record_count, list(described.topics)) == (
                "PREPARED",
                1,
                ["a"],
            )
            await stub.CompleteTransaction(by_name(transactional_id="i", commit=True))
            assert values(tmp_path, "a") == {0: [b"yes"]}

    run(test())


# -- several that become one ----------


async def prepared(client: Any, name: str, *values: bytes, topic: str = "a") -> str:
    """The token of a transaction of its own."""
    producer = await Transacting(client, name).init(single_use=True)
    await producer.begin()
    await producer.send(topic, *values)
    return await producer.prepare()


def test_prepared_transactions_of_several_become_one_epoch_which_is_committed_once(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            await client.create("b")
            tokens = [await prepared(client, f"task-{n}", b"%d" % n) for n in range(3)]
            tokens.append(await prepared(client, "task-3", b"3", topic="b"))
            assert await complete_several(client, "q", 0, *tokens) == (
                {("a", 0): (0, 3), ("b", 0): (0, 1)},
                False,
            )
            assert await complete_several(client, "q", 0, *tokens) == (
                {("a", 0): (0, 3), ("b", 0): (0, 1)},
                True,
            )
            replayed = await prepared(client, "task-0-again", b"twice?")
            assert (await complete_several(client, "q", 0, replayed))[1]
            assert await complete_several(client, "q", 1) == ({}, False)
        async with running(tmp_path) as (_, client):
            replayed = await prepared(client, "task-0-once-more", b"twice?")
            assert await complete_several(client, "q", 1, replayed) == ({}, True)
            assert await listed(client) == {}
            await until(lambda: not staged(tmp_path))
        assert values(tmp_path, "a") == {0: [b"0", b"1", b"2"]}
        assert values(tmp_path, "b") == {0: [b"3"]}
        assert {name for name, row in state(tmp_path).items() if row} == {"", "q"}

    run(test())


def test_where_one_of_several_is_lost_the_others_go_with_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("a")
            tokens = [await prepared(client, f"task-{n}", b"%d" % n) for n in range(3)]
            await complete(client, tokens[1], commit=False)
            async with refused(PRECONDITION, "TRANSACTION_ABORTED") as facts:
                await complete_several(client, "q", 0, *tokens)
            assert facts["transactional_id"] == "task-1"
            assert await listed(client) == {}
            again = await prepared(client, "task-4", b"4")
            assert await complete_several(client, "q", 0, again) == ({("a", 0): (0, 1)}, False)
            given_up = await prepared(client, "task-5", b"no")
            await complete_several(client, "q", 1, given_up, tokens[0], commit=False)
            assert await listed(client) == {}

    run(test())


def test_what_one_caller_has_begun_to_commit_and_gone_away_no_other_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        reached, goes_on = asyncio.Event(), asyncio.Event()
        decide = Committing.decide

        async def waiting(self: Committing, *arguments: Any) -> Any:
            reached.set()
            await goes_on.wait()
            return await decide(self, *arguments)

        monkeypatch.setattr(Committing, "decide", waiting)
        async with running(tmp_path) as (_, client):
            await client.create("a")
            tokens = [await prepared(client, f"task-{n}", b"%d" % n) for n in range(2)]
            committing = asyncio.ensure_future(complete_several(client, "q", 0, *tokens))
            await soon(reached.wait())
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            await client.serving()
            aborting = asyncio.ensure_future(complete(client, tokens[1], commit=False))
            await client.serving()
            goes_on.set()
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await aborting
            assert await complete_several(client, "q", 0, *tokens) == ({("a", 0): (0, 2)}, True)
        assert values(tmp_path, "a") == {0: [b"0", b"1"]}

    run(test())


def test_an_id_is_a_producers_or_one_for_epochs(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await Transacting(client, "p").init()
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await complete_several(client, "p", 0)
            await complete_several(client, "q", 0)
            async with refused(PRECONDITION, "INVALID_TXN_STATE"):
                await Transacting(client, "q").init()

    run(test())


# -- much ----------


def test_a_transaction_larger_than_memory_waits_in_the_store(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, transaction_memory_bytes=1 << 20) as (_, client):
            await client.create("a", 2)
            producer = await Transacting(client).init()
            for commit in (False, True):
                await producer.begin()
                for number in range(24):
                    await producer.send("a", b"%d" % number * 50_000, partition=number % 2)
                assert staged(tmp_path)
                await producer.end(commit=commit)
                await until(lambda: not staged(tmp_path))
            assert [len(found) for found in values(tmp_path, "a").values()] == [12, 12]
            await client.produce(values_request(b"next", topic="a"))

    run(test())


def test_ids_that_nobody_uses_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_module, "_SINGLE_USE_KEPT_S", 0.0)

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            single = await Transacting(client, "once").init(single_use=True)
            await single.begin()
            async with asyncio.timeout(30):
                await single.end(commit=False)
                await asyncio.sleep(3 * TICK_S)
                async with refused(PRECONDITION, "UNKNOWN_PRODUCER_ID"):
                    await single.end(commit=False)

    run(test())
