"""Small files that a leader makes one beside its appends: the same records, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import Hook, times, unavailable, unknown
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import (
    Appender,
    Committed,
    Committer,
    LocalStore,
    ObjectStore,
    OpenTopic,
    RollUpMemory,
    Slice,
    Topics,
)
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.files.data_file_writer import merge_data_files
from mainstem.delta_log.format import Action, CommitInfo, DataFile, ProducerBatch, Remove
from mainstem.delta_log.metrics import NoMetrics
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.table import TableCommit, commit_beside_leader, read_commit, replace_files
from mainstem.delta_log.topics import altered_config
from mainstem.delta_log.verify import verify_named
from mainstem.errors import FencedError
from mainstem.records import records_to_wire_batch

WAIT_S = 30
MEMORY_BYTES = 2**20


class Counted(NoMetrics):
    """How many files were rolled up, by outcome."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}

    def roll_up(self, outcome: str, file_count: int) -> None:
        self.files[outcome] = self.files.get(outcome, 0) + file_count


class Rolling:
    """A led topic with roll-up, to which one record after another is appended."""

    def __init__(self, appender: Appender, metrics: Counted, memory: RollUpMemory) -> None:
        self.appender = appender
        self.metrics = metrics
        self.memory = memory
        self.sent = 0

    @classmethod
    async def lead(cls, opened: OpenTopic, pool: ThreadPoolExecutor, **options: Any) -> Rolling:
        metrics, memory = Counted(), RollUpMemory(MEMORY_BYTES)
        options = {"roll_up_memory": memory, "metrics": metrics, **options}
        return cls(await lead(opened, pool, **options), metrics, memory)

    async def append(self, count: int = 1, partitions: Sequence[int] = (0,)) -> int:
        """Appends in as many commits; returns the last one's table version."""
        version = 0
        for _ in range(count):
            slices = [Slice(partition, batch(self.sent)) for partition in partitions]
            version = (await self.appender.submit(slices, 10)).table_version
            self.sent += 1
        return version

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, self.metrics.files
            await asyncio.sleep(0.005)

    async def rolled_up(self, file_count: int, outcome: str = "committed") -> None:
        await self.until(lambda: self.metrics.files.get(outcome, 0) >= file_count)

    def file_counts(self, partition: int = 0) -> list[int]:
        """How many records each file has."""
        files = self.appender.state.files(partition).sorted()
        return [file.record_count for file in files]


def _verified(store: LocalStore) -> None:
    report = verify_named(store, "t")
    assert report.ok, report.findings


def _commits(store: LocalStore) -> list[list[Action]]:
    bound = StoreFolder(store, "topics/t")
    names = [info.name for info in bound.list_files("_delta_log")]
    versions = sorted(int(name[:20]) for name in names if name.endswith(".json"))
    return [read_commit(bound, version) for version in versions]


def _swapped(actions: Sequence[Action]) -> tuple[list[DataFile], list[DataFile], list[Remove]]:
    """A commit's new files, those that replace others, and what these replace."""
    files = [action for action in actions if isinstance(action, DataFile)]
    return (
        [file for file in files if file.data_change],
        [file for file in files if not file.data_change],
        [action for action in actions if isinstance(action, Remove)],
    )


def test_small_files_become_one_and_the_swap_goes_along_with_records(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=4)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        while "committed" not in rolling.metrics.files:
            await rolling.append()
        assert rolling.file_counts()[0] == 4
        await rolling.appender.close(10)
        assert rolling.memory.used_bytes == 0

    run(work)
    mixed = next(actions for actions in _commits(store) if _swapped(actions)[1])
    (new,), (merged,), removes = _swapped(mixed)
    assert (merged.base_offset, merged.last_offset, merged.record_count) == (0, 3, 4)
    assert [remove.data_change for remove in removes] == [False] * 4
    assert new.base_offset >= 4
    history = {one["version"]: one for one in DeltaTable(topics.uri("t")).history()}
    version = _commits(store).index(mixed)
    assert history[version]["operation"] == "APPEND"
    assert [history[number]["isBlindAppend"] for number in (version - 1, version)] == [True, False]
    found = values(topics, 0)
    assert found == [(number, b"%d" % number) for number in range(len(found))]
    _verified(store)


