"""The judge of groups: valid histories pass, and each kind of fault is caught by its name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mainstem.testing import (
    HistoryWriter,
    OffsetCommit,
    OffsetRow,
    Operation,
    Output,
    Ownership,
    Read,
    Run,
    Send,
    check_history,
    read_history,
)
from mainstem.testing._verdict import GROUP_FINDING_KINDS

Change = Literal["assigned", "revoked", "lost"]

#: Ten records of alice, at their offsets.
LOG: list[Operation] = [
    Send("alice", "t", 0, 0, 10, "ok", 0, idempotent=True),
    Read("table", "t", 0, (Run(0, "alice", 0, 10),), whole=True),
]


def owns(member: str, at_ms: int, change: Change = "assigned") -> Ownership:
    return Ownership(member, "g", "t", 0, change, at_ms)


def poll(member: str, start: int, end: int, *, sought: bool = False) -> Read:
    """The records of [start, end)."""
    runs = (Run(start, "alice", start, end - start),) if end > start else ()
    return Read(member, "t", 0, runs, sought, group="g")


def committed(member: str, offset: int, began_ms: int, ended_ms: int) -> OffsetCommit:
    return OffsetCommit(member, "g", "t", 0, offset, began_ms, ended_ms)


def output(*runs: tuple[int, int]) -> Output:
    return Output(
        "g", "t", 0, tuple(Run(start, "alice", start, end - start) for start, end in runs)
    )


#: Carol reads four, commits three, and is lost; dan goes on from there.
CLEAN: list[Operation] = [
    *LOG,
    owns("carol", 100),
    poll("carol", 0, 4),
    committed("carol", 3, 110, 120),
    owns("carol", 150, "lost"),
    owns("dan", 140),
    poll("dan", 3, 10),
    committed("dan", 9, 160, 170),
    committed("an onlooker", 9, 165, 180),
]


def test_a_member_that_goes_on_from_the_committed_offset_is_fine() -> None:
    assert check_history(CLEAN).findings == []


def test_an_output_that_has_everything_once_is_fine_whatever_members_were_given() -> None:
    reads: list[Operation]
    reads = [owns("carol", 100), poll("carol", 0, 4), owns("dan", 140), poll("dan", 0, 10)]
    assert check_history([*LOG, *reads, output((0, 4), (4, 10))]).findings == []


def without(index: int, *instead: Operation) -> list[Operation]:
    return [*CLEAN[:index], *instead, *CLEAN[index + 1 :]]


#: A planted fault for each kind of finding.
CANARIES: dict[str, list[Operation]] = {
    "undelivered": without(7, poll("dan", 4, 4), poll("dan", 5, 10)),
    "delivered twice": [*CLEAN, output((0, 6), (5, 10))],
    "unassigned poll": without(6),
    "offset went back": [*CLEAN, committed("dan", 8, 190, 200)],
    "lost commit": without(7, poll("dan", 2, 10)),
}


@pytest.mark.parametrize("kind", GROUP_FINDING_KINDS)
def test_the_canary_of_each_kind_is_caught_and_nothing_else_is_found(kind: str) -> None:
    assert {found.kind for found in check_history(CANARIES[kind]).findings} == {kind}


def test_a_finding_names_group_place_members_and_offsets() -> None:
    def only(kind: str) -> str:
        (finding,) = check_history(CANARIES[kind]).findings
        return finding.message.removeprefix("group g, topic t, partition 0: ")

    assert only("undelivered") == "no member was given offset 4"
    assert only("delivered twice") == "offset 5 is in the output again"
    assert only("unassigned poll") == "dan was given offset 3"
    assert only("offset went back") == "dan was told 8, after dan was told 9"
    assert only("lost commit") == (
        "dan began at offset 2, after carol was told that 3 is committed"
    )


def test_commits_that_overlap_have_no_order() -> None:
    assert check_history([*CLEAN, committed("carol", 8, 170, 200)]).ok


def test_rows_of_the_offsets_table_that_go_back_are_found_however_soon_another_follows() -> None:
    def rows(*offsets: int) -> list[Operation]:
        return [OffsetRow("g", "t", 0, offset) for offset in offsets]

    assert check_history([*CLEAN, *rows(3, 3, 9)]).ok
    (finding,) = check_history([*CLEAN, *rows(3, 5, 4, 9)]).findings
    assert str(finding).endswith("partition 0: 4 was stored after 5")
    assert finding.kind == "offset went back"


def test_a_partition_that_no_member_ever_had_is_undelivered_if_the_topic_is_read() -> None:
    other: list[Operation] = [
        Send("alice", "t", 1, 0, 2, "ok", 0),
        Read("table", "t", 1, (Run(0, "alice", 0, 2),), whole=True),
    ]
    assert check_history([*CLEAN, *other]).counts["undelivered"] == 2
    elsewhere = [replace(one, topic="u") for one in other]
    assert check_history([*CLEAN, *elsewhere]).ok


def test_what_a_member_of_another_group_was_given_does_not_count() -> None:
    stranger = Read("eve", "t", 0, (Run(0, "alice", 0, 10),))
    assert check_history([*without(7), stranger]).counts["undelivered"] == 6


def test_a_member_may_be_given_again_what_it_had_after_a_rebalance_but_not_before() -> None:
    again: list[Operation] = [owns("dan", 190, "revoked"), owns("dan", 200), poll("dan", 9, 10)]
    assert check_history([*CLEAN, *again]).ok
    assert check_history([*CLEAN, again[2]]).counts["non-monotonic poll"] == 1


def test_a_member_that_sought_may_begin_before_the_commit() -> None:
    sought = poll("dan", 0, 10, sought=True)
    assert check_history(without(7, sought)).ok


def test_operations_of_groups_are_written_and_read_back(tmp_path: Path) -> None:
    operations = [*CLEAN, OffsetRow("g", "t", 0, 9), output((0, 10))]
    with HistoryWriter(tmp_path / "a.jsonl") as writer:
        for operation in operations:
            writer.write(operation)
    assert list(read_history([tmp_path / "a.jsonl"])) == operations


@dataclass
class Turn:
    """A member's time with the partition: from the committed offset to `end`, of which it commits
    up to `commit`, if that was acknowledged."""

    member: str
    start: int
    ends: list[int]
    commit: int | None
    change: Change
    began_ms: int = 0
    left_out: int = -1

    def operations(self) -> list[Operation]:
        starts = [self.start, *self.ends]
        found: list[Operation] = [owns(self.member, self.began_ms)]
        for start, end in zip(starts, self.ends, strict=False):
            if start <= self.left_out < end:
                found.append(poll(self.member, start, self.left_out))
                start = self.left_out + 1
            found.append(poll(self.member, start, end))
        if self.commit is not None:
            found.append(committed(self.member, self.commit, self.began_ms + 2, self.began_ms + 4))
        return [*found, owns(self.member, self.began_ms + 6, self.change)]


@dataclass
class Group:
    """Turns one after the other; the last one reads to the end."""

    turns: list[Turn] = field(default_factory=list)

    def operations(self) -> list[Operation]:
        return [*LOG, *(one for turn in self.turns for one in turn.operations())]


@st.composite
def groups(draw: st.DrawFn) -> Group:
    made = Group()
    committed_offset = 0
    for number in range(draw(st.integers(1, 6))):
        member = draw(st.sampled_from(["carol", "dan"]))
        ends = sorted(draw(st.lists(st.integers(committed_offset, 10), min_size=1, max_size=3)))
        commit = draw(st.none() | st.integers(committed_offset, ends[-1]))
        change: Change = draw(st.sampled_from(["revoked", "lost"]))
        made.turns.append(Turn(member, committed_offset, ends, commit, change, number * 10))
        committed_offset = committed_offset if commit is None else commit
    if committed_offset < 10:
        made.turns.append(Turn("eve", committed_offset, [10], 10, "revoked", 1_000))
    return made


@given(groups())
def test_a_valid_history_of_a_group_passes(made: Group) -> None:
    assert check_history(made.operations()).findings == []


def begin_before_the_commit(made: Group, draw: Any) -> None:
    found = [turn for turn in made.turns if turn.start > 0 and turn.ends[0] > turn.start]
    assume(found)
    draw(st.sampled_from(found)).start -= 1


def leave_a_record_out(made: Group, draw: Any) -> None:
    offset = draw(st.integers(0, 9))
    for turn in made.turns:
        turn.left_out = offset


def commit_less(made: Group, draw: Any) -> None:
    found = [turn for turn in made.turns if turn.commit is not None]
    assume(len(found) >= 2 and (found[-2].commit or 0) > 0)
    found[-1].commit = draw(st.integers(0, (found[-2].commit or 0) - 1))


MUTATIONS: dict[str, Callable[[Group, Any], None]] = {
    "lost commit": begin_before_the_commit,
    "undelivered": leave_a_record_out,
    "offset went back": commit_less,
}


@pytest.mark.parametrize("kind", MUTATIONS)
@given(made=groups(), data=st.data())
def test_a_single_fault_in_a_valid_history_of_a_group_is_found(
    kind: str, made: Group, data: st.DataObject
) -> None:
    mutated = copy.deepcopy(made)
    MUTATIONS[kind](mutated, data.draw)
    assert check_history(mutated.operations()).counts[kind] > 0
