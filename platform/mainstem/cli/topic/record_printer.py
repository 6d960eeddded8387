"""How a record is printed: the formats of `mainstem topic consume`. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mainstem.cli.errors import FormatError
from mainstem.cli.topic.record_reader import unescape

if TYPE_CHECKING:
    from mainstem.client import ConsumerRecord

_Field = Callable[["ConsumerRecord"], bytes]

_FIELDS: Final[dict[str, _Field]] = {
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "t": lambda record: record.topic.encode(),
    "T": lambda record: b"%d" % record.timestamp,
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "h": lambda record: b",".join(
        name.encode() if value is None else name.encode() + b":" + value
        for name, value in record.headers
    ),
}

#: Ways to write the bytes of a key or value.
_AS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
}

_PIECE: Final = re.compile(r"(%(?:[kv]\{[^}]*\}?|.?))", re.DOTALL)


class RecordPrinter:
    """A format such as `%p:%o %v`; see `mainstem topic consume --help`.

    Raises:
        FormatError: An unknown field, or an unknown way to write one.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | _Field] = []
        for piece in _PIECE.split(text):
            if piece == "%%":
                self._parts.append(b"%")
            elif piece.startswith("%"):
                self._parts.append(_field(piece))
            elif piece:
                self._parts.append(unescape(piece))
        last = self._parts[-1] if self._parts else b""
        if not isinstance(last, bytes) or not last.endswith((b"\n", b"\r", b"\0")):
            self._parts.append(b"\n")

    def __call__(self, record: ConsumerRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in self._parts)


def _field(piece: str) -> _Field:
    field = _FIELDS.get(piece[1:2])
    if field is None:
        raise FormatError(
            f"{piece!r} is not a field; there are %k %v %t (topic) %T (timestamp) %p %o %h, and %%"
        )
    if len(piece) == 2:
        return field
    way = _AS.get(piece[3:-1]) if piece.endswith("}") else None
    if way is None:
        raise FormatError(
            f"{piece!r} is not a field; there are %k{{hex}} and %k{{base64}}, also of %v"
        )
    return lambda record: way(field(record))


def json_line(record: ConsumerRecord) -> bytes:
    """A record as one JSON object, which `topic produce --format json` reads back unchanged.

    A key, value or header that is not UTF-8 is {"base64": "..."}.
    """
    return json_object(record)


def json_object(record: ConsumerRecord, *, pretty: bool = False, meta_only: bool = False) -> bytes:
    """As `json_line`.

    Args:
        pretty: Over several lines.
        meta_only: Without the value.
    """
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    if meta_only:
        del fields["value"]
    text = json.dumps(fields, ensure_ascii=False, indent=2 if pretty else None)
    return text.encode() + b"\n"


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
