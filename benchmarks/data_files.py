"""What it costs to write a data file and to read it back, from one record to half a million.

Encodes records of a 16 B key and a 100 B random value as an appender does, reads the file through a
store as fetches and jobs do, and prints the median and the least processor time of each, and the
size. To compare two versions of the code, run it in turns with each: machines change their pace.

Usage: python benchmarks/data_files.py [--directory DIR] [--rows 1,50,10000,500000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from mainstem.delta_log import LocalStore, read_data_file
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.format import DataFile
from mainstem.records import HEADERS_TYPE, WIRE_SCHEMA

KEY_BYTES = 16
VALUE_BYTES = 100
NOW_MS = 1_800_000_000_000

#: About a second for each size.
SECONDS = 1.0
REPETITIONS_MIN = 5


def records(rng: np.random.Generator, count: int) -> pa.RecordBatch:
    """Random keys and values, as they come from a producer."""

    def column(width: int) -> pa.Array:
        offsets = np.arange(count + 1, dtype=np.int32) * width
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rng.bytes(count * width))]
        return pa.Array.from_buffers(pa.binary(), count, buffers)

    times = pa.array(NOW_MS + np.arange(count)).view(WIRE_SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays(
        [column(KEY_BYTES), column(VALUE_BYTES), pa.nulls(count, HEADERS_TYPE), times],
        schema=WIRE_SCHEMA,
    )


def timed(work: Callable[[], object]) -> list[float]:
    """The seconds of processor time of each of some repetitions."""
    work()
    seconds: list[float] = []
    while len(seconds) < REPETITIONS_MIN or sum(seconds) < SECONDS:
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return seconds


def measure(store: LocalStore, count: int) -> dict[str, float]:
    """Microseconds of processor time to encode and to read a file of `count` records; its bytes."""
    batch = records(np.random.default_rng(1), count)

    def encode() -> tuple[DataFile, pa.Buffer]:
        return encode_data_file(
            3,
            0,
            [batch],
            timestamp_type=CREATE_TIME,
            compression_type="zstd",
            now_ms=NOW_MS,
        )

    file, data = encode()
    store.put(file.path, data)

    def read() -> None:
        for _ in read_data_file(store, file, 0, count):
            pass

    found: dict[str, float] = {"rows": count, "bytes": file.size_bytes}
    for name, work in (("encode", encode), ("read", read)):
        seconds = timed(work)
        found[f"{name}_us_median"] = round(statistics.median(seconds) * 1e6, 1)
        found[f"{name}_us_min"] = round(min(seconds) * 1e6, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", help="where the files are written; default: a temporary one")
    parser.add_argument("--rows", default="1,50,10000,500000", help="records of each file")
    parser.add_argument("--json", help="write the figures to this file too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        store = LocalStore(directory)
        figures = [measure(store, int(count)) for count in arguments.rows.split(",")]
        store.close()
    for one in figures:
        print(
            f"{one['rows']:>7} records, {one['bytes']:>9} bytes: "
            f"encode {one['encode_us_median']:>9} us (min {one['encode_us_min']}), "
            f"read {one['read_us_median']:>9} us (min {one['read_us_min']})"
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
