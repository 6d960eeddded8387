"""What was asked, in a few words: a request without records and secrets. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

#: Fields that open something: whoever reads the audit must not get them.
SECRETS: Final = frozenset({"token", "tokens", "session_token", "password", "secret", "metadata"})

#: Items of a list or a map that are told.
_ITEMS_MAX: Final = 10
_DEPTH_MAX: Final = 3
_TEXT_CHARACTERS_MAX: Final = 200


def summary_of(request: Message) -> str:
    """The request as JSON, without fields of bytes and those of `SECRETS`, and with the first few
    items of each list."""
    return json.dumps(_told(request, _DEPTH_MAX), separators=(",", ":"), ensure_ascii=False)


def _told(message: Message, depth: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_BYTES or field.name in SECRETS:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            told[field.name] = _told_map(value)
        elif isinstance(value, (Message, str, bytes, int, float, bool)):
            told[field.name] = _told_value(value, depth)
        else:
            items: list[Any] = [_told_value(one, depth) for one in value[:_ITEMS_MAX]]
            if len(value) > _ITEMS_MAX:
                items.append(f"and {len(value) - _ITEMS_MAX} more")
            told[field.name] = items
    return told


def _told_map(value: Any) -> dict[str, Any]:
    names = sorted(value)
    told = {_text(str(name)): _text(str(value[name])) for name in names[:_ITEMS_MAX]}
    if len(names) > _ITEMS_MAX:
        told["..."] = f"and {len(names) - _ITEMS_MAX} more"
    return told


def _told_value(value: Any, depth: int) -> Any:
    if isinstance(value, Message):
        return _told(value, depth - 1) if depth > 1 else "..."
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    return text if len(text) <= _TEXT_CHARACTERS_MAX else text[: _TEXT_CHARACTERS_MAX - 3] + "..."
