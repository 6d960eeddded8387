"""The lease that lets one scheduler of a warehouse run the jobs while others wait.

It only keeps schedulers from doing the same work. What keeps two jobs from harming each other is
that each commits through the table's own log, and looks again at what it removes.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable

from mainstem.delta_log.store import wall_clock_ms
from mainstem.jobs.scheduler_table import (
    LEASE,
    Changes,
    LeaseRow,
    Rows,
    SchedulerTable,
    lease_of,
)


class LeaseLost(Exception):
    """Another scheduler has the lease."""

    def __init__(self, holder: LeaseRow) -> None:
        super().__init__(f"the scheduler on {holder.host} (pid {holder.pid}) runs the jobs")
        self.holder = holder


class Lease:
    """One scheduler's part in who runs the jobs. Calls block; one caller at a time.

    Args:
        session_timeout_ms: What we promise: our row is renewed more often than that.
        monotonic: Tells how long the row of another was not renewed; his clock may be wrong.
    """

    def __init__(
        self,
        table: SchedulerTable,
        *,
        session_timeout_ms: int,
        clock_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.incarnation = uuid.uuid4().hex
        self._table = table
        self._session_timeout_ms = session_timeout_ms
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._seen: tuple[LeaseRow, float] | None = None

    def renew(self, more: Callable[[Rows], Changes] = lambda _: {}) -> None:
        """Takes the lease if it is free, or renews it, in one commit with what `more` gives.

        Args:
            more: Rows to replace, as for `RowTable.update`. Not called without the lease.

        Raises:
            LeaseLost: Another scheduler has it, and was heard of within its session timeout.
            StoreUnavailableError: The store failed.
        """

        def change(rows: Rows) -> Changes:
            holder = lease_of(rows)
            if holder is not None and self._is_taken(holder):
                raise LeaseLost(holder)
            return {LEASE: self._row(), **more(rows)}

        self._table.update(change)

    def release(self) -> None:
        """Gives the lease back, if it is ours: who waits has it with its next look.

        Raises:
            StoreUnavailableError: The store failed.
        """

        def change(rows: Rows) -> Changes:
            holder = lease_of(rows)
            ours = holder is not None and holder.incarnation == self.incarnation
            return {LEASE: None} if ours else {}

        self._table.update(change)

    def _is_taken(self, holder: LeaseRow) -> bool:
        """Whether the lease is another's, and has not expired."""
        if holder.incarnation == self.incarnation:
            return False
        now = self._monotonic()
        if self._seen is None or self._seen[0] != holder:
            self._seen = (holder, now)
        return now - self._seen[1] < holder.session_timeout_ms / 1000

    def _row(self) -> LeaseRow:
        return LeaseRow(
            self.incarnation,
            socket.gethostname(),
            os.getpid(),
            self._clock_ms(),
            self._session_timeout_ms,
        )
