"""What a running process shows: metrics for Prometheus, health for probes, a page for people."""

from mainstem.errors import extra_of

with extra_of("mainstem.metrics"):
    from mainstem.metrics._http import Answer, HttpServer, Page
    from mainstem.metrics._registry import metrics_page, process_registry
    from mainstem.metrics._status_page import StatusTable, readiness_page, status_page

__all__ = [
    "Answer",
    "HttpServer",
    "Page",
    "StatusTable",
    "metrics_page",
    "process_registry",
    "readiness_page",
    "status_page",
]
