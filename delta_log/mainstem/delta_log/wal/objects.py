"""A write-ahead log as objects of an object storage service, below `wal/<gateway id>/`.

```
00000000000000000042.wal        an object of requests, or a mark; numbers are dense
log.json                        whose log it is
<topic id>-<number>.orphans     records that could not get into their table
```

**One writer for each number.** Every object is put under the next number, on condition that there
is none. Who takes the log over puts a mark there: `seal` where another gateway takes topics over,
`open` where the log is begun again after a restart, or goes on behind a seal. The writer that had
it before finds the mark in place of its own object, and acknowledges nothing more: all that it has
put before is below the mark.

**However long a writer was stopped**, it puts its next object under the number at which it was
sealed. So marks are never deleted; they are small, and there is one for each start and takeover.
Objects of requests are deleted once all their entries are in tables, but for the newest object of
the log: whatever is listed ends with the newest one, and who seals looks once more after its put.
Else it may have put its mark under a number that the writer has passed, and that was cleaned up.

**Lost answers.** A put of which nobody knows the outcome is read back, and put again. As long as
nobody knows, nothing else is put under its number: the object may have been there, been read by who
took the log over, and been deleted by now.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mainstem.delta_log.store import (
    AlreadyExists,
    NotFound,
    ObjectStore,
    PutOutcomeUnknown,
    StoreFolder,
    is_there,
)
from mainstem.delta_log.wal.format import decode_segment
from mainstem.delta_log.wal.object_format import (
    Kind,
    WalObject,
    Writer,
    decode_object,
    encode_object,
)
from mainstem.delta_log.wal.place import (
    Segment,
    SegmentList,
    WalInUse,
    WalLost,
    WalSealed,
    WalSegments,
)
from mainstem.delta_log.wal.segments import is_segment
from mainstem.errors import StoreUnavailableError
from mainstem.limits import MIB

log = logging.getLogger(__name__)

#: The folder that has a folder for each gateway.
LOGS_FOLDER: Final = "wal"

#: Before each further attempt at a put whose outcome nobody knows, up to twice as long. After them
#: requests wait for their table commits, and `Wal` tries again later.
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4)

#: Marks that are put in vain, as others are first or the writer goes on. It gives up a moment after
#: the first, so some are plenty.
_MARKS_MAX: Final = 100

#: Reads that are under way at a time: a second for a thousand objects that take 60 ms each.
_READERS: Final = 64

#: What is kept of what was read: many topics have entries in one object, and ask one by one.
_CACHE_BYTES_MAX: Final = 64 * MIB

#: Objects are deleted when there are so many, or the first has waited for so long.
_DELETE_COUNT: Final = 100
_DELETE_AFTER_S: Final = 10.0


class _Objects:
    """The objects of one log, by number. Calls block.

    Args:
        sleep, rng: For the pauses before a put is tried again.
    """

    def __init__(
        self,
        store: ObjectStore,
        gateway_id: str,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.store = StoreFolder(store, f"{LOGS_FOLDER}/{gateway_id}")
        self._sleep = sleep
        self._rng = rng or random.Random()

    @property
    def uri(self) -> str:
        return self.store.uri

    def numbers(self) -> list[int]:
        """The numbers of all objects, in order. What comes or goes meanwhile may be missing, but
        never the newest of those that were there before."""
        return [int(info.name[:20]) for info in self.store.list_files("") if is_segment(info.name)]

    def is_there(self, number: int) -> bool:
        return is_there(self.store, name_of(number))

    def read(self, number: int) -> tuple[WalObject, bytes] | None:
        """What an object says, and all its bytes; None: there is none, or it was deleted."""
        try:
            data = self.store.read(name_of(number))
        except NotFound:
            return None
        return decode_object(data, f"{self.uri}/{name_of(number)}"), data

    def put(self, number: int, data: bytes) -> WalObject | None:
        """Puts an object, unless there is one of that number already.

        Returns:
            None: `data` is there; else what is there instead.

        Raises:
            PutOutcomeUnknown: It may be there, or be there later.
            StoreUnavailableError: It is not there, nor will it be.
        """
        unknown: PutOutcomeUnknown | None = None
        for repetition in range(len(_PAUSES_S) + 1):
            if repetition:
                self._sleep(_PAUSES_S[repetition - 1] * (1 + self._rng.random()))
            try:
                self.store.put_if_absent(name_of(number), data)
                return None
            except AlreadyExists:
                pass
            except PutOutcomeUnknown as error:
                unknown = error
            except StoreUnavailableError as error:
                if unknown is None:
                    raise
                unknown = PutOutcomeUnknown(error.message)
                continue
            try:
                found = self.read(number)
            except StoreUnavailableError as error:
                unknown = PutOutcomeUnknown(error.message)
                continue
            if found is not None:
                return None if found[1] == data else found[0]
        raise unknown or PutOutcomeUnknown(f"{self.uri}/{name_of(number)} came and went")


class _ObjectFiles:
    """What the objects of a log are to its owner, and to who has sealed it."""

    def __init__(self, objects: _Objects) -> None:
        self._objects = objects

    @property
    def uri(self) -> str:
        return self._objects.uri

    def names(self) -> list[str]:
        return [info.name for info in self._objects.store.list_files("")]

    def read(self, name: str) -> bytes:
        try:
            return self._objects.store.read(name)
        except NotFound as error:
            raise FileNotFoundError(str(error)) from error

    def write_whole(self, name: str, data: bytes) -> None:
        self._objects.store.put(name, data)


class ObjectWalFiles(_ObjectFiles):
    """The log of this gateway, which is opened when this is made: whoever had it before, under the
    same gateway.id, has lost it, and what is there is all that was acknowledged.

    Args:
        store: The warehouse.
        sleep, rng: For the pauses before a put is tried again.

    Raises:
        WalInUse: Another process opens it at the same time.
        StoreUnavailableError: The store fails.
        LogDamagedError: A mark is damaged; names the object.
    """

    def __init__(
        self,
        store: ObjectStore,
        gateway_id: str,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(_Objects(store, gateway_id, sleep, rng))
        self._by = Writer.new(gateway_id)
        try:
            numbers = _open_log(self._objects, self._by, None)
        except WalLost as error:
            raise WalInUse(
                f"the write-ahead log {self.uri} belongs to another gateway, which is starting or "
                f"running: {error}; give this one another gateway.id",
                directory=self.uri,
            ) from error
        self._segments = ObjectSegments(self._objects, self._by, numbers)

    @property
    def is_own(self) -> bool:
        return True

    def segments(self, segment_bytes: int) -> WalSegments:
        return self._segments

    def own_again(self) -> None:
        self._segments.open_again()

    def close(self) -> None:
        pass  # the next start takes it over, as it would from a gateway that was killed


class SealedObjectFiles(_ObjectFiles):
    """The log of another gateway, which ends with a seal.

    Args:
        numbers: All its objects, the newest of which is the seal.
    """

    def __init__(self, objects: _Objects, numbers: Sequence[int]) -> None:
        super().__init__(objects)
        self._numbers = numbers

    @property
    def is_own(self) -> bool:
        return False

    def segments(self, segment_bytes: int) -> WalSegments:
        return ObjectSegments(self._objects, None, self._numbers)

    def own_again(self) -> None:
        raise WalLost("it is another gateway's")

    @property
    def is_sealed(self) -> bool:
        try:
            return not self._objects.is_there(self._numbers[-1] + 1)
        except StoreUnavailableError:
            return False

    def delete_segments(self, names: Sequence[str]) -> bool:
        if not self.is_sealed:
            return False
        self._objects.store.delete_all(names)
        return True

    def close(self) -> None:
        pass


class ObjectWals:
    """The logs of a warehouse's gateways in its own store.

    Args:
        sleep, rng: For the pauses before a put is tried again.
    """

    def __init__(
        self,
        store: ObjectStore,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._sleep = sleep
        self._rng = rng

    def seal(self, gateway_id: str, sealer_id: str) -> SealedObjectFiles | None:
        objects = _Objects(self._store, gateway_id, self._sleep, self._rng)
        seal = encode_object(Kind.SEAL, Writer.new(sealer_id))
        #: The number of a seal that is there: ours, or another's.
        sealed_at = -1
        for _ in range(_MARKS_MAX):
            numbers = objects.numbers()
            if not numbers:
                return None
            newest = numbers[-1]
            if newest == sealed_at:
                # Listed after it was there: its owner writes nothing before it has opened it again.
                return SealedObjectFiles(objects, numbers)
            found = objects.read(newest)
            if found is None:
                continue  # deleted since it was listed: there is a newer one
            if found[0].kind is Kind.SEAL:
                # It may not be what was listed: the owner may have gone on, and deleted that, and
                # another who seals, and was late, put its mark under the number.
                sealed_at = newest
            elif _put_mark(objects, newest + 1, seal):
                sealed_at = newest + 1
        raise _never_done(objects)

    def with_segments(self, but: set[str]) -> list[str]:
        return [one for one in self._store.list_directories(LOGS_FOLDER) if one not in but]


class ObjectSegments(SegmentList):
    """The objects with requests of one log; see `WalSegments`.

    Args:
        by: Who writes them; None: the log is sealed, and nothing is changed.
        numbers: All objects of the log; the newest is a mark.
        monotonic: Says when objects are deleted.
    """

    def __init__(
        self,
        objects: _Objects,
        by: Writer | None,
        numbers: Sequence[int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._objects = objects
        self._by = by
        self._numbers = numbers
        self._next = numbers[-1] + 1
        #: What may be there under the next number.
        self._unresolved: bytes | None = None
        self._cache: dict[str, bytes] = {}
        self._cache_bytes = 0
        self._cache_lock = threading.Lock()
        self._monotonic = monotonic
        #: Of no use any more, and not deleted; the first one since when.
        self._gone: list[str] = []
        self._gone_at = 0.0
        self._deleting = ThreadPoolExecutor(1, thread_name_prefix="wal-delete")
        self._is_deleting = False

    def scan(self) -> Iterator[tuple[int, bytes]]:
        with ThreadPoolExecutor(_READERS, thread_name_prefix="wal-scan") as readers:
            for start in range(0, len(self._numbers), _READERS):
                numbers = self._numbers[start : start + _READERS]
                for number, found in zip(
                    numbers, readers.map(self._objects.read, numbers), strict=True
                ):
                    # One that is not there has been deleted: all its entries are in tables.
                    if found is not None and found[0].kind is Kind.FRAMES:
                        yield from self._scanned(name_of(number), *found)

    def _scanned(self, name: str, found: WalObject, data: bytes) -> Iterator[tuple[int, bytes]]:
        segment = Segment(name, len(data))
        self._keep(name, data)
        for entry in self._entries(name, data, found.frames_at):
            segment.unfolded.add(entry[0])
            yield entry
        self._segments.append(segment)

    def write(self, frame: bytes, number: int) -> Segment:
        assert self._by is not None
        if self._unresolved is not None:
            # Nobody waits for what it has, which is written again.
            self._put(self._unresolved)
        return self._put(encode_object(Kind.FRAMES, self._by, frame))

    def _put(self, data: bytes) -> Segment:
        try:
            found = self._objects.put(self._next, data)
        except PutOutcomeUnknown as error:
            self._unresolved = data
            raise StoreUnavailableError(str(error), path=self._objects.uri) from error
        self._unresolved = None
        if found is not None:
            if found.kind is Kind.SEAL:
                raise WalSealed(f"{found.by} has sealed it")
            raise WalLost(f"{found.by} has taken it")
        segment = Segment(name_of(self._next), len(data))
        self._next += 1
        self._segments.append(segment)
        return segment

    def open_again(self) -> None:
        """See `WalFiles.own_again`. Not beside `write`."""
        assert self._by is not None
        numbers = _open_log(self._objects, self._by, self._next - 1)
        self._next = numbers[-1] + 1
        self._unresolved = None
        there = {name_of(number) for number in numbers}
        # Who has sealed it may have deleted what it had brought into tables.
        self._segments = [one for one in self._segments if one.name in there]

    def drop_folded(self) -> None:
        if self._by is None:
            return
        self._give_up_folded()
        is_due = (
            len(self._gone) >= _DELETE_COUNT or self._monotonic() - self._gone_at >= _DELETE_AFTER_S
        )
        if self._gone and is_due and not self._is_deleting:
            self._is_deleting = True
            self._deleting.submit(self._delete_gone)

    def _give_up_folded(self) -> None:
        newest = name_of(self._next - 1)
        kept: list[Segment] = []
        for segment in self._segments:
            if segment.unfolded or segment.name == newest:
                kept.append(segment)
                continue
            if not self._gone:
                self._gone_at = self._monotonic()
            self._gone.append(segment.name)
            with self._cache_lock:
                self._cache_bytes -= len(self._cache.pop(segment.name, b""))
        self._segments = kept

    def _delete_gone(self) -> None:
        names = list(self._gone)
        try:
            self._objects.store.delete_all(names)
            del self._gone[: len(names)]
        except StoreUnavailableError as error:  # the next time may have more luck
            log.warning("objects of the write-ahead log stay: %s", error.message)
        finally:
            self._gone_at = self._monotonic()
            self._is_deleting = False

    def read(self, places: list[tuple[str, int]]) -> Iterator[tuple[int, bytes]]:
        for name, _ in places:
            data = self._cache.get(name)
            if data is None:
                try:
                    data = self._objects.store.read(name)
                except NotFound as error:
                    raise FileNotFoundError(str(error)) from error
                self._keep(name, data)
            yield from self._entries(name, data, decode_object(data, self._path(name)).frames_at)

    def close(self) -> None:
        self._deleting.shutdown(wait=True)
        if self._by is not None:
            self._give_up_folded()
            if self._gone:
                self._delete_gone()

    def _entries(self, name: str, data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
        for frame in decode_segment(data, self._path(name), is_last=False, start=start):
            yield from frame.entries

    def _keep(self, name: str, data: bytes) -> None:
        with self._cache_lock:
            if name not in self._cache and self._cache_bytes + len(data) <= _CACHE_BYTES_MAX:
                self._cache[name] = data
                self._cache_bytes += len(data)

    def _path(self, name: str) -> str:
        return f"{self._objects.uri}/{name}"


def name_of(number: int) -> str:
    """What an object is called."""
    return f"{number:020d}.wal"


def _open_log(objects: _Objects, by: Writer, after: int | None) -> list[int]:
    """Puts the mark `open` behind all that is there.

    Args:
        after: The newest object that was put while the log was ours; None: it has not been yet.

    Returns:
        The numbers of all objects; the newest is the mark.

    Raises:
        WalLost: Another process has opened the log since.
    """
    mark = encode_object(Kind.OPEN, by)
    for _ in range(_MARKS_MAX):
        numbers = objects.numbers()
        newest = numbers[-1] if numbers else -1
        if after is None:
            after = newest
        found = [objects.read(number) for number in numbers if number > after]
        for one in found:
            if one is not None and one[0].kind is Kind.OPEN and one[0].by != by:
                raise WalLost(f"{one[0].by} has taken it")
        last = found[-1] if found else None
        if last is not None and last[0].kind is Kind.OPEN:
            return numbers
        _put_mark(objects, newest + 1, mark)
    raise _never_done(objects)


def _put_mark(objects: _Objects, number: int, mark: bytes) -> bool:
    """Puts a mark, unless something else is there; returns whether it is. It counts if it is the
    newest object in a listing after that."""
    try:
        return objects.put(number, mark) is None
    except PutOutcomeUnknown as error:
        raise StoreUnavailableError(str(error), path=objects.uri) from error


def _never_done(objects: _Objects) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"others were first at {_MARKS_MAX} objects of the write-ahead log {objects.uri} in a row",
        path=objects.uri,
    )
