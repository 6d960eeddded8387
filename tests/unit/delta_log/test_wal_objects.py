"""The write-ahead log in an object store: numbers, marks, lost answers, and who is too late."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass, field

import pytest
from tests.unit.delta_log.appending import batch, run
from tests.unit.delta_log.faults import FaultyStore, Hook, nothing, times, unavailable, unknown

from mainstem.delta_log import Slice
from mainstem.delta_log.format import Batch
from mainstem.delta_log.store import MemoryStore, NotFound
from mainstem.delta_log.wal import (
    ObjectWalFiles,
    ObjectWals,
    Wal,
    WalInUse,
    WalLost,
    WalRequest,
    WalSealed,
    encode_frame,
)
from mainstem.delta_log.wal import objects as wal_objects
from mainstem.delta_log.wal import queue as wal_queue
from mainstem.delta_log.wal.object_format import Kind, Writer, decode_object, encode_object
from mainstem.delta_log.wal.place import WalSegments
from mainstem.errors import LogDamagedError, StoreUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")

#: The calls of a put, and of a look at what is there.
PUT = "put_if_absent"


def _request(number: int, topic: str = "t", count: int = 1) -> WalRequest:
    slices = (Slice(0, batch(number, count), None, False),)
    return WalRequest(topic, f"{topic}-id", 1, slices, (Batch(0, number, count),), 10)


def _frame(number: int) -> bytes:
    return encode_frame([(number, b"entry %d" % number)])


@dataclass
class Place:
    """A store with the logs of gateways.

    Attributes:
        slept: The pauses before repeated puts.
    """

    store: FaultyStore = field(default_factory=lambda: FaultyStore(MemoryStore()))
    slept: list[float] = field(default_factory=list)

    def open(self, gateway_id: str = "a") -> tuple[ObjectWalFiles, WalSegments]:
        """A start of a gateway; what it finds is read."""
        files = ObjectWalFiles(self.store, gateway_id, self.slept.append, random.Random(1))
        segments = files.segments(0)
        list(segments.scan())
        return files, segments

    def seal(self, sealer_id: str = "b", gateway_id: str = "a") -> list[int]:
        """What somebody who seals a log finds there: the numbers of entries."""
        sealed = ObjectWals(self.store, self.slept.append).seal(gateway_id, sealer_id)
        assert sealed is not None
        assert sealed.is_sealed
        segments = sealed.segments(0)
        found = [number for number, _ in segments.scan()]
        segments.close()
        return found

    @property
    def kinds(self) -> list[str]:
        """What the objects of a's log are, in order."""
        names = [info.name for info in self.store.inner.list_files("wal/a")]
        return [
            decode_object(self.store.inner.read(f"wal/a/{name}"), name).kind.value for name in names
        ]

    @property
    def puts(self) -> list[str]:
        return [path for call, path in self.store.calls if call == PUT]


@pytest.fixture
def place() -> Place:
    return Place()


# -- one object ------------------------------------------------------------------------------------


def test_a_put_whose_answer_was_lost_is_read_back_and_counts_once(place: Place) -> None:
    _, segments = place.open()
    place.store.after = times(1, PUT, unknown())
    segments.write(_frame(1), 1)
    segments.write(_frame(2), 2)
    assert place.seal() == [1, 2]
    assert place.kinds == ["open", "frames", "frames", "seal"]
    segments.close()


def test_a_put_that_the_store_was_too_busy_for_is_sent_again_after_growing_pauses(
    place: Place,
) -> None:
    _, segments = place.open()
    place.store.before = times(3, PUT, unknown())
    segments.write(_frame(1), 1)
    assert len(place.slept) == 3
    assert 0.05 <= place.slept[0] < place.slept[1] < place.slept[2] < 0.5
    assert place.seal() == [1]
    segments.close()


