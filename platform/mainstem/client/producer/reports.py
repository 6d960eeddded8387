"""Telling what became of records: futures at once, callbacks when the user polls."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from mainstem.client.callbacks import note_failure
from mainstem.client.producer.delivery import Report, call, tell
from mainstem.client.producer.pieces import Piece
from mainstem.client.producer.sender import Sender
from mainstem.errors import MainstemError

_log = logging.getLogger("mainstem.client")

#: A poll() in another thread within this time is a sign that reports are being served.
_POLLED_RECENTLY_S: Final = 1.0

#: Threads that wait look again so often.
LOOK_EVERY_S: Final = _POLLED_RECENTLY_S / 2


class Reports:
    """The delivery reports of one producer, and the failures that nobody asked about."""

    def __init__(self, sender: Sender, clock: Callable[[], float]) -> None:
        self._sender = sender
        self._clock = clock
        self._reports: deque[Report] = deque()
        self._polled_by: tuple[int, float] = (0, float("-inf"))
        #: How deep in `serve` each thread is; two: a callback closes the producer.
        self._serving: dict[int, int] = {}
        self._failure: MainstemError | None = None
        self._failure_count = 0

    def __len__(self) -> int:
        """Reports that wait to be served."""
        return len(self._reports)

    def completed(
        self,
        topic: str,
        piece: Piece,
        base_offsets: Sequence[int] | None,
        table_version: int,
        error: MainstemError | None,
    ) -> None:
        """A piece left: tells everyone who asked, then gives its memory back. Once a piece."""
        with self._sender.lock:
            if piece.told:
                return
            piece.told = True
        receipts = piece.receipts
        reports: list[Report] = []
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
                if error is not None and silent_count:
                    _log.error(
                        "%d records of topic %s were not delivered: %s", silent_count, topic, error
                    )
        finally:
            # All reports of a piece have the same share.
            report_bytes = len(reports) * reports[0][3] if reports else 0
            sender = self._sender
            with sender.lock:
                sender.undone.pop(piece, None)
                sender.budget.release(piece.memory_bytes - report_bytes)
                sender.budget.to_reports(report_bytes)
                self._reports.extend(reports)
                if error is not None and silent_count:
                    self._failure_count += silent_count
                    self._failure = self._failure or error
                sender.progress.notify_all()

    def poll(self, timeout_s: float | None, closing: Callable[[], bool]) -> int:
        """Calls the callbacks of delivery reports; waits up to `timeout_s` for the first."""
        if self.in_callback:
            return 0  # the poll() or flush() that called the callback serves what comes
        self._polled_by = (threading.get_ident(), self._clock())
        if not self._reports and timeout_s != 0:
            deadline = None if timeout_s is None or timeout_s < 0 else self._clock() + timeout_s
            with self._sender.lock:
                while not self._reports and not closing():
                    left_s = LOOK_EVERY_S
                    if deadline is not None:
                        left_s = min(left_s, deadline - self._clock())
                    if left_s <= 0:
                        break
                    self._sender.progress.wait(left_s)
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
        self._serving[thread] = depth + 1
        served_count = 0
        served_bytes = 0
        try:
            for _ in range(len(self._reports)):
                try:
                    callback, error, metadata, size = self._reports.popleft()
                except IndexError:
                    break  # another thread serves them too
                served_count += 1
                served_bytes += size
                try:
                    call(callback, error, metadata)
                except BaseException as failure:
                    if failures is None:
                        raise
                    note_failure(failures, failure)
        finally:
            if depth:
                self._serving[thread] = depth
            else:
                del self._serving[thread]
            with self._sender.lock:
                self._sender.budget.release_reports(served_bytes)
                self._sender.progress.notify_all()
        return served_count

    @property
    def in_callback(self) -> bool:
        """Whether a callback of this producer has called, in this thread."""
        return threading.get_ident() in self._serving

    @property
    def waiting(self) -> bool:
        """Whether reports wait to be served, or another thread is serving some."""
        return bool(self._reports or self._serving.keys() - {threading.get_ident()})

    def served_elsewhere(self) -> bool:
        """Whether another thread has polled just now."""
        thread, at = self._polled_by
        return thread != threading.get_ident() and self._clock() - at < _POLLED_RECENTLY_S

    def raise_failure(self) -> None:
        """Raises what failed since the last call and nobody had asked about, if anything did."""
        with self._sender.lock:
            failure, self._failure = self._failure, None
            count, self._failure_count = self._failure_count, 0
        if failure is not None:
            error = type(failure)(
                f"{count} records were not delivered, and nobody had asked for their delivery "
                f"report; the first failed with: {failure.message}"
            )
            error.facts = {**failure.facts, "record_count": str(count)}
            raise error from failure
