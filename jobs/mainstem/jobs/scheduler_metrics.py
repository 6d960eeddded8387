"""What the scheduler tells Prometheus. Names: docs/reference/metrics.md."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from mainstem.metrics import process_registry

#: Seconds: a look at a few topics, up to hours of compaction.
_BUCKETS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0)


class SchedulerMetrics:
    """The metrics of one scheduler, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = process_registry()
        self.active = Gauge(
            "mainstem_job_scheduler_active",
            "1: runs the jobs; 0: waits for another scheduler to end.",
            registry=self.registry,
        )
        self.runs = Counter(
            "mainstem_job_runs_total",
            "Runs that ended, by outcome: ok, nothing, superseded, failed, abandoned.",
            ["job", "outcome"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "mainstem_job_seconds",
            "How long runs took.",
            ["job"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.last_success = Gauge(
            "mainstem_job_last_success_timestamp_seconds",
            "When the job last ended well, whichever scheduler ran it; seconds since 1970.",
            ["job"],
            registry=self.registry,
        )
