"""Transactions: records of several topics and offsets of groups, all of them or none.

`coordination` begins and ends a `term`, which knows each transactional id by an `entry`; what an
`opened` transaction has sent is in its `staging`; `rows` says what is kept in
`system/transactions`, and `topic_appends` brings what is decided into the topics.
"""

from mainstem.ingest_gateway.transactions.coordination import TransactionCoordination
from mainstem.ingest_gateway.transactions.descriptions import described
from mainstem.ingest_gateway.transactions.entry import Entry
from mainstem.ingest_gateway.transactions.epochs import complete_several, give_up
from mainstem.ingest_gateway.transactions.ids import TransactionRef, check_transactional_id
from mainstem.ingest_gateway.transactions.metrics import TransactionMetrics
from mainstem.ingest_gateway.transactions.peers import Peers
from mainstem.ingest_gateway.transactions.rows import IdRow
from mainstem.ingest_gateway.transactions.term import Term

__all__ = [
    "Entry",
    "IdRow",
    "Peers",
    "Term",
    "TransactionCoordination",
    "TransactionMetrics",
    "TransactionRef",
    "check_transactional_id",
    "complete_several",
    "described",
    "give_up",
]
