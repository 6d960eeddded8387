"""A registry of metrics, with those of the process, and its page."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from mainstem.metrics._http import Answer, Page


def process_registry() -> CollectorRegistry:
    """A new registry with `process_*`: processor time, memory, descriptors, start of the process.

    Counters in this program have no `_created` twins: nobody asks for them, and they double what
    Prometheus keeps.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def metrics_page(registry: CollectorRegistry) -> Page:
    """The page `/metrics`: Prometheus text, or OpenMetrics for a client that asks for it."""

    def page(headers: Mapping[str, str]) -> Answer:
        encoder, content_type = choose_encoder(headers.get("accept", ""))
        return Answer(encoder(registry), content_type=content_type)

    return page
