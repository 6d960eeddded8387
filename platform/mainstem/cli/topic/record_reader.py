"""How a line of input becomes a record: the formats of `mainstem topic produce`. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mainstem.cli.errors import FormatError

_FIELDS: Final = {
    "k": "key",
    "v": "value",
    "T": "timestamp",
    "p": "partition",
    "h": "headers",
}
_BRACE: Final = r"\x7b"
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


@dataclass(frozen=True, slots=True)
class InputRecord:
    """One record of the input. None: not given, or null."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    partition: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordFormat:
    r"""A format such as `%k\t%v\n`.

    `%k` key, `%v` value, `%T` timestamp in ms since 1970, `%p` partition, `%h` headers as
    `name:value,name:value`, `%%` a percent sign; `\n`, `\t`, `\r`, `\0`, `\\` and `\xNN` are bytes.
    A field ends where the text after it begins. What follows the last field ends a record, by
    default a line feed.

    Attributes:
        delimiter: What ends a record.
        fields: The names of its fields.

    Raises:
        FormatError: An unknown field, one twice, two with nothing between, or a brace after one: it
            looks like a way to write the field, which only printing has, and would end a record.
    """

    def __init__(self, text: str) -> None:
        parts = _parse(text)
        self.fields = [part for part in parts if isinstance(part, str)]
        if not self.fields:
            raise FormatError("the format has no field; the least is %v")
        for name in self.fields:
            if self.fields.count(name) > 1:
                raise FormatError(f"the format has the {name} twice")
        self.delimiter: bytes = b"\n"
        if isinstance(last := parts[-1], bytes):
            self.delimiter = last
            parts.pop()
        self._pattern = re.compile(_regex(parts), re.DOTALL)
        self._text = text

    def parse(self, line: bytes) -> InputRecord:
        """Reads one record, without its delimiter.

        Raises:
            FormatError: It does not fit.
        """
        found = self._pattern.fullmatch(line)
        if found is None:
            raise FormatError(f"{_shown(line)} does not fit the format {self._text!r}")
        fields: dict[str, bytes] = found.groupdict()
        return InputRecord(
            value=fields.get("value"),
            key=fields.get("key"),
            timestamp_ms=_number(fields, "timestamp"),
            partition=-1 if (number := _number(fields, "partition")) is None else number,
            headers=_headers(fields.get("headers", b"")),
        )


class KeyDelimiterFormat:
    """One record a line: the key, a delimiter, the value. Without the delimiter: null key.

    Attributes:
        delimiter: What ends a record.
    """

    delimiter = b"\n"
    fields = ("key", "value")

    def __init__(self, key_delimiter: str) -> None:
        self._key_delimiter = unescape(key_delimiter)
        if not self._key_delimiter:
            raise FormatError("the key's delimiter is empty")

    def parse(self, line: bytes) -> InputRecord:
        """Reads one line."""
        key, separator, value = line.partition(self._key_delimiter)
        return InputRecord(value, key) if separator else InputRecord(line)


class JsonFormat:
    """Records as `mainstem topic consume --format json` prints them, one object a line.

    `value` has to be there; `key`, `headers`, `timestamp` and `partition` may be. `topic` and
    `offset` do not count. Bytes are a string, null, or {"base64": "..."}.

    Attributes:
        delimiter: What ends a record.
    """

    delimiter = b"\n"
    fields = ("key", "value", "headers", "timestamp", "partition")

    def parse(self, line: bytes) -> InputRecord:
        """Reads one line.

        Raises:
            FormatError: It is not such an object.
        """
        try:
            found = json.loads(line)
        except ValueError as error:
            raise FormatError(f"{_shown(line)} is not JSON: {error}") from None
        if not isinstance(found, dict) or "value" not in found:
            raise FormatError(
                f"{_shown(line)} is not a record as `topic consume --format json` prints it: an "
                'object with "value". Without --format json, a line is a value'
            )
        if unknown := sorted(set(found) - {*self.fields, "topic", "offset"}):
            raise FormatError(f"{_shown(line)} has {unknown[0]!r}, which a record does not have")
        partition = _whole_number(found, "partition")
        return InputRecord(
            value=_json_bytes(found["value"], "value"),
            key=_json_bytes(found.get("key"), "key"),
            timestamp_ms=_whole_number(found, "timestamp"),
            partition=-1 if partition is None else partition,
            headers=_json_headers(found.get("headers") or []),
        )