@pytest.mark.parametrize("landed", [False, True])
def test_an_object_of_which_nobody_knows_whether_it_is_there_is_settled_before_the_next(
    place: Place, landed: bool
) -> None:
    """Else the next could be put under its number, after it was there, read by who took the log
    over, and deleted."""
    _, segments = place.open()
    if landed:
        place.store.after = times(1, PUT, unknown())
        place.store.before = times(4, "read", unavailable())
        # It is not even found out by the next puts.
        hook = place.store.before

        def before(call: str, path: str) -> None:
            hook(call, path)
            if call == PUT and len(place.puts) > 2:
                raise unavailable()

        place.store.before = before
    else:
        place.store.before = times(5, PUT, unknown())
    with pytest.raises(StoreUnavailableError):
        segments.write(_frame(1), 1)
    place.store.before = place.store.after = nothing
    segments.write(_frame(2), 2)
    assert place.seal() == [1, 2]
    segments.close()


def test_a_put_that_is_certain_not_to_be_there_leaves_its_number_to_the_next(place: Place) -> None:
    _, segments = place.open()
    place.store.before = times(1, PUT, unavailable())
    with pytest.raises(StoreUnavailableError):
        segments.write(_frame(1), 1)
    assert place.slept == []
    segments.write(_frame(2), 2)
    assert place.seal() == [2]
    segments.close()


def test_an_object_that_is_not_one_of_a_log_is_told_by_name(place: Place) -> None:
    _, segments = place.open()
    segments.close()
    path = f"wal/a/{wal_objects.name_of(1)}"
    for data in (b"", b"MSWO", b"MSWO" + bytes(8), b"MSWO\x02\0\0\0\0\0\0\0{}", b"else" * 9):
        place.store.put(path, data)
        with pytest.raises(LogDamagedError, match=f"{path} is no object of a log"):
            place.seal()


def test_files_of_other_people_are_left_alone(place: Place) -> None:
    place.store.put("wal/a/notes.txt", b"mine")
    place.store.put("wal/a/0001.wal", b"mine")
    _, segments = place.open()
    segments.write(_frame(1), 1)
    assert place.seal() == [1]
    segments.close()


# -- sealed ----------------------------------------------------------------------------------------


def test_a_writer_whose_put_comes_after_the_seal_knows_it_and_goes_on_behind_a_mark(
    place: Place,
) -> None:
    files, segments = place.open()
    segments.write(_frame(1), 1)
    assert place.seal() == [1]
    with pytest.raises(WalSealed, match=r"gateway b, process \d+ on .* has sealed it"):
        segments.write(_frame(2), 2)
    with pytest.raises(WalSealed):
        segments.write(_frame(2), 2)
    files.own_again()
    segments.write(_frame(3), 3)
    assert place.kinds == ["open", "frames", "seal", "open", "frames"]
    assert place.seal() == [1, 3]
    segments.close()


@pytest.mark.parametrize("first", ["seal", "put"])
def test_a_seal_in_the_middle_of_a_put_has_the_request_or_the_writer_learns_that_it_has_not(
    place: Place, first: str
) -> None:
    _, segments = place.open()
    segments.write(_frame(1), 1)
    found: list[int] = []

    def meanwhile(call: str, path: str) -> None:
        if call == PUT:
            place.store.before = place.store.after = nothing
            found.extend(place.seal())

    if first == "seal":
        place.store.before = meanwhile
        with pytest.raises(WalSealed):
            segments.write(_frame(2), 2)
        assert found == [1]
    else:
        place.store.after = meanwhile
        segments.write(_frame(2), 2)
        assert found == [1, 2]
    segments.close()


def test_several_takers_share_a_seal_until_the_owner_goes_on(place: Place) -> None:
    files, segments = place.open()
    segments.write(_frame(1), 1)
    assert place.seal("b") == place.seal("c") == [1]
    assert place.kinds == ["open", "frames", "seal"]
    sealed = ObjectWals(place.store).seal("a", "c")
    assert sealed is not None
    assert sealed.is_sealed
    files.own_again()
    assert not sealed.is_sealed
    assert not sealed.delete_segments([wal_objects.name_of(1)])
    assert place.seal("c") == [1]
    assert place.kinds == ["open", "frames", "seal", "open", "seal"]
    segments.close()


