"""Judges what producers were told and what readers saw against the promises of the log. Pure.

Source: the findings of Jepsen's tests of Kafka and Redpanda.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mainstem.testing._group_judge import GroupHistory, Ints, Place
from mainstem.testing._history import Operation, Ownership, Read, Removed, Send
from mainstem.testing._verdict import Verdict


def check_history(operations: Iterable[Operation]) -> Verdict:
    """Judges a history. What one consumer has done must be in its order.

    Duplicates, lost and unseen records are judged by what all reads together saw: give the whole
    content of the log as reads with `whole` where none of them may be missed.
    """
    by_place: dict[Place, tuple[list[Send], list[Read | Ownership], list[Removed]]]
    by_place = defaultdict(lambda: ([], [], []))
    groups = GroupHistory()
    for operation in operations:
        sends, reads, removals = by_place[operation.topic, operation.partition]
        match operation:
            case Send():
                sends.append(operation)
            case Read() | Ownership():
                reads.append(operation)
            case Removed():
                removals.append(operation)
        groups.add(operation)
    verdict = Verdict()
    known: dict[Place, Ints] = {}
    for place, (sends, reads, removals) in sorted(by_place.items()):
        known[place] = _Judge(place, sends, reads, removals, verdict).run()
    groups.judge(known, verdict)
    return verdict


@dataclass(frozen=True, slots=True)
class _Records:
    """Records as columns: whose, which number, at which offset."""

    owners: Ints
    numbers: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.owners)

    def where(self, mask: npt.NDArray[Any]) -> _Records:
        return _Records(self.owners[mask], self.numbers[mask], self.offsets[mask])


class _Judge:
    """Judges one partition."""

    def __init__(
        self,
        place: Place,
        sends: Sequence[Send],
        events: Sequence[Read | Ownership],
        removals: Sequence[Removed],
        verdict: Verdict,
    ) -> None:
        self._place = place
        self._sends = sends
        self._events = events
        self._reads = reads = [event for event in events if isinstance(event, Read)]
        self._removals = removals
        self._verdict = verdict
        names = {send.producer for send in sends}
        names |= {run.producer for read in reads for run in read.runs}
        self._names = sorted(names)
        self._codes = {name: code for code, name in enumerate(self._names)}
        self._idempotent = {send.producer for send in sends if send.idempotent}

    def run(self) -> Ints:
        """Returns every offset at which somebody saw a record that nobody may have removed."""
        seen = self._seen()
        oks = [send for send in self._sends if send.outcome == "ok"]
        acknowledged = self._expand_sends(oks)
        promised = self._expand_sends([send for send in oks if send.acks != "0"])
        refused = self._expand_sends([send for send in self._sends if send.outcome == "fail"])
        sent = self._expand_sends(self._sends)
        self._count(oks, acknowledged, refused, sent, seen)
        self._check_one_record_an_offset(seen, acknowledged)
        self._check_copies(seen)
        self._check_promised(seen, promised)
        self._check_offsets(seen, acknowledged)
        self._check_unsent(seen, acknowledged, refused, sent)
        self._check_stayed()
        self._check_order(seen, "in the log")
        self._check_order(acknowledged.where(acknowledged.offsets >= 0), "as answered")
        known = np.unique(seen.offsets)
        known = known[~self._removed(known)]
        self._check_polls(known)
        return known

    # -- columns ---------------------------------------------------------------------------------

    def _expand_sends(self, sends: Sequence[Send]) -> _Records:
        return self._expand((send.producer, send.number, send.offset, send.count) for send in sends)

    def _seen(self, *, whole: bool | None = None) -> _Records:
        """What readers saw, each (record, offset) once, by offset: all of them, or either those who
        gave the whole content or the others."""
        records = self._expand(
            (run.producer, run.number, run.offset, run.count)
            for read in self._reads
            if whole is None or read.whole == whole
            for run in read.runs
        )
        return _distinct(records)

    def _expand(self, runs: Iterable[tuple[str, int, int, int]]) -> _Records:
        owners, numbers, offsets = [], [], []
        for producer, number, offset, count in runs:
            steps = np.arange(count, dtype=np.int64)
            owners.append(np.full(count, self._codes[producer], dtype=np.int64))
            numbers.append(steps + number)
            offsets.append(steps + offset if offset >= 0 else np.full(count, -1, dtype=np.int64))
        nothing = [np.zeros(0, dtype=np.int64)]
        return _Records(
            np.concatenate(nothing + owners),
            np.concatenate(nothing + numbers),
            np.concatenate(nothing + offsets),
        )

    # -- checks ----------------------------------------------------------------------------------

    def _count(
        self,
        oks: Sequence[Send],
        acknowledged: _Records,
        refused: _Records,
        sent: _Records,
        seen: _Records,
    ) -> None:
        verdict = self._verdict
        for acks in {send.acks for send in oks}:
            records = self._expand_sends([send for send in oks if send.acks == acks])
            count = len(np.unique(_keys(records)))
            verdict.acknowledged_count[acks] = verdict.acknowledged_count.get(acks, 0) + count
        told = np.union1d(_keys(acknowledged), _keys(refused))
        unknown = np.setdiff1d(_keys(sent), told)
        verdict.failed_count += len(np.setdiff1d(_keys(refused), _keys(acknowledged)))
        verdict.unknown_count += len(unknown)
        verdict.unknown_stored_count += len(np.intersect1d(unknown, _keys(seen)))
        verdict.stored_count += len(np.unique(seen.offsets))

    def _check_one_record_an_offset(self, seen: _Records, acknowledged: _Records) -> None:
        placed = acknowledged.where(acknowledged.offsets >= 0)
        rows = _distinct(
            _Records(
                np.concatenate([seen.owners, placed.owners]),
                np.concatenate([seen.numbers, placed.numbers]),
                np.concatenate([seen.offsets, placed.offsets]),
            )
        )
        twice = np.flatnonzero(np.diff(rows.offsets) == 0)
        if twice.size:
            at = twice[0]
            self._found(
                "inconsistent offset",
                f"offset {rows.offsets[at]} is {self._record(rows.owners[at], rows.numbers[at])} "
                f"and {self._record(rows.owners[at + 1], rows.numbers[at + 1])}",
                twice.size,
            )

    def _check_copies(self, seen: _Records) -> None:
        order = np.lexsort((seen.offsets, seen.numbers, seen.owners))
        seen = seen.where(order)
        again = (np.diff(seen.owners) == 0) & (np.diff(seen.numbers) == 0)
        self._verdict.duplicate_count += int(again.sum())
        once = [self._codes[name] for name in self._idempotent]
        wrong = np.flatnonzero(again & np.isin(seen.owners[1:], once))
        if wrong.size:
            at = wrong[0]
            self._found(
                "duplicate",
                f"{self._record(seen.owners[at], seen.numbers[at])} is at offsets "
                f"{seen.offsets[at]} and {seen.offsets[at + 1]}",
                wrong.size,
            )

    def _check_promised(self, seen: _Records, promised: _Records) -> None:
        missing = promised.where(~np.isin(_keys(promised), _keys(seen)))
        missing = missing.where(~self._removed(missing.offsets))
        if any(read.whole for read in self._reads):
            end = np.int64(2**62)
        else:
            end = seen.offsets.max(initial=-1)
        lost = missing.where(missing.offsets <= end)
        behind = missing.where(missing.offsets > end)
        for kind, records in (("lost write", lost), ("unseen", behind)):
            if len(records):
                self._found(
                    kind,
                    f"{self._record(records.owners[0], records.numbers[0])}, acknowledged at "
                    f"offset {records.offsets[0]}, was never read",
                    len(records),
                )

    def _check_offsets(self, seen: _Records, acknowledged: _Records) -> None:
        placed = acknowledged.where(
            (acknowledged.offsets >= 0) & np.isin(_keys(acknowledged), _keys(seen))
        )
        wrong = placed.where(~_contains(seen, placed))
        if len(wrong):
            self._found(
                "inconsistent offset",
                f"{self._record(wrong.owners[0], wrong.numbers[0])} was answered with offset "
                f"{wrong.offsets[0]} and is not there",
                len(wrong),
            )

    def _check_unsent(
        self, seen: _Records, acknowledged: _Records, refused: _Records, sent: _Records
    ) -> None:
        certainly = np.setdiff1d(_keys(refused), _keys(acknowledged))
        aborted = seen.where(np.isin(_keys(seen), certainly))
        unsent = seen.where(~np.isin(_keys(seen), _keys(sent)))
        for records, why in ((aborted, "was refused"), (unsent, "was sent by nobody")):
            if len(records):
                self._found(
                    "aborted read",
                    f"{self._record(records.owners[0], records.numbers[0])} at offset "
                    f"{records.offsets[0]} {why}",
                    len(records),
                )

    def _check_stayed(self) -> None:
        """A reader of the durable mark may have been given what is in no table yet."""
        if not any(read.whole for read in self._reads):
            return
        given = self._seen(whole=False)
        gone = given.where(~np.isin(given.offsets, self._seen(whole=True).offsets))
        gone = gone.where(~self._removed(gone.offsets))
        if len(gone):
            self._found(
                "vanished",
                f"{self._record(gone.owners[0], gone.numbers[0])} was read at offset "
                f"{gone.offsets[0]}, where the log has nothing",
                len(gone),
            )

    def _check_order(self, records: _Records, where: str) -> None:
        """By number, a producer's records have rising offsets; of copies the first counts."""
        records = records.where(np.lexsort((records.offsets, records.numbers, records.owners)))
        keys = _keys(records)
        records = records.where(np.flatnonzero(np.diff(keys, prepend=-1) != 0))
        same = np.diff(records.owners) == 0
        wrong = np.flatnonzero(same & (np.diff(records.offsets) <= 0))
        if wrong.size:
            at = wrong[0]
            self._found(
                "non-monotonic send",
                f"{self._record(records.owners[at], records.numbers[at])} is at offset "
                f"{records.offsets[at]} {where}, number {records.numbers[at + 1]} at "
                f"{records.offsets[at + 1]}",
                wrong.size,
            )

    def _check_polls(self, known: Ints) -> None:
        positions: dict[str, int] = {}
        for read in self._events:
            if isinstance(read, Ownership) or read.sought or read.whole:
                positions.pop(read.consumer, None)
            if isinstance(read, Ownership):
                continue
            position = positions.get(read.consumer)
            for run in read.runs:
                if position is not None and run.offset < position:
                    self._found(
                        "non-monotonic poll",
                        f"{read.consumer} was given offset {run.offset} after {position - 1}",
                    )
                elif position is not None and run.offset > position:
                    between = np.searchsorted(known, [position, run.offset])
                    skipped = int(between[1] - between[0])
                    if skipped:
                        self._found(
                            "poll skip",
                            f"{read.consumer} was given offset {run.offset} after {position - 1}, "
                            f"and {skipped} records lie between",
                        )
                position = run.offset + run.count
            if position is not None:
                positions[read.consumer] = position

    def _removed(self, offsets: Ints) -> npt.NDArray[np.bool_]:
        """For each offset, whether a policy may have taken its record."""
        gone = np.zeros(len(offsets), dtype=np.bool_)
        for one in self._removals:
            gone |= (offsets >= one.start_offset) & (offsets < one.end_offset)
        return gone

    def _found(self, kind: str, message: str, count: int = 1) -> None:
        topic, partition = self._place
        self._verdict.add(kind, f"topic {topic}, partition {partition}: {message}", count)

    def _record(self, owner: Any, number: Any) -> str:
        return f"record {number} of {self._names[owner]}"


def _keys(records: _Records) -> Ints:
    """One number for each record, whatever its offset."""
    assert records.numbers.max(initial=0) < 2**40
    return np.asarray(records.owners << 40 | records.numbers, dtype=np.int64)


def _distinct(records: _Records) -> _Records:
    """Each record at each of its offsets once, by offset."""
    records = records.where(np.lexsort((records.numbers, records.owners, records.offsets)))
    keys = _keys(records)
    new = (np.diff(records.offsets, prepend=-2) != 0) | (np.diff(keys, prepend=-1) != 0)
    return records.where(new)


def _contains(held: _Records, asked: _Records) -> npt.NDArray[np.bool_]:
    """For each asked record, whether it is held at its offset. `held` is sorted by offset."""
    found = np.zeros(len(asked), dtype=np.bool_)
    first = np.searchsorted(held.offsets, asked.offsets, side="left")
    last = np.searchsorted(held.offsets, asked.offsets, side="right")
    keys, wanted = _keys(held), _keys(asked)
    # One record an offset is the rule; where there are more, each is looked at.
    for step in range(int((last - first).max(initial=0))):
        at = np.minimum(first + step, len(held) - 1)
        found |= (first + step < last) & (keys[at] == wanted)
    return found
