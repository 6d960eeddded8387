"""Read a topic with DuckDB (pip install duckdb deltalake).

DuckDB has a Delta extension, which it downloads when it is first used; with it,
`SELECT ... FROM delta_scan('<warehouse>/topics/<topic>')` is all that it takes. This works without:
deltalake says which files the table has, and DuckDB reads those.

Usage: python read_duckdb.py WAREHOUSE TOPIC
       WAREHOUSE is a directory, or s3://bucket/prefix with the environment variables AWS_*
"""

from __future__ import annotations

import sys

import duckdb
from deltalake import DeltaTable


def main(warehouse: str, topic: str) -> None:
    # A snapshot of the table. DuckDB pushes columns and filters down into it.
    snapshot = DeltaTable(f"{warehouse}/topics/{topic}").to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("topic", snapshot)
        rows = connection.sql(
            """
            SELECT partition, count(*), min("offset"), max("offset")
            FROM topic GROUP BY partition ORDER BY partition
            """
        ).fetchall()
        for partition, records, first, last in rows:
            print(f"partition {partition}: {records} records, offsets {first} to {last}")

        rows = connection.sql(
            """
            SELECT decode(key) AS key, count(*) AS records FROM topic
            WHERE key IS NOT NULL GROUP BY ALL ORDER BY records DESC, key LIMIT 3
            """
        ).fetchall()
        for key, records in rows:
            print(f"key {key}: {records} records")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
