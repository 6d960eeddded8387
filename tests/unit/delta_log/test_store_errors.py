"""`LocalStore` on a system that fails: each error number at each call that it makes, in turn."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.descriptors import descriptors_below
from tests.unit.delta_log import os_faults
from tests.unit.delta_log.appending import batch, create, lead, run, values
from tests.unit.delta_log.os_faults import ERROR_NUMBERS, FaultyOs

from mainstem.delta_log import LocalStore, Slice, Topics
from mainstem.delta_log.store import AlreadyExists, PutOutcomeUnknown
from mainstem.errors import MainstemError, StoreUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def system() -> Iterator[FaultyOs]:
    with os_faults.installed() as faulty:
        yield faulty


@dataclass(frozen=True)
class Operation:
    """One call of a store.

    Attributes:
        prepare: Makes what it needs.
        call: Does it.
        done: Whether it took place, by what is there.
        part: It is harmless if a call that failed nonetheless took place.
    """

    prepare: Callable[[LocalStore], object]
    call: Callable[[LocalStore], object]
    done: Callable[[LocalStore], bool]
    part: bool = False


def _put(path: str, data: bytes) -> Callable[[LocalStore], object]:
    return lambda store: store.put(path, data)


def _has(path: str, data: bytes) -> Callable[[LocalStore], bool]:
    return lambda store: Path(store.uri, path).is_file() and store.read(path) == data


def _nothing(store: LocalStore) -> None:
    """Nothing is needed."""


def _always(store: LocalStore) -> bool:
    return True


def _loses(store: LocalStore) -> None:
    with pytest.raises(AlreadyExists):
        store.put_if_absent("log/0", b"second")


def _opens(store: LocalStore) -> None:
    with store.open("log/0") as file:
        assert file.read() == b"first"


def _creates(store: LocalStore) -> None:
    LocalStore(f"{store.uri}/new/root").close()


_FIRST = _put("log/0", b"first")

OPERATIONS = {
    "read": Operation(_FIRST, lambda store: store.read("log/0"), _always),
    "read_range": Operation(_FIRST, lambda store: store.read_range("log/0", 1, 2), _always),
    "open": Operation(_FIRST, _opens, _always),
    "put": Operation(_FIRST, _put("log/1", b"new"), _has("log/1", b"new")),
    "put into a new directory": Operation(_nothing, _put("a/b/1", b"n"), _has("a/b/1", b"n")),
    "put again": Operation(_FIRST, _put("log/0", b"new"), _has("log/0", b"new"), part=True),
    "put_if_absent": Operation(
        _FIRST, lambda store: store.put_if_absent("log/1", b"new"), _has("log/1", b"new")
    ),
    "put_if_absent that loses": Operation(_FIRST, _loses, _has("log/0", b"first")),
    "make_durable": Operation(_FIRST, lambda store: store.make_durable("log/0"), _always),
    "list_files": Operation(_FIRST, lambda store: store.list_files("log"), _always),
    "list_directories": Operation(_FIRST, lambda store: store.list_directories(""), _always),
    "delete": Operation(
        _FIRST,
        lambda store: store.delete("log/0"),
        lambda store: not Path(store.uri, "log/0").exists(),
        part=True,
    ),
    "sweep": Operation(_FIRST, lambda store: store.sweep("log", 2**62), _always),
    "create a store": Operation(
        _nothing, _creates, lambda store: Path(store.uri, "new/root").is_dir(), part=True
    ),
}


def _files(root: Path) -> list[str]:
    """All files; a directory that was made in vain does no harm."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def _count_calls(system: FaultyOs, operation: Operation, root: Path) -> int:
    store = LocalStore(root)
    operation.prepare(store)
    system.calls.clear()
    operation.call(store)
    count = len(system.calls)
    assert operation.done(store)
    store.close()
    return count


