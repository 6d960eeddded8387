"""Where a record goes that names no partition: by murmur2 of its key, or sticky without a key."""

from __future__ import annotations

import random
import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.records import partitions_for_keys

#: Records without a key stay on one partition for this many bytes: Kafka's sticky partitioner.
STICKY_BYTES = 16 * 1024


class StickyPlacement:
    """Places the records of one topic, in any thread.

    Args:
        dice: Chooses the next sticky partition.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._partition = -1
        self._bytes_left = 0
        self._lock = threading.Lock()

    def place(
        self,
        keys: pa.BinaryArray,
        sizes: npt.NDArray[np.int64],
        given: npt.NDArray[np.int32] | None,
        partition_count: int,
    ) -> npt.NDArray[np.int32]:
        """The partition of each record.

        Args:
            keys: Null where a record has no key; an empty key is a key.
            sizes: Bytes of each record.
            given: The partition that a record names, -1 where it names none. None: none does.
        """
        placed = partitions_for_keys(keys, partition_count)
        keyless = np.asarray(keys.is_null())
        if given is not None:
            named = given >= 0
            placed[named] = given[named]
            keyless &= ~named
        if keyless.any():
            placed[keyless] = self._next(int(sizes[keyless].sum()), partition_count)
        return placed

    def _next(self, size_bytes: int, partition_count: int) -> int:
        with self._lock:
            if self._bytes_left <= 0 or self._partition >= partition_count:
                others = [number for number in range(partition_count) if number != self._partition]
                self._partition = self._dice.choice(others) if others else 0
                self._bytes_left = STICKY_BYTES
            self._bytes_left -= size_bytes
            return self._partition
