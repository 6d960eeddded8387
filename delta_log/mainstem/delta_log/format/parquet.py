"""How the log's Parquet files are opened, checkpoints and data files alike."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.limits import KIB

#: What is read of a column at a time. Without a buffer a reader holds the whole column of a row
#: group, which in a checkpoint can be all of it, and in an old data file 32 MiB.
_BUFFER_BYTES: Final = 256 * KIB


def parquet_file(source: pa.NativeFile) -> pq.ParquetFile:
    """A reader of `source`, which the caller closes. Pages that have a checksum are compared.

    Raises:
        pa.ArrowException, OSError: It is not a Parquet file, or cannot be read.
    """
    return pq.ParquetFile(
        source, pre_buffer=False, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
    )
