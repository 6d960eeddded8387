"""Rows of the audit that wait: bounded, and a flood of refusals counted."""

from __future__ import annotations

from mainstem.ingest_gateway.audit import AuditKind, AuditQueue, AuditRow
from mainstem.ingest_gateway.audit.queue import DIFFERENT_MAX


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def queue(clock: Clock, rows_max: int = 1_000) -> AuditQueue:
    return AuditQueue(rows_max, lambda: 77, clock)


def refusal(name: str = "t", principal: str = "User:eve", host: str = "192.0.2.1") -> AuditRow:
    return AuditRow(
        AuditKind.REFUSAL,
        5,
        principal=principal,
        host=host,
        call="Fetch",
        resources=(name,),
        allowed=False,
        error="TOPIC_AUTHORIZATION_FAILED",
    )


def test_refusals_that_are_the_same_within_a_second_are_one_row_with_their_count() -> None:
    clock = Clock()
    waiting = queue(clock)
    for _ in range(500):
        waiting.add_same(refusal())
    waiting.add_same(refusal("other"))
    clock.now_s += 0.999
    waiting.add_same(refusal())
    clock.now_s += 0.001
    waiting.add_same(refusal())
    assert [(row.resources, row.count) for row in waiting.take(10)] == [
        (("t",), 501),
        (("other",), 1),
        (("t",), 1),
    ]


def test_a_refusal_after_its_like_was_taken_has_a_row_of_its_own() -> None:
    waiting = queue(Clock())
    waiting.add_same(refusal())
    assert [row.count for row in waiting.take(10)] == [1]
    waiting.add_same(refusal())
    waiting.written()
    assert [row.count for row in waiting.take(10)] == [1]


def test_who_asks_for_a_thousand_names_in_a_second_does_not_fill_the_table() -> None:
    clock = Clock()
    waiting = queue(clock)
    for number in range(1_000):
        waiting.add_same(refusal(f"t{number}"))
    waiting.add_same(refusal("t", "User:bob"))
    rows = waiting.take(10_000)
    assert len(rows) == DIFFERENT_MAX + 2
    assert sum(row.count for row in rows) == 1_001
    others = rows[DIFFERENT_MAX]
    assert (others.count, others.resources, others.principal) == (950, (), "User:eve")
    assert rows[-1].principal == "User:bob"
    clock.now_s += 1.0
    waiting.written()
    waiting.add_same(refusal("later"))
    assert [row.resources for row in waiting.take(10)] == [("later",)]


def test_names_that_a_stranger_makes_up_at_sign_in_do_not_fill_the_table() -> None:
    waiting = queue(Clock())
    for number in range(500):
        waiting.add_same(
            AuditRow(AuditKind.SIGN_IN, 5, principal=f"u{number}", host="192.0.2.1", allowed=False)
        )
    rows = waiting.take(10_000)
    assert len(rows) == DIFFERENT_MAX + 1
    assert sum(row.count for row in rows) == 500


def test_what_comes_when_as_many_wait_as_may_is_left_out_and_a_row_tells_how_many() -> None:
    waiting = queue(Clock(), rows_max=100)
    act = AuditRow(AuditKind.ACT, 5, call="DeleteTopic")
    assert [waiting.add(act) for _ in range(103)] == [True] * 100 + [False] * 3
    assert len(waiting) == 100
    rows = waiting.take(60)
    assert [row.kind for row in rows] == [AuditKind.ACT] * 60 + [AuditKind.LEFT_OUT]
    assert (rows[-1].count, rows[-1].time_ms) == (3, 77)
    # What is being written still counts: the table may never take it.
    assert not waiting.add(act)
    waiting.written()
    assert waiting.add(act)
    rows = waiting.take(1_000)
    assert [row.kind for row in rows] == [AuditKind.ACT] * 41 + [AuditKind.LEFT_OUT]
    assert rows[-1].count == 1
    waiting.written()
    assert waiting.is_empty


def test_a_row_has_no_more_of_a_text_than_it_may() -> None:
    waiting = queue(Clock())
    names = tuple(f"{number}" * 400 for number in range(30))
    waiting.add(AuditRow(AuditKind.ACT, 5, principal="ä" * 10_000, resources=names))
    (row,) = waiting.take(1)
    assert (len(row.principal), len(row.resources), row.resource_count) == (300, 20, 30)
    assert max(map(len, row.resources)) == 300


def test_a_clock_that_stands_still_or_goes_back_loses_nothing() -> None:
    clock = Clock()
    waiting = queue(clock)
    waiting.add_same(refusal())
    clock.now_s -= 500
    waiting.add_same(refusal())
    assert sum(row.count for row in waiting.take(10)) == 2
