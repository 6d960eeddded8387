"""How a long request is cut into several."""

from __future__ import annotations

from mainstem.client.coordinator_calls import request_parts
from mainstem.protocol.v1 import groups_pb2


def offsets(count: int, metadata: str = "") -> list[groups_pb2.CommittedOffset]:
    return [
        groups_pb2.CommittedOffset(topic="t", partition=number, offset=5, metadata=metadata)
        for number in range(count)
    ]


def test_parts_have_all_messages_in_their_order_and_no_more_than_their_number() -> None:
    messages = offsets(25)
    parts = list(request_parts(messages, count_max=10))
    assert [len(part) for part in parts] == [10, 10, 5]
    assert [one for part in parts for one in part] == messages


def test_parts_have_no_more_than_their_bytes_unless_one_message_has() -> None:
    messages = [*offsets(8, "x" * 1_000), *offsets(1, "y" * 9_000), *offsets(1)]
    parts = list(request_parts(messages, count_max=100, bytes_max=4_096))
    assert [one for part in parts for one in part] == messages
    assert [len(part) for part in parts] == [4, 4, 1, 1]
    for part in parts:
        request = groups_pb2.CommitOffsetsRequest(offsets=part)
        assert request.ByteSize() <= 4_096 or len(part) == 1


def test_nothing_is_no_part() -> None:
    assert list(request_parts([], count_max=10)) == []