@pytest.mark.parametrize("number", ERROR_NUMBERS, ids=os_faults.name)
@pytest.mark.parametrize("what", OPERATIONS)
def test_an_operation_is_done_or_not_or_unknown_whatever_call_fails_and_works_afterwards(
    tmp_path: Path, system: FaultyOs, what: str, number: int
) -> None:
    operation = OPERATIONS[what]
    count = _count_calls(system, operation, tmp_path / "healthy")
    assert count > 0
    for position in range(count):
        for landed in (False, True):
            root = tmp_path / f"{position}{landed}"
            store = LocalStore(root)
            operation.prepare(store)
            before = _files(root)
            open_before = descriptors_below(root)
            os_faults.fail_at(system, position, number, landed=landed)
            told: BaseException | None = None
            try:
                operation.call(store)
            except (StoreUnavailableError, PutOutcomeUnknown, OSError) as error:
                told = error
            os_faults.heal(system)
            where = f"{what}, call {position} ({system.calls[-1]}), landed: {landed}: {told!r}"
            assert not isinstance(told, OSError) or what == "open", where
            assert not isinstance(told, PutOutcomeUnknown) or what.startswith("put_if_absent"), (
                where
            )
            assert descriptors_below(root) == open_before, where
            assert not [name for name in _files(root) if name.endswith(".tmp")], where
            if told is None:
                assert operation.done(store), where
            elif isinstance(told, StoreUnavailableError) and not operation.part:
                assert _files(root) == before, where
            with suppress(AlreadyExists):  # of an outcome that was unknown
                if not (operation.part and operation.done(store)):
                    operation.call(store)
            assert operation.done(store), where
            store.close()


@pytest.mark.parametrize("number", ERROR_NUMBERS, ids=os_faults.name)
def test_a_warehouse_that_cannot_be_looked_at_has_taken_nothing_for_certain(
    tmp_path: Path, system: FaultyOs, number: int
) -> None:
    """One stat that fails: a network file system, an automounter, no memory."""
    store = LocalStore(tmp_path)
    for put, told in ((store.put, StoreUnavailableError), (store.put_if_absent, PutOutcomeUnknown)):
        os_faults.fail_calls(system, "stat", number, 1)
        with pytest.raises(told):
            put("b", b"x")
        os_faults.heal(system)
        assert (told is PutOutcomeUnknown) == Path(store.uri, "b").exists()
    store.make_durable("b")
    store.close()


def _syncs_of(store: LocalStore, directory: str, number: int, count: int) -> os_faults.Hook:
    """Fails that many syncs of the directory; nothing else."""
    left = [count]
    wanted = os.stat(os.path.join(store.uri, directory)).st_ino

    def hook(call: str, fd: object) -> None:
        if call == "fsync" and left[0] and os.fstat(int(str(fd))).st_ino == wanted:
            left[0] -= 1
            raise os_faults.failure(number)

    return hook


def test_a_name_whose_sync_failed_is_given_again_to_a_fresh_copy_before_it_counts(
    tmp_path: Path, system: FaultyOs
) -> None:
    """A second sync would report success: the kernel tells of an error once."""
    store = LocalStore(tmp_path)
    store.put("log/0", b"x")
    system.before = _syncs_of(store, "log", errno.EIO, 1)
    with pytest.raises(PutOutcomeUnknown):
        store.put_if_absent("log/1", b"new")
    first = Path(store.uri, "log/1").stat()
    with pytest.raises(AlreadyExists):
        store.put_if_absent("log/1", b"new")
    system.calls.clear()
    store.make_durable("log/1")
    changes = [call for call in system.calls if call in ("write", "fsync", "rename")]
    assert changes == ["write", "fsync", "rename", "fsync"]
    again = Path(store.uri, "log/1").stat()
    assert again.st_ino != first.st_ino
    assert again.st_mtime_ns == first.st_mtime_ns, "a commit's time is its file's"
    assert store.read("log/1") == b"new"
    system.calls.clear()
    store.make_durable("log/1")
    assert "rename" not in system.calls, "it is durable, and was known to be"
    store.close()


