"""What a gateway tells over HTTP: `/metrics`, `/healthz`, `/readyz`, and a page for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from mainstem.delta_log.system import GatewayBeat
from mainstem.ingest_gateway.condition import GatewayCondition
from mainstem.metrics import (
    Answer,
    Page,
    StatusTable,
    metrics_page,
    readiness_page,
    status_page,
)

#: What the page shows of a partition and of a group's partition, from the metrics.
_PARTITION = "mainstem_topic_partition_"
_GROUP = "mainstem_consumer_group_"
_TOPIC_PARTITION = ("topic", "partition")


def gateway_pages(
    registry: CollectorRegistry,
    condition: GatewayCondition,
    facts: Callable[[], list[tuple[str, object]]],
    gateways: Callable[[], Iterable[GatewayBeat]],
) -> dict[str, Page]:
    """The pages by path.

    Args:
        facts: Names and values for the top of the page.
        gateways: Those that are alive.
    """

    def health(_: Mapping[str, str]) -> Answer:
        return readiness_page(condition.not_alive)

    def readiness(_: Mapping[str, str]) -> Answer:
        return readiness_page(condition.not_ready)

    def overview(_: Mapping[str, str]) -> Answer:
        samples = [one for family in registry.collect() for one in family.samples]
        tables = [
            _topics(samples),
            _partitions(samples),
            _groups(samples),
            _lags(samples),
            _gateways(gateways()),
        ]
        return status_page("mainstem gateway", condition.not_ready, facts(), tables)

    return {
        "/": overview,
        "/healthz": health,
        "/readyz": readiness,
        "/metrics": metrics_page(registry),
    }


def _values(
    samples: Iterable[Sample], prefix: str, names: tuple[str, ...], labels: tuple[str, ...]
) -> dict[tuple[str, ...], dict[str, float]]:
    """The named figures of each combination of labels."""
    wanted = {prefix + name: name for name in names}
    found: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for sample in samples:
        name = wanted.get(sample.name)
        if name is not None:
            found[tuple(sample.labels[label] for label in labels)][name] = sample.value
    return found


def _topics(samples: Iterable[Sample]) -> StatusTable:
    sizes = _values(samples, "mainstem_table_", ("files", "bytes"), ("topic",))
    ends = _values(samples, _PARTITION, ("high_watermark", "log_start_offset"), _TOPIC_PARTITION)
    partitions: dict[str, list[dict[str, float]]] = defaultdict(list)
    for (topic, _), figures in ends.items():
        partitions[topic].append(figures)
    rows = [
        (
            topic,
            len(partitions[topic]),
            sum(int(one["high_watermark"] - one["log_start_offset"]) for one in partitions[topic]),
            int(size.get("files", 0)),
            int(size.get("bytes", 0)),
        )
        for (topic,), size in sorted(sizes.items())
    ]
    columns = ("topic", "partitions", "offsets", "files", "bytes")
    return StatusTable("Topics led here", columns, rows, "none has been asked for yet")


def _partitions(samples: Iterable[Sample]) -> StatusTable:
    names = ("log_start_offset", "high_watermark", "log_end_offset")
    found = _values(samples, _PARTITION, names, _TOPIC_PARTITION)
    rows = [
        (topic, partition, *(int(figures.get(name, 0)) for name in names))
        for (topic, partition), figures in _in_order(found)
    ]
    columns = ("topic", "partition", "log start", "high watermark", "log end")
    return StatusTable("Partitions", columns, rows)


def _groups(samples: Iterable[Sample]) -> StatusTable:
    members = _values(samples, _GROUP, ("members",), ("group",))
    lags: dict[str, float] = defaultdict(float)
    for sample in samples:
        if sample.name == f"{_GROUP}lag_records":
            lags[sample.labels["group"]] += sample.value
    rows = [
        (group, int(members.get((group,), {}).get("members", 0)), int(lags[group]))
        for group in sorted({group for (group,) in members} | set(lags))
    ]
    return StatusTable("Groups coordinated here", ("group", "members", "lag in records"), rows)


def _lags(samples: Iterable[Sample]) -> StatusTable:
    names = ("committed_offset", "lag_records", "lag_seconds")
    found = _values(samples, _GROUP, names, ("group", "topic", "partition"))
    rows = [
        (
            *labels,
            int(figures["committed_offset"]),
            int(figures["lag_records"]) if "lag_records" in figures else "unknown",
            round(figures["lag_seconds"], 1) if "lag_seconds" in figures else "unknown",
        )
        for labels, figures in _in_order(found)
        if "committed_offset" in figures
    ]
    columns = ("group", "topic", "partition", "committed", "lag in records", "lag in seconds")
    return StatusTable("Lag", columns, rows, "no offset is committed")


def _gateways(rows: Iterable[GatewayBeat]) -> StatusTable:
    columns = ("gateway", "address", "rack", "topics led", "bytes/s in", "bytes/s out")
    found = [
        (
            f"{row.gateway_id} (drains)" if row.draining else row.gateway_id,
            row.address,
            row.rack,
            row.topics_led,
            row.in_bytes_s,
            row.out_bytes_s,
        )
        for row in rows
    ]
    return StatusTable("Gateways", columns, found)


def _in_order(
    found: Mapping[tuple[str, ...], dict[str, float]],
) -> list[tuple[tuple[str, ...], dict[str, float]]]:
    """By name, and by number of partition, which is the last label."""
    return sorted(found.items(), key=lambda one: (one[0][:-1], int(one[0][-1])))
