"""What becomes of what a write-ahead log has of a topic, at a start or without the lead.

**What is decided never changes.** A partition's register `mainstem/epoch/<partition>` says in which
leader epoch its last record was accepted, and never goes back. Once it is higher than the epoch of
an entry that is not in the table, another leader has given away what came after the partition's end
as the entry knew it: the entry is an orphan, whatever offsets the partition comes to later. A file
of orphans decides as well: what is in one stays an orphan.

**What a topic's leaders have left** is in the logs of all who led it since a leader last said that
nothing was left (`mainstem/settled`). The logs of others are sealed before they are read, after the
new leader has claimed its epoch: from then on nobody can acknowledge anything in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from mainstem.delta_log.files import Slice
from mainstem.delta_log.format import Batch, registers
from mainstem.delta_log.table import TableState
from mainstem.delta_log.wal import Part, Wal, WalRequest

Entry = tuple[int, WalRequest]


@dataclass(frozen=True, slots=True)
class RecoveredRequest:
    """A request that is to be appended, the log that has it, and its number there."""

    wal: Wal
    number: int
    request: WalRequest


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the logs had of a topic.

    Attributes:
        requests: In order: they continue the partitions where they end.
        orphan_count: Records that can no longer get into the table, and were not kept before.
        orphans_path: The file that keeps them.
        waiting_count: Records of which nobody can say yet what becomes of them.
    """

    requests: tuple[RecoveredRequest, ...] = ()
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
        entries: In the order in which they were accepted; those that `state` has by its register
            for the log are left out. A batch may come twice, also under another number: an epoch
            gives an offset once.
        state: With the epoch that the caller has claimed, if it `is_led`; else one that was the
            newest a moment ago.
        kept: What files of orphans have.
        is_led: Nobody else can append any more, so a batch that fits is appended, and one that does
            not never will.
    """
    judgement = Judgement()
    seen: set[tuple[int, int, int]] = set()
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
            place = (epoch, partition, batch.base_offset)
            if place in seen:
                continue
            seen.add(place)
            part = (number, partition, batch.base_offset)
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


def gateways_before(state: TableState) -> list[str]:
    """The gateways whose logs may have something that belongs into the table: who led the topic
    since it was settled last. Pure."""
    found = {registers.gateway_of(name) for name in state.registers} - {""}
    return sorted(
        gateway_id
        for gateway_id in found
        if state.register_value(registers.led(gateway_id)) >= state.settled
    )


async def recover_topic(
    wal: Wal, topic: str, state: TableState, *, is_led: bool, others: Sequence[Wal] = ()
) -> Recovered:
    """Settles what the logs have of a topic, but for what is to be appended, or waits.

    A batch whose first offset is where its partition ends is to be appended there, as if nothing
    had happened. Orphans are kept in a file beside the log, never written over what others own,
    never dropped; the file is durable before the log lets go of anything.

    Args:
        wal: The gateway's own.
        state: See `judge`.
        others: Of gateways that led the topic before: sealed since the epoch was claimed.

    Raises:
        LogDamagedError, StoreUnavailableError: A log, or a file of orphans, fails.
    """
    topic_id = state.topic_id
    found: list[tuple[Wal, int, WalRequest]] = []
    for log in (wal, *others):
        folded = state.register_value(log.register)
        entries = await log.unfolded(topic, topic_id, folded)
        found += [(log, number, request) for number, request in entries]
    if not found:
        return Recovered()
    # An epoch is one gateway's, which numbers what it accepts.
    found.sort(key=lambda one: (one[2].epoch, one[1]))
    #: Numbers that are different in all logs, for `judge`.
    sources = list(dict.fromkeys((log, number) for log, number, _ in found))
    ordinals = {source: ordinal for ordinal, source in enumerate(sources)}
    kept: set[Part] = set()
    for log in dict.fromkeys(log for log, _ in sources):
        of_log = {number for one, number in sources if one is log}
        for number, partition, offset in await log.kept_orphans(topic_id, of_log):
            kept.add((ordinals[log, number], partition, offset))
    judgement = judge(
        [(ordinals[log, number], request) for log, number, request in found],
        state,
        kept,
        is_led=is_led,
    )
    path = ""
    for log in dict.fromkeys(log for log, _ in sources):
        orphans = [(sources[one][1], it) for one, it in judgement.orphans if sources[one][0] is log]
        if orphans:
            path = await log.keep_orphans(topic_id, orphans)
        settled = {sources[one][1] for one in judgement.settled if sources[one][0] is log}
        log.release(topic, topic_id, settled)
    return Recovered(
        tuple(RecoveredRequest(*sources[one], request) for one, request in judgement.fitting),
        _count(judgement.orphans),
        path,
        _count(judgement.waiting),
    )


def _count(entries: Iterable[Entry]) -> int:
    return sum(batch.record_count for _, request in entries for batch in request.batches)
