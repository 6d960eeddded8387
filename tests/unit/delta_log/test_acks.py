"""acks=1: durable in the write-ahead log first, in the table later, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import Hook, nothing, unavailable
from tests.unit.delta_log.power_loss import InlineExecutor
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import Appended, Appender, Slice, Topics
from mainstem.delta_log.append import Recovered, recover_topic
from mainstem.delta_log.format import ProducerBatch
from mainstem.delta_log.topics import altered_config
from mainstem.delta_log.wal import LocalWalFiles, Wal, decode_entry, decode_segment
from mainstem.errors import FencedError, MainstemError


class Crash(BaseException):
    """The process is gone."""


class Process(InlineExecutor):
    """The pool of a process that can be gone: the call in which that happens never returns."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        return Future() if isinstance(future.exception(), Crash) else future


@dataclass
class Gateways:
    """Gateways on one warehouse; each is a process of its own, as far as the log can tell."""

    topics: Topics
    directory: Path
    pool: Process = field(default_factory=Process)

    def run(
        self,
        work: Callable[[Appender, Wal], Awaitable[None]],
        *,
        gateway_id: str = "g",
        before: Hook = nothing,
        after: Hook = nothing,
        clean: bool = False,
        **options: Any,
    ) -> None:
        """One gateway's life: leads the topic, does the work, and is gone without a goodbye."""

        async def life() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            files = LocalWalFiles(self.directory / gateway_id)
            try:
                wal = Wal(files, gateway_id)
                opened = faulty(self.topics.open("t"), before, after)
                appender = await lead(opened, self.pool, wal=wal, **options)
                await work(appender, wal)
                if clean:
                    await appender.close(10)
                    await wal.close()
            finally:
                files.close()

        run(life)

    def orphans(self, gateway_id: str = "g") -> list[bytes]:
        """The values in all files of orphans, in order."""
        return self._values(f"{gateway_id}/*.orphans")

    def logged(self, gateway_id: str = "g") -> list[bytes]:
        """The values in all segments of a log, in order."""
        return self._values(f"{gateway_id}/*.wal")

    def _values(self, pattern: str) -> list[bytes]:
        found: list[bytes] = []
        for path in sorted(self.directory.glob(pattern)):
            for frame in decode_segment(path.read_bytes(), str(path), is_last=False):
                for _, entry in frame.entries:
                    for one in decode_entry(entry).slices:
                        found += one.records.column("value").to_pylist()
        return found


@pytest.fixture
def gateways(topics: Topics, tmp_path: Path) -> Gateways:
    create(topics)
    return Gateways(topics, tmp_path / "wal")


async def _nothing(appender: Appender, wal: Wal) -> None:
    pass


async def _settled(appender: Appender, wal: Wal) -> None:
    """All that was recovered is in the table."""
    while appender.queued_bytes:  # noqa: ASYNC110 - the appender has no event for it
        await asyncio.sleep(0.001)


class Switch:
    """A store whose calls of one kind can be cut off from one moment on."""

    def __init__(self, call: str, error: BaseException) -> None:
        self._call = call
        self._error = error
        self.on = False

    def __call__(self, call: str, path: str) -> None:
        if self.on and call == self._call:
            raise self._error


def test_an_acks_1_batch_is_answered_before_its_commit_and_acks_all_after_it(
    gateways: Gateways, topics: Topics
) -> None:
    away = Switch("put", unavailable())

    async def work(appender: Appender, wal: Wal) -> None:
        away.on = True
        everything = appender.submit([Slice(0, batch(1))], 1)
        early = await appender.submit(
            [Slice(0, batch(2, 2)), Slice(1, batch(3))], 1, write_ahead=True
        )
        assert early.table_version == -1
        assert [(one.partition, one.base_offset) for one in early.batches] == [(0, 1), (1, 0)]
        assert appender.log_end_offset(0) == 3
        assert appender.state.log_end_offset(0) == 0
        assert not everything.done()
        away.on = False
        assert (await everything).table_version > 0

    gateways.run(work, before=away, clean=True)
    assert values(topics, 0) == [(0, b"1"), (1, b"2"), (2, b"2")]
    assert gateways.orphans() == []


