"""List-append, Jepsen's workload for transactions, under kills: clients append numbers to lists,
and a reader looks at many lists at a time. What they saw is a history for an independent checker.

A list is a key of one of several topics; its elements are the values of the key's records, in the
order of offsets. A transaction of a producer is one that appends; a look at all topics, at versions
with whole transactions only, is one that reads.

Source: Kingsbury and Alvaro, "Elle: inferring isolation anomalies from experimental observations".
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tests.fault.list_append_process import KEYS_AT_ONCE, first_key
from tests.fault.programs import Program
from tests.fault.short_sessions import ShortSessions

from mainstem.client import AdminClient
from mainstem.delta_log import load_table, read_data_file
from mainstem.delta_log.files import DataFileMissing
from mainstem.delta_log.store import ObjectStore, StoreFolder, open_warehouse
from mainstem.delta_log.system import whole_versions

TOPICS: Final = ("lists-a", "lists-b", "lists-c")
PARTITIONS: Final = 2

#: Keys that a look reads: those that are appended to now, and those before.
_LOOKED_AT: Final = 3 * KEYS_AT_ONCE

_PROGRAM: Final = Path(__file__).with_name("list_append_process.py")

#: Chooses the versions for a look.
Versions = Callable[[ObjectStore, Iterable[str]], Mapping[str, int]]


@dataclass(frozen=True)
class Size:
    """Of a run.

    Attributes:
        kills: Of gateways and clients, one after the other.
    """

    kills: int
    clients: int = 4
    gateways: int = 2
    pause_s: tuple[float, float] = (0.3, 1.5)


@dataclass
class History:
    """What clients and reader saw.

    Attributes:
        operations: As the checker reads them: invocations and completions in the order of time.
        outcomes: How many transactions appended, by their outcome.
    """

    seed: int
    operations: list[dict[str, Any]] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """As JSON lines."""
        with path.open("w", encoding="utf-8") as file:
            for operation in self.operations:
                file.write(json.dumps(operation, separators=(",", ":")) + "\n")

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        return (
            f"transactions: {outcomes}; {self.looks} looks; kills: {kills}; "
            f"{self.seconds:.0f} s, seed {self.seed}"
        )


class Lists:
    """The lists in the topics' tables at given versions."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._files: dict[str, list[tuple[int, int]]] = {}

    def at(self, versions: Mapping[str, int]) -> dict[int, list[int]]:
        """The elements of each list that has any."""
        found: dict[int, list[int]] = {}
        for topic, version in versions.items():
            for key, value in self._of(topic, version):
                found.setdefault(key, []).append(value)
        return found

    def _of(self, topic: str, version: int) -> Iterator[tuple[int, int]]:
        folder = StoreFolder(self._store, f"topics/{topic}")
        files = sorted(load_table(folder, version), key=lambda one: one.base_offset)
        for file in files:  # a list is in one partition
            path = f"{topic}/{file.path}"
            if path not in self._files:
                batches = read_data_file(
                    folder, file, file.base_offset, file.last_offset + 1, ["key", "value"]
                )
                self._files[path] = [
                    (int(key), int(value))
                    for batch in batches
                    for key, value in zip(
                        batch.column("key").to_pylist(),
                        batch.column("value").to_pylist(),
                        strict=True,
                    )
                ]
            yield from self._files[path]


class Reader:
    """Looks at the lists in a thread, again and again."""

    def __init__(self, warehouse: Path, began_s: float, versions: Versions) -> None:
        self._store = open_warehouse(warehouse)
        self._lists = Lists(self._store)
        self._began_s = began_s
        self._versions = versions
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None
        self.operations: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(120)
        self._store.close()

    def stop(self) -> None:
        """Looks at all lists once more."""
        self._stopped.set()
        self._thread.join(120)
        if self._failure is not None:
            raise self._failure
        self._look(range(first_key(time.time() - self._began_s) + KEYS_AT_ONCE))

    def _run(self) -> None:
        try:
            while not self._stopped.wait(0.05):
                first = first_key(time.time() - self._began_s)
                self._look(range(max(first + KEYS_AT_ONCE - _LOOKED_AT, 0), first + KEYS_AT_ONCE))
        except BaseException as failure:
            self._failure = failure

    def _look(self, keys: Sequence[int]) -> None:
        asked_ns = time.time_ns()
        try:
            found = self._lists.at(self._versions(self._store, TOPICS))
        except DataFileMissing:  # it was rolled up meanwhile
            return
        asked = [["r", key, None] for key in keys]
        answer = [["r", key, found.get(key, [])] for key in keys]
        for kind, value, at_ns in (
            ("invoke", asked, asked_ns),
            ("ok", answer, time.time_ns()),
        ):
            self.operations.append({"type": kind, "process": 0, "value": value, "time": at_ns})


def run_list_append(
    directory: Path, seed: int, size: Size, versions: Versions = whole_versions
) -> History:
    """Runs it in an empty directory.

    Args:
        versions: At which the reader looks.
    """
    dice = random.Random(seed)
    history = History(seed)
    began = time.monotonic()
    warehouse = directory / "warehouse"
    with contextlib.ExitStack() as stack:
        gateways = stack.enter_context(ShortSessions(warehouse, size.gateways))
        bootstrap = gateways.bootstrap
        with AdminClient({"bootstrap.servers": bootstrap}) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, PARTITIONS, {"rollup.files": 3})
        began_s = time.time()
        paths = [directory / f"client-{n}.jsonl" for n in range(1, size.clients + 1)]
        clients = [
            stack.enter_context(
                Program(_PROGRAM, [bootstrap, str(n), str(began_s), str(path), *TOPICS])
            )
            for n, path in enumerate(paths, 1)
        ]
        reader = stack.enter_context(Reader(warehouse, began_s, versions))
        for _ in range(size.kills):
            time.sleep(dice.uniform(*size.pause_s))
            for client in clients:
                client.check()
            name = dice.choice(("gateway", "client"))
            history.kills[name] += 1
            if name == "gateway":
                gateways.kill_one(dice)
            else:
                dice.choice(clients).kill()
        time.sleep(1.0)
        for client in clients:
            client.stop()
        time.sleep(1.0)
        reader.stop()
        gateways.terminate()
    appended = [one for path in paths for one in _read(path)]
    history.outcomes.update(one["type"] for one in appended if one["type"] != "invoke")
    history.operations = sorted([*appended, *reader.operations], key=lambda one: one["time"])
    for index, operation in enumerate(history.operations):
        operation["index"] = index
    history.looks = len(reader.operations) // 2
    history.seconds = time.monotonic() - began
    return history


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """What a client has written down, all of its lives; a line that a kill has cut is left out."""
    for line in path.read_text("utf-8").splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)