def test_a_log_that_is_not_there_is_not_made_by_who_looks_for_it(place: Place) -> None:
    assert ObjectWals(place.store).seal("a", "b") is None
    assert place.puts == []
    assert ObjectWals(place.store).with_segments(set()) == []


def test_a_restart_takes_the_log_from_the_process_before_which_may_still_run(place: Place) -> None:
    old_files, old = place.open()
    old.write(_frame(1), 1)
    _, new = place.open()
    with pytest.raises(WalLost, match="has taken it") as error:
        old.write(_frame(2), 2)
    assert not isinstance(error.value, WalSealed)
    with pytest.raises(WalLost):
        old_files.own_again()
    new.write(_frame(3), 3)
    assert place.seal() == [1, 3]
    old.close()
    new.close()


def test_of_two_processes_that_start_at_once_under_one_id_at_least_one_is_told(
    place: Place,
) -> None:
    def meanwhile(call: str, path: str) -> None:
        if call == PUT:
            place.store.after = nothing
            place.open()[1].close()

    place.store.after = meanwhile
    with pytest.raises(WalInUse, match=r"give this one another gateway\.id"):
        place.open()


def test_a_writer_that_slept_while_all_of_its_log_was_taken_over_and_deleted_can_put_nothing(
    place: Place,
) -> None:
    """Its number was cleaned up long ago, but for the mark."""
    files, old = place.open()
    old.write(_frame(1), 1)
    sealed = ObjectWals(place.store).seal("a", "b")
    assert sealed is not None
    assert sealed.delete_segments([wal_objects.name_of(1)])
    _, new = place.open()
    for number in range(2, 6):
        new.write(_frame(number), number)
    new.fold(set(range(10)))
    new.close()
    assert place.kinds == ["open", "seal", "open", "frames"]
    with pytest.raises(WalSealed):
        old.write(_frame(9), 9)
    with pytest.raises(WalLost) as error:
        files.own_again()
    assert not isinstance(error.value, WalSealed)
    assert place.seal() == [5]
    old.close()


def test_a_seal_under_a_number_that_was_cleaned_up_is_not_taken_for_one(place: Place) -> None:
    """Who seals slept between its look and its put."""
    _, segments = place.open()
    segments.write(_frame(1), 1)

    def meanwhile(call: str, path: str) -> None:
        if call == PUT and path.endswith(wal_objects.name_of(2)):
            place.store.before = nothing
            for number in (2, 3, 4):
                segments.write(_frame(number), number)
            segments.fold({1, 2, 3})
            place.store.inner.delete_all([f"wal/a/{wal_objects.name_of(n)}" for n in (1, 2, 3)])

    place.store.before = meanwhile
    assert place.seal() == [4]
    assert place.kinds == ["open", "seal", "frames", "seal"]
    with pytest.raises(WalSealed):
        segments.write(_frame(5), 5)
    segments.close()


# -- deleted ---------------------------------------------------------------------------------------


def test_objects_go_in_batches_when_all_their_entries_are_in_tables_but_for_the_newest(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_objects, "_DELETE_COUNT", 4)
    _, segments = place.open()
    for number in range(6):
        segments.write(_frame(number), number).unfolded.add(number)
    segments.fold({0, 1, 3})
    segments.drop_folded()
    assert len(segments.names) == 3
    segments.fold({2, 4, 5})
    segments.drop_folded()
    segments.drop_folded()
    segments.close()
    deletions = [path for call, path in place.store.calls if call == "delete_all"]
    assert len(deletions) == 1
    assert place.kinds == ["open", "frames"]
    assert place.seal() == [5]


def test_objects_that_cannot_be_deleted_are_tried_again(place: Place) -> None:
    _, segments = place.open()
    for number in range(3):
        segments.write(_frame(number), number)
    place.store.before = times(1, "delete_all", unavailable())
    segments.drop_folded()
    for _ in range(2):
        segments._gone_at = -1e9  # type: ignore[attr-defined]
        segments.drop_folded()
        segments._deleting.submit(int).result()  # type: ignore[attr-defined]
    assert place.kinds == ["open", "frames"]
    segments.close()


