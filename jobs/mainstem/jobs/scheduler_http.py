"""What a scheduler tells over HTTP: `/metrics`, `/healthz`, `/readyz`, and a page for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mainstem.jobs.scheduler import Scheduler
from mainstem.jobs.scheduler_metrics import SchedulerMetrics
from mainstem.jobs.scheduler_table import JobRow
from mainstem.metrics import (
    Answer,
    HttpServer,
    StatusTable,
    metrics_page,
    readiness_page,
    status_page,
)
from mainstem.records import format_timestamp_ms

#: Its thread looks around several times a minute, unless a call to the store hangs.
_SILENT_S_MAX: Final = 300.0

_COLUMNS: Final = ("job", "cron", "last start", "last end", "outcome", "next", "error")


def serve_http(
    listener: str, scheduler: Scheduler, metrics: SchedulerMetrics, warehouse: str
) -> HttpServer:
    """Begins to serve.

    Raises:
        InvalidConfigError: The address is malformed or cannot be bound.
    """

    def health(_: Mapping[str, str]) -> Answer:
        silent_s = scheduler.silent_s
        return readiness_page(
            f"the scheduler has done nothing for {silent_s:.0f} s"
            if silent_s > _SILENT_S_MAX
            else ""
        )

    def readiness(_: Mapping[str, str]) -> Answer:
        return readiness_page(scheduler.not_ready)

    def overview(_: Mapping[str, str]) -> Answer:
        role = "runs the jobs" if scheduler.is_active else "waits for the other scheduler to end"
        rows = [_row(name, row) for name, row in sorted(scheduler.jobs().items())]
        jobs = StatusTable("Jobs", _COLUMNS, rows, "this scheduler runs none")
        facts = (("role", role), ("warehouse", warehouse))
        return status_page("mainstem job scheduler", scheduler.not_ready, facts, [jobs])

    pages = {
        "/": overview,
        "/healthz": health,
        "/readyz": readiness,
        "/metrics": metrics_page(metrics.registry),
    }
    return HttpServer("metrics.listeners", listener, pages)


def _row(name: str, row: JobRow) -> list[object]:
    return [
        name,
        f"{row.cron} (paused)" if row.paused else row.cron,
        _time(row.started_ms),
        "runs" if row.running else _time(row.ended_ms),
        row.outcome,
        _time(row.next_ms),
        row.error,
    ]


def _time(ms: int | None) -> str:
    return "" if ms is None else format_timestamp_ms(ms)
