"""Judges what members of consumer groups saw and were told against the promises of groups. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mainstem.testing._history import (
    OffsetCommit,
    OffsetRow,
    Operation,
    Output,
    Ownership,
    Read,
    Run,
)
from mainstem.testing._verdict import Verdict

Ints = npt.NDArray[np.int64]

#: Topic and partition.
Place = tuple[str, int]


class GroupHistory:
    """The operations of groups, which are judged at the end."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, Place], list[Read | Ownership]] = defaultdict(list)
        self._commits: dict[tuple[str, Place], list[OffsetCommit]] = defaultdict(list)
        self._rows: dict[tuple[str, Place], list[OffsetRow]] = defaultdict(list)
        self._outputs: dict[tuple[str, Place], list[Output]] = defaultdict(list)
        #: Group and topic that it subscribed to.
        self._topics: set[tuple[str, str]] = set()
        #: Groups of which only the output counts.
        self._stored: set[str] = set()

    def add(self, operation: Operation) -> None:
        """Takes an operation; each member's in their order."""
        place = operation.topic, operation.partition
        match operation:
            case Read(group=group) if group:
                self._events[group, place].append(operation)
            case Ownership(group=group, topic=topic):
                self._events[group, place].append(operation)
                self._topics.add((group, topic))
            case OffsetCommit(group=group):
                self._commits[group, place].append(operation)
            case OffsetRow(group=group):
                self._rows[group, place].append(operation)
            case Output(group=group):
                self._outputs[group, place].append(operation)
                self._stored.add(group)

    def judge(self, known: Mapping[Place, Ints], verdict: Verdict) -> None:
        """Notes what is wrong.

        Args:
            known: By place, the offsets of all records in the log.
        """
        for group, topic in sorted(self._topics):
            for place, offsets in known.items():
                if place[0] == topic:
                    _Judge(group, place, verdict).run(
                        offsets,
                        self._events[group, place],
                        self._commits[group, place],
                        self._rows[group, place],
                        self._outputs[group, place] if group in self._stored else None,
                    )


class _Judge:
    """Judges one partition of one group."""

    def __init__(self, group: str, place: Place, verdict: Verdict) -> None:
        self._group = group
        self._place = place
        self._verdict = verdict

    def run(
        self,
        known: Ints,
        events: Sequence[Read | Ownership],
        commits: Sequence[OffsetCommit],
        rows: Sequence[OffsetRow],
        outputs: Sequence[Output] | None,
    ) -> None:
        if outputs is None:
            given = _offsets(
                run for event in events if isinstance(event, Read) for run in event.runs
            )
        else:
            given = _offsets(run for output in outputs for run in output.runs)
            self._check_once(given)
        self._check_delivered(known, given)
        self._check_owners(events)
        newest = _Newest(commits)
        self._check_rising(commits, newest)
        self._check_rows(rows)
        self._check_beginnings(events, newest)

    def _check_once(self, given: Ints) -> None:
        offsets, counts = np.unique(given, return_counts=True)
        twice = offsets[counts > 1]
        if twice.size:
            self._found("delivered twice", f"offset {twice[0]} is in the output again", twice.size)

    def _check_delivered(self, known: Ints, given: Ints) -> None:
        missing = np.setdiff1d(known, given)
        if missing.size:
            self._found(
                "undelivered", f"no member was given offset {missing[0]}", int(missing.size)
            )

    def _check_owners(self, events: Sequence[Read | Ownership]) -> None:
        owners: set[str] = set()
        for event in events:
            if isinstance(event, Read):
                if event.consumer not in owners and event.runs:
                    self._found(
                        "unassigned poll",
                        f"{event.consumer} was given offset {event.runs[0].offset}",
                    )
            elif event.change == "assigned":
                owners.add(event.consumer)
            else:
                owners.discard(event.consumer)

    def _check_rising(self, commits: Sequence[OffsetCommit], newest: _Newest) -> None:
        for commit in commits:
            before = newest.ended_before(commit.began_ms)
            if before is not None and before.offset > commit.offset:
                self._found(
                    "offset went back",
                    f"{commit.consumer} was told {commit.offset}, after {before.consumer} was told "
                    f"{before.offset}",
                )

    def _check_rows(self, rows: Sequence[OffsetRow]) -> None:
        for before, row in pairwise(rows):
            if row.offset < before.offset:
                self._found("offset went back", f"{row.offset} was stored after {before.offset}")

    def _check_beginnings(self, events: Sequence[Read | Ownership], newest: _Newest) -> None:
        begun: dict[str, int] = {}
        for event in events:
            if isinstance(event, Ownership):
                begun.pop(event.consumer, None)
                if event.change == "assigned":
                    begun[event.consumer] = event.at_ms
                continue
            if not event.runs:
                continue
            at_ms = begun.pop(event.consumer, None)
            if event.sought:
                continue
            before = None if at_ms is None else newest.ended_before(at_ms)
            if before is not None and event.runs[0].offset < before.offset:
                self._found(
                    "lost commit",
                    f"{event.consumer} began at offset {event.runs[0].offset}, after "
                    f"{before.consumer} was told that {before.offset} is committed",
                )

    def _found(self, kind: str, message: str, count: int = 1) -> None:
        topic, partition = self._place
        where = f"group {self._group}, topic {topic}, partition {partition}"
        self._verdict.add(kind, f"{where}: {message}", count)


class _Newest:
    """The highest offset that was told before a moment."""

    def __init__(self, commits: Iterable[OffsetCommit]) -> None:
        self._highest: list[OffsetCommit] = []
        for commit in sorted(commits, key=lambda one: one.ended_ms):
            higher = not self._highest or commit.offset > self._highest[-1].offset
            if higher:
                self._highest.append(commit)
        self._ends = np.array([one.ended_ms for one in self._highest], dtype=np.int64)

    def ended_before(self, at_ms: int) -> OffsetCommit | None:
        count = int(np.searchsorted(self._ends, at_ms, side="left"))
        return self._highest[count - 1] if count else None


def _offsets(runs: Iterable[Run]) -> Ints:
    steps = [np.arange(run.offset, run.offset + run.count, dtype=np.int64) for run in runs]
    return np.concatenate([np.zeros(0, dtype=np.int64), *steps])