def _whole_number(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(f"the {name} is {value!r}; it must be a whole number, 0 or more")
    return value


def _json_bytes(value: Any, name: str) -> bytes | None:
    try:
        if value is None:
            return None
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and set(value) == {"base64"}:
            return base64.b64decode(value["base64"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise FormatError(f"the {name} cannot be read: {error}") from None
    raise FormatError(f'the {name} must be a string, null, or {{"base64": "..."}}')


def _json_headers(pairs: Any) -> tuple[tuple[str, bytes | None], ...]:
    try:
        found = [(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        raise FormatError('the headers must be a list of ["name", value]') from None
    if not all(isinstance(name, str) and name for name, _ in found):
        raise FormatError("a header has no name")
    return tuple((name, _json_bytes(value, f"header {name}")) for name, value in found)


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Reads `name:value`; `name` alone is a header whose value is null.

    Raises:
        FormatError: The name is empty.
    """
    name, separator, value = text.partition(":")
    if not name:
        raise FormatError(f"the header {text!r} has no name; write name:value")
    return name, value.encode() if separator else None


def unescape(text: str) -> bytes:
    r"""The bytes of a text with `\n`, `\t`, `\r`, `\0`, `\\` and `\xNN`.

    Raises:
        FormatError: Another character after a backslash.
    """
    return b"".join(_characters(text))


def _characters(text: str) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        if text[at] != "\\":
            yield text[at].encode()
            at += 1
            continue
        what = text[at + 1 : at + 2]
        if what in _ESCAPES and what:
            yield _ESCAPES[what]
            at += 2
        elif re.fullmatch(r"x[0-9a-fA-F]{2}", text[at + 1 : at + 4]):
            yield bytes.fromhex(text[at + 2 : at + 4])
            at += 4
        else:
            raise FormatError(
                rf"\{what} means nothing here; there are \n \t \r \0 \\ and \xNN (two hex digits)"
            )


def _parse(text: str) -> list[str | bytes]:
    """Field names (str) and the texts between them (bytes)."""
    parts: list[str | bytes] = []
    for piece in re.split(r"(%.?)", text, flags=re.DOTALL):
        if piece.startswith("%") and piece != "%%":
            name = _FIELDS.get(piece[1:])
            if piece == "%t":
                raise FormatError(
                    "%t is the topic, which the command names already; the timestamp is %T"
                )
            if name is None:
                raise FormatError(f"{piece!r} is not a field; there are %k %v %T %p %h, and %%")
            if parts and isinstance(parts[-1], str):
                raise FormatError(
                    f"nothing stands between the {parts[-1]} and the {name}; "
                    "put something there that ends the first"
                )
            parts.append(name)
        elif piece:
            if piece.startswith("{") and parts and isinstance(parts[-1], str):
                raise FormatError(
                    f"{piece!r} after the {parts[-1]} would end it; if that is meant, write "
                    f"{_BRACE + piece[1:]}. Records that `topic consume --format json` printed are "
                    "read with --format json"
                )
            literal = b"%" if piece == "%%" else unescape(piece)
            if parts and isinstance(parts[-1], bytes):
                parts[-1] += literal
            else:
                parts.append(literal)
    return parts


def _regex(parts: list[str | bytes]) -> bytes:
    last = len(parts) - 1
    return b"".join(
        re.escape(part)
        if isinstance(part, bytes)
        else b"(?P<%b>.*%b)" % (part.encode(), b"" if index == last else b"?")
        for index, part in enumerate(parts)
    )


def _number(fields: dict[str, bytes], name: str) -> int | None:
    text = fields.get(name)
    if text is None:
        return None
    if not re.fullmatch(rb"\s*\d+\s*", text):
        raise FormatError(f"the {name} is {_shown(text)}; it must be a whole number, 0 or more")
    return int(text)


def _headers(text: bytes) -> tuple[tuple[str, bytes | None], ...]:
    if not text:
        return ()
    found = []
    for pair in text.split(b","):
        name, separator, value = pair.partition(b":")
        try:
            decoded = name.decode()
        except UnicodeDecodeError:
            raise FormatError(f"the header's name {_shown(name)} is not UTF-8") from None
        if not decoded:
            raise FormatError(f"the header {_shown(pair)} has no name; write name:value")
        found.append((decoded, value if separator else None))
    return tuple(found)


def _shown(data: bytes) -> str:
    text = data[:60].decode(errors="replace")
    return repr(text + "…" if len(data) > 60 else text)
