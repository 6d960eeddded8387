"""The judge of histories: a clean one passes, and each kind of fault is caught by its name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mainstem.testing import (
    FINDING_KINDS,
    HistoryWriter,
    Operation,
    Read,
    Removed,
    Run,
    Send,
    Verdict,
    check_history,
    read_history,
    runs_of,
)
from mainstem.testing._history import from_json, to_json
from mainstem.testing._verdict import FINDINGS_MAX, LOG_FINDING_KINDS


def sent(number: int, count: int, offset: int, **more: object) -> Send:
    """Alice, who is idempotent, was told that her records are there."""
    fields: dict[str, object] = {"outcome": "ok", "idempotent": True, **more}
    return Send("alice", "t", 0, number, count, offset=offset, **fields)  # type: ignore[arg-type]


def poll(*runs: tuple[int, str, int, int], sought: bool = False) -> Read:
    return Read("carol", "t", 0, tuple(Run(*run) for run in runs), sought)


def whole(*runs: tuple[int, str, int, int]) -> Read:
    return Read("table", "t", 0, tuple(Run(*run) for run in runs), whole=True)


CLEAN: list[Operation] = [
    sent(0, 3, 0),
    Send("bob", "t", 0, 0, 2, "unknown", acks="1"),
    sent(3, 2, 5),
    Send("bob", "t", 0, 2, 1, "fail"),
    Send("bob", "t", 0, 3, 1, "ok", 7, acks="1"),
    Send("bob", "t", 0, 4, 9, "ok", acks="0"),
    poll((0, "alice", 0, 3)),
    poll((3, "bob", 0, 2), (5, "alice", 3, 2)),
    poll((7, "bob", 3, 1)),
    poll((3, "bob", 0, 2), sought=True),
    whole((0, "alice", 0, 3), (3, "bob", 0, 2), (5, "alice", 3, 2), (7, "bob", 3, 1)),
]


def test_a_clean_history_passes_and_is_counted() -> None:
    verdict = check_history(CLEAN)
    assert verdict.findings == []
    assert verdict.ok
    assert verdict.acknowledged_count == {"all": 5, "1": 1, "0": 9}
    assert (verdict.unknown_count, verdict.unknown_stored_count) == (2, 2)
    assert (verdict.failed_count, verdict.stored_count, verdict.duplicate_count) == (1, 8, 0)


def test_no_operations_are_a_clean_history() -> None:
    assert check_history([]).ok


#: A planted fault for each kind of finding.
CANARIES: dict[str, list[Operation]] = {
    "lost write": [
        sent(0, 3, 0),
        sent(3, 1, 3),
        whole((0, "alice", 0, 1), (2, "alice", 2, 1), (3, "alice", 3, 1)),
    ],
    "duplicate": [sent(0, 2, 0), whole((0, "alice", 0, 2), (2, "alice", 1, 1))],
    "inconsistent offset": [sent(0, 2, 1), whole((0, "alice", 0, 2))],
    "aborted read": [sent(0, 2, -1, outcome="fail"), whole((0, "alice", 0, 2))],
    "poll skip": [
        sent(0, 6, 0),
        poll((0, "alice", 0, 2)),
        poll((4, "alice", 4, 2)),
        whole((0, "alice", 0, 6)),
    ],
    "non-monotonic poll": [
        sent(0, 6, 0),
        poll((0, "alice", 0, 4)),
        poll((3, "alice", 3, 3)),
        whole((0, "alice", 0, 6)),
    ],
    "non-monotonic send": [
        sent(0, 1, 1),
        sent(1, 1, 0),
        whole((0, "alice", 1, 1), (1, "alice", 0, 1)),
    ],
    "unseen": [sent(0, 6, 0), poll((0, "alice", 0, 4))],
    "vanished": [
        sent(0, 2, 0),
        poll((0, "alice", 0, 3)),
        Send("alice", "t", 0, 2, 1, "unknown", idempotent=True),
        whole((0, "alice", 0, 2)),
    ],
}


@pytest.mark.parametrize("kind", LOG_FINDING_KINDS)
def test_the_canary_of_each_kind_is_caught_and_nothing_else_is_found(kind: str) -> None:
    verdict = check_history(CANARIES[kind])
    assert {found.kind for found in verdict.findings} == {kind}
    assert not verdict.ok


def only(operations: list[Operation]) -> str:
    """The one finding's text."""
    (finding,) = check_history(operations).findings
    return str(finding)


