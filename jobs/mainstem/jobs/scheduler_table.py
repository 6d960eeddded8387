"""The table `system/job_scheduler`: who schedules the warehouse's jobs, and a row for each job.

A command that pauses a job or asks about it talks to this table, never to the scheduler, so it
works from any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system import RowTable
from mainstem.delta_log.topics import SYSTEM, Topics

NAME: Final = "job_scheduler"

#: The key of the lease. A job's key is `job/` and its name.
LEASE: Final = "scheduler"
_JOB: Final = "job/"


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The scheduler that runs the jobs.

    Attributes:
        incarnation: A new one for each scheduler that starts.
        heartbeat_ms: When it wrote the row, by its own clock.
        session_timeout_ms: Silent for so long, it has lost the lease.
    """

    incarnation: str
    host: str
    pid: int
    heartbeat_ms: int
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class JobRow:
    """What is known of a job. Times are ms since 1970 UTC, None where it never happened.

    Attributes:
        after_ms: What came due until then has been dealt with; None: nothing is known.
        cron: Of the scheduler that last had it; empty: it is not enabled there.
        next_ms: When that scheduler starts it next.
        running: The incarnation of the scheduler that runs it; empty: nobody.
        outcome, error: Of the last run that ended.
    """

    paused: bool = False
    after_ms: int | None = None
    cron: str = ""
    next_ms: int | None = None
    running: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    outcome: str = ""
    error: str = ""
    last_success_ms: int | None = None


Rows = Mapping[str, LeaseRow | JobRow]

#: What to replace rows by; None takes one away.
Changes = Mapping[str, LeaseRow | JobRow | None]


class SchedulerTable(RowTable[LeaseRow | JobRow]):
    """The table, open; made if it is not there. Calls block; one caller at a time."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, NAME, operation="SCHEDULE", encode=asdict, decode=_decode)


def job_key(job: str) -> str:
    """The key of a job's row."""
    return _JOB + job


def lease_of(rows: Rows) -> LeaseRow | None:
    """Who schedules; None: nobody."""
    row = rows.get(LEASE)
    return row if isinstance(row, LeaseRow) else None


def jobs_of(rows: Rows) -> dict[str, JobRow]:
    """The row of each job that was ever scheduled, paused or resumed."""
    return {key.removeprefix(_JOB): row for key, row in rows.items() if isinstance(row, JobRow)}


def set_paused(store: ObjectStore, job: str, paused: bool, now_ms: int) -> bool:
    """Pauses or resumes a job, whether a scheduler runs or not. Blocks.

    A job that is resumed comes at its next time; what the pause left out is not caught up.

    Returns:
        False: it was so already.

    Raises:
        StoreUnavailableError: The store failed.
    """
    changed = False

    def change(rows: Rows) -> Changes:
        nonlocal changed
        row = jobs_of(rows).get(job, JobRow())
        changed = row.paused != paused
        if not changed:
            return {}
        after_ms = row.after_ms if paused else now_ms
        return {job_key(job): replace(row, paused=paused, after_ms=after_ms)}

    _on_table(store, lambda table: table.update(change))
    return changed


def read_rows(store: ObjectStore) -> dict[str, LeaseRow | JobRow]:
    """All rows; none where nothing was ever scheduled. Blocks.

    Raises:
        StoreUnavailableError: The store failed.
    """
    found: dict[str, LeaseRow | JobRow] = {}
    if not Topics(store, folder=SYSTEM).exists(NAME):
        return found
    _on_table(store, lambda table: found.update(table.read()))
    return found


def _on_table(store: ObjectStore, act: Callable[[SchedulerTable], None]) -> None:
    act(SchedulerTable(store))


def _decode(body: Mapping[str, Any]) -> LeaseRow | JobRow:
    return LeaseRow(**body) if "incarnation" in body else JobRow(**body)
