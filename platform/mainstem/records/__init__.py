"""Records: their schemas, names, sizes, timestamps, and Kafka's key hash."""

from mainstem.records._arrow import (
    FILE_SCHEMA,
    HEADERS_TYPE,
    TABLE_SCHEMA,
    WIRE_SCHEMA,
    bytes_column,
    empty_wire_batch,
    normalise_wire_batch,
    record_sizes,
    records_to_wire_batch,
    table_timestamps,
)
from mainstem.records._ipc_bounds import PackedBatch, packed_batches
from mainstem.records._murmur2 import (
    murmur2,
    murmur2_column,
    partition_for_key,
    partitions_for_keys,
)
from mainstem.records._timestamps import (
    format_timestamp_ms,
    parse_duration_ms,
    parse_timestamp_ms,
    timestamps_ms_column,
    timestamps_out_of_range,
)
from mainstem.records._topics import check_new_topic_name, check_topic_name

__all__ = [
    "FILE_SCHEMA",
    "HEADERS_TYPE",
    "TABLE_SCHEMA",
    "WIRE_SCHEMA",
    "PackedBatch",
    "bytes_column",
    "check_new_topic_name",
    "check_topic_name",
    "empty_wire_batch",
    "format_timestamp_ms",
    "murmur2",
    "murmur2_column",
    "normalise_wire_batch",
    "packed_batches",
    "parse_duration_ms",
    "parse_timestamp_ms",
    "partition_for_key",
    "partitions_for_keys",
    "record_sizes",
    "records_to_wire_batch",
    "table_timestamps",
    "timestamps_ms_column",
    "timestamps_out_of_range",
]