@pytest.mark.parametrize("step_ms", [86_400_000, -86_400_000])
def test_a_clock_that_is_set_makes_no_file_too_old_to_be_rolled_up(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor, step_ms: int
) -> None:
    create(topics, rollup_files=4)
    now_ms = [NOW_MS]

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool, clock_ms=lambda: now_ms[0])
        await rolling.append(2)
        now_ms[0] += step_ms
        await rolling.append(2)
        await rolling.rolled_up(4)
        assert rolling.file_counts() == [4]
        await rolling.appender.close(10)

    run(work)
    _verified(store)


def test_records_are_as_they_were_and_older_versions_can_still_be_read(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=5)
    sent = [
        Slice(0, records_to_wire_batch([None], [b"v"], [[("h", b"1"), ("h", None)]], [NOW_MS - 9])),
        Slice(0, records_to_wire_batch([b""], [None], None, [1])),
        Slice(0, batch(7, 3), ProducerBatch(5, 0, 0)),
        Slice(0, batch(8, 2), ProducerBatch(5, 0, 3), log_append_time=True),
        Slice(0, records_to_wire_batch([b"k"], [b""], [[]], [253_402_300_799_999])),
    ]

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        for slice_ in sent:
            await rolling.appender.submit([slice_], 10)
        await rolling.rolled_up(5)
        assert rolling.file_counts() == [8]
        await rolling.appender.close(10)

    run(work)
    _verified(store)
    uri = topics.uri("t")
    before, after = (
        DeltaTable(uri, version=version).to_pyarrow_table().sort_by("offset").combine_chunks()
        for version in (6, 7)
    )
    assert len(DeltaTable(uri, version=6).file_uris()) == 5
    assert len(DeltaTable(uri, version=7).file_uris()) == 1
    assert after == before
    assert after.column("producer_id").to_pylist() == [None, None, 5, 5, 5, 5, 5, None]
    assert after.column("timestamp_type").to_pylist() == [0, 0, 0, 0, 0, 1, 1, 0]
    (file,) = topics.open("t").state.files(0).sorted()
    assert (file.timestamp_ms_min, file.timestamp_ms_max) == (1, 253_402_300_799_999)


