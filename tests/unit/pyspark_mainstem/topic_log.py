"""A warehouse for tests of its readers: filled through the real appender, damaged on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mainstem.delta_log import Appender, ByteBudget, LocalStore, OpenTopic, Slice, Topics
from mainstem.delta_log.files import read_data_file, write_data_files
from mainstem.delta_log.files.data_file_writer import merge_data_files
from mainstem.delta_log.format import Action, DataFile, Register, Remove, registers
from mainstem.delta_log.store import wall_clock_ms
from mainstem.delta_log.table import TableCommit, commit_beside_leader, replace_files
from mainstem.delta_log.topics import added_partitions
from mainstem.records import records_to_wire_batch

#: Timestamps of records count up from here, a second each, in every partition.
START_MS = 1_700_000_000_000

Headers = Sequence[tuple[str, bytes | None]] | None


@dataclass(frozen=True)
class Record:
    """A record to append."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = START_MS
    headers: Headers = None


class TopicLog:
    """The warehouse at `root`."""

    def __init__(self, root: Path) -> None:
        self.uri = str(root)
        self.store = LocalStore(root)
        self.topics = Topics(self.store)

    def close(self) -> None:
        self.store.close()

    def create(self, topic: str, partition_count: int = 1) -> str:
        """Creates a topic; returns its id."""
        return self.topics.create(topic, partition_count, {"commit.interval.ms": 0}).id

    def delete(self, topic: str) -> None:
        self.topics.delete(topic)

    def append(self, topic: str, *batches: tuple[int, Iterable[Record]]) -> None:
        """Appends batches of (partition, records): one table commit each."""
        asyncio.run(self._append(topic, batches))

    def count_up(self, topic: str, partition: int, count: int, *, file_count: int = 1) -> None:
        """Appends `count` records with the values `0`, `1`, ... from the partition's end on."""
        opened = self.topics.open(topic)
        first = opened.state.log_end_offset(partition)
        each = count // file_count
        starts = [first + each * index for index in range(file_count)]
        ends = [*starts[1:], first + count]
        self.append(
            topic,
            *(
                (
                    partition,
                    [
                        Record(b"%d" % offset, b"key %d" % (offset % 3), START_MS + 1000 * offset)
                        for offset in range(start, end)
                    ],
                )
                for start, end in zip(starts, ends, strict=True)
            ),
        )

    def add_partitions(self, topic: str, partition_count: int) -> None:
        opened = self.topics.open(topic)
        metadata = added_partitions(opened.state, partition_count)
        self._commit(opened, "ADD PARTITIONS", [metadata])

    def trim(self, topic: str, partition: int, log_start_offset: int) -> None:
        """Moves the log start offset, and removes the files before it."""
        opened = self.topics.open(topic)
        gone = opened.state.files(partition).between(0, log_start_offset)
        self._commit(
            opened,
            "TRIM",
            [
                Register(registers.lso(partition), log_start_offset),
                *(_remove(file) for file in gone if file.last_offset < log_start_offset),
            ],
        )

    def merge(self, topic: str, partition: int) -> None:
        """Makes one file of all of a partition, as compaction does."""
        opened = self.topics.open(topic)
        files = opened.state.files(partition).sorted()
        (merged,) = write_data_files(
            opened.store,
            partition,
            (
                batch
                for file in files
                for batch in read_data_file(opened.store, file, 0, file.last_offset + 1)
            ),
            target_bytes=1 << 30,
            compression_type="zstd",
            now_ms=wall_clock_ms(),
        )
        actions = replace_files(
            opened.state, files, [merged], now_ms=wall_clock_ms(), data_change=False
        )
        self._commit(opened, "COMPACT", actions)

    def roll_up(self, topic: str, partition: int, first: int, last: int) -> None:
        """Makes one file of some of a partition's, as a gateway does of those it has just written.

        Args:
            first, last: Positions of files, in offset order; both are among them.
        """
        opened = self.topics.open(topic)
        files = opened.state.files(partition).sorted()[first : last + 1]
        merged, data = merge_data_files(
            ((file, opened.store.read(file.path)) for file in files),
            compression_type="zstd",
            now_ms=wall_clock_ms(),
        )
        opened.store.put(merged.path, data)
        actions = replace_files(
            opened.state, files, [merged], now_ms=wall_clock_ms(), data_change=False
        )
        self._commit(opened, "ROLL UP", actions)

    def forget_file(self, topic: str, partition: int, index: int) -> None:
        """Takes a file out of the table without telling anyone: damage."""
        opened = self.topics.open(topic)
        file = opened.state.files(partition).sorted()[index]
        self._commit(opened, "DAMAGE", [_remove(file)])

    def data_files(self, topic: str, partition: int) -> list[Path]:
        """The paths of the active files of a partition, in offset order."""
        opened = self.topics.open(topic)
        return [
            Path(opened.state.table) / file.path for file in opened.state.files(partition).sorted()
        ]

    def version(self, topic: str) -> int:
        opened = self.topics.open(topic)
        return opened.state.version

    async def _append(self, topic: str, batches: Iterable[tuple[int, Iterable[Record]]]) -> None:
        with ThreadPoolExecutor(2) as pool:
            appender = await Appender.lead(
                self.topics.open(topic), pool, queue_bytes=1 << 28, budget=ByteBudget(1 << 28)
            )
            for partition, records in batches:
                rows = list(records)
                batch = records_to_wire_batch(
                    [row.key for row in rows],
                    [row.value for row in rows],
                    [row.headers for row in rows],
                    [row.timestamp_ms for row in rows],
                )
                await appender.submit([Slice(partition, batch)], batch.nbytes)
            await appender.close(10.0)

    def _commit(self, opened: OpenTopic, operation: str, actions: list[Action]) -> None:
        commit = TableCommit.of(operation, actions, timestamp_ms=wall_clock_ms())
        commit_beside_leader(opened, lambda _: commit)


def _remove(file: DataFile) -> Remove:
    return Remove(file.path, file.partition, file.size_bytes, wall_clock_ms(), True)
