"""The judge of histories on random ones: valid ones pass, and one fault in a valid one is found."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mainstem.testing import Operation, Read, Run, Send, check_history
from mainstem.testing._history import SendOutcome
from mainstem.testing._verdict import LOG_FINDING_KINDS

#: Idempotent or not, by name.
PRODUCERS = {"alice": True, "bob": False, "dave": True}
PARTITIONS = (0, 1)

Record = tuple[str, int]
T = TypeVar("T")


@dataclass
class Sent:
    """A record's fate."""

    record: Record
    outcome: SendOutcome
    acks: str
    offset: int = -1


@dataclass
class Partition:
    """What happened to one partition: its log, and polls as (consumer, start, end, sought)."""

    log: dict[int, Record] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    polls: list[tuple[str, int, int, bool]] = field(default_factory=list)
    whole: bool = True
    vanished: set[int] = field(default_factory=set)

    def operations(self, partition: int) -> list[Operation]:
        found: list[Operation] = []
        for one in self.sent:
            producer, number = one.record
            send = Send(
                producer,
                "t",
                partition,
                number,
                1,
                one.outcome,
                one.offset,
                one.acks,
                PRODUCERS[producer],
            )
            found.append(send)
        merged = merge([send for send in found if isinstance(send, Send)])
        reads = [
            Read(consumer, "t", partition, self.runs(range(start, end)), sought)
            for consumer, start, end, sought in self.polls
        ]
        if self.whole:
            end = max(self.log, default=-1) + 1
            left = [offset for offset in range(end) if offset not in self.vanished]
            reads.append(Read("table", "t", partition, self.runs(left), whole=True))
        return [*merged, *reads]

    def runs(self, offsets: Iterable[int]) -> tuple[Run, ...]:
        runs: list[Run] = []
        for offset in offsets:
            if offset not in self.log:
                continue
            producer, number = self.log[offset]
            last = runs[-1] if runs else None
            if (
                last is not None
                and (last.producer, last.number + last.count) == (producer, number)
                and last.offset + last.count == offset
            ):
                runs[-1] = replace(last, count=last.count + 1)
            else:
                runs.append(Run(offset, producer, number, 1))
        return tuple(runs)

    def alone(self) -> list[tuple[int, Record]]:
        """(offset, record) of records that are in the log once and were acknowledged there."""
        records = list(self.log.values())
        oks = {one.record for one in self.sent if one.outcome == "ok" and one.acks != "0"}
        return [(o, r) for o, r in self.log.items() if records.count(r) == 1 and r in oks]

    def fate(self, record: Record) -> Sent:
        return next(one for one in self.sent if one.record == record)


def merge(sends: list[Send]) -> list[Send]:
    """Sends of records that follow each other as one, as a producer of batches writes them."""
    merged: list[Send] = []
    for send in sends:
        last = merged[-1] if merged else None
        if last is not None and send == replace(
            last,
            number=last.number + last.count,
            count=1,
            offset=last.offset + last.count if last.offset >= 0 else -1,
        ):
            merged[-1] = replace(last, count=last.count + 1)
        else:
            merged.append(send)
    return merged


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    made = Partition()
    numbers = dict.fromkeys(PRODUCERS, 0)
    for _ in range(draw(st.integers(0, 8))):
        producer = draw(st.sampled_from(sorted(PRODUCERS)))
        count = draw(st.integers(1, 4))
        fate = draw(st.sampled_from(["ok", "ok", "ok", "unknown, stored", "unknown", "fail"]))
        acks = draw(st.sampled_from(["all", "1", "0"]))
        batch = [(producer, numbers[producer] + index) for index in range(count)]
        numbers[producer] += count
        base = len(made.log)
        stored = fate in ("ok", "unknown, stored")
        if stored:
            made.log.update(enumerate(batch, start=base))
            if not PRODUCERS[producer] and draw(st.booleans()):
                copy_base = len(made.log)
                made.log.update(enumerate(batch, start=copy_base))
                base = draw(st.sampled_from([base, copy_base]))
        outcome: SendOutcome = "ok" if fate == "ok" else "fail" if fate == "fail" else "unknown"
        told = outcome == "ok" and acks != "0"
        made.sent += [
            Sent(record, outcome, acks, base + index if told else -1)
            for index, record in enumerate(batch)
        ]
    for consumer in ("carol", "dan"):
        position = 0
        for _ in range(draw(st.integers(0, 4))):
            sought = draw(st.booleans())
            if sought:
                position = draw(st.integers(0, len(made.log)))
            end = draw(st.integers(position, len(made.log)))
            made.polls.append((consumer, position, end, sought))
            position = end
    return made


