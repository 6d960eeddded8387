"""What the scheduler tells Prometheus. Names: docs/reference/metrics.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from mainstem.errors import InvalidConfigError

#: Seconds: a look at a few topics, up to hours of compaction.
_BUCKETS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0)


class SchedulerMetrics:
    """The metrics of one scheduler, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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

    def serve(self, listener: str) -> tuple[str, Callable[[], None]]:
        """Serves /metrics; returns host:port and how to stop.

        Raises:
            InvalidConfigError: The address is malformed or cannot be bound.
        """
        host, _, port = listener.rpartition(":")
        try:
            server, thread = start_http_server(int(port), host, registry=self.registry)
        except (OSError, ValueError, OverflowError) as error:
            raise InvalidConfigError(
                f"cannot serve metrics on {listener!r}: {error}; it must be host:port, for example "
                "127.0.0.1:9492",
                name="metrics.listeners",
            ) from error

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return f"{host}:{server.server_port}", close
