"""Values that are Protobuf messages."""

from __future__ import annotations

import datetime as dt
import decimal
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mainstem.config import nearest_name
from mainstem.errors import InvalidConfigError
from mainstem.jobs.streams.decoding import Decode, decoded
from mainstem.jobs.streams.framing import check_id, message_prefixes, split_frame
from mainstem.jobs.streams.parsed import Parsed, check_columns, split

EXCEPTION: Final = "InvalidProtobuf"

_TIMESTAMP: Final = "google.protobuf.Timestamp"

_TYPES: Final[dict[int, DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    # Spark has no types without a sign: the next larger one.
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
}


def parse_protobuf(
    records: DataFrame,
    descriptors: bytes | str | os.PathLike[str],
    message: str,
    *,
    column: str = "value",
    into: str = "record",
    framed: bool = False,
    ids: Collection[int] | None = None,
) -> Parsed:
    """Parses values that are Protobuf messages.

    Bad is what cannot be parsed, lacks a field that is required (proto2), and what Spark's type has
    no room for. A null value is good. An empty one is a message too: all its fields are as they are
    by default. Fields that the message does not know are passed over.

    A field that knows whether it is there is null where it is not; others have their defaults.
    Enums are their names, `google.protobuf.Timestamp` is a timestamp, `uint32` a long, `uint64` a
    decimal.

    Args:
        records: Rows with the columns of the source.
        descriptors: A FileDescriptorSet, or a file with one:
            `protoc --include_imports --descriptor_set_out=FILE`. It is read here, not by tasks.
        message: The message's full name, as `shop.v1.Order`.
        column: The column to parse.
        into: The column for the message.
        framed: The values begin as those of Confluent's serialisers do: a zero byte, four bytes
            with the id of a schema, and the place of the message in its file.
        ids: The ids that there may be; a value with another one is bad. Default: any.

    Raises:
        InvalidConfigError: There is no such file or message, the set lacks an import, the message
            holds itself, a column is missing, `into` is taken, or there are ids and no frame.
    """
    check_columns(records, [column])
    if ids is not None and not framed:
        raise InvalidConfigError("ids are in front of a value: say framed=True, or leave them out")
    content = descriptors if isinstance(descriptors, bytes) else _read(descriptors)
    record_type = spark_type(find_message(content, message))
    known = None if ids is None else frozenset(ids)

    def make() -> Decode:
        return make_decode(content, message, known, framed=framed)

    parsed = decoded(F.col(column).cast("binary"), record_type, EXCEPTION, make)
    return split(records, parsed, into=into)


def find_message(descriptors: bytes, message: str) -> Descriptor:
    """The message in a FileDescriptorSet.

    Raises:
        InvalidConfigError: It is not there, or the set is none or is not whole.
    """
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptors)
        for file in files.file:
            pool.Add(file)
        names = [name for file in files.file for name in _names(file)]
        if message not in names:
            close = nearest_name(message, names)
            hint = f"did you mean {close}?" if close else f"there are {', '.join(names) or 'none'}"
            raise InvalidConfigError(f"the descriptors have no message {message!r}; {hint}")
        found: Descriptor = pool.FindMessageTypeByName(message)
        return found
    except DecodeError as error:
        raise InvalidConfigError(f"this is not a FileDescriptorSet: {error}") from error
    except (TypeError, KeyError) as error:
        raise InvalidConfigError(
            f"the descriptors are not whole ({error}): make them with protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from error


def spark_type(message: Descriptor) -> StructType:
    """Spark's type for the message.

    Raises:
        InvalidConfigError: It holds itself.
    """
    return _struct(message, ())


def make_decode(
    descriptors: bytes, message: str, ids: Collection[int] | None, *, framed: bool
) -> Decode:
    """What makes a record of a value. On a worker."""
    found = find_message(descriptors, message)
    kind = message_factory.GetMessageClass(found)
    fields = _fields(found)
    prefixes = message_prefixes(_path(found)) if framed else ()

    def decode(value: bytes) -> Any:
        body = value
        if framed:
            number, body = split_frame(value)
            check_id(number, ids)
            prefix = next((one for one in prefixes if body.startswith(one)), None)
            if prefix is None:
                raise ValueError(f"it is another message of its file than {message}")
            body = body[len(prefix) :]
        parsed = kind()
        try:
            parsed.ParseFromString(body)
        except DecodeError as error:
            raise ValueError(f"the value is not a message {message}: {error}") from None
        if not parsed.IsInitialized():
            lacking = ", ".join(parsed.FindInitializationErrors())  # type: ignore[attr-defined]
            raise ValueError(f"the message lacks {lacking}, which is required")
        return _record(parsed, fields)

    return decode


def _read(file: str | os.PathLike[str]) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidConfigError(
            f"cannot read the descriptors {os.fspath(file)}: {error.strerror or error}"
        ) from error


def _names(file: Any) -> list[str]:
    found: list[str] = []
    waiting = [(file.package, one) for one in file.message_type]
    while waiting:
        before, one = waiting.pop(0)
        name = f"{before}.{one.name}" if before else one.name
        found.append(name)
        waiting += [(name, inner) for inner in one.nested_type if not inner.options.map_entry]
    return found


def _path(message: Descriptor) -> list[int]:
    """The index of the message in its file, or that of the one around it and its own."""
    file = descriptor_pb2.FileDescriptorProto()
    message.file.CopyToProto(file)
    around: list[str] = []
    one: Descriptor | None = message
    while one is not None:
        around.insert(0, one.name)
        one = one.containing_type
    path: list[int] = []
    level: Any = file.message_type
    for name in around:
        index = [inner.name for inner in level].index(name)
        path.append(index)
        level = level[index].nested_type
    return path


# -- types -----------------------------------------------------------------------------------------


def _struct(message: Descriptor, around: tuple[str, ...]) -> StructType:
    if message.full_name in around:
        raise InvalidConfigError(
            f"the message {message.full_name} holds itself, which no type of Spark's does"
        )
    around = (*around, message.full_name)
    return StructType([StructField(one.name, _type(one, around)) for one in message.fields])


def _type(field: FieldDescriptor, around: tuple[str, ...]) -> DataType:
    if (entry := _map_entry(field)) is not None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return MapType(_single(key, around), _single(value, around))
    return ArrayType(_single(field, around)) if _is_repeated(field) else _single(field, around)


def _single(field: FieldDescriptor, around: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return TimestampType()
        return _struct(field.message_type, around)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else StringType()
    return _TYPES[field.cpp_type]


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    kind = field.message_type
    if kind is None or not kind.GetOptions().map_entry:
        return None
    return kind


def _is_repeated(field: FieldDescriptor) -> bool:
    # Newer runtimes have the first, older ones the second only.
    found = getattr(field, "is_repeated", None)
    if found is None:
        return bool(getattr(field, "label", None) == FieldDescriptor.LABEL_REPEATED)
    return bool(found)


# -- values ----------------------------------------------------------------------------------------


#: A field's name, whether it can be missing, and what makes a value of what the message has.
_Field = tuple[str, bool, Callable[[Any], Any] | None]


def _fields(message: Descriptor) -> list[_Field]:
    return [(one.name, one.has_presence, _getter(one)) for one in message.fields]


def _getter(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if (entry := _map_entry(field)) is not None:
        inner = _getter_of_one(entry.fields_by_name["value"])
        of_key = _getter_of_one(entry.fields_by_name["key"])
        if inner is None and of_key is None:
            return dict
        return lambda found: {
            key if of_key is None else of_key(key): one if inner is None else inner(one)
            for key, one in found.items()
        }
    one = _getter_of_one(field)
    if not _is_repeated(field):
        return one
    return list if one is None else (lambda found: [one(item) for item in found])


def _getter_of_one(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return _timestamp
        fields = _fields(field.message_type)
        return lambda found: _record(found, fields)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return decimal.Decimal
    return None


def _record(message: Message, fields: list[_Field]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, can_miss, get in fields:
        if can_miss and not message.HasField(name):
            record[name] = None
        else:
            value = getattr(message, name)
            record[name] = value if get is None else get(value)
    return record


def _timestamp(found: Any) -> Any:
    return found.ToDatetime(dt.UTC)
