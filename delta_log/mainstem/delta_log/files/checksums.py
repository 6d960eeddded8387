"""The checksums of a data file: those of its blocks are in its footer, that of its tail in the log.

A file is cut into blocks of 256 KiB. What whole blocks leave over before the footer belongs, with
the footer, to the tail; a small file is all tail. A reader that knows a file's `add` action so can
tell for every byte whether it is what was written, also where it reads a part of the file only. The
checksums of Parquet's pages would leave out the headers of the pages, and the footer.

Pure: no I/O. `docs/concepts/table-format.md` specifies it.
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.limits import KIB

#: What has a checksum of its own. A reader takes blocks whole; and what was just read of one is
#: still in the processor's cache, where a checksum costs a tenth of what it does in memory.
BLOCK_BYTES: Final = 256 * KIB

#: At the end of a Parquet file: the length of the footer, and the magic number.
TRAILER_BYTES: Final = 8

_KEY: Final = "mainstem.blocks.crc32c"
_DIGITS: Final = 8


def crc32c(data: pa.Buffer) -> int:
    """The CRC32C (Castagnoli) of some bytes."""
    return int(google_crc32c.value(data))


def tail_start(body_bytes: int) -> int:
    """Where the tail of a file begins that has so many bytes before its footer."""
    return body_bytes // BLOCK_BYTES * BLOCK_BYTES


def blank_checksums(body_bytes: int) -> dict[str, str]:
    """What `seal` fills in, to be written into the footer's key-value metadata; empty for a file
    without whole blocks."""
    count = body_bytes // BLOCK_BYTES
    return {_KEY: "0" * _DIGITS * count} if count else {}


def seal(data: pa.Buffer, body_bytes: int) -> int:
    """Fills in the checksums of a file's blocks; returns that of its tail.

    Args:
        data: The whole file, with `blank_checksums`. It is changed in place, so nobody else has it
            yet.
        body_bytes: What comes before the footer.
    """
    start = tail_start(body_bytes)
    if start:
        digits = b"".join(
            b"%08x" % crc32c(data.slice(block, BLOCK_BYTES))
            for block in range(0, start, BLOCK_BYTES)
        )
        written = data.slice(body_bytes).to_pybytes()
        key_end = written.rindex(_KEY.encode()) + len(_KEY)
        # Backwards: the length in front of the value may be the character 0 as well. In Thrift a
        # value begins after a byte and a length of at most five.
        at = body_bytes + written.rindex(b"0" * len(digits), key_end, key_end + 6 + len(digits))
        memoryview(data).cast("B")[at : at + len(digits)] = digits
    return crc32c(data.slice(start))


def footer_bytes(end: pa.Buffer) -> int:
    """How long the footer of a file is, with what follows it, given the last bytes of the file."""
    length = end.slice(end.size - TRAILER_BYTES, 4).to_pybytes()
    return int.from_bytes(length, "little") + TRAILER_BYTES


def block_checksums(metadata: pq.FileMetaData, body_bytes: int) -> list[int]:
    """The checksums of a file's blocks, from its footer.

    Raises:
        ValueError: The footer has others than its file needs.
    """
    digits = (metadata.metadata or {}).get(_KEY.encode(), b"")
    wanted = body_bytes // BLOCK_BYTES
    if len(digits) != _DIGITS * wanted:
        raise ValueError(
            f"its footer has checksums of {len(digits) / _DIGITS:g} blocks instead of {wanted}"
        )
    return [int(digits[at : at + _DIGITS], 16) for at in range(0, len(digits), _DIGITS)]