def test_what_another_store_of_the_process_left_in_doubt_is_named_again_by_the_next_put(
    tmp_path: Path, system: FaultyOs
) -> None:
    """The next commit must not be durable without the one before it, whichever writer made that."""
    first = LocalStore(tmp_path)
    first.put("log/0", b"x")
    system.before = _syncs_of(first, "log", errno.EIO, 1)
    with pytest.raises(PutOutcomeUnknown):
        first.put_if_absent("log/1", b"in doubt")
    first.close()
    in_doubt = Path(tmp_path, "log/1").stat().st_ino
    second = LocalStore(tmp_path)
    second.put_if_absent("log/2", b"next")
    assert Path(tmp_path, "log/1").stat().st_ino != in_doubt
    assert second.read("log/1") == b"in doubt"
    second.close()


def test_a_sync_beside_one_that_failed_is_not_trusted_either(
    tmp_path: Path, system: FaultyOs
) -> None:
    store = LocalStore(tmp_path)
    store.put("log/0", b"x")
    entered: list[str] = []
    fail = _syncs_of(store, "log", errno.EIO, 1)

    def hook(call: str, path: object) -> None:
        # When the first has its name and is about to sync it, another one comes, and is told.
        if call == "link" and not entered:
            entered.append("")
            system.after = os_faults.nothing
            with pytest.raises(PutOutcomeUnknown):
                store.put_if_absent("log/2", b"beside")

    system.before, system.after = fail, hook
    with pytest.raises(PutOutcomeUnknown, match="another sync of the directory failed"):
        store.put_if_absent("log/1", b"first")
    for path in ("log/1", "log/2"):
        store.make_durable(path)
    store.close()


def test_a_directory_whose_name_could_not_be_synced_is_made_again(
    tmp_path: Path, system: FaultyOs
) -> None:
    store = LocalStore(tmp_path)
    store.put("topics/f", b"x")
    system.before = _syncs_of(store, "topics", errno.EIO, 1)
    with pytest.raises(StoreUnavailableError):
        store.put("topics/t/a", b"x")
    assert not Path(tmp_path, "topics/t").exists()
    store.put("topics/t/a", b"x")
    store.close()


def test_a_file_whose_sync_failed_is_another_file_at_the_next_attempt(
    tmp_path: Path, system: FaultyOs
) -> None:
    store = LocalStore(tmp_path)
    for put in (store.put, store.put_if_absent):
        path = f"log/{put.__name__}"
        store.put("log/0", b"x")
        os_faults.fail_calls(system, "fsync", errno.EIO, 1)
        with pytest.raises(StoreUnavailableError):
            put(path, b"x")
        assert not Path(tmp_path, path).exists()
        os_faults.heal(system)
        put(path, b"x")
    store.close()


@pytest.mark.parametrize("number", ERROR_NUMBERS, ids=os_faults.name)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "unlink", "stat", "pread"])
def test_an_appender_goes_on_when_a_fault_ends_and_has_everything_acknowledged_once(
    tmp_path: Path, system: FaultyOs, call: str, number: int
) -> None:
    acknowledged: list[int] = []

    async def work() -> None:
        topics = Topics(LocalStore(tmp_path))
        create(topics)
        opened = topics.open("t")
        with ThreadPoolExecutor(2) as pool:
            appender = await lead(opened, pool)
            for round_number in range(2):
                os_faults.fail_calls(system, call, number, 1 + round_number)
                for value in range(round_number * 2, round_number * 2 + 2):
                    with suppress(MainstemError):
                        async with asyncio.timeout(10):
                            await appender.submit([Slice(0, batch(value))], 10)
                        acknowledged.append(value)
                os_faults.heal(system)
            await appender.close(5)

    run(work)
    assert acknowledged == list(range(4)), "an accepted batch is tried until it is there"
    topics = Topics(LocalStore(tmp_path))
    assert Counter(int(value) for _, value in values(topics, 0)) == dict.fromkeys(range(4), 1)
