"""Objects read in parts of which a cache on a local disk may have some."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from mainstem.delta_log.store.cloud_file import BLOCK_BYTES
from mainstem.delta_log.store.cloud_reader import ObjectEnd, is_data_file
from mainstem.delta_log.store.disk_cache import DiskCache

#: In front of the end of an object in the cache: how large the object is.
_SIZE: Final = struct.Struct("<Q")

#: The bytes in [start, start + length) of an object; fewer where it has become shorter.
ReadRange = Callable[[int, int], bytes]


class CachedParts:
    """Of data files, whose names are given once; all others are read from the store.

    Whoever reads in whatever pieces: blocks of `BLOCK_BYTES` are kept, so that readers of the same
    file share them.

    Args:
        cache: None: nothing is kept.
        uri: Of the store: another one may have files of the same names.
    """

    def __init__(self, cache: DiskCache | None, uri: str) -> None:
        self._cache = cache
        self._uri = uri

    def end(self, path: str, read: Callable[[], ObjectEnd]) -> ObjectEnd:
        """The size and the end of an object; from `read`, if they are not kept."""
        cache = self._cache
        if cache is None or not is_data_file(path):
            return read()
        name = f"{self._uri}/{path} end"
        kept = cache.get(name)
        if kept is not None:
            return _SIZE.unpack_from(kept)[0], kept[_SIZE.size :]
        size, tail = read()
        cache.put(name, _SIZE.pack(size) + tail)
        return size, tail

    def range(self, path: str, start: int, length: int, read: ReadRange, end_offset: int) -> bytes:
        """The bytes in [start, start + length) of an object; what is not kept from `read`.

        Args:
            end_offset: Where the last block ends: no more is asked for than lies before.
        """
        cache = self._cache
        if cache is None or not is_data_file(path):
            return read(start, length)
        end = start + length
        assert end <= end_offset
        begin = start // BLOCK_BYTES * BLOCK_BYTES
        parts: list[bytes] = []
        missing: list[int] = []
        for block in range(begin, end, BLOCK_BYTES):
            kept = cache.get(self._block_name(path, block, end_offset))
            if kept is None:
                missing.append(block)
                continue
            if missing and not self._read_into(parts, path, missing, read, end_offset):
                return _cut(parts, start - begin, length)
            missing = []
            parts.append(kept)
        if missing:
            self._read_into(parts, path, missing, read, end_offset)
        return _cut(parts, start - begin, length)

    def _read_into(
        self, parts: list[bytes], path: str, blocks: list[int], read: ReadRange, end_offset: int
    ) -> bool:
        """Reads blocks that follow each other in one request; whether all of them were there."""
        assert self._cache is not None
        begin, end = blocks[0], min(blocks[-1] + BLOCK_BYTES, end_offset)
        data = read(begin, end - begin)
        parts.append(data)
        if len(data) < end - begin:
            return False
        for block in blocks:
            part = data[block - begin : block - begin + BLOCK_BYTES]
            self._cache.put(self._block_name(path, block, end_offset), part)
        return True

    def _block_name(self, path: str, block: int, end_offset: int) -> str:
        return f"{self._uri}/{path} {block} {min(block + BLOCK_BYTES, end_offset)}"


def _cut(parts: list[bytes], start: int, length: int) -> bytes:
    whole = parts[0] if len(parts) == 1 else b"".join(parts)
    return whole[start : start + length]
