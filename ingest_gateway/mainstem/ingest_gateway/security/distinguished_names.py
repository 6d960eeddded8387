"""Names of X.509 certificates as text, in the form of Java and so of Kafka.

RFC 2253 as `X500Principal.getName("RFC2253")` has it: the last part of the name first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: What has a keyword; other attributes are written as OID=#HEX.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

#: How the text of a string type is written, by its tag. Java counts no other type as a string.
_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "utf-8",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "utf-8",  # IA5String
    0x1B: "utf-8",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}

_ESCAPED: Final = frozenset(',=+<>#;"\\')

#: The tag of the version in a certificate, which may be missing.
_VERSION: Final = 0xA0


def subject_of(tbs_certificate: bytes) -> str:
    """The subject of a certificate, as `CN=alice,OU=trade,O=example,C=DE`.

    Args:
        tbs_certificate: The part of it that is signed, in DER.

    Raises:
        ValueError: It is not in DER.
    """
    (_, certificate), *_ = _values(tbs_certificate)
    fields = [content for tag, content in _values(certificate) if tag != _VERSION]
    if len(fields) < 5:
        raise ValueError("the certificate lacks its subject")
    # serial number, algorithm, issuer, validity, subject
    return _name(fields[4])


def _name(name: bytes) -> str:
    parts = [
        "+".join(_attribute(attribute) for _, attribute in _values(part))
        for _, part in _values(name)
    ]
    return ",".join(reversed(parts))


def _attribute(attribute: bytes) -> str:
    found = list(_values(attribute))
    if len(found) != 2:
        raise ValueError("an attribute of the name is no pair of a type and a value")
    (_, oid_bytes), (tag, value) = found
    oid = _oid(oid_bytes)
    keyword = _KEYWORDS.get(oid)
    if keyword is not None and tag in _ENCODINGS:
        return f"{keyword}={_escaped(value.decode(_ENCODINGS[tag]))}"
    return f"{keyword or oid}=#{_encoded(tag, value).hex()}"


def _escaped(text: str) -> str:
    lead = len(text) - len(text.lstrip(" \r"))
    trail = len(text.rstrip(" \r"))
    shown: list[str] = []
    for index, character in enumerate(text):
        if character == "\0":
            shown.append("\\00")
        elif character in _ESCAPED or not lead <= index < trail:
            shown.append(f"\\{character}")
        else:
            shown.append(character)
    return "".join(shown)


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each value that `data` has one after the other."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("it ends in the middle of a value")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise ValueError("it ends in the middle of a value")
        yield tag, data[at : at + size]
        at += size


def _encoded(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _oid(data: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an attribute of the name has no type")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
