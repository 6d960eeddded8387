"""Values that are Avro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from mainstem.errors import InvalidConfigError, extra_of
from mainstem.jobs.streams.decoding import Decode, decoded
from mainstem.jobs.streams.framing import check_id, split_frame
from mainstem.jobs.streams.parsed import Parsed, check_columns, split

EXCEPTION: Final = "InvalidAvro"

_PRIMITIVES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
#: Those that have a type of Spark's; what a schema has of others is read as what is below it.
_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
    ("string", "uuid"): StringType(),
}
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}

#: Of Spark's decimals.
_DIGITS_MAX: Final = 38


def parse_avro(
    records: DataFrame,
    schema: str,
    *,
    column: str = "value",
    into: str = "record",
    framed: bool = False,
    writers: Mapping[int, str] | None = None,
) -> Parsed:
    """Parses values that are Avro, each without a file's header around it.

    Bad is what ends too early or goes on behind the record, what does not fit the schema, and what
    Spark's type has no room for. A null value is good.

    Spark's types are those of Avro: enums and UUIDs are strings, `fixed` is binary, a union with
    null is its other type, that of int and long is long.

    Args:
        records: Rows with the columns of the source.
        schema: The schema in JSON; of the records that come out, where `writers` is given.
        column: The column to parse.
        into: The column for the record.
        framed: The values begin as those of Confluent's serialisers do: a zero byte, and four
            bytes with the id of a schema.
        writers: By that id, the schemas with which values were written, as a registry has them;
            they are resolved to `schema` by Avro's rules. A value with another id is bad. Default:
            all were written with `schema`, and ids are not looked at.

    Raises:
        InvalidConfigError: A schema is wrong, recursive, or a union of several types, a column is
            missing, `into` is taken, or there are writers and no frame.
        ModuleNotFoundError: The package fastavro is missing; the message says how to install it.
    """
    check_columns(records, [column])
    if writers is not None and not framed:
        raise InvalidConfigError(
            "writers are told by the id in front of a value: say framed=True, or leave them out"
        )
    reader = read_schema(schema)
    written = {number: read_schema(text) for number, text in (writers or {}).items()}
    record_type = spark_type(reader)
    for one in (reader, *written.values()):
        spark_type(one)
        _check_items(one)

    def make() -> Decode:
        return make_decode(reader, written if writers is not None else None, framed=framed)

    parsed = decoded(F.col(column).cast("binary"), record_type, EXCEPTION, make)
    return split(records, parsed, into=into)


def read_schema(text: str) -> Any:
    """The schema as JSON, checked, without the logical types that Spark has no type for.

    Raises:
        InvalidConfigError: It is no schema.
    """
    with extra_of("mainstem.jobs.streams"):
        import fastavro.schema
    try:
        found = _plain(json.loads(text))
        fastavro.schema.parse_schema(json.loads(json.dumps(found)))
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        told = str(error) or type(error).__qualname__
        raise InvalidConfigError(f"this is not an Avro schema: {told}") from error
    return found


def spark_type(schema: Any) -> DataType:
    """Spark's type for the schema.

    Raises:
        InvalidConfigError: There is none.
    """
    return _Types().of(schema, "")


def make_decode(reader: Any, writers: Mapping[int, Any] | None, *, framed: bool) -> Decode:
    """What makes a record of a value. On a worker."""
    import fastavro

    parsed_reader = fastavro.parse_schema(reader)
    parsed_writers = (
        None
        if writers is None
        else {number: fastavro.parse_schema(one) for number, one in writers.items()}
    )

    def decode(value: bytes) -> Any:
        writer, wanted, body = parsed_reader, None, value
        if framed:
            number, body = split_frame(value)
            if parsed_writers is not None:
                check_id(number, parsed_writers)
                writer, wanted = parsed_writers[number], parsed_reader
        file = io.BytesIO(body)
        try:
            record = fastavro.schemaless_reader(file, writer, wanted)
        except EOFError:
            raise ValueError("the value ends before the record does") from None
        if file.tell() != len(body):
            raise ValueError(f"{len(body) - file.tell()} bytes follow the record")
        return record

    return decode


class _Types:
    """Spark's types of a schema's parts, which may name each other."""

    def __init__(self) -> None:
        self._named: dict[str, DataType | None] = {}

    def of(self, schema: Any, namespace: str) -> DataType:
        if isinstance(schema, list):
            return self._of_union(schema, namespace)
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._of_name(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, namespace)
        if kind in ("record", "error"):
            name, inside = _full_name(schema, namespace)
            self._named[name] = None
            if "fields" not in schema:
                raise InvalidConfigError(
                    f"this is not an Avro schema: the record {name} has no fields"
                )
            fields = [
                StructField(field["name"], self.of(field["type"], inside))
                for field in schema["fields"]
            ]
            self._named[name] = StructType(fields)
            return StructType(fields)
        if kind == "array":
            return ArrayType(self.of(schema["items"], namespace))
        if kind == "map":
            return MapType(StringType(), self.of(schema["values"], namespace))
        if kind in ("enum", "fixed"):
            found = _decimal(schema) or (StringType() if kind == "enum" else BinaryType())
            self._named[_full_name(schema, namespace)[0]] = found
            return found
        logical = _LOGICAL.get((kind, schema.get("logicalType", "")))
        return logical or _decimal(schema) or self.of(kind, namespace)

    def _of_name(self, name: str, namespace: str) -> DataType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise InvalidConfigError(
                f"the Avro type {name} holds itself, which no type of Spark's does"
            )
        return found

    def _of_union(self, union: list[Any], namespace: str) -> DataType:
        others = [one for one in union if one != "null"]
        if len(others) == 1:
            return self.of(others[0], namespace)
        names = frozenset(one for one in others if isinstance(one, str))
        if len(names) == len(others) and names in _WIDER:
            return _PRIMITIVES[_WIDER[names]]
        raise InvalidConfigError(
            f"the Avro schema has the union {json.dumps(union)[:200]}: a column has one type, so a "
            "union may have null and one other, int and long, or float and double"
        )


def _decimal(schema: Mapping[str, Any]) -> DecimalType | None:
    if schema.get("logicalType") != "decimal":
        return None
    return DecimalType(schema["precision"], schema.get("scale", 0))


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """The name with its namespace, and the namespace for what is inside."""
    name = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    inside = schema.get("namespace", namespace)
    return (f"{inside}.{name}" if inside else name), inside


def _plain(schema: Any) -> Any:
    """The schema without the logical types that are not in `_LOGICAL`, and without decimals that
    are too long."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(part) if name in _PARTS else part for name, part in schema.items()}
    logical = found.get("logicalType")
    digits = found.get("precision", 0)
    is_decimal = logical == "decimal" and isinstance(digits, int) and 0 < digits <= _DIGITS_MAX
    if logical is not None and not is_decimal:
        kind = found.get("type")
        if not isinstance(kind, str) or (kind, logical) not in _LOGICAL:
            del found["logicalType"]
    if isinstance(found.get("fields"), list):
        found["fields"] = [_plain(field) for field in found["fields"]]
    return found