def test_what_was_rolled_up_is_rolled_up_once_more(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mainstem.delta_log.files.roller._ALONE_AFTER_S", 0.02
    )  # ten swaps go alone
    create(topics, rollup_files=3)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        for first in range(0, 27, 3):
            await rolling.append(3)
            await rolling.rolled_up(first + first // 9 * 3 + 3)
        await rolling.rolled_up(27 + 9)
        assert rolling.file_counts() == [9, 9, 9]  # and not 27: twice is enough
        assert rolling.memory.used_bytes == 0
        await rolling.appender.close(10)

    run(work)
    _verified(store)


def test_many_partitions_are_rolled_up_and_no_commit_gets_long(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=8)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        await rolling.append(8, partitions=range(6))
        await rolling.rolled_up(48)
        assert [rolling.file_counts(partition) for partition in range(6)] == [[8]] * 6
        await rolling.appender.close(10)

    run(work)
    assert max(len(_swapped(actions)[1]) for actions in _commits(store)) <= 4
    _verified(store)


@pytest.mark.parametrize(
    "options",
    [{"rollup_files": 0}, {"rollup_files": 1}, {"rollup_files": 2, "rollup_max_bytes": 100}],
    ids=["off", "one", "too large"],
)
def test_files_are_left_alone(
    topics: Topics, pool: ThreadPoolExecutor, options: dict[str, int]
) -> None:
    create(topics, **options)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        await rolling.append(20)
        assert rolling.memory.used_bytes == 0
        await rolling.appender.close(10)
        assert rolling.file_counts() == [1] * 20

    run(work)


def test_a_large_file_between_small_ones_stays_as_it_is(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=10, rollup_max_bytes=20_000, compression_type="none")
    large = records_to_wire_batch([None], [b"x" * 30_000], None, [NOW_MS])

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        await rolling.append(3)
        await rolling.appender.submit([Slice(0, large)], 30_000)
        await rolling.append(1)  # now nothing can join the first three any more
        await rolling.rolled_up(3)
        assert rolling.file_counts() == [3, 1, 1]
        await rolling.appender.close(10)

    run(work)
    _verified(store)


def test_turning_it_off_frees_what_was_kept(topics: Topics, pool: ThreadPoolExecutor) -> None:
    create(topics, rollup_files=10)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        await rolling.append(5)
        assert rolling.memory.used_bytes > 0
        await rolling.appender.change_metadata(
            "SET", lambda state: altered_config(state, {"rollup.files": 0}, [])
        )
        await rolling.append(10)
        assert rolling.memory.used_bytes == 0
        await rolling.appender.close(10)
        assert rolling.file_counts() == [1] * 15

    run(work)


def test_a_swap_does_not_wait_for_records_for_long(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=4)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        last = await rolling.append(4)
        await rolling.rolled_up(4)
        assert rolling.appender.state.version == last + 1
        await rolling.append(1)
        assert rolling.file_counts() == [4, 1]
        await rolling.appender.close(10)

    run(work)
    alone = _commits(store)[-2]
    assert next(one for one in alone if isinstance(one, CommitInfo)).operation == "ROLL UP"
    _verified(store)


class _Merges:
    """Hooks of a store that tell a file of a roll-up from others: its first offset is there
    already."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.merged: list[str] = []
        #: What happens at the put of a merged file, and at the next commit after it.
        self.at_merge: Callable[[], None] = lambda: None
        self.at_commit: list[Callable[[], None]] = []

    def before(self, call: str, path: str) -> None:
        if call == "put":
            start = path.split("-")[0]
            if start in self.seen:
                self.at_merge()
                self.merged.append(path)
            self.seen.add(start)
        elif call == "put_if_absent" and self.merged and self.at_commit:
            self.at_commit.pop(0)()


def _compact(topics: Topics, file_count: int) -> None:
    """As a compaction commits: the first files become one, byte for byte the first of them."""
    opened = topics.open("t")
    swapped: list[Action] = []
    for file in opened.state.files(0).sorted()[:file_count]:
        path = f"{file.path}.compacted"
        opened.store.put(path, opened.store.read(file.path))
        swapped.append(Remove(file.path, 0, file.size_bytes, NOW_MS, data_change=False))
        swapped.append(replace(file, path=path, data_change=False))
    version = opened.state.version + 1
    one = TableCommit.of("COMPACTION", swapped, timestamp_ms=NOW_MS)
    assert Committer(opened.store).commit(version, one) == Committed(version)


def test_a_compaction_that_was_first_drops_the_swap_and_the_records_go_on(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=4)
    merges = _Merges()
    merges.at_commit.append(lambda: _compact(topics, 2))

    async def work() -> None:
        rolling = await Rolling.lead(faulty(topics.open("t"), merges.before), pool)
        await rolling.append(4)
        await rolling.until(lambda: bool(merges.merged))
        await rolling.append(2)
        await rolling.rolled_up(4, "superseded")
        bound = StoreFolder(store, "topics/t")
        await rolling.until(
            lambda: merges.merged[0] not in _paths(bound)  # nobody will ever want it
        )
        await rolling.append(4)
        await rolling.rolled_up(4)
        await rolling.appender.close(10)
        assert [file.path for file in rolling.appender.state].count(merges.merged[0]) == 0

    run(work)
    assert values(topics, 0) == [(number, b"%d" % number) for number in range(10)]
    _verified(store)


def _paths(store: ObjectStore) -> set[str]:
    return {f"partition=0/{info.name}" for info in store.list_files("partition=0")}


@pytest.mark.parametrize("is_after", [False, True], ids=["lost", "landed"])
def test_a_swap_whose_commit_got_no_answer_is_in_the_log_once(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor, *, is_after: bool
) -> None:
    create(topics, rollup_files=4)
    merges = _Merges()
    fault: list[Hook] = [times(2, "put_if_absent", unknown())]

    def fails(call: str, path: str) -> None:
        if merges.merged:
            fault[0](call, path)

    def before(call: str, path: str) -> None:
        merges.before(call, path)
        if not is_after:
            fails(call, path)

    after = fails if is_after else (lambda *_: None)

    async def work() -> None:
        rolling = await Rolling.lead(faulty(topics.open("t"), before, after), pool)
        await rolling.append(4)
        await rolling.until(lambda: bool(merges.merged))
        await rolling.append(1)
        await rolling.rolled_up(4)
        assert rolling.file_counts() == [4, 1]
        await rolling.appender.close(10)

    run(work)
    assert sum(len(_swapped(actions)[1]) for actions in _commits(store)) == 1
    assert values(topics, 0) == [(number, b"%d" % number) for number in range(5)]
    _verified(store)


def test_a_merged_file_that_cannot_be_written_leaves_the_small_ones(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=4)
    merges = _Merges()

    def fail() -> None:
        merges.at_merge = lambda: None
        raise unavailable()

    merges.at_merge = fail

    async def work() -> None:
        rolling = await Rolling.lead(faulty(topics.open("t"), merges.before), pool)
        await rolling.append(4)
        await rolling.rolled_up(4, "failed")
        await rolling.append(4)
        await rolling.rolled_up(4)
        assert rolling.file_counts() == [1, 1, 1, 1, 4]
        assert rolling.appender.failure is None
        await rolling.appender.close(10)

    run(work)
    _verified(store)


def test_a_fault_of_the_merging_costs_no_record(
    topics: Topics,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create(topics, rollup_files=2)

    def broken(*_: object, **__: object) -> None:
        raise pa.ArrowInvalid("no roll-up today")

    monkeypatch.setattr("mainstem.delta_log.files.roller.merge_data_files", broken)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        await rolling.append(10)
        await rolling.until(lambda: "no roll-up today" in caplog.text)
        await rolling.append(10)
        assert rolling.memory.used_bytes <= 20 * 5_000
        await rolling.appender.close(10)
        assert rolling.memory.used_bytes == 0
        assert rolling.file_counts() == [1] * 20

    run(work)


def test_a_kept_file_that_changed_in_memory_is_left_alone_and_the_log_goes_on(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(topics, rollup_files=4)
    changed: list[str] = []

    def change_once(kept: Iterable[tuple[DataFile, bytes]], **options: Any) -> object:
        files = list(kept)
        if not changed:
            file, content = files[1]
            changed.append(file.path)
            files[1] = file, content[:50] + bytes([content[50] ^ 4]) + content[51:]
        return merge_data_files(files, **options)

    monkeypatch.setattr("mainstem.delta_log.files.roller.merge_data_files", change_once)

    async def work() -> None:
        rolling = await Rolling.lead(topics.open("t"), pool)
        await rolling.append(4)
        await rolling.rolled_up(4, "failed")
        await rolling.append(4)
        await rolling.rolled_up(4)
        assert rolling.file_counts() == [1, 1, 1, 1, 4]
        assert rolling.appender.failure is None
        await rolling.appender.close(10)

    run(work)
    _verified(store)


def test_a_leader_that_was_deposed_swaps_nothing(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=4)

    async def work() -> None:
        old = await Rolling.lead(topics.open("t"), pool)
        await old.append(3)
        new = await lead(topics.open("t"), pool)
        with pytest.raises(FencedError):
            await old.append(1)
        await old.appender.close(10)
        assert old.memory.used_bytes == 0
        await new.submit([Slice(0, batch(3))], 1)
        await new.close(10)

    run(work)
    assert all(not _swapped(actions)[1] for actions in _commits(store))
    assert [offset for offset, _ in values(topics, 0)] == [0, 1, 2, 3]
    _verified(store)


def test_a_swap_that_waited_for_too_long_is_given_up(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    """Its file may have been removed meanwhile by a vacuum of files that no table has."""
    create(topics, rollup_files=4)
    merges = _Merges()
    clock = [0.0]

    async def work() -> None:
        rolling = await Rolling.lead(
            faulty(topics.open("t"), merges.before), pool, monotonic=lambda: clock[0]
        )
        await rolling.append(4)
        await rolling.until(lambda: bool(merges.merged))
        await asyncio.sleep(0.05)
        clock[0] += 3_600
        await rolling.append(1)
        await rolling.rolled_up(4, "superseded")
        assert rolling.file_counts() == [1] * 5
        await rolling.appender.close(10)

    run(work)
    _verified(store)


def test_closing_commits_what_was_merged(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    create(topics, rollup_files=4)
    merges = _Merges()

    async def work() -> None:
        rolling = await Rolling.lead(faulty(topics.open("t"), merges.before), pool)
        await rolling.append(4)
        await rolling.until(lambda: bool(merges.merged))
        await rolling.appender.close(10)
        assert rolling.file_counts() == [4]

    run(work)
    _verified(store)


def test_a_merged_file_that_is_gone_when_its_turn_comes_is_not_swapped_in(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    """Vacuum on another machine, while this one was suspended with its clocks standing still."""
    create(topics, rollup_files=4)
    put: list[str] = []

    async def work() -> None:
        def note(call: str, path: str) -> None:
            if call == "put" and path.startswith("partition=0/"):
                put.append(path)
                if len(put) == 5:  # four appends, and what became of them
                    store.delete(f"topics/t/{path}")

        rolling = await Rolling.lead(faulty(topics.open("t"), after=note), pool)
        await rolling.append(4)
        await rolling.rolled_up(4, "superseded")
        await rolling.append(4)
        await rolling.rolled_up(4)
        await rolling.appender.close(10)
        assert sorted(rolling.file_counts()) == [1, 1, 1, 1, 4]

    run(work)
    assert values(topics, 0) == [(n, b"%d" % n) for n in range(8)]
    _verified(store)


def test_a_live_file_is_not_deleted_where_a_commit_landed_unknown_and_another_of_its_files_went(
    topics: Topics, store: LocalStore, pool: ThreadPoolExecutor
) -> None:
    """Two swaps in a commit that got no answer; before it is tried again a compaction replaces one
    merged file and vacuum takes it. The other one is part of the table by then."""
    create(topics, rollup_files=4)
    merged: list[str] = []
    landed: list[str] = []

    async def work() -> None:
        def hide_the_answer(call: str, path: str) -> None:
            if call == "put" and len(merged) < 10:
                merged.append(path)
            if call == "put_if_absent" and len(merged) == 10 and not landed:
                landed.append(path)
                other = topics.open("t")
                gone = other.state.file(merged[8])
                if gone is None:  # a commit of records that came first
                    landed.clear()
                    return
                copy, data = encode_data_file(
                    gone.partition,
                    0,
                    [batch(number) for number in range(4)],
                    timestamp_type=CREATE_TIME,
                    compression_type="zstd",
                    now_ms=NOW_MS,
                )
                other.store.put(copy.path, data)
                actions = replace_files(other.state, [gone], [copy], now_ms=1, data_change=False)
                commit_beside_leader(
                    other, lambda _: TableCommit.of("COMPACT", actions, timestamp_ms=1)
                )
                other.store.delete(gone.path)
                raise unknown()

        rolling = await Rolling.lead(faulty(topics.open("t"), after=hide_the_answer), pool)
        await rolling.append(4, partitions=(0, 1))
        await rolling.until(lambda: bool(landed))
        await asyncio.sleep(0.3)
        assert rolling.appender.failure is None
        await rolling.appender.close(10)

    run(work)
    for partition in (0, 1):
        assert [offset for offset, _ in values(topics, partition)] == [0, 1, 2, 3]
    _verified(store)
