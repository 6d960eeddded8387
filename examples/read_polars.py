"""Read a topic with Polars: it is a Delta table (pip install polars deltalake).

Usage: python read_polars.py WAREHOUSE TOPIC
       WAREHOUSE is a directory, or s3://bucket/prefix with the environment variables AWS_*
"""

from __future__ import annotations

import sys

import polars as pl


def main(warehouse: str, topic: str) -> None:
    # Lazy: only the files and columns that the query needs are read.
    table = pl.scan_delta(f"{warehouse}/topics/{topic}")
    by_partition = (
        table.group_by("partition")
        .agg(
            pl.len().alias("records"),
            pl.col("offset").min().alias("first"),
            pl.col("offset").max().alias("last"),
        )
        .sort("partition")
        .collect()
    )
    for partition, records, first, last in by_partition.iter_rows():
        print(f"partition {partition}: {records} records, offsets {first} to {last}")

    newest = (
        table.sort("timestamp", "partition", "offset", descending=True)
        .select("partition", "offset", pl.col("key").cast(pl.String), "value")
        .head(1)
        .collect()
    )
    for partition, offset, key, value in newest.iter_rows():
        print(f"newest: partition {partition}, offset {offset}, key {key}, value {value}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
