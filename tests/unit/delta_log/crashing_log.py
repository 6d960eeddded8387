"""A topic with producers of every kind, whose machine crashes again and again; and its judge.

Every record has a value of its own. What was acknowledged at the moment of a crash must be in the
table in the end, once, at its offset; an idempotent producer sends again what was not.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tests.unit.delta_log.power_loss import Disk, InlineExecutor, PowerLost, installed
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import (
    Appended,
    Appender,
    ByteBudget,
    LocalStore,
    OpenTopic,
    RollUpMemory,
    Slice,
    Topics,
    read_data_file,
)
from mainstem.delta_log.format import ProducerBatch, registers
from mainstem.delta_log.verify import verify_named
from mainstem.delta_log.wal import LocalWalFiles, Wal
from mainstem.errors import MainstemError, StoreUnavailableError
from mainstem.records import records_to_wire_batch

PARTITIONS = 2


@dataclass(eq=False)
class Sent:
    """A request and what became of it."""

    slices: list[Slice]
    values: list[tuple[int, bytes]]
    write_ahead: bool
    future: asyncio.Future[Appended] | None = None
    is_acked: bool = False

    def look(self) -> None:
        """Takes the answer, if there is one: a producer may have seen it before the crash."""
        future = self.future
        if future is None or not future.done() or future.cancelled():
            return
        self.future = None
        if future.exception() is None:
            self.is_acked = True


@dataclass
class CrashingLog:
    """One warehouse through many crashes.

    Args:
        directory: For the disk's images, one a life.
        lies_about: See `Disk`.
        roll_up_files: The topic's `rollup.files`.
    """

    directory: Path
    rng: random.Random
    lies_about: frozenset[str] = frozenset()
    wrap: Callable[[OpenTopic], OpenTopic] = lambda opened: opened
    roll_up_files: int = 0
    findings: list[str] = field(default_factory=list)
    crashes: int = 0
    acked: int = 0

    def __post_init__(self) -> None:
        self._lives = 0
        self._values = 0
        #: Where an acknowledged record is.
        self._places: dict[bytes, tuple[int, int]] = {}
        self._sequences: Counter[tuple[int, int]] = Counter()
        #: Requests of idempotent producers without an answer, in order.
        self._open: list[Sent] = []
        self._sent: list[Sent] = []
        root = self.directory / "life-0"
        root.mkdir()
        self.disk = Disk(root, self.rng)
        with installed(self.disk):
            store = LocalStore(root / "warehouse")
            Topics(store).create(
                "t", PARTITIONS, {"commit.interval.ms": 0, "rollup.files": self.roll_up_files}
            )
            store.close()
        self.disk.release()
        self.disk = self.disk.after_power_loss(self.directory / "life-1")
        self.disk.lies_about = self.lies_about

    def crash(self, fails_at: int = -1, requests: int = 12) -> list[tuple[str, str]]:
        """One life: the gateway starts, recovers, serves, and dies at a step. Returns the steps."""
        self.disk.fails_at = fails_at
        self._live(requests, clean=False)
        steps = self.disk.steps
        self.crashes += 1
        self._lives += 1
        self.disk = self.disk.after_power_loss(self.directory / f"life-{self._lives + 1}")
        return steps

    def settle(self) -> list[str]:
        """A life without a crash, in which what is open is sent again; then judges."""
        self.disk.fails_at = -1
        self._live(0, clean=True)
        with installed(self.disk):
            self._judge()
        self.disk.release()
        return self.findings

    # -- a life ----------------------------------------------------------------------------------

    def _live(self, requests: int, *, clean: bool) -> None:
        async def life() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            try:
                await self._serve(requests, clean=clean)
            except PowerLost:
                if clean:
                    raise
            finally:
                self._look()
                for sent in self._sent:
                    sent.future = None
                self._sent.clear()

        with installed(self.disk):
            try:
                asyncio.run(life())
            except MainstemError as error:
                if isinstance(error, StoreUnavailableError) and self.disk.faults:
                    return  # it could not even start
                self.findings.append(f"life {self._lives}: {type(error).__name__}: {error}")

    async def _serve(self, requests: int, *, clean: bool) -> None:
        root = Path(self.disk.root)
        files = LocalWalFiles(root / "wal" / "g")
        # A clock that stands still: it must not be what keeps numbers apart.
        # And one that runs: a log that failed is tried again with the next request.
        wal = Wal(
            files,
            "g",
            segment_bytes=2_000,
            clock_us=lambda: 0,
            monotonic=partial(next, count(step=60.0)),
        )
        store = LocalStore(root / "warehouse")
        appender = await Appender.lead(
            self.wrap(Topics(store).open("t")),
            InlineExecutor(),
            wal=wal,
            queue_bytes=2**28,
            budget=ByteBudget(2**30),
            clock_ms=lambda: NOW_MS,
            roll_up_memory=RollUpMemory(2**20),
        )
        for sent in self._open:  # in order, before anything new
            self._submit(appender, sent)
        for _ in range(requests):
            self._submit(appender, self._request())
            for _ in range(self.rng.choice([0, 0, 1, 3, 10, 40])):
                await asyncio.sleep(0)
                if self.disk.off:
                    raise PowerLost
            self._look()
        if clean:
            futures = [sent.future for sent in self._open if sent.future is not None]
            await asyncio.gather(*futures)
            await appender.close(10)
            await wal.close()
            files.close()
            store.close()
            return
        for _ in range(self.rng.choice([0, 20, 200])):
            await asyncio.sleep(0)

    def _request(self) -> Sent:
        producer = self.rng.choice([0, 0, 7, 8])
        partitions = self.rng.choice([[0], [1], [0, 1]])
        slices, values = [], []
        for partition in partitions:
            count = self.rng.randint(1, 3)
            some = [b"%d" % (self._values + n) for n in range(count)]
            self._values += count
            by = None
            if producer:
                by = ProducerBatch(producer, 0, self._sequences[producer, partition])
                self._sequences[producer, partition] += count
            batch = records_to_wire_batch([None] * count, some, None, [NOW_MS] * count)
            slices.append(Slice(partition, batch, by))
            values += [(partition, value) for value in some]
        sent = Sent(slices, values, write_ahead=self.rng.random() < 0.5)
        if producer:
            self._open.append(sent)
        return sent

    def _submit(self, appender: Appender, sent: Sent) -> None:
        sent.future = appender.submit(sent.slices, 100, write_ahead=sent.write_ahead)
        self._sent.append(sent)

    def _look(self) -> None:
        for sent in self._sent:
            future = sent.future
            sent.look()
            if future is not None and sent.is_acked:
                self._acknowledged(sent, future.result())
        self._sent = [sent for sent in self._sent if not sent.is_acked]
        self._open = [sent for sent in self._open if not sent.is_acked]

    def _acknowledged(self, sent: Sent, result: Appended) -> None:
        self.acked += len(sent.values)
        values = iter(sent.values)
        for batch in result.batches:
            for index in range(batch.record_count):
                partition, value = next(values)
                if batch.partition != partition:
                    self.findings.append(f"{value!r} was answered with partition {batch.partition}")
                offset = batch.base_offset + index if batch.base_offset >= 0 else -1
                self._places[value] = (partition, offset)

    # -- the judge -------------------------------------------------------------------------------

    def _judge(self) -> None:
        store = LocalStore(Path(self.disk.root) / "warehouse")
        opened = Topics(store).open("t")
        found: dict[bytes, list[tuple[int, int]]] = {}
        last: dict[tuple[int, int], int] = {}
        for partition in range(PARTITIONS):
            rows = list(_rows(opened, partition))
            offsets = [offset for offset, *_ in rows]
            if offsets != list(range(opened.state.log_end_offset(partition))):
                self.findings.append(
                    f"offsets of partition {partition} are {offsets}, "
                    f"its end {opened.state.log_end_offset(partition)}"
                )
            for offset, value, producer_id, sequence in rows:
                found.setdefault(value, []).append((partition, offset))
                if producer_id is not None:
                    expected = last.get((producer_id, partition), -1) + 1
                    if sequence != expected:
                        self.findings.append(
                            f"sequence {sequence} of {producer_id} instead of {expected}"
                        )
                    last[producer_id, partition] = sequence
        for value, places in found.items():
            if len(places) > 1:
                self.findings.append(f"twice: {value!r} at {places}")
        for value, place in self._places.items():
            places = found.get(value, [])
            if not places:
                self.findings.append(f"lost: {value!r}, acknowledged at {place}")
            elif place[1] >= 0 and place not in places:
                self.findings.append(f"moved: {value!r} from {place} to {places}")
        for (producer_id, partition), sequence in last.items():
            register = opened.state.register_value(registers.producer(producer_id, partition))
            if register != sequence:
                self.findings.append(f"register of {producer_id} is {register}, not {sequence}")
        self.findings += map(str, verify_named(store, "t").findings)
        store.close()


def _rows(opened: OpenTopic, partition: int) -> Any:
    columns = ["value", "producer_id", "sequence"]
    for file in opened.state.files(partition).sorted():
        for batch in read_data_file(opened.store, file, 0, 2**62, columns):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
