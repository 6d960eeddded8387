"""Opens data files, such that nothing of them is decoded which their checksums do not vouch for."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log.files.checksums import (
    BLOCK_BYTES,
    TRAILER_BYTES,
    block_checksums,
    crc32c,
    footer_bytes,
    tail_start,
)
from mainstem.delta_log.format import DataFile, parquet_file
from mainstem.delta_log.store import ObjectStore, RandomAccessFile
from mainstem.errors import LogDamagedError, MainstemError, StoreUnavailableError
from mainstem.limits import KIB, MIB

#: What is read of a file's end at first: in most cases the tail, and so most appends altogether.
_END_BYTES: Final = 64 * KIB

#: A file of at most so many bytes is read at once: most of it is one column that would be held
#: whole while it is decoded, and Arrow then decodes without asking Python, which may have others to
#: serve. No larger than what a store reads ahead.
_WHOLE_BYTES: Final = 4 * MIB

_MAGIC_BYTES: Final = 4


class DataFileReader:
    """An open data file. Close it.

    Attributes:
        parquet: Decodes it. What it raises is translated by `error`.
    """

    def __init__(self, source: pa.NativeFile, file: DataFile, name: str) -> None:
        """Reads the footer.

        Args:
            source: The file's bytes; closed with the reader.
            name: Of the file, for messages.

        Raises:
            LogDamagedError: The file is not what was written.
            StoreUnavailableError: The store could not read it.
        """
        self._source = source
        self._file = file
        self._name = name
        self._blocks: _CheckedBlocks | None = None
        try:
            self.parquet = self._open()
        except (pa.ArrowException, OSError) as error:
            source.close()
            raise self.error(error) from error
        except BaseException:
            source.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file."""
        self._source.close()

    def check_all(self) -> None:
        """Reads every byte that has a checksum, also of what `parquet` need not decode.

        Raises:
            LogDamagedError, StoreUnavailableError: As the constructor.
        """
        if self._blocks is None:
            return
        try:
            self._blocks.check_all()
        except (pa.ArrowException, OSError) as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> MainstemError:
        """What to raise for Arrow's `error`: the store failed, or the file is damaged.

        A failed read may work the next time, as when a network file system comes back.
        """
        if isinstance(error, OSError) and error.errno is not None:
            return StoreUnavailableError(
                f"the store could not read the data file {self._name}: {error}", path=self._name
            )
        return self._damaged(str(error))

    def _open(self) -> pq.ParquetFile:
        size = self._source.size()
        if size != self._file.size_bytes:
            raise self._damaged(f"it has {size} bytes; the log says {self._file.size_bytes}")
        if self._file.tail_crc32c is None:  # a file of before there were checksums
            return parquet_file(self._source)
        if size < _MAGIC_BYTES + TRAILER_BYTES:
            raise self._damaged(f"{size} bytes are too few for a data file")
        end = self._read(0 if size <= _WHOLE_BYTES else size - _END_BYTES, size)
        body_bytes = size - footer_bytes(end)
        if body_bytes < 0:
            raise self._damaged(f"its footer should have {size - body_bytes} of its {size} bytes")
        start = tail_start(body_bytes)
        held = size - end.size
        tail = end.slice(start - held) if held <= start else self._read(start, size)
        found = crc32c(tail)
        if found != self._file.tail_crc32c:
            raise self._damaged(
                f"the checksum of its tail, from byte {start} on, is {found:08x}; the log says "
                f"{self._file.tail_crc32c:08x}"
            )
        # The footer has offsets from the file's start, which a tail alone lacks.
        whole = end.size == size
        if whole:
            self._source.close()
        parquet = pq.ParquetFile(pa.BufferReader(end if whole else tail), pre_buffer=False)
        if not start:
            return parquet
        try:
            checksums = block_checksums(parquet.metadata, body_bytes)
        except ValueError as error:
            raise self._damaged(str(error)) from error
        if whole:
            for begin, checksum in zip(range(0, start, BLOCK_BYTES), checksums, strict=True):
                _check_block(end.slice(begin, BLOCK_BYTES), begin, checksum)
            return parquet
        self._blocks = _CheckedBlocks(self._source, tail, start, checksums)
        return pq.ParquetFile(
            pa.PythonFile(self._blocks, mode="r"), metadata=parquet.metadata, pre_buffer=False
        )

    def _read(self, start: int, end: int) -> pa.Buffer:
        self._source.seek(start)
        data = self._source.read_buffer(end - start)
        if data.size != end - start:
            raise self._damaged(f"it ends at byte {start + data.size} instead of {end}")
        return data

    def _damaged(self, what: str) -> LogDamagedError:
        return LogDamagedError(
            f"the data file {self._name} is damaged: {what}", file=self._file.path
        )


def open_data_file(store: ObjectStore, file: DataFile) -> DataFileReader:
    """Opens a data file of the table at the root of `store`.

    Raises:
        NotFound: The file is not there.
        LogDamagedError, StoreUnavailableError: As `DataFileReader`.
    """
    return DataFileReader(store.open(file.path), file, f"{store.uri}/{file.path}")


class _CheckedBlocks(RandomAccessFile):
    """A file of whole blocks and a tail, for Arrow, which asks for a column of a row group at a
    time.

    Blocks are read whole. The last ones are kept, since small columns share a block.
    """

    def __init__(
        self, source: pa.NativeFile, tail: pa.Buffer, tail_start: int, checksums: list[int]
    ) -> None:
        super().__init__()
        self._source = source
        self._tail = tail
        self._tail_start = tail_start
        self._checksums = checksums
        self._start = 0
        self._blocks = tail.slice(0, 0)

    def end(self) -> int:
        size: int = self._tail.size
        return self._tail_start + size

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int) -> pa.Buffer:
        """The next bytes, without a copy: Arrow prefers this to `read`."""
        start, end = self._position, self._position + size
        self._position = end
        if start >= self._tail_start:
            return self._tail.slice(start - self._tail_start, size)
        if start < self._start or end > self._start + self._blocks.size:
            self._take(start, end)
        return self._blocks.slice(start - self._start, size)

    def check_all(self) -> None:
        """Reads every block."""
        for start in range(0, self._tail_start, BLOCK_BYTES):
            self._take(start, start + BLOCK_BYTES)

    def _take(self, start: int, end: int) -> None:
        """Reads the blocks that have the bytes [start, end), one after the other, so that each is
        in the processor's cache when its checksum is computed."""
        first = start // BLOCK_BYTES * BLOCK_BYTES
        last = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self._tail_start)
        from_tail = max(end - self._tail_start, 0)
        held = pa.allocate_buffer(last - first + from_tail)
        view = memoryview(held).cast("B")
        self._source.seek(first)
        for begin in range(0, last - first, BLOCK_BYTES):
            if self._source.readinto(view[begin : begin + BLOCK_BYTES]) != BLOCK_BYTES:
                raise pa.ArrowInvalid(f"it ends in the block at byte {first + begin}")
            _check_block(
                held.slice(begin, BLOCK_BYTES),
                first + begin,
                self._checksums[(first + begin) // BLOCK_BYTES],
            )
        if from_tail:
            view[last - first :] = memoryview(self._tail.slice(0, from_tail)).cast("B")
        self._start = first
        self._blocks = held


def _check_block(block: pa.Buffer, start: int, checksum: int) -> None:
    """Raises ArrowInvalid where a block is not what the footer says."""
    if crc32c(block) != checksum:
        raise pa.ArrowInvalid(
            f"the block at byte {start} has another checksum than its footer says"
        )
