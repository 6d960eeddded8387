"""When the tombstones of a compacted partition may go: runs of offsets with a time each. Pure.

A tombstone can be read for `delete.retention.ms` from the compaction that first saw it. Kafka
writes that time into the batch; here the table's registers have it, by offsets, so that whatever
rewrites the files needs not know of it. See `mainstem.delta_log.format.registers`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.table import TableState
from mainstem.jobs.job import NEVER_MS

#: Runs that a partition has at a time.
SLOTS: Final = 32

#: While no more are in use, each run has the exact time. Then times are rounded up, so that later
#: compactions share a run: a tombstone stays up to an eighth of its retention longer.
_EXACT_SLOTS: Final = SLOTS // 2
_STEPS: Final = 8


class TombstoneRun(NamedTuple):
    """Tombstones at offsets [start_offset, end_offset), which may go from `expiry_ms` on."""

    slot: int
    start_offset: int
    end_offset: int
    expiry_ms: int


def tombstone_runs(state: TableState, partition: int) -> list[TombstoneRun]:
    """The runs of a partition, by offset. The first begins at 0."""
    ends = sorted(
        (end, slot)
        for slot in range(SLOTS)
        if (end := state.register_value(registers.tombstones_end(partition, slot)))
    )
    runs = []
    start = 0
    for end, slot in ends:
        expiry = state.register_value(registers.tombstones_expiry(partition, slot))
        runs.append(TombstoneRun(slot, start, end, expiry))
        start = end
    return runs


def freed(partition: int, runs: Collection[TombstoneRun]) -> list[Register]:
    """The registers that forget runs whose tombstones are gone."""
    return [Register(registers.tombstones_end(partition, run.slot), 0) for run in runs]


def added(
    partition: int,
    runs: Collection[TombstoneRun],
    end_offset: int,
    *,
    now_ms: int,
    retention_ms: int,
) -> list[Register]:
    """The registers that remember tombstones up to `end_offset`, seen for the first time now.

    Args:
        runs: Those that are there already and stay, by offset.
    """
    runs = list(runs)
    expiry = min(now_ms + retention_ms, NEVER_MS)
    if len(runs) >= _EXACT_SLOTS:
        step = max(retention_ms // _STEPS, 1)
        expiry = min(-(-expiry // step) * step, NEVER_MS)
    newest = runs[-1] if runs else None
    if newest is not None and (newest.expiry_ms == expiry or len(runs) == SLOTS):
        # With every run in use, which a retention that was shortened again and again can do, what
        # is in the newest one stays longer.
        slot, expiry = newest.slot, max(newest.expiry_ms, expiry)
    else:
        used = {run.slot for run in runs}
        slot = next(slot for slot in range(SLOTS) if slot not in used)
    return [
        Register(registers.tombstones_end(partition, slot), end_offset),
        Register(registers.tombstones_expiry(partition, slot), expiry),
    ]
