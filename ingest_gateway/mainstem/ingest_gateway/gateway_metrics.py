"""What a gateway counts and measures, for Prometheus."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class GatewayMetrics:
    """The metrics of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.produce_records = self._counter("produce_records", "Records accepted.", "topic")
        self.produce_bytes = self._counter("produce_bytes", "Bytes of records accepted.", "topic")
        self.produce_rejected = self._counter("produce_rejected", "Requests refused.", "reason")
        self.checkpoints = self._counter("checkpoints", "Checkpoints of topic tables.", "outcome")
        self._commits = self._counter("table_commits", "Attempts at a table commit.", "outcome")
        self._append = Histogram(
            "mainstem_append_seconds",
            "Time of a request in the queue, and of a table commit's encoding and commit.",
            ["stage"],
            registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.queued_bytes = Gauge(
            "mainstem_queued_bytes", "Bytes accepted and not yet committed.", registry=self.registry
        )
        build = Gauge("mainstem_build_info", "Always 1.", ["version"], registry=self.registry)
        build.labels(version("mainstem")).set(1)

    def append_seconds(self, stage: str, seconds: float) -> None:
        self._append.labels(stage).observe(seconds)

    def table_commit(self, outcome: str) -> None:
        self._commits.labels(outcome).inc()

    def _counter(self, name: str, doc: str, label: str) -> Counter:
        return Counter(f"mainstem_{name}", doc, [label], registry=self.registry)
