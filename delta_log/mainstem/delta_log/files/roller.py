"""Rolls a led topic's newest small files up, beside its appends: see `roll_up` for which.

A thread merges the files while the topic goes on; what comes of it is swapped in by the next commit
of records, or by one of its own when none comes. Nothing here may stop or delay the log: a roll-up
that fails, or that a compaction has overtaken, leaves the files as they are.

Runs on the appender's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final

from mainstem.delta_log.files.data_file_writer import merge_data_files
from mainstem.delta_log.files.roll_up import LEVELS, KeptFile, KeptFiles, RollUpMemory
from mainstem.delta_log.files.slices import WrittenFile
from mainstem.delta_log.format import Action
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import OpenTopic, is_expired, replace_files
from mainstem.errors import LogDamagedError, StoreUnavailableError
from mainstem.limits import UNCOMMITTED_FILE_MS_MAX

log = logging.getLogger(__name__)

#: After a merging nothing is merged for so many times the processor time that it took: all roll-ups
#: of a gateway take a fifth of one thread at most. Files of a topic's partitions are often complete
#: at the same moment, and acknowledgements would wait for all of them.
_PAUSE_FACTOR: Final = 4.0

#: A swap that no commit of records has taken along for this long gets a commit of its own.
_ALONE_AFTER_S: Final = 1.0

#: A swap that is older is given up: only a process that was stopped, or a store that failed for
#: long, makes one wait. Its file is no part of the table yet, and vacuum takes it some time for one
#: that was left behind.
_SWAP_AGE_S_MAX: Final = 600.0

#: Swaps in a commit: at least so many, or one for every two new files. Each costs some 30 lines of
#: the commit file, and the records of the commit wait for these.
_SWAPS_MIN: Final = 4
_FILES_PER_SWAP: Final = 2

assert _SWAP_AGE_S_MAX * 1000 < UNCOMMITTED_FILE_MS_MAX, "vacuum would take the file of a swap"


@dataclass(frozen=True, slots=True, eq=False)
class Swap:
    """Files of the table, and the one in the store that is to replace them.

    Attributes:
        made_at: By the monotonic clock.
    """

    run: Sequence[KeptFile]
    merged: KeptFile
    made_at: float


class Roller:
    """One led topic's roll-ups.

    Args:
        on_ready: Called when a swap waits for a commit.
    """

    def __init__(
        self,
        opened: OpenTopic,
        pool: Executor,
        memory: RollUpMemory,
        metrics: AppenderMetrics,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        on_ready: Callable[[], None],
    ) -> None:
        self._opened = opened
        self._pool = pool
        self._memory = memory
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._on_ready = on_ready
        self._kept = KeptFiles(memory)
        self._ready: deque[Swap] = deque()
        #: Merged files that will not become part of the table.
        self._unwanted: list[str] = []
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def content_bytes_max(self) -> int:
        """Up to which size `committed` wants the bytes of new files; -1: never."""
        config = self._opened.state.config
        if config.rollup_files < 2 or not self._memory.limit_bytes:
            return -1
        return config.rollup_max_bytes

    @property
    def is_ready(self) -> bool:
        """Whether a swap waits for a commit."""
        return bool(self._ready)

    @property
    def due_in_s(self) -> float | None:
        """When the oldest swap wants a commit of its own; None: there is no swap."""
        if not self._ready:
            return None
        return self._ready[0].made_at + _ALONE_AFTER_S - self._monotonic()

    def take(self, new_file_count: int) -> list[Swap]:
        """The swaps for a commit that adds so many files. The caller commits them, or stops."""
        count = max(_SWAPS_MIN, new_file_count // _FILES_PER_SWAP)
        taken: list[Swap] = []
        while self._ready and len(taken) < count:
            taken += self.checked([self._ready.popleft()])
        return taken

    def checked(self, swaps: Sequence[Swap]) -> list[Swap]:
        """Those that can still be committed; the others are given up."""
        good = []
        for swap in swaps:
            if self._can_be_committed(swap):
                good.append(swap)
            else:
                self._give_up(swap)
        return good

    def without(self, swaps: Sequence[Swap], path: str) -> list[Swap]:
        """The swaps but for the one whose merged file has this path, which the store has lost."""
        for swap in swaps:
            if swap.merged.file.path == path:
                # Not deleted: a store that hesitates may have it after all.
                self._metrics.roll_up("superseded", len(swap.run))
                self._kept.free(swap.run)
        return [swap for swap in swaps if swap.merged.file.path != path]

    def actions(self, swaps: Sequence[Swap], now_ms: int) -> list[Action]:
        """The actions of swaps that were checked."""
        actions: list[Action] = []
        for swap in swaps:
            actions += replace_files(
                self._opened.state,
                [kept.file for kept in swap.run],
                [swap.merged.file],
                now_ms=now_ms,
                data_change=False,
            )
        return actions

    def committed(self, swaps: Sequence[Swap], written: Sequence[WrittenFile] = ()) -> None:
        """Notes a commit: what it swapped, and the files with new records that it added."""
        limit = self.content_bytes_max
        for swap in swaps:
            self._metrics.roll_up("committed", len(swap.run))
            self._kept.free(swap.run)
            if swap.merged.content and limit >= 0:
                self._kept.add(swap.merged)
        if limit < 0:
            self._kept.clear()
        for one in written:
            if one.content is not None and limit >= 0:
                self._kept.add(KeptFile(one.file, one.content, level=0, kept_ms=self._now_ms()))
        self._begin()

    async def finish(self) -> None:
        """Begins nothing more, and waits for what is under way."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    def close(self) -> None:
        """Gives everything up."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
        self._ready.clear()
        self._kept.clear()

    # -- beside the appends ------------------------------------------------------------------------

    def _begin(self) -> None:
        idle = self._task is None or self._task.done()
        if idle and not self._stopping.is_set() and (self._kept.has_changed or self._unwanted):
            self._task = asyncio.get_running_loop().create_task(
                self._work(), name=f"roll-up {self._opened.topic}"
            )

    async def _work(self) -> None:
        try:
            while not self._stopping.is_set() and (self._kept.has_changed or self._unwanted):
                await self._clean_up()
                async with self._memory.turn:
                    run = self._next_run()
                    if run:
                        await self._pause(_PAUSE_FACTOR * await self._merge(run))
        except asyncio.CancelledError:
            raise
        except BaseException:  # a panic in a native library is no Exception
            # A fault of ours, which the next files would only meet again.
            self._stopping.set()
            self._kept.clear()
            log.exception("topic %s: its files are rolled up no more", self._opened.topic)

    def _next_run(self) -> list[KeptFile]:
        state = self._opened.state
        config = state.config
        if config.rollup_files < 2:
            self._kept.clear()
        return self._kept.next_run(
            state.is_active, config.rollup_files, config.compaction_min_age_ms, self._now_ms()
        )

    async def _merge(self, run: Sequence[KeptFile]) -> float:
        """Makes a swap of a run; returns the processor time that it took."""
        merge = partial(
            _write_merged,
            self._opened.store,
            run,
            self._opened.state.config.compression_type,
            self._clock_ms(),
            self._now_ms(),
            self.content_bytes_max,
        )
        loop = asyncio.get_running_loop()
        try:
            merged, cpu_s = await loop.run_in_executor(self._pool, merge)
        except (StoreUnavailableError, LogDamagedError) as error:
            log.warning("topic %s: small files stay as they are: %s", self._opened.topic, error)
            self._metrics.roll_up("failed", len(run))
            self._kept.free(run)
            return 0.0
        self._ready.append(Swap(run, merged, self._monotonic()))
        self._on_ready()
        return cpu_s

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _clean_up(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unwanted:
            path = self._unwanted.pop()
            if self._opened.state.is_active(path):
                continue  # its commit landed after all
            # What cannot be removed now is left to those who look for what no table has.
            with contextlib.suppress(StoreUnavailableError):
                await loop.run_in_executor(self._pool, self._opened.store.delete, path)

    def _give_up(self, swap: Swap) -> None:
        self._metrics.roll_up("superseded", len(swap.run))
        self._kept.free(swap.run)
        self._unwanted.append(swap.merged.file.path)
        self._begin()

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    def _can_be_committed(self, swap: Swap) -> bool:
        state = self._opened.state
        return (
            self._monotonic() - swap.made_at <= _SWAP_AGE_S_MAX
            and not is_expired(state, swap.merged.file)
            and all(state.is_active(kept.file.path) for kept in swap.run)
        )


def _write_merged(
    store: ObjectStore,
    run: Sequence[KeptFile],
    compression_type: str,
    now_ms: int,
    kept_ms: int,
    content_bytes_max: int,
) -> tuple[KeptFile, float]:
    """Writes the file that replaces `run`.

    Args:
        now_ms: The time of day.
        kept_ms: See `KeptFile`.

    Returns:
        The file, with its bytes if it may be rolled up once more, and the processor time of it.
    """
    began_at = time.thread_time()
    merged, data = merge_data_files(
        ((kept.file, kept.content) for kept in run),
        compression_type=compression_type,
        now_ms=now_ms,
    )
    first, last = run[0].file, run[-1].file
    assert (merged.base_offset, merged.last_offset, merged.record_count) == (
        first.base_offset,
        last.last_offset,
        sum(kept.file.record_count for kept in run),
    ), "a roll-up has other records than its files"
    store.put(merged.path, data)
    level = run[0].level + 1
    again = level < LEVELS and data.size <= content_bytes_max
    kept = KeptFile(merged, data.to_pybytes() if again else b"", level, kept_ms)
    return kept, time.thread_time() - began_at