#: Where a schema has another one.
_PARTS: Final = ("type", "items", "values")


def _check_items(schema: Any) -> None:
    """Refuses arrays whose items take no bytes: a value of six could have billions of them."""
    _Items().check(schema)


class _Items:
    """Looks at a schema's arrays. The schema is not recursive."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def check(self, schema: Any) -> None:
        if isinstance(schema, list):
            for one in schema:
                self.check(one)
        elif isinstance(schema, dict):
            for field in schema.get("fields", ()):
                self.check(field["type"])
            for part in _PARTS:
                self.check(schema.get(part))
            if "name" in schema:
                self._named[schema["name"].rpartition(".")[2]] = schema
            if schema.get("type") == "array" and self._is_empty(schema["items"]):
                raise InvalidConfigError(
                    "the Avro schema has an array whose items take no bytes (null, or a record "
                    "without fields): a few bytes could stand for billions of them"
                )

    def _is_empty(self, schema: Any) -> bool:
        if isinstance(schema, list):
            return False  # the branch takes a byte
        if isinstance(schema, str):
            named = self._named.get(schema.rpartition(".")[2])
            return schema == "null" or (named is not None and self._is_empty(named))
        kind = schema["type"]
        if kind in ("record", "error"):
            return all(self._is_empty(field["type"]) for field in schema["fields"])
        if kind == "fixed":
            return bool(schema["size"] == 0)
        return kind == "null" or (not isinstance(kind, str) and self._is_empty(kind))
