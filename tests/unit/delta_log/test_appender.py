"""The appender over a real store: what is accepted lands once, at its offsets, whatever happens."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.appending import PARTITIONS, batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import nothing, times, unavailable, unknown
from tests.unit.delta_log.tables import NOW_MS, records

from mainstem.delta_log import (
    Appended,
    Appender,
    ByteBudget,
    Committed,
    Committer,
    LocalStore,
    Slice,
    Topics,
    read_data_file,
)
from mainstem.delta_log.files import RollUpMemory
from mainstem.delta_log.format import DataFile, Metadata, Register, commit_path, registers
from mainstem.delta_log.store import NotFound, StoreFolder
from mainstem.delta_log.table import TableCommit, TableState, read_commit
from mainstem.delta_log.topics import added_partitions, altered_config
from mainstem.errors import (
    BackPressureError,
    FencedError,
    InternalError,
    InvalidConfigError,
    LogDamagedError,
    MainstemError,
    OutcomeUnknownError,
    ShuttingDownError,
    StoreUnavailableError,
    UnknownTopicError,
    UnsupportedTableError,
)
from mainstem.limits import ROW_GROUP_BYTES_MAX
from mainstem.records import records_to_wire_batch


@pytest.mark.parametrize(("partition_count", "call_count"), [(2, 1), (PARTITIONS, 1 + 4)])
def test_a_small_commit_takes_few_calls_of_the_pool(
    topics: Topics,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    partition_count: int,
    call_count: int,
) -> None:
    """Each is a thread that hands the interpreter to and fro, and a disk that syncs meanwhile."""
    create(topics)

    async def work() -> None:
        leader = await lead(topics.open("t"), pool)
        await leader.submit([Slice(0, batch(0))], 1)
        calls: list[object] = []
        submit = pool.submit

        def counted(*arguments: Any, **named: Any) -> Any:
            calls.append(arguments)
            return submit(*arguments, **named)

        monkeypatch.setattr(pool, "submit", counted)
        slices = [Slice(n, batch(1)) for n in range(partition_count)]
        await leader.submit(slices, partition_count)
        assert len(calls) == call_count
        await leader.close(10)

    run(work)
    assert [values(topics, n)[-1][1] for n in range(partition_count)] == [b"1"] * partition_count


@pytest.mark.fault
@pytest.mark.parametrize("lands", [False, True])
def test_files_of_a_small_commit_that_a_store_did_not_take_are_put_again_and_count_once(
    topics: Topics, pool: ThreadPoolExecutor, lands: bool
) -> None:
    create(topics)
    failed: set[str] = set()

    def fail(call: str, path: str) -> None:
        if call == "put" and path.endswith(".parquet") and path not in failed and len(failed) < 3:
            failed.add(path)
            raise StoreUnavailableError("the disk is full")

    async def work() -> None:
        hooks = {"after" if lands else "before": fail}
        leader = await lead(faulty(topics.open("t"), **hooks), pool)
        await leader.submit([Slice(n, batch(n)) for n in range(PARTITIONS)], PARTITIONS)
        await leader.close(10)

    run(work)
    assert len(failed) == 3
    for partition in range(PARTITIONS):
        assert values(topics, partition) == [(0, b"%d" % partition)]


def test_concurrent_requests_on_many_partitions_get_dense_offsets_in_order(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        answers: list[asyncio.Future[Appended]] = []
        for number in range(600):
            partition = number % PARTITIONS
            answers.append(appender.submit([Slice(partition, batch(number, 1 + number % 3))], 10))
            if number % 50 == 0:
                await asyncio.sleep(0.002)
        results = await asyncio.gather(*answers)
        expected = [0] * PARTITIONS
        for number, result in enumerate(results):
            (placed,) = result.batches
            assert placed.partition == number % PARTITIONS
            assert placed.base_offset == expected[placed.partition]
            assert placed.record_count == 1 + number % 3
            expected[placed.partition] += placed.record_count
        versions = [result.table_version for result in results]
        assert versions == sorted(versions)
        assert len(set(versions)) < len(versions)  # in groups
        assert [appender.log_end_offset(p) for p in range(PARTITIONS)] == expected
        assert appender.queued_bytes == 0
        await appender.close(10)

    run(work)
    for partition in range(PARTITIONS):
        expected = [
            b"%d" % number
            for number in range(partition, 600, PARTITIONS)
            for _ in range(1 + number % 3)
        ]
        assert values(topics, partition) == list(enumerate(expected))
    opened = topics.open("t")
    assert opened.state.log_end_offset(0) == len(values(topics, 0))


def test_a_request_for_several_partitions_lands_in_one_commit(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        result = await appender.submit([Slice(p, batch(p, p + 1)) for p in (0, 2, 5)], 10)
        await appender.close(10)
        bound = StoreFolder(store, "topics/t")
        actions = read_commit(bound, result.table_version)
        assert sorted(a.partition for a in actions if isinstance(a, DataFile)) == [0, 2, 5]
        assert {a.name: a.value for a in actions if isinstance(a, Register)} == {
            registers.leo(0): 1,
            registers.leo(2): 3,
            registers.leo(5): 6,
            **{
                name: value
                for partition in (0, 2, 5)
                for name, value in (
                    (registers.partition_epoch(partition), appender.epoch),
                    (registers.epoch_number(partition, 0), appender.epoch),
                    (registers.epoch_start(partition, 0), 0),
                )
            },
        }

    run(work)


def test_several_slices_for_one_partition_follow_each_other(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([Slice(1, batch(1)), Slice(1, batch(2)), Slice(0, batch(3))], 10)
        await appender.close(10)

    run(work)
    assert values(topics, 1) == [(0, b"1"), (1, b"2")]
    assert values(topics, 0) == [(0, b"3")]


def test_an_idle_topic_commits_at_once_and_a_busy_one_waits_for_the_interval(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    interval_ms = 20_000
    topics.create("t", 1, {"commit.interval.ms": interval_ms})

    async def work() -> None:
        loop = asyncio.get_running_loop()
        appender = await lead(topics.open("t"), pool)
        started = loop.time()
        first = await appender.submit([Slice(0, batch(1))], 1)
        # Far below the interval, and far above what a slow machine takes.
        assert loop.time() - started < interval_ms / 1000 / 2
        both = [appender.submit([Slice(0, batch(number))], 1) for number in (2, 3)]
        done, _ = await asyncio.wait(both, timeout=0.5)
        assert not done
        await appender.close(10)  # a topic that is closed does not wait for its interval
        second, third = await asyncio.gather(*both)
        assert second.table_version == third.table_version == first.table_version + 1

    run(work)


def test_a_busy_topic_commits_before_the_interval_when_enough_bytes_wait(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    topics.create("t", 1, {"commit.interval.ms": 60_000, "commit.bytes": 100})

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([Slice(0, batch(1))], 1)
        waits = appender.submit([Slice(0, batch(2))], 60)
        await asyncio.sleep(0.05)
        assert not waits.done()
        appender.submit([Slice(0, batch(3))], 60)
        await waits
        await appender.close(10)

    run(work)


def test_an_older_leader_is_fenced_and_nothing_of_it_lands_after(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        failures: list[MainstemError] = []
        old = await lead(topics.open("t"), pool, on_failure=failures.append)
        await old.submit([Slice(0, batch(1))], 1)
        new = await lead(topics.open("t"), pool)
        assert new.epoch == old.epoch + 1
        late = [old.submit([Slice(p, batch(666))], 1) for p in (0, 1)]
        for future in late:
            with pytest.raises(FencedError, match=f"with epoch {new.epoch}; ours was {old.epoch}"):
                await future
        with pytest.raises(FencedError):
            old.submit([Slice(0, batch(666))], 1)
        assert isinstance(old.failure, FencedError)
        assert len(failures) == 1
        assert (await new.submit([Slice(0, batch(2))], 1)).batches[0].base_offset == 1
        await old.close(10)
        await new.close(10)

    run(work)
    assert values(topics, 0) == [(0, b"1"), (1, b"2")]
    assert values(topics, 1) == []


def test_two_leaders_at_once_never_mix_and_the_higher_epoch_wins(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        leaders = [await lead(topics.open("t"), pool) for _ in range(1)]
        acked: list[tuple[int, int]] = []

        async def send(appender: Appender, name: int) -> None:
            for _ in range(30):
                try:
                    result = await appender.submit([Slice(0, batch(name))], 1)
                except FencedError:
                    return
                acked.append((result.batches[0].base_offset, name))

        senders = [asyncio.ensure_future(send(leaders[0], 1))]
        for name in (2, 3, 4):
            await asyncio.sleep(0.01)
            leaders.append(await lead(topics.open("t"), pool))
            senders.append(asyncio.ensure_future(send(leaders[-1], name)))
        await asyncio.gather(*senders)
        for appender in leaders:
            await appender.close(10)
        rows = values(topics, 0)
        assert [offset for offset, _ in rows] == list(range(len(rows)))
        assert sorted(acked) == [(offset, int(value)) for offset, value in rows]
        assert [name for _, name in sorted(acked)] == sorted(name for _, name in acked)

    run(work)


def test_a_setting_that_another_changes_between_commits_is_merged_and_used(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    large = 1_000  # or they would not be compressed

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([Slice(0, batch(1, large))], 1)
        _other_commit(
            topics, [altered_config(appender.state, {"compression.type": "gzip"}, ["retention.ms"])]
        )
        # This commit meets the conflict, and the next uses the setting.
        await appender.submit([Slice(0, batch(2, large))], 1)
        assert appender.state.config.compression_type == "gzip"
        await appender.submit([Slice(0, batch(3, large))], 1)
        await appender.close(10)
        files = appender.state.files(0).sorted()
        codecs = [_codec(Path(topics.uri("t"), file.path)) for file in files]
        assert codecs == ["ZSTD", "ZSTD", "GZIP"]

    run(work)
    assert [value for _, value in values(topics, 0)] == [
        b"%d" % number for number in (1, 2, 3) for _ in range(large)
    ]


def _other_commit(topics: Topics, actions: Sequence[Any], operation: str = "OTHER") -> int:
    """What another process commits at the next version."""
    opened = topics.open("t")
    version = opened.state.version + 1
    one = TableCommit.of(operation, actions, timestamp_ms=NOW_MS)
    assert Committer(opened.store).commit(version, one) == Committed(version)
    return version


def _codec(path: Path) -> str:
    metadata = pq.read_metadata(path)
    return _codecs(metadata)["value"]


def _codecs(metadata: pq.FileMetaData) -> dict[str, str]:
    """By column."""
    group = metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: str(column.compression) for column in columns}


def test_two_changes_of_settings_at_once_both_hold(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """A change that loses its version is made again upon the winner's, not instead of it."""
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        _other_commit(topics, [altered_config(appender.state, {"retention.ms": 7}, [])])
        await appender.change_metadata(
            "SET", lambda state: altered_config(state, {"compression.type": "lz4"}, [])
        )
        config = appender.state.config
        assert (config.get("retention.ms"), config.compression_type) == (7, "lz4")
        await appender.close(10)

    run(work)
    opened = topics.open("t")
    assert opened.state.config.overrides["retention.ms"] == 7


