"""How a line of `mainstem topic produce` becomes a record."""

from __future__ import annotations

import io

import pytest

from mainstem.cli.errors import FormatError
from mainstem.cli.topic.produce import split_records
from mainstem.cli.topic.record_reader import (
    InputRecord,
    KeyDelimiterFormat,
    RecordFormat,
    parse_header,
    unescape,
)


def test_a_format_of_value_alone_takes_the_whole_line() -> None:
    assert RecordFormat("%v").parse(b"a b\tc") == InputRecord(b"a b\tc")


def test_a_field_ends_where_the_text_after_it_begins_and_the_last_takes_the_rest() -> None:
    parsed = RecordFormat(r"%T|%p|%k => %v\n").parse(b"1700000000000|3|a key => v => w|x")
    assert parsed == InputRecord(b"v => w|x", b"a key", 1_700_000_000_000, 3)


def test_an_empty_field_is_empty_and_a_missing_one_is_null() -> None:
    assert RecordFormat("%k,%v").parse(b",") == InputRecord(b"", b"")
    assert RecordFormat("%v").parse(b"").key is None


def test_a_value_may_hold_any_bytes_line_feeds_too() -> None:
    parsed = RecordFormat(r"%k\t%v\0").parse(b"\xff\t\n\xfe\r\n")
    assert parsed == InputRecord(b"\n\xfe\r\n", b"\xff")


def test_text_before_the_first_field_has_to_be_there() -> None:
    record_format = RecordFormat("[%k] %v")
    assert record_format.parse(b"[a] b") == InputRecord(b"b", b"a")
    with pytest.raises(FormatError, match="does not fit"):
        record_format.parse(b"a b")


def test_headers_keep_their_order_and_repeats_and_tell_null_from_empty() -> None:
    parsed = RecordFormat("%h %v").parse(b"a:1,b:,a:x:y,c v")
    assert parsed.headers == (("a", b"1"), ("b", b""), ("a", b"x:y"), ("c", None))
    assert RecordFormat("%h %v").parse(b" v").headers == ()


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [("%v", b"\n"), (r"%v\n", b"\n"), (r"%v\0", b"\0"), (r"%k,%v\r\n", b"\r\n"), ("%v%%", b"%")],
)
def test_what_follows_the_last_field_ends_a_record(text: str, delimiter: bytes) -> None:
    assert RecordFormat(text).delimiter == delimiter


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%k%v", "nothing stands between the key and the value"),
        ("%v %v", "has the value twice"),
        ("%q", "'%q' is not a field"),
        ("%", "'%' is not a field"),
        ("text", "has no field"),
        (r"%v\q", r"\\q means nothing here"),
        (r"%v\x1", r"\\x means nothing here"),
        ("%v\\", r"\\ means nothing here"),
    ],
)
def test_a_format_that_cannot_be_read_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        RecordFormat(text)


@pytest.mark.parametrize("line", [b"x a", b"-1 a", b"1.5 a", b" a"])
def test_a_partition_or_timestamp_that_is_no_number_is_refused(line: bytes) -> None:
    for field in ("%p", "%T"):
        with pytest.raises(FormatError, match="must be a whole number"):
            RecordFormat(f"{field} %v").parse(line)


@pytest.mark.parametrize("line", [b":1 v", b"\xff:1 v"])
def test_a_header_without_a_name_or_with_one_that_is_no_text_is_refused(line: bytes) -> None:
    with pytest.raises(FormatError, match="header"):
        RecordFormat("%h %v").parse(line)


def test_a_key_delimiter_splits_at_its_first_place_and_a_line_without_it_has_no_key() -> None:
    record_format = KeyDelimiterFormat(r"\t")
    assert record_format.parse(b"a\tb\tc") == InputRecord(b"b\tc", b"a")
    assert record_format.parse(b"abc") == InputRecord(b"abc", None)
    assert record_format.parse(b"\t") == InputRecord(b"", b"")
    with pytest.raises(FormatError, match="empty"):
        KeyDelimiterFormat("")


def test_a_header_option_is_name_and_value_and_a_name_alone_is_null() -> None:
    assert parse_header("a:b:c") == ("a", b"b:c")
    assert parse_header("a:") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(FormatError, match="no name"):
        parse_header(":b")


def test_escapes_are_bytes_and_other_text_is_utf_8() -> None:
    assert unescape(r"é\n\t\r\0\\\x7C\xfF") == "é".encode() + b"\n\t\r\0\\|\xff"


class Trickle(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(3)


@pytest.mark.parametrize(
    ("data", "records"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"one\n\ntwo three\nfour", [b"one", b"", b"two three", b"four"]),
        (b"\n", [b""]),
    ],
)
def test_a_stream_is_split_at_its_delimiters_however_it_comes(
    data: bytes, records: list[bytes]
) -> None:
    assert list(split_records(io.BytesIO(data), b"\n")) == records
    assert list(split_records(Trickle(data), b"\n")) == records


def test_a_delimiter_that_comes_in_two_pieces_still_splits() -> None:
    assert list(split_records(Trickle(b"abEND\ncEND\n"), b"END\n")) == [b"ab", b"c"]


def test_an_input_without_delimiters_is_given_up_before_it_fills_the_memory() -> None:
    class Endless(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return b"x" * (1 << 20)

    with pytest.raises(FormatError, match="have no delimiter"):
        list(split_records(Endless(), b"\n"))
