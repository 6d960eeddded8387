"""What Spark asks for first: the name of the source and sink, a schema, readers and writers."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_mainstem._options import SourceOptions
    from pyspark_mainstem._sink_options import SinkOptions


#: What runs in the process in which Spark pushes filters down. A reader that takes filters is an
#: error in every other one, where `spark.sql.python.filterPushdown.enabled` is not set.
_PUSH_DOWN: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class DefaultSource(DataSource):
    """The topics of a warehouse as Kafka's source would show them, and a sink that sends to them.
    Options: `docs/reference/spark-options.md`.
    """

    # Everything else is imported inside the methods: Spark makes an instance in a process of its
    # own for each DataFrame, and pyarrow and the log are needed where records are planned and read.
    # Which options there may be is known when Spark asks for a schema, a reader or a writer.

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "mainstem"

    @cached_property
    def _parsed(self) -> SourceOptions:
        from pyspark_mainstem._options import SourceOptions

        return SourceOptions.parse(self.options)

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

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mainstem.errors import InvalidConfigError
        from pyspark_mainstem._sink_writers import BatchWriter

        if overwrite:
            raise InvalidConfigError(
                "a topic is a log: nothing in it is overwritten. Use mode('append')"
            )
        return BatchWriter(self._for_sink(schema, stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_mainstem._sink_writers import StreamWriter

        # `overwrite` is output mode complete: each epoch has the whole result, as with Kafka's.
        return StreamWriter(self._for_sink(schema, stream=True))

    def _for_sink(self, schema: StructType, *, stream: bool) -> SinkOptions:
        from pyspark_mainstem._sink_columns import check_schema
        from pyspark_mainstem._sink_options import SinkOptions

        options = SinkOptions.parse(self.options, stream=stream)
        check_schema(schema, options.topic)
        return options