@pytest.mark.fault
@pytest.mark.parametrize(
    ("call", "is_after"),
    [("put", False), ("put", True), ("put_if_absent", False), ("put_if_absent", True)],
    ids=["before the data file", "after it", "before the commit", "after it, before the fold"],
)
def test_what_acks_1_promised_is_in_the_table_once_at_its_offsets_after_a_crash(
    gateways: Gateways, topics: Topics, call: str, is_after: bool
) -> None:
    dies = Switch(call, Crash())

    async def work(appender: Appender, wal: Wal) -> None:
        await appender.submit([Slice(0, batch(0))], 1)
        dies.on = True
        # Pending when the others enter the log, which must not leave a gap before them.
        appender.submit([Slice(0, batch(1))], 1)
        answers = []
        for number in (2, 3):
            by = ProducerBatch(7, 0, number - 2)
            slices = [Slice(0, batch(number), by), Slice(1, batch(number))]
            answers.append(await appender.submit(slices, 1, write_ahead=True))
        assert [one.batches[0].base_offset for one in answers] == [2, 3]

    gateways.run(work, before=nothing if is_after else dies, after=dies if is_after else nothing)

    async def again(appender: Appender, wal: Wal) -> None:
        # In the queue, or in the table already: the producer's retry gets the same place.
        retry = await appender.submit([Slice(0, batch(3), ProducerBatch(7, 0, 1))], 1)
        assert retry.batches[0].base_offset == 3
        await _settled(appender, wal)
        assert wal.topics() == []

    gateways.run(again)
    gateways.run(_settled, clean=True)
    assert values(topics, 0) == list(enumerate([b"0", b"1", b"2", b"3"]))
    assert values(topics, 1) == list(enumerate([b"2", b"3"]))
    assert gateways.orphans() == []


@pytest.mark.fault
def test_a_crash_while_recovering_is_recovered_from(gateways: Gateways, topics: Topics) -> None:
    dies = Switch("put", Crash())

    async def work(appender: Appender, wal: Wal) -> None:
        dies.on = True
        for number in range(3):
            await appender.submit([Slice(0, batch(number))], 1, write_ahead=True)

    async def more(appender: Appender, wal: Wal) -> None:
        # Behind what was recovered, and in the log again.
        result = await appender.submit([Slice(0, batch(3))], 1, write_ahead=True)
        assert result.batches[0].base_offset == 3

    gateways.run(work, before=dies)
    for _ in range(2):
        gateways.run(_nothing, before=dies)
    gateways.run(more, before=dies)
    gateways.run(_settled, clean=True)
    assert values(topics, 0) == [(n, b"%d" % n) for n in range(4)]


def _other_leader(gateways: Gateways, partition: int, number: int) -> None:
    async def work(appender: Appender, wal: Wal) -> None:
        await appender.submit([Slice(partition, batch(number))], 1)

    gateways.run(work, gateway_id="other", clean=True)


