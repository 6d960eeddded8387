"""Telling what became of records: futures at once, callbacks when the user polls."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from operator import length_hint
from typing import Any, Final

from mainstem.client.callbacks import check_plain, check_returned, note_failure
from mainstem.client.producer.memory import BufferMemory
from mainstem.client.producer.pieces import DeliveryCallback, Piece, Receipts
from mainstem.client.results import RecordMetadata
from mainstem.errors import MainstemError

_log = logging.getLogger("mainstem.client")

#: What awaits.
_INSTEAD: Final = "AsyncProducer.send()"

#: A poll() in another thread within this time is a sign that reports are being served.
_POLLED_RECENTLY_S: Final = 1.0

#: Threads that wait look again so often.
LOOK_EVERY_S: Final = _POLLED_RECENTLY_S / 2


class PieceReports:
    """The delivery reports of one piece that are not served.

    Each one's metadata is made when it is served: as many objects as a full buffer has records
    would keep the garbage collector busy, which takes several times as long as the callbacks.
    Threads may take from `entries` at the same time: each entry comes once.

    Args:
        callbacks: Whom to call.
        places: Each one's metadata.
        error: What all of them are told.
        share: What each holds of buffer.memory until it is served, in bytes.
    """

    __slots__ = ("_callbacks", "entries", "error", "share")

    def __init__(
        self,
        callbacks: list[DeliveryCallback],
        places: Iterable[RecordMetadata],
        error: MainstemError | None,
        share: int,
    ) -> None:
        self._callbacks = iter(callbacks)
        self.entries = zip(self._callbacks, places, strict=False)
        self.error = error
        self.share = share

    def __len__(self) -> int:
        """Those that nobody has taken."""
        return length_hint(self._callbacks)  # exact, of a list's iterator


class Reports:
    """The pieces of one producer that have not ended, the delivery reports of those that have, and
    the failures that nobody asked about. Thread-safe: its lock is its own, and nothing else is
    locked while it is held.

    Args:
        memory: Gets back what a piece held.
        clock: Monotonic seconds.
    """

    def __init__(self, memory: BufferMemory, clock: Callable[[], float]) -> None:
        self._memory = memory
        self._clock = clock
        #: Taken by itself: an interrupt as a Condition is entered would leave it taken for good.
        self._lock = threading.Lock()
        #: Notified when a piece has ended, or reports were served.
        self._progress = threading.Condition(self._lock)
        #: Pieces that have not ended, each with its topic.
        self._undone: dict[Piece, str] = {}
        #: In order, as far as they are not served.
        self._reports: dict[PieceReports, None] = {}
        self._polled_by: tuple[int, float] = (0, float("-inf"))
        #: How deep in `serve` each thread is; two: a callback closes the producer.
        self._serving: dict[int, int] = {}
        self._failure: MainstemError | None = None
        self._failure_count = 0

    def __len__(self) -> int:
        """Reports that wait to be served."""
        with self._lock:
            return self._report_count()

    def _report_count(self) -> int:
        return sum(map(len, self._reports))

    # --------------------------------------------------------------------------- a piece's life

    def begin(self, topic: str, piece: Piece) -> None:
        """A piece is on its way."""
        with self._lock:
            self._undone[piece] = topic

    def replace(self, piece: Piece, parts: Iterable[Piece]) -> None:
        """A piece goes on as its parts."""
        with self._lock:
            topic = self._undone.pop(piece)
            self._undone.update(dict.fromkeys(parts, topic))

    def completed(
        self,
        topic: str,
        piece: Piece,
        base_offsets: Sequence[int] | None,
        table_version: int,
        error: MainstemError | None,
    ) -> None:
        """A piece has ended: tells everyone who asked, then gives its memory back. Once a piece."""
        with self._lock:
            if piece.told:
                return
            piece.told = True
        receipts = piece.receipts
        reports: PieceReports | None = None
        silent_count = 0
        try:
            if piece.promise is not None:
                if error is None:
                    assert base_offsets is not None
                    piece.promise.part_done(
                        piece.part_index, piece.ranges, base_offsets, table_version
                    )
                else:
                    piece.promise.part_failed(error)
            else:
                silent_count = piece.row_count
                if receipts is not None:
                    silent_count -= len(receipts.waiters)
                    metadata = receipts.metadata(topic, piece.ranges, base_offsets, table_version)
                    share = piece.memory_bytes // piece.row_count
                    reports = tell(receipts, metadata, error, share)
                if error is not None and error.abortable:
                    silent_count = 0  # its transaction failed, which the end of that tells
                elif error is not None and silent_count:
                    _log.error(
                        "%d records of topic %s were not delivered: %s", silent_count, topic, error
                    )
        finally:
            report_bytes = len(reports) * reports.share if reports else 0
            self._memory.finished(piece.memory_bytes, report_bytes)
            with self._lock:
                self._undone.pop(piece, None)
                if reports:
                    self._reports[reports] = None
                if error is not None and silent_count:
                    self._failure_count += silent_count
                    self._failure = self._failure or error
                self._progress.notify_all()

    def fail_all(self, error: MainstemError) -> None:
        """Ends every piece that has not ended."""
        with self._lock:
            left = list(self._undone.items())
        for piece, topic in left:
            self.completed(topic, piece, None, -1, error)

    def left_count(self, before: float = math.inf) -> int:
        """Records of pieces with a number below `before` that have not ended, and all reports that
        are not served."""
        with self._lock:
            rows = sum(piece.row_count for piece in self._undone if piece.number < before)
            return rows + self._report_count()

    def wait(self, before: float, timeout_s: float, *, served: bool = True) -> bool:
        """Whether all pieces with a number below `before` have ended and all reports are served.

        If not, and there is nothing to serve, it waits until something changes.

        Args:
            served: False: whatever becomes of the reports.
        """
        with self._lock:
            to_serve = served and self._report_count() > 0
            being_served = served and self._serving.keys() - {threading.get_ident()}
            ended = not any(piece.number < before for piece in self._undone)
            if ended and not to_serve and not being_served:
                return True
            if not to_serve and timeout_s > 0:
                self._progress.wait(timeout_s)
            return False

    def wake(self) -> None:
        """The producer ends: a poll() looks again."""
        with self._lock:
            self._progress.notify_all()

    # ---------------------------------------------------------------------------------- reports

    def poll(self, timeout_s: float | None, closing: Callable[[], bool]) -> int:
        """Calls the callbacks of delivery reports; waits up to `timeout_s` for the first."""
        if self.in_callback:
            return 0  # the poll() or flush() that called the callback serves what comes
        self._polled_by = (threading.get_ident(), self._clock())
        if timeout_s != 0:
            deadline = None if timeout_s is None or timeout_s < 0 else self._clock() + timeout_s
            with self._lock:
                while not self._report_count() and not closing():
                    left_s = LOOK_EVERY_S
                    if deadline is not None:
                        left_s = min(left_s, deadline - self._clock())
                    if left_s <= 0:
                        break
                    self._progress.wait(left_s)
                    self._polled_by = (threading.get_ident(), self._clock())
        return self.serve()

    def serve(self, failures: list[BaseException] | None = None) -> int:
        """Calls the callbacks of the reports that are there; returns how many.

        Args:
            failures: Takes what callbacks raise, and the others are called all the same. None: it
                is raised, and the others stay for the next call.
        """
        thread = threading.get_ident()
        self._polled_by = (thread, self._clock())
        if not self._reports:
            return 0  # most polls: without a lock
        depth = self._serving.get(thread, 0)
        served_count = 0
        try:
            with self._lock:
                self._serving[thread] = depth + 1
                there = list(self._reports)
            for reports in there:
                served_count += self._serve_piece(reports, failures)
        finally:
            with self._lock:
                if depth:
                    self._serving[thread] = depth
                else:
                    self._serving.pop(thread, None)
                self._progress.notify_all()
        return served_count

    def _serve_piece(self, reports: PieceReports, failures: list[BaseException] | None) -> int:
        """Calls what is left of a piece's callbacks; `failures` as of `serve`."""
        error = reports.error
        served_count = 0
        try:
            for callback, where in reports.entries:
                served_count += 1
                try:
                    returned = callback(error, where)
                    if returned is not None:
                        check_returned(returned, callback, "on_delivery", _INSTEAD)
                except BaseException as failure:
                    if failures is None:
                        raise
                    note_failure(failures, failure)
        finally:
            self._memory.served(served_count * reports.share)
            if not reports:
                with self._lock:
                    self._reports.pop(reports, None)
        return served_count

    @property
    def in_callback(self) -> bool:
        """Whether a callback of this producer has called, in this thread."""
        return threading.get_ident() in self._serving

    def served_elsewhere(self) -> bool:
        """Whether another thread has polled just now."""
        thread, at = self._polled_by
        return thread != threading.get_ident() and self._clock() - at < _POLLED_RECENTLY_S

    def forget_failure(self) -> None:
        """What failed was told otherwise."""
        with self._lock:
            self._failure = None
            self._failure_count = 0

    def raise_failure(self) -> None:
        """Raises what failed since the last call and nobody had asked about, if anything did."""
        with self._lock:
            failure, self._failure = self._failure, None
            count, self._failure_count = self._failure_count, 0
        if failure is not None:
            error = type(failure)(
                f"{count} records were not delivered, and nobody had asked for their delivery "
                f"report; the first failed with: {failure.message}"
            )
            error.facts = {**failure.facts, "record_count": str(count)}
            raise error from failure


