"""What there is to measure of transactions, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mainstem.ingest_gateway.transactions.coordination import TransactionCoordination
from mainstem.ingest_gateway.transactions.entry import OPEN
from mainstem.ingest_gateway.transactions.rows import COMMITTING, PREPARED

_STATES = (OPEN, PREPARED, COMMITTING)


class TransactionMetrics(Collector):
    """The transactions coordinated here, when asked; in any thread."""

    def __init__(self, coordination: TransactionCoordination) -> None:
        self._coordination = coordination

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Copies what changes while it looks."""
        count = GaugeMetricFamily(
            "mainstem_transactions", "Transactions that are not over.", labels=["state"]
        )
        age = GaugeMetricFamily(
            "mainstem_transaction_oldest_seconds",
            "How long the oldest transaction has been in the state.",
            labels=["state"],
        )
        memory = GaugeMetricFamily(
            "mainstem_transaction_memory_bytes", "Memory that open transactions take."
        )
        ended = CounterMetricFamily(
            "mainstem_transactions_ended",
            "Transactions that were committed or aborted.",
            labels=["outcome"],
        )
        for outcome, number in self._coordination.ended.items():
            ended.add_metric([outcome], number)
        term = self._coordination.term
        if term is not None:
            now_s, now_ms = term.now()
            counts = dict.fromkeys(_STATES, 0)
            oldest = dict.fromkeys(_STATES, 0.0)
            for entry in term.sorted_entries():
                state, opened = entry.state, entry.opened
                if state not in counts:
                    continue
                counts[state] += 1
                since_s = (now_ms - entry.row.updated_ms) / 1000
                if state == OPEN and opened is not None:
                    since_s = now_s - opened.opened_s
                oldest[state] = max(oldest[state], since_s)
            for state in _STATES:
                count.add_metric([state], counts[state])
                age.add_metric([state], oldest[state])
            memory.add_metric([], term.memory_bytes)
        yield from (count, age, memory, ended)
