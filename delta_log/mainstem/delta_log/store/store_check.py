"""Does a store keep the promises that the log rests on? Tried out, one promise after the other."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from mainstem.delta_log.store.object_store import (
    AlreadyExists,
    NotFound,
    ObjectStore,
    PutOutcomeUnknown,
    StoreFull,
)
from mainstem.errors import MainstemError, StoreUnavailableError

#: Directories of checks, in the root of a warehouse, begin so.
CHECK_PREFIX: Final = ".check-"

WRITERS_MAX: Final = 64

#: A race can be won by luck; so many in a row cannot.
_ROUNDS: Final = 8

#: Writers of a race start together once all their threads run.
_START_S: Final = 60.0

#: More than is read with the end of an object, so that ranges of it are asked for.
_RANGED: Final = bytes(range(256)) * 2_048

#: Where the files of the listing are.
_LISTED: Final = "list"

_CONDITION: Final = "a put on condition that there is no such file"
_ADVICE: Final = (
    "use a service with conditional puts (If-None-Match: * on S3), or a file system with hard links"
)


@dataclass(frozen=True, slots=True)
class CheckedPromise:
    """One promise that was tried.

    Attributes:
        name: Which: put, condition, race, lost answer, reads, ranges, list, delete.
        took_ms: How long that took.
        error: How it was broken, and what to do; None: it holds.
    """

    name: str
    took_ms: float
    error: MainstemError | None


@dataclass
class StoreCheck:
    """A check of one store, under names that nobody else uses.

    Args:
        store: Of a warehouse, or where one is to be.
        writers: How many at a time race for a name, 2 to 64.

    Attributes:
        directory: Where its files are, in the store's root.
    """

    store: ObjectStore
    writers: int = 16
    directory: str = field(default_factory=lambda: f"{CHECK_PREFIX}{uuid.uuid4().hex}")
    _paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert 2 <= self.writers <= WRITERS_MAX, self.writers

    @property
    def directories(self) -> list[str]:
        """Those inside `directory`, which a file system keeps when their files are deleted."""
        return [f"{self.directory}/{_LISTED}"]

    def run(self) -> Iterator[CheckedPromise]:
        """Tries each promise. Where nothing can be put at all, the others are not tried."""
        tries: tuple[tuple[str, Callable[[], None]], ...] = (
            ("put", self._put),
            ("condition", self._condition),
            ("race", self._race),
            ("lost answer", self._lost_answer),
            ("reads", self._reads),
            ("ranges", self._ranges),
            ("list", self._list),
            ("delete", self._delete),
        )
        for name, attempt in tries:
            began_at = time.monotonic()
            error: MainstemError | None = None
            try:
                attempt()
            except MainstemError as failure:
                error = failure
            except (NotFound, PutOutcomeUnknown) as failure:
                error = StoreUnavailableError(str(failure), path=self.store.uri)
            yield CheckedPromise(name, (time.monotonic() - began_at) * 1_000, error)
            if error is not None and name == "put":
                return

    def clean_up(self) -> list[str]:
        """Deletes what was put; returns the paths that could not be deleted, for a person to."""
        left = []
        for path in self._paths:
            try:
                self.store.delete(path)
            except StoreUnavailableError:
                left.append(path)
        self._paths = left
        return list(left)

    # -- the promises ----------------------------------------------------------------------------

    def _put(self) -> None:
        path = self._new("put")
        self.store.put(path, b"whole")
        self._expect(path, b"whole", "what was put is not what is read")

    def _condition(self) -> None:
        path = self._new("condition")
        try:
            check_put_if_absent(self.store, path, _CONDITION, _ADVICE)
        except PutOutcomeUnknown as error:
            raise self._broken(f"{error}; {_ADVICE}") from error

    def _race(self) -> None:
        """Of many writers of one name exactly one is told that it won, and it did."""
        with ThreadPoolExecutor(self.writers) as pool:
            for number in range(_ROUNDS):
                path = self._new(f"race-{number}")
                start = threading.Barrier(self.writers)

                def put(writer: int, path: str = path, start: threading.Barrier = start) -> str:
                    start.wait(_START_S)
                    try:
                        self.store.put_if_absent(path, b"%d" % writer)
                    except AlreadyExists:
                        return "lost"
                    except PutOutcomeUnknown:
                        return "unknown"
                    return "won"

                try:
                    told = list(pool.map(put, range(self.writers)))
                except BaseException:
                    start.abort()  # interrupted: those that wait do not put after the clean-up
                    raise
                winners = told.count("won")
                if winners > 1:
                    raise self._broken(
                        f"{winners} of {self.writers} writers that put one name at the same time "
                        f"were told that they had won; {_ADVICE}"
                    )
                try:
                    holder = int(self.store.read(path))
                except NotFound:
                    if "unknown" in told and not winners:
                        continue  # each of them is told to try again
                    raise self._broken(
                        f"the file that {self.writers} writers raced for is not there afterwards"
                    ) from None
                if told[holder] == "lost" or (winners and told[holder] != "won"):
                    raise self._broken(
                        f"of {self.writers} writers that put one name at the same time, one was "
                        f"told that it had won, and another's data is there; {_ADVICE}"
                    )

    def _lost_answer(self) -> None:
        """A writer that heard nothing finds out, by the same put again and by reading, that the
        file there is its own."""
        path = self._new("lost-answer")
        mine = uuid.uuid4().hex.encode()
        self.store.put_if_absent(path, mine)
        try:
            self.store.put_if_absent(path, mine)
        except (AlreadyExists, PutOutcomeUnknown):
            pass
        else:
            raise self._broken(
                "a put that came a second time, as after a lost answer, was done a second time: a "
                f"writer cannot find out whether it had won; {_ADVICE}"
            )
        self._expect(path, mine, "a writer whose answer was lost does not find its own file")

    def _reads(self) -> None:
        """A name that was asked for in vain is there as soon as it was put: so readers find the
        next commit."""
        for number in range(4):
            path = self._new(f"reads-{number}")
            try:
                self.store.read(path)
            except NotFound:
                pass
            else:
                raise self._broken("it gave a file that nobody had put")
            data = b"commit %d" % number
            self.store.put_if_absent(path, data)
            self._expect(
                path,
                data,
                "a name that was asked for before it was put is not found after it; turn off the "
                "cache of answers between here and the store",
            )

    def _ranges(self) -> None:
        path = self._new("ranges")
        self.store.put(path, _RANGED)
        size = len(_RANGED)
        for start, length in ((0, 1), (1_001, 5_000), (size - 7, 7), (size - 7, 100), (size, 10)):
            if self.store.read_range(path, start, length) != _RANGED[start : start + length]:
                raise self._broken(
                    f"a read of {length} bytes from byte {start} on gave others; use a service "
                    "with range requests"
                )
        with contextlib.closing(self.store.open(path)) as file:
            file.seek(10)
            if bytes(file.read(20)) != _RANGED[10:30] or file.size() != size:
                raise self._broken("an open file gave other bytes than were put")

    def _list(self) -> None:
        names = [f"{number:03d}" for number in range(5)]
        for name in names:
            self.store.put(self._new(f"{_LISTED}/{name}"), b"x")
        directory = f"{self.directory}/{_LISTED}"
        for after, expected in (("", names), ("001", names[2:]), ("004", [])):
            found = [info.name for info in self.store.list_files(directory, after)]
            if found != expected:
                raise self._broken(
                    f"a listing after {after!r} has {found} where {expected} were put: listings "
                    "lag, are not sorted by name, or cannot begin after a name"
                )
        if _LISTED not in self.store.list_directories(self.directory):
            raise self._broken("a listing of directories lacks one in which files are")

    def _delete(self) -> None:
        path = self._new("delete")
        self.store.put(path, b"x")
        self.store.delete(path)
        self.store.delete(path)
        with contextlib.suppress(NotFound):
            self.store.read(path)
            raise self._broken("a file is read that was deleted")
        name = path.rpartition("/")[2]
        if any(info.name == name for info in self.store.list_files(self.directory)):
            raise self._broken("a file is listed that was deleted")

    # -- helpers ---------------------------------------------------------------------------------

    def _new(self, name: str) -> str:
        """A path of the check's own, to be deleted in the end even if the put is interrupted."""
        path = f"{self.directory}/{name}"
        self._paths.append(path)
        return path

    def _expect(self, path: str, data: bytes, otherwise: str) -> None:
        try:
            found = self.store.read(path)
        except NotFound:
            raise self._broken(f"{otherwise}: it says that there is no such file") from None
        if found != data:
            raise self._broken(otherwise)

    def _broken(self, what: str) -> StoreUnavailableError:
        return broken_promise(self.store, what)


