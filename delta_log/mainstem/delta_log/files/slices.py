"""Records on their way into a data file: slices of requests, and the files that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from mainstem.delta_log.files.data_file import CREATE_TIME, LOG_APPEND_TIME, encode_data_file
from mainstem.delta_log.format import DataFile, ProducerBatch
from mainstem.delta_log.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Slice:
    """Records of one request for one partition, as a wire batch.

    Attributes:
        producer: Who numbered the records, with the sequence of the first; None: nobody.
        log_append_time: The timestamps are the log's own, not the producer's. None: what the
            topic's setting says when the request is accepted.
        size_bytes: About what the records take in memory; not given, it is counted. Once, where the
            slice is made: at each count Arrow lets other threads go first, which an event loop with
            a thousand slices would notice.
    """

    partition: int
    records: pa.RecordBatch
    producer: ProducerBatch | None = None
    log_append_time: bool | None = None
    size_bytes: int = -1

    def __post_init__(self) -> None:
        if self.size_bytes < 0:
            object.__setattr__(self, "size_bytes", self.records.nbytes)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that is in the store.

    Attributes:
        content: Its bytes; None: there are too many to keep them.
    """

    file: DataFile
    content: bytes | None


def encode_slices(
    partition: int,
    base_offset: int,
    slices: Sequence[Slice],
    *,
    compression_type: str,
    now_ms: int,
) -> tuple[DataFile, pa.Buffer]:
    """Consecutive slices of a partition as one data file: its action, and its bytes."""
    return encode_data_file(
        partition,
        base_offset,
        [slice_.records for slice_ in slices],
        producers=[slice_.producer for slice_ in slices],
        timestamp_type=[
            LOG_APPEND_TIME if slice_.log_append_time else CREATE_TIME for slice_ in slices
        ],
        compression_type=compression_type,
        now_ms=now_ms,
    )


def put_file(
    store: ObjectStore, file: DataFile, data: pa.Buffer, content_bytes_max: int
) -> WrittenFile:
    """Makes an encoded data file durable. Blocks.

    Args:
        content_bytes_max: Of a larger file no bytes are returned.

    Raises:
        StoreUnavailableError: The store failed.
    """
    store.put(file.path, data)
    # A copy, because the buffer that it was written into is up to twice as large.
    return WrittenFile(file, data.to_pybytes() if data.size <= content_bytes_max else None)