def test_what_a_taker_has_deleted_is_not_missed_by_the_owner_that_goes_on(place: Place) -> None:
    files, segments = place.open()
    segments.write(_frame(1), 1).unfolded.add(1)
    sealed = ObjectWals(place.store).seal("a", "b")
    assert sealed is not None
    assert sealed.delete_segments([wal_objects.name_of(1)])
    files.own_again()
    assert segments.names == []
    assert segments.holding({1}) == []
    segments.close()


# -- together with the log -------------------------------------------------------------------------


def test_what_comes_within_an_interval_is_one_object_and_nothing_costs_nothing(
    place: Place,
) -> None:
    async def work() -> None:
        wal = Wal(ObjectWalFiles(place.store, "a"), "a", interval_s=0.15)
        before = len(place.puts)
        first = wal.append(wal.take_number(), _request(0))
        await first
        assert len(place.puts) == before + 1  # at once
        rest = [wal.append(wal.take_number(), _request(n)) for n in range(1, 40)]
        await asyncio.sleep(0.02)
        assert not rest[0].done()
        await asyncio.gather(*rest)
        assert len(place.puts) == before + 2
        calls = len(place.store.calls)
        await asyncio.sleep(0.3)
        assert len(place.store.calls) == calls
        assert not [call for call, _ in place.store.calls[before + 4 :] if call == "list_files"]
        await wal.close()

    run(work)


def test_what_fills_an_object_does_not_wait_for_its_time_and_does_not_swell_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_queue, "FRAME_BYTES", 5_000)

    async def work() -> None:
        wal = Wal(ObjectWalFiles(place.store, "a"), "a", interval_s=60.0)
        await wal.append(wal.take_number(), _request(0))
        before = len(place.puts)
        waiting = [wal.append(wal.take_number(), _request(n, count=100)) for n in range(1, 8)]
        await asyncio.wait_for(waiting[0], 5)
        assert len(place.puts) > before
        closing = asyncio.ensure_future(wal.close())  # writes what waits, before its time
        await asyncio.wait_for(asyncio.gather(*waiting, closing), 5)
        sizes = [info.size_bytes for info in place.store.list_files("wal/a")]
        assert max(sizes) < 10_000

    run(work)


def test_a_request_that_its_table_has_before_its_object_was_put_needs_none(place: Place) -> None:
    async def work() -> None:
        wal = Wal(ObjectWalFiles(place.store, "a"), "a", interval_s=0.1)
        await wal.append(wal.take_number(), _request(0))
        puts = len(place.puts)
        number = wal.take_number()
        done = wal.append(number, _request(1))
        wal.fold("t", "t-id", number)
        await asyncio.wait_for(done, 5)
        assert len(place.puts) == puts
        await wal.close()

    run(work)


def test_what_was_appended_is_found_by_the_next_start_and_by_who_seals(place: Place) -> None:
    async def work() -> None:
        wal = Wal(ObjectWalFiles(place.store, "a"), "a")
        wal.belong_to("warehouse")
        await asyncio.gather(*(wal.append(wal.take_number(), _request(n)) for n in range(5)))
        register = wal.register
        for files in (ObjectWalFiles(place.store, "a"), ObjectWals(place.store).seal("a", "b")):
            assert files is not None
            found = Wal(files, "a")
            assert (found.register, found.warehouse_id) == (register, "warehouse")
            entries = await found.unfolded("t", "t-id", 0)
            assert [one.batches[0].base_offset for _, one in entries] == [0, 1, 2, 3, 4]
            assert entries[0][1] == _request(0)
            await found.close()
        await wal.close()

    run(work)


def _faults() -> dict[str, tuple[bool, Exception]]:
    return {
        "not there": (True, unknown()),
        "answer lost": (False, unknown()),
        "refused": (True, unavailable()),
        "error afterwards": (False, unavailable()),
    }