histories = st.lists(partitions(), min_size=2, max_size=2)


def operations(made: list[Partition]) -> list[Operation]:
    return [one for number, part in enumerate(made) for one in part.operations(number)]


@given(histories)
def test_a_valid_history_passes(made: list[Partition]) -> None:
    assert check_history(operations(made)).findings == []


Mutation = Callable[[Partition, Any], None]


def lose_a_write(part: Partition, draw: Any) -> None:
    offset, _ = draw(st.sampled_from(candidates(part.alone())))
    del part.log[offset]


def store_a_record_twice(part: Partition, draw: Any) -> None:
    once = [record for record in part.log.values() if PRODUCERS[record[0]]]
    part.log[max(part.log, default=-1) + 1] = draw(st.sampled_from(candidates(once)))


def answer_another_offset(part: Partition, draw: Any) -> None:
    told = [one for one in part.sent if one.offset >= 0]
    one = draw(st.sampled_from(candidates(told)))
    wrong = draw(st.integers(0, len(part.log) + 3))
    assume(part.log.get(wrong) != one.record)
    one.offset = wrong


def store_what_was_refused(part: Partition, draw: Any) -> None:
    refused = [one.record for one in part.sent if one.outcome == "fail"]
    part.log[max(part.log, default=-1) + 1] = draw(st.sampled_from(candidates(refused)))


def leave_a_poll_out(part: Partition, draw: Any) -> None:
    end = len(part.log)
    assume(end >= 3)
    first = draw(st.integers(1, end - 2))
    second = draw(st.integers(first + 1, end - 1))
    part.polls += [("eve", 0, first, False), ("eve", second, end, False)]


def repeat_a_poll(part: Partition, draw: Any) -> None:
    found = [index for index, poll in enumerate(part.polls) if poll[2] > poll[1]]
    index = draw(st.sampled_from(candidates(found)))
    consumer, start, end, _ = part.polls[index]
    part.polls.insert(index + 1, (consumer, start, end, False))


def swap_two_records(part: Partition, draw: Any) -> None:
    alone = part.alone()
    pairs = [
        (first, second)
        for first in alone
        for second in alone
        if first[0] < second[0] and first[1][0] == second[1][0]
    ]
    (one, record), (other, second_record) = draw(st.sampled_from(candidates(pairs)))
    part.log[one], part.log[other] = second_record, record
    part.fate(record).offset, part.fate(second_record).offset = other, one


def read_nothing(part: Partition, draw: Any) -> None:
    candidates([one for one in part.sent if one.offset >= 0])
    part.polls.clear()
    part.whole = False


def forget_what_was_read(part: Partition, draw: Any) -> None:
    read = sorted({at for _, start, end, _ in part.polls for at in range(start, end)})
    part.vanished.add(draw(st.sampled_from(candidates(read))))


def candidates(found: list[T]) -> list[T]:
    """What a mutation may choose from; without any, the history is of no use to it."""
    assume(found)
    return found


MUTATIONS: dict[str, Mutation] = {
    "lost write": lose_a_write,
    "duplicate": store_a_record_twice,
    "inconsistent offset": answer_another_offset,
    "aborted read": store_what_was_refused,
    "poll skip": leave_a_poll_out,
    "non-monotonic poll": repeat_a_poll,
    "non-monotonic send": swap_two_records,
    "unseen": read_nothing,
    "vanished": forget_what_was_read,
}


def test_every_kind_has_a_mutation() -> None:
    assert set(MUTATIONS) == set(LOG_FINDING_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MUTATIONS)
@given(made=histories, data=st.data(), partition=st.sampled_from(PARTITIONS))
def test_a_single_fault_in_a_valid_history_is_found(
    kind: str, made: list[Partition], data: st.DataObject, partition: int
) -> None:
    mutated = copy.deepcopy(made)
    MUTATIONS[kind](mutated[partition], data.draw)
    assert check_history(operations(mutated)).counts[kind] > 0
