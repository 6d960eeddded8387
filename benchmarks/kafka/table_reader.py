"""A reader of a Delta table that is neither Spark nor ours: delta-rs."""

from __future__ import annotations

import pyarrow.parquet as pq
from benchmarks.kafka.worker import NUMBER
from deltalake import DeltaTable


class TableReader:
    """Polls a table whose column `value` begins with numbers; reads the data files that are new.

    Args:
        path: The table's directory; the table may come later.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._table: DeltaTable | None = None
        self._known: set[str] = set()

    def poll(self) -> list[int]:
        """The numbers in new files; those of files that were rewritten come again."""
        if self._table is None:
            if not DeltaTable.is_deltatable(self._path):
                return []
            self._table = DeltaTable(self._path)
        else:
            self._table.update_incremental()
        files = set(self._table.file_uris())
        found: list[int] = []
        for file in files - self._known:
            values = pq.ParquetFile(file).read(columns=["value"]).column("value")
            found += [NUMBER.unpack_from(value)[0] for value in values.to_pylist()]
        self._known = files
        return found
