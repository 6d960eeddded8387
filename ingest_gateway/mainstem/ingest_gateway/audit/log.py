"""The audit as the gateway has it: rows are taken at once, and written a second later, beside it.

Nothing that is asked of a gateway waits for the audit, or fails with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from mainstem.config import GatewayConfig
from mainstem.delta_log.store import ObjectStore, time_elapsed_s, wall_clock_ms
from mainstem.delta_log.system import AppendedRow, AppendedTable, Appending
from mainstem.delta_log.table import OpenTopic
from mainstem.errors import MainstemError, OutcomeUnknownError, StoreUnavailableError
from mainstem.ingest_gateway.audit.queue import AuditQueue
from mainstem.ingest_gateway.audit.row import AuditKind, AuditRow
from mainstem.ingest_gateway.connections import Connection
from mainstem.security import Principal

log = structlog.get_logger()

#: Below `system/`.
TABLE: Final = "audit"

#: Between two commits.
WRITE_EVERY_S: Final = 1.0

#: Rows of one commit.
_COMMIT_ROWS_MAX: Final = 10_000

#: Between two looks for rows that are too old.
_CLEAN_UP_EVERY_S: Final = 3_600.0

#: For what is left, when the gateway ends, and between two attempts then.
CLOSE_S_MAX: Final = 2.0
_AGAIN_S: Final = 0.1


class AuditLog:
    """On the event loop. Rows that wait are lost when the process is killed.

    Args:
        registry: Of the gateway's metrics.
        rows_max: That wait; see `AuditQueue`.
        sample_ratio: The share of reads and writes that has rows.
        retention_ms: For how long rows are kept.
        dice: A number from 0 to less than 1, for the sample.
        now_ms: The time of day.
        elapsed_s: A clock that only goes forward.
        write_every_s: Between two commits.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        rows_max: int,
        sample_ratio: float,
        retention_ms: int,
        dice: Callable[[], float] = random.random,
        now_ms: Callable[[], int] = wall_clock_ms,
        elapsed_s: Callable[[], float] = time_elapsed_s,
        write_every_s: float = WRITE_EVERY_S,
    ) -> None:
        self._queue = AuditQueue(rows_max, now_ms, elapsed_s)
        self._sample_ratio = sample_ratio
        self._retention_ms = retention_ms
        self._dice = dice
        self._now_ms = now_ms
        self._elapsed_s = elapsed_s
        self._write_every_s = write_every_s
        self._rows_written = Counter(
            "mainstem_audit_rows", "Rows written to the audit.", registry=registry
        )
        self._rows_dropped = Counter(
            "mainstem_audit_dropped",
            "What the audit lacks, as too many rows waited.",
            registry=registry,
        )
        self._gateway_id = ""
        self._store: ObjectStore | None = None
        self._on_commit: Callable[[OpenTopic], None] = lambda _: None
        #: Apart from those that append records: the audit of a store that hangs holds up nobody.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._table: AppendedTable | None = None
        self._appending: Appending | None = None
        self._writing: asyncio.Future[None] | None = None
        self._cleaned_at: float | None = None
        self._fails = False

    @classmethod
    def of(cls, config: GatewayConfig, registry: CollectorRegistry) -> AuditLog | None:
        """As the settings say; None: there is no audit."""
        if not config.flag("audit.enabled"):
            return None
        return cls(
            registry,
            rows_max=config.number("audit.queue.rows"),
            sample_ratio=float(config.text("audit.sample.ratio")),
            retention_ms=config.number("audit.retention.ms"),
            write_every_s=WRITE_EVERY_S,
        )

    def begin(
        self, store: ObjectStore, gateway_id: str, on_commit: Callable[[OpenTopic], None]
    ) -> None:
        """What `run` needs.

        Args:
            on_commit: Called after each commit, for maintenance.
        """
        self._store = store
        self._gateway_id = gateway_id
        self._on_commit = on_commit

    # ------------------------------------------------------------------------------------- rows

    @property
    def wants_sample(self) -> bool:
        """Whether the read or write that was just allowed is one of those that get a row."""
        return self._sample_ratio > 0 and self._dice() < self._sample_ratio

    def served(
        self,
        kind: AuditKind,
        connection: Connection,
        principal: Principal,
        call: str,
        *,
        operation: str = "",
        resource_type: str = "",
        resources: tuple[str, ...] = (),
        resource_count: int = 0,
        error: str = "",
        summary: str = "",
    ) -> None:
        """A call that the caller may make has ended."""
        self._took(
            self._queue.add(
                AuditRow(
                    kind,
                    self._now_ms(),
                    self._gateway_id,
                    str(principal),
                    connection.client_id,
                    connection.host,
                    call,
                    operation,
                    resource_type,
                    resources,
                    error=error,
                    summary=summary,
                    resource_count=resource_count,
                )
            )
        )

    def refused(
        self,
        connection: Connection,
        principal: Principal,
        call: str,
        operation: str,
        resource_type: str,
        name: str,
        error: str,
    ) -> None:
        """The caller asked for something that they may not do.

        Args:
            error: The code of what they are told.
        """
        self._took(
            self._queue.add_same(
                AuditRow(
                    AuditKind.REFUSAL,
                    self._now_ms(),
                    self._gateway_id,
                    str(principal),
                    connection.client_id,
                    connection.host,
                    call,
                    operation,
                    resource_type,
                    (name,),
                    allowed=False,
                    error=error,
                )
            )
        )

    def sign_in_failed(
        self, connection: Connection, claimed: str, mechanism: str, error: MainstemError
    ) -> None:
        """Somebody could not prove who they are.

        Args:
            claimed: Who they said they are; empty: not known.
            mechanism: How they tried to prove it.
        """
        self._took(
            self._queue.add_same(
                AuditRow(
                    AuditKind.SIGN_IN,
                    self._now_ms(),
                    self._gateway_id,
                    claimed,
                    connection.client_id,
                    connection.host,
                    "Authenticate",
                    allowed=False,
                    error=error.code,
                    summary=mechanism,
                )
            )
        )

    def _took(self, taken: bool) -> None:
        if not taken:
            self._rows_dropped.inc()

    # ----------------------------------------------------------------------------------- writing

    async def run(self) -> None:
        """Writes what waits, again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(self._write_every_s)
            await self._write()

    async def close(self, timeout_s: float = CLOSE_S_MAX) -> None:
        """Writes what is left, once nobody adds rows and `run` has ended.

        Raises:
            TimeoutError: The store does not answer; its call goes on in a thread.
        """
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while self._store is not None and (
                        self._writing is not None or not self._queue.is_empty
                    ):
                        if not await self._write():
                            await asyncio.sleep(_AGAIN_S)
            if self._writing is not None:
                raise TimeoutError
        finally:
            if not self._queue.is_empty:
                log.error("rows of the audit are lost", rows=len(self._queue))
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _write(self) -> bool:
        """Whether rows were written, and more may wait."""
        if self._store is None:
            return False
        if self._writing is not None:  # of a task that was cancelled
            await asyncio.wait({self._writing})
        if self._appending is None:
            rows = self._queue.take(_COMMIT_ROWS_MAX)
            if rows:
                self._appending = Appending(
                    [AppendedRow(row.principal, row.to_json(), row.time_ms) for row in rows]
                )
        appending, store = self._appending, self._store
        if appending is None and not self._is_clean_up_due():
            return False
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._thread, self._append, store, appending)
        self._writing = writing
        # A task that is cancelled does not end the thread: what it did is taken in all the same.
        writing.add_done_callback(lambda done: self._wrote(done, appending))
        with contextlib.suppress(Exception):  # see `_wrote`
            await asyncio.shield(writing)
            return appending is not None
        return False

    def _append(self, store: ObjectStore, appending: Appending | None) -> None:
        """In the thread."""
        if self._table is None:
            self._table = AppendedTable(store, TABLE, retention_ms=self._retention_ms)
        try:
            if appending is not None:
                self._table.append(appending)
        except (StoreUnavailableError, OutcomeUnknownError):
            raise
        except Exception:  # it was deleted, or is damaged: it is opened again
            self._table = None
            raise
        if self._is_clean_up_due():
            self._cleaned_at = self._elapsed_s()  # also where it fails: there is no hurry
            with contextlib.suppress(MainstemError):
                self._table.clean_up()

    def _is_clean_up_due(self) -> bool:
        at = self._cleaned_at
        return at is None or self._elapsed_s() - at >= _CLEAN_UP_EVERY_S

    def _wrote(self, done: asyncio.Future[None], appending: Appending | None) -> None:
        self._writing = None
        failure = None if done.cancelled() else done.exception()
        if failure is not None:
            if not self._fails:  # once, not every second
                log.error(
                    "the audit cannot be written; rows wait, up to audit.queue.rows",
                    error=getattr(failure, "message", repr(failure)),
                )
            self._fails = True
            return
        if done.cancelled():
            return
        self._fails = False
        if appending is not None:
            self._appending = None
            self._queue.written()
            self._rows_written.inc(len(appending.rows))
        if self._table is not None:
            self._on_commit(self._table.opened)
