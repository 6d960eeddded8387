"""Writes Grafana's dashboard and Prometheus' alert rules, from what there is to measure.

A test fails when they are not current, or name a metric that does not exist.

Usage: python deploy/generate.py [OUTPUT_DIRECTORY]   (default: the folder of this file)
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from mainstem.config import load_gateway_config
from mainstem.ingest_gateway.server import Gateway
from mainstem.jobs.scheduler_metrics import SchedulerMetrics

HERE: Final = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph: its title, what it shows, how a line is called, and Grafana's name of the unit."""

    title: str
    expr: str
    legend: str
    unit: str = "short"


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule: when, for how long, how bad, and what a person reads."""

    name: str
    expr: str
    minutes: int
    severity: str
    summary: str


RATE: Final = "[$__rate_interval]"

#: Every program that Prometheus watches has metrics of its process: only gateways.
OURS: Final = "and on (job, instance) mainstem_build_info"


def p99(metric: str, label: str) -> str:
    """The time that 99 of 100 take no longer than."""
    return f"histogram_quantile(0.99, sum by ({label}, le) (rate({metric}_bucket{RATE})))"


PANELS: Final = (
    Panel(
        "Records in", f"sum by (topic) (rate(mainstem_produce_records_total{RATE}))", "{{topic}}"
    ),
    Panel(
        "Bytes in",
        f"sum by (topic) (rate(mainstem_produce_bytes_total{RATE}))",
        "{{topic}}",
        "Bps",
    ),
    Panel("Records out", f"sum by (topic) (rate(mainstem_fetch_records_total{RATE}))", "{{topic}}"),
    Panel(
        "Lag in seconds",
        "max by (group, topic) (mainstem_consumer_group_lag_seconds)",
        "{{group}} {{topic}}",
        "s",
    ),
    Panel(
        "Lag in records",
        "sum by (group, topic) (mainstem_consumer_group_lag_records)",
        "{{group}} {{topic}}",
    ),
    Panel(
        "Calls that failed",
        f'sum by (call, code) (rate(mainstem_requests_total{{code!="OK"}}{RATE}))',
        "{{call}} {{code}}",
        "reqps",
    ),
    Panel(
        "Time of calls, p99",
        p99("mainstem_request_seconds", "call"),
        "{{call}}",
        "s",
    ),
    Panel(
        "Time of appends, p99",
        p99("mainstem_append_seconds", "stage"),
        "{{stage}}",
        "s",
    ),
    Panel(
        "Oldest uncommitted",
        "max by (topic) (mainstem_oldest_uncommitted_seconds)",
        "{{topic}}",
        "s",
    ),
    Panel(
        "Free on the disk",
        "min by (instance) (mainstem_warehouse_free_bytes)",
        "{{instance}}",
        "bytes",
    ),
    Panel("Memory", f"process_resident_memory_bytes {OURS}", "{{instance}}", "bytes"),
    Panel(
        "Processor",
        f"rate(process_cpu_seconds_total{RATE}) {OURS}",
        "{{instance}}",
        "percentunit",
    ),
    Panel(
        "Runs of jobs",
        "sum by (job, outcome) (increase(mainstem_job_runs_total[1h]))",
        "{{job}} {{outcome}}",
    ),
)

ALERTS: Final = (
    Alert(
        "MainstemNoGateway",
        "absent(mainstem_build_info)",
        2,
        "critical",
        "No gateway answers Prometheus.",
    ),
    Alert(
        "MainstemGatewayRestarts",
        f"changes(process_start_time_seconds[1h]) {OURS} > 3",
        0,
        "warning",
        "The gateway {{ $labels.instance }} started {{ $value }} times within an hour.",
    ),
    Alert(
        "MainstemDiskFills",
        "predict_linear(mainstem_warehouse_free_bytes[6h], 86400) < 0",
        30,
        "warning",
        "The warehouse's disk is full within a day if it fills as in the last six hours.",
    ),
    Alert(
        "MainstemDiskFull",
        "mainstem_warehouse_free_bytes < 1e9",
        1,
        "critical",
        "The warehouse's disk has {{ $value | humanize1024 }}B left; at 0 nothing is appended.",
    ),
    Alert(
        "MainstemStoreFails",
        "increase(mainstem_store_failures_total[5m]) > 0",
        5,
        "critical",
        "Calls to the store fail with {{ $labels.reason }}.",
    ),
    Alert(
        "MainstemNotCommitting",
        "mainstem_oldest_uncommitted_seconds > 30",
        1,
        "critical",
        "Records of topic {{ $labels.topic }} wait for their table commit since {{ $value }} s.",
    ),
    Alert(
        "MainstemAcknowledgedRecordsLost",
        "increase(mainstem_wal_orphaned_records_total[1h]) > 0",
        0,
        "critical",
        "Records acknowledged with acks=1 are not in the table; they are in *.orphans files.",
    ),
    Alert(
        "MainstemWriteAheadLogFails",
        "increase(mainstem_wal_failures_total[5m]) > 0",
        5,
        "warning",
        "The write-ahead log fails with {{ $labels.reason }}: acks=1 waits for table commits.",
    ),
    Alert(
        "MainstemGroupLags",
        "max by (group, topic) (mainstem_consumer_group_lag_seconds) > 300",
        5,
        "warning",
        "Group {{ $labels.group }} is {{ $value }} s behind in {{ $labels.topic }}.",
    ),
    Alert(
        "MainstemInternalErrors",
        'increase(mainstem_requests_total{code="INTERNAL"}[5m]) > 0',
        0,
        "warning",
        "{{ $labels.call }} fails with faults of the gateway: see its log.",
    ),
    Alert(
        "MainstemNoScheduler",
        "absent(mainstem_job_scheduler_active == 1)",
        10,
        "warning",
        "No scheduler runs the maintenance jobs.",
    ),
    Alert(
        "MainstemJobFails",
        'increase(mainstem_job_runs_total{outcome="failed"}[1h]) > 0',
        0,
        "warning",
        "The job {{ $labels.job }} failed for one table at least: see `mainstem job history`.",
    ),
)


def families() -> dict[str, tuple[str, str]]:
    """Every metric of a gateway and a scheduler: its type and what it says."""

    async def of_gateway() -> dict[str, tuple[str, str]]:
        with tempfile.TemporaryDirectory() as folder:
            free = "127.0.0.1:0"
            flags = {"listeners": free, "metrics.listeners": free, "warehouse": folder}
            gateway = Gateway(load_gateway_config(environment={}, flags=flags))
            await gateway.start()
            try:
                url = f"http://{gateway.metrics_address}/metrics"
                text = (await asyncio.to_thread(urlopen, url, None, 30)).read().decode()
                found = text_string_to_metric_families(text)
                return {one.name: (one.type, one.documentation) for one in found}
            finally:
                await gateway.drain()

    scheduler = SchedulerMetrics().registry.collect()
    found = {one.name: (one.type, one.documentation) for one in scheduler}
    return dict(sorted({**found, **asyncio.run(of_gateway())}.items()))


def rest(known: dict[str, tuple[str, str]]) -> list[Panel]:
    """A panel for each metric of ours that has none yet."""
    shown = " ".join(panel.expr for panel in PANELS)
    found = []
    for name, (kind, doc) in known.items():
        if not name.startswith("mainstem_") or name in shown or name == "mainstem_build_info":
            continue
        expr = {
            "counter": f"rate({name}_total{RATE})",
            "histogram": f"histogram_quantile(0.99, sum by (le) (rate({name}_bucket{RATE})))",
        }.get(kind, name)
        unit = "bytes" if name.endswith("_bytes") else "s" if name.endswith("_seconds") else "short"
        found.append(Panel(doc.rstrip("."), expr, "", unit))
    return found


def dashboard(known: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """In Grafana's JSON, two panels a line."""
    panels: list[dict[str, Any]] = []
    source = {"type": "prometheus", "uid": "${source}"}
    for index, panel in enumerate([*PANELS, *rest(known)]):
        panels.append(
            {
                "id": index + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": 12 * (index % 2), "y": 8 * (index // 2), "w": 12, "h": 8},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {
                        "refId": "A",
                        "datasource": source,
                        "expr": panel.expr,
                        "legendFormat": panel.legend or "__auto",
                    }
                ],
            }
        )
    return {
        "uid": "mainstem",
        "title": "mainstem",
        "schemaVersion": 39,
        "tags": ["mainstem"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }


def rules() -> str:
    """The alerts as YAML; a text in JSON's quotes is one in YAML as well."""
    lines = ["# Written by deploy/generate.py.", "groups:", "  - name: mainstem", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.minutes}m",
            f"        labels: {{severity: {alert.severity}}}",
            f"        annotations: {{summary: {json.dumps(alert.summary)}}}",
        ]
    return "\n".join(lines) + "\n"


def generate(directory: Path) -> list[Path]:
    """Writes both files below `directory`."""
    grafana, prometheus = directory / "grafana-dashboard.json", directory / "prometheus-alerts.yaml"
    grafana.write_text(json.dumps(dashboard(families()), indent=2) + "\n")
    prometheus.write_text(rules())
    return [grafana, prometheus]


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE):
        print(path)
