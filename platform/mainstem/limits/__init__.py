"""Every bound of the system in one place. Each says why it has its value."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

#: Kafka's: a directory name of 255 bytes less its suffixes.
TOPIC_NAME_LENGTH_MAX: Final = 249

#: A partition costs a directory, a register and memory; Kafka advises a few thousand a broker.
PARTITION_COUNT_MAX: Final = 10_000

#: 9999-12-31T23:59:59.999Z, the last instant that Delta, Spark and Python's datetime all print.
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999

#: Rows of one Parquet row group: what a reader decodes at a time.
ROW_GROUP_ROWS_MAX: Final = 128 * 1024

#: Bytes of records in one row group, so that large records do not make large row groups.
ROW_GROUP_BYTES_MAX: Final = 32 * MIB

#: Bytes of records that one table commit takes: bounds the memory and the time of a commit.
COMMIT_BYTES_MAX: Final = 64 * MIB

#: What a gRPC message may hold beside the records of a request.
MESSAGE_OVERHEAD_BYTES: Final = 64 * KIB

#: Records of one produce request. What they cost beside their bytes (offsets, positions in the
#: answer) is not in the size of the message, and records may be empty.
REQUEST_RECORDS_MAX: Final = 1_000_000

#: A header's key and value count for a record's size together with this many bytes each.
HEADER_OVERHEAD_BYTES: Final = 8

#: Table commits between two checkpoints of a topic: what opening it has to read beside one.
CHECKPOINT_INTERVAL_COMMITS: Final = 1_000

#: Topics that one gateway keeps open for appending: each has a state in memory and a task.
TOPICS_OPEN_MAX: Final = 10_000

assert ROW_GROUP_BYTES_MAX <= COMMIT_BYTES_MAX
