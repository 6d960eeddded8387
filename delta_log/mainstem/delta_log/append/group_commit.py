"""A leader's commits: the records of a group, with the roll-ups that wait for one; or these alone.

Runs on the appender's loop; one commit at a time: the caller sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from mainstem.delta_log.append.actions import file_actions, producer_registers
from mainstem.delta_log.append.leader_log import LeaderLog
from mainstem.delta_log.append.queue import Group
from mainstem.delta_log.files import Roller, Swap, WrittenFile, encode_slices, put_file
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import Store
from mainstem.delta_log.table import Action, DataFile, Register, TableCommit, TableState
from mainstem.limits import KIB

Token = TypeVar("Token")

#: A group of no more is encoded on the loop, and written and committed by one call of the pool: a
#: thread that encodes some records waits longer for the interpreter than it works.
_INLINE_BYTES_MAX: Final = 16 * KIB
_INLINE_PARTITIONS_MAX: Final = 3


class GroupCommitter:
    """Writes data files and commits them.

    Args:
        store: The topic's.
    """

    def __init__(
        self,
        store: Store,
        log: LeaderLog,
        roller: Roller,
        metrics: AppenderMetrics,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._log = log
        self._roller = roller
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._monotonic = monotonic

    async def append(self, group: Group[Token], wal: Register | None) -> int:
        """Adds the records of a group to the table.

        Args:
            wal: Says up to which request of the write-ahead log the table has all from now on.

        Returns:
            The table version that has them.

        Raises:
            MainstemError: The topic is lost.
        """
        append = _Append(
            group,
            wal,
            self._store,
            self._log.state,
            self._clock_ms(),
            self._roller.content_bytes_max,
        )
        started = self._monotonic()
        version = None
        if append.is_small and not self._roller.is_ready:
            append.encode_all()
            encoded = self._monotonic()
            version = await self._log.attempt_prepared(append.put_all)
        else:
            await self._write(append)
            encoded = self._monotonic()
        swaps: Sequence[Swap] = ()
        if version is None:
            swaps = self._roller.take(len(append.written))

            def build() -> TableCommit:
                nonlocal swaps
                # Again after each conflict: the winner may have removed what a roll-up replaces.
                swaps = self._roller.checked(swaps)
                return append.commit(self._roller.actions(swaps, append.now_ms))

            version = await self._log.commit(build)
            assert version is not None
        self._roller.committed(swaps, append.files())
        self._metrics.append_seconds("encode", encoded - started)
        self._metrics.append_seconds("commit", self._monotonic() - encoded)
        return version

    async def swap(self) -> None:
        """Commits roll-ups alone: no records came that they could have gone with.

        Raises:
            MainstemError: The topic is lost.
        """
        now_ms = self._clock_ms()
        swaps = self._roller.take(0)

        def build() -> TableCommit | None:
            nonlocal swaps
            swaps = self._roller.checked(swaps)
            if not swaps:
                return None
            actions = self._roller.actions(swaps, now_ms)
            return TableCommit.of("ROLL UP", actions, timestamp_ms=now_ms)

        if await self._log.commit(build) is not None:
            self._roller.committed(swaps)

    async def _write(self, append: _Append) -> None:
        """Writes the data file of each partition, several at a time."""
        writes = [
            asyncio.ensure_future(self._log.until_stored(append.write, partition))
            for partition in append.partitions
        ]
        try:
            await asyncio.gather(*writes)
        except BaseException:
            for one in writes:  # or they would go on trying while the store fails
                one.cancel()
            raise


class _Append:
    """One group on its way into the table.

    Args:
        wal: See `GroupCommitter.append`.
        store: The topic's.
        state: The table before.
        now_ms: Becomes the time of the files and of the commit.
        content_bytes_max: See `put_file`.

    Attributes:
        written: The data files by partition, as far as they are in the store.
    """

    def __init__(
        self,
        group: Group[Any],
        wal: Register | None,
        store: Store,
        state: TableState,
        now_ms: int,
        content_bytes_max: int,
    ) -> None:
        self.now_ms = now_ms
        self.partitions = dict(sorted(group.by_partition().items()))
        self.written: dict[int, WrittenFile] = {}
        self._batches = group.batches()
        self._registers = producer_registers(state, self._batches, now_ms)
        if wal is not None:
            self._registers.append(wal)
        self._size_bytes = group.size_bytes
        self._store = store
        self._compression_type = state.config.compression_type
        self._content_bytes_max = content_bytes_max
        self._encoded: dict[int, tuple[DataFile, pa.Buffer]] = {}
        self._commit: TableCommit | None = None

    @property
    def is_small(self) -> bool:
        """Whether other threads would cost more than they win."""
        return (
            self._size_bytes <= _INLINE_BYTES_MAX and len(self.partitions) <= _INLINE_PARTITIONS_MAX
        )

    def files(self) -> list[WrittenFile]:
        """All data files, by partition; all are written."""
        return [self.written[partition] for partition in self.partitions]

    def write(self, partition: int) -> None:
        """Encodes one data file and puts it into the store. Blocks."""
        self.written[partition] = self._put(*self._encode(partition))

    def encode_all(self) -> None:
        for partition in self.partitions:
            self._encoded[partition] = self._encode(partition)

    def put_all(self) -> TableCommit:
        """Puts what is encoded and not in the store into it, and returns the commit of all of it,
        the same each time. Blocks.

        Raises:
            StoreUnavailableError: The store failed; call it again.
        """
        for partition, encoded in self._encoded.items():
            if partition not in self.written:
                self.written[partition] = self._put(*encoded)
        if self._commit is None:
            self._commit = self.commit()
        return self._commit

    def commit(self, more: Sequence[Action] = ()) -> TableCommit:
        """A commit of all data files, which are written, and of `more`."""
        actions = file_actions([one.file for one in self.files()])
        return TableCommit.of(
            "APPEND",
            [*actions, *self._registers, *more],
            timestamp_ms=self.now_ms,
            batches=self._batches,
        )

    def _encode(self, partition: int) -> tuple[DataFile, pa.Buffer]:
        base_offset, slices = self.partitions[partition]
        return encode_slices(
            partition,
            base_offset,
            slices,
            compression_type=self._compression_type,
            now_ms=self.now_ms,
        )

    def _put(self, file: DataFile, data: pa.Buffer) -> WrittenFile:
        return put_file(self._store, file, data, self._content_bytes_max)