@pytest.mark.parametrize("kind", ["not there", "answer lost", "refused"])
@pytest.mark.parametrize("count", [1, 7])
def test_faults_at_each_call_of_a_write_cost_no_acknowledged_request(kind: str, count: int) -> None:
    """Each request is acknowledged, or waits for its table commit; what a start finds has no gap
    among what was acknowledged."""

    async def work(position: int) -> bool:
        place = Place()
        acknowledged: list[int] = []
        files = ObjectWalFiles(place.store, "a", place.slept.append)
        now = [0.0]
        wal = Wal(files, "a", monotonic=lambda: now[0])

        async def send(offset: int) -> None:
            now[0] += 100.0
            try:
                await wal.append(wal.take_number(), _request(offset))
            except StoreUnavailableError:
                return
            acknowledged.append(offset)

        await send(0)
        begun = len(place.store.calls)
        hook = _failing(kind, place, begun + position, count)
        if _faults()[kind][0]:
            place.store.before = hook
        else:
            place.store.after = hook
        for offset in range(1, 4):
            await send(offset)
        met = len(place.store.calls) - begun > position
        place.store.before = place.store.after = nothing
        await send(4)
        assert 4 in acknowledged, "it works again"
        found = place.seal()
        entries = Wal(ObjectWalFiles(place.store, "a"), "a")
        offsets = {one.batches[0].base_offset for _, one in await entries.unfolded("t", "t-id", 0)}
        assert len(found) >= len(offsets)
        assert set(acknowledged) <= offsets
        await entries.close()
        await wal.close()
        return met

    async def at_each() -> None:
        position = 0
        while await work(position):
            position += 1
        assert position >= 3

    run(at_each)


def _failing(kind: str, place: Place, first: int, count: int) -> Hook:
    error = _faults()[kind][1]

    def hook(call: str, path: str) -> None:
        if first < len(place.store.calls) <= first + count:
            # Only a conditional put has an unknown outcome.
            raise error if call == PUT else unavailable()

    return hook


def test_the_late_seal_of_another_under_a_number_that_was_passed_is_not_taken_for_the_end(
    place: Place,
) -> None:
    """Between a listing and the read of what it ends with the owner goes on, and deletes that; and
    one who listed before, and was stopped, puts its mark there."""
    _, segments = place.open()
    segments.write(_frame(1), 1)
    newest = f"wal/a/{segments.names[-1]}"

    def meanwhile(call: str, path: str) -> None:
        if (call, path) != ("read", newest):
            return
        place.store.before = nothing
        segments.write(_frame(2), 2)
        segments.write(_frame(3), 3)
        place.store.delete(newest)
        place.store.put_if_absent(newest, encode_object(Kind.SEAL, Writer.new("late")))

    place.store.before = meanwhile
    assert place.seal() == [2, 3]
    with pytest.raises(WalSealed):
        segments.write(_frame(4), 4)
    segments.close()


# -- every interleaving ----------------------------------------------------------------------------