@pytest.mark.fault
def test_records_whose_offsets_another_leader_gave_away_are_kept_as_orphans_once(
    gateways: Gateways, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    dies = Switch("put", Crash())

    async def work(appender: Appender, wal: Wal) -> None:
        await appender.submit([Slice(0, batch(0))], 1)
        dies.on = True
        await appender.submit([Slice(0, batch(1)), Slice(1, batch(1))], 1, write_ahead=True)
        await appender.submit([Slice(0, batch(2))], 1, write_ahead=True)
        await appender.submit([Slice(1, batch(3))], 1, write_ahead=True)

    gateways.run(work, before=dies)
    _other_leader(gateways, 0, 90)
    # At offset 2 the second would fit again; but what was before it is not there.
    gateways.run(_nothing, before=dies)
    assert "2 records were acknowledged with acks=1 and are not in the table" in caplog.text
    assert gateways.orphans() == [b"1", b"2"]
    caplog.clear()
    gateways.run(_nothing, before=dies)  # again, before the rest was committed
    gateways.run(_settled, clean=True)
    gateways.run(_settled, clean=True)
    assert "acknowledged" not in caplog.text
    assert gateways.orphans() == [b"1", b"2"]
    assert values(topics, 0) == [(0, b"0"), (1, b"90")]
    assert values(topics, 1) == [(0, b"1"), (1, b"3")]


@pytest.mark.fault
def test_another_leader_that_appended_nothing_leaves_the_offsets_to_whom_they_were_given(
    gateways: Gateways, topics: Topics
) -> None:
    dies = Switch("put", Crash())

    async def work(appender: Appender, wal: Wal) -> None:
        dies.on = True
        await appender.submit([Slice(0, batch(1))], 1, write_ahead=True)

    gateways.run(work, before=dies)
    _other_leader(gateways, 5, 90)
    gateways.run(_settled, clean=True)
    assert values(topics, 0) == [(0, b"1")]
    assert gateways.orphans() == []


@pytest.mark.fault
def test_what_was_committed_is_no_orphan_though_it_entered_the_log_after_its_commit_was_made(
    gateways: Gateways, topics: Topics
) -> None:
    """Pending with acks=all, in a commit that is on its way, logged for the sake of a later one."""
    later: list[Callable[[], None]] = []

    async def work(appender: Appender, wal: Wal) -> None:
        answers: list[asyncio.Future[Appended]] = []

        def submit_early() -> None:
            answers.append(appender.submit([Slice(0, batch(2))], 1, write_ahead=True))

        later.append(submit_early)
        await asyncio.wait([appender.submit([Slice(0, batch(1))], 1)], timeout=0.5)
        assert (await answers[0]).batches[0].base_offset == 1

    def late(call: str, path: str) -> None:
        if call == "put_if_absent" and later:
            later.pop()()

    def dies(call: str, path: str) -> None:
        # The commit of the first has landed; the process never knew.
        if call == "put_if_absent" and "0002.json" in path:
            raise Crash

    gateways.run(work, before=late, after=dies)
    _other_leader(gateways, 0, 90)
    gateways.run(_nothing)
    assert values(topics, 0) == [(0, b"1"), (1, b"90")]
    assert gateways.orphans() == [b"2"]


@pytest.mark.fault
def test_acknowledged_records_of_a_leader_that_is_fenced_while_it_lives_are_not_dropped(
    gateways: Gateways, topics: Topics
) -> None:
    """They are in the log until the next lead, which recovers them or keeps them as orphans."""
    away = Switch("put", unavailable())

    async def work(appender: Appender, wal: Wal) -> None:
        away.on = True
        acked = await appender.submit([Slice(0, batch(1))], 1, write_ahead=True)
        await appender.submit([Slice(1, batch(1))], 1, write_ahead=True)
        pending = appender.submit([Slice(0, batch(2))], 1)
        other = await lead(topics.open("t"), InlineExecutor())
        await other.submit([Slice(0, batch(90))], 1)
        await other.close(10)
        away.on = False
        with pytest.raises(FencedError):
            await pending
        assert acked.batches[0].base_offset == 0
        assert wal.topics() == [("t", appender.state.topic_id)]
        again = await lead(topics.open("t"), InlineExecutor(), wal=wal)
        assert gateways.orphans() == [b"1"]
        await _settled(again, wal)
        assert wal.topics() == []
        await appender.close(1)
        await again.close(10)
        await wal.close()

    gateways.run(work, before=away)
    assert values(topics, 0) == [(0, b"90")]
    assert values(topics, 1) == [(0, b"1")]
    assert list((gateways.directory / "g").glob("*.wal")) == []


@pytest.mark.fault
def test_an_appender_that_does_not_know_yet_that_it_was_deposed_promises_nothing_from_the_log(
    gateways: Gateways, topics: Topics
) -> None:
    """Its successor in the same process has looked through the log already."""

    async def work(appender: Appender, wal: Wal) -> None:
        new = await lead(topics.open("t"), InlineExecutor(), wal=wal)
        with pytest.raises(FencedError):
            await appender.submit([Slice(0, batch(1))], 1, write_ahead=True)
        result = await new.submit([Slice(0, batch(2))], 1, write_ahead=True)
        assert result.batches[0].base_offset == 0
        await appender.close(1)
        await new.close(10)
        await wal.close()

    gateways.run(work)
    assert values(topics, 0) == [(0, b"2")]
    assert gateways.orphans() == []


@pytest.mark.fault
def test_a_gateway_that_does_not_lead_keeps_orphans_only_where_its_successor_has_appended(
    gateways: Gateways, topics: Topics
) -> None:
    dies = Switch("put", Crash())

    async def work(appender: Appender, wal: Wal) -> None:
        await appender.submit([Slice(0, batch(0))], 1, write_ahead=True)
        await _settled(appender, wal)
        dies.on = True
        await appender.submit([Slice(0, batch(1)), Slice(1, batch(2))], 1, write_ahead=True)

    gateways.run(work, before=dies)

    async def look() -> Recovered:
        files = LocalWalFiles(gateways.directory / "g")
        wal = Wal(files, "g")
        opened = topics.open("t")
        found = await recover_topic(wal, "t", opened.state, is_led=False)
        assert wal.topics() == [("t", opened.state.topic_id)]
        await wal.close()
        files.close()
        return found

    async def twice() -> None:
        assert await look() == Recovered(waiting_count=2)
        await asyncio.to_thread(_other_leader, gateways, 0, 90)
        found = await look()
        assert (found.orphan_count, found.waiting_count) == (1, 1)
        assert await look() == Recovered(waiting_count=1)

    run(twice)
    assert gateways.orphans() == [b"1"]
    gateways.run(_settled, clean=True)
    assert values(topics, 0) == [(0, b"0"), (1, b"90")]
    assert values(topics, 1) == [(0, b"2")]
    assert gateways.orphans() == [b"1"]


@pytest.mark.fault
def test_entries_of_a_topic_that_was_made_anew_are_not_put_into_it(
    gateways: Gateways, topics: Topics
) -> None:
    dies = Switch("put", Crash())
    old_id = topics.open("t").state.topic_id

    async def work(appender: Appender, wal: Wal) -> None:
        dies.on = True
        await appender.submit([Slice(0, batch(1))], 1, write_ahead=True)

    gateways.run(work, before=dies)
    topics.delete("t")
    create(topics)

    async def new(appender: Appender, wal: Wal) -> None:
        assert appender.log_end_offset(0) == 0
        assert wal.topics() == [("t", old_id)]
        assert wal.forget("t", old_id) == 1
        await appender.submit([Slice(0, batch(2))], 1, write_ahead=True)

    gateways.run(new, clean=True)
    assert values(topics, 0) == [(0, b"2")]
    assert gateways.orphans() == []


@pytest.mark.fault
def test_when_the_log_fails_acks_1_waits_for_the_commit_and_nothing_is_lost(
    gateways: Gateways, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(appender: Appender, wal: Wal) -> None:
        await appender.submit([Slice(0, batch(0))], 1, write_ahead=True)

        def fails(_: int) -> None:
            raise OSError(5, "I/O error")

        monkeypatch.setattr("mainstem.delta_log.wal.files.os.fdatasync", fails)
        for number in (1, 2):
            result = await appender.submit([Slice(0, batch(number))], 1, write_ahead=True)
            assert result.table_version > 0
        assert (await appender.submit([Slice(0, batch(3))], 1)).table_version > 0
        assert appender.failure is None

    gateways.run(work, clean=True)
    monkeypatch.undo()
    gateways.run(_settled, clean=True)
    assert [value for _, value in values(topics, 0)] == [b"0", b"1", b"2", b"3"]


@pytest.mark.fault
def test_when_the_log_is_full_acks_1_waits_for_the_commit_and_order_is_kept(
    gateways: Gateways, topics: Topics
) -> None:
    away = Switch("put", unavailable())

    async def work(appender: Appender, wal: Wal) -> None:
        wal._queue._bytes_max = 3_000
        away.on = True
        large = appender.submit([Slice(0, batch(1, 200))], 1, write_ahead=True)
        full = appender.submit([Slice(0, batch(2))], 1, write_ahead=True)
        assert (await large).table_version == -1
        # Takes the one before it along.
        assert (
            await appender.submit([Slice(0, batch(3))], 1, write_ahead=True)
        ).table_version == -1
        assert not full.done()
        away.on = False
        assert (await full).table_version > 0

    gateways.run(work, before=away)
    gateways.run(_settled, clean=True)
    assert [value for _, value in values(topics, 0)] == [*[b"1"] * 200, b"2", b"3"]


def test_retries_of_acks_1_batches_are_answered_as_soon_as_the_first_is_durable(
    gateways: Gateways, topics: Topics
) -> None:
    away = Switch("put", unavailable())

    def one(number: int, sequence: int) -> Slice:
        return Slice(0, batch(number), ProducerBatch(7, 0, sequence))

    async def work(appender: Appender, wal: Wal) -> None:
        away.on = True
        first = await appender.submit([one(1, 0)], 1, write_ahead=True)
        again = await appender.submit([one(1, 0)], 1, write_ahead=True)
        assert again == first
        both = await appender.submit([one(1, 0), Slice(1, batch(2))], 1, write_ahead=True)
        assert [(x.partition, x.base_offset) for x in both.batches] == [(0, 0), (1, 0)]
        everything = appender.submit([one(1, 0)], 1)
        await asyncio.sleep(0.05)
        assert not everything.done()

    gateways.run(work, before=away)

    async def recovered(appender: Appender, wal: Wal) -> None:
        result = await appender.submit([one(1, 0)], 1, write_ahead=True)
        assert result.batches[0].base_offset == 0

    gateways.run(recovered, before=away)
    gateways.run(_settled, clean=True)
    assert values(topics, 0) == [(0, b"1")]
    assert values(topics, 1) == [(0, b"2")]


def test_the_kind_of_timestamp_is_that_of_the_moment_of_acceptance(
    gateways: Gateways, topics: Topics
) -> None:
    """Also where the setting changes before the commit, or the commit comes after a restart."""
    away = Switch("put", unavailable())

    async def first(appender: Appender, wal: Wal) -> None:
        away.on = True
        await appender.submit([Slice(0, batch(1))], 1, write_ahead=True)

    gateways.run(first, before=away)
    opened = topics.open("t")
    change = altered_config(opened.state, {"message.timestamp.type": "LogAppendTime"}, [])
    _commit_other(topics, change)
    gateways.run(_append_one(2), before=nothing)
    gateways.run(_settled, clean=True)
    assert _types(topics) == [0, 1]


def _append_one(number: int) -> Callable[[Appender, Wal], Awaitable[None]]:
    async def work(appender: Appender, wal: Wal) -> None:
        await appender.submit([Slice(0, batch(number))], 1)

    return work


def _commit_other(topics: Topics, action: Any) -> None:
    from mainstem.delta_log.table import Committed, Committer, TableCommit

    opened = topics.open("t")
    one = TableCommit.of("SET", [action], timestamp_ms=NOW_MS)
    version = opened.state.version + 1
    assert Committer(opened.store).commit(version, one) == Committed(version)


def _types(topics: Topics) -> list[int]:
    from deltalake import DeltaTable

    table = DeltaTable(topics.uri("t")).to_pyarrow_table().sort_by("offset")
    types: list[int] = table.column("timestamp_type").to_pylist()
    return types


def test_a_topic_that_fails_to_be_led_keeps_its_entries(gateways: Gateways, topics: Topics) -> None:
    dies = Switch("put", Crash())

    async def work(appender: Appender, wal: Wal) -> None:
        dies.on = True
        await appender.submit([Slice(0, batch(1))], 1, write_ahead=True)

    gateways.run(work, before=dies)

    def away(call: str, path: str) -> None:
        if call in ("put_if_absent", "read"):
            raise unavailable()

    with pytest.raises(MainstemError):
        gateways.run(_nothing, before=away)
    gateways.run(_settled, clean=True)
    assert values(topics, 0) == [(0, b"1")]


def test_what_is_in_the_table_does_not_enter_the_log_any_more(
    gateways: Gateways, topics: Topics
) -> None:
    away = Switch("put", unavailable())

    async def work(appender: Appender, wal: Wal) -> None:
        for number in range(3):
            await appender.submit([Slice(0, batch(number))], 1)
        away.on = True  # or its commit may be done first
        await appender.submit([Slice(0, batch(3))], 1, write_ahead=True)
        assert gateways.logged() == [b"3"]
        away.on = False

    gateways.run(work, before=away, clean=True)
    assert len(values(topics, 0)) == 4


@pytest.mark.parametrize("lost", ["before", "meanwhile"])
def test_a_leader_that_may_have_been_replaced_waits_for_its_commit_with_acks_1(
    gateways: Gateways, topics: Topics, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Also where it was stopped between the request and its sync."""
    away = Switch("put", unavailable())
    is_certain = [lost != "before"]
    sync = os.fdatasync

    def stopped(fd: int) -> None:
        sync(fd)
        is_certain[0] = False

    async def work(appender: Appender, wal: Wal) -> None:
        away.on = True
        monkeypatch.setattr("mainstem.delta_log.wal.files.os.fdatasync", stopped)
        by = ProducerBatch(7, 0, 0)
        first = appender.submit([Slice(0, batch(1), by)], 1, write_ahead=True)
        again = appender.submit([Slice(0, batch(1), by)], 1, write_ahead=True)
        await asyncio.sleep(0.05)
        assert not first.done()
        assert not again.done()
        # What is not answered from the log is not in it, as long as that is known in time.
        assert gateways.logged() == ([b"1"] if lost == "meanwhile" else [])
        away.on = False
        assert (await first).table_version > 0
        assert (await again).table_version > 0
        monkeypatch.undo()
        is_certain[0] = True
        away.on = True
        assert (
            await appender.submit([Slice(0, batch(2))], 1, write_ahead=True)
        ).table_version == -1
        away.on = False

    gateways.run(work, before=away, clean=True, may_acknowledge=lambda: is_certain[0])
    assert [value for _, value in values(topics, 0)] == [b"1", b"2"]