def broken_promise(store: ObjectStore, what: str) -> StoreUnavailableError:
    """The error that says which promise a store does not keep."""
    return StoreUnavailableError(f"{store.uri} cannot hold a log: {what}", path=store.uri)


def check_put_if_absent(store: ObjectStore, name: str, how: str, advice: str) -> None:
    """Tries `put_if_absent` out on a name that nobody else uses, and leaves a file there: what
    every gateway does when it starts.

    Args:
        how: What the store puts files with.
        advice: What to use where it replaces files, or knows no such put.

    Raises:
        StoreUnavailableError: It replaced a file, another was read than was put, or it is refused
            where an ordinary put is not.
        PutOutcomeUnknown: As `put_if_absent`.
    """
    try:
        store.put_if_absent(name, b"first")
    except AlreadyExists:
        raise broken_promise(
            store, f"{how} is refused as if there were one, under a name that is new; {advice}"
        ) from None
    except StoreFull:
        raise
    except StoreUnavailableError as error:
        if _takes_puts(store, name):
            raise broken_promise(
                store, f"it takes puts, but not {how}: {error.message}; {advice}"
            ) from error
        raise
    try:
        store.put_if_absent(name, b"second")
    except AlreadyExists:
        pass
    else:
        raise broken_promise(store, f"{how} replaced an existing file; {advice}")
    try:
        found = store.read(name)
    except NotFound:
        raise broken_promise(store, "a file that was just put is not found") from None
    if found != b"first":
        raise broken_promise(store, "a file changed under its reader")


def _takes_puts(store: ObjectStore, name: str) -> bool:
    """Whether the file can be put without a condition."""
    try:
        store.put(name, b"first")
    except StoreUnavailableError:
        return False
    return True