def test_a_finding_names_topic_partition_producer_number_and_offset() -> None:
    assert only(CANARIES["lost write"]) == (
        "lost write: topic t, partition 0: record 1 of alice, acknowledged at offset 1, "
        "was never read"
    )
    assert "record 1 of alice is at offsets 1 and 2" in only(CANARIES["duplicate"])
    assert "carol was given offset 4 after 1, and 2 records lie between" in only(
        CANARIES["poll skip"]
    )


def test_a_log_that_lost_its_end_lost_writes() -> None:
    assert only([sent(0, 3, 0), whole((0, "alice", 0, 2))]).startswith("lost write")
    assert only([sent(0, 3, 0), whole()]).startswith("lost write")


def test_acks_0_promises_nothing() -> None:
    assert check_history([sent(0, 3, -1, acks="0"), whole()]).ok


def test_copies_are_counted_and_allowed_without_idempotence() -> None:
    verdict = check_history(
        [
            Send("bob", "t", 0, 0, 3, "ok", 3),
            whole((0, "bob", 0, 3), (3, "bob", 0, 3)),
        ]
    )
    assert verdict.findings == []
    assert verdict.duplicate_count == 3


def test_two_producers_that_were_given_one_offset_are_found() -> None:
    finding = only(
        [
            Send("alice", "t", 0, 0, 1, "ok", 0, acks="0"),
            Send("bob", "t", 0, 0, 1, "ok", 0, acks="0"),
        ]
    )
    assert "offset 0 is record 0 of alice and record 0 of bob" in finding


def test_two_readers_that_saw_different_records_at_one_offset_are_found() -> None:
    verdict = check_history(
        [
            Send("alice", "t", 0, 0, 1, "unknown"),
            Send("bob", "t", 0, 0, 1, "unknown"),
            poll((0, "alice", 0, 1)),
            whole((0, "bob", 0, 1)),
        ]
    )
    assert [found.kind for found in verdict.findings] == ["inconsistent offset"]


def test_a_record_that_nobody_sent_is_found() -> None:
    assert "record 7 of eve at offset 0 was sent by nobody" in only([whole((0, "eve", 7, 1))])


def test_the_order_of_answers_counts_where_nobody_has_read() -> None:
    verdict = check_history([sent(0, 1, 5), sent(1, 1, 4)])
    assert verdict.counts["non-monotonic send"] == 1


def test_a_hole_of_the_log_is_no_skip() -> None:
    assert check_history(
        [sent(0, 1, 0), sent(1, 1, 9), poll((0, "alice", 0, 1)), poll((9, "alice", 1, 1))]
    ).ok


def test_what_a_policy_may_have_removed_is_neither_lost_nor_skipped_and_the_rest_is() -> None:
    history: list[Operation] = [
        sent(0, 6, 0),
        poll((0, "alice", 0, 4)),
        Read("dave", "t", 0, (Run(0, "alice", 0, 1), Run(3, "alice", 3, 1))),
        whole((3, "alice", 3, 1)),
    ]
    removed = [Removed("t", 0, 0, 1), Removed("t", 0, 1, 3), Removed("t", 1, 0, 9)]
    verdict = check_history([*history, *removed])
    # Nobody ever saw 4 and 5, and nothing says that they may be gone.
    assert (verdict.counts["lost write"], verdict.counts["poll skip"]) == (2, 0)
    assert check_history([*history, *removed, Removed("t", 0, 4, 6)]).ok
    verdict = check_history([*history, removed[0], Removed("t", 0, 4, 6)])
    assert (verdict.counts["lost write"], verdict.counts["poll skip"]) == (0, 1)