def test_a_change_that_the_winner_made_impossible_is_refused_and_the_topic_goes_on(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        _other_commit(topics, [added_partitions(appender.state, 9)])
        with pytest.raises(InvalidConfigError, match="has 9 partitions"):
            await appender.change_metadata("ADD", lambda state: added_partitions(state, 8))
        assert appender.failure is None
        assert appender.state.partition_count == 9
        await appender.submit([Slice(8, batch(1))], 1)
        await appender.close(10)

    run(work)


def test_changes_of_metadata_go_between_appends(topics: Topics, pool: ThreadPoolExecutor) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        answers: list[Awaitable[Any]] = []
        for number in range(20):
            answers.append(appender.submit([Slice(0, batch(number))], 1))
            if number % 5 == 0:
                answers.append(
                    appender.change_metadata(
                        "ADD",
                        lambda state: added_partitions(state, state.partition_count + 1),
                    )
                )
            await asyncio.sleep(0)
        await asyncio.gather(*answers)
        assert appender.state.partition_count == PARTITIONS + 4
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            lambda m: Metadata(m.id, m.created_ms, m.configuration, schema_string="{}"),
            UnsupportedTableError,
        ),
        (lambda m: Metadata("other", m.created_ms, m.configuration), UnknownTopicError),
        (lambda _: Register(registers.leo(0), 77), LogDamagedError),
        (lambda _: Register(registers.DELETED, 1), UnknownTopicError),
    ],
    ids=["schema", "created again", "moved end", "deleted"],
)
def test_a_commit_of_another_that_appending_cannot_live_with_stops_the_topic(
    topics: Topics,
    pool: ThreadPoolExecutor,
    change: Callable[[Metadata], Any],
    error: type[MainstemError],
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        assert appender.state.metadata is not None
        version = _other_commit(topics, [change(appender.state.metadata)])
        with pytest.raises(error):
            await appender.submit([Slice(0, batch(1))], 1)
        assert isinstance(appender.failure, error)
        with pytest.raises(error):
            appender.submit([Slice(0, batch(1))], 1)
        await appender.close(10)
        stopped_at.append(version)

    stopped_at: list[int] = []
    run(work)
    assert not Path(topics.uri("t"), commit_path(stopped_at[0] + 1)).exists()


def test_a_commit_of_another_that_only_removes_and_adds_files_is_merged(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        for number in range(3):
            await appender.submit([Slice(0, batch(number))], 1)
        _other_commit(topics, [Register("somebody/else", 5)])
        await appender.submit([Slice(0, batch(3))], 1)
        assert appender.state.registers["somebody/else"].value == 5
        await appender.close(10)

    run(work)
    assert len(values(topics, 0)) == 4


@pytest.mark.fault
@pytest.mark.parametrize("call", ["put", "put_if_absent"])
def test_what_was_accepted_lands_once_at_its_offsets_after_the_store_has_healed(
    topics: Topics, pool: ThreadPoolExecutor, call: str
) -> None:
    create(topics)
    away = threading.Event()

    def broken(name: str, path: str) -> None:
        if name == call and away.is_set():
            raise unavailable()

    async def work() -> None:
        appender = await lead(faulty(topics.open("t"), broken), pool)
        await appender.submit([Slice(0, batch(0))], 1)
        away.set()
        answers = []
        for number in range(1, 30):
            answers.append(appender.submit([Slice(number % 2, batch(number))], 1))
            await asyncio.sleep(0.005)
        assert not any(answer.done() for answer in answers)
        away.clear()
        results = await asyncio.gather(*answers)
        assert [r.batches[0].base_offset for r in results] == [n // 2 for n in range(1, 30)]
        assert appender.failure is None
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"%d" % n for n in range(0, 30, 2)]
    assert [value for _, value in values(topics, 1)] == [b"%d" % n for n in range(1, 30, 2)]


@pytest.mark.fault
@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
def test_a_commit_whose_answer_was_lost_is_in_the_log_once(
    topics: Topics, pool: ThreadPoolExecutor, landed: bool
) -> None:
    create(topics)
    fault = times(3, "put_if_absent", unknown(), "00000002.json")
    written: list[str] = []

    def before(call: str, path: str) -> None:
        if call == "put":
            written.append(path)
        if not landed:
            fault(call, path)

    async def work() -> None:
        opened = topics.open("t")
        failing = faulty(opened, before=before, after=fault if landed else nothing)
        appender = await lead(failing, pool)
        first = await appender.submit([Slice(0, batch(1))], 1)
        second = await appender.submit([Slice(0, batch(2))], 1)
        assert (first.table_version, second.table_version) == (2, 3)
        await appender.close(10)

    run(work)
    assert values(topics, 0) == [(0, b"1"), (1, b"2")]
    # A file that may be part of the table already is not written again.
    assert len(written) == len(set(written)) == 2


@pytest.mark.fault
def test_a_leader_whose_claim_got_no_answer_takes_one_epoch_only(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        fault = times(2, "put_if_absent", unknown())
        appender = await lead(faulty(topics.open("t"), after=fault), pool)
        assert (appender.epoch, appender.state.version) == (NOW_MS, 1)
        await appender.submit([Slice(0, batch(1))], 1)
        await appender.close(10)

    run(work)
    assert values(topics, 0) == [(0, b"1")]


def test_a_topic_that_is_deleted_while_appending_fails_and_leaves_nothing_to_its_successor(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        stop = asyncio.Event()
        failures: list[BaseException] = []

        async def send() -> None:
            while not stop.is_set():
                try:
                    await appender.submit([Slice(0, batch(1))], 1)
                except MainstemError as error:
                    failures.append(error)
                    return

        senders = [asyncio.ensure_future(send()) for _ in range(5)]
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        old_id = await loop.run_in_executor(None, topics.delete, "t")
        new = await loop.run_in_executor(None, topics.create, "t", 2)
        await asyncio.gather(*senders)
        assert len(failures) == 5
        assert {type(failure) for failure in failures} == {UnknownTopicError}
        assert new.id != old_id
        await appender.close(10)

    run(work)
    opened = topics.open("t")
    assert opened.state.file_count == 0
    assert [opened.state.log_end_offset(partition) for partition in range(2)] == [0, 0]


def test_leading_a_topic_that_is_gone_is_an_unknown_topic(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        opened = topics.open("t")
        topics.delete("t")
        with pytest.raises(UnknownTopicError):
            await lead(opened, pool)

    run(work)


def test_closing_commits_what_was_accepted_and_takes_nothing_more(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    topics.create("t", 1, {"commit.interval.ms": 60_000})

    async def work() -> None:
        failures: list[MainstemError] = []
        appender = await lead(topics.open("t"), pool, on_failure=failures.append)
        await appender.submit([Slice(0, batch(0))], 1)
        answers = [appender.submit([Slice(0, batch(number))], 1) for number in range(1, 9)]
        closing = asyncio.ensure_future(appender.close(10))
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDownError):
            appender.submit([Slice(0, batch(9))], 1)
        await closing
        assert [(await answer).batches[0].base_offset for answer in answers] == list(range(1, 9))
        assert failures == []

    run(work)
    assert len(values(topics, 0)) == 9


@pytest.mark.fault
def test_closing_while_the_store_hangs_fails_everything_as_unknown(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """Also what is in a commit at that moment: it may land yet."""
    create(topics)
    hang, go_on = threading.Event(), threading.Event()

    def hanging(call: str, path: str) -> None:
        if call == "put_if_absent" and hang.is_set():
            go_on.wait(30)

    async def work() -> None:
        budget = ByteBudget(2**30)
        appender = await lead(faulty(topics.open("t"), hanging), pool, budget=budget)
        hang.set()
        in_commit = appender.submit([Slice(0, batch(1))], 5)
        await asyncio.sleep(0.1)
        queued = appender.submit([Slice(0, batch(2))], 5)
        await appender.close(0.1)
        for future in (in_commit, queued):
            with pytest.raises(OutcomeUnknownError):
                await asyncio.wait_for(future, 1)
        assert budget.used_bytes == 0
        go_on.set()

    run(work)


def test_a_full_queue_refuses_with_a_delay_and_takes_again_when_it_is_empty(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        budget = ByteBudget(1_000)
        appender = await lead(topics.open("t"), pool, budget=budget, queue_bytes=100)
        answers = [appender.submit([Slice(0, batch(number))], 40) for number in range(2)]
        with pytest.raises(BackPressureError) as caught:
            appender.submit([Slice(0, batch(666))], 40)
        assert caught.value.retry_delay_ms > 0
        await asyncio.gather(*answers)
        await appender.submit([Slice(0, batch(2))], 40)
        assert budget.used_bytes == 0
        await appender.close(10)

    run(work)
    assert values(topics, 0) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_a_caller_that_gives_up_waiting_does_not_disturb_the_others(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        answers = [appender.submit([Slice(0, batch(number))], 1) for number in range(3)]
        answers[1].cancel()
        assert (await answers[0]).batches[0].base_offset == 0
        assert (await answers[2]).batches[0].base_offset == 2
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"0", b"1", b"2"]


def test_a_change_of_metadata_whose_caller_gives_up_does_not_disturb_appending(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(faulty(topics.open("t"), lambda *_: time.sleep(0.02)), pool)
        for number in range(5):
            change = asyncio.ensure_future(
                appender.change_metadata(
                    "ADD", lambda state: added_partitions(state, state.partition_count + 1)
                )
            )
            await asyncio.sleep(0.01)
            change.cancel()
            await appender.submit([Slice(0, batch(number))], 1)
        assert appender.failure is None
        await appender.close(10)

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"%d" % n for n in range(5)]


def test_a_listener_that_fails_does_not_stop_the_topic(
    topics: Topics, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    create(topics)

    def broken(_: object) -> None:
        raise RuntimeError("a fault in maintenance")

    async def work() -> None:
        appender = await lead(topics.open("t"), pool, on_commit=broken, on_failure=broken)
        for number in range(2):
            await appender.submit([Slice(0, batch(number))], 1)
        assert appender.failure is None
        new = await lead(topics.open("t"), pool)
        with pytest.raises(FencedError):
            await appender.submit([Slice(0, batch(666))], 1)
        await appender.close(10)
        await new.close(10)

    run(work)
    assert "a fault in maintenance" in caplog.text


def test_a_fault_of_ours_fails_the_batch_and_the_topic_and_says_what_it_was(
    topics: Topics, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(topics)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no parquet today")

    monkeypatch.setattr("mainstem.delta_log.files.slices.encode_data_file", broken)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        with pytest.raises(InternalError, match="no parquet today"):
            await appender.submit([Slice(0, batch(1)), Slice(1, batch(1))], 1)
        with pytest.raises(InternalError):
            appender.submit([Slice(0, batch(1))], 1)
        await appender.close(10)

    run(work)


def test_the_failure_of_a_topic_that_is_asked_again_and_again_does_not_grow(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """Raising one exception object adds a frame to its traceback each time."""
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        _other_commit(topics, [Register(registers.EPOCH, appender.epoch + 1)])
        with pytest.raises(FencedError):
            await appender.submit([Slice(0, batch(1))], 1)
        for _ in range(50):
            with pytest.raises(FencedError):
                appender.submit([Slice(0, batch(1))], 1)
        assert appender.failure is not None
        assert len(traceback.extract_tb(appender.failure.__traceback__)) < 10
        await appender.close(10)

    run(work)


ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
    (None, None, None),
    (b"", b"", [("h", b"")]),
    (b"k", None, [("h", None)]),
    (None, b"v", [("b", b"1"), ("a", b"2"), ("b", b"1"), ("b", b"3"), ("", b"\x00\xff")]),
    (b"\x00\xff", b"\xff\x00", [("é", b"x")]),
]
STAMPS = [0, 1, 253_402_300_799_999, 1_357_016_400_123, 999]


@pytest.mark.parametrize("compression", ["zstd", "lz4", "snappy", "gzip", "none"])
def test_every_record_is_read_back_as_it_was_by_other_readers(
    topics: Topics, pool: ThreadPoolExecutor, compression: str
) -> None:
    create(topics, compression_type=compression)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        batch = records_to_wire_batch(
            [row[0] for row in ROWS], [row[1] for row in ROWS], [row[2] for row in ROWS], STAMPS
        )
        await appender.submit([Slice(3, batch.slice(0, 2))], 1)
        await appender.submit([Slice(3, batch.slice(2))], 1)
        await appender.close(10)

    run(work)
    opened = topics.open("t")
    files = opened.state.files(3).sorted()
    ours = pa.Table.from_batches(
        [batch for file in files for batch in read_data_file(opened.store, file, 0, 99)]
    )
    theirs = DeltaTable(topics.uri("t")).to_pyarrow_table().sort_by("offset")
    plain = pa.concat_tables(
        [pq.read_table(Path(topics.uri("t"), file.path), partitioning=None) for file in files]
    )
    assert theirs.column("partition").to_pylist() == [3] * 5
    for table in (ours, theirs, plain):
        assert table.column("offset").to_pylist() == [0, 1, 2, 3, 4]
        assert table.column("key").to_pylist() == [row[0] for row in ROWS]
        assert table.column("value").to_pylist() == [row[1] for row in ROWS]
        stamps = table.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        assert stamps.to_pylist() == STAMPS
        assert table.column("timestamp_type").to_pylist() == [0] * 5
        assert table.column("producer_id").to_pylist() == [None] * 5
        assert table.column("sequence").to_pylist() == [None] * 5
        headers = [
            [(entry["key"], entry["value"]) for entry in row] if row is not None else None
            for row in table.column("headers").to_pylist()
        ]
        assert headers == [row[2] for row in ROWS]


@pytest.mark.parametrize(
    ("compression", "codec"),
    [
        ("zstd", "ZSTD"),
        ("lz4", "LZ4"),
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("none", "UNCOMPRESSED"),
    ],
)
def test_a_file_is_compressed_as_the_topic_says_and_has_statistics_where_they_help_only(
    topics: Topics, pool: ThreadPoolExecutor, compression: str, codec: str
) -> None:
    create(topics, compression_type=compression)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([Slice(0, records(1_000))], 1)
        await appender.close(10)

    run(work)
    opened = topics.open("t")
    (file,) = opened.state.files(0).sorted()
    metadata = pq.read_metadata(Path(topics.uri("t"), file.path))
    group = metadata.row_group(0)
    columns = {
        group.column(number).path_in_schema: group.column(number)
        for number in range(group.num_columns)
    }
    codecs = _codecs(metadata)
    assert (codecs["key"], codecs["value"]) == (codec, codec)
    assert {codecs[name] for name in codecs.keys() - {"key", "value"}} == {"UNCOMPRESSED"}
    with_statistics = {name for name, column in columns.items() if column.is_stats_set}
    assert with_statistics == {"partition", "offset", "timestamp"}
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (0, 999)
    assert (file.base_offset, file.last_offset, file.record_count) == (0, 999, 1_000)
    assert (file.timestamp_ms_min, file.timestamp_ms_max) == (NOW_MS, NOW_MS + 999)
    assert file.size_bytes == os.path.getsize(Path(topics.uri("t"), file.path))
    assert "DELTA_LENGTH_BYTE_ARRAY" in columns["value"].encodings


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes", "header_bytes", "compressed"),
    [
        (1_000, 1_000, 1_000, set()),
        (5_000, 1_000, 0, {"key"}),
        (0, 5_000, 1_000, {"value"}),
        (0, 0, 5_000, {"headers.list.element.key", "headers.list.element.value"}),
    ],
)
def test_what_has_less_than_4_kib_is_not_compressed_whatever_the_topic_says(
    topics: Topics,
    pool: ThreadPoolExecutor,
    key_bytes: int,
    value_bytes: int,
    header_bytes: int,
    compressed: set[str],
) -> None:
    create(topics, compression_type="gzip")
    headers = [[("h", bytes(header_bytes))]] if header_bytes else None
    batch = records_to_wire_batch([bytes(key_bytes)], [bytes(value_bytes)], headers, [NOW_MS])

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([Slice(0, batch)], 1)
        await appender.close(10)
        (file,) = appender.state.files(0).sorted()
        codecs = _codecs(pq.read_metadata(Path(topics.uri("t"), file.path)))
        assert {name for name, codec in codecs.items() if codec == "GZIP"} == compressed
        assert {codecs[name] for name in codecs.keys() - compressed} == {"UNCOMPRESSED"}

    run(work)


def test_a_topic_of_append_time_marks_its_records(topics: Topics, pool: ThreadPoolExecutor) -> None:
    create(topics, message_timestamp_type="LogAppendTime")

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        await appender.submit([Slice(0, batch(1, 3))], 1)
        await appender.close(10)

    run(work)
    table = DeltaTable(topics.uri("t")).to_pyarrow_table()
    assert table.column("timestamp_type").to_pylist() == [1, 1, 1]


def test_files_that_were_written_but_not_committed_are_not_part_of_the_table(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        old = await lead(topics.open("t"), pool)
        new = await lead(topics.open("t"), pool)
        with pytest.raises(FencedError):
            await old.submit([Slice(0, batch(666))], 1)
        await old.close(10)
        await new.close(10)

    run(work)
    assert len(os.listdir(Path(topics.uri("t"), "partition=0"))) == 1
    assert DeltaTable(topics.uri("t")).to_pyarrow_table().num_rows == 0


def test_a_large_batch_is_cut_into_row_groups_that_a_reader_can_hold(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics, compression_type="none")
    value = os.urandom(1024 * 1024)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        batch = records_to_wire_batch([None] * 60, [value] * 60, None, [NOW_MS] * 60)
        await appender.submit([Slice(0, batch)], 1)
        await appender.close(10)

    run(work)
    opened = topics.open("t")
    (file,) = opened.state.files(0).sorted()
    metadata = pq.read_metadata(Path(topics.uri("t"), file.path))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert len(groups) > 2
    assert all(group.total_byte_size <= ROW_GROUP_BYTES_MAX + 64 * 1024 for group in groups)
    offsets = [
        batch.column("offset").to_pylist()
        for batch in read_data_file(opened.store, file, 20, 40, ["offset"])
    ]
    assert [offset for part in offsets for offset in part] == list(range(20, 40))


def test_a_data_file_that_is_missing_or_damaged_is_named(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        appender = await lead(topics.open("t"), pool)
        for number in range(2):
            await appender.submit([Slice(0, batch(number, 100))], 1)
        await appender.close(10)

    run(work)
    opened = topics.open("t")
    first, second = opened.state.files(0).sorted()
    path = Path(topics.uri("t"), first.path)
    for content in (b"", b"PAR1", path.read_bytes()[:-50], b"\0" * 400):
        path.write_bytes(content)
        with pytest.raises(LogDamagedError, match=first.path):
            list(read_data_file(opened.store, first, 0, 99))
    Path(topics.uri("t"), second.path).unlink()
    with pytest.raises(LogDamagedError, match=f"{second.path}.*offsets 100 to 199.*is missing"):
        list(read_data_file(opened.store, second, 0, 999))
    with pytest.raises(NotFound):
        LocalStore(topics.uri("t")).open(second.path)


def _settings_change(state: TableState) -> Metadata:
    return altered_config(state, {"retention.ms": 1000}, [])


@pytest.mark.fault
def test_a_change_that_the_store_does_not_take_is_refused_in_time_and_the_topic_goes_on(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        full = [False]

        def no_space(call: str, path: str) -> None:
            if call == "put_if_absent" and full[0]:
                raise unavailable()

        appender = await lead(faulty(topics.open("t"), before=no_space), pool)
        full[0] = True
        with pytest.raises(StoreUnavailableError, match="injected"):
            await appender.change_metadata("SET", _settings_change)
        assert appender.failure is None
        full[0] = False
        assert await appender.change_metadata("SET", _settings_change) == appender.state.version
        await appender.submit([Slice(0, batch(1))], 1)
        await appender.close(10)

    run(work)


@pytest.mark.fault
def test_a_change_does_not_outlive_its_topic_here_however_the_store_hangs(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)
    go_on = threading.Event()

    async def work() -> None:
        def hang(call: str, path: str) -> None:
            if call == "put_if_absent" and "00000000000000000002.json" in path:
                go_on.wait(30)

        appender = await lead(faulty(topics.open("t"), before=hang), pool)
        change = asyncio.create_task(appender.change_metadata("SET", _settings_change))
        await asyncio.sleep(0.1)
        await appender.close(0.1)
        with pytest.raises(OutcomeUnknownError, match="stopped"):
            await asyncio.wait_for(change, 5)
        go_on.set()

    run(work)


@pytest.mark.fault
def test_a_change_behind_appends_that_the_store_does_not_take_ends_in_time_and_says_why(
    topics: Topics, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(topics)
    monkeypatch.setattr("mainstem.delta_log.append.appender.CHANGE_TIMEOUT_S", 0.5)

    async def work() -> None:
        appender = await lead(
            faulty(topics.open("t"), before=times(999, "put", unavailable())), pool
        )
        waiting = appender.submit([Slice(0, batch(1))], 1)
        await asyncio.sleep(0.05)
        with pytest.raises(OutcomeUnknownError, match=r"did not end within 0\.5 s, since injected"):
            await appender.change_metadata("SET", _settings_change)
        assert not waiting.done()
        await appender.close(0.0)

    run(work)


@pytest.mark.fault
def test_closing_while_a_roll_up_is_at_work_and_the_lead_is_lost_ends(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=4)
    go_on = threading.Event()
    puts: list[str] = []

    async def work() -> None:
        def hang(call: str, path: str) -> None:
            if call == "put":
                puts.append(path)
                if len(puts) == 5:  # the merged file
                    loop.call_soon_threadsafe(is_merging.set)
                    go_on.wait(20)

        opened = topics.open("t")
        loop, is_merging = asyncio.get_running_loop(), asyncio.Event()
        appender = await lead(faulty(opened, before=hang), pool, roll_up_memory=RollUpMemory(2**20))
        for number in range(4):
            await appender.submit([Slice(0, batch(number))], 1)
        await asyncio.wait_for(is_merging.wait(), 10)
        closing = asyncio.create_task(appender.close(10))
        await asyncio.sleep(0.1)
        _other_commit(topics, [Register(registers.EPOCH, appender.epoch + 1)])
        with pytest.raises(FencedError):
            await appender.change("X", lambda _: [Register("r", 1)])
        go_on.set()
        await asyncio.wait_for(closing, 10)

    run(work)
