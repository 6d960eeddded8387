"""Logs with keys, runs of keyed compaction over them without Spark, and what should be left."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

from tests.unit.jobs.topic_tables import Appends, Record, heartbeat

from mainstem.delta_log import Committed, Committer, Topics
from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.table import TableCommit
from mainstem.delta_log.topics import TOPICS
from mainstem.jobs.job import NOTHING, Job, JobOutcome, TableView
from mainstem.jobs.keyed_compaction import KeyedCompaction

#: Every file may be compacted at once, and is as soon as there is anything new.
EAGER: dict[str, object] = {
    "cleanup.policy": "compact",
    "compaction.min.age.ms": 0,
    "min.cleanable.dirty.ratio": 0,
}


def run(
    topics: Topics,
    now_ms: int,
    topic: str = "t",
    job: Job[Any, Any] | None = None,
    folder: str = TOPICS,
    alive_ms: int | None = None,
) -> JobOutcome:
    """One run of keyed compaction, or of another job, over one table.

    Args:
        alive_ms: When a gateway was heard of; None: now.
    """
    job = job or KeyedCompaction()
    heartbeat(topics.store, now_ms if alive_ms is None else alive_ms)
    job.begin(topics.store)
    opened = topics.open(topic)
    plan = job.plan(TableView(topic, folder, opened.state), now_ms)
    if plan.nothing:
        return NOTHING
    results = [
        pickle.loads(pickle.dumps(job.run_task(opened.store, pickle.loads(pickle.dumps(task)))))
        for task in plan.tasks
    ]
    return job.commit(opened, plan, results, now_ms)


def append_rows(
    log: Appends,
    rows: Sequence[tuple[bytes | None, bytes | None]],
    *,
    each: int = 3,
    modified_ms: int,
    timestamp_ms: int | None = None,
    partition: int = 0,
) -> None:
    """Appends (key, value) records, `each` to a file."""
    for start in range(0, len(rows), each):
        part = rows[start : start + each]
        log.append(
            partition,
            [value for _, value in part],
            keys=[key for key, _ in part],
            headers=[[("h", b"%d" % index)] for index in range(len(part))],
            timestamps_ms=[modified_ms if timestamp_ms is None else timestamp_ms] * len(part),
            modified_ms=modified_ms,
        )


def begin_at(log: Appends, offset: int) -> None:
    """Has partition 0 begin at an offset, as after retention of all that was before it."""
    state = log.opened.state
    commit = TableCommit.of(
        "TRIM",
        [Register(registers.leo(0), offset), Register(registers.lso(0), offset)],
        timestamp_ms=0,
    )
    outcome = Committer(log.opened.store).commit(state.version + 1, commit)
    assert isinstance(outcome, Committed)
    state.apply(outcome.version, commit.actions)


def survivors(
    records: Iterable[Record], end_offset: int, expiries_ms: dict[int, int], now_ms: int
) -> list[Record]:
    """What a compaction of the records before `end_offset` leaves: the whole of the policy.

    Args:
        expiries_ms: When the tombstone at an offset may go.
    """
    last = {one.key: one.offset for one in records if one.offset < end_offset}
    return [
        one
        for one in records
        if one.offset >= end_offset
        or one.key is None
        or (
            last[one.key] == one.offset
            and not (one.value is None and expiries_ms[one.offset] <= now_ms)
        )
    ]
