"""The table `system/job_history`: what each run of a job did to each table. Where it found nothing
to do there is no row: a schedule that checks all topics every minute must not fill a table.

It has the columns of a topic table, one partition, and is appended to by the process that ran a
job. A row's `key` is the job's name; its `value` is JSON, see `JobRun`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from mainstem.delta_log.files import CREATE_TIME, encode_data_file, read_data_file
from mainstem.delta_log.format import Batch, Register, registers
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import TableCommit, TableState, commit_beside_leader
from mainstem.delta_log.topics import SYSTEM, Topics
from mainstem.errors import MainstemError, TopicExistsError, UnknownTopicError
from mainstem.jobs.job import Counts, JobOutcome, OutcomeKind
from mainstem.records import records_to_wire_batch

NAME: Final = "job_history"

#: A month of runs.
_SETTINGS: Final = {"retention.ms": 30 * 86_400_000}


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
        tables = Topics(store, folder=SYSTEM)
        try:
            self._opened = tables.open(NAME)
        except UnknownTopicError:
            with contextlib.suppress(TopicExistsError):
                tables.create(NAME, 1, _SETTINGS)
            self._opened = tables.open(NAME)

    def append(self, runs: Sequence[JobRun]) -> None:
        """Adds rows, all in one table commit.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: As `commit_beside_leader`.
        """
        assert runs
        store = self._opened.store
        batch = records_to_wire_batch(
            [run.job.encode() for run in runs],
            [json.dumps(run.to_json(), separators=(",", ":")).encode() for run in runs],
            None,
            [run.ended_ms for run in runs],
        )
        written: list[str] = []

        def build(state: TableState) -> TableCommit:
            # The offsets are in the file: a runner that was first moves them.
            base_offset = state.log_end_offset(0)
            file, data = encode_data_file(
                0,
                base_offset,
                [batch],
                timestamp_type=CREATE_TIME,
                compression_type="zstd",
                now_ms=runs[-1].ended_ms,
            )
            store.put(file.path, data)
            written.append(file.path)
            return TableCommit.of(
                "APPEND",
                [file, Register(registers.leo(0), file.last_offset + 1)],
                timestamp_ms=runs[-1].ended_ms,
                batches=[Batch(0, base_offset, len(runs))],
            )

        landed = commit_beside_leader(self._opened, build)
        assert landed is not None
        for path in written[:-1]:
            with contextlib.suppress(MainstemError):
                store.delete(path)

    def newest_first(self) -> Iterator[JobRun]:
        """All rows."""
        for file in reversed(self._opened.state.files(0).sorted()):
            batches = list(
                read_data_file(
                    self._opened.store, file, file.base_offset, file.last_offset + 1, ["value"]
                )
            )
            for batch in reversed(batches):
                for value in reversed(batch.column("value").to_pylist()):
                    yield JobRun.from_json(json.loads(value))


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
    if not Topics(store, folder=SYSTEM).exists(NAME):
        return found
    for run in JobHistory(store).newest_first():
        if job in (None, run.job) and topic in (None, run.topic):
            found.append(run)
            if len(found) == limit:
                break
    return found