def check_callback(callback: object) -> None:
    """Refuses what poll() could not call, before its record is queued.

    Raises:
        TypeError: It cannot be called, or is a coroutine function.
    """
    check_plain(callback, "on_delivery", _INSTEAD)


def tell(
    receipts: Receipts,
    metadata: Iterable[RecordMetadata],
    error: MainstemError | None,
    report_bytes: int,
) -> PieceReports | None:
    """Completes futures; returns the callbacks, which poll() will call, if there are any.

    Args:
        metadata: One for each of the receipts.
        report_bytes: What each report holds of buffer.memory until it is served.
    """
    waiters: list[Any] = receipts.waiters
    kinds = set(map(type, waiters))
    if not any(issubclass(kind, (Future, asyncio.Future)) for kind in kinds):
        return PieceReports(waiters, metadata, error, report_bytes)
    callbacks: list[DeliveryCallback] = []
    places: list[RecordMetadata] = []
    by_loop: dict[
        asyncio.AbstractEventLoop, list[tuple[asyncio.Future[RecordMetadata], RecordMetadata]]
    ] = {}
    for waiter, where in zip(waiters, metadata, strict=True):
        if isinstance(waiter, Future):
            if error is None:
                waiter.set_result(where)
            else:
                waiter.set_exception(error)
        elif isinstance(waiter, asyncio.Future):
            by_loop.setdefault(waiter.get_loop(), []).append((waiter, where))
        else:
            callbacks.append(waiter)
            places.append(where)
    for loop, told in by_loop.items():
        try:
            loop.call_soon_threadsafe(_tell_loop, told, error)
        except RuntimeError:
            _log.error("%d records ended after their event loop was closed", len(told))
    return PieceReports(callbacks, places, error, report_bytes) if callbacks else None


def _tell_loop(
    told: list[tuple[asyncio.Future[RecordMetadata], RecordMetadata]], error: MainstemError | None
) -> None:
    for future, where in told:
        if future.done():
            continue  # cancelled by the caller that waited
        if error is None:
            future.set_result(where)
        else:
            future.set_exception(error)
