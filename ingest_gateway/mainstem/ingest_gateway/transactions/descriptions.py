"""What operators are told of transactions. Pure."""

from __future__ import annotations

from mainstem.ingest_gateway.transactions.entry import Entry
from mainstem.ingest_gateway.transactions.ids import TransactionRef
from mainstem.protocol.v1 import transactions_pb2


def described(
    entry: Entry, now: tuple[float, int], *, brief: bool = False
) -> transactions_pb2.TransactionDescription:
    """A transactional id, and its transaction.

    Args:
        now: Of the clock of open transactions, in seconds, and of that of rows, in ms.
        brief: Without topics and groups.
    """
    row, opened = entry.row, entry.opened
    now_s, now_ms = now
    found = transactions_pb2.TransactionDescription(
        state=entry.state, timeout_ms=row.timeout_ms, client_id=row.client_id
    )
    if opened is not None:
        found.transaction.CopyFrom(opened.ref.message())
        found.age_ms = max(0, int((now_s - opened.opened_s) * 1000))
        found.record_count = opened.record_count
        found.bytes = opened.size_bytes
        topics = sorted(opened.topics)
        groups = sorted({one.group for one in opened.offsets.values()})
    else:
        ref = row.ref
        if not row.number:
            ref = TransactionRef(row.transactional_id, row.producer_id, entry.epoch, 0)
        found.transaction.CopyFrom(ref.message())
        found.age_ms = max(0, now_ms - row.updated_ms)
        found.record_count = sum(sum(part.counts.values()) for part in row.topics)
        topics = sorted(part.topic for part in row.topics)
        groups = sorted({one.group for one in row.offsets})
        found.token = row.prepared_token
    if not brief:
        found.topics.extend(topics)
        found.groups.extend(groups)
    return found
