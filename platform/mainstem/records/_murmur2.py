"""murmur2 as Kafka's Java client computes it, for one key and for a whole column.

Source: org.apache.kafka.common.utils.Utils.murmur2, and DefaultPartitioner for its use.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF

#: Longer keys are hashed one by one: a column takes a pass for each four bytes of the longest.
_COLUMN_KEY_BYTES_MAX = 512

#: So few keys are hashed one by one, too: the passes take a tenth of a millisecond to set up.
_FEW_KEYS_MAX = 16


def murmur2(data: bytes) -> int:
    """The hash of `data` as a signed 32-bit integer."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for index in range(0, whole, 4):
        k = int.from_bytes(data[index : index + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> _R
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    tail = data[whole:]
    if tail:
        h ^= int.from_bytes(tail, "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Kafka's default placement of a record with a key: `(murmur2 & 0x7fffffff) mod partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2_column(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """The hashes of a binary column, unsigned. A null hashes as empty: place nulls otherwise.

    Raises:
        TypeError: The column is not of Arrow's type `binary`.
    """
    if keys.type != pa.binary():
        raise TypeError(f"keys have the Arrow type {keys.type}; it must be binary")
    count = len(keys)
    if count <= _FEW_KEYS_MAX:
        hashed = [murmur2(key or b"") & _MASK for key in keys.to_pylist()]
        return np.array(hashed, dtype=np.uint32)
    _, offsets_buffer, data_buffer = keys.buffers()
    if offsets_buffer is None:
        return np.zeros(count, dtype=np.uint32)
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, 4 * keys.offset)
    starts = offsets[:-1].astype(np.int64)
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int64)
    if keys.null_count:  # there may be bytes under a null
        lengths[np.asarray(keys.is_null())] = 0
    data = (
        np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, dtype=np.uint8)
    )
    if data.size < 4:
        data = np.concatenate([data, np.zeros(4, dtype=np.uint8)])

    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    column = np.flatnonzero(lengths <= _COLUMN_KEY_BYTES_MAX)
    if column.size == count:
        _mix(hashes, data, starts, lengths)
    else:
        part = hashes[column]
        _mix(part, data, starts[column], lengths[column])
        hashes[column] = part
        for row in np.flatnonzero(lengths > _COLUMN_KEY_BYTES_MAX):
            start = int(starts[row])
            hashes[row] = murmur2(data[start : start + int(lengths[row])].tobytes()) & _MASK
    return hashes


def _mix(
    hashes: npt.NDArray[np.uint32],
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    """The rounds, in place: one pass for each four bytes of the longest key."""
    if lengths.size == 0:
        return
    m = np.uint32(_M)
    words = lengths >> 2
    same_words = int(words.min())
    for word in range(int(words.max())):
        if word < same_words:
            k = _words_at(data, starts + 4 * word)
            k *= m
            k ^= k >> np.uint32(_R)
            k *= m
            hashes *= m
            hashes ^= k
        else:
            rows = np.flatnonzero(words > word)
            k = _words_at(data, starts[rows] + 4 * word)
            k *= m
            k ^= k >> np.uint32(_R)
            k *= m
            hashes[rows] = (hashes[rows] * m) ^ k
    tails = lengths & 3
    rows = np.flatnonzero(tails)
    if rows.size:
        at = starts[rows] + 4 * words[rows]
        rest = tails[rows]
        last = data.size - 1
        tail = data[at].astype(np.uint32)
        tail |= np.where(rest > 1, data[np.minimum(at + 1, last)], 0).astype(
            np.uint32
        ) << np.uint32(8)
        tail |= np.where(rest > 2, data[np.minimum(at + 2, last)], 0).astype(
            np.uint32
        ) << np.uint32(16)
        hashes[rows] = (hashes[rows] ^ tail) * m
    hashes ^= hashes >> np.uint32(13)
    hashes *= m
    hashes ^= hashes >> np.uint32(15)


def _words_at(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The little-endian 32-bit words that start at byte positions `at`."""
    windows = np.ndarray(shape=(data.size - 3,), dtype="<u4", buffer=data, strides=(1,))
    return windows[at]


def partitions_for_keys(keys: pa.BinaryArray, partition_count: int) -> npt.NDArray[np.int32]:
    """`partition_for_key` for a column. A null key gets what an empty one does: place it."""
    positive = murmur2_column(keys) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(partition_count)).astype(np.int32)
