"""Records acknowledged with acks=1 that can no longer get into the table of their topic."""

from __future__ import annotations

import structlog

from mainstem.delta_log import TableState
from mainstem.delta_log.append import recover_topic
from mainstem.delta_log.wal import Wal
from mainstem.ingest_gateway.metrics import GatewayMetrics

log = structlog.get_logger()


async def settle(wal: Wal, metrics: GatewayMetrics, topic: str, state: TableState) -> int:
    """Puts what can no longer get into a topic that is not led here into a file beside the
    write-ahead log; returns how many records may still get there."""
    found = await recover_topic(wal, topic, state, is_led=False)
    if found.orphan_count:
        metrics.orphaned(found.orphan_count)
        log.error(
            "records acknowledged with acks=1 are not in the table",
            topic=topic,
            count=found.orphan_count,
            kept_in=found.orphans_path,
        )
    return found.waiting_count
