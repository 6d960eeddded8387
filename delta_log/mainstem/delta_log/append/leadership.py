"""Taking the lead of a topic: the epoch in its log, and what its former leader has left there."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator
from itertools import islice
from typing import TypeVar

from mainstem.delta_log.append.producer_memory import PlacedBatch
from mainstem.delta_log.append.producers import ProducerStates
from mainstem.delta_log.format import LOG, Batch, Register, commit_path, decode_info, registers
from mainstem.delta_log.store import NotFound, ObjectStore, read_ahead, wall_clock_ms
from mainstem.delta_log.table import (
    OpenTopic,
    TableCommit,
    TableState,
    claim_lead,
    commit_beside_leader,
)
from mainstem.errors import LogDamagedError, StoreUnavailableError
from mainstem.limits import IN_FLIGHT_BATCHES_MAX

log = logging.getLogger(__name__)

Token = TypeVar("Token")

#: A temporary file of a commit that is this old belongs to nobody any more.
_TEMPORARY_MS_MIN = 3_600_000

#: A batch comes again within `delivery.timeout.ms`, 2 minutes by default; this is ample.
REPEAT_WINDOW_MS = 300_000

#: Commit files, and batches in them, that are looked at for batches that may come again: bound the
#: time of a start to about a second. What is older is known by its sequence, not by its offset.
REPEAT_COMMITS_MAX = 5_000
REPEAT_BATCHES_MAX = 50_000


def take_lead(
    opened: OpenTopic,
    producers: ProducerStates[Token],
    clock_ms: Callable[[], int],
    now_ms: int,
    leader: int = 0,
    may_claim: Callable[[TableState], None] = lambda _: None,
    gateway_id: str = "",
) -> int:
    """Claims the next leader epoch, reads what idempotent producers have sent into `producers`, and
    clears away what interrupted commits left. Blocks.

    Args:
        clock_ms: The time of day, for the commit.
        now_ms: See `ProducerStates.restore`.
        leader, may_claim: See `claim_epoch`.
        gateway_id: Whose write-ahead log may have requests of the topic from now on; empty: there
            is none.

    Returns:
        The epoch.

    Raises:
        StoreUnavailableError: The store failed.
        UnknownTopicError: The topic was deleted meanwhile.
        MainstemError: What `may_claim` raised.
    """
    epoch = claim_epoch(
        opened, clock_ms=clock_ms, leader=leader, may_claim=may_claim, gateway_id=gateway_id
    )
    restore_producers(opened.store, opened.state, producers, now_ms)
    with contextlib.suppress(StoreUnavailableError):  # the next start may have more luck
        # By the store's own clock, which stamps the files.
        opened.store.sweep(LOG, wall_clock_ms() - _TEMPORARY_MS_MIN)
    return epoch


def claim_epoch(
    opened: OpenTopic,
    sleep: Callable[[float], None] = time.sleep,
    clock_ms: Callable[[], int] = wall_clock_ms,
    leader: int = 0,
    may_claim: Callable[[TableState], None] = lambda _: None,
    gateway_id: str = "",
) -> int:
    """Commits the next leader epoch, which stops its former leader; returns it. Blocks.

    Args:
        leader: The incarnation of the gateway that leads; 0: it is none that others know.
        may_claim: Raises where the topic is to be left to another leader. Called with the newest
            state, again when another one was first with a commit.

    Raises:
        StoreUnavailableError: The store failed, or too many others write.
        UnknownTopicError: The topic was deleted meanwhile.
        LogOvertakenError: `opened` is too old: open the topic again.
        MainstemError: What `may_claim` raised.
    """

    def build(state: TableState) -> TableCommit:
        may_claim(state)
        now_ms = clock_ms()
        # The time makes it one that no other copy of the log has: a log that is put back from a
        # copy goes on with other records, and its epochs must not be those of before. The order of
        # leaders does not rest on the clock.
        epoch = max(state.epoch + 1, now_ms)
        claim = [Register(registers.EPOCH, epoch)]
        if leader != state.leader:
            claim.append(Register(registers.LEADER, leader))
        if gateway_id:
            claim.append(Register(registers.led(gateway_id), epoch))
        return TableCommit.of("LEADER EPOCH", claim, timestamp_ms=now_ms, survives_appends=True)

    return claim_lead(opened, build, sleep).state.epoch


def hand_over(opened: OpenTopic, epoch: int, leader: int, *, is_settled: bool = False) -> bool:
    """Lets go of a topic that was led under `epoch`, and whose appender is closed. Blocks.

    Args:
        leader: The incarnation of the gateway that is to lead it from now on; 0: any.
        is_settled: See `Appender`: the next leader need not seal the log of this one, which other
            topics use.

    Returns:
        Whether that is what the log says. It is not where another gateway leads already.

    Raises:
        StoreUnavailableError: The store failed.
        UnknownTopicError: The topic was deleted meanwhile.
    """

    def build(state: TableState) -> TableCommit | None:
        if state.epoch != epoch or state.leader == leader:
            return None
        said = [Register(registers.LEADER, leader)]
        if is_settled:
            said.append(Register(registers.SETTLED, epoch + 1))
        return TableCommit.of(
            "HAND OVER",
            said,
            timestamp_ms=wall_clock_ms(),
            survives_appends=True,
        )

    commit_beside_leader(opened, build)
    return opened.state.epoch == epoch and opened.state.leader == leader


def restore_producers(
    store: ObjectStore, state: TableState, producers: ProducerStates[Token], now_ms: int
) -> None:
    """Fills `producers` with what the table says: registers, and the batches of recent commits,
    so that a batch that comes again is answered with its original offsets. Blocks.

    Args:
        state: Includes the epoch that the caller has claimed: nobody else appends meanwhile.
        now_ms: See `ProducerStates.restore`.
    """
    assert state.has_producers, "the state of a leader that was"
    found = [
        (register.updated_ms or 0, *key, register.value)
        for register in state.registers.values()
        if (key := registers.parse_producer(register.name)) is not None
        and register.name == registers.producer(*key)
    ]
    if not found:
        return
    recent: dict[tuple[int, int, int], list[PlacedBatch]] = {}
    with contextlib.closing(_recent_batches(store, state.version)) as newest:
        for version, batch in islice(newest, REPEAT_BATCHES_MAX):
            by = batch.producer
            assert by is not None
            placed = recent.setdefault((by.id, batch.partition, by.epoch), [])
            if len(placed) < IN_FLIGHT_BATCHES_MAX:
                placed.append(
                    PlacedBatch(by.base_sequence, batch.record_count, batch.base_offset, version)
                )
    # By their last use, as the clocks of their leaders told it.
    for updated_ms, producer_id, partition, last_sequence in sorted(found):
        register = state.registers.get(registers.producer_epoch(producer_id, partition))
        is_current = register is not None and register.updated_ms == updated_ms
        epoch = register.value if register is not None and is_current else 0
        batches = recent.get((producer_id, partition, epoch), ())
        producers.restore(producer_id, partition, epoch, last_sequence, now_ms, batches)


def _recent_batches(store: ObjectStore, newest: int) -> Generator[tuple[int, Batch]]:
    """(version, batch) of idempotent producers, newest first, of the last minutes in which there
    were any: what time it is now, another clock may see otherwise."""
    not_before_ms: int | None = None
    versions = range(newest, max(newest - REPEAT_COMMITS_MAX, -1), -1)
    with contextlib.closing(read_ahead(store, map(commit_path, versions))) as files:
        for version in versions:
            try:
                info = decode_info(next(files), f"{store.uri}/{commit_path(version)}")
            except NotFound:  # cleaned up: older than the log's retention
                return
            except LogDamagedError as error:
                # Behind a checkpoint the table can do without it; what it said is not guessed.
                log.warning("batches that may come again are known from here on only: %s", error)
                return
            if info is None:
                continue
            batches = [batch for batch in reversed(info.batches) if batch.producer is not None]
            if not batches:
                continue
            if not_before_ms is None:
                not_before_ms = info.timestamp_ms - REPEAT_WINDOW_MS
            if info.timestamp_ms < not_before_ms:
                return
            for batch in batches:
                yield version, batch
