"""The coordinator of consumer groups with its I/O, and its metrics.

The state machine itself is `mainstem.consumers`; calls come in by `services.groups`.
"""

from mainstem.ingest_gateway.groups.coordination import GroupCoordination
from mainstem.ingest_gateway.groups.metrics import GroupMetrics
from mainstem.ingest_gateway.groups.offset_commits import NO_OFFSET, OffsetCommits
from mainstem.ingest_gateway.groups.running import Running
from mainstem.ingest_gateway.groups.watch import watch_groups

__all__ = [
    "NO_OFFSET",
    "GroupCoordination",
    "GroupMetrics",
    "OffsetCommits",
    "Running",
    "watch_groups",
]
