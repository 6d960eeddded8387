"""What becomes of what a write-ahead log has of a topic, at a start or without the lead.

**What is decided never changes.** A partition's register `mainstem/epoch/<partition>` says in which
leader epoch its last record was accepted, and never goes back. Once it is higher than the epoch of
an entry that is not in the table, another leader has given away what came after the partition's end
as the entry knew it: the entry is an orphan, whatever offsets the partition comes to later. A file
of orphans decides as well: what is in one stays an orphan.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from mainstem.delta_log.files import Slice
from mainstem.delta_log.format import Batch, registers
from mainstem.delta_log.table import TableState
from mainstem.delta_log.wal import Part, Wal, WalRequest

Entry = tuple[int, WalRequest]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a log had of a topic.

    Attributes:
        requests: With their entry numbers, in order: they continue the partitions where they end.
        orphan_count: Records that can no longer get into the table, and were not kept before.
        orphans_path: The file that keeps them.
        waiting_count: Records of which nobody can say yet what becomes of them.
    """

    requests: tuple[Entry, ...] = ()
    orphan_count: int = 0
    orphans_path: str = ""
    waiting_count: int = 0


@dataclass(slots=True)
class Judgement:
    """The entries of a topic, by what becomes of them: whole, or some of their batches.

    Attributes:
        fitting: To be appended, at their offsets.
        orphans: Can no longer be appended, and no file of orphans has them yet.
        waiting: The topic is led elsewhere, and its leader has not appended to the partition.
        settled: Numbers of entries of which nothing is left to do, once `orphans` are kept.
    """

    fitting: list[Entry] = field(default_factory=list)
    orphans: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)


def judge(
    entries: Iterable[Entry], state: TableState, kept: AbstractSet[Part], *, is_led: bool
) -> Judgement:
    """Decides what becomes of each batch. Pure.

    Args:
        entries: By number; those that `state` has by its register for the log are left out. A batch
            may come twice.
        state: With the epoch that the caller has claimed, if it `is_led`; else one that was the
            newest a moment ago.
        kept: What files of orphans have.
        is_led: Nobody else can append any more, so a batch that fits is appended, and one that does
            not never will.
    """
    judgement = Judgement()
    seen: set[Part] = set()
    ends: dict[int, int] = {}
    #: The epoch up to which a partition's entries are orphans since one before them is.
    parted: dict[int, int] = {}
    for number, request in entries:
        epoch = request.epoch
        fitting: list[tuple[Slice, Batch]] = []
        orphans: list[tuple[Slice, Batch]] = []
        waiting: list[tuple[Slice, Batch]] = []
        for slice_, batch in zip(request.slices, request.batches, strict=True):
            partition = batch.partition
            part = (number, partition, batch.base_offset)
            if part in seen:
                continue
            seen.add(part)
            end = state.log_end_offset(partition)
            accepted_in = state.register_value(registers.partition_epoch(partition))
            if part in kept:
                parted[partition] = epoch
            elif accepted_in == epoch and batch.base_offset + batch.record_count <= end:
                pass  # in the table: an epoch gives an offset once, and nobody came after it
            elif accepted_in > epoch:
                orphans.append((slice_, batch))
            elif not is_led:
                waiting.append((slice_, batch))
            elif parted.get(partition, -1) < epoch and batch.base_offset == ends.get(
                partition, end
            ):
                ends[partition] = batch.base_offset + batch.record_count
                fitting.append((slice_, batch))
            else:
                parted[partition] = epoch
                orphans.append((slice_, batch))
        if fitting:
            judgement.fitting.append((number, request.only(fitting)))
        if orphans:
            judgement.orphans.append((number, request.only(orphans)))
        if waiting:
            judgement.waiting.append((number, request.only(waiting)))
        judgement.settled.add(number)
    judgement.settled -= {number for number, _ in (*judgement.fitting, *judgement.waiting)}
    return judgement


async def recover_topic(wal: Wal, topic: str, state: TableState, *, is_led: bool) -> Recovered:
    """Settles what the log has of a topic, but for what is to be appended, or waits.

    A batch whose first offset is where its partition ends is to be appended there, as if nothing
    had happened. Orphans are kept in a file beside the log, never written over what others own,
    never dropped; the file is durable before the log lets go of anything.

    Args:
        state: See `judge`.

    Raises:
        LogDamagedError, StoreUnavailableError: The log, or a file of orphans, fails.
    """
    topic_id = state.topic_id
    folded = state.register_value(wal.register)
    entries = await wal.unfolded(topic, topic_id, folded)
    if not entries:
        return Recovered()
    kept = await wal.kept_orphans(topic_id, {number for number, _ in entries})
    judgement = judge(entries, state, kept, is_led=is_led)
    path = ""
    if judgement.orphans:
        path = await wal.keep_orphans(topic_id, judgement.orphans)
    wal.release(topic, topic_id, judgement.settled)
    return Recovered(
        tuple(judgement.fitting), _count(judgement.orphans), path, _count(judgement.waiting)
    )


def _count(entries: Iterable[Entry]) -> int:
    return sum(batch.record_count for _, request in entries for batch in request.batches)
