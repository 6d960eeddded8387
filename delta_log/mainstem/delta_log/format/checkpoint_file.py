"""The content of a checkpoint: a Parquet file with a row for each action, and a checksum.

The checksum is the CRC32C of the whole file with its own digits taken as zeros. It stands twice in
the footer's metadata, so that a flipped bit that hides one of them is told by the other. Other
writers' checkpoints have none: they are as good as Parquet's own structure can tell.

Source: Delta protocol, section "Checkpoints", "Checkpoint Schema".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log.format.actions import Action
from mainstem.delta_log.format.log_files import checkpoint_path
from mainstem.delta_log.store import ObjectStore
from mainstem.errors import LogDamagedError
from mainstem.limits import KIB

_STRINGS: Final = pa.map_(pa.string(), pa.string())

#: The columns that we write, one for each kind of action. A topic's table has no other kind.
CHECKPOINT_SCHEMA: Final = pa.schema(
    [
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _STRINGS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("tags", _STRINGS),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _STRINGS),
                    ("size", pa.int64()),
                    ("tags", _STRINGS),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    (
                        "format",
                        pa.struct([("provider", pa.string()), ("options", _STRINGS)]),
                    ),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("createdTime", pa.int64()),
                    ("configuration", _STRINGS),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
    ]
)

#: Rows that are written, and read, at a time.
ROWS_AT_A_TIME: Final = 64 * KIB

_MARK: Final = b"mainstem-crc32c:"
_NO_CHECKSUM: Final = b"00000000"
_CHECKSUM: Final = re.compile(_MARK + rb"([0-9a-f]{8})")
_CHECKSUM_METADATA: Final = dict.fromkeys(
    (b"mainstem.checksum", b"mainstem.checksum.again"), _MARK + _NO_CHECKSUM
)

#: The metadata is at the end of the footer, before the names of the writer and of the orders of
#: columns.
_METADATA_WITHIN: Final = 16 * KIB

#: What reading something else than a Parquet file of this schema raises. The file is in memory, so
#: an OSError of Arrow's is about its content.
CHECKPOINT_ERRORS: Final = (pa.ArrowException, OSError, ValueError, LookupError, TypeError)


class CheckpointWriter:
    """Makes the content of a checkpoint, of rows by their kind of action."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            CHECKPOINT_SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
        )
        #: Of one row group: each has its cost, a small table is one.
        self._batches: list[pa.RecordBatch] = []
        self._row_count = 0

    def write(self, kind: str, rows: pa.StructArray) -> None:
        """Adds actions of one kind, a column of `CHECKPOINT_SCHEMA`."""
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            part = rows.slice(start, ROWS_AT_A_TIME)
            columns = [
                part if column.name == kind else pa.nulls(len(part), column.type)
                for column in CHECKPOINT_SCHEMA
            ]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=CHECKPOINT_SCHEMA))
            self._row_count += len(part)
            if self._row_count >= ROWS_AT_A_TIME:
                self._flush()

    def finish(self) -> bytes:
        """The file, with its checksum."""
        self._flush()
        self._writer.add_key_value_metadata(_CHECKSUM_METADATA)
        self._writer.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        at = _metadata_at(data)
        digits = b"%08x" % google_crc32c.value(data)
        return data[:at] + data[at:].replace(_MARK + _NO_CHECKSUM, _MARK + digits)

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches), self._row_count)
        self._batches = []
        self._row_count = 0


def checkpoint_of(actions: Iterable[Action]) -> bytes:
    """The content of a checkpoint that says just this."""
    writer = CheckpointWriter()
    for action in actions:
        for kind, body in action.to_json().items():
            writer.write(kind, pa.array([body], CHECKPOINT_SCHEMA.field(kind).type))
    return writer.finish()


@contextmanager
def open_checkpoint(store: ObjectStore, version: int) -> Iterator[pq.ParquetFile]:
    """The checkpoint of a version, whole: what fails while it is read is damage as well.

    Raises:
        NotFound: There is none.
        LogDamagedError: It is damaged; the message names it.
        StoreUnavailableError: The store could not read it.
    """
    path = f"{store.uri}/{checkpoint_path(version)}"
    with read_checkpoint(store.read(checkpoint_path(version)), path) as parquet:
        yield parquet


@contextmanager
def read_checkpoint(data: bytes, path: str) -> Iterator[pq.ParquetFile]:
    """As `open_checkpoint`, of a file's content."""
    try:
        _check_checksum(data)
        with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as parquet:
            yield parquet
    except CHECKPOINT_ERRORS as error:
        raise LogDamagedError(f"the checkpoint {path} is damaged: {error}", file=path) from error


def check_whole(data: bytes, path: str) -> None:
    """Whether a checkpoint's content can be read to its end. Compares nothing but that it is of one
    table.

    Raises:
        LogDamagedError: It cannot; the message names it.
    """
    with read_checkpoint(data, path) as parquet:
        # What the checksum has passed needs no look at every value.
        wanted = ["metaData", "protocol"] if _checksums(data) else None
        found = dict.fromkeys(("metaData", "protocol"), 0)
        for batch in parquet.iter_batches(ROWS_AT_A_TIME, columns=wanted, use_threads=False):
            for name in found:
                rows = batch.column(name)
                found[name] += len(rows) - rows.null_count
        if set(found.values()) != {1}:
            raise ValueError(f"it has {found} rows of its table instead of one each")


def _check_checksum(data: bytes) -> None:
    found = _checksums(data)
    if not found:
        return
    crc, start = 0, 0
    for position, _ in found:
        crc = google_crc32c.extend(crc, data[start:position])
        crc = google_crc32c.extend(crc, _NO_CHECKSUM)
        start = position + len(_NO_CHECKSUM)
    crc = google_crc32c.extend(crc, data[start:])
    said = {digits.decode() for _, digits in found}
    if len(found) != len(_CHECKSUM_METADATA) or said != {f"{crc:08x}"}:
        raise ValueError(f"its checksum is {crc:08x}, and it says {' and '.join(sorted(said))}")


def _checksums(data: bytes) -> list[tuple[int, bytes]]:
    """Where the digits of checksums are, and what they are."""
    at = _metadata_at(data)
    return [(match.start(1), match[1]) for match in _CHECKSUM.finditer(data, at)]


def _metadata_at(data: bytes) -> int:
    return max(len(data) - _METADATA_WITHIN, 0)
