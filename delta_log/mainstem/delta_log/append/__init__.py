"""From an accepted request to a table commit: the queue, the producers' sequences, the appender."""

from mainstem.delta_log.append.appender import Appender, CommittedRecords
from mainstem.delta_log.append.leadership import hand_over
from mainstem.delta_log.append.producer_ids import ProducerIds
from mainstem.delta_log.append.producer_memory import PlacedBatch, ProducerMemory
from mainstem.delta_log.append.producers import ProducerStates
from mainstem.delta_log.append.queue import AppendQueue, ByteBudget, Pending, Portion
from mainstem.delta_log.append.transactions import StagedRecords, TransactionMark
from mainstem.delta_log.append.turns import CommitTurns
from mainstem.delta_log.append.waiter import Appended, retrieve
from mainstem.delta_log.append.wal_recovery import (
    Recovered,
    gateways_before,
    judge,
    recover_topic,
)

__all__ = [
    "AppendQueue",
    "Appended",
    "Appender",
    "ByteBudget",
    "CommitTurns",
    "CommittedRecords",
    "Pending",
    "PlacedBatch",
    "Portion",
    "ProducerIds",
    "ProducerMemory",
    "ProducerStates",
    "Recovered",
    "StagedRecords",
    "TransactionMark",
    "gateways_before",
    "hand_over",
    "judge",
    "recover_topic",
    "retrieve",
]