def test_an_acknowledged_record_that_only_an_early_reader_saw_has_vanished() -> None:
    finding = only([sent(0, 3, 0), poll((0, "alice", 0, 3)), whole((0, "alice", 0, 2))])
    assert "vanished" in finding
    assert "record 2 of alice was read at offset 2" in finding


def test_a_new_position_counts_even_if_its_first_poll_gave_nothing() -> None:
    assert check_history(
        [
            sent(0, 6, 0),
            poll((0, "alice", 0, 2)),
            poll(sought=True),
            poll((5, "alice", 5, 1)),
            whole((0, "alice", 0, 6)),
        ]
    ).ok


def test_an_outcome_that_comes_later_wins_over_unknown() -> None:
    begun = Send("alice", "t", 0, 0, 2, "unknown", idempotent=True)
    verdict = check_history([begun, sent(0, 2, 0), whole((0, "alice", 0, 2))])
    assert verdict.ok
    assert verdict.unknown_count == 0
    assert verdict.acknowledged_count == {"all": 2}
    assert check_history([begun, sent(0, 2, 0), whole()]).counts["lost write"] == 2


def test_topics_and_partitions_are_judged_apart() -> None:
    operations: list[Operation] = [
        Send("alice", topic, partition, 0, 1, "ok", 0, idempotent=True)
        for topic in ("a", "b")
        for partition in (0, 1)
    ]
    operations += [
        Read("table", topic, partition, (Run(0, "alice", 0, 1),), whole=True)
        for topic in ("a", "b")
        for partition in (0, 1)
    ]
    assert check_history(operations).ok
    assert check_history(operations[:-1]).counts["unseen"] == 1


def test_of_many_findings_some_are_kept_and_all_are_counted() -> None:
    reads = [poll((5, "alice", 5, 1)) for _ in range(FINDINGS_MAX + 10)]
    verdict = check_history([sent(0, 6, 0), *reads, whole((0, "alice", 0, 6))])
    assert verdict.counts["non-monotonic poll"] == FINDINGS_MAX + 9
    assert len(verdict.findings) == FINDINGS_MAX


def test_histories_of_several_processes_are_written_and_read_back(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, operations in zip(paths, (CLEAN[:5], CLEAN[5:]), strict=True):
        with HistoryWriter(path) as writer:
            for operation in operations:
                writer.write(operation)
    assert list(read_history(paths)) == CLEAN
    assert [from_json(to_json(operation)) for operation in CLEAN] == CLEAN


def test_records_are_runs_of_one_producer_with_numbers_and_offsets_that_follow() -> None:
    producers = pa.array([b"a", b"a", b"b", b"b", b"b", b"a"], pa.binary())
    assert runs_of([3, 4, 5, 7, 8, 9], producers, [0, 1, 0, 1, 3, 2]) == (
        Run(3, "a", 0, 2),
        Run(5, "b", 0, 1),
        Run(7, "b", 1, 1),
        Run(8, "b", 3, 1),
        Run(9, "a", 2, 1),
    )
    assert runs_of([], pa.array([], pa.binary()), []) == ()


def test_the_line_that_a_killed_process_left_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with HistoryWriter(path) as writer:
        writer.write(CLEAN[0])
        writer.write(CLEAN[1])
    path.write_bytes(path.read_bytes()[:-5])
    assert list(read_history([path])) == CLEAN[:1]


@pytest.mark.parametrize("line", ["{}", "[]", '{"op": "wait"}', '{"op": "send"}', "x"])
def test_a_line_that_is_no_operation_is_an_error_that_names_it(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1"):
        list(read_history([path]))


def test_a_verdict_without_findings_is_ok() -> None:
    assert Verdict().ok
    assert set(Verdict().counts) == set(FINDING_KINDS)
