"""How a data file is written: its columns, their encodings, and its checksums."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log.files.checksums import blank_checksums, seal
from mainstem.records import FILE_SCHEMA

_COMPRESSION: Final[dict[str, tuple[str, int | None]]] = {
    "zstd": ("zstd", 1),
    "lz4": ("lz4", None),
    "snappy": ("snappy", None),
    "gzip": ("gzip", 1),
    "none": ("none", None),
}

#: Lengths apart from the bytes: twice as fast to write as a dictionary for keys and values that
#: rarely repeat.
_ENCODINGS: Final = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "key": "DELTA_LENGTH_BYTE_ARRAY",
    "value": "DELTA_LENGTH_BYTE_ARRAY",
    "headers.list.element.value": "DELTA_LENGTH_BYTE_ARRAY",
    "sequence": "DELTA_BINARY_PACKED",
}

#: What may be compressed, and its columns; numbers are small as they are encoded.
COMPRESSED: Final = {
    "key": ["key"],
    "value": ["value"],
    "headers": ["headers.list.element.key", "headers.list.element.value"],
}

_DICTIONARY: Final = ["partition", "timestamp_type", "producer_id", "headers.list.element.key"]

#: What Spark and the index prune on; of `partition`, Iceberg takes the file's partition from there.
#: None on key and value: one large value would fill the log.
STATISTICS: Final = ["partition", "offset", "timestamp"]


class DataFileEncoder:
    """Encodes one data file of a partition, row group by row group.

    Args:
        compressed: Which of key, value and headers are compressed.
    """

    def __init__(
        self, partition: int, compression_type: str, compressed: Iterable[str] = COMPRESSED
    ) -> None:
        self._partition = pa.scalar(partition, pa.int32())
        self._sink = pa.BufferOutputStream()
        codec, level = _COMPRESSION[compression_type]
        columns = [path for name in compressed for path in COMPRESSED[name]]
        self._writer = pq.ParquetWriter(
            self._sink,
            FILE_SCHEMA,
            compression=dict.fromkeys(columns, codec),
            compression_level=None if level is None else dict.fromkeys(columns, level),
            use_dictionary=_DICTIONARY,
            column_encoding=_ENCODINGS,
            write_statistics=STATISTICS,
            write_page_checksum=True,
            store_schema=False,
        )

    @property
    def size_bytes(self) -> int:
        """Encoded so far."""
        return int(self._sink.tell())

    def write(self, columns: Iterable[pa.Array | pa.ChunkedArray], row_group_rows: int) -> None:
        """Adds records.

        Args:
            columns: Those of `TABLE_SCHEMA`, all of one length, which is not 0.
            row_group_rows: How many records a row group gets at most.
        """
        rest = list(columns)
        partition = pa.repeat(self._partition, len(rest[0]))
        table = pa.Table.from_arrays([partition, *rest], schema=FILE_SCHEMA)
        self._writer.write_table(table, row_group_size=row_group_rows)

    def finish(self) -> tuple[pa.Buffer, int]:
        """The file, and the checksum of its tail."""
        body_bytes = self.size_bytes
        checksums = blank_checksums(body_bytes)
        if checksums:
            self._writer.add_key_value_metadata(checksums)
        self._writer.close()
        data = self._sink.getvalue()
        return data, seal(data, body_bytes)


def new_path(partition: int, base_offset: int) -> str:
    """A path of its own for a data file, in its partition's directory."""
    return f"partition={partition}/{base_offset:020d}-{uuid.uuid4().hex}.parquet"
