"""Keeps a table of latest rows small, beside its commits.

A pass goes over the log once, from its front to where it ended when the pass began: the live rows
of a chunk are appended once more, and the files before them are removed. A pass begins when more
rows are superseded than live, so it copies fewer rows than it takes away, and each row that was
written is taken away once: **at most as many rows are copied as were written**, one that takes a
key away counting as two. Where files have come together without that, because they were not rolled
up, a pass copies the live rows for every `FILES_MAX` of them.

A crash in between leaves copies and originals, which say the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, Generic, TypeVar

from mainstem.delta_log.append import Appended, Appender, TransactionMark, retrieve
from mainstem.delta_log.files import Slice
from mainstem.delta_log.format import Action, Remove
from mainstem.delta_log.latest.rows import LatestRows, Placed, Row
from mainstem.delta_log.store import ObjectStore, time_elapsed_s, wall_clock_ms
from mainstem.delta_log.table import TableState, trim_step
from mainstem.errors import MainstemError
from mainstem.limits import KIB
from mainstem.records import records_to_wire_batch

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Superseded rows that are not worth a pass, however few rows live: opening reads them in some
#: hundredths of a second.
DEAD_ROWS_MIN: Final = 10_000

#: Files that are worth a pass: opening reads them in a second or two.
FILES_MAX: Final = 2_000

#: Rows of one chunk. The loop stands still for some milliseconds while they are put into a batch.
CHUNK_ROWS: Final = 2_000
CHUNK_BYTES: Final = 512 * KIB

#: After each chunk the pass rests for so many times the time that it took, and for no longer than
#: this: what others write comes first.
_REST_FACTOR: Final = 4.0
_REST_S_MAX: Final = 2.0

#: A chunk waits while more than this does. It is looked at so often.
_QUEUED_BYTES_MAX: Final = 4 * CHUNK_BYTES
_QUEUE_LOOK_S: Final = 0.02

#: Between two passes, and after a first failure; doubled with each that follows.
_PAUSE_S_MIN: Final = 1.0
_PAUSE_S_MAX: Final = 300.0

#: Readers that are a version behind may still want a file that was removed this long ago.
_REMOVED_KEPT_S: Final = 600.0

#: What a row costs in the queue beside its bytes.
_ROW_OVERHEAD_BYTES: Final = 64


def is_due(rows: int, live_rows: int, files: int) -> bool:
    """Whether a pass is worth what it costs. Pure.

    Args:
        rows: In the table.
        live_rows: Those of them that count.
        files: Data files in the table.
    """
    superseded = rows - live_rows
    return superseded >= live_rows + DEAD_ROWS_MIN or files >= FILES_MAX + live_rows // CHUNK_ROWS


def append_rows(
    appender: Appender,
    encoded: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
    mark: TransactionMark | None = None,
) -> asyncio.Future[Appended]:
    """Appends rows, all in one table commit.

    Args:
        now_ms: By which the rows are dated.
        mark: Of the transaction that they are a part of; see `Appender.append_transaction`.

    Raises:
        BackPressureError: Too much waits; nothing was taken. Not of a transaction.
        TransactionAbortedError: The transaction may not get into the table.
        MainstemError: The table is lost.
    """
    keys = [key for key, _ in encoded]
    values = [value for _, value in encoded]
    batch = records_to_wire_batch(keys, values, None, [now_ms] * len(keys))
    slices = [Slice(0, batch)]
    if mark is not None:
        return appender.append_transaction(mark, slices)
    future = appender.submit(slices, batch.nbytes + _ROW_OVERHEAD_BYTES * len(keys))
    future.add_done_callback(retrieve)
    return future


class Rewriter(Generic[Row]):
    """Runs passes. On the appender's event loop.

    Args:
        store: The table's.
        latest: What counts; copies are noted there.
        pool: For the store's calls, and for encoding.
        now_ms: The time by which rows are dated.
    """

    def __init__(
        self,
        appender: Appender,
        store: ObjectStore,
        latest: LatestRows[Row],
        pool: Executor,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float] = time_elapsed_s,
    ) -> None:
        self._appender = appender
        self._store = store
        self._latest = latest
        self._pool = pool
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._pass_lock = asyncio.Lock()
        #: Where the pass that is under way ends. One that failed goes on there.
        self._end_offset: int | None = None
        self._not_before = -1e9
        self._pause_s = _PAUSE_S_MIN
        #: When a file was removed from the table, and its path.
        self._removed: deque[tuple[float, str]] = deque()

    def consider(self) -> None:
        """Begins what is due, beside what else goes on."""
        idle = self._task is None or self._task.done()
        if idle and self._appender.failure is None and (self._delete_due or self._pass_due):
            self._task = asyncio.get_running_loop().create_task(
                self._work(), name=f"rewriting of {self._appender.topic}"
            )

    async def rewrite(self) -> None:
        """Makes one pass, or ends the one that failed. One after another.

        Raises:
            MainstemError: The table is lost, or too much waits; what was done stays.
        """
        async with self._pass_lock:
            if self._end_offset is None:
                self._end_offset = self._latest.shown_end
            is_last = False
            while not is_last:
                await self._commits_first()
                self._end_offset = self._end_of_file(self._end_offset)
                await self._until_shown(self._end_offset)
                is_last = await self._rewrite_chunk(self._end_offset)
            self._end_offset = None

    async def close(self) -> None:
        """Stops, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def _pass_due(self) -> bool:
        state = self._appender.state
        return self._monotonic() >= self._not_before and (
            self._end_offset is not None
            or is_due(state.files(0).record_count, len(self._latest), state.file_count)
        )

    @property
    def _delete_due(self) -> bool:
        return bool(self._removed) and self._removed[0][0] < self._monotonic() - _REMOVED_KEPT_S

    async def _work(self) -> None:
        try:
            await self._delete_removed()
            if self._pass_due:
                await self.rewrite()
            self._pause_s = _PAUSE_S_MIN
        except MainstemError as error:
            self._note_failure(error.message)
        except Exception:
            log.exception("the table %s was not rewritten", self._appender.topic)
            self._pause_s = _PAUSE_S_MAX
        finally:
            self._not_before = self._monotonic() + self._pause_s

    def _note_failure(self, why: str) -> None:
        self._pause_s = min(self._pause_s * 2, _PAUSE_S_MAX)
        log.warning(
            "the table %s was not rewritten, and will be tried again in %g s: %s",
            self._appender.topic,
            self._pause_s,
            why,
        )

    async def _rewrite_chunk(self, end_offset: int) -> bool:
        """Copies the first live rows, and removes what is before the next ones.

        Returns:
            Whether no live row is left before `end_offset`.
        """
        began_at = self._monotonic()
        oldest = self._latest.oldest(end_offset, CHUNK_ROWS)
        encoded = await self._run(partial(_encode, oldest))
        # In one step of the loop: no commit comes between the look and the copies. A row that was
        # superseded meanwhile must not be written after the one that counts.
        current = [one for one in encoded if self._latest.is_newest(one[0])]
        accepted_end = self._appender.log_end_offset(0)
        copied: asyncio.Future[Appended] | None = None
        if current:
            copied = append_rows(self._appender, [pair for _, pair in current], self._now_ms())
            self._latest.accept((placed.row for placed, _ in current), accepted_end)
            accepted_end += len(current)
            copied.add_done_callback(self._show_copies(accepted_end))
        first_offset = self._latest.first_offset(end_offset)
        # What is before `first_offset` was copied, or superseded by what was accepted before now.
        # That has to be durable as well: a crash would bring back neither.
        if copied is not None:
            await asyncio.shield(copied)
        await self._until_shown(accepted_end)
        await self._remove_before(first_offset)
        rest_s = _REST_FACTOR * (self._monotonic() - began_at)
        is_last = first_offset == end_offset
        if not is_last:
            await asyncio.sleep(min(rest_s, _REST_S_MAX))
        return is_last

    async def _commits_first(self) -> None:
        """Waits while much does that others write."""
        while self._appender.queued_bytes > _QUEUED_BYTES_MAX:
            await self._look_again()

    async def _until_shown(self, end_offset: int) -> None:
        while self._latest.shown_end < end_offset:
            await self._look_again()

    async def _look_again(self) -> None:
        await asyncio.sleep(_QUEUE_LOOK_S)
        if self._appender.failure is not None:
            raise self._appender.failure.with_traceback(None)

    def _end_of_file(self, offset: int) -> int:
        """`offset`, or the end of the file that has it inside: a roll-up or a job may have merged
        files across the end of the pass, and what is copied of a file is only won when it goes."""
        files = self._appender.state.files(0).between(offset - 1, offset)
        return max([offset, *(file.last_offset + 1 for file in files)])

    def _show_copies(self, end_offset: int) -> Callable[[asyncio.Future[Appended]], None]:
        def show(future: asyncio.Future[Appended]) -> None:
            if not future.cancelled() and future.exception() is None:
                self._latest.show((), end_offset)

        return show

    async def _remove_before(self, first_offset: int) -> None:
        """Removes the files that are wholly before an offset, whatever wrote them: a job may have
        put others in the place of those that were there."""
        removed: list[str] = []

        def build(state: TableState) -> list[Action]:
            actions = trim_step(state, {0: first_offset}, wall_clock_ms())
            removed[:] = [one.path for one in actions if isinstance(one, Remove)]
            return actions if removed else []

        while self._has_files_before(first_offset):
            await self._appender.change("REWRITE", build)
            now = self._monotonic()
            self._removed.extend((now, path) for path in removed)

    def _has_files_before(self, offset: int) -> bool:
        first = next(iter(self._appender.state.files(0)), None)
        return first is not None and first.last_offset < offset

    async def _delete_removed(self) -> None:
        while self._delete_due:
            await self._run(self._store.delete, self._removed[0][1])
            self._removed.popleft()

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)


def _encode(rows: Sequence[Placed[Row]]) -> list[tuple[Placed[Row], tuple[bytes, bytes | None]]]:
    """The first rows, as many as a chunk may have bytes; one at least."""
    found: list[tuple[Placed[Row], tuple[bytes, bytes | None]]] = []
    size_bytes = 0
    for placed in rows:
        key, value = placed.row.encode()
        size_bytes += len(key) + len(value or b"")
        if found and size_bytes > CHUNK_BYTES:
            break
        found.append((placed, (key, value)))
    return found
