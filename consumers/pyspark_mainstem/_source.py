"""What Spark asks for first: the source's name, its schema, and its readers."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


#: What runs in the process in which Spark pushes filters down. A reader that takes filters is an
#: error in every other one, where `spark.sql.python.filterPushdown.enabled` is not set.
_PUSH_DOWN: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class DefaultSource(DataSource):
    """The topics of a warehouse as Kafka's source would show them. Options:
    `docs/reference/spark-options.md`.
    """

    # Everything else is imported inside the methods: Spark makes an instance in a process of its
    # own for each DataFrame, and pyarrow and the log are needed where records are planned and read.

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from pyspark_mainstem._options import SourceOptions

        super().__init__(options)
        self._parsed = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "mainstem"

    def schema(self) -> StructType:
        from pyspark_mainstem._columns import spark_schema

        return spark_schema(self._parsed.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_mainstem._batch_reader import BatchReader, FilteredBatchReader
        from pyspark_mainstem._columns import columns_of

        kind = FilteredBatchReader if _PUSH_DOWN in sys.modules else BatchReader
        return kind(self._parsed.with_columns(columns_of(schema)).for_batch())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_mainstem._columns import columns_of
        from pyspark_mainstem._stream_reader import StreamReader

        return StreamReader(self._parsed.with_columns(columns_of(schema)).for_stream())
