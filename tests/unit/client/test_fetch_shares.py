"""Which partitions the two fetches from one leader ask for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem.client import TopicPartition
from mainstem.client.consumer.fetching import share_of_first, share_of_second
from mainstem.client.consumer.partitions import Partition


def partitions(behind: list[bool]) -> list[Partition]:
    made = []
    for number, more in enumerate(behind):
        one = Partition(TopicPartition("t", number))
        one.go_to(5)
        one.high_watermark = 6 if more else 5
        made.append(one)
    return made


def numbers(share: list[Partition]) -> list[int]:
    return [one.partition for one in share]


@given(st.lists(st.booleans(), max_size=9), st.booleans())
def test_both_together_ask_for_every_partition_once_whoever_comes_first(
    behind: list[bool], first_comes_first: bool
) -> None:
    free = partitions(behind)
    if first_comes_first:
        first = share_of_first(free, second_idle=True)
        second = share_of_second([one for one in free if one not in first], first_idle=False)
    else:
        second = share_of_second(free, first_idle=True)
        first = share_of_first([one for one in free if one not in second], second_idle=False)

    assert sorted(numbers(first) + numbers(second)) == numbers(free)
    assert all(one.behind for one in second)
    assert len(second) == sum(behind) // 2


def test_one_fetch_waits_for_all_at_the_end_of_the_log() -> None:
    free = partitions([False, False, False])

    assert share_of_first(free, second_idle=True) == free
    assert share_of_second(free, first_idle=True) == []


def test_one_partition_alone_is_the_firsts() -> None:
    free = partitions([True])

    assert share_of_first(free, second_idle=True) == free
    assert share_of_second(free, first_idle=True) == []


def test_a_new_partition_is_not_known_to_be_behind() -> None:
    assert not Partition(TopicPartition("t", 0)).behind
