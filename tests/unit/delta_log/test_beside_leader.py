"""Commits beside a leader that appends, beside each other, and on a store that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import times, unavailable, unknown
from tests.unit.delta_log.tables import append, commit, records, same_state

from mainstem.delta_log import ObjectStore, OpenTopic, Slice, TableState, Topics, load_table
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.format import DataFile, Register, Remove
from mainstem.delta_log.table import (
    BESIDE_LEADER,
    FileSuperseded,
    TableCommit,
    commit_beside_leader,
    replace_files,
)
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import OutcomeUnknownError, StoreUnavailableError, UnknownTopicError

pytestmark = pytest.mark.fault

Build = Callable[[TableState], TableCommit | None]


def _count_up(name: str = "count") -> Build:
    """One more than what the register has: wrong if it is made of an old state."""

    def build(state: TableState) -> TableCommit:
        one = Register(name, state.register_value(name) + 1)
        return TableCommit.of("TEST", [one], timestamp_ms=1)

    return build


@pytest.fixture
def opened(topics: Topics) -> OpenTopic:
    create(topics)
    return topics.open("t")


def test_what_others_committed_since_the_table_was_opened_is_known_before_the_first_attempt(
    topics: Topics, opened: OpenTopic
) -> None:
    other = topics.open("t")
    for _ in range(3):
        append(other.store, other.state, 0)
    landed = commit_beside_leader(opened, _count_up())
    assert landed is not None
    assert (landed.version, landed.attempts) == (4, 1)
    assert landed.state is opened.state
    assert same_state(landed.state, load_table(opened.store))


def test_a_state_that_log_clean_up_has_overtaken_is_read_again(
    topics: Topics, opened: OpenTopic
) -> None:
    other = topics.open("t")
    append(other.store, other.state, 0)
    append(other.store, other.state, 0)
    write_checkpoint(other.store)
    for version in range(3):
        other.store.delete(f"_delta_log/{version:020d}.json")
    landed = commit_beside_leader(opened, _count_up())
    assert landed is not None
    assert landed.version == 3
    assert same_state(landed.state, load_table(opened.store))


def test_two_writers_at_once_lose_nothing_of_each_other(topics: Topics, opened: OpenTopic) -> None:
    second = topics.open("t")
    with ThreadPoolExecutor(2) as pool:

        def work(one: OpenTopic) -> int:
            return sum(commit_beside_leader(one, _count_up()) is not None for _ in range(40))

        assert list(pool.map(work, [opened, second])) == [40, 40]
    state = load_table(opened.store)
    assert state.register_value("count") == 80
    assert state.version == 80


def test_commits_land_beside_a_leader_that_appends_and_no_record_is_lost(topics: Topics) -> None:
    create(topics, commit_interval_ms=10)
    stop = threading.Event()

    def others() -> int:
        landed = 0
        one = topics.open("t")
        while not stop.is_set():
            found = commit_beside_leader(one, _count_up())
            assert found is not None
            assert BESIDE_LEADER.losses_max is not None
            assert found.attempts <= BESIDE_LEADER.losses_max
            landed += 1
            stop.wait(0.005)
        return landed

    async def append_all() -> None:
        with ThreadPoolExecutor(4) as pool:
            appender = await lead(topics.open("t"), pool)
            beside = asyncio.get_running_loop().run_in_executor(pool, others)
            for number in range(60):
                await appender.submit([Slice(0, batch(number))], 100)
            stop.set()
            count = await beside
            assert count > 0
            await appender.close(10.0)
        assert load_table(topics.open("t").store).register_value("count") == count

    run(append_all)
    assert values(topics, 0) == [(n, b"%d" % n) for n in range(60)]


def test_a_commit_that_landed_without_an_answer_is_not_made_twice(opened: OpenTopic) -> None:
    one = faulty(opened, after=times(2, "put_if_absent", unknown()))
    waits: list[float] = []
    landed = commit_beside_leader(one, _count_up(), sleep=waits.append)
    assert landed is not None
    assert (landed.version, landed.attempts) == (1, 1)
    assert waits
    state = load_table(opened.store)
    assert (state.version, state.register_value("count")) == (1, 1)
    assert same_state(state, opened.state)


def test_a_commit_that_did_not_land_is_made_anew_where_another_got_the_version(
    topics: Topics, opened: OpenTopic
) -> None:
    one = faulty(opened, before=times(1, "put_if_absent", unknown()))
    other = topics.open("t")
    landed = commit_beside_leader(
        one, _count_up(), sleep=lambda _: void(commit_beside_leader(other, _count_up()))
    )
    assert landed is not None
    assert (landed.version, landed.attempts) == (2, 2)
    assert load_table(opened.store).register_value("count") == 2


def void(_: object) -> None:
    """Takes a result that nobody needs."""


def test_a_store_that_never_says_leaves_the_outcome_unknown(opened: OpenTopic) -> None:
    one = faulty(opened, before=times(1_000, "put_if_absent", unknown()))
    with pytest.raises(OutcomeUnknownError, match="TEST became version 1"):
        commit_beside_leader(one, _count_up(), sleep=lambda _: None)
    assert load_table(opened.store).version == 0


def test_a_store_that_did_nothing_says_so_and_the_same_call_can_be_made_again(
    opened: OpenTopic,
) -> None:
    one = faulty(opened, before=times(1, "put_if_absent", unavailable()))
    with pytest.raises(StoreUnavailableError, match="injected"):
        commit_beside_leader(one, _count_up())
    landed = commit_beside_leader(one, _count_up())
    assert landed is not None
    assert landed.version == 1


def test_nothing_to_do_commits_nothing_and_a_refusal_is_passed_on(opened: OpenTopic) -> None:
    def refuse(_: TableState) -> TableCommit:
        raise FileSuperseded("partition=0/x.parquet")

    assert commit_beside_leader(opened, lambda _: None) is None
    with pytest.raises(FileSuperseded, match="partition=0/x"):
        commit_beside_leader(opened, refuse)
    assert load_table(opened.store).version == 0


def test_a_writer_that_is_never_first_gives_up_after_pauses_that_end(
    topics: Topics, opened: OpenTopic
) -> None:
    other = topics.open("t")
    count = _count_up()

    def overtaken(state: TableState) -> TableCommit | None:
        commit_beside_leader(other, count)
        return count(state)

    waits: list[float] = []
    with pytest.raises(StoreUnavailableError, match="'t' could not be changed: 12 attempts"):
        commit_beside_leader(opened, overtaken, attempts_max=12, sleep=waits.append)
    assert len(waits) == 10, "none after the first loss, nor after the last"
    assert max(waits) <= 0.1
    assert load_table(opened.store).register_value("count") == 12


@pytest.mark.parametrize("marked_only", [True, False])
def test_a_topic_that_was_deleted_gets_no_commit(
    topics: Topics, opened: OpenTopic, *, marked_only: bool
) -> None:
    if marked_only:
        commit(opened.store, 1, [Register("mainstem/deleted", 1)])
    else:
        topics.delete("t")
    with pytest.raises(UnknownTopicError, match="'t' was deleted"):
        commit_beside_leader(opened, _count_up())


def _file(store: ObjectStore, base_offset: int) -> DataFile:
    file, data = encode_data_file(
        0,
        base_offset,
        [records(6)],
        timestamp_type=CREATE_TIME,
        compression_type="zstd",
        now_ms=1,
    )
    store.put(file.path, data)
    return file


def test_files_are_swapped_in_one_commit_that_no_stream_takes_for_new_records(
    opened: OpenTopic,
) -> None:
    old = [append(opened.store, opened.state, 0) for _ in range(2)]
    merged = _file(opened.store, 0)
    actions = replace_files(opened.state, old, [merged], now_ms=7, data_change=False)
    assert actions == [
        *(Remove(file.path, 0, file.size_bytes, 7, data_change=False) for file in old),
        replace(merged, data_change=False),
    ]
    commit_beside_leader(opened, lambda _: TableCommit.of("X", actions, timestamp_ms=7))
    assert [file.path for file in load_table(opened.store)] == [merged.path]


def test_of_two_that_replace_the_same_files_the_second_is_told(
    topics: Topics, opened: OpenTopic
) -> None:
    old = [append(opened.store, opened.state, 0) for _ in range(2)]

    def swap(merged: DataFile) -> Build:
        def build(state: TableState) -> TableCommit:
            actions = replace_files(state, old, [merged], now_ms=7, data_change=False)
            return TableCommit.of("X", actions, timestamp_ms=7)

        return build

    second = topics.open("t")
    first = _file(opened.store, 0)
    commit_beside_leader(opened, swap(first))
    with pytest.raises(FileSuperseded, match=old[0].path):
        commit_beside_leader(second, swap(_file(opened.store, 0)))
    assert [file.path for file in load_table(opened.store)] == [first.path]