class Turns:
    """Lets one of several threads at a time make a call of the store, at random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._condition = threading.Condition()
        self._waiting: dict[int, bool] = {}
        self._running = 0

    def run(self, *actors: threading.Thread) -> None:
        for index, actor in enumerate(actors):
            self._waiting[index] = False
            actor.name = str(index)
            self._running += 1
            actor.start()
            with self._condition:
                self._condition.wait_for(lambda: self._running == 0)
        while True:
            with self._condition:
                ready = [index for index, waits in self._waiting.items() if waits]
                if not ready:
                    break
                self._waiting[self._rng.choice(ready)] = False
                self._running = 1
                self._condition.notify_all()
                assert self._condition.wait_for(lambda: self._running == 0, 30)
        for actor in actors:
            actor.join()

    def take(self, call: str, path: str) -> None:
        name = threading.current_thread().name
        if not name.isdigit():
            return
        with self._condition:
            self._waiting[int(name)] = True
            self._running = 0
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._waiting[int(name)])

    def ended(self) -> None:
        with self._condition:
            self._running = 0
            self._condition.notify_all()


@dataclass
class History:
    """What writers and takers have seen.

    Attributes:
        acknowledged: (number of the entry, of its object, of the mark before it).
        takeovers: (number of the mark, the entries that were found).
        folded: Entries that are in a table.
    """

    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    takeovers: list[tuple[int, set[int]]] = field(default_factory=list)
    folded: set[int] = field(default_factory=set)

    def check(self) -> None:
        for entry, number, mark in self.acknowledged:
            for taken, found in self.takeovers:
                if mark < taken:
                    assert number < taken, "acknowledged behind a mark"
                    assert entry in found, "acknowledged, and not found by who took over"


def _write(place: Place, history: History, first: int) -> None:
    """A gateway: it starts, writes, goes on when it is sealed, and folds some of it."""
    try:
        files = ObjectWalFiles(place.store, "a", lambda _: None)
    except WalInUse:
        return
    segments = files.segments(0)
    found = {entry for entry, _ in _one_by_one(segments)}
    mark = segments._next - 1  # type: ignore[attr-defined]
    history.takeovers.append((mark, found | history.folded))
    for entry in range(first, first + 5):
        try:
            segment = segments.write(_frame(entry), entry)
        except WalSealed:
            try:
                files.own_again()
            except WalLost:
                break
            mark = segments._next - 1  # type: ignore[attr-defined]
            continue
        except WalLost:
            break
        history.acknowledged.append((entry, int(segment.name[:20]), mark))
        if entry % 2:
            history.folded |= {entry, *(e for e in found)}
            names = segments.names[:-1]
            folded = [n for n in names if _entry_of(place, n) in history.folded]
            place.store.delete_all([f"wal/a/{name}" for name in folded])


def _take(place: Place, history: History, sealer_id: str) -> None:
    """Another gateway, which brings all into tables, and deletes it."""
    for _ in range(3):
        sealed = ObjectWals(place.store, lambda _: None).seal("a", sealer_id)
        if sealed is None:
            continue
        segments = sealed.segments(0)
        # What was folded when it reads may have been deleted.
        found = {entry for entry, _ in _one_by_one(segments)}
        history.takeovers.append((sealed._numbers[-1], found | history.folded))
        history.folded |= found
        sealed.delete_segments(segments.names)


def _one_by_one(segments: WalSegments) -> list[tuple[int, bytes]]:
    """`scan`, in this thread, so that its reads take turns too."""
    found = []
    for number in segments._numbers:  # type: ignore[attr-defined]
        one = segments._objects.read(number)  # type: ignore[attr-defined]
        if one is not None and one[0].kind is Kind.FRAMES:
            found += segments._scanned(wal_objects.name_of(number), *one)  # type: ignore[attr-defined]
    return found


def _entry_of(place: Place, name: str) -> int:
    """The entry of an object; -1: it is gone, and perhaps the mark of one who was late is there."""
    try:
        data = place.store.inner.read(f"wal/a/{name}")
    except NotFound:
        return -1
    _, _, entry = data.partition(b"entry ")
    return int(entry.split(b"\0")[0]) if entry else -1


def test_whatever_the_order_of_their_calls_nothing_acknowledged_is_missed_by_who_takes_over(
    rng: random.Random,
) -> None:
    acknowledged = 0
    for _ in range(150):
        place, history = Place(), History()
        turns = Turns(rng)
        place.store.before = turns.take

        def actor(target: object, *arguments: object, turns: Turns = turns) -> threading.Thread:
            def work() -> None:
                turns.take("", "")
                try:
                    target(*arguments)  # type: ignore[operator]
                finally:
                    turns.ended()

            return threading.Thread(target=work)

        turns.run(
            actor(_write, place, history, 0),
            actor(_write, place, history, 100),
            actor(_take, place, history, "b"),
            actor(_take, place, history, "c"),
        )
        history.check()
        acknowledged += len(history.acknowledged)
    assert acknowledged > 200
