"""The actions of a Delta commit file that a mainstem table uses, and their JSON.

Source: the Delta transaction log protocol, sections "Actions" and "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

import google_crc32c

from mainstem.errors import LogDamagedError, UnsupportedTableError
from mainstem.records import format_timestamp_ms, parse_timestamp_ms

#: Our own writer feature: a conforming writer that does not know it must not touch the table.
WRITER_FEATURE: Final = "mainstemLog"
WRITER_FEATURES: Final = ("appendOnly", "invariants", WRITER_FEATURE)
READER_VERSION: Final = 1
WRITER_VERSION: Final = 7

#: In a commit file, before the eight hexadecimal digits of its checksum. No string of JSON can have
#: it, as a quote inside a string is escaped.
_CHECKSUM_MARK: Final = b'"crc32c":"'
_NO_CHECKSUM: Final = "00000000"

#: The tag of an `add` action that has the checksum of its data file's tail.
TAIL_TAG: Final = "mainstem.tail.crc32c"

#: Delta's `schemaString` of a topic table, column by column.
_HEADERS = {
    "type": "array",
    "containsNull": True,
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
}
_COLUMNS: Final[tuple[tuple[str, object], ...]] = (
    ("partition", "integer"),
    ("offset", "long"),
    ("timestamp", "timestamp"),
    ("timestamp_type", "integer"),
    ("key", "binary"),
    ("value", "binary"),
    ("headers", _HEADERS),
    ("producer_id", "long"),
    ("sequence", "long"),
)
TOPIC_SCHEMA_STRING: Final = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_, "nullable": True, "metadata": {}}
            for name, type_ in _COLUMNS
        ],
    },
    separators=(",", ":"),
)


class ForeignTableError(UnsupportedTableError):
    """Another writer's table. It is neither written to nor deleted."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the table {table} is not a mainstem topic: it lacks the writer feature "
            f"{WRITER_FEATURE}; keep tables of other writers elsewhere",
            table=table,
        )


