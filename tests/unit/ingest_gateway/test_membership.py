"""Who is alive, from listings and a clock."""

from __future__ import annotations

import pytest

from mainstem.delta_log.system import BeatName
from mainstem.ingest_gateway.cluster import Membership
from mainstem.ingest_gateway.cluster.membership import LOOKED_INTERVALS

INTERVAL_S, SESSION_S = 2.0, 6.0
OWN = 99
A, B = BeatName(1, 11), BeatName(2, 22)


def new() -> Membership:
    return Membership(OWN, INTERVAL_S, SESSION_S, 0.0)


def test_a_gateway_is_gone_when_its_object_was_looked_at_for_a_session_and_did_not_change() -> None:
    membership = new()
    for second in range(20):
        # B stops after its heartbeat at 10 s.
        stamps = {A: (second // 2, 1), B: (min(second, 10), 1)}
        membership.look(stamps, float(second))
        assert membership.is_alive(A.incarnation, second + 0.5)
        assert membership.is_alive(B.incarnation, second + 0.5) == (second < 16)
        assert membership.knows(B.incarnation)


def test_time_in_which_nobody_looked_does_not_count() -> None:
    membership = new()
    membership.look({A: (1, 1)}, 0.0)
    assert membership.is_alive(A.incarnation, 100_000.0)
    membership.look({A: (1, 1)}, 100_000.0)
    left_s = SESSION_S - LOOKED_INTERVALS * INTERVAL_S
    assert membership.is_alive(A.incarnation, 100_000.0 + left_s - 0.1)
    assert not membership.is_alive(A.incarnation, 100_000.0 + left_s)


def test_a_clock_that_stands_still_takes_nobody_for_dead() -> None:
    membership = new()
    for _ in range(100):
        membership.look({A: (1, 1)}, 0.0)
    assert membership.is_alive(A.incarnation, 0.0)


@pytest.mark.parametrize("first", [False, True])
def test_one_that_begins_to_drain_is_there_once_and_drains(first: bool) -> None:
    membership = new()
    draining = BeatName(A.key, A.incarnation, draining=True)
    names = [A, draining] if first else [draining, A]
    membership.look(dict.fromkeys(names, (1, 1)), 0.0)
    assert membership.others(0.0) == [draining]


def test_the_own_object_is_none_of_the_others() -> None:
    membership = new()
    membership.look({BeatName(9, OWN): (1, 1)}, 0.0)
    assert membership.others(0.0) == []
    assert not membership.knows_others


def test_objects_of_gateways_that_are_long_gone_are_to_be_deleted_and_no_others() -> None:
    membership = new()
    for second in range(30):
        membership.look({A: (second, 1), B: (0, 1)}, float(second))
        assert membership.forgotten(float(second)) == ([B] if second > 18 else [])


def test_it_settles_when_nobody_comes_goes_or_begins_to_drain() -> None:
    membership = new()
    membership.look({A: (0, 1)}, 1.0)
    assert membership.settled_s(5.0) == 4.0
    membership.look({A: (1, 1), B: (1, 1)}, 5.0)
    assert membership.settled_s(5.5) == 0.5
    # A restart within the session is none: the gateway is the same.
    membership.look({A: (2, 1), BeatName(B.key, 23): (2, 1)}, 6.0)
    assert membership.settled_s(6.0) == 1.0
    membership.look({A: (3, 1), BeatName(B.key, 23, draining=True): (2, 1)}, 7.0)
    assert membership.settled_s(7.5) == 0.5
    # B is gone without a look that said so: by time alone.
    membership.look({A: (3, 1)}, 8.0)
    assert membership.settled_s(8.0) == 1.0


def test_a_name_that_is_written_is_read_and_others_are_not() -> None:
    for name in (A, BeatName(2**63 - 1, 1, draining=True)):
        assert BeatName.parse(name.path().rsplit("/", 1)[1]) == name
    for odd in ("", "x.json", "0" * 16 + "~" + "0" * 16 + "~gone.json", "warehouse.json"):
        assert BeatName.parse(odd) is None
