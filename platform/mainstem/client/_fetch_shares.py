"""Which partitions each fetch from one leader asks for. Pure.

At the end of the log one fetch waits for all partitions. A consumer that is behind has two under
way instead: while one answer is read from the data files, the other is on its way. A partition is
in one of them only, so its records stay in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.client._consumer_partitions import Partition


def share_of_first(free: Sequence[Partition], *, second_idle: bool) -> list[Partition]:
    """What the first fetch asks for: everything, or what it does not leave to the second.

    Args:
        free: What is to be fetched and is not under way in the second.
        second_idle: The second has nothing under way, and will take `share_of_second`.
    """
    if not second_idle:
        return list(free)
    left = set(_every_other_behind(free))
    return [one for one in free if one not in left]


def share_of_second(free: Sequence[Partition], *, first_idle: bool) -> list[Partition]:
    """What the second fetch asks for: only partitions that are behind, so it never waits.

    Args:
        free: What is to be fetched and is not under way in the first.
        first_idle: The first has nothing under way, and will take `share_of_first`.
    """
    if first_idle:
        return _every_other_behind(free)
    return [one for one in free if one.behind]


def _every_other_behind(free: Sequence[Partition]) -> list[Partition]:
    return [one for one in free if one.behind][1::2]
