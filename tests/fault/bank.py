"""A bank: transfers between topics, of which at every moment all is there or nothing.

Requests lie in one topic. Tellers, a process each, read them as one group, and book each request as
a debit in one topic and a credit in another, in one transaction with the offsets of what they read.
Gateways and tellers are killed and frozen meanwhile. A reader looks at all topics again and again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tests.fault.bank_process import FENCED
from tests.fault.short_sessions import ShortSessions

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.delta_log import load_table, read_data_file
from mainstem.delta_log.files import DataFileMissing
from mainstem.delta_log.store import ObjectStore, StoreFolder, open_warehouse
from mainstem.delta_log.system import whole_versions

REQUESTS = "requests"
TOPICS = ("accounts-a", "accounts-b", "accounts-c", "accounts-d")
PARTITIONS = 2
GROUP = "tellers"

FAULTS = (
    "gateway killed",
    "gateway frozen",
    "teller killed",
    "teller frozen",
    "teller replaced",
)
_FROZEN_S = 1.2

_PROGRAM = Path(__file__).with_name("bank_process.py")


@dataclass(frozen=True)
class Size:
    """Of a run.

    Attributes:
        faults: Kills and freezes, one after the other.
        timeout_s: In which all requests have to be booked after the last one.
    """

    faults: int
    requests: int
    tellers: int = 3
    gateways: int = 2
    pause_s: tuple[float, float] = (0.3, 1.5)
    timeout_s: float = 120.0


@dataclass
class Report:
    """What a run showed."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    torn: list[str] = field(default_factory=list)
    booked: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.torn and not self.wrong

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        head = (
            f"{self.booked} transfers, {self.looks} looks, {faults}; {self.seconds:.0f} s, "
            f"seed {self.seed}"
        )
        return "\n".join([head, *self.torn[:10], *self.wrong[:10]])


class Teller:
    """One teller's process."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        self._settings = {
            "name": name,
            "bootstrap": bootstrap,
            "topics": TOPICS,
            "partitions": PARTITIONS,
            "requests": REQUESTS,
            "group": GROUP,
        }
        self._seed = seed
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = self._launch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _launch(self) -> subprocess.Popen[bytes]:
        self._seed += 1
        command = [
            sys.executable,
            str(_PROGRAM),
            json.dumps({**self._settings, "seed": self._seed}),
        ]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=self._log)

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def check(self) -> None:
        """Starts it again if another one had its id a moment ago."""
        code = self._process.poll()
        if code == FENCED:
            self._process.communicate()
            self._process = self._launch()
        elif code is not None:
            raise AssertionError(f"a teller ended with exit code {code}:\n{self.log}")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._process = self._launch()

    def replace(self) -> None:
        """Another one with the same id begins while this one works."""
        old = self._process
        self._process = self._launch()
        time.sleep(1.0)
        old.kill()
        old.communicate()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(_FROZEN_S)
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait(10)
            raise AssertionError(f"a teller does not end:\n{self.log[-20_000:]}") from None
        assert code in (0, FENCED), f"a teller ended with exit code {code}:\n{self.log}"


class Books:
    """What the topics have at given versions."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._files: dict[str, list[dict[str, object]]] = {}

    def at(self, versions: Mapping[str, int]) -> list[dict[str, object]]:
        """All bookings, each with its topic."""
        return [
            {**one, "topic": topic}
            for topic, version in versions.items()
            for one in self._of(topic, version)
        ]

    def _of(self, topic: str, version: int) -> Iterator[dict[str, object]]:
        folder = StoreFolder(self._store, f"topics/{topic}")
        for file in load_table(folder, version):
            key = f"{topic}/{file.path}"
            if key not in self._files:
                batches = read_data_file(
                    folder, file, file.base_offset, file.last_offset + 1, ["value"]
                )
                self._files[key] = [
                    json.loads(value)
                    for batch in batches
                    for value in batch.column("value").to_pylist()
                ]
            yield from self._files[key]


