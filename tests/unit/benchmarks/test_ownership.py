"""A group is complete when every partition has one owner and every member its share."""

from __future__ import annotations

from benchmarks.kafka.ownership import Ownership

PARTITIONS = [("a", n) for n in range(10)] + [("b", n) for n in range(10)]
EVEN, ODD = PARTITIONS[::2], PARTITIONS[1::2]


def test_it_is_complete_since_the_latest_change() -> None:
    ownership = Ownership(PARTITIONS, members=2)
    ownership.tell(0, EVEN, 1.0)
    assert ownership.complete_since_s is None
    ownership.tell(1, ODD, 2.0)
    assert ownership.complete_since_s == 2.0
    assert not ownership.is_stable(2.9, hold_s=1.0)
    assert ownership.is_stable(3.0, hold_s=1.0)


def test_an_earlier_line_that_comes_later_does_not_set_the_clock_back() -> None:
    ownership = Ownership(PARTITIONS, members=2)
    ownership.tell(1, ODD, 2.0)
    ownership.tell(0, EVEN, 1.0)
    assert ownership.complete_since_s == 2.0


def test_a_member_that_owns_all_while_others_wait_does_not_make_it_complete() -> None:
    ownership = Ownership(PARTITIONS, members=2)
    ownership.tell(0, PARTITIONS, 1.0)
    assert ownership.complete_since_s is None
    assert ownership.counts == [20, 0]


def test_two_owners_of_one_partition_are_not_complete() -> None:
    ownership = Ownership(PARTITIONS, members=2)
    ownership.tell(0, EVEN, 1.0)
    ownership.tell(1, [*ODD[:-1], EVEN[0]], 2.0)
    assert ownership.complete_since_s is None


def test_shares_may_differ_by_a_few() -> None:
    ownership = Ownership(PARTITIONS, members=2)
    ownership.tell(0, PARTITIONS[:11], 1.0)
    ownership.tell(1, PARTITIONS[11:], 2.0)
    assert ownership.complete_since_s == 2.0


def test_what_a_lost_member_had_must_be_taken_by_the_others() -> None:
    ownership = Ownership(PARTITIONS, members=2)
    ownership.tell(0, EVEN, 1.0)
    ownership.tell(1, ODD, 2.0)
    ownership.lose(1, 3.0)
    assert ownership.complete_since_s is None
    # A line that it wrote before comes through its pipe later.
    ownership.tell(1, ODD, 2.5)
    ownership.tell(0, PARTITIONS, 5.0)
    assert ownership.complete_since_s == 5.0
