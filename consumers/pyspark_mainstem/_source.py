"""What Spark asks for first: the source's name, its schema, and its readers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
        from pyspark_mainstem._batch_reader import BatchReader
        from pyspark_mainstem._columns import check_schema

        check_schema(schema, self._parsed.columns)
        return BatchReader(self._parsed.for_batch())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_mainstem._columns import check_schema
        from pyspark_mainstem._stream_reader import StreamReader

        check_schema(schema, self._parsed.columns)
        return StreamReader(self._parsed.for_stream())
