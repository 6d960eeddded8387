"""What the audit tells of a request: what was asked, and nothing that opens a door."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from mainstem.ingest_gateway.audit import AuditKind, AuditRow, summary_of
from mainstem.ingest_gateway.audit.summary import SECRETS
from mainstem.ingest_gateway.services.audited_calls import AUDITED_CALLS, CallKind
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)

REQUESTS = {
    method.full_name: method.input_type
    for module in (log_pb2, groups_pb2, admin_pb2, transactions_pb2, security_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}

ACTS = sorted(name for name, one in AUDITED_CALLS.items() if one.kind is CallKind.ACT)


def fields(message: Descriptor, depth: int = 5) -> Iterator[FieldDescriptor]:
    for field in message.fields:
        yield field
        if field.message_type is not None and depth:
            yield from fields(field.message_type, depth - 1)


def filled(message: Message, depth: int = 5) -> Message:
    """With something in every field, of bytes and secrets that says so."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["name"] = "told"
        elif field.message_type is not None:
            part = getattr(message, field.name)
            if hasattr(part, "add"):
                part = part.add()
            if depth:
                filled(part, depth - 1)
            part.SetInParent()
        else:
            value: object = 1
            if field.type == FieldDescriptor.TYPE_BYTES:
                value = b"MARK"
            elif field.type == FieldDescriptor.TYPE_STRING:
                value = "MARK" if field.name in SECRETS else "told"
            elif field.type == FieldDescriptor.TYPE_BOOL:
                value = True
            if hasattr(getattr(message, field.name), "append"):
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


@pytest.mark.parametrize("name", ACTS)
def test_of_no_act_bytes_or_secrets_are_told_and_the_rest_is(name: str) -> None:
    request = filled(GetMessageClass(REQUESTS[name])())
    told = summary_of(request)
    assert "MARK" not in told
    assert json.loads(told)


@pytest.mark.parametrize("name", ACTS)
def test_a_field_whose_name_sounds_like_a_secret_is_one(name: str) -> None:
    sounds = re.compile("token|password|secret|credential_|proof|private|salt|auth")
    texts = {
        field.name
        for field in fields(REQUESTS[name])
        if field.type == FieldDescriptor.TYPE_STRING and sounds.search(field.name)
    }
    assert texts <= SECRETS


def test_of_long_lists_and_texts_the_beginning_is_told() -> None:
    request = security_pb2.DeleteAclsRequest()
    for number in range(5_000):
        request.filters.add(name=f"{number}" * 500)
    told = json.loads(summary_of(request))["filters"]
    assert told[-1] == "and 4990 more"
    assert len(told) == 11
    assert {len(one["name"]) for one in told[:-1]} == {200}
    config = admin_pb2.CreateTopicRequest(config={f"k{n}": "v" * 1_000 for n in range(50)})
    told = json.loads(summary_of(config))["config"]
    assert told["..."] == "and 40 more"
    row = AuditRow(AuditKind.ACT, 0, summary=summary_of(request) * 10).bounded()
    assert len(row.summary) == 2_000


def test_whatever_characters_a_name_has_the_row_is_json_of_one_line() -> None:
    name = 'a"b\n\u2028\u0000,:ü\U0001f600' + "x" * 300
    row = AuditRow(
        AuditKind.ACT,
        0,
        principal=name,
        resources=(name,),
        summary=summary_of(admin_pb2.DeleteTopicRequest(topic=name)),
    ).bounded()
    text = json.dumps(row.to_json())
    assert "\n" not in text
    assert json.loads(text)["resources"] == [name[:297] + "..."]
