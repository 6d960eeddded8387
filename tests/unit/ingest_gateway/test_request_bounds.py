"""What repeats in a request is counted in its bytes, before they are parsed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from mainstem.errors import InvalidRequestError, RequestTooLargeError
from mainstem.ingest_gateway.requests import bounds as bounds_module
from mainstem.ingest_gateway.requests.bounds import (
    REPEATS_MAX,
    RequestBounds,
    TooManyForNow,
    top_level,
)
from mainstem.limits import REQUEST_FIELDS_MAX
from mainstem.protocol.v1 import admin_pb2, groups_pb2, log_pb2, security_pb2, transactions_pb2

REQUESTS = [
    GetMessageClass(method.input_type)
    for module in (log_pb2, groups_pb2, admin_pb2, transactions_pb2, security_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def repeated(descriptor: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each field that repeats, from the request on."""
    for field in descriptor.fields:
        if field.is_repeated:
            yield (*path, field)
        if field.message_type is not None:
            yield from repeated(field.message_type, (*path, field))


def with_many(path: tuple[Any, ...], count: int) -> bytes:
    """A request with the field at the end of the path so often, and the others as often as one
    needs them."""
    field = path[-1]
    if field.message_type is not None:
        piece = _tagged(field.number, b"")
    elif field.type == field.TYPE_STRING:
        piece = _tagged(field.number, b"n")
    else:
        piece = bytes([field.number << 3, 1])
    data = piece * count
    for outer in reversed(path[:-1]):
        data = _tagged(outer.number, data)
    return data


def _tagged(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


PATHS = [(request, path) for request in REQUESTS for path in repeated(request.DESCRIPTOR)]


@pytest.mark.parametrize(
    ("request_", "path"), PATHS, ids=[".".join(f.name for f in path) for _, path in PATHS]
)
def test_every_field_that_repeats_has_a_limit_that_is_told_with_its_name(
    request_: type[Message], path: tuple[Any, ...]
) -> None:
    field = path[-1]
    limit = REPEATS_MAX[field.full_name]
    bounds = RequestBounds(request_)
    at_the_limit = with_many(path, limit)
    bounds.check(at_the_limit)
    request_.FromString(at_the_limit)
    name = f"{field.containing_type.name}.{field.name}"
    with pytest.raises(RequestTooLargeError, match=f"more than {limit} of {name}") as caught:
        bounds.check(with_many(path, limit + 1))
    assert caught.value.facts == {"field": name, "limit": str(limit)}


def test_limits_are_for_fields_that_are_there() -> None:
    assert {path[-1].full_name for _, path in PATHS} == set(REPEATS_MAX)


def test_packed_numbers_are_counted_and_so_are_those_of_many_messages() -> None:
    bounds = RequestBounds(groups_pb2.FetchOffsetsRequest)
    limit = REPEATS_MAX["mainstem.v1.TopicPartitions.partitions"]
    request = groups_pb2.FetchOffsetsRequest(group="g")
    for _ in range(4):
        request.partitions.add(topic="t", partitions=[-1, 300] * (limit // 8))
    bounds.check(request.SerializeToString())
    request.partitions.add(topic="t", partitions=[7])
    with pytest.raises(RequestTooLargeError, match=r"TopicPartitions\.partitions"):
        bounds.check(request.SerializeToString())


@pytest.mark.parametrize("piece", [b"\xf8\x07\x01", b"\x0a\x00", b"\x32\x02t\x00"])
def test_fields_that_do_not_repeat_or_are_unknown_are_counted_too(piece: bytes) -> None:
    bounds = RequestBounds(log_pb2.ProduceRequest)
    bounds.check(piece * REQUEST_FIELDS_MAX)
    with pytest.raises(RequestTooLargeError, match=f"more than {REQUEST_FIELDS_MAX} fields"):
        bounds.check(piece * (REQUEST_FIELDS_MAX + 1))


def test_counting_stops_where_the_caller_says() -> None:
    bounds = RequestBounds(log_pb2.MetadataRequest)
    data = log_pb2.MetadataRequest(topics=["t"] * 11).SerializeToString()
    bounds.check(data, 11)
    with pytest.raises(TooManyForNow):
        bounds.check(data, 10)


def _examples(rng: random.Random) -> Iterator[Message]:
    yield log_pb2.ProduceRequest(
        correlation_id=2**63,
        topic="t" * 200,
        acks=log_pb2.ACKS_ALL,
        records=log_pb2.Records(
            records=[
                log_pb2.Record(
                    key=rng.randbytes(rng.randrange(300)),
                    value=rng.randbytes(20_000),
                    headers=[log_pb2.Header(key="k", value=b"v")] * 3,
                    timestamp_ms=-1,
                    partition=3,
                )
            ]
            * 3
        ),
        producer_id=-5,
    )
    yield log_pb2.ProduceRequest(
        arrow=log_pb2.ArrowRecords(
            ipc_stream=rng.randbytes(70_000),
            ranges=[log_pb2.PartitionRange(first_row=2**40)] * 5,
        )
    )
    yield groups_pb2.HeartbeatRequest(
        group="g", owned=[groups_pb2.TopicPartitions(topic="t", partitions=[1, 1000, -1])] * 3
    )
    yield groups_pb2.CommitOffsetsRequest(
        offsets=[
            groups_pb2.CommittedOffset(offset=-1, error=log_pb2.Error(facts={"a": "b", "c": ""}))
        ]
    )
    yield admin_pb2.CreateTopicRequest(topic="t", config={"a": "b"})


def test_whatever_protobuf_reads_passes_and_what_is_damaged_is_refused_or_read(
    rng: random.Random,
) -> None:
    for example in _examples(rng):
        bounds = RequestBounds(type(example))
        data = example.SerializeToString()
        bounds.check(data)
        assert b"".join(part for _, part in top_level(data)) == data
        for _ in range(2_000):
            damaged = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(min(len(damaged), 400))] = rng.randrange(256)
            cut = bytes(damaged[: rng.randrange(len(damaged))] if rng.random() < 0.3 else damaged)
            refused = None
            with contextlib.suppress(RequestTooLargeError):
                try:
                    bounds.check(cut)
                except InvalidRequestError as error:
                    refused = error
            if refused is not None and "wire type" not in refused.message:
                with pytest.raises(DecodeError):
                    type(example).FromString(cut)


def test_a_request_is_not_read_further_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    add = bounds_module._Count._add

    def noted(self: bounds_module._Count, *rest: Any) -> None:
        counted.append(1)
        add(self, *rest)

    monkeypatch.setattr(bounds_module._Count, "_add", noted)
    records = log_pb2.Records(records=[log_pb2.Record()] * 300_000)
    data = log_pb2.ProduceRequest(topic="t", records=records).SerializeToString()
    with pytest.raises(RequestTooLargeError):
        RequestBounds(log_pb2.ProduceRequest).check(data)
    assert len(counted) == REPEATS_MAX["mainstem.v1.Records.records"] + 1
