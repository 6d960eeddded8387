"""A small topic in which any bit of any file can be flipped, and what its readers and the
verification make of that.

A flip has to be told by the verification; and what a reader says without an error must be what it
said before. The pointer to the newest checkpoint is only a hint: a flip in it may go unseen, as
long as nobody reads anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.delta_log import Appender, ByteBudget, Slice, TableState, load_table
from mainstem.delta_log.files import offset_for_timestamp, read_data_file
from mainstem.delta_log.format import LAST_CHECKPOINT, ProducerBatch
from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.delta_log.verify import verify_named
from mainstem.errors import LogDamagedError
from mainstem.ingest_gateway.fetching.columns import COLUMNS
from mainstem.ingest_gateway.fetching.history import Cursor
from mainstem.records import records_to_wire_batch
from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._range_plan import plan_range
from pyspark_mainstem._range_reader import read_range

TOPIC = "t"
PARTITIONS = 2
PRODUCER = 77

#: What a reader answers: the same values for the same table.
Answer = object


class FlippedBits:
    """The topic, in a warehouse of its own at `root`."""

    def __init__(self, root: Path) -> None:
        self._log = TopicLog(root)
        self._root = Path(self._log.topics.uri(TOPIC))
        self._fill()
        self._state = self._load()
        self._right = dict(self._answers())
        report = verify_named(self._log.store, TOPIC)
        assert report.ok, report.findings

    def close(self) -> None:
        self._log.close()

    def files(self) -> list[Path]:
        """Every file that is part of the table, by name."""
        log = [path for path in (self._root / "_delta_log").iterdir() if path.is_file()]
        return sorted([*log, *(self._root / file.path for file in self._state)])

    def flip(self, path: Path, byte: int, bit: int, *, everybody: bool = True) -> str:
        """What is wrong with how a flipped bit is treated; empty: nothing. The bit is put back.

        Args:
            everybody: False: ask only those readers that read the file.
        """
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[byte] ^= 1 << bit
        path.write_bytes(changed)
        try:
            wrong = [*self._served_wrong(None if everybody else path)]
            if not verify_named(self._log.store, TOPIC).ok:
                told = True
            else:
                told = path.name == Path(LAST_CHECKPOINT).name
        finally:
            path.write_bytes(whole)
        where = f"bit {bit} of byte {byte} of {path.relative_to(self._root)}"
        if wrong:
            return f"{where}: {', '.join(wrong)} served something else"
        return "" if told else f"{where} is not found by the verification"

    def _served_wrong(self, path: Path | None) -> Iterator[str]:
        for name, reader in self._readers().items():
            if path is not None and not _reads(name, path):
                continue
            try:
                answer = reader()
            except LogDamagedError:
                continue
            if answer != self._right[name]:
                yield name

    def _answers(self) -> Iterator[tuple[str, Answer]]:
        for name, reader in self._readers().items():
            yield name, reader()

    def _readers(self) -> dict[str, Callable[[], Answer]]:
        """Each answers on its own: what one meets must not keep another from being asked."""
        readers: dict[str, Callable[[], Answer]] = {
            "load_table": self._read_state,
            "read_data_file of the newest state": self._read_newest,
        }
        for partition in range(PARTITIONS):
            for name, read in (
                ("read_data_file", self._read_files),
                ("the Spark source", self._read_range),
                ("a fetch", self._fetch),
                ("offset_for_timestamp", self._look_up),
            ):
                readers[f"{name} of partition {partition}"] = _bound(read, partition)
        return readers

    def _load(self) -> TableState:
        opened = self._log.topics.open(TOPIC)
        return opened.state

    def _read_state(self) -> Answer:
        return _said(self._load())

    def _read_newest(self) -> Answer:
        """From the log to the rows, as a reader that has just come."""
        store = StoreFolder(self._log.store, f"topics/{TOPIC}")
        state = load_table(store)
        return [
            batch.to_pylist()
            for partition in range(PARTITIONS)
            for file in state.files(partition).sorted()
            for batch in read_data_file(store, file, 0, 2**62)
        ]

    def _read_files(self, partition: int) -> Answer:
        """With a state from before the flip, as a reader that has the table open."""
        store = StoreFolder(self._log.store, f"topics/{TOPIC}")
        return [
            batch.to_pylist()
            for file in self._state.files(partition).sorted()
            for batch in read_data_file(store, file, 1, 2**62, ["key", "value", "headers"])
        ]

    def _read_range(self, partition: int) -> Answer:
        end = self._state.log_end_offset(partition)
        plan = plan_range(self._state, OffsetRange(TopicPartition(TOPIC, partition), 0, end))
        columns = ["key", "value", "offset", "timestamp", "timestampType", "headers"]
        return pa.Table.from_batches(list(read_range(plan, columns))).to_pylist()

    def _fetch(self, partition: int) -> Answer:
        store = StoreFolder(self._log.store, f"topics/{TOPIC}")
        rows = []
        for file in self._state.files(partition).sorted():
            cursor = Cursor(store, file, COLUMNS, file.base_offset)
            try:
                while (batch := cursor.peek()) is not None:
                    rows += batch.to_pylist()
                    cursor.advance(batch.num_rows)
            finally:
                cursor.close()
        return rows

    def _look_up(self, partition: int) -> Answer:
        store = StoreFolder(self._log.store, f"topics/{TOPIC}")
        times = (0, START_MS + 1, START_MS + 3_000, 2**50)
        return [offset_for_timestamp(store, self._state, partition, time) for time in times]

    def _fill(self) -> None:
        self._log.create(TOPIC, PARTITIONS)
        records = [
            Record(b"amount=1000 EUR", b"a", START_MS),
            Record(None, "ключ".encode(), START_MS + 2_000, [("h", b"1"), ("n", None)]),
            Record(b"", None, START_MS + 5_000),
        ]
        small = [[Record(b"small %d" % n, b"k", START_MS + 6_000 + n)] for n in range(3)]
        last = [Record(b"after the checkpoint", b"k", START_MS + 7_000)]

        async def fill() -> None:
            with ThreadPoolExecutor(2) as pool:
                appender = await Appender.lead(
                    self._log.topics.open(TOPIC),
                    pool,
                    queue_bytes=1 << 20,
                    budget=ByteBudget(1 << 20),
                )
                for one in (
                    Slice(0, _batch(records)),
                    *(Slice(0, _batch(one)) for one in small),
                    Slice(1, _batch(records[:2]), ProducerBatch(PRODUCER, 0, 0)),
                ):
                    await appender.submit([one], one.records.nbytes)
                await asyncio.to_thread(self._maintain)
                await appender.submit([Slice(1, _batch(last))], 100)
                await appender.submit([Slice(0, _batch(last))], 100)
                await appender.close(10.0)

        asyncio.run(fill())

    def _maintain(self) -> None:
        self._log.roll_up(TOPIC, 0, 1, 2)
        opened = self._log.topics.open(TOPIC)
        write_checkpoint(opened.store)


def _batch(records: list[Record]) -> pa.RecordBatch:
    return records_to_wire_batch(
        [row.key for row in records],
        [row.value for row in records],
        [row.headers for row in records],
        [row.timestamp_ms for row in records],
    )


def _reads(reader: str, path: Path) -> bool:
    """Whether the reader of that name has anything to do with the file."""
    if path.parent.name == "_delta_log":
        return reader == "load_table"
    return reader.endswith(path.parent.name.replace("=", " "))


def _bound(read: Callable[[int], Answer], partition: int) -> Callable[[], Answer]:
    return lambda: read(partition)


def _said(state: TableState) -> Answer:
    """All that a state says of its table."""
    return (
        state.version,
        state.protocol,
        state.metadata,
        sorted((name, register.value) for name, register in state.registers.items()),
        sorted(state, key=lambda file: file.path),
    )
