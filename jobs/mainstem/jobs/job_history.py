"""The table `system/job_history`: what each run of a job did to each table. Where it found nothing
to do there is no row: a schedule that checks all topics every minute must not fill a table.

It has the columns of a topic table, one partition, and is appended to by the process that ran a
job. A row's `key` is the job's name; its `value` is JSON, see `JobRun`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system import AppendedRow, AppendedTable, Appending
from mainstem.jobs.job import Counts, JobOutcome, OutcomeKind

NAME: Final = "job_history"

#: A month of runs.
_RETENTION_MS: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job on one table.

    Attributes:
        run_id: The same for all tables of the run.
        topic: A topic's name, or `system/<name>`.
    """

    run_id: str
    job: str
    topic: str
    started_ms: int
    ended_ms: int
    outcome: JobOutcome

    def to_json(self) -> dict[str, object]:
        """The row's value: flat, so that SQL has a short way to each number."""
        outcome = self.outcome
        return {
            "run_id": self.run_id,
            "job": self.job,
            "topic": self.topic,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "outcome": outcome.kind.value,
            "files_before": outcome.before.files,
            "files_after": outcome.after.files,
            "records_before": outcome.before.records,
            "records_after": outcome.after.records,
            "bytes_before": outcome.before.bytes,
            "bytes_after": outcome.after.bytes,
            "attempts": outcome.attempts,
            "table_version": outcome.version,
            "error": outcome.error,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        """The way back."""
        before, after = (
            Counts(body[f"files_{when}"], body[f"records_{when}"], body[f"bytes_{when}"])
            for when in ("before", "after")
        )
        outcome = JobOutcome(
            OutcomeKind(body["outcome"]),
            before,
            after,
            body["attempts"],
            body["table_version"],
            body["error"],
        )
        return cls(
            body["run_id"],
            body["job"],
            body["topic"],
            body["started_ms"],
            body["ended_ms"],
            outcome,
        )


class JobHistory:
    """The table, open; made if it is not there. Calls block; one caller at a time."""

    def __init__(self, store: ObjectStore) -> None:
        self._table = AppendedTable(store, NAME, retention_ms=_RETENTION_MS)

    def append(self, runs: Sequence[JobRun]) -> None:
        """Adds rows, all in one table commit.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: As `commit_beside_leader`.
        """
        rows = [AppendedRow(run.job, run.to_json(), run.ended_ms) for run in runs]
        self._table.append(Appending(rows))

    def newest_first(self) -> Iterator[JobRun]:
        """All rows."""
        for row in self._table.newest_first():
            yield JobRun.from_json(dict(row.value))


def read_history(
    store: ObjectStore, *, job: str | None = None, topic: str | None = None, limit: int = 100
) -> list[JobRun]:
    """The newest runs first.

    Args:
        store: The warehouse.
        job, topic: Only theirs.
        limit: At most so many; 0: all.
    """
    found: list[JobRun] = []
    if not AppendedTable.exists(store, NAME):
        return found
    for run in JobHistory(store).newest_first():
        if job in (None, run.job) and topic in (None, run.topic):
            found.append(run)
            if len(found) == limit:
                break
    return found
