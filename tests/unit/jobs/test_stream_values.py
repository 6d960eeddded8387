"""`mainstem.jobs.streams` without Spark: what becomes of a value, and which schemas are taken."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from mainstem.errors import InvalidConfigError
from mainstem.jobs.streams import avro_values, protobuf_values
from mainstem.jobs.streams.decoding import Decode, decode_batch
from mainstem.jobs.streams.framing import message_prefixes

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OFF", "ON"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "seats", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "wait", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
AT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
ID = uuid.UUID(int=7)
ONE = {
    "carrier": "UA",
    "delay": None,
    "at": AT,
    "id": ID,
    "price": decimal.Decimal("12.50"),
    "state": "ON",
    "before": None,
    "seats": {"a": [1, 2]},
    "wait": 5,
}


def record_of(**fields: object) -> dict[str, Any]:
    """The schema of a record with these fields."""
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": named}


def avro(record: object, schema: object = FLIGHT) -> bytes:
    file = io.BytesIO()
    plain = avro_values.read_schema(json.dumps(schema))
    fastavro.schemaless_writer(file, fastavro.parse_schema(plain), record)
    return file.getvalue()


def decode(
    values: Sequence[bytes | None], schema: object = FLIGHT, **options: Any
) -> list[tuple[Any, str | None]]:
    """The record and the reason of each value."""
    reader = avro_values.read_schema(json.dumps(schema))
    writers = options.pop("writers", None)
    return run(
        values,
        avro_values.spark_type(reader),
        avro_values.make_decode(reader, writers, framed=options.pop("framed", False)),
    )


def run(
    values: Sequence[bytes | None], record_type: Any, decoder: Decode
) -> list[tuple[Any, str | None]]:
    batch = decode_batch(values, record_type, "Invalid", decoder).to_pylist()
    assert all(one["problem"] is None or one["problem"]["exception"] == "Invalid" for one in batch)
    return [(one["record"], one["problem"] and one["problem"]["reason"]) for one in batch]


def test_an_avro_record_becomes_a_row_of_the_same_values() -> None:
    ((record, problem),) = decode([avro(ONE)])
    assert problem is None
    assert record == {**ONE, "id": str(ID), "seats": [("a", [1, 2])]}
    told = avro_values.spark_type(avro_values.read_schema(json.dumps(FLIGHT))).simpleString()
    assert told == (
        "struct<carrier:string,delay:int,at:timestamp,id:string,price:decimal(9,2),state:string,"
        "before:string,seats:map<string,array<bigint>>,wait:int>"
    )


def test_a_bad_avro_value_is_known_by_itself_and_null_stays_null() -> None:
    good = avro(ONE)
    far = avro({**ONE, "at": 2**62})
    found = decode([good, b"", None, good[:-1], good + b"x", far, b"\xff" * 30, good])
    assert [problem for _, problem in found] == [
        None,
        "the value ends before the record does",
        None,
        "the value ends before the record does",
        "1 bytes follow the record",
        found[5][1],
        found[6][1],
        None,
    ]
    assert found[5][1]
    assert found[6][1]
    assert [record is None for record, _ in found] == [
        False,
        True,
        True,
        True,
        True,
        True,
        True,
        False,
    ]


def test_a_few_bytes_cannot_make_a_worker_take_gigabytes() -> None:
    text = record_of(s="string")
    two_gigabytes = b"\xd8\xff\xff\xff\x0f"
    ((_, problem),) = decode([two_gigabytes + b"x"], text)
    assert problem == "the value ends before the record does"
    nothing = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}
    for items in ("null", nothing, {"type": "fixed", "name": "F", "size": 0}):
        schema = record_of(l={"type": "array", "items": items})
        with pytest.raises(InvalidConfigError, match="items take no bytes"):
            avro_values._check_items(avro_values.read_schema(json.dumps(schema)))
    named = record_of(one=nothing, l={"type": "array", "items": "N"})
    with pytest.raises(InvalidConfigError, match="items take no bytes"):
        avro_values._check_items(avro_values.read_schema(json.dumps(named)))


def test_a_value_that_the_type_has_no_room_for_is_bad_alone() -> None:
    wide, reader = record_of(n=["int", "string"]), record_of(n="long")
    record_type = avro_values.spark_type(avro_values.read_schema(json.dumps(reader)))
    decoder = avro_values.make_decode(wide, None, framed=False)
    found = run(
        [avro({"n": 1}, wide), avro({"n": "x"}, wide), avro({"n": 3}, wide)], record_type, decoder
    )
    assert [record for record, _ in found] == [{"n": 1}, None, {"n": 3}]
    assert "'x'" in str(found[1][1])


def test_each_writers_schema_is_resolved_to_the_readers() -> None:
    old = record_of(a="int")
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"}],
    }

    def framed(number: int, body: bytes) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + body

    values = [
        framed(1, avro({"a": 5}, old)),
        framed(2, avro({"a": 6, "b": "x"}, new)),
        framed(3, avro({"a": 6, "b": "x"}, new)),
        b"\0\0",
        b"\1" + framed(1, b"")[1:],
    ]
    found = decode(values, new, framed=True, writers={1: old, 2: new})
    assert [record for record, _ in found[:2]] == [{"a": 5, "b": "-"}, {"a": 6, "b": "x"}]
    assert [problem for _, problem in found[2:]] == [
        "its schema has the id 3; given are 1, 2",
        *["the value does not begin as Confluent's serialisers do: a zero byte, four more"] * 2,
    ]
    # Without writers, ids are not looked at.
    assert decode([framed(9, avro({"a": 6, "b": "x"}, new))], new, framed=True)[0][1] is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "not an Avro schema"),
        ({"type": "record", "name": "R"}, "has no fields"),
        (record_of(a="Missing"), "Missing"),
        (record_of(r=["null", "R"]), "holds itself"),
        (record_of(r=["int", "string"]), "union"),
    ],
)
def test_an_avro_schema_that_cannot_be_taken_is_a_sentence(schema: object, words: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(InvalidConfigError, match=words):
        avro_values.spark_type(avro_values.read_schema(text))


# -- Protobuf --------------------------------------------------------------------------------------

_F = descriptor_pb2.FieldDescriptorProto


def _field(name: str, number: int, kind: int, **more: Any) -> Any:
    label = more.pop("label", _F.LABEL_OPTIONAL)
    return _F(name=name, number=number, type=kind, label=label, **more)  # type: ignore[arg-type]


def _many(name: str, number: int, message: str) -> Any:
    return _field(name, number, _F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, type_name=message)


def flight_descriptors(imports: bool = True) -> bytes:
    """air.v1.Flight, and air.v1.Fleet.Plane, of which the second is the second in its file."""
    file = descriptor_pb2.FileDescriptorProto(
        name="air.proto",
        package="air.v1",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    flight = file.message_type.add(name="Flight")
    flight.field.extend(
        [
            _field("carrier", 1, _F.TYPE_STRING),
            _field("delay", 2, _F.TYPE_INT32, proto3_optional=True, oneof_index=0),
            _field("big", 3, _F.TYPE_UINT64),
            _field("at", 4, _F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
            _field("state", 5, _F.TYPE_ENUM, type_name=".air.v1.State"),
            _field("legs", 6, _F.TYPE_INT64, label=_F.LABEL_REPEATED),
            _field(
                "seats",
                7,
                _F.TYPE_MESSAGE,
                label=_F.LABEL_REPEATED,
                type_name=".air.v1.Flight.SeatsEntry",
            ),
            _field("raw", 8, _F.TYPE_BYTES),
        ]
    )
    flight.oneof_decl.add(name="_delay")
    entry = flight.nested_type.add(name="SeatsEntry")
    entry.options.map_entry = True
    entry.field.extend([_field("key", 1, _F.TYPE_STRING), _field("value", 2, _F.TYPE_INT32)])
    fleet = file.message_type.add(name="Fleet")
    plane = fleet.nested_type.add(name="Plane")
    plane.field.append(_field("tail", 1, _F.TYPE_STRING))
    fleet.field.append(
        _field(
            "planes", 1, _F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, type_name=".air.v1.Fleet.Plane"
        )
    )
    tree = file.message_type.add(name="Tree")
    tree.field.append(_field("child", 1, _F.TYPE_MESSAGE, type_name=".air.v1.Tree"))
    state = file.enum_type.add(name="State")
    state.value.add(name="OFF", number=0)
    state.value.add(name="ON", number=1)
    found = descriptor_pb2.FileDescriptorSet()
    if imports:
        timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    return found.SerializeToString()


def message(name: str, **fields: Any) -> bytes:
    from google.protobuf import message_factory

    kind = message_factory.GetMessageClass(protobuf_values.find_message(flight_descriptors(), name))
    return kind(**fields).SerializeToString()


def parse(
    values: Sequence[bytes | None],
    name: str = "air.v1.Flight",
    framed: bool = False,
    ids: Any = None,
) -> list[tuple[Any, str | None]]:
    content = flight_descriptors()
    record_type = protobuf_values.spark_type(protobuf_values.find_message(content, name))
    decoder = protobuf_values.make_decode(content, name, ids, framed=framed)
    return run(values, record_type, decoder)


def test_a_protobuf_message_becomes_a_row_and_what_is_not_there_is_null() -> None:
    at = {"seconds": 1_357_016_400}
    whole = message(
        "air.v1.Flight",
        carrier="UA",
        delay=0,
        big=2**64 - 1,
        at=at,
        state=1,
        legs=[1, 2],
        seats={"a": 3},
        raw=b"\xff",
    )
    found = parse([whole, b"", None])
    assert found == [
        (
            {
                "carrier": "UA",
                "delay": 0,
                "big": decimal.Decimal(2**64 - 1),
                "at": dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC),
                "state": "ON",
                "legs": [1, 2],
                "seats": [("a", 3)],
                "raw": b"\xff",
            },
            None,
        ),
        (
            {
                "carrier": "",
                "delay": None,
                "big": decimal.Decimal(0),
                "at": None,
                "state": "OFF",
                "legs": [],
                "seats": [],
                "raw": b"",
            },
            None,
        ),
        (None, None),
    ]


def test_a_bad_protobuf_value_is_known_by_itself() -> None:
    far = {"seconds": 2**60}
    values = [
        b"\xff",
        message("air.v1.Flight", carrier="x"),
        message("air.v1.Flight", at=far),
        b"\x0a\x7fx",
    ]
    found = parse([*values])
    assert [problem is None for _, problem in found] == [False, True, False, False]
    assert "not a message air.v1.Flight" in str(found[0][1])


def test_a_frame_names_the_message_in_its_file() -> None:
    assert message_prefixes([0]) == (b"\0", b"\x02\0")
    assert message_prefixes([1, 0]) == (b"\x04\x02\0",)
    plane = message("air.v1.Fleet.Plane", tail="N1")
    head = b"\0\0\0\0\x07"
    found = parse(
        [head + b"\x04\x02\0" + plane, head + b"\0" + plane, head],
        "air.v1.Fleet.Plane",
        framed=True,
    )
    assert [record for record, _ in found] == [{"tail": "N1"}, None, None]
    assert found[1][1] == "it is another message of its file than air.v1.Fleet.Plane"
    flight = message("air.v1.Flight", carrier="UA")
    for prefix in (b"\0", b"\x02\0"):
        ((record, problem),) = parse([head + prefix + flight], framed=True, ids={7})
        assert (record["carrier"], problem) == ("UA", None)
    assert parse([head + b"\0" + flight], framed=True, ids={8})[0][1] == (
        "its schema has the id 7; given are 8"
    )


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"\xff", "a", "not a FileDescriptorSet"),
        (flight_descriptors(), "air.v1.Fligt", "did you mean air.v1.Flight"),
        (flight_descriptors(imports=False), "air.v1.Flight", "--include_imports"),
        (flight_descriptors(), "air.v1.Tree", "holds itself"),
    ],
)
def test_descriptors_that_cannot_be_taken_are_a_sentence(
    content: bytes, name: str, words: str
) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        protobuf_values.spark_type(protobuf_values.find_message(content, name))


def test_a_file_of_descriptors_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="cannot read the descriptors"):
        protobuf_values._read(tmp_path / "missing.pb")
