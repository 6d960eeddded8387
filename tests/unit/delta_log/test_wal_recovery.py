"""What becomes of acks=1 records that are in no table: appended, kept as orphans, never both."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.delta_log.appending import batch, create, faulty, lead, run, values
from tests.unit.delta_log.faults import unavailable
from tests.unit.delta_log.power_loss import Disk, InlineExecutor, PowerLost, installed

from mainstem.delta_log import Appender, LocalStore, Slice, TableState, Topics
from mainstem.delta_log.append import Recovered, judge, recover_topic
from mainstem.delta_log.format import Batch, Register, registers
from mainstem.delta_log.wal import LocalWalFiles, Wal, WalRequest, decode_entry, decode_segment

# -- pure ------------------------------------------------------------------------------------------


def _state(ends: Mapping[int, int], epochs: Mapping[int, int], epoch: int = 9) -> TableState:
    """A table whose partitions end there, with records of these leader epochs at last."""
    state = TableState("t")
    state.begin(
        1,
        [
            Register(registers.EPOCH, epoch),
            *(Register(registers.leo(partition), end) for partition, end in ends.items()),
            *(Register(registers.partition_epoch(p), one) for p, one in epochs.items()),
        ],
    )
    return state


def _entry(number: int, epoch: int, *places: tuple[int, int]) -> tuple[int, WalRequest]:
    """An entry with two records at each (partition, base offset)."""
    slices = tuple(Slice(partition, batch(number, 2), None, False) for partition, _ in places)
    batches = tuple(Batch(partition, offset, 2) for partition, offset in places)
    return number, WalRequest("t", "id", epoch, slices, batches, 10)


def _places(entries: list[tuple[int, WalRequest]]) -> list[tuple[int, int, int]]:
    return [
        (number, one.partition, one.base_offset) for number, req in entries for one in req.batches
    ]


def test_entries_that_continue_their_partitions_are_appended() -> None:
    entries = [_entry(1, 3, (0, 10), (1, 0)), _entry(2, 3, (0, 12)), _entry(5, 4, (0, 14))]
    found = judge(entries, _state({0: 10}, {0: 3}), set(), is_led=True)
    assert _places(found.fitting) == [(1, 0, 10), (1, 1, 0), (2, 0, 12), (5, 0, 14)]
    assert (found.orphans, found.waiting, found.settled) == ([], [], set())


@pytest.mark.parametrize("end", [10, 11, 12, 13, 14, 100])
def test_entries_of_an_epoch_before_the_partitions_last_are_orphans_whatever_it_ends_at(
    end: int,
) -> None:
    """At 12 the second one's offset fits, but not what was before it."""
    entries = [_entry(1, 3, (0, 10)), _entry(2, 3, (0, 12)), _entry(3, 3, (1, 0))]
    for is_led in (True, False):
        found = judge(entries, _state({0: end}, {0: 4}), set(), is_led=is_led)
        assert _places(found.orphans) == [(1, 0, 10), (2, 0, 12)]
        assert _places(found.fitting if is_led else found.waiting) == [(3, 1, 0)]
        assert found.settled == {1, 2}


def test_what_was_accepted_after_the_orphans_is_appended() -> None:
    """By the same gateway, which has led the topic again since, and has crashed again."""
    entries = [_entry(1, 3, (0, 10)), _entry(2, 5, (0, 11)), _entry(3, 5, (0, 13))]
    found = judge(entries, _state({0: 11}, {0: 4}), set(), is_led=True)
    assert _places(found.orphans) == [(1, 0, 10)]
    assert _places(found.fitting) == [(2, 0, 11), (3, 0, 13)]


def test_what_does_not_fit_and_all_of_its_epoch_behind_it_are_orphans_once_nobody_can_append() -> (
    None
):
    """There is a gap, as after a segment that was moved away."""
    entries = [_entry(1, 3, (0, 10)), _entry(3, 3, (0, 14)), _entry(4, 3, (0, 12), (1, 0))]
    state = _state({0: 10}, {0: 3})
    found = judge(entries, state, set(), is_led=True)
    assert _places(found.fitting) == [(1, 0, 10), (4, 1, 0)]
    assert _places(found.orphans) == [(3, 0, 14), (4, 0, 12)]
    assert found.settled == {3}
    assert len(judge(entries, state, set(), is_led=False).waiting) == 3


def test_what_is_in_a_file_of_orphans_stays_one_though_it_would_fit_by_now() -> None:
    entries = [_entry(1, 3, (0, 10), (1, 5)), _entry(2, 3, (0, 12)), _entry(3, 5, (0, 10))]
    found = judge(entries, _state({0: 10, 1: 5}, {}), {(1, 0, 10)}, is_led=True)
    assert _places(found.fitting) == [(1, 1, 5), (3, 0, 10)]
    assert _places(found.orphans) == [(2, 0, 12)]
    assert found.settled == {2}