def torn(bookings: Sequence[Mapping[str, object]]) -> list[str]:
    """What is wrong with a look at all topics."""
    found: list[str] = []
    sums: Counter[object] = Counter()
    counts: Counter[object] = Counter()
    for one in bookings:
        amount = one["amount"]
        assert isinstance(amount, int)
        sums[one["request"]] += amount
        counts[one["request"]] += 1
        if one["aborted"]:
            found.append(f"an aborted booking is in the log: {dict(one)}")
    found += [f"half of request {name}: {total}" for name, total in sums.items() if total]
    found += [f"request {name} is booked {n} times" for name, n in counts.items() if n != 2]
    return found


class Onlooker:
    """Looks at all topics in a thread, at versions that belong together."""

    def __init__(self, warehouse: Path, report: Report) -> None:
        self._store = open_warehouse(warehouse)
        self._books = Books(self._store)
        self._report = report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(120)
        self._store.close()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopped.wait(0.05):
                with contextlib.suppress(DataFileMissing):  # it was rolled up meanwhile
                    versions = whole_versions(self._store, TOPICS)
                    wrong = torn(self._books.at(versions))
                    self._report.looks += 1
                    self._report.torn += [f"{versions}: {one}" for one in wrong[:3]]
        except BaseException as failure:
            self._failure = failure


def run_bank(directory: Path, seed: int, size: Size) -> Report:
    """Runs it in an empty directory."""
    dice = random.Random(seed)
    report = Report(seed)
    began = time.monotonic()
    warehouse = directory / "warehouse"
    with contextlib.ExitStack() as stack:
        gateways = stack.enter_context(ShortSessions(warehouse, size.gateways))
        bootstrap = gateways.bootstrap
        _prepare(bootstrap, size.requests, dice)
        onlooker = stack.enter_context(Onlooker(warehouse, report))
        tellers = [
            stack.enter_context(Teller(f"teller-{n}", bootstrap, seed * 1_000 + n * 100))
            for n in range(size.tellers)
        ]
        for _ in range(size.faults):
            time.sleep(dice.uniform(*size.pause_s))
            onlooker.check()
            for teller in tellers:
                teller.check()
            name = dice.choice(FAULTS)
            report.faults[name] += 1
            if name == "gateway killed":
                gateways.kill_one(dice)
            elif name == "gateway frozen":
                gateway = gateways.choose(dice)
                os.kill(gateway.pid, signal.SIGSTOP)
                time.sleep(_FROZEN_S)
                os.kill(gateway.pid, signal.SIGCONT)
            elif name == "teller killed":
                dice.choice(tellers).kill()
            elif name == "teller frozen":
                dice.choice(tellers).freeze()
            else:
                dice.choice(tellers).replace()
        _wait_until_booked(bootstrap, tellers, size)
        for teller in tellers:
            teller.stop()
        time.sleep(0.5)
        onlooker.check()
        gateways.terminate()
    _judge(warehouse, size.requests, report)
    report.seconds = time.monotonic() - began
    return report


def _prepare(bootstrap: str, count: int, dice: random.Random) -> None:
    config = {"bootstrap.servers": bootstrap}
    with AdminClient(config) as admin:
        admin.create_topic(REQUESTS, 3)
        for topic in TOPICS:
            admin.create_topic(topic, PARTITIONS, {"rollup.files": 3})
    with Producer(config) as producer:
        for number in range(count):
            value = json.dumps({"request": number, "amount": dice.randrange(1, 100)})
            producer.produce(REQUESTS, value, partition=number % 3)


def _wait_until_booked(bootstrap: str, tellers: Sequence[Teller], size: Size) -> None:
    ends_at = time.monotonic() + size.timeout_s
    with Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP}) as consumer:
        places = [TopicPartition(REQUESTS, n) for n in range(3)]
        while True:
            for teller in tellers:
                teller.check()
            found = sum(max(one.offset, 0) for one in consumer.committed(places))
            if found == size.requests:
                return
            assert time.monotonic() < ends_at, (
                f"{found} of {size.requests} requests are booked\n" + tellers[0].log[-3_000:]
            )
            time.sleep(0.2)


def _judge(warehouse: Path, count: int, report: Report) -> None:
    store = open_warehouse(warehouse)
    try:
        bookings = Books(store).at(whole_versions(store, TOPICS))
    finally:
        store.close()
    report.wrong += torn(bookings)
    booked = {one["request"] for one in bookings}
    report.wrong += [f"request {name} is not booked" for name in range(count) if name not in booked]
    report.booked = len(booked)
