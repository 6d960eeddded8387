"""What every program over a stream of records needs: values parsed and bad ones set aside, headers
as columns, the latest state by key.

All of it takes and gives DataFrames with the columns of the source `mainstem` (or of Spark's Kafka
source), batch or stream, classic or Connect. In the functions of a pipeline, where nobody may look
at a DataFrame, columns are not checked, the source has to be read with `includeHeaders`, and a
schema of JSON is a StructType. Nothing here reads or writes by itself, but for `upsert_latest` and
`infer_json_schema`.
"""

from mainstem.jobs.streams.avro_values import parse_avro
from mainstem.jobs.streams.headers import flatten_headers
from mainstem.jobs.streams.json_values import infer_json_schema, parse_json
from mainstem.jobs.streams.latest import latest_by_key, upsert_latest
from mainstem.jobs.streams.parsed import Parsed
from mainstem.jobs.streams.protobuf_values import parse_protobuf

__all__ = [
    "Parsed",
    "flatten_headers",
    "infer_json_schema",
    "latest_by_key",
    "parse_avro",
    "parse_json",
    "parse_protobuf",
    "upsert_latest",
]