def test_what_is_in_the_table_by_its_epoch_is_settled_though_the_register_lacks_it() -> None:
    entries = [_entry(1, 3, (0, 10)), _entry(2, 3, (0, 12)), _entry(3, 3, (0, 14))]
    for is_led in (True, False):
        found = judge(entries, _state({0: 14}, {0: 3}), set(), is_led=is_led)
        assert found.settled == {1, 2}
        assert found.orphans == []
        assert _places(found.fitting if is_led else found.waiting) == [(3, 0, 14)]


def test_a_batch_that_was_written_twice_counts_once() -> None:
    whole, again = _entry(1, 3, (0, 10), (1, 0)), _entry(1, 3, (1, 0))
    found = judge([whole, again], _state({0: 10}, {}), set(), is_led=True)
    assert _places(found.fitting) == [(1, 0, 10), (1, 1, 0)]


# -- one log and another leader --------------------------------------------------------------------


@dataclass
class World:
    """A warehouse with one topic, a gateway `g` with a log, and others without one.

    Attributes:
        acknowledged: Values that acks=1 was answered for.
    """

    directory: Path
    rng: random.Random
    disk: Disk = field(init=False)
    acknowledged: list[bytes] = field(default_factory=list)
    lives: int = 0

    def __post_init__(self) -> None:
        root = self.directory / "life"
        root.mkdir()
        self.disk = Disk(root, self.rng)
        with installed(self.disk):
            store = LocalStore(root / "warehouse")
            create(Topics(store))
            store.close()

    def restart(self, *, power: bool) -> None:
        """Every process is gone; without `power` also what was not synced."""
        self.lives += 1
        if not power:
            self.disk = self.disk.after_power_loss(self.directory / f"life-{self.lives}")
            return
        self.disk.release()
        self.disk.off = False
        self.disk.steps.clear()
        self.disk.fails_at = -1

    def live(self, work: Callable[[Topics, Wal], object], *, fails_at: int = -1) -> None:
        """One life of the gateway, up to the step at which the machine is gone."""
        self.disk.fails_at = fails_at

        async def life() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            store = LocalStore(Path(self.disk.root) / "warehouse")
            files = LocalWalFiles(Path(self.disk.root) / "wal")
            wal = Wal(files, "g", segment_bytes=1, clock_us=lambda: 0)
            await work(Topics(store), wal)  # type: ignore[misc]

        with installed(self.disk):
            try:
                asyncio.run(life())
            except PowerLost:
                assert fails_at >= 0

    def other_leader(self, *partitions: int) -> None:
        """Another gateway leads the topic and appends a record to each of these partitions."""

        async def work() -> None:
            store = LocalStore(Path(self.disk.root) / "warehouse")
            appender = await lead(Topics(store).open("t"), InlineExecutor())
            if partitions:
                await appender.submit([Slice(p, batch(90 + p)) for p in partitions], 1)
            await appender.close(10)
            store.close()

        self.disk.fails_at = -1
        with installed(self.disk):
            run(work)

    def orphans(self) -> list[bytes]:
        found: list[bytes] = []
        for path in sorted((Path(self.disk.root) / "wal").glob("*.orphans")):
            for frame in decode_segment(path.read_bytes(), str(path), is_last=False):
                for _, entry in frame.entries:
                    for one in decode_entry(entry).slices:
                        found += one.records.column("value").to_pylist()
        return found

    def table(self, partition: int) -> list[bytes]:
        store = LocalStore(Path(self.disk.root) / "warehouse")
        try:
            return [value for _, value in values(Topics(store), partition)]
        finally:
            store.close()

    def judge(self) -> None:
        """Each acknowledged record is in the table or an orphan, once; and nothing is both."""
        table = [value for partition in range(3) for value in self.table(partition)]
        own = [value for value in table if int(value) < 90]
        everything = [*own, *self.orphans()]
        assert len(set(everything)) == len(everything), f"twice: {own}, {self.orphans()}"
        assert set(self.acknowledged) <= set(everything), f"lost: {own}, {self.orphans()}"


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Empty directories, in memory where there is such a place."""
    shared = Path("/dev/shm")
    root = (shared if shared.is_dir() else tmp_path) / f"wal-{random.randrange(2**62)}"
    count = 0

    def make() -> Path:
        nonlocal count
        count += 1
        directory = root / str(count)
        directory.mkdir(parents=True)
        return directory

    yield make
    shutil.rmtree(root, ignore_errors=True)


async def _produce(world: World, appender: Appender, *requests: tuple[int, ...]) -> None:
    """Sends requests with acks=1, each with a record to each of its partitions."""
    for request in requests:
        number = len(world.acknowledged) + 1
        slices = [Slice(p, batch(number + index)) for index, p in enumerate(request)]
        await appender.submit(slices, 1, write_ahead=True)
        world.acknowledged += [b"%d" % (number + index) for index in range(len(request))]


def _first_life(world: World) -> None:
    """Five entries that are in no table, each in a segment of its own but for another topic's.

    The commits are on their way when the gateway dies.
    """

    async def work(topics: Topics, wal: Wal) -> None:
        appender = await _lead_in_vain(topics, "t", wal)
        await _produce(world, appender, (0,), (0, 1), (2,), (0,), (1,))

    world.live(work)
    world.restart(power=True)


async def _lead_in_vain(topics: Topics, topic: str, wal: Wal) -> Appender:
    """Leads the topic; no commit gets on from then on."""
    is_led = False

    def away(call: str, _: str) -> None:
        if is_led and call.startswith("put"):
            raise unavailable()

    appender = await lead(faulty(topics.open(topic), away), InlineExecutor(), wal=wal)
    is_led = True
    return appender


async def _recover(topics: Topics, wal: Wal) -> None:
    """Leads the topic, and commits what comes of it."""
    appender = await lead(topics.open("t"), InlineExecutor(), wal=wal)
    while appender.queued_bytes:
        if appender._task.done():
            raise PowerLost
        await asyncio.sleep(0)


async def _look(topics: Topics, wal: Wal) -> None:
    """Settles what can be settled without the lead."""
    opened = topics.open("t")
    await recover_topic(wal, "t", opened.state, is_led=False)


async def _idle(topics: Topics, wal: Wal) -> None:
    """Leads the topic, and dies before any of what fits is committed."""
    await _lead_in_vain(topics, "t", wal)
    await asyncio.sleep(0)


@pytest.mark.fault
@pytest.mark.parametrize("power", [True, False], ids=["killed", "power lost"])
@pytest.mark.parametrize("way", [_recover, _look, _idle])
@pytest.mark.parametrize("appends", [(), (0,), (0, 0), (1,), (0, 1, 2)])
def test_killed_at_every_step_of_a_recovery_beside_another_leader_no_record_is_lost_or_doubled(
    directories: Callable[[], Path],
    appends: tuple[int, ...],
    way: Callable[[Topics, Wal], object],
    power: bool,
) -> None:
    """The gateway dies, another one leads, it starts and dies at a step, another one leads again,
    it starts again, twice. `(0, 0)` comes to an offset at which the second entry would fit."""
    at = 0
    while True:
        at += 1
        world = World(directories(), random.Random(at))
        _first_life(world)
        world.other_leader(*appends)
        before = len(world.disk.steps)
        world.live(way, fails_at=before + at)
        is_done = not world.disk.off
        world.restart(power=power)
        world.other_leader(*(() if at % 2 else (0,)))
        for _ in range(2):
            world.live(_recover)
            world.restart(power=power)
        world.judge()
        shutil.rmtree(world.directory)
        if is_done:
            assert at > 3
            return


@pytest.mark.fault
def test_an_orphan_whose_predecessor_left_the_log_first_stays_one(
    directories: Callable[[], Path],
) -> None:
    """The first of two orphans had a segment of its own; that of the second has another topic's
    entry too. At the second start it alone is there, and its offset is where the partition ends."""
    world = World(directories(), random.Random(1))

    async def first(topics: Topics, wal: Wal) -> None:
        topics.create("other", 1, {})
        other = await _lead_in_vain(topics, "other", wal)
        appender = await _lead_in_vain(topics, "t", wal)
        await _produce(world, appender, (0,))
        answers = [
            appender.submit([Slice(0, batch(2))], 1, write_ahead=True),
            other.submit([Slice(0, batch(3))], 1, write_ahead=True),
        ]
        await asyncio.gather(*answers)

    world.live(first)
    world.restart(power=True)
    world.other_leader(0)
    for _ in range(3):
        world.live(_idle)
        assert world.orphans() == [b"1", b"2"]
        world.restart(power=True)
    world.live(_recover)
    world.restart(power=True)
    assert world.table(0) == [b"90"]
    assert world.orphans() == [b"1", b"2"]


@pytest.mark.fault
def test_records_that_a_gateway_took_after_it_had_orphans_are_not_taken_for_orphans(
    directories: Callable[[], Path],
) -> None:
    world = World(directories(), random.Random(1))
    _first_life(world)
    world.other_leader(0, 1, 2)

    async def again(topics: Topics, wal: Wal) -> None:
        appender = await _lead_in_vain(topics, "t", wal)
        await _produce(world, appender, (0,), (0,))

    world.live(again)
    world.restart(power=True)
    world.live(_recover)
    world.restart(power=True)
    assert world.table(0) == [b"90", b"7", b"8"]
    assert world.orphans() == [b"1", b"2", b"3", b"4", b"5", b"6"]


@pytest.mark.fault
def test_a_file_of_orphans_that_cannot_be_written_keeps_the_topic_from_being_led(
    directories: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries stay in the log, and are kept the next time."""
    world = World(directories(), random.Random(1))
    _first_life(world)
    world.other_leader(0, 1, 2)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def full(topics: Topics, wal: Wal) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LocalWalFiles, "write_whole", fails)
            with pytest.raises(Exception, match="No space left"):
                await lead(topics.open("t"), InlineExecutor(), wal=wal)
        opened = topics.open("t")
        found = await recover_topic(wal, "t", opened.state, is_led=True)
        assert found == Recovered(orphan_count=6, orphans_path=found.orphans_path)

    world.live(full)
    world.restart(power=True)
    world.judge()
