"""Prepared transactions of several producers that become one, the next epoch of somebody who
numbers them: the tasks of a query write, and its driver commits what all of them have written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from mainstem.errors import InvalidTxnStateError, PolicyViolationError
from mainstem.ingest_gateway.transactions.entry import Ending, Entry, Results, aborted
from mainstem.ingest_gateway.transactions.ids import TransactionRef, ordinal
from mainstem.ingest_gateway.transactions.rows import (
    COMMITTED,
    COMMITTING,
    PREPARED,
    IdRow,
    TopicPart,
    TransactionRow,
)
from mainstem.ingest_gateway.transactions.term import Term

EPOCH_MAX: Final = 2**31 - 1


async def complete_several(
    term: Term, name: str, epoch: int, tokens: Sequence[str], *, one_off: bool
) -> tuple[Results, bool]:
    """Commits prepared transactions as the epoch of `name`. To cancel this stops nothing.

    Args:
        epoch: From 0; higher than those before.
        one_off: The name is forgotten one day: there will be no other epoch.

    Returns:
        Where the records are, and whether this epoch, or a later one, was committed before: then
        what the tokens stand for is aborted.

    Raises:
        TransactionAbortedError: Some of them is not prepared any more; the others are aborted too.
        InvalidTxnStateError: The name is a producer's.
        PolicyViolationError: The epoch is none.
    """
    if not 0 <= epoch <= EPOCH_MAX:
        raise PolicyViolationError(
            f"the epoch is {epoch}; it must be from 0 to {EPOCH_MAX}", transactional_id=name
        )
    refs = [TransactionRef.of_token(token) for token in dict.fromkeys(tokens)]
    return await term.to_its_end(_complete_all(term, name, epoch, refs, one_off=one_off))


async def _complete_all(
    term: Term, name: str, epoch: int, refs: Sequence[TransactionRef], *, one_off: bool
) -> tuple[Results, bool]:
    entry = term.find(name) or term.new_entry(
        IdRow(name, -1, 0, 0, is_epochs=True, one_off=one_off)
    )
    async with entry.lock:
        term.committing.check_open()
        if not entry.row.is_epochs:
            raise InvalidTxnStateError(
                f"transactional.id {name!r} is a producer's; epochs need one of their own",
                transactional_id=name,
            )
        await term.ended_soon(entry)
        if epoch + 1 <= entry.row.number:
            await give_up(term, refs)
            ended = entry.ended
            known = ended is not None and ended.ref.number == epoch + 1
            return (ended.results if ended is not None and known else []), True
        ending, lost = await _decided(term, entry, epoch + 1, refs)
        if lost is not None:
            await give_up(term, refs)
            raise aborted(lost, "it is not prepared, or not any more, and the others go with it")
    assert ending is not None
    return (await term.outcome(ending)).answer(commit=True), False


async def _decided(
    term: Term, entry: Entry, number: int, refs: Sequence[TransactionRef]
) -> tuple[Ending | None, TransactionRef | None]:
    """Decides; or says which transaction is not there to be decided. Meanwhile nobody else touches
    any of them."""
    async with AsyncExitStack() as locks:
        found: dict[str, Entry] = {}
        # In one order for all, so that no two wait for each other.
        for name in sorted({ref.transactional_id for ref in refs}):
            one = term.find(name)
            if one is not None and one is not entry:
                await locks.enter_async_context(one.lock)
                found[name] = one
        parts: list[IdRow] = []
        for ref in refs:
            one = found.get(ref.transactional_id)
            if one is None or one.row.state != PREPARED or one.row.ref != ref:
                return None, ref
            parts.append(one.row)
        now_ms = term.committing.now_ms()
        row = replace(
            entry.row,
            state=COMMITTING,
            number=number,
            ordinal=ordinal(0, number),
            topics=_joined([part for one in parts for part in one.topics]),
            updated_ms=now_ms,
        )
        over = {one.transactional_id: one.over(COMMITTED, now_ms) for one in parts}
        written = asyncio.Event()

        def take_over() -> None:
            for name, one in over.items():
                found[name].row = one
            written.set()

        more = [TransactionRow(name, None if one.single_use else one) for name, one in over.items()]
        ending = term.begin_ending(
            entry, row.ref, term.committing.decide(entry, row, {}, more, take_over)
        )
        waiting = asyncio.ensure_future(written.wait())
        try:
            await asyncio.wait({ending.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return ending, None


async def give_up(term: Term, refs: Sequence[TransactionRef]) -> None:
    """Aborts those of the transactions that are prepared."""
    for ref in refs:
        with contextlib.suppress(InvalidTxnStateError):  # it is decided, or nobody knows it
            await term.complete(ref, commit=False)


def _joined(parts: Sequence[TopicPart]) -> tuple[TopicPart, ...]:
    """One part for each topic, with the objects in their order."""
    found: dict[tuple[str, str], TopicPart] = {}
    for part in parts:
        key = part.topic, part.topic_id
        known = found.get(key)
        if known is None:
            found[key] = part
            continue
        counts = dict(known.counts)
        for partition, count in part.counts.items():
            counts[partition] = counts.get(partition, 0) + count
        found[key] = replace(known, staged=(*known.staged, *part.staged), counts=counts)
    return tuple(found.values())