@dataclass(frozen=True, slots=True)
class Protocol:
    """Which readers and writers may use the table."""

    min_reader_version: int = READER_VERSION
    min_writer_version: int = WRITER_VERSION
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = WRITER_FEATURES

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
        }
        if self.reader_features:
            body["readerFeatures"] = list(self.reader_features)
        if self.min_writer_version >= 7:
            body["writerFeatures"] = list(self.writer_features)
        return {"protocol": body}

    def check_supported(self, table: str) -> None:
        """Refuses what this version cannot read or write, by name.

        Raises:
            ForeignTableError: The table is none of ours.
            UnsupportedTableError: It has a feature that we do not know.
        """
        if WRITER_FEATURE not in self.writer_features:
            raise ForeignTableError(table)
        unknown = sorted(
            (set(self.reader_features) | set(self.writer_features)) - set(WRITER_FEATURES)
        )
        if unknown:
            raise UnsupportedTableError(
                f"the table {table} has the feature {', '.join(unknown)}, which this version of "
                "mainstem does not know; open it with a newer version",
                table=table,
                features=",".join(unknown),
            )
        if self.min_reader_version > READER_VERSION or self.min_writer_version != WRITER_VERSION:
            raise UnsupportedTableError(
                f"the table {table} asks for reader version {self.min_reader_version} and writer "
                f"version {self.min_writer_version}; this version of mainstem knows "
                f"{READER_VERSION} and {WRITER_VERSION}",
                table=table,
            )


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's identity, schema and properties. `id` is the topic id."""

    id: str
    created_ms: int
    configuration: Mapping[str, str]
    schema_string: str = TOPIC_SCHEMA_STRING
    partition_columns: tuple[str, ...] = ("partition",)
    name: str | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": self.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_string,
            "partitionColumns": list(self.partition_columns),
            "createdTime": self.created_ms,
            "configuration": dict(self.configuration),
        }
        if self.name is not None:
            body["name"] = self.name
        return {"metaData": body}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of one partition, with offsets [base_offset, last_offset]; an `add` action.

    Attributes:
        path: Relative to the table, not URL-encoded.
        record_count: Less than the span of offsets only after keyed compaction.
        timestamp_ms_min, timestamp_ms_max: Exact, both inclusive.
        tail_crc32c: Of the end of the file, in which the checksums of all that comes before are:
            no byte of it can change unseen. None: the writer gave none.
    """

    path: str
    partition: int
    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    modified_ms: int
    data_change: bool = True
    tail_crc32c: int | None = None

    def to_json(self) -> dict[str, Any]:
        stats = {
            "numRecords": self.record_count,
            "minValues": {
                "offset": self.base_offset,
                "timestamp": format_timestamp_ms(self.timestamp_ms_min),
            },
            "maxValues": {
                "offset": self.last_offset,
                "timestamp": format_timestamp_ms(self.timestamp_ms_max),
            },
            "nullCount": {"offset": 0, "timestamp": 0},
        }
        body: dict[str, Any] = {
            "path": quote(self.path, safe="/="),
            "partitionValues": {"partition": str(self.partition)},
            "size": self.size_bytes,
            "modificationTime": self.modified_ms,
            "dataChange": self.data_change,
            "stats": json.dumps(stats, separators=(",", ":")),
        }
        if self.tail_crc32c is not None:
            body["tags"] = {TAIL_TAG: f"{self.tail_crc32c:08x}"}
        return {"add": body}

    @classmethod
    def from_add(cls, body: Mapping[str, Any]) -> DataFile:
        """Reads an `add` action, from a commit file or a checkpoint."""
        stats = json.loads(body["stats"])
        least, most = stats["minValues"], stats["maxValues"]
        partition_values = body["partitionValues"]
        tail_crc32c = dict(body.get("tags") or ()).get(TAIL_TAG)
        return cls(
            path=unquote(body["path"]),
            partition=int(dict(partition_values)["partition"]),
            base_offset=least["offset"],
            last_offset=most["offset"],
            record_count=stats["numRecords"],
            size_bytes=body["size"],
            timestamp_ms_min=parse_timestamp_ms(least["timestamp"]),
            timestamp_ms_max=parse_timestamp_ms(most["timestamp"]),
            modified_ms=body["modificationTime"],
            data_change=bool(body["dataChange"]),
            tail_crc32c=None if tail_crc32c is None else int(tail_crc32c, 16),
        )


@dataclass(frozen=True, slots=True)
class Remove:
    """A data file that is no longer part of the table from this version on."""

    path: str
    partition: int
    size_bytes: int
    removed_ms: int
    data_change: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "remove": {
                "path": quote(self.path, safe="/="),
                "deletionTimestamp": self.removed_ms,
                "dataChange": self.data_change,
                "extendedFileMetadata": True,
                "partitionValues": {"partition": str(self.partition)},
                "size": self.size_bytes,
            }
        }


@dataclass(frozen=True, slots=True)
class Register:
    """A `txn` action: a named number that changes atomically with the commit. See `registers`."""

    name: str
    value: int
    updated_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"appId": self.name, "version": self.value}
        if self.updated_ms is not None:
            body["lastUpdated"] = self.updated_ms
        return {"txn": body}


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """Who sent a batch: an idempotent producer, and the sequence of the batch's first record."""

    id: int
    epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What was added to one partition: offsets [base_offset, base_offset + record_count).

    Attributes:
        producer: None for records that were sent without idempotence.
    """

    partition: int
    base_offset: int
    record_count: int
    producer: ProducerBatch | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, of an idempotent producer's batch."""
        assert self.producer is not None
        return self.producer.base_sequence + self.record_count - 1

    def to_json(self) -> dict[str, int]:
        body = {
            "partition": self.partition,
            "baseOffset": self.base_offset,
            "recordCount": self.record_count,
        }
        if self.producer is not None:
            body["producerId"] = self.producer.id
            body["producerEpoch"] = self.producer.epoch
            body["baseSequence"] = self.producer.base_sequence
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, int]) -> Batch:
        producer = None
        if "producerId" in body:
            producer = ProducerBatch(
                body["producerId"], body["producerEpoch"], body["baseSequence"]
            )
        return cls(body["partition"], body["baseOffset"], body["recordCount"], producer)


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Who made the commit and why.

    Attributes:
        commit_id: Unique to the commit; tells our own commit from another's when the outcome is
            unknown.
        batches: The records that the commit added, by partition and offset.
        action_count: Of the whole commit, this one included: a file that was cut between two lines
            is otherwise as good as any. 0: the writer did not say.
        has_removes: The commit depends on what the table has.
        has_checksum: Its file has one, which was compared when it was read.
    """

    commit_id: str
    operation: str
    timestamp_ms: int
    batches: tuple[Batch, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    action_count: int = 0
    has_removes: bool = False
    has_checksum: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "commitInfo": {
                "timestamp": self.timestamp_ms,
                "operation": self.operation,
                "operationParameters": dict(self.parameters),
                "isBlindAppend": self.operation == "APPEND" and not self.has_removes,
                "engineInfo": "mainstem",
                "mainstem": {
                    "crc32c": _NO_CHECKSUM,
                    "commitId": self.commit_id,
                    "actionCount": self.action_count,
                    "batches": [batch.to_json() for batch in self.batches],
                },
            }
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CommitInfo:
        ours = body.get("mainstem") or {}
        return cls(
            commit_id=ours.get("commitId", ""),
            operation=body.get("operation", ""),
            timestamp_ms=body.get("timestamp", 0),
            batches=tuple(Batch.from_json(batch) for batch in ours.get("batches", ())),
            parameters=body.get("operationParameters") or {},
            action_count=ours.get("actionCount", 0),
            has_checksum="crc32c" in ours,
        )


Action = Protocol | Metadata | DataFile | Remove | Register | CommitInfo


def encode_commit(actions: Iterable[Action]) -> bytes:
    """The content of a commit file: one JSON object a line, and a checksum if there is a
    `CommitInfo` to have it.

    The checksum is the CRC32C of the whole file with its own digits taken as zeros.
    """
    data = b"".join(
        json.dumps(action.to_json(), separators=(",", ":")).encode() + b"\n" for action in actions
    )
    at = _checksum_at(data)
    if at is None:
        return data
    return b"%b%08x%b" % (data[:at], google_crc32c.value(data), data[at + len(_NO_CHECKSUM) :])


def decode_rows(data: bytes, path: str) -> list[dict[str, Any]]:
    """The lines of a commit file, as they are. One that has a checksum is what was written, bit by
    bit.

    Raises:
        LogDamagedError: It is empty, changed or torn, or a line is not an object of JSON.
    """
    _check_sum(data, path)
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(filter(bytes.strip, data.split(b"\n")), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _damaged(path, f"line {number}: {error!r}") from error
        if not isinstance(row, dict):
            raise _damaged(path, f"line {number} is not an action")
        rows.append(row)
    return rows


def decode_info(data: bytes, path: str) -> CommitInfo | None:
    """The commit info of a commit file, without its other lines; None: it does not begin with one.

    Raises:
        LogDamagedError: It is empty, changed or torn, or its first line is not an action.
    """
    _check_sum(data, path)
    line, _, _ = data.partition(b"\n")
    try:
        action = action_from_json(json.loads(line))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"line 1: {error!r}") from error
    return action if isinstance(action, CommitInfo) else None


def _check_sum(data: bytes, path: str) -> None:
    """Raises LogDamagedError where a commit file has no end, or another checksum than it says."""
    if not data.endswith(b"\n"):
        raise _damaged(path, "its last line has no end")
    at = _checksum_at(data)
    if at is None:
        return
    end = at + len(_NO_CHECKSUM)
    found = google_crc32c.value(data[:at] + _NO_CHECKSUM.encode() + data[end:])
    if data[at:end] != b"%08x" % found:
        shown = data[at:end].decode("ascii", "replace")
        raise _damaged(path, f"its checksum is {found:08x} instead of {shown}")


def decode_commit(data: bytes, path: str) -> list[Action]:
    """The actions of a commit file. One that has a checksum is what was written, bit by bit.

    Raises:
        LogDamagedError: It is empty, changed or torn, or a line is not an action.
    """
    at = _checksum_at(data)
    actions: list[Action] = []
    lines = decode_rows(data, path)
    for number, row in enumerate(lines, start=1):
        try:
            action = action_from_json(row)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged(path, f"line {number}: {error!r}") from error
        if action is not None:
            actions.append(action)
    if not actions:
        raise _damaged(path, "it has no action")
    for action in actions:
        if not isinstance(action, CommitInfo):
            continue
        if action.action_count not in (0, len(lines)):
            raise _damaged(path, f"it has {len(lines)} of {action.action_count} actions")
        if action.has_checksum and at is None:
            raise _damaged(path, "its checksum cannot be read")
    return actions


def _checksum_at(data: bytes) -> int | None:
    """Where the digits of a commit file's checksum begin; None: it has none."""
    at = data.find(_CHECKSUM_MARK)
    return None if at < 0 else at + len(_CHECKSUM_MARK)


