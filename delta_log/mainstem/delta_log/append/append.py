"""A leader's commits: the records of a portion, with the roll-ups that wait for one; or these
alone.

Runs on the appender's loop; one commit at a time: the caller sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from mainstem.delta_log.append.actions import file_actions, partition_epochs, producer_registers
from mainstem.delta_log.append.queue import Portion
from mainstem.delta_log.append.staged_append import StagedAppend
from mainstem.delta_log.append.transactions import StagedRecords
from mainstem.delta_log.files import Roller, Swap, WrittenFile, encode_slices, put_file
from mainstem.delta_log.format import Action, DataFile, Register
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import (
    TOPIC_CALLS_MAX,
    AsyncCommits,
    FileGone,
    NewFile,
    TableCommit,
    TableState,
    put_new_files,
)
from mainstem.limits import KIB

Token = TypeVar("Token")

#: A portion of no more is encoded on the loop: a thread that encodes some records waits longer for
#: the interpreter than it works.
_INLINE_BYTES_MAX: Final = 64 * KIB
_INLINE_PARTITIONS_MAX: Final = 128

#: So many files of such a portion are written by the call of the pool that commits them. More are
#: written by several calls before it: a disk syncs several files at a time as fast as one.
_WRITTEN_WITH_COMMIT_MAX: Final = 2


class TopicCommits:
    """Writes data files and commits them.

    Args:
        store: The topic's.
        staged_chunks: See `CommitTurns`.
    """

    def __init__(
        self,
        store: ObjectStore,
        commits: AsyncCommits,
        roller: Roller,
        metrics: AppenderMetrics,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        staged_chunks: asyncio.Semaphore,
    ) -> None:
        self._store = store
        self._commits = commits
        self._staged_chunks = staged_chunks
        self._roller = roller
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        #: Held by the portion whose pieces begin; who comes first is first.
        self._beginning = asyncio.Lock()
        self._places = asyncio.Semaphore(TOPIC_CALLS_MAX)

    async def write(self, portion: Portion[Token]) -> PortionAppend | StagedAppend:
        """Writes the data files of a portion, which has its offsets: anybody may commit meanwhile,
        the portions before it too.

        Raises:
            MainstemError: The topic is lost, or staged records are damaged.
        """
        started = self._monotonic()
        append: PortionAppend | StagedAppend
        if portion.staged is not None:
            append = await self._write_staged(portion, portion.staged)
        else:
            append = await self._write_slices(portion)
        self._metrics.append_seconds("encode", self._monotonic() - started)
        return append

    async def commit(
        self, append: PortionAppend | StagedAppend, registers: Sequence[Register]
    ) -> int:
        """Adds the records of a portion to the table, after those of all portions before it.

        Args:
            append: Of `write`.
            registers: What changes with it, beside the ends of partitions and what the producers of
                the portion have sent.

        Returns:
            The table version that has them.

        Raises:
            MainstemError: The topic is lost.
        """
        started = self._monotonic()
        swaps = self._roller.take(len(append.partitions))
        version = await self._commit(swaps, append, registers)
        assert version is not None
        self._roller.committed(swaps, append.written)
        self._metrics.append_seconds("commit", self._monotonic() - started)
        return version

    async def swap(self) -> None:
        """Commits roll-ups alone: no records came that they could have gone with.

        Raises:
            MainstemError: The topic is lost.
        """
        swaps = self._roller.take(0)
        if await self._commit(swaps) is not None:
            self._roller.committed(swaps)

    async def _commit(
        self,
        swaps: list[Swap],
        append: PortionAppend | StagedAppend | None = None,
        registers: Sequence[Register] = (),
    ) -> int | None:
        """Commits an append and the swaps that can still be committed, which `swaps` has in the
        end; returns the version. None: there was nothing."""
        now_ms = self._clock_ms()

        def build(state: TableState) -> TableCommit | None:
            # Again after each conflict: the winner may have removed what a roll-up replaces.
            swaps[:] = self._roller.checked(swaps)
            actions = self._roller.actions(swaps, now_ms)
            needed = [swap.merged.file.path for swap in swaps]
            if append is not None:
                return append.commit(state, now_ms, [*registers, *actions], needed)
            if not swaps:
                return None
            return TableCommit.of("ROLL UP", actions, timestamp_ms=now_ms, needed_files=needed)

        while True:
            try:
                landed = await self._commits.commit(build)
            except FileGone as gone:
                swaps[:] = self._roller.without(swaps, gone.path)
            else:
                return None if landed is None else landed.version

    async def _write_slices(self, portion: Portion[Token]) -> PortionAppend:
        append = PortionAppend(
            portion,
            self._store,
            self._commits.state.config.compression_type,
            self._clock_ms(),
            self._roller.content_bytes_max,
        )
        if append.is_small:
            append.encode_all()
            if len(append.partitions) > _WRITTEN_WITH_COMMIT_MAX and not self._store.is_far:
                await self._put_new_files(append)
        else:
            await self._for_each(
                append.partitions,
                lambda partition: self._commits.until_stored(append.write, partition),
            )
        return append

    async def _write_staged(self, portion: Portion[Token], staged: StagedRecords) -> StagedAppend:
        """Takes as long as the transaction is large."""
        append = StagedAppend(portion, staged, self._store, self._commits.state, self._clock_ms())

        async def write(partition: int) -> None:
            is_more = True
            while is_more:
                async with self._staged_chunks:
                    is_more = await self._commits.until_stored(append.write_next, partition)

        await self._for_each(append.partitions, write)
        return append

    async def _put_new_files(self, append: PortionAppend) -> None:
        """Puts the encoded files of a small portion, by as many calls as the topic may have."""
        files = append.new_files
        count = min(len(files), TOPIC_CALLS_MAX)
        await self._for_each(
            range(count),
            lambda first: self._commits.until_stored(
                put_new_files, self._store, files[first::count]
            ),
        )

    async def _for_each(
        self, pieces: Iterable[int], work: Callable[[int], Coroutine[Any, Any, None]]
    ) -> None:
        """Does the work of each piece of a portion, as many at a time as a topic may have calls;
        the first failure ends the others. No piece begins before those of portions before it, which
        are committed earlier."""
        tasks: list[asyncio.Task[None]] = []
        try:
            async with self._beginning:
                for piece in pieces:
                    await self._places.acquire()
                    task = asyncio.get_running_loop().create_task(work(piece))
                    task.add_done_callback(lambda _: self._places.release())
                    tasks.append(task)
            await asyncio.gather(*tasks)
        except BaseException:
            for one in tasks:  # or they would go on trying while the store fails
                one.cancel()
            raise


class PortionAppend:
    """One portion on its way into the table.

    Args:
        store: The topic's.
        now_ms: Becomes the time of the files.
        content_bytes_max: See `put_file`.
    """

    def __init__(
        self,
        portion: Portion[Any],
        store: ObjectStore,
        compression_type: str,
        now_ms: int,
        content_bytes_max: int,
    ) -> None:
        self.partitions = dict(sorted(portion.by_partition().items()))
        self._batches = portion.batches()
        self._epochs = portion.epochs()
        self._size_bytes = portion.size_bytes
        self._store = store
        self._compression_type = compression_type
        self._now_ms = now_ms
        self._content_bytes_max = content_bytes_max
        #: By partition: in the store, or about to be put there with the commit.
        self._written: dict[int, WrittenFile] = {}
        #: Those of `encode_all`.
        self.new_files: list[NewFile] = []

    @property
    def is_small(self) -> bool:
        """Whether other threads would cost more than they win."""
        return (
            self._size_bytes <= _INLINE_BYTES_MAX and len(self.partitions) <= _INLINE_PARTITIONS_MAX
        )

    @property
    def written(self) -> list[WrittenFile]:
        """All data files, by partition."""
        return [self._written[partition] for partition in self.partitions]

    def write(self, partition: int) -> None:
        """Encodes one data file and puts it into the store. Blocks."""
        file, data = self._encode(partition)
        self._written[partition] = put_file(self._store, file, data, self._content_bytes_max)

    def encode_all(self) -> None:
        """Encodes the data files, which the commit puts into the store unless they are there."""
        for partition in self.partitions:
            file, data = self._encode(partition)
            content = data.to_pybytes() if data.size <= self._content_bytes_max else None
            self._written[partition] = WrittenFile(file, content)
            self.new_files.append(NewFile(file.path, data))

    def commit(
        self, state: TableState, now_ms: int, more: Sequence[Action], needed_files: Sequence[str]
    ) -> TableCommit:
        """A commit of all data files, and of `more`.

        Args:
            state: The table before.
        """
        return TableCommit.of(
            "APPEND",
            [
                *file_actions([one.file for one in self.written]),
                *producer_registers(self._batches, now_ms),
                *partition_epochs(state, self._epochs),
                *more,
            ],
            timestamp_ms=now_ms,
            batches=self._batches,
            new_files=self.new_files,
            needed_files=needed_files,
        )

    def _encode(self, partition: int) -> tuple[DataFile, pa.Buffer]:
        base_offset, slices = self.partitions[partition]
        return encode_slices(
            partition,
            base_offset,
            slices,
            compression_type=self._compression_type,
            now_ms=self._now_ms,
        )