def action_from_json(parsed: Mapping[str, Any]) -> Action | None:
    """One action from its JSON, or from a checkpoint's row of the same shape.

    None: of a kind that may be ignored.
    """
    if (body := parsed.get("add")) is not None:
        return DataFile.from_add(body)
    if (body := parsed.get("txn")) is not None:
        return Register(body["appId"], body["version"], body.get("lastUpdated"))
    if (body := parsed.get("commitInfo")) is not None:
        return CommitInfo.from_json(body)
    if (body := parsed.get("remove")) is not None:
        values = dict(body.get("partitionValues") or {})
        return Remove(
            unquote(body["path"]),
            int(values.get("partition", -1)),
            body.get("size") or 0,
            body.get("deletionTimestamp") or 0,
            bool(body["dataChange"]),
        )
    if (body := parsed.get("metaData")) is not None:
        return Metadata(
            id=body["id"],
            created_ms=body.get("createdTime") or 0,
            configuration=dict(body.get("configuration") or {}),
            schema_string=body["schemaString"],
            partition_columns=tuple(body["partitionColumns"]),
            name=body.get("name"),
        )
    if (body := parsed.get("protocol")) is not None:
        return Protocol(
            body["minReaderVersion"],
            body["minWriterVersion"],
            tuple(body.get("readerFeatures") or ()),
            tuple(body.get("writerFeatures") or ()),
        )
    return None


def _damaged(path: str, why: str) -> LogDamagedError:
    return LogDamagedError(f"the commit file {path} is damaged: {why}", file=path)


def same_table(first: Metadata, second: Metadata) -> bool:
    """Whether two metadata actions are of one topic with one schema: only settings differ."""
    return (first.id, first.schema_string, first.partition_columns) == (
        second.id,
        second.schema_string,
        second.partition_columns,
    )


def register_value(actions: Sequence[Action], name: str) -> int | None:
    """The value that `actions` give a register, or None."""
    for action in actions:
        if isinstance(action, Register) and action.name == name:
            return action.value
    return None
